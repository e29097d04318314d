//! Notices that the machine was restored from a snapshot, where its kernel says so: a changed VM generation.
//!
//! A hypervisor that restores a snapshot changes the guest's VM generation ID, and the guest's kernel gets to know of it at
//! once. It says so in two places, and a thread sleeps on both:
//!
//! - in its log (`/dev/kmsg`), since Linux 5.18: it has drawn new randomness. Who may read the log is the system's decision;
//! - as an event (`NEW_VMGENID=1`) on the netlink socket that device managers listen on. Linux itself had that for a few
//!   days in 2024 only; some vendors' kernels have it.
//!
//! When either says so, all grants are taken away, so that what was claimed ahead is dropped, and the keeper is woken, which
//! makes the ceilings durable anew before it grants again. Where neither is to be had, a jump of wall − boot time is what is
//! left to notice by.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};
use tokio::time::Instant;

use super::seldom::Seldom;
use super::worker::Common;

/// The multicast group of the kernel's own events.
const KERNEL_EVENTS: u32 = 1;
/// Longer than any event, which the kernel builds in 2 KiB, and than any record of its log, which it cuts at 8 KiB.
const ANNOUNCEMENT_BYTES: usize = 8_192;
const NEW_GENERATION: &[u8] = b"NEW_VMGENID=1";
const KERNEL_LOG: &str = "/dev/kmsg";
const RESEEDED: &[u8] = b"random: crng reseeded due to virtual machine fork";

/// Watches from a thread of its own, for as long as the process runs.
pub(super) fn watch(common: Arc<Common>) {
    let (log, events) = (open_log(Path::new(KERNEL_LOG)), subscribe());
    if let Err(error) = &log {
        // Of the kernels that have a log to read, few have the event.
        let events =
            events.as_ref().err().map(|error| format!(", nor its events ({error})")).unwrap_or_default();
        tracing::info!(
            "cannot read the kernel's log ({KERNEL_LOG}: {error}){events}: that the machine was restored from a \
             snapshot is noticed by its clocks, if they jump"
        );
    }
    let mut announcements = Announcements { log: log.ok(), events: events.ok() };
    // If there can be no thread, the clocks have to do here as well.
    let _ = thread::Builder::new().name(String::from("restored")).spawn(move || {
        let mut restorations = Seldom::default();
        while announcements.await_new_generation() {
            common.in_force.borrow().supplies.iter().for_each(|supply| supply.source.grant().revoke());
            common.bells.wake_keeper();
            if let Some(count) = restorations.count(Instant::now()) {
                tracing::warn!(
                    count, "the machine was, or may have been, restored from a snapshot: what was claimed ahead is dropped"
                );
            }
        }
    });
}

/// The kernel's log from its end on; reading it never waits.
fn open_log(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    log.seek(SeekFrom::End(0))?;
    Ok(log.into())
}

fn subscribe() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_EVENTS))?;
    Ok(socket)
}

/// Where the kernel speaks. What has nothing more to say is left.
#[derive(Debug)]
struct Announcements {
    log: Option<OwnedFd>,
    events: Option<OwnedFd>,
}

/// What a look at one of them found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The machine may have been restored.
    NewGeneration,
    /// Something else.
    Other,
    /// All has been read.
    Nothing,
    /// It will never say anything more.
    End,
}

impl Announcements {
    /// Sleeps until a new generation is announced. False when none can be any more.
    fn await_new_generation(&mut self) -> bool {
        loop {
            let mut is_new = drain(&mut self.log, hear_log);
            is_new |= drain(&mut self.events, hear_event);
            if is_new {
                return true;
            }
            let open = self.log.iter().chain(&self.events);
            let mut waits: Vec<PollFd<'_>> = open.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            if waits.is_empty() || !matches!(poll(&mut waits, None), Ok(_) | Err(Errno::INTR)) {
                return false;
            }
        }
    }
}

/// Reads all that is there; whether a new generation was in it.
fn drain(from: &mut Option<OwnedFd>, hear: impl Fn(BorrowedFd<'_>) -> Heard) -> bool {
    let mut is_new = false;
    while let Some(fd) = from {
        match hear(fd.as_fd()) {
            Heard::NewGeneration => is_new = true,
            Heard::Other => {}
            Heard::Nothing => break,
            Heard::End => *from = None,
        }
    }
    is_new
}

/// Reads one record of the log.
fn hear_log(log: BorrowedFd<'_>) -> Heard {
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

/// Reads one event.
fn hear_event(events: BorrowedFd<'_>) -> Heard {
    let mut event = [0; ANNOUNCEMENT_BYTES];
    match recvfrom(events, &mut event, RecvFlags::empty()) {
        Ok((size, _, Some(sender))) => {
            let from_kernel = SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0);
            match from_kernel && says_new_generation(&event[..size]) {
                true => Heard::NewGeneration,
                false => Heard::Other,
            }
        }
        Ok(_) | Err(Errno::INTR) => Heard::Other,
        Err(Errno::AGAIN) => Heard::Nothing,
        // As above.
        Err(Errno::NOBUFS) => Heard::NewGeneration,
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

/// An event is a headline and properties, each ended by a zero byte.
fn says_new_generation(event: &[u8]) -> bool {
    event.split(|&byte| byte == 0).any(|property| property == NEW_GENERATION)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::*;

    /// As Linux 6.12 wrote it when qemu had given the machine another generation.
    const RECORD: &[u8] = b"5,411,6184640,-,caller=T34;random: crng reseeded due to virtual machine fork\n";
    const OTHER_RECORD: &[u8] = b"6,410,5140900,-;acpi: something else\n SUBSYSTEM=acpi\n";

    #[test]
    fn the_kernels_announcement_is_known_and_nothing_else() {
        let event = b"change@/devices/LNXSYSTM:00/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=acpi\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(says_new_generation(event));
        for other in [
            &b"change@/devices/virtual/net/lo\0ACTION=change\0SEQNUM=8\0"[..],
            // What a person writes into a device's `uevent` file comes under another name.
            b"change@/devices/virtual/net/lo\0SYNTH_ARG_NEW_VMGENID=1\0",
            b"NEW_VMGENID=10\0",
            b"",
        ] {
            assert!(!says_new_generation(other));
        }
    }

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

    /// A log of which each read gives one record, as the kernel's does.
    fn log() -> (UnixDatagram, Announcements) {
        let (writer, reader) = UnixDatagram::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        (writer, Announcements { log: Some(reader.into()), events: None })
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_by_the_record_and_by_no_other() {
        let (writer, mut announcements) = log();
        let waiting = thread::spawn(move || (announcements.await_new_generation(), announcements));
        writer.send(OTHER_RECORD).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        writer.send(RECORD).unwrap();
        let (is_new, mut announcements) = waiting.join().unwrap();
        assert!(is_new);
        // Once, however often it was said before anybody looked.
        writer.send(RECORD).unwrap();
        writer.send(RECORD).unwrap();
        assert!(announcements.await_new_generation());
        assert_eq!(hear_log(announcements.log.as_ref().unwrap().as_fd()), Heard::Nothing);
    }

    #[test]
    fn what_ends_or_cannot_be_had_is_left() {
        let empty = open_log(Path::new("/dev/null")).unwrap();
        let mut announcements = Announcements { log: Some(empty), events: None };
        assert!(!announcements.await_new_generation(), "it ends, and nothing else is to be waited for");
        assert!(announcements.log.is_none());
        assert!(open_log(Path::new("/nowhere/kmsg")).is_err());
    }
}
