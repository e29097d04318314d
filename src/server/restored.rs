//! Notices in the kernel's log that the machine was restored from a snapshot.
//!
//! A hypervisor that restores a snapshot changes the guest's VM generation ID, and notifies the
//! guest's kernel at once. The kernel then draws new randomness and, since Linux 5.18, announces
//! this in its log. A thread of the daemon sleeps until the log has such an announcement.
//!
//! After an announcement, the daemon revokes all grants, so the IDs that were claimed ahead are
//! dropped. The keeper makes the ceilings durable again before it grants anything. If the log cannot
//! be read at a start, only a jump of the clocks shows that the machine was restored. If it can no
//! longer be read later, the daemon ends, and its next start looks back in the log.
//!
//! A ticket source with a counter of its own loses its grant for good. No clock shows which numbers
//! another copy of the machine has handed out. The state records that the counter is unknown, and
//! so does the mark in the counter's lock, which waits for no disk. The daemon then does not start
//! with this counter until the operator runs `snowbank ticket set`. A start also looks back in the
//! log. A restore that was announced since the counter was last started or set counts, even if no
//! daemon noticed it.

mod kernel_log;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::time::Instant;

use self::kernel_log::{Heard, hear_log};
use crate::os_clock;
use crate::server::common::Common;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::shared::note::Note;
use snowbank_core::clock::{self, Reading};
use snowbank_state::HostIdentity;

pub use self::kernel_log::is_standard_input as is_kernel_log_standard_input;

/// A moment in the life of this process's memory. A later restore of the machine from a snapshot
/// ends that life. Then another copy of the process may have all that this one has.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The clocks at the moment.
    pub(crate) began: Reading,
    /// How many restores were reported before.
    pub(crate) restores: u64,
    pub(crate) reported: Arc<AtomicU64>,
}

impl Life {
    pub(crate) fn now(common: &Common) -> Life {
        let restores = common.restores.load(Ordering::Acquire);
        Life { began: os_clock::read(), restores, reported: Arc::clone(&common.restores) }
    }

    /// Returns true if a restore was reported since.
    pub(crate) fn is_restored(&self) -> bool {
        // An odd count: the report of a restore was under way at the beginning.
        self.reported.load(Ordering::Acquire) != self.restores || !self.restores.is_multiple_of(2)
    }

    /// Returns true if the clocks jumped between the beginning and this reading.
    pub(crate) fn has_jumped(&self, reading: Reading) -> bool {
        clock::has_jumped(self.began.offset_us(), reading.offset_us())
    }

    /// Returns true if a restore was reported since, or the clocks jumped.
    pub(crate) fn is_over(&self) -> bool {
        self.is_restored() || self.has_jumped(os_clock::read())
    }
}

/// The kernel's log. The daemon notices announcements that come after the log was opened. Only one
/// thread reads the log, because standard input has one position for all.
#[derive(Debug)]
pub struct KernelLog {
    /// The log's name: standard input, or the path of the device.
    place: &'static str,
    log: io::Result<OwnedFd>,
    /// The number of the last announcement. `None`: there was none.
    last: Mutex<Option<u64>>,
}

impl KernelLog {
    /// Opens the log, looks for the last announcement that it has, and goes on at its end.
    pub fn open() -> KernelLog {
        let (place, log) = kernel_log::find();
        let log = log.and_then(|log| match hear_log(log.as_fd()) {
            Heard::End => Err(io::Error::other("it was opened, but cannot be read")),
            _ => Ok(log),
        });
        let log = KernelLog { place, log, last: Mutex::default() };
        log.look_back();
        log
    }

    /// Looks for the last announcement, and goes on at the log's end.
    fn look_back(&self) {
        let found = self.log.as_ref().ok().and_then(kernel_log::last_announcement);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel may have overwritten an announcement that was found before.
        *last = found.or(*last);
    }

    fn last(&self) -> Option<u64> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a name for the time since the machine's boot, or since its last restore from a
    /// snapshot that was read in the log.
    pub(crate) fn life_of(&self, boot: &str) -> String {
        self.last().map_or_else(|| boot.to_owned(), |number| format!("{boot}, restored at {number}"))
    }

    /// Returns this machine, with its life. If the log cannot be read, the life is that of a machine
    /// that was not restored since its boot. A later start that can read the log then refuses the
    /// counters, if the log has a restore.
    pub fn host(&self) -> HostIdentity {
        let here = HostIdentity::here();
        let life = here.boot.as_deref().map(|boot| self.life_of(boot));
        HostIdentity { life, ..here }
    }

    /// Returns true if the log has a restore that came after this life, in the same boot. Without a life
    /// there is nothing to compare.
    pub(crate) fn has_restore_since(&self, life: Option<&str>, boot: &str) -> bool {
        self.last().is_some() && life.is_some_and(|life| life.starts_with(boot) && life != self.life_of(boot))
    }
}

