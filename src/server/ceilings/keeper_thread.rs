//! The keeper thread drives the [`Keeper`]. It polls the keeper about once a second, and also
//! when a request meets a ceiling or another thread has done a job. Until the stop, the keeper
//! thread waits for neither the state directory nor the coordinator. It checks and marks the worker
//! IDs' locks, which by default are files in memory (`lock_dir`).
//!
//! It runs before any source has a grant. The control thread takes worker IDs, makes first ceilings
//! durable, and hands each source over as a [`Change`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::os_clock;

use super::ending::{Ended, Writers};
use super::fleet_thread::{self, ANSWER_TIMEOUT, Fleet};
use super::job_thread::JobThread;
use super::join_fleet::warn_unless_marked;
use super::start_sources::Starting;
use super::storage_thread::{self, Done, Storage};
use crate::server::common::Common;
use crate::server::health::metrics::Metrics;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::reading::observer::Observer;
use crate::server::restored::Life;
use snowbank_core::clock::{BootMicros, Observed, Reading, Remembered};
use snowbank_core::grant::{Left, TakenOver};
use snowbank_core::keeper::{self, Durable, Keeper, ManagedSource, Outcome, PERIOD, Polled, Write};
use snowbank_core::source::Source;
use snowbank_fleet::{Bound, Rest};
use snowbank_state::{Fate, StateError, WorkerLocks};

/// The index of the fleet thread among the keeper's writers. The storage thread has index 0.
const FLEET: usize = 1;

/// A change that the control thread hands to the keeper thread.
#[derive(Debug)]
pub(crate) enum Change {
    /// The state and the coordinator are open. `None`: the daemon keeps no state, or belongs to no
    /// fleet.
    Opened(Option<Storage>, Option<Fleet>),
    /// The clock begins again with what the state remembers. Comes before the first grant. The
    /// sender reports that it is done.
    Clock(Remembered, Reading, Sender<()>),
    /// Sources start, whose first ceilings are durable. The sender reports that it is done.
    Granted(Granted, Sender<()>),
    /// Sources are added that have no grant yet. They get the next indices.
    Added(Vec<ManagedSource>),
    /// End the claims of these sources, and hand over what they held. `None`: the daemon has lost a
    /// worker ID or the state, and ends.
    Removed(Vec<usize>, Sender<Option<Ended>>),
}

/// Sources that start together.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) sources: Vec<Starting>,
    /// The locks of their worker IDs, by source.
    pub(crate) locks: BTreeMap<usize, WorkerLocks>,
    /// The life of the machine in which their start began.
    pub(crate) life: Life,
}

/// The ceilings of a daemon: the keeper that decides when ceilings rise, the threads that write
/// ceilings, and the locks of the worker IDs.
#[derive(Debug)]
pub(crate) struct Ceilings {
    keeper: Keeper,
    changes: Receiver<Change>,
    /// The machine's locks of the worker IDs, by source. By default the lock files are in memory
    /// (/run), so checking them does not block.
    locks: BTreeMap<usize, WorkerLocks>,
    /// Limits the log lines about marks that could not be written.
    unmarked: RateLimited,
    /// `None`: the daemon keeps no state, and every write counts as durable at once. Or the state
    /// is not open yet.
    storage: Option<Storage>,
    /// `None`: the daemon belongs to no fleet, or the coordinator's client is not open yet.
    fleet: Option<Fleet>,
    /// The sources that have worker IDs or numbers of the fleet.
    in_fleet: BTreeSet<usize>,
    /// The time at which the storage thread last got a job.
    stored_at: BootMicros,
}

impl Ceilings {
    /// Returns the ceilings of sources that have no grant yet.
    pub(crate) fn new(keeper: Keeper, changes: Receiver<Change>) -> Ceilings {
        Ceilings {
            keeper,
            changes,
            locks: BTreeMap::new(),
            unmarked: RateLimited::default(),
            storage: None,
            fleet: None,
            in_fleet: BTreeSet::new(),
            stored_at: os_clock::boot(),
        }
    }

