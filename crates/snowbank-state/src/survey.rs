//! Reads the marks of worker IDs. It makes and writes no file. It takes a free lock only for the
//! moment in which it checks whether a process holds that lock.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use super::lock::{free_mark, writers_of};
use super::lock_names::{Listing, lock_paths};
use super::locked_file::LockedFile;
use super::mark::Mark;
use super::writers::{Untrusted, Writers, open_file};
use super::{Cause, StateError};
use snowbank_id::numbering::Numbering;

/// The contents of the lock file of a worker ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The worker ID. 0 for a ticket counter.
    pub worker: u64,
    /// The process that holds the lock, as the module `holder` names it. `None` if this user sees
    /// no holder.
    pub holder: Option<String>,
    /// The mark of the worker ID, or the reason why the mark cannot be read. `None`: nothing shows
    /// that an ID of this worker ID was granted on this machine since its boot.
    pub mark: Result<Option<Mark>, StateError>,
}

/// Reads the lock files of all worker IDs of a numbering, or of all ticket counters that can hand
/// out its numbers.
pub fn survey(directory: &Path, numbering: &Numbering) -> Vec<Seen> {
    let writers = writers_of(directory);
    let mut paths = lock_paths(directory, numbering);
    let listing = Listing::of(directory).ok();
    for path in listing.iter().flat_map(|listing| listing.kin(numbering)) {
        if paths.iter().all(|(_, own)| own != path) {
            paths.push((0, path.clone()));
        }
    }
    let mut seen = Vec::with_capacity(paths.len());
    for (worker, path) in paths {
        seen.push(match &writers {
            Ok(writers) => {
                let mark = readable_mark(&path, *writers);
                let mark = mark.map_err(|error| StateError::mark_unreadable(&path, &error));
                let file = open_file(&path, OpenOptions::new().read(true)).ok();
                Seen { worker, holder: file.and_then(|file| LockedFile::holder_of(&file)), mark }
            }
            Err(Untrusted::NotSeen(error)) if error.kind() == io::ErrorKind::NotFound => {
                Seen { worker, holder: None, mark: Ok(None) }
            }
            Err(untrusted) => {
                let error = format!("cannot trust {}: {untrusted}", directory.display());
                Seen { worker, holder: None, mark: Err(StateError::new(Cause::InUse, error)) }
            }
        });
    }
    seen
}

/// Returns the marks of a source's worker IDs or counter, as far as this user may see and believe
/// them.
///
/// # Errors
/// A start would find no readable mark.
pub fn readable_marks(directory: &Path, numbering: &Numbering) -> Result<Vec<Mark>, StateError> {
    let Ok(writers) = writers_of(directory) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> =
        lock_paths(directory, numbering).into_iter().map(|(_, path)| path).collect();
    if let Ok(listing) = Listing::of(directory) {
        let mut kin: Vec<PathBuf> = listing.kin(numbering).cloned().collect();
        kin.retain(|path| !paths.contains(path));
        paths.extend(kin);
    }
    let mut marks = Vec::new();
    for path in paths {
        match readable_mark(&path, writers) {
            Ok(mark) => marks.extend(mark),
            // Another user may be allowed to.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(StateError::mark_unreadable(&path, &error)),
        }
    }
    Ok(marks)
}

/// Reads a mark. If that fails, reads it once more, because a daemon may have been writing the mark
/// at the first attempt.
fn readable_mark(path: &Path, writers: Writers) -> io::Result<Option<Mark>> {
    free_mark(path, writers).or_else(|_| free_mark(path, writers))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::holder::HOLDER_BYTES;
    use crate::{Owner, lock_workers, store};

    fn numbering() -> Numbering {
        store::tests::numbering("twitter", "0-1")
    }

    #[test]
    fn a_survey_shows_holders_and_marks_and_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks");
        let owner = Owner::new();
        let none = |worker| Seen { worker, holder: None, mark: Ok(None) };
        assert_eq!(survey(&path, &numbering()), [none(0), none(1)], "no lock and no mark, as after a boot");
        assert!(!path.exists());

        let mut locks = lock_workers(&path, &numbering()).unwrap();
        let holder = Some(format!(" (process {})", std::process::id()));
        let held = |worker| Seen { holder: holder.clone(), ..none(worker) };
        assert_eq!(survey(&path, &numbering()), [held(0), held(1)]);
        locks.mark_for(&owner);
        locks.mark_granted(7).unwrap();
        let mark = Mark::granted(7, &owner.state);
        let marked = |worker| Seen { worker, holder: holder.clone(), mark: Ok(Some(mark.clone())) };
        assert_eq!(survey(&path, &numbering()), [marked(0), marked(1)]);
        drop(locks);
        let left = |worker| Seen { holder: None, ..marked(worker) };
        assert_eq!(survey(&path, &numbering()), [left(0), left(1)]);
    }

    #[test]
    fn a_mark_that_others_could_have_written_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        let mut locks = lock_workers(directory.path(), &numbering()).unwrap();
        locks.mark_for(&Owner::new());
        locks.mark_granted(7).unwrap();
        open(locks.furthest());
        drop(locks);
        let marks = || survey(directory.path(), &numbering()).into_iter().map(|seen| seen.mark);
        assert_eq!(
            marks().filter(|mark| matches!(mark, Ok(Some(_)))).count(),
            1,
            "a start believes only the private file"
        );
        open(directory.path());
        assert!(marks().all(|mark| mark.unwrap_err().to_string().contains("(mode 777)")));
    }

    #[test]
    fn an_unreadable_mark_says_why() {
        let directory = tempfile::tempdir().unwrap();
        drop(lock_workers(directory.path(), &numbering()).unwrap());
        let mut paths: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        fs::write(&paths[0], [b' '; HOLDER_BYTES as usize + 44]).unwrap();
        fs::remove_file(&paths[1]).unwrap();
        std::os::unix::fs::symlink(&paths[0], &paths[1]).unwrap();
        let errors: Vec<String> = survey(directory.path(), &numbering())
            .into_iter()
            .map(|seen| seen.mark.unwrap_err().to_string())
            .collect();
        assert!(errors[0].contains("granted: its second line is no mark"), "{errors:?}");
        assert!(errors[1].contains("-1.lock: it is a link"), "{errors:?}");
        assert!(errors[1].contains("find out who put this there"), "{errors:?}");
    }
}
