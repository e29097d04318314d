//! The causes behind the operating system's errors. One function decides them, so that one error
//! has one exit code.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// An operation that the operating system can refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Opening, locking, reading, writing or syncing a file or a directory.
    UseFile,
    /// Opening a socket and listening at its address.
    Listen,
    /// Making a thread, a reactor or a signal handler.
    MakeThread,
}

/// The cause of a refusal. [`Setting`](SystemCause::Setting) stays until an operator changes
/// something; the others may pass by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCause {
    /// A path, a permission, an address or a mount must be changed.
    Setting,
    /// Storage is full, over its quota, failing or slow.
    Storage,
    /// Files, memory or threads are short.
    Resource,
    /// The address is in use, or the machine does not have it yet.
    Address,
}

/// Errors that last until an operator changes a setting, and that [`ErrorKind`] does not name.
const SETTING: &[Errno] =
    &[Errno::LOOP, Errno::NXIO, Errno::NODEV, Errno::NOTSUP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT];
const RESOURCE: &[Errno] =
    &[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::NOBUFS, Errno::NOLCK];
const STORAGE: &[Errno] =
    &[Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::FBIG];

/// Returns the cause of an error. An error that no list names has the usual cause of the attempt.
pub fn cause_of(attempt: Attempt, error: &io::Error) -> SystemCause {
    let number = Errno::from_io_error(error);
    if number.is_some_and(|number| RESOURCE.contains(&number)) {
        return SystemCause::Resource;
    }
    if number.is_some_and(|number| STORAGE.contains(&number)) {
        return SystemCause::Storage;
    }
    let is_setting = matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename
            | ErrorKind::Unsupported
    ) || number.is_some_and(|number| SETTING.contains(&number));
    match attempt {
        _ if is_setting => SystemCause::Setting,
        Attempt::Listen => SystemCause::Address,
        Attempt::MakeThread => SystemCause::Resource,
        // Found by this program, not by the system: a file that belongs to another program.
        Attempt::UseFile if error.raw_os_error().is_none() => SystemCause::Setting,
        Attempt::UseFile => SystemCause::Storage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_one_cause_wherever_it_strikes() {
        use Attempt::{Listen, MakeThread, UseFile};
        use SystemCause::{Address, Resource, Setting, Storage};
        let everywhere = [
            (Errno::NOSPC, Storage),
            (Errno::DQUOT, Storage),
            (Errno::IO, Storage),
            (Errno::TIMEDOUT, Storage),
            (Errno::MFILE, Resource),
            (Errno::NFILE, Resource),
            (Errno::AGAIN, Resource),
            (Errno::NOMEM, Resource),
            (Errno::ACCESS, Setting),
            (Errno::PERM, Setting),
            (Errno::ROFS, Setting),
            (Errno::NOENT, Setting),
            (Errno::NOTDIR, Setting),
            (Errno::ISDIR, Setting),
            (Errno::LOOP, Setting),
            (Errno::NAMETOOLONG, Setting),
        ];
        for (errno, cause) in everywhere {
            for attempt in [UseFile, Listen, MakeThread] {
                assert_eq!(cause_of(attempt, &errno.into()), cause, "{attempt:?}: {errno:?}");
            }
        }
        assert_eq!(cause_of(Listen, &Errno::ADDRINUSE.into()), Address);
        assert_eq!(cause_of(Listen, &Errno::ADDRNOTAVAIL.into()), Address);
        assert_eq!(cause_of(UseFile, &Errno::REMOTEIO.into()), Storage, "in no list");
        assert_eq!(cause_of(UseFile, &io::Error::other("not a regular file")), Setting);
    }
}
