//! Decides which errors of the operating system may pass by themselves, and names a cure.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// Lasting errors that [`may_pass`] does not know by their [`ErrorKind`].
const LASTING: &[Errno] =
    &[Errno::LOOP, Errno::NXIO, Errno::NODEV, Errno::NOTSUP, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT];

/// Returns false if an operator must change a path, a permission, an address or a mount. Any other
/// error may pass by itself, because storage, memory, threads or an address can become free. This
/// program's own errors about a file or a directory are of the kind `InvalidInput`.
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
            | ErrorKind::FileTooLarge
            | ErrorKind::Unsupported
    );
    !is_named && !Errno::from_io_error(error).is_some_and(|number| LASTING.contains(&number))
}

/// Returns the cure if the process, or the machine, has no files left.
pub fn more_files(error: &io::Error) -> Option<&'static str> {
    let has_none = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
    has_none.then_some("allow more open files (ulimit -n, LimitNOFILE=)")
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
        }
    }
}
