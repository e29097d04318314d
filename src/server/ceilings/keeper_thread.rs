//! The keeper thread drives the [`Keeper`]: it polls the keeper about once a second, and also
//! when a request meets a ceiling or another thread has done a job. Until the stop, the keeper
//! thread never waits for storage or the coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::fleet_thread::{self, Fleet, InFleet};
use super::job_thread::JobThread;
use super::start_sources::Durable;
use super::storage_thread::{self, Done, Storage, Trim};
use crate::ceiling::{StateError, TakenOver, WorkerLocks};
use crate::clock::{self, BootMicros, Observed, Reading, Wall};
use crate::fleet::{Bound, Clocks, POLL_PERIOD};
use crate::keeper::{self, Keeper, Outcome, PERIOD, Polled, Reach, Write};
use crate::server::health::metrics::Metrics;
use crate::server::health::observer::Observer;
use crate::server::health::rate_limited_log::RateLimited;
use crate::server::shared::common::Common;
use crate::server::shared::start_error::StartError;
use crate::source::Source;
use snowbank_id::layout::Position;

/// The index of the fleet thread among the keeper's writers. The storage thread has index 0.
const FLEET: usize = 1;

/// The ceilings of a daemon: the keeper that decides when ceilings rise, the threads that write
/// ceilings, and the locks of the worker IDs.
#[derive(Debug)]
pub(crate) struct Ceilings {
    keeper: Keeper,
    /// The machine's locks of the worker IDs, by source. By default the lock files are in memory
    /// (/run), so checking them does not block.
    locks: Vec<WorkerLocks>,
    /// Limits the log lines about marks that could not be written.
    unmarked: RateLimited,
    /// `None`: the daemon keeps no state, and every write counts as durable at once.
    storage: Option<Storage>,
    /// `None`: the daemon belongs to no fleet.
    fleet: Option<Fleet>,
    /// The time at which a check was last sent to the fleet thread. `None`: no check was sent yet.
    /// The first check is sent before any raise.
    fleet_checked_at: Option<BootMicros>,
    /// True while the fleet thread has not done the last check that was sent to it.
    fleet_is_checking: bool,
    /// The time at which the storage thread last got a job.
    stored_at: BootMicros,
}

