//! Notices that the machine was restored from a snapshot, where its kernel says so: a changed VM generation.
//!
//! A hypervisor that restores a snapshot changes the guest's VM generation ID, and the guest's kernel gets to know of it at
//! once. It says so in two places, and a thread sleeps on both:
//!
//! - in its log, since Linux 5.18: it has drawn new randomness ([`kernel_log`]);
//! - as an event (`NEW_VMGENID=1`) on the netlink socket that device managers listen on ([`events`]). Linux itself had that
//!   for a few days in 2024 only; some vendors' kernels have it.
//!
//! When either says so, all grants are taken away, so that what was claimed ahead is dropped, and the keeper is woken, which
//! makes the ceilings durable anew before it grants again. Where neither is to be had, a jump of wall − boot time is what is
//! left to notice by.

mod events;
mod kernel_log;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::time::Instant;

use self::events::{hear_event, subscribe};
use self::kernel_log::{Way, hear_log};
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::shared::common::Common;

pub use self::kernel_log::is_standard_input as is_kernel_log_standard_input;

/// Longer than any event, which the kernel builds in 2 KiB, and than any record of its log, which it cuts at 8 KiB.
const ANNOUNCEMENT_BYTES: usize = 8_192;

/// Where the kernel speaks. What is said from when it was found on is heard.
#[derive(Debug)]
pub(crate) struct Ears {
    way: Way,
    log: io::Result<OwnedFd>,
    events: rustix::io::Result<OwnedFd>,
}

impl Ears {
    pub(crate) fn open() -> Ears {
        let (way, log) = kernel_log::find();
        Ears { way, log, events: subscribe() }
    }

    /// Says by what a restored machine is noticed.
    fn tell(&self) {
        match &self.log {
            Ok(_) => tracing::info!(
                "reads the kernel's log ({}): that the machine was restored from a snapshot is noticed at once, if its \
                 hypervisor changes the VM generation ID then",
                self.way
            ),
            Err(error) => {
                // Of the kernels that have a log to read, few have the event.
                let events = self.events.as_ref().err();
                let events = events.map(|error| format!(", nor its events ({error})")).unwrap_or_default();
                tracing::info!(
                    "cannot read the kernel's log ({}: {error}){events}: that the machine was restored from a snapshot is \
                     noticed by its clocks, if they jump",
                    self.way
                );
            }
        }
    }
}

/// Watches from a thread of its own, for as long as the process runs.
pub(crate) fn watch(ears: Ears, common: Arc<Common>) {
    ears.tell();
    let mut announcements = Announcements { log: ears.log.ok(), events: ears.events.ok() };
    // If there can be no thread, the clocks have to do here as well.
    let _ = thread::Builder::new().name(String::from("restored")).spawn(move || {
        let mut restorations = RateLimited::default();
        while announcements.await_new_generation() {
            // What is in force stays so until this is done: a source that joins sees by the others what it missed.
            common.live_config.borrow().supplies.iter().for_each(|supply| supply.source.grant().revoke());
            common.wake_ups.wake_keeper();
            if let Some(count) = restorations.count(Instant::now()) {
                tracing::warn!(
                    count, "the machine was, or may have been, restored from a snapshot: what was claimed ahead is dropped"
                );
            }
        }
    });
}

/// What is listened to. What has nothing more to say is left.
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
            // One of each in turn, and no more after an announcement: a flood of others is not to delay it.
            let heard = [listen(&mut self.log, hear_log), listen(&mut self.events, hear_event)];
            if heard.contains(&Heard::NewGeneration) {
                return true;
            }
            if heard.contains(&Heard::Other) {
                continue;
            }
            let open = self.log.iter().chain(&self.events);
            let mut waits: Vec<PollFd<'_>> = open.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            if waits.is_empty() || !matches!(poll(&mut waits, None), Ok(_) | Err(Errno::INTR)) {
                return false;
            }
        }
    }
}

/// Hears what is next, if there is something.
fn listen(to: &mut Option<OwnedFd>, hear: impl Fn(BorrowedFd<'_>) -> Heard) -> Heard {
    let heard = to.as_ref().map_or(Heard::Nothing, |fd| hear(fd.as_fd()));
    if heard == Heard::End {
        *to = None;
    }
    heard
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::kernel_log::tests::{OTHER_RECORD, RECORD};
    use super::*;

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
        // At once, whatever stands behind it; perhaps the machine was restored twice.
        for record in [OTHER_RECORD, RECORD, RECORD, OTHER_RECORD] {
            writer.send(record).unwrap();
        }
        assert!(announcements.await_new_generation());
        let mut hear = || listen(&mut announcements.log, hear_log);
        let behind = [hear(), hear(), hear()];
        assert_eq!(
            behind,
            [Heard::NewGeneration, Heard::Other, Heard::Nothing],
            "nothing behind it was read"
        );
    }

    #[test]
    fn what_ends_is_left() {
        let empty = File::open("/dev/null").unwrap();
        let mut announcements = Announcements { log: Some(empty.into()), events: None };
        assert!(!announcements.await_new_generation(), "it ends, and nothing else is to be waited for");
        assert!(announcements.log.is_none());
    }
}
