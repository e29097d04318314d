//! The rules of a shared counter: a ticket source whose numbers several daemons take from one key
//! at the coordinator. Pure: answers come in, decisions go out.
//!
//! The key has the next free number. A daemon takes a range of numbers by writing a higher number,
//! if the key still has the value that the daemon read. So each number is in one daemon's range:
//! - Of two writes that expect the same value, the coordinator does only one.
//! - A write whose answer was lost counts only if the key then has the write's identity. Otherwise
//!   its range is abandoned, whether the write was done or not.
//! - After a loss of the grant (a restored snapshot), an earlier write does not count: another copy
//!   of this process may find the same identity.
//! - If the key is gone, was made again, or is below what this daemon had, the daemon never begins
//!   it anew.
//!
//! A source whose maximum the key has reached gets an empty range, and nothing is written: its
//! counter has ended.
//!
//! From a value that no write of Snowbank can have left ([`CounterLoss::Leaps`]), no range is
//! taken: one wrong write by hand would use up all numbers for good.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::key::{self, FORMAT, KeyError, id_bound};
use snowbank_id::layout::Position;
use snowbank_id::numbering::{LAST_ID, Numbering};

pub use snowbank_core::keeper::NumberRange;

/// The most IDs from the first ID of a range to its end. A range has 10 million numbers at most, or
/// as many as a few requests want.
const RANGE_IDS_MAX: u64 = 1 << 40;

/// The value at a shared counter's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterKey {
    format: u64,
    /// The identity of the counter, drawn when it was made. A counter that was made again has
    /// another identity.
    pub counter: String,
    /// The next free number: all below it may have been handed out. Text, because JavaScript's
    /// numbers end at 2^53.
    #[serde(with = "id_bound")]
    pub next: u64,
    /// The first number of the range that this write took. After an operator's command it equals
    /// `next`.
    #[serde(with = "id_bound")]
    pub from: u64,
    /// The identity of this write: 128 bits, drawn for each write. A daemon recognises its own
    /// writes by it.
    pub write: String,
    /// The name of the daemon or the command that wrote it, for people.
    pub writer: String,
}

impl CounterKey {
    /// Returns the value that takes this range of the counter with this identity.
    pub fn new(counter: &str, range: NumberRange, write: &str, writer: &str) -> Self {
        let [counter, write, writer] = [counter, write, writer].map(str::to_owned);
        let NumberRange { from, to: next } = range;
        CounterKey { format: FORMAT, counter, next, from, write, writer }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// The text is no such value, or another release wrote it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        key::parse(text)
    }

    /// Reads a counter's identity.
    pub(super) fn identity_in(text: &str) -> Result<String, KeyError> {
        Ok(CounterKey::parse(text)?.counter)
    }

    /// Returns the text of the value.
    pub fn text(&self) -> String {
        key::to_text(self)
    }
}

/// A write of the key that takes a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The identity of the write.
    pub write: String,
    /// The numbers that it takes.
    pub range: NumberRange,
}

/// The reason why a counter cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CounterLoss {
    /// The key is gone.
    Gone,
    /// The key's next number is below what this daemon's state knows. Has both numbers.
    WentBack(u64, u64),
    /// The counter was made again.
    Replaced,
    /// The value cannot be read.
    Unreadable(KeyError),
    /// No daemon takes a range as long as the last one.
    Leaps(Box<CounterKey>),
}

impl CounterLoss {
    /// Returns true if the key has a value that Snowbank did not write: somebody can put it right.
    pub(super) fn is_of_others(&self) -> bool {
        matches!(self, CounterLoss::Unreadable(_) | CounterLoss::Leaps(_))
    }
}

impl fmt::Display for CounterLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterLoss::Gone => f.write_str(
                "its counter is not at the coordinator; while no daemon counts with it, run `snowbank ticket set NAME VALUE \
                 --config FILE`, with the highest number that was ever handed out, or 0 if none was",
            ),
            CounterLoss::WentBack(found, known) => write!(
                f,
                "its counter at the coordinator is at {found}, and numbers below {known} may have been handed out; run \
                 `snowbank ticket set NAME VALUE --config FILE`, with the highest number that any daemon handed out; or, if \
                 none above VALUE was, lower this daemon's own record with `snowbank ticket set NAME VALUE --lower --state-dir \
                 DIRECTORY`"
            ),
            CounterLoss::Replaced => f.write_str("its counter was made again at the coordinator"),
            CounterLoss::Unreadable(error @ KeyError::Newer(_)) => {
                write!(f, "its counter at the coordinator: {error}")
            }
            CounterLoss::Unreadable(error) => write!(
                f,
                "its counter at the coordinator: {error}; then run `snowbank ticket set NAME VALUE --lower --config FILE`, \
                 with the highest number that any daemon handed out"
            ),
            CounterLoss::Leaps(key) => write!(
                f,
                "its counter at the coordinator went from {} to {} in one write of {}, allowed: numbers that one range can \
                 have; find out who wrote it, then run `snowbank ticket set NAME VALUE --lower \
                 --config FILE`, with the highest number that any daemon handed out",
                key.from, key.next, key.writer
            ),
        }
    }
}

