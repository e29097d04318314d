//! The guarantees that a target's INFO gives for its IDs, and the position of each ID.

use snowbank_client::layout::{
    self, Layout, LayoutError, Numbering, Position, Role, Run, Tick, UnixMicros, WorkerSet,
};
use snowbank_client::protocol::Info;
use snowbank_client::protocol::info::{Order, Source, SourceKind};

use crate::units::printable;

/// The most that an ID's tick may lie behind the daemon's clock if INFO has no value.
const DEFAULT_BURST_WINDOW_US: i64 = 10_000;

/// The most that an ID's tick may lie ahead of the daemon's clock if INFO has no value.
const DEFAULT_MAX_AHEAD_US: i64 = 10_000_000;

/// The guarantees of one source.
#[derive(Debug)]
pub(crate) struct Promise {
    /// The index by which requests name the source.
    pub(crate) source: u16,
    /// The source's name.
    pub(crate) source_name: String,
    /// The most IDs that a request may ask for.
    pub(crate) max_count: u32,
    /// True if a request sent after a reply was received gets larger IDs, on any connection.
    pub(crate) strict: bool,
    /// The highest rate of the source, in IDs per second.
    pub(crate) per_second: Option<u64>,
    space: Space,
    /// The fleet whose daemons share the source's counter.
    fleet: Option<String>,
    /// The mask of the sequence, if that is the lowest field and fills whole bits.
    row_mask: Option<u64>,
    burst_window_us: i64,
    max_ahead_us: i64,
}

/// The form of the IDs, as far as it is known.
#[derive(Debug)]
enum Space {
    /// A layout and its worker IDs: an ID's position is the layout's; its random fields do not matter.
    Layout(Numbering),
    /// A counter.
    Ticket(Tickets),
    /// Nothing: an ID is its own position.
    Unknown,
}

/// The numbers of a counter: those that leave this remainder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tickets {
    /// Above 0.
    increment: u64,
    remainder: u64,
}

/// Consecutive positions, `start` included and `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// The first position.
    pub(crate) start: u64,
    /// The position after the last.
    pub(crate) end: u64,
}

/// The reason why an INFO gives no guarantee that IDs could be checked against.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPromise {
    /// No source has that name: the user's mistake.
    #[error("the target has no source {wanted:?}; it has {present}")]
    NoSource { wanted: String, present: String },
    /// The target's mistake: a layout that cannot be, or worker IDs that the layout does not have.
    #[error("the target's INFO describes source {name:?} wrongly: {reason}")]
    Layout { name: String, reason: LayoutError },
}

/// The reason why two sources may hand out the same ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotApart {
    /// Both hold this worker ID of one ID space.
    SameWorkerId(u64),
    /// Both count the same numbers.
    SameTickets,
    /// Their layouts make IDs of different spaces, which may cross at any time; or they are not known.
    OtherSpaces,
}

/// An ID that is not of the source's layout or worker IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misplaced {
    /// The ID.
    pub(crate) id: u64,
}

