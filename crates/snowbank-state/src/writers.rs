//! The users who may write a file or a directory. A mark that another user could have written is
//! not believed.
//!
//! Root and this process's user are trusted, and so is the group of a directory that its owner made
//! writable for the group.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FsWord, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::container::runs_in_container;

pub(crate) const PERMISSIONS: u32 = 0o7777;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;
/// The type of the file system /sys.
const SYSFS_MAGIC: FsWord = 0x6265_6572;

/// The users who may write the files of a directory, apart from root and this process's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// The directory's owner, by user ID.
    Owner(u32),
    /// The members of this group.
    Group(u32),
}

/// The reason why the content of a directory cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untrusted {
    /// The system does not let this process look at the directory.
    #[error("{0}")]
    NotSeen(io::Error),
    /// The directory, or what is in its place, belongs to another user.
    #[error("{0}")]
    Foreign(io::Error),
    /// A link or a file is in the place of the directory.
    #[error("{0}")]
    NoDirectory(io::Error),
    /// Every user can write this directory, which has this mode. It is the directory itself, or one
    /// above, where they could put another one in its place.
    #[error("every user can write {path} (mode {1:o})", path = .0.display())]
    Open(PathBuf, u32),
}

impl Writers {
    /// Returns who may write the files of a directory. Its owner must be root or this process's
    /// user, unless `trusts_any_owner` is true.
    pub(super) fn of(directory: &Path, trusts_any_owner: bool) -> Result<Writers, Untrusted> {
        let found = fs::symlink_metadata(directory).map_err(Untrusted::NotSeen)?;
        let owner = found.uid();
        let this_user = geteuid().as_raw();
        let mode = found.mode() & PERMISSIONS;
        if ![ROOT, this_user].contains(&owner) && !trusts_any_owner {
            let text = format!("it belongs to user {owner}, and allowed are root and user {this_user}");
            return Err(Untrusted::Foreign(io::Error::other(text)));
        }
        if !found.is_dir() {
            let text = if found.is_symlink() {
                "it is a link, allowed: the directory itself"
            } else {
                "it is not a directory"
            };
            return Err(Untrusted::NoDirectory(io::Error::other(text)));
        }
        if mode & ALL_WRITE != 0 {
            return Err(Untrusted::Open(directory.to_owned(), mode));
        }
        let is_of_group = mode & GROUP_WRITES != 0;
        Ok(if is_of_group { Writers::Group(found.gid()) } else { Writers::Owner(owner) })
    }

    /// Returns the mode of the files that these users share. Other users may not even read such a
    /// file, because a reader can lock it.
    pub(super) fn file_mode(self) -> u32 {
        match self {
            Writers::Owner(_) => 0o600,
            Writers::Group(_) => 0o660,
        }
    }

    /// Returns true if no other user can have written this file.
    pub(super) fn alone_wrote(self, file: &Metadata) -> bool {
        let is_of_group = matches!(self, Writers::Group(group) if file.gid() == group);
        let is_of_owner = matches!(self, Writers::Owner(owner) if file.uid() == owner);
        let is_of_theirs = is_of_group || is_of_owner || [ROOT, geteuid().as_raw()].contains(&file.uid());
        let group_writes = file.mode() & GROUP_WRITES != 0;
        // A file with a second name may also be in a directory that others can write.
        is_of_theirs && (is_of_group || !group_writes) && file.mode() & ALL_WRITE == 0 && file.nlink() == 1
    }

    /// Makes a file one that exactly these users may open. Its mode and group may have been changed
    /// with those of its directory.
    pub(super) fn close(self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        if let Writers::Group(group) = self
            && found.gid() != group
        {
            fchown(file, None, Some(group))?;
        }
        if found.mode() & PERMISSIONS != self.file_mode() {
            file.set_permissions(Permissions::from_mode(self.file_mode()))?;
        }
        Ok(())
    }
}

/// Returns the first part of what to do about a directory with this mode that every user can write.
/// All programs share a sticky one, as /tmp is. Closing it would break them.
pub(super) fn closing(mode: u32) -> &'static str {
    if mode & STICKY == 0 { "`chmod o-w` it, or " } else { "leave its mode, which other programs need, and " }
}

