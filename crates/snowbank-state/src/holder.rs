//! The process that holds a lock, by the line that it wrote into the lock's file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::locked_file::HOLDER_BYTES;

/// Returns ` (process 123)` for a lock that is held, as its file says; empty if the file names no
/// process.
pub(super) fn holder(file: &File) -> String {
    line(file).map(|line| holder_in(&line)).unwrap_or_default()
}

/// Returns the line of the file's last holder. A holder may be writing it at this moment; then it
/// is short.
pub(super) fn line(file: &File) -> io::Result<String> {
    let mut line = [0; HOLDER_BYTES as usize];
    let length = file.read_at(&mut line, 0)?;
    Ok(String::from_utf8_lossy(&line[..length]).into_owned())
}

/// Returns ` (process 123)` if a holder's line begins so; else nothing.
fn holder_in(line: &str) -> String {
    match line.split_once(',') {
        Some((process, _)) if process.starts_with("process ") => format!(" ({process})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_by_its_line() {
        assert_eq!(holder_in("process 7, worker ID 5, time"), " (process 7)");
        assert_eq!(holder_in("process 7"), "", "it is being written");
        assert_eq!(holder_in("somebody, else"), "");
    }
}