impl Promise {
    /// Reads the guarantees of the source of that name, or of source 0.
    ///
    /// # Errors
    /// [`NoPromise`] if there is no such source, or its description is impossible.
    pub(crate) fn from_info(info: &Info, source: Option<&str>) -> Result<Self, NoPromise> {
        let found = match source {
            Some(name) => info.source(name),
            None => info.sources.iter().find(|source| source.index == 0),
        };
        let found = found.ok_or_else(|| NoPromise::NoSource {
            wanted: source.unwrap_or("0").to_owned(),
            present: info.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let to_us = |ms: Option<u64>, default_us| {
            ms.map_or(default_us, |ms| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 4))
        };
        let space =
            Space::of(found).map_err(|reason| NoPromise::Layout { name: found.name.clone(), reason })?;
        Ok(Self {
            source: found.index,
            source_name: printable(&found.name),
            max_count: info.max_count,
            strict: info.order == Some(Order::Strict),
            per_second: found.per_second,
            row_mask: space.row_mask(),
            space,
            fleet: found.fleet.clone(),
            burst_window_us: to_us(info.burst_window_ms, DEFAULT_BURST_WINDOW_US),
            max_ahead_us: to_us(info.max_ahead_ms, DEFAULT_MAX_AHEAD_US),
        })
    }

    /// Returns the guarantees of IDs of which nothing is known.
    pub(crate) fn unknown(source: Option<&str>) -> Self {
        Self {
            source: 0,
            source_name: printable(source.unwrap_or("its own choice")),
            max_count: u32::MAX,
            strict: false,
            per_second: None,
            space: Space::Unknown,
            fleet: None,
            row_mask: None,
            burst_window_us: 0,
            max_ahead_us: 0,
        }
    }

    /// Returns the guarantees of a counter of another server: every number, each once.
    pub(crate) fn of_counter() -> Self {
        let space = Space::Ticket(Tickets { increment: 1, remainder: 0 });
        Self { space, ..Self::unknown(Some("a counter")) }
    }

    /// Checks that two sources cannot hand out the same ID.
    ///
    /// # Errors
    /// [`NotApart`] if they can.
    pub(crate) fn check_apart(&self, other: &Self) -> Result<(), NotApart> {
        // Daemons of a fleet take disjoint ranges of one counter.
        if self.shares_counter_with(other) {
            return Ok(());
        }
        if let Some((one, other)) = self.tickets().zip(other.tickets()) {
            let common = greatest_common_divisor(one.increment, other.increment);
            let is_same = one.remainder % common == other.remainder % common;
            return if is_same { Err(NotApart::SameTickets) } else { Ok(()) };
        }
        let numberings = self.numbering().zip(other.numbering());
        let (one, other) = numberings.ok_or(NotApart::OtherSpaces)?;
        if one.layout().space() != other.layout().space() {
            return Err(NotApart::OtherSpaces);
        }
        let of = |numbering| -> (&Layout, &WorkerSet) {
            let numbering: &Numbering = numbering;
            (numbering.layout(), numbering.workers())
        };
        match layout::collision(of(one), of(other)) {
            Some((worker_id, _)) => Err(NotApart::SameWorkerId(worker_id)),
            None => Ok(()),
        }
    }

    /// Returns whether both take their numbers from one counter of a fleet. Then a number may come once from the two
    /// together.
    pub(crate) fn shares_counter_with(&self, other: &Self) -> bool {
        self.fleet.is_some()
            && (&self.fleet, &self.source_name) == (&other.fleet, &other.source_name)
            && self.tickets().is_some()
            && self.tickets() == other.tickets()
    }

    /// Returns the increment of a counter.
    pub(crate) fn increment(&self) -> Option<u64> {
        Some(self.tickets()?.increment)
    }

    fn tickets(&self) -> Option<Tickets> {
        match &self.space {
            Space::Ticket(tickets) => Some(*tickets),
            Space::Layout(_) | Space::Unknown => None,
        }
    }

    /// Returns the layout in text form, if the IDs have one.
    pub(crate) fn layout(&self) -> Option<String> {
        self.numbering().map(|numbering| numbering.layout().to_string())
    }

    /// Returns the number of the source's worker IDs, if its IDs have some.
    pub(crate) fn worker_ids(&self) -> Option<usize> {
        Some(self.numbering()?.workers().len())
    }

    fn numbering(&self) -> Option<&Numbering> {
        match &self.space {
            Space::Layout(numbering) => Some(numbering),
            Space::Ticket(_) | Space::Unknown => None,
        }
    }

    /// Returns true if an ID comes after another one of the same tick and worker, with nothing between them: only their
    /// sequence differs. So its position is the next one.
    #[inline]
    pub(crate) fn is_next(&self, last: u64, id: u64) -> bool {
        self.row_mask.is_some_and(|mask| id.wrapping_sub(1) == last && id & mask != 0)
    }

    /// Gives the positions of a run of at least one ID, in order.
    ///
    /// # Errors
    /// [`Misplaced`] for the first ID that has none.
    pub(crate) fn positions(&self, run: Run, mut each: impl FnMut(Span)) -> Result<(), Misplaced> {
        match &self.space {
            Space::Layout(numbering) => place_in_layout(numbering, run, each),
            &Space::Ticket(Tickets { increment, remainder }) => {
                // A single ID's stride does not count: other protocols send none.
                let is_apart = run.count > 1 && run.stride.max(1) != increment;
                if is_apart || run.first % increment != remainder {
                    return Err(Misplaced { id: run.first });
                }
                let start = run.first / increment;
                each(Span { start, end: start.saturating_add(run.count.into()) });
                Ok(())
            }
            Space::Unknown if run.stride == 1 || run.count == 1 => {
                each(Span { start: run.first, end: run.first.saturating_add(run.count.into()) });
                Ok(())
            }
            Space::Unknown => {
                run.ids().for_each(|id| each(Span { start: id, end: id.saturating_add(1) }));
                Ok(())
            }
        }
    }

    /// Returns the earliest instant allowed for an ID requested at `sent_us`: the start of the earliest tick.
    /// `None` where IDs have no time.
    pub(crate) fn earliest_us(&self, sent_us: i64, offset_us: i64) -> Option<i64> {
        let numbering = self.numbering()?;
        let tick_us = i64::try_from(numbering.layout().tick_ms()).ok()?.saturating_mul(1_000);
        Some(sent_us.saturating_sub(self.burst_window_us).saturating_sub(tick_us).saturating_sub(offset_us))
    }

    /// Returns the latest instant that an ID received at `received_us` may be dated. `None` where IDs have no time.
    pub(crate) fn latest_us(&self, received_us: i64, offset_us: i64) -> Option<i64> {
        self.numbering()?;
        Some(received_us.saturating_add(self.max_ahead_us).saturating_add(offset_us))
    }

    /// Returns the start of an ID's tick in Unix microseconds; `None` where IDs have no time, or the ID is of another
    /// source.
    pub(crate) fn instant_us(&self, id: u64) -> Option<i64> {
        let numbering = self.numbering()?;
        let position = numbering.position_of(id)?;
        Some(numbering.start_of(numbering.tick_of(position)).0)
    }

    /// Returns the starts of the ticks of a run's first and last position, as [`instant_us`](Self::instant_us) does.
    pub(crate) fn instants_us(&self, [first, last]: [u64; 2]) -> Option<[i64; 2]> {
        let numbering = self.numbering()?;
        let tick = numbering.tick_of(Position(first));
        let first_us = numbering.start_of(tick).0;
        // Nearly all runs lie within a tick.
        let is_same = last < numbering.first_of(Tick(tick.0 + 1)).0;
        let last_us =
            if is_same { first_us } else { numbering.start_of(numbering.tick_of(Position(last))).0 };
        Some([first_us, last_us])
    }

    /// Returns the earliest and the latest instant allowed for the IDs of a reply.
    pub(crate) fn bounds_us(&self, sent_us: i64, received_us: i64, offset_us: i64) -> Option<(i64, i64)> {
        self.earliest_us(sent_us, offset_us).zip(self.latest_us(received_us, offset_us))
    }

    /// Returns the first position of the tick at an instant; `None` where positions have no time.
    pub(crate) fn first_position_at(&self, instant_us: i64) -> Option<u64> {
        let numbering = self.numbering()?;
        Some(numbering.first_of(numbering.tick_at(UnixMicros(instant_us))).0)
    }

    /// Returns the ID at a position (with 0 in its random fields).
    pub(crate) fn id_at(&self, position: u64) -> u64 {
        match &self.space {
            Space::Layout(numbering) => numbering.id_at(Position(position)),
            Space::Ticket(Tickets { increment, remainder }) => {
                position.saturating_mul(*increment).saturating_add(*remainder)
            }
            Space::Unknown => position,
        }
    }

    /// Returns the ID's worker ID if the source does not hold it.
    pub(crate) fn foreign_worker(&self, id: u64) -> Option<u64> {
        let numbering = self.numbering()?;
        let worker = numbering.layout().decode(id).ok()?.worker;
        (!numbering.workers().contains(worker)).then_some(worker)
    }

    /// Returns an ID with its fields, for a person.
    pub(crate) fn describe(&self, id: u64) -> String {
        let Some(numbering) = self.numbering() else {
            return id.to_string();
        };
        let layout = numbering.layout();
        match layout.decode(id) {
            Ok(decoded) => {
                let fields = decoded.fields.iter().skip(1).map(|(name, value)| format!(" {name}={value}"));
                format!("{id} ({}{})", layout.rfc3339(decoded.instant), fields.collect::<String>())
            }
            Err(error) => format!("{id} ({error})"),
        }
    }
}

impl Space {
    fn row_mask(&self) -> Option<u64> {
        let Self::Layout(numbering) = self else { return None };
        let lowest = numbering.layout().fields().last()?;
        let is_row = lowest.role() == Role::Sequence && lowest.values().is_power_of_two();
        is_row.then(|| lowest.values() - 1)
    }

