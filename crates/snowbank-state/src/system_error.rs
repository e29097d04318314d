//! Decides which errors of the operating system may pass by themselves. Only this file decides
//! that, so that an error has the same exit code everywhere.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// Errors that last until an operator changes a setting, and that [`ErrorKind`] does not name.
const LASTING: &[Errno] =
    &[Errno::LOOP, Errno::NXIO, Errno::NODEV, Errno::NOTSUP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT];

/// Returns false if an operator must change a path, a permission, an address or a mount. Any other
/// error may pass by itself, because storage, memory, threads or an address can become free.
pub fn may_pass(error: &io::Error) -> bool {
    let is_named = matches!(
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
    );
    !is_named && !Errno::from_io_error(error).is_some_and(|number| LASTING.contains(&number))
}

/// Returns the same as [`may_pass`] for an error of the system about a file or a directory. Returns
/// false for an error that this program raised itself, because such an error means that the file is
/// not of the right kind.
pub fn file_may_pass(error: &io::Error) -> bool {
    error.raw_os_error().is_some() && may_pass(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_system_errors_may_pass_for_files() {
        let passing = [Errno::NOSPC, Errno::IO, Errno::STALE, Errno::MFILE, Errno::ADDRNOTAVAIL];
        let lasting = [Errno::ACCESS, Errno::ROFS, Errno::NOENT, Errno::ISDIR, Errno::NAMETOOLONG];
        let passing = passing.map(|errno| (errno, true));
        let lasting = lasting.map(|errno| (errno, false));
        for (errno, expected) in passing.into_iter().chain(lasting) {
            assert_eq!(may_pass(&errno.into()), expected, "{errno:?}");
            assert_eq!(file_may_pass(&errno.into()), expected, "file: {errno:?}");
        }
        assert!(!file_may_pass(&io::Error::other("not a regular file")));
    }
}