/// Checks that not every user can put another directory in the place of this one. Every user may
/// write a directory above it only if that is sticky, as /run/lock is. In a container, the users are
/// the container's own, and its volumes are often open to all of them.
pub(super) fn check_above(directory: &Path) -> Result<(), Untrusted> {
    if runs_in_container() {
        return Ok(());
    }
    check_ways_to(&std::path::absolute(directory).map_err(Untrusted::NotSeen)?)
}

/// Returns a warning if every user can replace this socket, by the rule for the directories above a
/// lock directory.
pub fn socket_is_replaceable(socket: &Path) -> Option<String> {
    let Err(Untrusted::Open(open, mode)) = check_above(socket) else { return None };
    Some(format!(
        "every user can write {} (mode {mode:o}), and so put a daemon whose IDs repeat in the place of the socket {}: \
         {}choose another path",
        open.display(),
        socket.display(),
        closing(mode)
    ))
}

/// Checks the directories above a path, and those above the target of each link on the way.
fn check_ways_to(path: &Path) -> Result<(), Untrusted> {
    for place in path.ancestors() {
        // Fails if links lead round in a circle.
        let mode = match fs::metadata(place) {
            Err(error) if is_missing(&error) => continue,
            found => found.map_err(Untrusted::NotSeen)?.mode() & PERMISSIONS,
        };
        if place != path && mode & ALL_WRITE != 0 && mode & STICKY == 0 {
            return Err(Untrusted::Open(place.to_owned(), mode));
        }
        if let (Ok(target), Some(parent)) = (fs::read_link(place), place.parent()) {
            // The links of the parent itself are on the way already.
            let parent = fs::canonicalize(parent).map_err(Untrusted::NotSeen)?;
            check_ways_to(&parent.join(target))?;
        }
    }
    Ok(())
}

/// Checks that this process could use a directory or, if it is missing, make it. Makes nothing.
pub(super) fn check_usable(directory: &Path, trusts_any_owner: bool) -> Result<(), Untrusted> {
    match Writers::of(directory, trusts_any_owner) {
        Err(Untrusted::NotSeen(error)) if is_missing(&error) => {}
        found => drop(found?),
    }
    check_above(directory)?;
    let path = std::path::absolute(directory).map_err(Untrusted::NotSeen)?;
    // What is missing is made in the lowest directory that is there.
    let mut places = path.ancestors();
    places.find_map(|place| lets_write(place).transpose()).unwrap_or(Ok(())).map_err(Untrusted::NotSeen)
}

/// Checks that this process may make files in a directory. Returns `None` if nothing is there.
///
/// # Errors
/// It may not, or the path is that of something else.
pub fn lets_write(place: &Path) -> io::Result<Option<()>> {
    match fs::symlink_metadata(place) {
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(_) if !place.is_dir() => {
            let text = format!("{} is not a directory", place.display());
            Err(io::Error::new(io::ErrorKind::NotADirectory, text))
        }
        Ok(_) => {
            rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK)?;
            // Root may write everywhere, but nobody can make a file among the kernel's own.
            if [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&rustix::fs::statfs(place)?.f_type) {
                let text = format!("{} shows the kernel's own data, and holds no files", place.display());
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            Ok(Some(()))
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The kind of [`open_file`]'s errors for a link, and for what is not a regular file.
const NOT_A_FILE: io::ErrorKind = io::ErrorKind::InvalidInput;

fn not_a_file(found: &'static str) -> io::Error {
    io::Error::new(NOT_A_FILE, found)
}

/// Opens a regular file. A link is not followed, and a pipe does not block.
pub(super) fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match options.custom_flags(flags.bits() as i32).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(not_a_file("it is a link"));
        }
        opened => opened?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file("it is not a regular file")) }
}

/// Returns true if something that this process cannot open is at the path.
pub(super) fn is_obstructed(path: &Path, error: &io::Error) -> bool {
    let is_of_path = matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory)
        || error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        || error.kind() == NOT_A_FILE;
    is_of_path && fs::symlink_metadata(path).is_ok()
}
