//! The counter of a ticket source.

use std::fmt;

use crate::layout::{LayoutError, Position, Run, gcd};

/// The largest ID, 2^63 − 1. Formats write IDs from 0 to this one.
pub const LAST_ID: u64 = i64::MAX as u64;

/// The counter of a ticket source.
///
/// Counters with the same name count the same things. So they can hand out the same ID unless their
/// increments and offsets keep them apart. Counters with different names are independent, like
/// different tables. The maximum is not part of a counter's identity: counters that differ only in
/// their maximum are equal.
#[derive(Clone, Debug)]
pub struct TicketCounter {
    name: String,
    /// Invariant: at least 1.
    increment: u64,
    /// Invariant: from 1 to `increment`.
    offset: u64,
    /// The largest ID that may be handed out. Invariant: from `offset` to [`LAST_ID`].
    maximum: u64,
}

impl PartialEq for TicketCounter {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.increment == other.increment && self.offset == other.offset
    }
}

impl Eq for TicketCounter {}

impl TicketCounter {
    /// Returns the counter of the IDs `offset`, `offset + increment` and so on up to [`LAST_ID`].
    ///
    /// # Errors
    /// Returns an error if the increment is 0 or above [`LAST_ID`], or if the offset is not from 1
    /// to the increment.
    pub fn new(name: &str, increment: u64, offset: u64) -> Result<Self, LayoutError> {
        if increment == 0 || increment > LAST_ID {
            return Err(LayoutError::Increment(increment));
        }
        if offset == 0 || offset > increment {
            return Err(LayoutError::Offset { offset, increment });
        }
        Ok(TicketCounter { name: name.to_owned(), increment, offset, maximum: LAST_ID })
    }

    /// Returns the same counter without the IDs above a maximum.
    ///
    /// # Errors
    /// Returns an error if the maximum is below the offset, or above [`LAST_ID`].
    pub fn up_to(self, maximum: u64) -> Result<Self, LayoutError> {
        if maximum < self.offset || maximum > LAST_ID {
            return Err(LayoutError::Maximum { maximum, offset: self.offset });
        }
        Ok(TicketCounter { maximum, ..self })
    }

    /// Returns the same counter with all IDs up to [`LAST_ID`].
    pub(super) fn without_maximum(&self) -> Self {
        TicketCounter { maximum: LAST_ID, ..self.clone() }
    }

    /// Returns the largest ID that may be handed out.
    pub fn maximum(&self) -> u64 {
        self.maximum
    }

    /// Returns the name of the counter's source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the distance between neighbouring IDs.
    pub fn increment(&self) -> u64 {
        self.increment
    }

    /// Returns the first ID.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the first position without an ID.
    pub(super) fn end(&self) -> Position {
        Position((self.maximum - self.offset) / self.increment + 1)
    }

    /// Returns the first position whose ID is at least `bound`, or the end if there is no such
    /// position.
    pub(super) fn position_from(&self, bound: u64) -> Position {
        Position(bound.saturating_sub(self.offset).div_ceil(self.increment)).min(self.end())
    }

    #[inline]
    pub(super) fn run_at(&self, from: Position, max: u64) -> Run {
        let left = self.end().0.saturating_sub(from.0);
        if left == 0 {
            return Run { first: u64::MAX, count: 1, stride: 1 };
        }
        let count = u32::try_from(max.clamp(1, left)).unwrap_or(u32::MAX);
        Run { first: self.offset + self.increment * from.0, count, stride: self.increment }
    }

    /// Returns true if the two counters can hand out the same ID. Ignores the maximum of both.
    pub fn shares_ids_with(&self, other: &TicketCounter) -> bool {
        if self.name != other.name {
            return false;
        }
        // Two counters have numbers in common unless their offsets differ modulo this divisor.
        let divisor = gcd(self.increment, other.increment);
        self.offset % divisor == other.offset % divisor
    }
}

impl fmt::Display for TicketCounter {
    /// Writes `ticket orders, increment 2, offset 1`. Lock files contain this text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TicketCounter { name, increment, offset, .. } = self;
        write!(f, "ticket {name}, increment {increment}, offset {offset}")
    }
}

impl std::str::FromStr for TicketCounter {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        parse(text).ok_or(LayoutError::NotACounter)
    }
}

fn parse(text: &str) -> Option<TicketCounter> {
    let (name, rest) = text.strip_prefix("ticket ")?.split_once(", increment ")?;
    let (increment, offset) = rest.split_once(", offset ")?;
    TicketCounter::new(name, increment.parse().ok()?, offset.parse().ok()?).ok()
}