    fn of(source: &Source) -> Result<Self, LayoutError> {
        if source.kind == Some(SourceKind::Ticket) {
            let tickets = source.increment.filter(|&increment| increment > 0).map(|increment| Tickets {
                increment,
                remainder: source.offset.unwrap_or_default() % increment,
            });
            return Ok(tickets.map_or(Self::Unknown, Self::Ticket));
        }
        let (Some(layout), Some(workers)) = (&source.layout, &source.worker_ids) else {
            return Ok(Self::Unknown);
        };
        let workers = WorkerSet::from_list(workers.iter().copied())?;
        Ok(Self::Layout(Numbering::new(Layout::resolve(layout)?, workers)?))
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// Places a run at once if its positions are consecutive, else ID by ID.
fn place_in_layout(numbering: &Numbering, run: Run, mut each: impl FnMut(Span)) -> Result<(), Misplaced> {
    let position_of = |id| numbering.position_of(id).ok_or(Misplaced { id });
    let start = position_of(run.first)?;
    let is_regular = || {
        let regular = numbering.run_at(start, run.count.into());
        regular.count == run.count && regular.stride == run.stride
    };
    if run.count == 1 || is_regular() {
        each(Span { start: start.0, end: start.0 + u64::from(run.count) });
        return Ok(());
    }
    run.ids().try_for_each(|id| {
        let position = position_of(id)?.0;
        each(Span { start: position, end: position + 1 });
        Ok(())
    })
}

#[cfg(test)]
mod tests;
