//! The numbering of a source: the ID at each position.
//!
//! In a *snowflake* source, the ID at a position follows from a layout and worker IDs, tick by
//! tick. In a *ticket* source, the ID follows from a counter: offset + increment × position. A
//! counter has no time. All its positions lie in one tick that never ends. So the rules of the
//! clock never delay a claim of a ticket source, and only the ceiling limits such a claim.

mod ticket_counter;

use crate::layout::{Layout, LayoutError, LayoutNumbering, Position, Run, Tick, UnixMicros, WorkerSet};

pub use self::ticket_counter::{LAST_ID, TicketCounter};

/// Converts positions to IDs and back, for a source of either kind. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// By a layout and worker IDs.
    Snowflake(LayoutNumbering),
    /// By a counter.
    Ticket(TicketCounter),
}

impl From<LayoutNumbering> for Numbering {
    fn from(numbering: LayoutNumbering) -> Self {
        Numbering::Snowflake(numbering)
    }
}

impl From<TicketCounter> for Numbering {
    fn from(counter: TicketCounter) -> Self {
        Numbering::Ticket(counter)
    }
}

impl Numbering {
    /// Creates the numbering of a snowflake source from its layout and worker IDs.
    ///
    /// # Errors
    /// Returns an error if the layout does not have one of the worker IDs.
    pub fn new(layout: Layout, workers: WorkerSet) -> Result<Numbering, LayoutError> {
        LayoutNumbering::new(layout, workers).map(Numbering::Snowflake)
    }

    /// Returns the layout and the worker IDs of a snowflake source.
    pub fn snowflake(&self) -> Option<(&Layout, &WorkerSet)> {
        match self {
            Numbering::Snowflake(numbering) => Some((numbering.layout(), numbering.workers())),
            Numbering::Ticket(_) => None,
        }
    }

    /// Returns the counter of a ticket source.
    pub fn ticket(&self) -> Option<&TicketCounter> {
        match self {
            Numbering::Snowflake(_) => None,
            Numbering::Ticket(counter) => Some(counter),
        }
    }

    /// Returns the numbering without a counter's maximum, which is no part of a counter's identity.
    pub fn without_maximum(&self) -> Numbering {
        match self {
            Numbering::Snowflake(_) => self.clone(),
            Numbering::Ticket(counter) => Numbering::Ticket(counter.without_maximum()),
        }
    }

    /// Returns true if both numberings are of snowflake sources, or both of ticket sources.
    pub fn is_of_kind(&self, other: &Numbering) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Returns the length of one tick in ms. For a counter, returns 0, because its requests wait
    /// for no tick.
    pub fn tick_ms(&self) -> u64 {
        self.snowflake().map_or(0, |(layout, _)| layout.tick_ms())
    }

    /// Returns the number of IDs in one tick. All IDs of a counter are in one tick.
    pub fn ids_per_tick(&self) -> u64 {
        match self {
            Numbering::Snowflake(numbering) => numbering.ids_per_tick(),
            Numbering::Ticket(counter) => counter.end().0,
        }
    }

    /// Returns the tick of a position.
    #[inline]
    pub fn tick_of(&self, position: Position) -> Tick {
        match self {
            Numbering::Snowflake(numbering) => numbering.tick_of(position),
            Numbering::Ticket(_) => Tick(0),
        }
    }

    /// Returns the tick of an instant.
    #[inline]
    pub fn tick_at(&self, now: UnixMicros) -> Tick {
        match self {
            Numbering::Snowflake(numbering) => numbering.tick_at(now),
            Numbering::Ticket(_) => Tick(0),
        }
    }

    /// Returns the first position of a tick, or [`end`](Numbering::end) for a tick after the last.
    #[inline]
    pub fn first_of(&self, tick: Tick) -> Position {
        match self {
            Numbering::Snowflake(numbering) => numbering.first_of(tick),
            Numbering::Ticket(_) if tick == Tick(0) => Position(0),
            Numbering::Ticket(counter) => counter.end(),
        }
    }

    /// Returns the start of a tick. The only tick of a counter starts at the lowest instant. For
    /// any other tick of a counter, returns the highest instant, because such a tick never starts.
    pub fn start_of(&self, tick: Tick) -> UnixMicros {
        match self {
            Numbering::Snowflake(numbering) => numbering.start_of(tick),
            Numbering::Ticket(_) if tick == Tick(0) => UnixMicros(i64::MIN),
            Numbering::Ticket(_) => UnixMicros(i64::MAX),
        }
    }

    /// Returns the first position without an ID.
    #[inline]
    pub fn end(&self) -> Position {
        match self {
            Numbering::Snowflake(numbering) => numbering.end(),
            Numbering::Ticket(counter) => counter.end(),
        }
    }

