//! The demand of a shared counter for ranges from the coordinator.
//!
//! The keeper asks for the next range when five eighths of a range are left, so that requests do
//! not wait for the coordinator. It asks for one range at a time. If the grant is taken away, a
//! range that was asked for before is not used. Another copy of the machine may have it, too.

use std::sync::Arc;
use std::time::Duration;

use super::reservation::{RESERVATION_MAX, Reservation};
use super::{Keeper, PERIOD, SHORTEST_PERIOD};
use crate::clock::{BootMicros, Now};
use crate::source::{Range, Source};
use snowbank_id::layout::Position;

/// The time after which the keeper asks again for a range of a counter without numbers: another
/// daemon may have given some back.
const ENDED_PERIOD: Duration = Duration::from_secs(10);

/// Numbers that only one daemon has, from `from` up to, but not including, `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// The lowest number.
    pub from: u64,
    /// The number after the last.
    pub to: u64,
}

/// A range to ask the coordinator for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedRange {
    /// The source's index.
    pub source: usize,
    /// How many numbers the range must have.
    pub count: u64,
    /// The generation of the source's grant when the keeper asks.
    pub generation: u64,
}

/// The demand of one shared counter.
#[derive(Debug)]
pub(super) struct Ranges {
    reservation: Reservation,
    is_asked: bool,
    /// When to ask again after a failure, or after the answer that the counter has ended.
    due: Option<BootMicros>,
}

impl Ranges {
    /// Creates the demand of a counter of which this daemon has used no numbers yet. A range should
    /// last for `lasts` at the present rate.
    pub(super) fn new(cursor: Position, lasts: Duration, now: Now) -> Self {
        Ranges { reservation: Reservation::new(cursor, now).lasting(lasts), is_asked: false, due: None }
    }

    /// Sets the size of the smallest range. With 1, a range is taken for each request.
    pub(super) fn of_at_least(self, least: u64) -> Self {
        Ranges { reservation: self.reservation.of_at_least(least), ..self }
    }

    /// Updates the demand from the cursor that the keeper saw.
    pub(super) fn poll(&mut self, source: &Source, cursor: Position, now: Now) {
        self.reservation.poll(Position(cursor.0.saturating_sub(source.skipped())), now);
    }

    /// Returns how long the present numbers last. Returns how long a full range should last for a
    /// counter that has ended, which no longer needs the coordinator. Also for one that takes a
    /// range for each request: it has none between two requests, and lacks nothing.
    fn last(&self, source: &Source) -> Duration {
        if has_ended(source) || self.reservation.is_on_request() {
            return self.reservation.lasts();
        }
        self.reservation.time_for(source.in_ranges().total())
    }

    /// Returns the count of numbers to ask for, if the source needs a range.
    fn wanted(&self, source: &Source, now: Now) -> Option<u64> {
        let grant = source.grant();
        if needs_no_more(source) || self.is_asked || self.due.is_some_and(|due| now.boot < due) {
            return None;
        }
        let there = source.in_ranges();
        let size = self.reservation.size();
        let waiting = source.wait_queue().admitted_ids();
        // A request fitted into neither the present range nor the next one, and was refused. So
        // the keeper asks for a larger range, for the next such request.
        let is_met = waiting == 0 && grant.is_wanted() && there.next < RESERVATION_MAX;
        let is_low = self.reservation.is_due_with(there.total());
        let more = self.reservation.for_one_refused(there.next);
        let larger = if is_met { (there.next + more).min(RESERVATION_MAX) } else { 0 };
        // Nothing waits at a counter that has ended, but another daemon may have given numbers back.
        let is_out = source.has_last_range() && there.total() == 0;
        let asks = is_low || is_met || is_out || waiting > there.largest();
        asks.then_some(size.max(waiting).max(larger).max(1))
    }

    /// Returns the pause until the next poll.
    fn pause(&self, source: &Source, now: Now) -> Duration {
        match self.due {
            _ if self.is_asked || needs_no_more(source) => PERIOD,
            Some(due) if due > now.boot => due.since(now.boot),
            _ => {
                let there = source.in_ranges().total();
                self.reservation.half_used_in(Position(0), Position(there)).clamp(SHORTEST_PERIOD, PERIOD)
            }
        }
    }
}

/// Returns whether the keeper never asks for a range again. There are three reasons: this daemon has
/// the counter's last numbers, its grant is lost, or the source is sealed.
fn needs_no_more(source: &Source) -> bool {
    source.grant().is_lost() || source.cursor().is_none() || has_highest(source)
}

/// Returns whether this daemon or another one has the counter's last numbers.
fn has_ended(source: &Source) -> bool {
    source.has_last_range() || has_highest(source)
}

fn has_highest(source: &Source) -> bool {
    source.grant().ceiling() >= source.numbering().end()
}

impl Keeper {
    /// Returns the ranges to ask for now, and the pause until the demand must be measured again.
    pub(super) fn wanted_ranges(&mut self, now: Now) -> (Vec<WantedRange>, Duration) {
        let mut wanted = Vec::new();
        let mut pause = PERIOD;
        if self.lost.is_some() {
            return (wanted, pause);
        }
        for (index, managed) in self.sources.iter_mut().enumerate() {
            let Some((source, ranges)) = managed.ranges() else { continue };
            // The generation is read first: if the grant is taken away after that, the range does
            // not count.
            let generation = source.grant().generation();
            if let Some(count) = ranges.wanted(source, now) {
                ranges.is_asked = true;
                wanted.push(WantedRange { source: index, count, generation });
            }
            pause = pause.min(ranges.pause(source, now));
        }
        (wanted, pause)
    }

    /// Returns by source how long the numbers of a shared counter last without the coordinator.
    /// `None` for other sources.
    pub(super) fn ranges_last(&mut self) -> Vec<Option<Duration>> {
        let ranges = self.sources.iter_mut().map(|managed| managed.ranges());
        ranges.map(|ranges| ranges.map(|(source, ranges)| ranges.last(source))).collect()
    }

    /// Takes the range that the coordinator gave, or `None` if the coordinator did not answer.
    pub fn ranged(&mut self, wanted: WantedRange, range: Option<NumberRange>, now: Now) {
        let asked = self.sources.get_mut(wanted.source).and_then(|managed| managed.ranges());
        let Some((source, ranges)) = asked else { return };
        (ranges.is_asked, ranges.due) = (false, None);
        match range {
            Some(range) => {
                add_range(source, range, wanted.generation);
                ranges.due = Some(now.boot.after(ENDED_PERIOD)).filter(|_| source.has_last_range());
            }
            None => ranges.due = Some(now.boot.after(PERIOD)),
        }
    }
}

/// Adds a range that was asked for in this generation. If the range is empty, the counter has
/// ended, unless another daemon gives numbers back.
pub fn add_range(source: &Arc<Source>, range: NumberRange, generation: u64) {
    let numbering = source.numbering();
    let from = numbering.position_from(range.from);
    let to = numbering.position_from(range.to);
    if from < to {
        source.add_range(Range { from, to, generation });
    } else {
        source.end_ranges();
    }
}