    /// Applies the changes that the control thread has handed over.
    fn apply_changes(&mut self, common: &Common) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Change::Opened(storage, fleet) => {
                    storage.iter().for_each(JobThread::wake_this_thread);
                    fleet.iter().for_each(JobThread::wake_this_thread);
                    (self.storage, self.fleet) = (storage, fleet);
                }
                Change::Clock(remembered, reading, done) => {
                    self.keeper.begin(remembered, reading);
                    // Sending fails if the control thread has ended.
                    let _ = done.send(());
                }
                Change::Granted(granted, done) => {
                    let may_be_lost = common.may_be_lost();
                    self.grant(granted, os_clock::read(), may_be_lost);
                    let _ = done.send(());
                }
                Change::Added(awaited) => awaited.into_iter().for_each(|source| self.keeper.add(source)),
                Change::Removed(indices, ended) => {
                    let _ = ended.send(self.remove(&indices, common));
                }
            }
        }
    }

    /// Grants first ceilings, which are already durable. `may_be_lost`: the daemon has lost a worker ID, or
    /// is in doubt.
    fn grant(&mut self, Granted { sources, locks, life }: Granted, reading: Reading, may_be_lost: bool) {
        let has_jumped = life.has_jumped(reading);
        let is_restored = life.is_restored();
        self.locks.extend(locks);
        for Starting { index, mut managed, first_ceiling, range } in sources {
            let source = managed.source();
            // Since the start of these sources began, the machine may have been restored from a
            // snapshot. Then another copy of it may have the same grants, so only ceilings that are
            // written from now on count. After a loss, none is written any more.
            if has_jumped || may_be_lost {
                source.grant().revoke();
            }
            if self.keeper.lost().is_some() {
                source.grant().lose();
            }
            if is_restored {
                source.record_restored();
            }
            // The mark gets the state's durable ceiling, even if the coordinator allows less. An
            // older copy of the state is then recognized, because its ceiling is below the mark. Without a
            // state, only the end of a source marks the lock.
            match self.locks.get(&index) {
                Some(locks) if may_be_lost && managed.is_in_fleet() => {
                    warn_unless_marked(locks.mark_as(Fate::Lost));
                }
                Some(locks) if self.storage.is_some() => {
                    record_granted(locks, source.numbering().id_bound(first_ceiling), &mut self.unmarked);
                }
                _ => {}
            }
            managed.grant(first_ceiling);
            if let Some(range) = range {
                keeper::add_range(managed.source(), range, 0);
            }
            if managed.is_in_fleet() {
                self.in_fleet.insert(index);
            }
            self.keeper.put(index, managed);
        }
    }

    /// Ends the claims of sources. Returns `None` if the daemon has lost a worker ID or the state:
    /// then nothing may be lowered or given back.
    fn remove(&mut self, indices: &[usize], common: &Common) -> Option<Ended> {
        // The locks may have been lost since the last check.
        let is_lost = self.keeper.lost().is_some() || common.lost.get().is_some();
        if is_lost || self.still_ours().is_err() {
            return None;
        }
        let life = Life::now(common);
        // If the machine was restored since the last poll, ranges of before are not given back.
        self.keeper.revoke_after_a_jump(os_clock::read());
        let left = self.keeper.seal_these(indices.iter().copied());
        let in_fleet = left.iter().filter(|left| self.in_fleet.contains(&left.source));
        let bounds = in_fleet.map(|left| Bound { source: left.source, id_bound: left.id_bound }).collect();
        let mut restored = self.keeper.restored();
        restored.retain(|index| indices.contains(index));
        self.in_fleet.retain(|index| !indices.contains(index));
        Some(Ended {
            have_served: true,
            are_removed: true,
            bounds,
            rests: self.rests(&left),
            left,
            locks: indices.iter().filter_map(|index| Some((*index, self.locks.remove(index)?))).collect(),
            restored,
            wall_minus_boot_us: self.keeper.wall_minus_boot_us(),
            life,
        })
    }

    /// Runs the keeper until `stopping` is set. Then seals the sources and trims their ceilings.
    ///
    /// # Errors
    /// The same as those of [`seal_and_trim`](Ceilings::seal_and_trim).
    pub(crate) fn run(mut self, common: &Common, stopping: &AtomicBool) -> Result<(), StateError> {
        let Common { wake_ups, heartbeat, metrics, .. } = common;
        let mut observer = Observer::default();
        while !stopping.load(Ordering::Acquire) {
            let round = heartbeat.round();
            self.apply_changes(common);
            if let Some(reason) = common.lost.get() {
                // Another thread has found the loss. The keeper must raise nothing any more.
                self.keeper.lose(TakenOver(reason.clone()));
            }
            let reading = os_clock::read();
            let polled = self.poll(reading, metrics);
            if common.in_doubt.load(Ordering::SeqCst) {
                // A raise at the state's disk marks them as granted.
                self.mark_lost();
            }
            if let Some(TakenOver(reason)) = self.keeper.lost() {
                // A second `set` has no effect, so the first reason is kept.
                let _ = common.lost.set(reason.clone());
            }
            heartbeat.keeper_polled(round);
            log(&polled);
            observer.observe(common, reading, polled.is_in_use);
            if polled.some_wait {
                wake_ups.wake_all_shards();
            }
            // The pause counts from the start of this poll. If it counted from the end, the next
            // poll could come too late to raise a ceiling.
            thread::park_timeout(polled.next_in.saturating_sub(os_clock::boot().since(reading.boot)));
        }
        // If the control thread is stuck, what it took and did not hand over is as after a kill.
        self.apply_changes(common);
        self.seal_and_trim(common)
    }

    /// Applies the results of the storage thread and the fleet thread, polls the keeper, and
    /// sends the keeper's writes to these two threads.
    fn poll(&mut self, reading: Reading, metrics: &Metrics) -> Polled {
        if self.keeper.lost().is_none()
            && let Err(taken_over) = self.still_ours()
        {
            self.keeper.lose(taken_over);
        }
        for done in self.storage.as_mut().map(JobThread::take_done).unwrap_or_default() {
            match done {
                Done::Written(outcome) => self.apply_outcome(outcome, reading, metrics),
                Done::Lost(taken_over) => self.keeper.lose(taken_over),
                Done::Ours => {}
            }
        }
        self.apply_fleet_results(reading, metrics);
        let mut polled = self.keeper.poll(reading);
        for index in self.keeper.restored() {
            // This comes before the write to the state, which may hang.
            let Some(locks) = self.locks.get_mut(&index) else { continue };
            locks.mark_unknown().unwrap_or_else(|error| {
                tracing::warn!("{error}; do not restart before `snowbank ticket set`")
            });
        }
        let writes = std::mem::take(&mut polled.writes);
        metrics.keeper().record(reading, &polled);
        for write in writes {
            self.write(write, reading, metrics);
        }
        if let Some(fleet) = &mut self.fleet {
            polled.ranges.drain(..).for_each(|wanted| fleet.send(fleet_thread::Job::Range(wanted)));
        }
        if let Some(storage) = &mut self.storage
            && storage.is_idle()
            && polled.is_in_use
            && reading.boot.since(self.stored_at) >= PERIOD
        {
            self.stored_at = reading.boot;
            storage.send(storage_thread::Job::Check);
        }
        polled
    }

    /// Applies the results of the fleet thread.
    fn apply_fleet_results(&mut self, reading: Reading, metrics: &Metrics) {
        for done in self.fleet.as_mut().map(JobThread::take_done).unwrap_or_default() {
            match done {
                fleet_thread::Done::Raised(outcome) => self.apply_outcome(outcome, reading, metrics),
                fleet_thread::Done::Ranged(wanted, answer) => {
                    let now = self.keeper.believe(reading);
                    self.keeper.ranged(wanted, answer.as_ref().ok().copied(), now);
                    metrics.keeper().fleet_raises += u64::from(answer.is_ok());
                    metrics.fleet().silence = answer.err().map(|answer| answer.reason);
                }
                fleet_thread::Done::Lost(taken_over) => {
                    self.keeper.lose(taken_over);
                    self.mark_lost();
                }
            }
        }
    }

    /// Sends a raise of the fleet's ceilings to the fleet thread.
    fn write_to_fleet(&mut self, write: Write) {
        let Some(fleet) = &mut self.fleet else { return };
        let mut bounds = Vec::new();
        let Write { writer, number, ceilings, .. } = write;
        for (source, Durable { ceiling, generation }) in ceilings {
            bounds.push((Bound { source, id_bound: self.keeper.id_bound(source, ceiling) }, generation));
        }
        fleet.send(fleet_thread::Job::Raise { writer, number, bounds });
    }

    fn write(&mut self, write: Write, reading: Reading, metrics: &Metrics) {
        if write.writer == FLEET {
            return self.write_to_fleet(write);
        }
        self.stored_at = reading.boot;
        match &mut self.storage {
            Some(storage) => storage.send(storage_thread::Job::Write(write)),
            None => {
                let Write { writer, number, .. } = write;
                self.apply_outcome(Outcome { writer, number, failure: None }, reading, metrics);
            }
        }
    }

    fn apply_outcome(&mut self, outcome: Outcome, reading: Reading, metrics: &Metrics) {
        let now = self.keeper.believe(reading);
        let keeps_state = self.storage.is_some();
        let written = self.keeper.written(outcome, now, |index, id_bound| {
            if let Some(locks) = self.locks.get(&index).filter(|_| keeps_state) {
                record_granted(locks, id_bound, &mut self.unmarked);
            }
        });
        written.iter().for_each(|written| metrics.keeper().written(written, reading.boot));
    }

    /// Checks that this process still has the locks of all worker IDs.
    fn still_ours(&self) -> Result<(), TakenOver> {
        self.locks.values().try_for_each(WorkerLocks::still_ours)
    }

    /// Seals all sources, so that nothing more is claimed, and ends them. Waits for storage and the
    /// coordinator.
    ///
    /// Gives the fleet's worker IDs back only if the coordinator answers. Otherwise the next start
    /// continues with these worker IDs, as after a kill.
    ///
    /// # Errors
    /// The marks or the ceilings could not be lowered, so the next start begins above the ceilings.
    fn seal_and_trim(mut self, common: &Common) -> Result<(), StateError> {
        let all: Vec<usize> = (0..self.keeper.sources().count()).collect();
        let Some(ended) = self.remove(&all, common) else {
            self.keeper.seal();
            if self.still_ours().is_ok() {
                self.mark_lost();
            }
            if let Some(fleet) = self.fleet {
                fleet.wait_for_end(ANSWER_TIMEOUT);
            }
            return Ok(());
        };
        let storage = self.storage.as_ref().map(JobThread::asks);
        let fleet = self.fleet.as_ref().map(JobThread::asks);
        let (storage, fleet) = (storage.as_ref(), fleet.as_ref());
        // The process waits for this thread only for a time.
        let (disk_limit, answer_limit) = (Duration::MAX, ANSWER_TIMEOUT);
        let writers = Writers { storage, disk_limit, fleet, answer_limit, common };
        Ended { are_removed: false, ..ended }.end(writers)
    }

    /// Marks the locks of worker IDs of the fleet after a loss: the next start must ask, even if the disk
    /// has not stored by then that the ceilings are forgotten.
    fn mark_lost(&mut self) {
        for locks in self.in_fleet.iter().filter_map(|index| self.locks.get(index)) {
            let marked = locks.mark_as(Fate::Lost);
            if marked.is_err() && self.unmarked.count(Instant::now()).is_some() {
                warn_unless_marked(marked);
            }
        }
    }

    /// Returns what is left of the ranges of sealed shared counters.
    fn rests(&self, sealed: &[Left]) -> Vec<Rest> {
        let sources: Vec<&Arc<Source>> = self.keeper.sources().collect();
        let shared = sealed.iter().filter(|left| sources[left.source].kind().takes_ranges());
        let generation = |left: &Left| sources[left.source].grant().generation();
        shared
            .map(|left| Rest { source: left.source, next: left.id_bound, generation: generation(left) })
            .collect()
    }
}

