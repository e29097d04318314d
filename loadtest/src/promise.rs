//! The guarantees that a target's INFO gives for its IDs, and the position of each ID.

use snowbank_id::layout::{Layout, LayoutError, Position, Role, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::{Numbering, TicketCounter};
use snowbank_wire::Info;
use snowbank_wire::info::{Order, Source, SourceKind};
use snowbank_wire::one_line;

use crate::failure::Failure;

/// How far an ID's tick may be behind the daemon's clock, if INFO does not say.
const DEFAULT_BURST_WINDOW_US: i64 = 10_000;

/// How far an ID's tick may be ahead of the daemon's clock, if INFO does not say.
const DEFAULT_MAX_AHEAD_US: i64 = 10_000_000;

/// The name that this module gives every counter, so that two counters can be equal although their
/// sources have different names.
const COUNTER: &str = "";

/// The guarantees of one source.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    pub(crate) source_name: String,
    /// The most IDs that a request may ask for.
    pub(crate) max_count: u32,
    /// True for strict order: a request that is sent after a reply was received on any connection
    /// gets larger IDs than that reply.
    pub(crate) strict: bool,
    /// The highest rate of the source, in IDs per second.
    pub(crate) per_second: Option<u64>,
    /// The form of the IDs. If it is `None`, the form is unknown, and each ID is its own position.
    numbering: Option<Numbering>,
    /// The fleet whose daemons share the source's counter.
    fleet: Option<String>,
    /// The mask of the sequence field, if that field is the lowest and all values of its bits are
    /// valid.
    row_mask: Option<u64>,
    burst_window_us: i64,
    max_ahead_us: i64,
}

/// Consecutive positions, `start` included and `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// Appends this span to `spans`, joined with the last span if the two touch. Replies that are
    /// read one after the other often continue each other, so this leaves fewer spans to sort.
    pub(crate) fn append_to(self, spans: &mut Vec<Self>) {
        match spans.last_mut() {
            Some(last) if last.end == self.start => last.end = self.end,
            _ => spans.push(self),
        }
    }
}

impl Promise {
    /// Reads the guarantees of the named source; without a name, of the first.
    ///
    /// # Errors
    /// [`Failure`] if there is no such source, or its description is impossible.
    pub(crate) fn from_info(info: &Info, source: Option<&str>) -> Result<Self, Failure> {
        let found = source_of(info, source).ok_or_else(|| {
            let wanted = source.unwrap_or_default();
            let present: Vec<&str> = info.sources.iter().map(|source| source.name.as_str()).collect();
            let present = present.join(", ");
            Failure::usage(format_args!("the target has no source {wanted:?}; it has {present}"))
        })?;
        let numbering = numbering_of(found).map_err(|reason| {
            let name = &found.name;
            Failure::from_target(format_args!(
                "the target's INFO describes source {name:?} wrongly: {reason}"
            ))
        })?;
        Ok(Self {
            source_name: one_line(&found.name),
            max_count: info.max_count,
            strict: info.order == Some(Order::Strict),
            per_second: found.per_second,
            row_mask: numbering.as_ref().and_then(row_mask),
            numbering,
            fleet: found.fleet.clone(),
            burst_window_us: info.burst_window_ms.map_or(DEFAULT_BURST_WINDOW_US, to_us),
            max_ahead_us: info.max_ahead_ms.map_or(DEFAULT_MAX_AHEAD_US, to_us),
        })
    }

    /// Returns the guarantees of IDs of unknown form.
    pub(crate) fn unknown(source: Option<&str>) -> Self {
        let source_name = one_line(source.unwrap_or("the server's default"));
        Self { source_name, max_count: u32::MAX, ..Self::default() }
    }

    /// Returns the guarantees of another server's counter, which hands out every number once, from
    /// 1.
    pub(crate) fn from_counter() -> Self {
        let counter = TicketCounter::new(COUNTER, 1, 1).ok();
        Self { numbering: counter.map(Numbering::Ticket), ..Self::unknown(Some("a counter")) }
    }