/// Starts the thread that watches for announcements. If the log can no longer be read, the thread ends
/// the daemon. Returns a line about how the daemon notices that the machine was restored.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn watch(kernel_log: Arc<KernelLog>, common: Arc<Common>) -> io::Result<Note> {
    let place = kernel_log.place;
    if let Err(error) = &kernel_log.log {
        return Ok(Note::Info(format!(
            "cannot read the kernel's log ({place}: {error}): a restore of the machine from a snapshot is noticed only if \
             its clocks jump"
        )));
    }
    thread::Builder::new().name(String::from("restored")).spawn(move || {
        let mut restorations = RateLimited::default();
        while kernel_log.log.as_ref().is_ok_and(await_new_generation) {
            // Counted before, for the keeper, which compares the count before it grants a source
            // that is starting now. Counted after, too, for a stop, which reads the count and then
            // the generations.
            common.restores.fetch_add(1, Ordering::Release);
            common.record_restored();
            // The keeper marks the locks of counters, which must not wait.
            common.wake_ups.wake_keeper();
            // Reading the log takes a while. Announcements that this passes count with the first,
            // because the grants are taken away again afterwards.
            kernel_log.look_back();
            common.record_restored();
            common.restores.fetch_add(1, Ordering::Release);
            common.wake_ups.wake_keeper();
            if let Some(count) = restorations.count(Instant::now()) {
                tracing::warn!(
                    count,
                    "the machine was, or may have been, restored from a snapshot: what was claimed ahead is dropped, and \
                     sources of kind `ticket` are refused until `snowbank ticket set`"
                );
            }
        }
        common.lose(&format!(
            "the kernel's log ({place}) can no longer be read, so a restore of the machine from a snapshot could go unnoticed"
        ));
        common.wake_ups.wake_keeper();
    })?;
    Ok(Note::Info(format!(
        "reads the kernel's log ({place}): it reports when the machine was restored from a snapshot, if the hypervisor then \
         changes the VM generation ID"
    )))
}

/// Sleeps until a new generation is announced. Returns false when the log has ended.
fn await_new_generation(log: &OwnedFd) -> bool {
    loop {
        match hear_log(log.as_fd()) {
            Heard::NewGeneration => return true,
            Heard::Other => continue,
            Heard::End => return false,
            Heard::Nothing => {}
        }
        let mut waits = [PollFd::new(log, PollFlags::IN)];
        if !matches!(poll(&mut waits, None), Ok(_) | Err(Errno::INTR)) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::kernel_log::tests::{OTHER_RECORD, RECORD};
    use super::*;
    use crate::server::common::tests::common_of;
    use snowbank_core::source::Rules;
    use snowbank_id::layout::Position;
    use snowbank_id::numbering::TicketCounter;

    /// Returns a log, and the socket that writes to the log. Each read returns one record, as a
    /// read of the kernel's log does.
    fn log() -> (UnixDatagram, OwnedFd) {
        let (writer, reader) = UnixDatagram::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        (writer, reader.into())
    }

    /// `snowbank ticket set` may be run by a user that cannot read the log.
    #[test]
    fn a_restore_after_a_life_without_a_log_is_found() {
        let boot = HostIdentity::here().boot.unwrap();
        let log =
            |last| KernelLog { place: "none", log: Err(io::Error::other("none")), last: Mutex::new(last) };
        let life = log(None).host().life.unwrap();
        assert!(!log(None).has_restore_since(Some(&life), &boot));
        assert!(log(Some(411)).has_restore_since(Some(&life), &boot));
    }

    #[test]
    fn an_announcement_that_the_kernel_overwrites_is_remembered() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(RECORD).unwrap();
        let log = Ok(file.try_clone().unwrap().into());
        let log = KernelLog { place: "a file", log, last: Mutex::default() };
        log.look_back();
        let life = log.life_of("boot");
        assert!(life.starts_with("boot, restored at "), "{life}");
        file.set_len(0).unwrap();
        log.look_back();
        assert_eq!(log.life_of("boot"), life);
    }

    /// A restore that came before the end was perhaps not read. The next start looks back.
    #[test]
    fn a_log_that_can_no_longer_be_read_ends_the_daemon() {
        let counter = TicketCounter::new("orders", 1, 1).unwrap();
        let (common, source) = common_of(counter.into(), Rules::TICKETS);
        source.grant().raise(Position(9));
        // A file ends, as the kernel's log never does.
        let log = Ok(tempfile::tempfile().unwrap().into());
        let log = KernelLog { place: "a file", log, last: Mutex::default() };
        watch(Arc::new(log), Arc::clone(&common)).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while source.grant().is_in_force() && std::time::Instant::now() < deadline {
            thread::yield_now();
        }
        assert!(!source.grant().is_in_force(), "nothing more is handed out");
        assert!(common.lost.get().is_some_and(|reason| reason.contains("a file")));
    }

    #[test]
    fn only_the_announcement_of_a_restore_ends_the_wait() {
        let (writer, log) = log();
        let waiting = thread::spawn(move || (await_new_generation(&log), log));
        writer.send(OTHER_RECORD).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        writer.send(RECORD).unwrap();
        let (is_new, log) = waiting.join().unwrap();
        assert!(is_new);
        // The wait ends at the first announcement, and leaves later records in the log, because the
        // machine may have been restored twice.
        for record in [OTHER_RECORD, RECORD, RECORD, OTHER_RECORD] {
            writer.send(record).unwrap();
        }
        assert!(await_new_generation(&log));
        let hear = || hear_log(log.as_fd());
        let behind = [hear(), hear(), hear()];
        assert_eq!(
            behind,
            [Heard::NewGeneration, Heard::Other, Heard::Nothing],
            "the wait leaves the records after the announcement"
        );
    }
}
