//! The keeper raises ceilings, each of which is durable before it is granted, and watches the wall
//! clock. It is pure: it reads no clock, waits for nothing and writes nothing.
//!
//! The keeper takes clock readings and the outcomes of writes, and returns the writes to make. A
//! *writer* makes ceilings durable. The state directory is a writer, and so is the coordinator of a
//! fleet. Each writer has at most one write in flight, however long that write takes. A source's
//! grant rises to the lowest ceiling that all writers have made durable. The coordinator's ceiling
//! reaches minutes ahead and rises for idle sources too. So neither requests nor the state
//! directory wait for the coordinator.
//!
//! ```text
//!  poll(reading) ──▶ writes to hand out ──▶ writers, each with one write in flight
//!  written(outcome) ◀──────────────────────────┘
//!      all durable: mark the worker IDs' locks, then raise the grant
//! ```
//!
//! Two rules keep a late outcome from granting too much:
//! - An outcome counts only if it has the number of the write in flight, because an abandoned write
//!   may still be answered.
//! - A ceiling counts only while the source's grant has the generation that was read before the
//!   ceiling's write was handed out. A thread that takes a grant away starts a new generation. So
//!   only a write handed out later can bring the grant back.

pub mod far;
mod managed_source;
mod range_demand;
mod reservation;
mod writer;

pub use managed_source::{Durable, ManagedSource, Reach, id_minus_boot_us};
pub use range_demand::{NumberRange, WantedRange, add_range};
pub use reservation::{RESERVE, RESERVE_MAX, reserved_at_start};
pub use writer::{Outcome, Write, Written};

use std::sync::Arc;
use std::time::Duration;

use self::writer::Writer;
use crate::clock::{BootMicros, Now, Observed, Reading, Remembered, StepWatch, Wall};
use crate::grant::{Left, TakenOver};
use crate::source::Source;
use snowbank_id::layout::Position;

/// The longest pause of the keeper between two polls, and between two raises of a source in use. It
/// is also the pause between a failed write and the next.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The shortest pause between two raises, unless a claim meets the ceiling. Soon after a start, the
/// ceiling of a source in use is near. The ceiling then rises each time half of the remaining way
/// is used up, so that no request meets it.
const SHORTEST_PERIOD: Duration = Duration::from_millis(5);

/// The largest difference between the believed wall − boot and the stored value. After a larger one
/// the value is stored again. A held step is far larger than this. So a start never holds a time
/// that the daemon believed before.
const BELIEF_DRIFT: Duration = Duration::from_secs(1);

/// The result of a poll.
#[derive(Clone, Debug, Default)]
pub struct Polled {
    /// The state of the wall clock.
    pub clock: Observed,
    /// Why the last write of ceilings to the state directory failed. `None` after a success, and
    /// once no source needs a raise.
    pub failure: Option<String>,
    /// Why the last write of the fleet's ceilings failed.
    pub fleet_failure: Option<String>,
    /// By source, the fleet's ceilings that are durable. Empty without a fleet.
    pub fleet_ceilings: Vec<Position>,
    /// Why nothing is handed out any more.
    pub taken_over: Option<TakenOver>,
    /// True in the first poll after all grants that were taken away were raised again.
    pub is_renewed: bool,
    /// True if requests wait. The caller should advance their wait queues.
    pub some_wait: bool,
    /// True if a source was used so recently that its ceiling is still raised.
    pub is_in_use: bool,
    /// The writes to hand to their writers now.
    pub writes: Vec<Write>,
    /// For each source, the time for which the numbers of a shared counter last without the
    /// coordinator.
    pub ranges_last: Vec<Option<Duration>>,
    /// The ranges to ask the coordinator for now.
    pub ranges: Vec<WantedRange>,
    /// When the oldest write in flight began. A write to the coordinator does not count.
    pub in_flight_since: Option<BootMicros>,
    /// The shortest time for which the IDs below a source's ceiling last.
    pub horizon: Duration,
    /// The time until the next poll, unless a claim meets its ceiling or a write ends before then.
    pub next_in: Duration,
}