    /// Returns a run from `from` on, which is one arithmetic progression. The run has at most `max`
    /// IDs, but at least one.
    #[inline]
    pub fn run_at(&self, from: Position, max: u64) -> Run {
        match self {
            Numbering::Snowflake(numbering) => numbering.run_at(from, max),
            Numbering::Ticket(counter) => counter.run_at(from, max),
        }
    }

    /// Returns the position of an ID, whatever its random fields hold, or `None` for an ID of
    /// another source.
    pub fn position_of(&self, id: u64) -> Option<Position> {
        match self {
            Numbering::Snowflake(numbering) => numbering.position_of(id),
            Numbering::Ticket(counter) => {
                let at = counter.position_from(id);
                (counter.run_at(at, 1).first == id).then_some(at)
            }
        }
    }

    /// Returns the ID of a position. For a position at or above [`end`](Numbering::end), returns a
    /// number above [`LAST_ID`].
    #[inline]
    pub fn id_at(&self, position: Position) -> u64 {
        self.run_at(position, 1).first
    }

    /// Returns the size and weight of each random field.
    pub fn random_parts(&self) -> &[(u64, u64)] {
        match self {
            Numbering::Snowflake(numbering) => numbering.random_parts(),
            Numbering::Ticket(_) => &[],
        }
    }

    /// Returns true if replies must list each ID, because runs on the wire cannot express the IDs.
    pub fn needs_list(&self) -> bool {
        match self {
            Numbering::Snowflake(numbering) => numbering.needs_list(),
            Numbering::Ticket(counter) => counter.increment() > u64::from(u32::MAX),
        }
    }

    /// Returns the lowest ID that `position` and the positions above it can have. All IDs of lower
    /// positions are below this bound, whatever their random fields hold. For the end, returns a
    /// number above the last ID.
    pub fn id_bound(&self, position: Position) -> u64 {
        match self {
            _ if position < self.end() => self.run_at(position, 1).first,
            Numbering::Snowflake(numbering) => numbering.layout().last_id() + 1,
            Numbering::Ticket(counter) => counter.maximum() + 1,
        }
    }

