//! Opens and reads the kernel's log. Since Linux 5.18, the log says when the machine was restored
//! from a snapshot.
//!
//! A hardened service has no permission to open the log. Its service manager then opens the log,
//! and hands it over as standard input.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat, major, minor};
use rustix::io::Errno;

const PATH: &str = "/dev/kmsg";
/// The device's major and minor number, the same on every Linux.
const DEVICE: (u32, u32) = (1, 11);
/// The directory of the kernel's devices and drivers, by bus.
const BUSES: &str = "/sys/bus";
/// The message with which the kernel announces a restore.
const RESEEDED: &[u8] = b"random: crng reseeded due to virtual machine fork";

/// The size of the read buffer. No record of the kernel's log is longer.
const RECORD_BYTES: usize = 8_192;

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The machine may have been restored.
    NewGeneration,
    /// Another record, or an interrupted read.
    Other,
    /// All records have been read.
    Nothing,
    /// The log cannot be read any more.
    End,
}

/// Opens the log at its end, for reads that do not block. Also returns the log's name.
pub(super) fn find() -> (&'static str, io::Result<OwnedFd>) {
    if is_standard_input() {
        return ("standard input", take_over(io::stdin().as_fd()));
    }
    (PATH, open(Path::new(PATH)))
}

/// Returns whether standard input is the kernel's log.
pub fn is_standard_input() -> bool {
    is_log(io::stdin().as_fd())
}

fn is_log(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
            && (major(found.st_rdev), minor(found.st_rdev)) == DEVICE
    })
}

/// Takes the log from standard input. The service manager opened the log for this process alone, so
/// this process may change the descriptor's position and flags.
fn take_over(log: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let log = log.try_clone_to_owned()?;
    fcntl_setfl(&log, fcntl_getfl(&log)? | OFlags::NONBLOCK)?;
    from_end_on(log.into())
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let log = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // In a container, any file may be at this path.
    if !is_log(log.as_fd()) {
        return Err(io::Error::other("found another file there, allowed: the device of the kernel's log"));
    }
    from_end_on(log)
}

fn from_end_on(mut log: File) -> io::Result<OwnedFd> {
    log.seek(SeekFrom::End(0))?;
    Ok(log.into())
}

/// Returns the number of the last announcement that is still in the log. Reads the log to its end.
pub(super) fn last_announcement(log: &OwnedFd) -> Option<u64> {
    log.try_clone().and_then(|log| File::from(log).seek(SeekFrom::Start(0))).ok()?;
    let mut last = None;
    let mut record = [0; RECORD_BYTES];
    loop {
        match rustix::io::read(log, &mut record) {
            Ok(size @ 1..) if says_reseeded(&record[..size]) => last = number_of(&record[..size]),
            Ok(1..) | Err(Errno::INTR | Errno::PIPE) => {}
            Ok(_) | Err(_) => return last,
        }
    }
}