/// Decides which ceilings are written and when, and raises grants once their ceilings are durable.
#[derive(Debug)]
pub struct Keeper {
    sources: Vec<ManagedSource>,
    writers: Vec<Writer>,
    wall: Arc<Wall>,
    watch: StepWatch,
    started: BootMicros,
    /// True if the last poll found a grant that was taken away and not raised again.
    was_revoked: bool,
    /// Why nothing is handed out any more. Never unset.
    lost: Option<TakenOver>,
}

impl Keeper {
    /// Creates a keeper of sources whose first ceilings are granted already, and durable at each of
    /// `writers`. `started` is the reading with which `wall` began.
    pub fn new(sources: Vec<ManagedSource>, writers: &[Reach], wall: Arc<Wall>, started: Reading) -> Self {
        let writers = writers.iter().map(|&reach| Writer {
            reach,
            durable: sources.iter().map(|managed| managed.first(reach)).collect(),
            wall_minus_boot_us: wall.carried_us(),
            writes: 0,
            in_flight: None,
            due: None,
            failure: None,
        });
        let writers = writers.collect();
        Keeper {
            sources,
            writers,
            watch: StepWatch::new(&wall, started),
            wall,
            started: started.boot,
            was_revoked: false,
            lost: None,
        }
    }

    /// Begins to follow the clock again, from this reading and from what the state remembers. A
    /// daemon calls this once it has read its state, before the first grant.
    ///
    /// # Panics
    /// Panics if a source was started, because its IDs may be of a time that is forgotten here.
    pub fn begin(&mut self, remembered: Remembered, reading: Reading) {
        let has_started = self.sources.iter().any(|managed| managed.source().cursor().is_some());
        assert!(!has_started, "the clock of a source that has started must not be forgotten");
        self.wall.begin(reading, remembered);
        self.watch = StepWatch::new(&self.wall, reading);
        let carried_us = self.wall.carried_us();
        self.writers.iter_mut().for_each(|writer| writer.wall_minus_boot_us = carried_us);
    }

    /// Adds a source that has no grant yet. It gets the next index.
    pub fn add(&mut self, awaited: ManagedSource) {
        self.writers.iter_mut().for_each(|writer| writer.durable.push(awaited.first(writer.reach)));
        self.sources.push(awaited);
    }

    /// Puts a source in the place of the one that had this index and no grant yet. The first
    /// ceiling of the new source is granted already, and durable at each writer.
    ///
    /// # Panics
    /// Panics if the source in this place has started. Then a write for it may be in flight, and
    /// its outcome would count for the new source.
    pub fn put(&mut self, index: usize, managed: ManagedSource) {
        let place = &mut self.sources[index];
        assert!(!place.has_started(), "a source that has started keeps its place");
        self.writers.iter_mut().for_each(|writer| writer.durable[index] = managed.first(writer.reach));
        *place = managed;
    }

    /// Returns a reading as the daemon believes it.
    pub fn believe(&self, reading: Reading) -> Now {
        self.wall.believe(reading)
    }