/// The next step after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The range is this daemon's. If it is empty, no number is left for the source.
    Ours(NumberRange),
    /// Write this.
    Write(Claim),
    /// The answer is older than an earlier one, or the coordinator went back. A comparison with the
    /// key shows which.
    Verify,
}

/// A daemon's side of a shared counter.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    /// Without the source's maximum: other daemons' sources may have a higher one.
    numbering: Numbering,
    /// The number after the source's maximum.
    end: u64,
    /// No range begins below this number: the end of this daemon's last range, or of what its state
    /// knows, if that is higher.
    floor: u64,
    /// The identity of the counter, once it was read.
    identity: Option<String>,
    /// The write whose outcome is not known, and the generation of the grant when it was drawn.
    trying: Option<(Claim, u64)>,
}

impl Counter {
    /// Creates a counter whose numbers below `floor` may all have been handed out.
    pub(super) fn new(numbering: Numbering, floor: u64) -> Self {
        let end = numbering.id_bound(numbering.end());
        let whole = numbering.ticket().and_then(|counter| counter.clone().up_to(LAST_ID).ok());
        let numbering = whole.map_or(numbering, Numbering::from);
        Counter { numbering, end, floor, identity: None, trying: None }
    }

    /// Decides how to take `count` numbers, given the key as it was read. `generation` changes when
    /// the grant is lost. `draw` gives the identity of a write.
    ///
    /// # Errors
    /// The counter cannot go on.
    pub(super) fn step(
        &mut self,
        found: Option<&String>,
        count: u64,
        generation: u64,
        draw: impl FnOnce() -> String,
    ) -> Result<Step, CounterLoss> {
        let Some(key) = self.check(found)? else { return Ok(Step::Verify) };
        if let Some((claim, of)) = self.trying.take()
            && of == generation
            && claim.write == key.write
        {
            return Ok(Step::Ours(self.done(claim)));
        }
        let from = self.numbering.position_from(key.next);
        if from >= self.numbering.position_from(self.end) {
            return Ok(Step::Ours(NumberRange { from: key.next, to: key.next }));
        }
        let to = Position(from.0.saturating_add(count)).min(self.furthest(key.next));
        let range = NumberRange { from: key.next, to: self.numbering.id_bound(to).min(self.end) };
        let claim = Claim { write: draw(), range };
        self.trying = Some((claim.clone(), generation));
        Ok(Step::Write(claim))
    }

    /// Returns the value of a write of this counter.
    pub(super) fn text(&self, claim: &Claim, writer: &str) -> String {
        let identity = self.identity.as_deref().unwrap_or_default();
        CounterKey::new(identity, claim.range, &claim.write, writer).text()
    }

    /// Notes that a write of this daemon was done, and returns its range.
    pub(super) fn done(&mut self, claim: Claim) -> NumberRange {
        self.trying = None;
        self.floor = self.floor.max(claim.range.to);
        claim.range
    }

    /// Returns the loss, after a comparison showed that this text is the key's newest value.
    pub(super) fn went_back(&self, text: &str) -> CounterLoss {
        let found = CounterKey::parse(text);
        found.map_or_else(CounterLoss::Unreadable, |key| CounterLoss::WentBack(key.next, self.floor))
    }

    /// Checks the key as it was read. Returns `None` if it is older than an earlier answer.
    ///
    /// # Errors
    /// The counter cannot go on.
    pub(super) fn check(&mut self, found: Option<&String>) -> Result<Option<CounterKey>, CounterLoss> {
        let text = found.ok_or(CounterLoss::Gone)?;
        let key = CounterKey::parse(text).map_err(CounterLoss::Unreadable)?;
        if *self.identity.get_or_insert_with(|| key.counter.clone()) != key.counter {
            return Err(CounterLoss::Replaced);
        }
        let leaps = self.numbering.position_from(key.next) > self.furthest(key.from);
        let end = self.numbering.id_bound(self.numbering.end());
        if key.next < key.from || leaps || key.next > end {
            return Err(CounterLoss::Leaps(Box::new(key)));
        }
        Ok(Some(key).filter(|key| key.next >= self.floor))
    }

    /// Returns the furthest end of a range that begins here. If the increment is larger than
    /// [`RANGE_IDS_MAX`], that range has one number.
    fn furthest(&self, from: u64) -> Position {
        let one = Position(self.numbering.position_from(from).0.saturating_add(1));
        let by_ids = self.numbering.position_from(from.saturating_add(RANGE_IDS_MAX));
        by_ids.max(one).min(self.numbering.end())
    }
}

#[cfg(test)]
mod tests;
