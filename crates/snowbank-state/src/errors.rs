//! The reason why the state, or the locks and marks of worker IDs, cannot be used.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::system_error::{may_pass, more_files};
use crate::writers::{PERMISSIONS, is_obstructed};

/// The reason why a state directory, a lock or a mark cannot be used. It has a cause, and a line
/// with what was found, what is allowed, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StateError {
    cause: Cause,
    reason: String,
}

/// The cause of an error, which decides the exit code of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another daemon of this machine holds this worker ID or counter, or holds another worker ID
    /// or counter that may make the same IDs.
    WorkerIdHeld,
    /// Another process holds the state directory, another user owns the lock directory, or this
    /// process cannot lock what is in the place of a lock file.
    InUse,
    /// A worker ID, or a counter, was moved away by `snowbank state export`.
    Released,
    /// The clock is before an instant that it must be past.
    ClockBehind,
    /// A path, an owner, a mode, a layout or a counter is not allowed.
    Setting,
    /// A file is damaged, its format is newer, or an export is older than this machine's state.
    Damaged,
    /// The file system or a quota is full.
    Full,
    /// The operating system returned another error.
    System {
        /// True if a retry may succeed.
        may_pass: bool,
    },
}

impl StateError {
    /// Returns an error of this cause, with what was found, what is allowed and what to do.
    pub fn new(cause: Cause, reason: String) -> Self {
        StateError { cause, reason }
    }

    /// Returns an error of storage that a retry may resolve.
    pub fn storage(reason: String) -> Self {
        StateError { cause: Cause::System { may_pass: true }, reason }
    }

    /// Returns the error for a file that the system does not let this process use. Says what cannot
    /// be done, and the cure unless the process has no files left.
    pub(crate) fn from_system(error: &io::Error, cannot: impl Display, cure: &str) -> Self {
        let cure = match error.kind() {
            ErrorKind::InvalidFilename => "choose a shorter name",
            _ => more_files(error).unwrap_or(cure),
        };
        let reason = format!("{cannot}: {error}; {cure}");
        let cause = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Cause::Full,
            _ => Cause::System { may_pass: may_pass(error) },
        };
        StateError { cause, reason }
    }

    /// Returns the cause.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the error for a lock's file or directory that the system does not let this process
    /// use.
    pub(crate) fn lock_refused(path: &Path, error: &io::Error) -> Self {
        let advice = "run as its owner or, if its mode lets the group write, as a member of it, make room if the file \
             system is full, or";
        Self::from_system(error, cannot_lock(path), &lock_cure(advice))
    }

    /// Returns the error for a lock's file or directory that another user owns, or that is of
    /// another kind. A file that this user may not open can be the lock of another user's daemon.
    pub(crate) fn lock_obstructed(path: &Path, error: &io::Error) -> Self {
        let cure = match fs::symlink_metadata(path) {
            Ok(found) if error.kind() == ErrorKind::PermissionDenied => format!(
                "it belongs to user {} (mode {:o}), whose daemon may hold this lock: run as that user, or stop that daemon and let \
                 this user write the file (chown, chmod); never remove it, or two daemons of this machine could hand out the same IDs",
                found.uid(),
                found.mode() & PERMISSIONS
            ),
            _ => lock_cure("find out who put this there and remove it, or"),
        };
        let reason = format!("{}: {error}; {cure}", cannot_lock(path));
        StateError { cause: Cause::InUse, reason }
    }

    /// Returns the error for a mark that cannot be read. Without the mark, it is unknown up to
    /// which ID its worker ID was granted.
    pub(crate) fn mark_unreadable(path: &Path, error: &io::Error) -> Self {
        let shown = path.display();
        let reason = match error.kind() {
            ErrorKind::Unsupported => format!("the mark in {shown} cannot be used: {error}"),
            ErrorKind::InvalidData => format!(
                "{shown} has no readable mark, so it is unknown up to which ID its worker ID was granted: {error}; find out what \
                 wrote the file, and remove it once the clock is past every ID handed out; for a ticket counter, then run `snowbank ticket \
                 set` with the highest number that was handed out"
            ),
            kind => {
                let is_denied = kind == ErrorKind::PermissionDenied;
                if !is_denied && is_obstructed(path, error) {
                    return Self::lock_obstructed(path, error);
                }
                let cure = if is_denied { "run as a user who may" } else { "check its file system" };
                return Self::from_system(error, format_args!("cannot read {shown}"), cure);
            }
        };
        StateError { cause: Cause::Damaged, reason }
    }
}

fn cannot_lock(path: &Path) -> String {
    format!("cannot lock worker IDs at {}", path.display())
}

fn lock_cure(advice: &str) -> String {
    format!(
        "without the lock two daemons of this machine could hand out the same IDs: {advice} set lock_dir to a directory that \
         all daemons of this machine share"
    )
}