    /// Returns the sources, by index.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.iter().map(ManagedSource::source)
    }

    /// Takes all grants away for good, because another process may have the worker IDs or the
    /// state. The keeper hands out no further writes.
    pub fn lose(&mut self, taken_over: TakenOver) {
        self.sources.iter().for_each(|managed| managed.source().grant().lose());
        self.lost.get_or_insert(taken_over);
    }

    /// Returns the fleet's ceilings by source. Empty without a fleet.
    pub fn fleet_ceilings(&self) -> Vec<Position> {
        let fleets = self.writers.iter().filter(|writer| writer.reach != Reach::Local);
        fleets.flat_map(|writer| &writer.durable).map(|durable| durable.ceiling).collect()
    }

    /// Returns why nothing is handed out any more.
    pub fn lost(&self) -> Option<&TakenOver> {
        self.lost.as_ref()
    }

    /// Takes all grants away if the clocks have jumped: a snapshot may have been restored. IDs claimed
    /// ahead are dropped, and nothing is claimed until ceilings written from now on are durable.
    pub fn revoke_after_a_jump(&self, reading: Reading) {
        if self.wall.has_jumped(reading) {
            self.sources.iter().for_each(|managed| managed.source().grant().revoke());
        }
    }

    /// Judges a reading of the clocks, and looks after the sources. The caller must poll again
    /// after [`next_in`](Polled::next_in), and as soon as a claim meets its ceiling or a write
    /// ends.
    pub fn poll(&mut self, reading: Reading) -> Polled {
        self.revoke_after_a_jump(reading);
        let clock = self.watch.observe(&self.wall, reading);
        self.wall.record_seen(reading);
        let now = self.wall.believe(reading);
        self.sources.iter_mut().for_each(|managed| managed.poll(now));
        let writes = (0..self.writers.len()).filter_map(|writer| self.next_write(writer, now)).collect();
        let (ranges, next_range_in) = self.wanted_ranges(now);

        let is_revoked = self.writers.iter().any(|writer| {
            let mut durable = self.sources.iter().zip(&writer.durable);
            durable.any(|(managed, durable)| managed.is_revoked(*durable))
        });
        let is_renewed = std::mem::replace(&mut self.was_revoked, is_revoked) && !is_revoked;
        // A writer with a write in flight needs no timer, because the outcome wakes the keeper.
        let idle = self.writers.iter().filter(|writer| writer.in_flight.is_none() && self.lost.is_none());
        let due = idle.filter_map(|writer| writer.due);
        let (local, fleet): (Vec<&Writer>, Vec<&Writer>) =
            self.writers.iter().partition(|writer| writer.reach == Reach::Local);
        let in_flight = local.iter().filter_map(|writer| writer.in_flight.as_ref());
        Polled {
            clock,
            failure: local.iter().find_map(|writer| writer.failure.clone()),
            fleet_failure: fleet.iter().find_map(|writer| writer.failure.clone()),
            fleet_ceilings: self.fleet_ceilings(),
            taken_over: self.lost.clone(),
            is_renewed,
            some_wait: self.sources.iter().any(|managed| managed.source().wait_queue().admitted_ids() > 0),
            is_in_use: self.sources.iter().any(|managed| managed.is_in_use(now)),
            writes,
            in_flight_since: in_flight.map(|(_, began)| *began).min(),
            horizon: self.sources.iter().map(ManagedSource::horizon).min().unwrap_or(Duration::MAX),
            next_in: due.map(|due| due.since(now.boot)).min().unwrap_or(PERIOD).min(next_range_in),
            ranges,
            ranges_last: self.ranges_last(),
        }
    }

    /// Returns a writer's next write, if one is due and none is in flight.
    fn next_write(&mut self, index: usize, now: Now) -> Option<Write> {
        let writer = &self.writers[index];
        if self.lost.is_some() || writer.in_flight.is_some() {
            return None;
        }
        let mut ceilings = Vec::new();
        for (source, ceiling) in self.next_ceilings(index, now)? {
            let generation = self.sources[source].source().grant().generation();
            ceilings.push((source, Durable { ceiling, generation }));
        }
        let restored = self.restored();
        let wall_minus_boot_us = self.wall.carried_us();
        let id_minus_boot_us = id_minus_boot_us(&self.sources, wall_minus_boot_us, now);
        let writer = &mut self.writers[index];
        writer.writes += 1;
        let number = writer.writes;
        let write = Write { writer: index, number, ceilings, restored, wall_minus_boot_us, id_minus_boot_us };
        writer.in_flight = Some((write.clone(), now.boot));
        Some(write)
    }

    /// Returns the fleet's ceilings to write now. All of them rise together, when one source has
    /// used up half of its horizon or its grant was taken away. After a failure, no ceilings are
    /// written before the next write is due.
    fn next_fleet_ceilings(
        &mut self,
        index: usize,
        now: Now,
        horizon: Duration,
    ) -> Option<Vec<(usize, Position)>> {
        let writer = &mut self.writers[index];
        if writer.due.is_some_and(|due| now.boot < due) {
            return None;
        }
        let mut sources = self.sources.iter().zip(&writer.durable);
        if !sources.any(|(managed, durable)| managed.needs_fleet(now, *durable, horizon)) {
            (writer.due, writer.failure) = (None, None);
            return None;
        }
        let mut ceilings = Vec::new();
        for (source, managed) in self.sources.iter().enumerate() {
            let durable = writer.durable[source];
            if managed.is_open() && !durable.is_exempt() {
                ceilings.push((source, managed.fleet_ceiling(now, horizon).max(durable.ceiling)));
            }
        }
        writer.due = Some(now.boot.after(PERIOD));
        Some(ceilings)
    }

    /// Returns the ceilings that a writer must raise now. The ceilings of all sources in use rise
    /// together, when a raise is due or when one source needs a raise.
    fn next_ceilings(&mut self, index: usize, now: Now) -> Option<Vec<(usize, Position)>> {
        if let Reach::Fleet(horizon) = self.writers[index].reach {
            return self.next_fleet_ceilings(index, now, horizon);
        }
        let writer = &mut self.writers[index];
        let mut sources = self.sources.iter().zip(&writer.durable);
        // After a failure, nothing is written before the pause is over, even if a source needs a
        // raise.
        let is_needed = writer.failure.is_none() && sources.any(|(managed, durable)| managed.needs(*durable));
        if !is_needed && writer.due.is_some_and(|due| now.boot < due) {
            return None;
        }
        let uptime = now.boot.since(self.started);
        let mut ceilings = Vec::new();
        for (source, managed) in self.sources.iter().enumerate() {
            if let Some(ceiling) = managed.next_ceiling(now, uptime, writer.durable[source]) {
                ceilings.push((source, ceiling));
            }
        }
        let drift_us = self.wall.carried_us().abs_diff(writer.wall_minus_boot_us);
        if ceilings.is_empty() && drift_us > BELIEF_DRIFT.as_micros() as u64 {
            // No source needs a raise. The same ceilings are written again, so that the next start
            // knows the believed wall − boot.
            let durable = writer.durable.iter().map(|durable| durable.ceiling).enumerate();
            ceilings = durable.filter(|(source, _)| self.sources[*source].is_open()).collect();
        }
        writer.due = Some(now.boot.after(PERIOD));
        if ceilings.is_empty() {
            writer.due = Some(now.boot.after(shortest_period(&self.sources, writer, now)));
            // No source needs a raise. An old failure must not delay the write for the next
            // request.
            writer.failure = None;
            return None;
        }
        Some(ceilings)
    }

    /// Returns the sources whose grant is lost for good because the machine was restored. Empty once
    /// another process may have the worker IDs or the state, because nothing is written then.
    pub fn restored(&self) -> Vec<usize> {
        let is_restored =
            |&index: &usize| self.lost.is_none() && self.sources[index].source().grant().is_lost();
        (0..self.sources.len()).filter(is_restored).collect()
    }

    /// Takes the outcome of a write, and raises each grant to the lowest ceiling that all writers
    /// have made durable. Before a grant rises, calls `mark` with the source's index and the bound
    /// that the state now has. With a lower mark, the next start could mistake an older copy of the
    /// state for the newest. Returns `None` if no write with this number is in flight.
    pub fn written(
        &mut self,
        outcome: Outcome,
        now: Now,
        mut mark: impl FnMut(usize, u64),
    ) -> Option<Written> {
        let writer = self.writers.get_mut(outcome.writer)?;
        let (write, began) = writer.in_flight.take_if(|(write, _)| write.number == outcome.number)?;
        let is_durable = outcome.failure.is_none();
        let written = Written { reach: writer.reach, began, is_durable };
        writer.failure = outcome.failure;
        if !is_durable {
            return Some(written);
        }
        writer.wall_minus_boot_us = write.wall_minus_boot_us;
        for (index, durable) in write.ceilings {
            let before = writer.durable[index];
            assert!(durable.ceiling >= before.ceiling, "a stored ceiling sinks only at a stop");
            assert!(durable.generation >= before.generation, "writes end in their order");
            writer.durable[index] = durable;
        }
        writer.due = None;
        if writer.reach == Reach::Local {
            writer.due = Some(began.after(shortest_period(&self.sources, writer, now)));
        }
        for index in 0..self.sources.len() {
            self.raise(index, &mut mark);
        }
        Some(written)
    }

    /// Raises a source's grant to the lowest ceiling that its writers have made durable, if all
    /// these ceilings still count.
    fn raise(&self, index: usize, mark: &mut impl FnMut(usize, u64)) {
        let source = self.sources[index].source();
        if source.kind().takes_ranges() {
            // Ranges raise the grant of a shared counter. Other daemons may have the numbers
            // between two ranges.
            return;
        }
        let durable = self.writers.iter().map(|writer| writer.durable[index]);
        let Some(lowest) = durable.clone().map(|durable| durable.ceiling).min() else { return };
        let Some(oldest) = durable.map(|durable| durable.generation).min() else { return };
        // The stop lowers a sealed source's ceiling to its cursor, so nothing higher may be marked.
        let is_sealed = source.cursor().is_none();
        if lowest > source.grant().ceiling() && !is_sealed && self.lost.is_none() {
            let stored = self.stored(index).unwrap_or(lowest);
            assert!(lowest <= stored, "no grant rises above what the state has");
            mark(index, self.id_bound(index, stored));
            source.grant().raise_if(oldest, lowest);
        }
    }

    /// Returns the durable ceiling in the state directory. The fleet's ceiling is lower than this
    /// one if the source starts far ahead.
    fn stored(&self, index: usize) -> Option<Position> {
        let local = self.writers.iter().filter(|writer| writer.reach == Reach::Local);
        local.map(|writer| writer.durable[index].ceiling).min()
    }

    /// Ends all claims. Returns the bound that the stop should store for each source. The caller
    /// may trim the ceilings to these bounds unless the daemon has lost its locks.
    pub fn seal(&mut self) -> Vec<Left> {
        self.seal_these(0..self.sources.len())
    }

    /// Ends the claims of these sources, as [`seal`](Keeper::seal) does. From then on, nothing is
    /// written for them.
    pub fn seal_these(&mut self, indices: impl IntoIterator<Item = usize>) -> Vec<Left> {
        let sealed = indices.into_iter().filter_map(|index| self.sources.get(index)?.seal(index));
        let left: Vec<Left> = sealed.collect();
        for &Left { source: index, id_bound, .. } in &left {
            let source = self.sources[index].source();
            let end = source.numbering().position_from(id_bound);
            // The numbers of a shared counter lie below the ends of its ranges, not below a ceiling.
            let is_below =
                source.kind().takes_ranges() || self.stored(index).is_none_or(|stored| end <= stored);
            assert!(is_below, "nothing is claimed above a ceiling that is durable");
        }
        left
    }

    /// Returns the believed wall − boot, in microseconds.
    pub fn wall_minus_boot_us(&self) -> i64 {
        self.wall.carried_us()
    }

    /// Returns the lowest ID of a source at or above a position.
    pub fn id_bound(&self, index: usize, position: Position) -> u64 {
        self.sources[index].source().numbering().id_bound(position)
    }
}

/// Returns the shortest pause that any source allows between two raises of a local writer.
fn shortest_period(sources: &[ManagedSource], writer: &Writer, now: Now) -> Duration {
    let periods = sources.iter().zip(&writer.durable).map(|(managed, durable)| managed.period(now, *durable));
    periods.min().unwrap_or(PERIOD)
}

#[cfg(test)]
mod tests;