    /// Checks that two sources cannot hand out the same ID.
    ///
    /// # Errors
    /// [`Failure`] if both may hand out the same ID. The reason continues a sentence that begins
    /// with the names of both.
    pub(crate) fn check_apart(&self, other: &Self) -> Result<(), Failure> {
        // Daemons of a fleet take disjoint ranges of one counter.
        if self.shares_counter_with(other) {
            return Ok(());
        }
        let both = self.numbering.as_ref().zip(other.numbering.as_ref());
        let Some((one, other)) = both.filter(|(one, other)| one.is_of_space(other)) else {
            // IDs of different ID spaces may be equal at any time.
            return Err(Failure::usage(
                "have no common layout, so their IDs may be equal; give addresses of daemons with one layout",
            ));
        };
        if one.shares_ids_with(other) {
            return Err(Failure::from_target(
                "hand out the same IDs; give each daemon its own worker IDs or, for tickets, \
                 its own offset with the same increment",
            ));
        }
        Ok(())
    }

    /// Returns true if both sources take their numbers from one counter of a fleet. Then no number
    /// may come from both.
    pub(crate) fn shares_counter_with(&self, other: &Self) -> bool {
        self.fleet.is_some()
            && (&self.fleet, &self.source_name) == (&other.fleet, &other.source_name)
            && self.increment().is_some()
            && self.numbering == other.numbering
    }

    pub(crate) fn increment(&self) -> Option<u64> {
        Some(self.numbering.as_ref()?.ticket()?.increment())
    }

    /// Returns the layout and the worker IDs, if the IDs have a layout.
    pub(crate) fn layout(&self) -> Option<(&Layout, &WorkerSet)> {
        self.numbering.as_ref()?.snowflake()
    }

    /// Returns the numbering, if the IDs have a time.
    fn timed(&self) -> Option<&Numbering> {
        self.numbering.as_ref().filter(|numbering| numbering.ticket().is_none())
    }

    /// Returns true if `id` directly follows `last` in the same tick and worker, so that only the
    /// sequence differs, by 1. Then the positions also differ by 1.
    #[inline]
    pub(crate) fn is_next(&self, last: u64, id: u64) -> bool {
        self.row_mask.is_some_and(|mask| id.wrapping_sub(1) == last && id & mask != 0)
    }

    /// Appends the positions of a run, which has at least one ID, to `spans`. Returns the span from
    /// the first to the last of these positions.
    ///
    /// # Errors
    /// The first ID that has no position, because the source cannot hand it out.
    pub(crate) fn positions(&self, run: Run, spans: &mut Vec<Span>) -> Result<Span, u64> {
        let start = self.position_of(run.first)?;
        let mut end = start.saturating_add(run.count.into());
        // The stride of a single ID does not count, because other protocols send no stride.
        if run.count == 1 || self.is_consecutive(start, run) {
            Span { start, end }.append_to(spans);
            return Ok(Span { start, end });
        }
        for id in run.ids() {
            let start = self.position_of(id)?;
            end = start.saturating_add(1);
            Span { start, end }.append_to(spans);
        }
        Ok(Span { start, end })
    }

    /// Returns true if the IDs of a run that begins at a position have consecutive positions.
    fn is_consecutive(&self, start: u64, run: Run) -> bool {
        let Some(numbering) = &self.numbering else { return run.stride == 1 };
        let regular = numbering.run_at(Position(start), run.count.into());
        regular.count == run.count && regular.stride == run.stride
    }

    /// Returns the position of an ID, or the ID itself as an error if the ID has no position.
    fn position_of(&self, id: u64) -> Result<u64, u64> {
        let Some(numbering) = &self.numbering else { return Ok(id) };
        let position = numbering.position_of(id).filter(|position| *position < numbering.end());
        position.map(|position| position.0).ok_or(id)
    }