/// Returns the number of a record. The kernel counts its records from the boot on.
fn number_of(record: &[u8]) -> Option<u64> {
    let number = record.split(|&byte| byte == b',').nth(1)?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Reads one record of the log.
pub(super) fn hear_log(log: BorrowedFd<'_>) -> Heard {
    let mut record = [0; RECORD_BYTES];
    understand(rustix::io::read(log, &mut record).map(|size| &record[..size]))
}

fn understand(record: Result<&[u8], Errno>) -> Heard {
    match record {
        Ok([]) => Heard::End,
        Ok(record) if says_reseeded(record) => Heard::NewGeneration,
        Ok(_) | Err(Errno::INTR) => Heard::Other,
        Err(Errno::AGAIN) => Heard::Nothing,
        Err(Errno::PIPE) => missed(Path::new(BUSES)),
        Err(_) => Heard::End,
    }
}

/// Decides what to assume if the kernel overwrote records before they were read. One of these
/// records may have been an announcement, unless the machine has no VM generation ID.
fn missed(buses: &Path) -> Heard {
    match has_generation_id(buses) {
        Ok(false) => Heard::Other,
        Ok(true) | Err(_) => Heard::NewGeneration,
    }
}

/// Returns whether the driver `vmgenid` has a device on any of the buses. It has one on `acpi` or,
/// since Linux 6.10, on `platform`.
fn has_generation_id(buses: &Path) -> io::Result<bool> {
    for bus in fs::read_dir(buses)? {
        let entries = match fs::read_dir(bus?.path().join("drivers/vmgenid")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            // The directory has the driver's devices, but also files, and a link to the driver's
            // module. Only a device has a link `driver`.
            if entry?.path().join("driver").exists() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns whether a record is an announcement, and comes from the kernel.
///
/// A record is a list of numbers, a semicolon and the text. The first number is the level (0 to 7).
/// If a process wrote the record, this number is the level plus a multiple of 8. The first line of
/// the text is the message.
fn says_reseeded(record: &[u8]) -> bool {
    let mut parts = record.splitn(2, |&byte| byte == b';');
    let head = parts.next().unwrap_or_default();
    let message = parts.next().and_then(|text| text.split(|&byte| byte == b'\n').next());
    matches!(head, [b'0'..=b'7', b',', ..]) && message == Some(RESEEDED)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    /// The record that Linux 6.12 wrote when QEMU gave the machine a new generation ID.
    pub(crate) const RECORD: &[u8] =
        b"5,411,6184640,-,caller=T34;random: crng reseeded due to virtual machine fork\n";
    pub(crate) const OTHER_RECORD: &[u8] = b"6,410,5140900,-;acpi: something else\n SUBSYSTEM=acpi\n";

    #[test]
    fn only_the_kernels_own_announcement_is_believed() {
        assert_eq!(understand(Ok(RECORD)), Heard::NewGeneration);
        for other in [
            OTHER_RECORD,
            // A process wrote this record, because the first number is above 7.
            b"13,412,6184640,-;random: crng reseeded due to virtual machine fork\n",
            b"5,412,6184640,-;usb: random: crng reseeded due to virtual machine fork\n",
            b"5,412,6184640,-;x\n random: crng reseeded due to virtual machine fork\n",
            b"random: crng reseeded due to virtual machine fork\n",
            b";",
        ] {
            assert_eq!(understand(Ok(other)), Heard::Other, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn overwritten_records_may_have_held_the_announcement() {
        let buses = tempfile::tempdir().unwrap();
        let missed = || missed(buses.path());
        assert_eq!(missed(), Heard::Other, "without a device, the kernel announces nothing");
        let driver = buses.path().join("platform/drivers/vmgenid");
        fs::create_dir_all(driver.join("module/drivers")).unwrap();
        fs::create_dir_all(buses.path().join("pci/drivers/other/VMGENCTR:00/driver")).unwrap();
        assert_eq!(missed(), Heard::Other, "the driver has no device");
        fs::create_dir_all(driver.join("VMGENCTR:00/driver")).unwrap();
        assert_eq!(missed(), Heard::NewGeneration);
        assert_eq!(super::missed(Path::new("/nowhere")), Heard::NewGeneration, "the buses cannot be read");
    }

    #[test]
    fn a_failed_read_ends_the_log() {
        assert_eq!(understand(Err(Errno::AGAIN)), Heard::Nothing);
        assert_eq!(understand(Err(Errno::IO)), Heard::End);
        assert_eq!(understand(Ok(b"")), Heard::End);
    }

    #[test]
    fn an_announcement_before_the_start_is_found() {
        let log = |record: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(record).unwrap();
            OwnedFd::from(file)
        };
        assert_eq!(last_announcement(&log(RECORD)), Some(411));
        assert_eq!(last_announcement(&log(OTHER_RECORD)), None);
    }

    /// Opens a file only for its metadata, which needs no permission to read the file.
    fn look_at(path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits().cast_signed()).open(path)
    }

    #[test]
    fn only_the_kmsg_device_is_taken_for_the_log() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(!is_log(reader.as_fd()));
        for other in ["/dev/null", "/dev/zero", "/dev", "/proc/self/exe"] {
            assert!(!is_log(look_at(other).unwrap().as_fd()), "{other}");
            assert!(open(Path::new(other)).is_err(), "{other}");
        }
        assert!(open(Path::new("/nowhere/kmsg")).is_err());
        // In a container, the path may be missing, or may lead to another file.
        match look_at(PATH) {
            Ok(log)
                if std::os::unix::fs::FileTypeExt::is_char_device(&log.metadata().unwrap().file_type()) =>
            {
                assert!(is_log(log.as_fd()));
            }
            _ => eprintln!("skipped: there is no {PATH} here"),
        }
    }
}
