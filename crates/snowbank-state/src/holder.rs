//! Finds the process that holds a lock. The kernel's list of locks shows it, or the line that the
//! holder wrote into the lock's file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The length of a holder's line. The line is padded with spaces to this length. So the mark after
/// it stays in place when the next holder writes its line. There is room for the longest ID space:
/// 62 fields of one bit each.
pub(super) const HOLDER_BYTES: u64 = 1024;

/// The kernel's list of locks is read at most this many times to find a file in it. The kernel
/// returns the list in parts, and can leave out a line if other locks are released between two
/// parts.
const LIST_READS: u32 = 5;

/// Returns the holder of a held lock: ` (process 123)` if the kernel names the process. If only the
/// lock's file does, the text says so: a container counts its own processes. The text is empty if the
/// holder is unknown.
///
/// The kernel's list is current, so it is preferred to the file. But it leaves out the processes of
/// other containers, and on some file systems the list shows other device numbers than the file's
/// metadata. If the list does not name the file, the line in the file counts.
pub(super) fn holder(file: &File) -> String {
    let listed = inode_text(file).and_then(|inode| listed(|| fs::read_to_string("/proc/locks").ok(), &inode));
    match listed {
        Some(process) => format!(" (process {process})"),
        None => line(file).map(|line| holder_in(&line)).unwrap_or_default(),
    }
}

/// Returns the line that the last holder wrote into the file. The line may be incomplete while a
/// holder is writing it.
pub(super) fn line(file: &File) -> io::Result<String> {
    let mut line = [0; HOLDER_BYTES as usize];
    let length = file.read_at(&mut line, 0)?;
    Ok(String::from_utf8_lossy(&line[..length]).into_owned())
}

/// Returns the holder's process if a holder's line begins with it; otherwise an empty text.
fn holder_in(line: &str) -> String {
    match line.split_once(',') {
        Some((process, _)) if process.starts_with("process ") => {
            format!(" ({process}, as its file says; in a container, by the container's own count)")
        }
        _ => String::new(),
    }
}

/// Returns the text that identifies the file in `/proc/locks`, such as `08:01:1234`.
fn inode_text(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    Some(format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), metadata.ino()))
}

/// Reads the kernel's list up to [`LIST_READS`] times, and returns the first process that a list
/// names for the file.
fn listed(mut read: impl FnMut() -> Option<String>, inode: &str) -> Option<u32> {
    (0..LIST_READS).find_map(|_| listed_in(&read()?, inode))
}

/// Returns the process that the kernel's list names for a file. A line of the list is
/// `1: FLOCK  ADVISORY  WRITE 708 00:16:1234 0 EOF`.
fn listed_in(locks: &str, inode: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The line of a process that waits for the lock has an arrow before the lock's kind.
        match words[..] {
            [_, "FLOCK", _, _, process, of, ..] if of == inode => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_waits_for_a_lock_is_not_its_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:16:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 22 00:16:8 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 33 00:16:7 0 EOF\n3: FLOCK  ADVISORY  READ  44 00:16:7 0 EOF\n";
        assert_eq!(listed_in(locks, "00:16:7"), Some(44));
        assert_eq!(listed_in(locks, "00:16:8"), Some(22));
        assert_eq!(listed_in(locks, "00:17:8"), None);
    }

    #[test]
    fn a_list_that_leaves_out_the_file_is_read_again() {
        let mut readings = ["", "1: FLOCK  ADVISORY  WRITE 22 00:16:8 0 EOF\n"].map(String::from).into_iter();
        assert_eq!(listed(|| readings.next(), "00:16:8"), Some(22));
    }

    #[test]
    fn a_holder_that_the_kernel_does_not_list_is_named_by_its_line() {
        let of_container = " (process 7, as its file says; in a container, by the container's own count)";
        assert_eq!(holder_in("process 7, worker ID 5, time"), of_container);
        assert_eq!(holder_in("process 7"), "", "a line that is cut off");
        assert_eq!(holder_in("somebody, else"), "");
    }

    #[test]
    fn the_kernel_names_the_holder_whatever_the_file_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        fs::write(&path, "process 1, worker ID 5").unwrap();
        let held = File::open(&path).unwrap();
        held.try_lock().unwrap();
        assert_eq!(holder(&File::open(&path).unwrap()), format!(" (process {})", std::process::id()));
    }
}