    /// Returns the earliest allowed start of the tick of an ID requested at `sent_us`. `None` if
    /// IDs have no time.
    pub(crate) fn earliest_us(&self, sent_us: i64, offset_us: i64) -> Option<i64> {
        let tick_us = i64::try_from(self.timed()?.tick_ms()).ok()?.saturating_mul(1_000);
        Some(sent_us.saturating_sub(self.burst_window_us).saturating_sub(tick_us).saturating_sub(offset_us))
    }

    /// Returns the earliest and the latest instant allowed for the IDs of a reply.
    pub(crate) fn bounds_us(&self, sent_us: i64, received_us: i64, offset_us: i64) -> (i64, i64) {
        let latest_us = received_us.saturating_add(self.max_ahead_us).saturating_add(offset_us);
        (self.earliest_us(sent_us, offset_us).unwrap_or(i64::MIN), latest_us)
    }

    /// Returns the start of an ID's tick in Unix microseconds. `None` if IDs have no time, or the
    /// ID is of another source.
    pub(crate) fn instant_us(&self, id: u64) -> Option<i64> {
        self.date_us(self.position_of(id).ok()?)
    }

    /// Returns the start of a position's tick in Unix microseconds. `None` if IDs have no time.
    pub(crate) fn date_us(&self, position: u64) -> Option<i64> {
        let numbering = self.timed()?;
        Some(numbering.start_of(numbering.tick_of(Position(position))).0)
    }

    /// Returns the first position of the tick at an instant. `None` if positions have no time.
    pub(crate) fn first_position_at(&self, instant_us: i64) -> Option<u64> {
        let numbering = self.timed()?;
        Some(numbering.first_of(numbering.tick_at(UnixMicros(instant_us))).0)
    }

    /// Returns the ID at a position, with 0 in random fields.
    pub(crate) fn id_at(&self, position: u64) -> u64 {
        self.numbering.as_ref().map_or(position, |numbering| numbering.id_at(Position(position)))
    }

    /// Returns the worker ID in an ID, if the source does not hold this worker ID.
    pub(crate) fn foreign_worker(&self, id: u64) -> Option<u64> {
        let (layout, workers) = self.layout()?;
        let worker = layout.decode(id).ok()?.worker;
        (!workers.contains(worker)).then_some(worker)
    }

    /// Returns an ID with its fields, for a person.
    pub(crate) fn describe(&self, id: u64) -> String {
        let Some((layout, _)) = self.layout() else { return id.to_string() };
        match layout.decode(id) {
            Ok(decoded) => {
                let fields = decoded.fields.iter().skip(1).map(|(name, value)| format!(" {name}={value}"));
                format!("{id} ({}{})", layout.rfc3339(decoded.instant), fields.collect::<String>())
            }
            Err(error) => format!("{id} ({error})"),
        }
    }
}

/// Returns the named source; without a name, the first.
pub(crate) fn source_of<'i>(info: &'i Info, name: Option<&str>) -> Option<&'i Source> {
    match name {
        Some(name) => info.source(name),
        None => info.sources.first(),
    }
}

/// Returns the numbering of a source; `None` if INFO does not describe it.
fn numbering_of(source: &Source) -> Result<Option<Numbering>, LayoutError> {
    if source.kind == Some(SourceKind::Ticket) {
        let Some((increment, offset)) = source.increment.zip(source.offset) else { return Ok(None) };
        let counter = TicketCounter::new(COUNTER, increment, offset);
        return counter.map(|counter| Some(counter.into()));
    }
    let (Some(layout), Some(workers)) = (&source.layout, &source.worker_ids) else { return Ok(None) };
    let numbering = Layout::resolve(layout)
        .and_then(|layout| Numbering::new(layout, WorkerSet::from_list(workers.iter().copied())?));
    numbering.map(Some)
}

/// Converts milliseconds to microseconds. A value that is too large becomes one that can be added
/// to others without an overflow.
fn to_us(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 4)
}

fn row_mask(numbering: &Numbering) -> Option<u64> {
    let lowest = numbering.snowflake()?.0.fields().last()?;
    let is_row = lowest.role() == Role::Sequence && lowest.values().is_power_of_two();
    is_row.then(|| lowest.values() - 1)
}

#[cfg(test)]
mod tests;
