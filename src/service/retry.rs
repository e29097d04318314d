//! Increasing delays of starts that fail for causes that may pass by themselves.
//!
//! Before version 254, systemd restarts a failed service after a constant time, and at once for a client that waits at a
//! socket unit. So the daemon itself waits before it tries again. Each failed start leaves a file in `$RUNTIME_DIRECTORY`,
//! which the next start takes. A start by hand finds no file, and tries at once.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::notify::{EXTEND_EVERY, Notifier};
use super::reload_report::runtime_directory;

/// The file of a failed start: how many have failed one after the other, and why the last did.
const FILE: &str = "failed-start";
/// The longest wait. With `RestartSec=` of the units, a start is tried every half minute at least: rarely enough for the
/// journal, and soon enough after an operator has made room.
const WAIT_MAX: Duration = Duration::from_secs(27);
/// The age from which a file is ignored: the daemon was stopped since, and not restarted.
const AGE_MAX: Duration = Duration::from_secs(30);

/// The starts of this service that have failed before this one.
#[derive(Debug)]
pub struct Retries {
    /// `None`: no service manager restarts the daemon, or restarts cannot be recognised.
    file: Option<PathBuf>,
    failed: u32,
}

impl Retries {
    /// Reads how many starts have just failed, and waits accordingly.
    pub fn wait(notifier: &Notifier) -> Retries {
        let file = runtime_directory().filter(|_| notifier.is_wanted()).map(|directory| directory.join(FILE));
        let Some((failed, reason)) = file.as_deref().and_then(take) else {
            return Retries { file, failed: 0 };
        };
        let end = Instant::now() + wait_after(failed);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Retries { file, failed };
            }
            notifier.not_ready(&format!("cannot start: {reason}; next try in {:.0}s", left.as_secs_f64()));
            thread::sleep(left.min(EXTEND_EVERY));
        }
    }

    /// Makes the next start wait longer, because this one failed.
    pub fn note_failure(&self, reason: &str) {
        if let Some(file) = &self.file {
            // If it cannot be written, the next start does not wait. The log already has the reason of this start, so it
            // needs no line on the file.
            let _ = fs::write(file, format!("{}\n{reason}\n", self.failed.saturating_add(1)));
        }
    }
}

/// Removes the file of the earlier start, and returns its contents.
fn take(file: &Path) -> Option<(u32, String)> {
    let written = fs::metadata(file).and_then(|found| found.modified());
    let text = fs::read_to_string(file);
    if fs::remove_file(file).is_err_and(|error| error.kind() != ErrorKind::NotFound) {
        // A file that cannot be removed would delay each start by hand.
        return None;
    }
    let age = SystemTime::now().duration_since(written.ok()?).ok()?;
    let text = text.ok().filter(|_| age <= AGE_MAX)?;
    let (failed, reason) = text.trim_end().split_once('\n')?;
    Some((failed.parse().ok()?, reason.to_owned()))
}

/// Returns how long a start waits after this many failed ones: 1 s, twice as long each time, at most [`WAIT_MAX`].
fn wait_after(failed: u32) -> Duration {
    let doubled = 1_u64.checked_shl(failed.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(doubled).min(WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_start_doubles_the_wait_up_to_half_a_minute() {
        let waits: Vec<u64> = [1, 2, 3, 4, 5, 6, 7, 64, 65, u32::MAX].map(|n| wait_after(n).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 8, 16, 27, 27, 27, 27, 27]);
    }

    #[test]
    fn a_file_counts_once_and_only_while_it_is_new() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        let retries = Retries { file: Some(file.clone()), failed: 2 };
        assert_eq!(take(&file), None);
        retries.note_failure("the disk is full");
        assert_eq!(take(&file), Some((3, String::from("the disk is full"))));
        assert_eq!(take(&file), None);
        retries.note_failure("the disk is full");
        let long_ago = SystemTime::now() - AGE_MAX - Duration::from_secs(1);
        fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(take(&file), None);
        for damaged in ["", "3", "x\nfull\n"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(take(&file), None, "{damaged:?}");
            assert!(!file.exists());
        }
    }
}