impl Ceilings {
    /// Grants the first ceilings, which are already durable, and starts the threads that write
    /// later ceilings.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn grant(
        durable: Durable,
        fleet: Option<InFleet>,
        wall: &Arc<Wall>,
        started: Reading,
    ) -> Result<Ceilings, StartError> {
        let Durable { mut sources, locks, first_ceilings, store, ranges } = durable;
        let mut unmarked = RateLimited::default();
        for (managed, (index, durable)) in sources.iter_mut().zip(first_ceilings) {
            // The mark gets the state's durable ceiling, even if the coordinator allows less. An
            // older copy of the state is then recognized, because its ceiling is below the mark.
            record_granted(&locks[index], managed.source().numbering().id_bound(durable), &mut unmarked);
            managed.grant(durable);
        }
        for (index, range) in ranges {
            keeper::add_range(sources[index].source(), range, 0);
        }
        let mut writers = vec![Reach::Local];
        writers.extend(fleet.as_ref().map(|fleet| Reach::Fleet(fleet.horizon)));
        let fleet = fleet.map(fleet_thread::start).transpose();
        let fleet = fleet.map_err(|error| StartError::no_thread(&error))?;
        let storage =
            store.map(storage_thread::start).transpose().map_err(|error| StartError::no_thread(&error))?;
        let keeper = Keeper::new(sources, &writers, Arc::clone(wall), started);
        Ok(Ceilings {
            keeper,
            locks,
            unmarked,
            storage,
            fleet,
            fleet_checked_at: None,
            fleet_is_checking: false,
            stored_at: started.boot,
        })
    }

    /// Passes on the result of a later step of a start, together with the ceilings. If the step
    /// failed, trims the ceilings, because no ID was handed out. If the trim fails too, the next
    /// start begins above the ceilings.
    pub(crate) fn or_trim<T, E>(self, step: Result<T, E>) -> Result<(T, Ceilings), E> {
        match step {
            Ok(done) => Ok((done, self)),
            Err(error) => {
                let _ = self.seal_and_trim();
                Err(error)
            }
        }
    }

    /// Returns the sources, by their index.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.keeper.sources()
    }

    /// Returns the ceiling that each source has at the coordinator. Without a fleet, the list is
    /// empty.
    pub(crate) fn fleet_ceilings(&self) -> Vec<Position> {
        self.keeper.fleet_ceilings()
    }

    /// Runs the keeper until `stopping` is set. Then seals the sources and trims their ceilings.
    ///
    /// # Errors
    /// The same as those of [`seal_and_trim`](Ceilings::seal_and_trim).
    pub(crate) fn run(mut self, common: &Common, stopping: &AtomicBool) -> Result<(), StateError> {
        let Common { wake_ups, heartbeat, metrics, .. } = common;
        let mut observer = Observer::default();
        self.storage.iter().for_each(JobThread::wake_this_thread);
        self.fleet.iter().for_each(JobThread::wake_this_thread);
        while !stopping.load(Ordering::Acquire) {
            let round = heartbeat.round();
            let reading = clock::os::read();
            let polled = self.poll(reading, metrics);
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
            thread::park_timeout(polled.next_in.saturating_sub(clock::os::boot().since(reading.boot)));
        }
        self.seal_and_trim()
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
                Done::Ours | Done::Trimmed(_) => {}
            }
        }
        self.apply_fleet_results(reading, metrics);
        let mut polled = self.keeper.poll(reading);
        for index in self.keeper.restored() {
            // This comes before the write to the state, which may hang.
            let marked = self.locks[index].mark_unknown();
            marked.unwrap_or_else(|error| {
                tracing::warn!("{error}; do not restart before `snowbank ticket set`")
            });
        }
        metrics.keeper().record(reading, &polled);
        self.check_fleet(&mut polled, reading);
        for write in std::mem::take(&mut polled.writes) {
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

    /// Sends a check to the fleet thread if it is due.
    fn check_fleet(&mut self, polled: &mut Polled, reading: Reading) {
        if let Some(fleet) = &mut self.fleet
            && !self.fleet_is_checking
            && self.keeper.lost().is_none()
        {
            let waited = self.fleet_checked_at.map_or(Duration::MAX, |at| reading.boot.since(at));
            let check_in = POLL_PERIOD.saturating_sub(waited);
            if check_in.is_zero() {
                // The fleet thread wakes this thread when it has done the check.
                self.fleet_checked_at = Some(reading.boot);
                self.fleet_is_checking = true;
                fleet.send(fleet_thread::Job::Check(clocks(&self.keeper, reading)));
            } else {
                polled.next_in = polled.next_in.min(check_in);
            }
        }
    }

    /// Applies the results of the fleet thread.
    fn apply_fleet_results(&mut self, reading: Reading, metrics: &Metrics) {
        for done in self.fleet.as_mut().map(JobThread::take_done).unwrap_or_default() {
            match done {
                fleet_thread::Done::Raised(outcome) => self.apply_outcome(outcome, reading, metrics),
                fleet_thread::Done::Ranged(wanted, answer) => {
                    let now = self.keeper.believe(reading);
                    self.keeper.ranged(wanted, answer.as_ref().ok().copied(), now);
                    let mut seen = metrics.keeper();
                    seen.fleet_raises += u64::from(answer.is_ok());
                    seen.fleet_silence = answer.err().map(|answer| answer.reason);
                }
                fleet_thread::Done::Checked(answer, noticed) => {
                    self.fleet_is_checking = false;
                    metrics.fleet_answers.store(answer.is_ok(), Ordering::Relaxed);
                    let mut seen = metrics.keeper();
                    seen.fleet_silence = answer.err().map(|answer| answer.reason);
                    seen.noticed = *noticed;
                }
                fleet_thread::Done::Lost(taken_over) => self.keeper.lose(taken_over),
                fleet_thread::Done::Finished(_) => {}
            }
        }
    }

    /// Sends a raise of the fleet's ceilings to the fleet thread.
    fn write_to_fleet(&mut self, write: Write, reading: Reading) {
        let Some(fleet) = &mut self.fleet else { return };
        let mut bounds = Vec::new();
        for &(source, ceiling) in &write.ceilings {
            bounds.push(Bound { source, id_bound: self.keeper.id_bound(source, ceiling) });
        }
        let Write { writer, number, generation, .. } = write;
        let clocks = clocks(&self.keeper, reading);
        fleet.send(fleet_thread::Job::Raise { writer, number, bounds, generation, clocks });
    }

    fn write(&mut self, write: Write, reading: Reading, metrics: &Metrics) {
        if write.writer == FLEET {
            return self.write_to_fleet(write, reading);
        }
        self.stored_at = reading.boot;
        match &mut self.storage {
            Some(storage) => storage.send(storage_thread::Job::Write(write)),
            None => {
                let Write { writer, number, .. } = write;
                self.apply_outcome(Outcome { writer, number, result: Ok(()) }, reading, metrics);
            }
        }
    }

    fn apply_outcome(&mut self, outcome: Outcome, reading: Reading, metrics: &Metrics) {
        let now = self.keeper.believe(reading);
        let written = self.keeper.written(outcome, now, |index, id_bound| {
            record_granted(&self.locks[index], id_bound, &mut self.unmarked);
        });
        written.iter().for_each(|written| metrics.keeper().written(written, reading.boot));
    }

    /// Checks that this process still has the locks of all worker IDs.
    fn still_ours(&self) -> Result<(), TakenOver> {
        self.locks.iter().try_for_each(WorkerLocks::still_ours)
    }

    /// Seals all sources, so that nothing more is claimed, and lowers the ceilings to the cursors.
    /// Waits for storage and the coordinator.
    ///
    /// Gives the fleet's worker IDs back only if the coordinator answers. Otherwise the next start
    /// continues with these worker IDs, as after a kill.
    ///
    /// # Errors
    /// The marks or the ceilings could not be lowered, so the next start begins above the ceilings.
    pub(crate) fn seal_and_trim(mut self) -> Result<(), StateError> {
        let sources = self.keeper.seal();
        let at_seal = clocks(&self.keeper, clock::os::read());
        // The locks may have been lost since the last check.
        let is_lost = self.keeper.lost().is_some() || self.still_ours().is_err();
        let returning = self.confirm_return(is_lost, at_seal);
        // The marks are lowered before the state's bounds, because a mark must never be above the
        // state's bound.
        let has_worker_ids: Vec<bool> =
            self.sources().map(|source| source.numbering().snowflake().is_some()).collect();
        let marked = sources.iter().filter(|_| !is_lost).try_for_each(|left| {
            if returning.is_some() && has_worker_ids[left.source] {
                self.locks[left.source].mark_returned(left.id_bound)
            } else {
                self.locks[left.source].mark_granted(left.id_bound)
            }
        });
        let bounds =
            sources.iter().map(|left| Bound { source: left.source, id_bound: left.id_bound }).collect();
        let wall_minus_boot_us = self.keeper.wall_minus_boot_us();
        let restored = self.keeper.restored();
        let trim = Trim { sources, wall_minus_boot_us, restored };
        let trim = Some(trim).filter(|_| !is_lost && marked.is_ok());
        let trimmed = self.storage.map_or(Ok(()), |storage| storage_thread::end(storage, trim));
        marked.map_err(|error| StateError::storage(format!("cannot mark the worker IDs' locks: {error}")))?;
        trimmed?;
        // The state's bounds are lowered before the coordinator's bounds, because a bound in the
        // state must never be above the coordinator's bound.
        if let Some(mut fleet) = returning
            && let Err(reason) = fleet.finish(fleet_thread::Job::Release(bounds, at_seal))
        {
            tracing::warn!(
                "the coordinator did not confirm the release of the worker IDs, so the next start asks it who \
                 holds them: {reason}"
            );
        }
        Ok(())
    }

    /// Returns the fleet thread if the coordinator confirms that the worker IDs still belong to
    /// this daemon, so that they can be released.
    fn confirm_return(&mut self, is_lost: bool, clocks: Clocks) -> Option<Fleet> {
        let mut fleet = self.fleet.take()?;
        if is_lost {
            // The thread stores that the worker IDs are lost, so that the next start asks.
            fleet.wait_for_end(fleet_thread::ANSWER_TIMEOUT);
            return None;
        }
        match fleet.finish(fleet_thread::Job::Confirm(clocks)) {
            Ok(()) => Some(fleet),
            Err(reason) => {
                tracing::warn!("the worker IDs are not given back, as after a crash: {reason}");
                None
            }
        }
    }
}

/// Returns the believed wall clock and the boot clock of a reading.
fn clocks(keeper: &Keeper, reading: Reading) -> Clocks {
    Clocks::at(keeper.believe(reading).wall, reading)
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
            "the ceilings were made durable again after a jump of the clocks or a restored snapshot"
        );
    }
}
