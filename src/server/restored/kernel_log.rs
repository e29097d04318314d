//! The kernel's log: Linux says there since 5.18 that it has drawn new randomness, for its machine was restored.
//!
//! Who may open the log is the system's decision, and a hardened service may not. Its service manager opens it then, and hands
//! it over as standard input.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat, major, minor};
use rustix::io::Errno;

use super::{ANNOUNCEMENT_BYTES, Heard};

const PATH: &str = "/dev/kmsg";
/// The device's number, which is the same on every Linux.
const DEVICE: (u32, u32) = (1, 11);
const RESEEDED: &[u8] = b"random: crng reseeded due to virtual machine fork";

/// How the log came to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    HandedOver,
    Opened,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::HandedOver => "standard input",
            Way::Opened => PATH,
        })
    }
}

/// The log from its end on, so that what it says of earlier times does not count. Reading it never waits.
pub(super) fn find() -> (Way, io::Result<OwnedFd>) {
    match is_standard_input() {
        true => (Way::HandedOver, take_over(io::stdin().as_fd())),
        false => (Way::Opened, open(Path::new(PATH))),
    }
}

/// Whether standard input is the kernel's log, from which a daemon then reads that its machine was restored.
pub fn is_standard_input() -> bool {
    is_log(io::stdin().as_fd())
}

fn is_log(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && (major(found.st_rdev), minor(found.st_rdev)) == DEVICE
    })
}

/// Whoever opened it did so for this process alone: nobody else reads from where it stands, or minds that reads do not wait.
fn take_over(log: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let log = log.try_clone_to_owned()?;
    fcntl_setfl(&log, fcntl_getfl(&log)? | OFlags::NONBLOCK)?;
    from_end_on(log.into())
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    from_end_on(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

fn from_end_on(mut log: File) -> io::Result<OwnedFd> {
    log.seek(SeekFrom::End(0))?;
    Ok(log.into())
}

/// Reads one record of the log.
pub(super) fn hear_log(log: BorrowedFd<'_>) -> Heard {
    let mut record = [0; ANNOUNCEMENT_BYTES];
    match rustix::io::read(log, &mut record) {
        // In a container it may be anything, such as /dev/null.
        Ok(0) => Heard::End,
        Ok(size) if says_reseeded(&record[..size]) => Heard::NewGeneration,
        Ok(_) | Err(Errno::INTR) => Heard::Other,
        Err(Errno::AGAIN) => Heard::Nothing,
        // Records were overwritten before they were read: perhaps that one. Better once too often.
        Err(Errno::PIPE) => Heard::NewGeneration,
        Err(_) => Heard::End,
    }
}

/// A record is a number (its level, and eight times who wrote it, the kernel being 0), more numbers, a semicolon and the
/// text, whose first line is the message.
fn says_reseeded(record: &[u8]) -> bool {
    let mut parts = record.splitn(2, |&byte| byte == b';');
    let head = parts.next().unwrap_or_default();
    let message = parts.next().and_then(|text| text.split(|&byte| byte == b'\n').next());
    matches!(head, [b'0'..=b'7', b',', ..]) && message == Some(RESEEDED)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As Linux 6.12 wrote it when qemu had given the machine another generation.
    pub(crate) const RECORD: &[u8] =
        b"5,411,6184640,-,caller=T34;random: crng reseeded due to virtual machine fork\n";
    pub(crate) const OTHER_RECORD: &[u8] = b"6,410,5140900,-;acpi: something else\n SUBSYSTEM=acpi\n";

    #[test]
    fn the_kernels_log_is_understood_and_others_who_write_to_it_are_not_believed() {
        assert!(says_reseeded(RECORD));
        for other in [
            OTHER_RECORD,
            // Written by a process: its number is 8 or more.
            b"13,412,6184640,-;random: crng reseeded due to virtual machine fork\n",
            b"5,412,6184640,-;usb: random: crng reseeded due to virtual machine fork\n",
            b"5,412,6184640,-;x\n random: crng reseeded due to virtual machine fork\n",
            b"random: crng reseeded due to virtual machine fork\n",
            b";",
            b"",
        ] {
            assert!(!says_reseeded(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn only_the_device_itself_is_the_log() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(!is_log(reader.as_fd()));
        for other in [
            "/dev/null",
            "/dev/zero",
            "/dev/tty",
            env!("CARGO_MANIFEST_DIR"),
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ] {
            // Nobody has to be allowed to read it: it is only looked at.
            let flags = OFlags::PATH.bits().cast_signed();
            if let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(other) {
                assert!(!is_log(file.as_fd()), "{other}");
            }
        }
        // A container need not have it, or has something else in its place.
        let flags = OFlags::PATH.bits().cast_signed();
        if let Ok(log) = OpenOptions::new().read(true).custom_flags(flags).open(PATH)
            && log.metadata().unwrap().file_type().is_char_device()
        {
            assert!(is_log(log.as_fd()));
        }
    }

    #[test]
    fn what_is_handed_over_is_read_from_its_end_on_and_reading_it_never_waits() {
        // Root may open the log, and others where the system lets them; the shape of it can be seen with any file.
        let log = File::open(PATH)
            .or_else(|_| File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")))
            .unwrap();
        let taken = take_over(log.as_fd()).unwrap();
        assert!(fcntl_getfl(&taken).unwrap().contains(OFlags::NONBLOCK));
        assert!(matches!(hear_log(taken.as_fd()), Heard::Nothing | Heard::End | Heard::Other));
        assert!(open(Path::new("/nowhere/kmsg")).is_err());
    }
}