    /// Returns the first position whose ID is at least `bound`, or the end if there is no such
    /// position.
    pub fn position_from(&self, bound: u64) -> Position {
        let numbering = match self {
            Numbering::Ticket(counter) => return counter.position_from(bound),
            Numbering::Snowflake(numbering) => numbering,
        };
        // IDs strictly increase with positions.
        let mut low = 0;
        let mut high = numbering.end().0;
        while low < high {
            let middle = low + (high - low) / 2;
            if numbering.id_at(Position(middle)) < bound {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Position(low)
    }

    /// Returns the numbers of the worker IDs in their ID space. A ticket counter has the number 0
    /// in a space of its own.
    pub fn numbers_in_space(&self) -> Vec<u64> {
        self.snowflake().map_or_else(|| vec![0], |(layout, workers)| layout.numbers_in_space(workers))
    }

    /// Returns the [claims](crate::layout::Space::claim) of the worker IDs. A ticket counter has
    /// none.
    pub fn claims(&self) -> Vec<u64> {
        let Some((layout, workers)) = self.snowflake() else { return Vec::new() };
        let space = layout.space();
        layout.numbers_in_space(workers).into_iter().map(|number| space.claim(number)).collect()
    }

    /// Returns true if both numberings have the same ID space, so that the IDs of one can continue
    /// the IDs of the other.
    pub fn is_of_space(&self, other: &Numbering) -> bool {
        match (self, other) {
            (Numbering::Snowflake(one), Numbering::Snowflake(other)) => {
                one.layout().space() == other.layout().space()
            }
            (Numbering::Ticket(one), Numbering::Ticket(other)) => one.name() == other.name(),
            _ => false,
        }
    }

    /// Returns true if both numberings can hand out the same ID at about the same time. So the
    /// result is false for layouts whose epochs are years apart. The result is also false for a
    /// counter and a layout. An application numbers the rows of a table with one of them, never
    /// with both.
    pub fn shares_ids_with(&self, other: &Numbering) -> bool {
        match (self, other) {
            (Numbering::Snowflake(one), Numbering::Snowflake(other)) => {
                let found = one.layout().concurrent_collision(one.workers(), other.layout(), other.workers());
                found.is_some()
            }
            (Numbering::Ticket(one), Numbering::Ticket(other)) => one.shares_ids_with(other),
            _ => false,
        }
    }

    /// Returns true if some worker IDs of both layouts can make the same ID at about the same time.
    pub fn runs_beside(&self, other: &Numbering) -> bool {
        let spaces = self.snowflake().zip(other.snowflake());
        spaces.is_some_and(|((one, _), (other, _))| one.space().runs_beside(&other.space()))
    }

    /// Returns true if an ID bound recorded for the other numbering is valid for this one. Two
    /// snowflake sources must have the same ID space, and the other one must have all worker IDs of
    /// this one. Two ticket counters only need the same name, because a bound holds for every
    /// increment and offset.
    pub fn is_part_of(&self, other: &Numbering) -> bool {
        match (self, other) {
            (Numbering::Snowflake(one), Numbering::Snowflake(other)) => {
                let numbers = other.layout().numbers_in_space(other.workers());
                let mut own = self.numbers_in_space().into_iter();
                // Numbers ascend with worker IDs.
                one.layout().space() == other.layout().space()
                    && own.all(|number| numbers.binary_search(&number).is_ok())
            }
            (Numbering::Ticket(one), Numbering::Ticket(other)) => one.name() == other.name(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counter(increment: u64, offset: u64) -> Numbering {
        Numbering::Ticket(TicketCounter::new("orders", increment, offset).unwrap())
    }

    #[test]
    fn a_pair_of_counters_gives_odd_and_even_numbers() {
        let first_ids = |numbering: &Numbering| [0, 1, 2].map(|at| numbering.id_at(Position(at)));
        assert_eq!(first_ids(&counter(2, 1)), [1, 3, 5]);
        assert_eq!(first_ids(&counter(2, 2)), [2, 4, 6]);
        assert_eq!(counter(2, 2).run_at(Position(4), 1_000), Run { first: 10, count: 1_000, stride: 2 });
    }

    #[test]
    fn numbers_end_at_the_last_id_and_never_wrap() {
        for (increment, offset, last) in [
            (1, 1, LAST_ID),
            (2, 1, LAST_ID),
            (2, 2, LAST_ID - 1),
            (LAST_ID, 5, 5),
            (LAST_ID, LAST_ID, LAST_ID),
        ] {
            let numbering = counter(increment, offset);
            let end = numbering.end();
            assert_eq!(numbering.id_at(Position(end.0 - 1)), last, "{increment}, {offset}");
            assert_eq!(numbering.run_at(Position(end.0 - 1), 7).count, 1);
            assert!(numbering.id_at(end) > LAST_ID);
            assert_eq!(numbering.id_bound(end), 1 << 63);
            assert_eq!(numbering.position_from(u64::MAX), end);
        }
    }

    #[test]
    fn refusals_of_counters_say_what_is_allowed() {
        let refused =
            |increment, offset| TicketCounter::new("orders", increment, offset).unwrap_err().to_string();
        assert_eq!(refused(0, 1), format!("found increment 0, allowed: from 1 to {LAST_ID}"));
        assert_eq!(refused(2, 3), "found offset 3, allowed: from 1 to the increment, 2");
        assert_eq!(refused(2, 0), "found offset 0, allowed: from 1 to the increment, 2");
        assert!(TicketCounter::new("orders", LAST_ID + 1, 1).is_err());
    }

    #[test]
    fn counters_of_two_names_are_independent() {
        let [orders, users] = ["orders", "users"].map(|name| TicketCounter::new(name, 1, 1).unwrap());
        assert!(orders.shares_ids_with(&orders) && !orders.shares_ids_with(&users));
        let text = "ticket orders, increment 1, offset 1";
        assert_eq!((orders.to_string().as_str(), text.parse()), (text, Ok(orders)));
    }

    proptest! {
        #[test]
        fn positions_and_ids_of_a_counter_are_inverse(increment in 1_u64..1_000, offset in 1_u64..1_000, id in 0_u64..=LAST_ID) {
            let numbering = counter(increment, (offset - 1) % increment + 1);
            let position = numbering.position_from(id);
            let first = numbering.id_bound(position);
            prop_assert!(first >= id && first - id < increment.max(offset) || position == numbering.end());
            prop_assert_eq!(numbering.position_from(first), position);
            prop_assert_eq!(numbering.position_of(id).is_some(), first == id);
            if position.0 > 0 {
                prop_assert!(numbering.id_at(Position(position.0 - 1)) < id);
            }
        }

        #[test]
        fn counters_share_ids_if_a_number_belongs_to_both(
            one in (1_u64..12, 1_u64..12), other in (1_u64..12, 1_u64..12),
        ) {
            let counter = |(increment, offset): (u64, u64)| {
                TicketCounter::new("orders", increment, (offset - 1) % increment + 1).unwrap()
            };
            let one = counter(one);
            let other = counter(other);
            let has = |counter: &TicketCounter, id: u64| {
                id >= counter.offset() && (id - counter.offset()).is_multiple_of(counter.increment())
            };
            let meets = (1..300).any(|id| has(&one, id) && has(&other, id));
            prop_assert_eq!(one.shares_ids_with(&other), meets);
        }
    }
}