/// Writes a mark that the IDs of a source are granted up to this bound. If that fails, the daemon
/// continues, because the state has the bound as well.
fn record_granted(locks: &WorkerLocks, id_bound: u64, failures: &mut RateLimited) {
    let marked = locks.mark_granted(id_bound);
    if let Err(error) = marked
        && failures.count(Instant::now()).is_some()
    {
        tracing::warn!(
            %error,
            "cannot mark in lock_dir how far IDs were granted; an older copy of the state might not be refused"
        );
    }
}

/// Logs the events of a poll that no finding covers.
fn log(polled: &Polled) {
    if let Observed::Believed(by) = polled.clock {
        // The line needs no rate limit, because at most one step is believed in each `step_hold`.
        tracing::warn!(?by, "clock step accepted after clock.step_hold: the ID clock follows the wall clock");
    }
    if polled.is_renewed {
        tracing::info!(
            "the ceilings were made durable again after a jump of the clocks, a restored snapshot, or an old answer of \
             the coordinator"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, mpsc};

    use super::super::start_sources::awaiting;
    use super::*;
    use crate::config::{self, Overrides};
    use crate::server::common::tests::common_of;
    use snowbank_core::clock::{BootMicros, StepRule, Wall};
    use snowbank_core::grant::CeilingRule;
    use snowbank_core::keeper::{ManagedSource, Reach};
    use snowbank_core::source::{Rules, Source};
    use snowbank_id::layout::{Position, UnixMicros};
    use snowbank_id::numbering::TicketCounter;

    const BEGAN: Reading = Reading { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(500_000_000) };

    /// Grants a source whose start began at [`BEGAN`], with the machine never restored. Returns the
    /// ceiling that the source then has.
    fn granted(reading: Reading, restored: u64, is_lost: bool) -> Position {
        let rule = StepRule { max_step: Duration::from_secs(60), step_hold: Duration::from_secs(60) };
        let wall = Arc::new(Wall::new(rule, BEGAN, Remembered::Nothing));
        let now = wall.believe(BEGAN);
        let settings = config::load(None, &Overrides::default(), NonZeroUsize::MIN, now.wall).unwrap();
        let awaited = awaiting(&settings.sources[0], Duration::ZERO, now).unwrap();
        let numbering = awaited.source().numbering().clone();
        let start = numbering.first_of(numbering.tick_at(now.wall));
        let grant = snowbank_core::grant::Grant::new(Position(0));
        let rules = *awaited.source().rules();
        let source = Arc::new(Source::new(String::from("orders"), numbering, rules, grant, start, now));
        let ceiling_rule = CeilingRule {
            horizon: Duration::from_secs(3),
            max_ahead: Duration::from_secs(10),
            tick: Duration::from_millis(1),
        };
        let managed = ManagedSource::new(Arc::clone(&source), ceiling_rule, start, now);
        let first_ceiling = managed.first_ceiling(now);
        let keeper = Keeper::new(vec![awaited], &[Reach::Local], wall, BEGAN);
        let mut ceilings = Ceilings::new(keeper, mpsc::channel().1);
        let sources = vec![Starting { index: 0, managed, first_ceiling, range: None }];
        let life = Life { began: BEGAN, restores: 0, reported: Arc::new(AtomicU64::new(restored)) };
        ceilings.grant(Granted { sources, locks: BTreeMap::new(), life }, reading, is_lost);
        source.grant().ceiling()
    }

    #[test]
    fn a_restore_during_a_start_takes_the_first_grant_away() {
        let later = Reading { wall: UnixMicros(BEGAN.wall.0 + 1), boot: BootMicros(BEGAN.boot.0 + 1) };
        assert!(granted(later, 0, false) > Position(0), "nothing has happened since the start began");
        assert_eq!(granted(later, 0, true), Position(0), "a worker ID is lost");
        assert_eq!(granted(later, 1, false), Position(0), "the kernel has reported a restore");
        let jumped = Reading { boot: BootMicros(BEGAN.boot.0 + 10_000_000), ..later };
        assert_eq!(granted(jumped, 0, false), Position(0), "the clocks have jumped");
    }

    /// Returns the ceilings of a daemon without state that has one counter.
    fn ceilings_of_a_counter() -> (Ceilings, Arc<Common>, Arc<Source>) {
        let counter = TicketCounter::new("orders", 1, 1).unwrap();
        let (common, source) = common_of(counter.into(), Rules::TICKETS);
        let seconds = Duration::from_secs;
        let rule = CeilingRule { horizon: seconds(3), max_ahead: seconds(10), tick: Duration::ZERO };
        let managed =
            ManagedSource::new(Arc::clone(&source), rule, Position(0), common.wall.believe(os_clock::read()));
        let keeper = Keeper::new(vec![managed], &[Reach::Local], Arc::clone(&common.wall), os_clock::read());
        let ceilings = Ceilings::new(keeper, mpsc::channel().1);
        (ceilings, common, source)
    }

    /// The keeper hears of the loss later. Until then, a counter must not look like one that the
    /// kernel reported as restored: its mark would say that it is unknown.
    #[test]
    fn a_loss_that_the_fleet_thread_finds_is_no_restore() {
        let (mut ceilings, common, source) = ceilings_of_a_counter();
        source.grant().raise(Position(9));
        common.lose("another daemon has its number");
        assert!(!source.grant().is_in_force());
        assert_eq!(ceilings.keeper.restored(), Vec::<usize>::new());
        assert!(ceilings.remove(&[0], &common).is_none(), "nothing is lowered or given back");
    }

    /// Without state, each poll makes ceilings durable at once.
    #[test]
    fn nothing_is_raised_after_a_loss_that_another_thread_finds() {
        let (ceilings, common, source) = ceilings_of_a_counter();
        let stopping = AtomicBool::new(false);
        let await_that = |is_so: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !is_so() && Instant::now() < deadline {
                thread::yield_now();
            }
            is_so()
        };
        thread::scope(|threads| {
            let running = threads.spawn(|| ceilings.run(&common, &stopping));
            source.grant().raise(Position(9));
            common.lose("the kernel's log can no longer be read");
            let is_lost = await_that(&|| source.grant().is_lost());
            let has_ended = !source.grant().is_in_force();
            stopping.store(true, Ordering::Release);
            running.thread().unpark();
            running.join().expect("no panic").expect("nothing to lower");
            assert!(is_lost && has_ended, "the grant came back");
        });
    }
}
