//! Notices that the machine was restored from a snapshot: the kernel announces a changed VM generation ID.
//!
//! A hypervisor that restores a snapshot changes the guest's VM generation ID, and notifies the guest's kernel at once. The
//! kernel announces it in two places, and a thread sleeps on both:
//!
//! - in its log, since Linux 5.18, as new randomness that it has drawn ([`kernel_log`]);
//! - as an event (`NEW_VMGENID=1`) on the netlink socket of device managers ([`events`]). Linux itself sent it only for a few
//!   days in 2024; some vendors' kernels do.
//!
//! After an announcement all grants are revoked, so that IDs claimed ahead are dropped. The keeper is woken, and makes the
//! ceilings durable again before it grants. Without either source, only a jump of wall − boot time shows a restored machine.

mod events;
mod kernel_log;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::time::Instant;

use self::events::{hear_event, subscribe};
use self::kernel_log::hear_log;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::shared::common::Common;

pub use self::kernel_log::is_standard_input as is_kernel_log_standard_input;

/// The size of the read buffer. The kernel builds events in 2 KiB and cuts records of its log at 8 KiB.
const ANNOUNCEMENT_BYTES: usize = 8_192;

/// The kernel's log and its events, opened at the start. Announcements from then on are noticed.
#[derive(Debug)]
pub(crate) struct Announcers {
    /// Where the log was found.
    log_at: &'static str,
    log: io::Result<OwnedFd>,
    events: rustix::io::Result<OwnedFd>,
}

impl Announcers {
    pub(crate) fn open() -> Announcers {
        let (log_at, log) = kernel_log::find();
        Announcers { log_at, log, events: subscribe() }
    }

    /// Logs how a restored machine is noticed.
    fn log_sources(&self) {
        match &self.log {
            Ok(_) => tracing::info!(
                "reads the kernel's log ({}): it reports when the machine was restored from a snapshot, if the hypervisor \
                 then changes the VM generation ID",
                self.log_at
            ),
            Err(error) => {
                // Most kernels do not send the event, so its absence alone is not worth a line.
                let events = self.events.as_ref().err();
                let events = events.map(|error| format!(", nor its events ({error})")).unwrap_or_default();
                tracing::info!(
                    "cannot read the kernel's log ({}: {error}){events}: a restore of the machine from a snapshot is \
                     noticed only if its clocks jump",
                    self.log_at
                );
            }
        }
    }
}

/// Starts the thread that watches for announcements as long as the process runs.
pub(crate) fn watch(announcers: Announcers, common: Arc<Common>) {
    announcers.log_sources();
    let mut announcements = Announcements { log: announcers.log.ok(), events: announcers.events.ok() };
    // Without a thread, only the clocks show a restored machine.
    let _ = thread::Builder::new().name(String::from("restored")).spawn(move || {
        let mut restorations = RateLimited::default();
        while announcements.await_new_generation() {
            // Held until all grants are revoked. So a reload that adds a source sees from the others that it happened.
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

/// The open sources of announcements. One that has ended is dropped.
#[derive(Debug)]
struct Announcements {
    log: Option<OwnedFd>,
    events: Option<OwnedFd>,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// The machine may have been restored.
    NewGeneration,
    /// Another message.
    Other,
    /// Everything has been read.
    Nothing,
    /// The source has ended.
    End,
}

impl Announcements {
    /// Sleeps until a new generation is announced. Returns false when all sources have ended.
    fn await_new_generation(&mut self) -> bool {
        loop {
            // Reads one message of each source in turn, so that a flood of others does not delay an announcement.
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

/// Reads the next message, if one has arrived.
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

    /// A log whose reads return one record each, as the kernel's do.
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
        // At once, whatever records follow. The machine may have been restored twice.
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
        assert!(!announcements.await_new_generation(), "it ends, and no other source is left");
        assert!(announcements.log.is_none());
    }
}
