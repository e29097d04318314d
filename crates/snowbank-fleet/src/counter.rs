//! The rules of a shared counter: a ticket source whose numbers several daemons take from one key
//! at the coordinator. The rules are pure: answers come in, decisions go out.
//!
//! The key has the next free number. A daemon takes a range of numbers by writing a higher number.
//! The coordinator does the write only if the key still has the value that the daemon read. So each
//! number is in at most one daemon's range:
//! - Of two writes that expect the same value, the coordinator does only one.
//! - If the answer to a write was lost, the daemon reads the key. It uses the write's range only if
//!   the key has the write's identity. Otherwise the daemon abandons the range, even if the write
//!   was done.
//! - After the machine was restored from a snapshot, the daemon abandons the range of a write that
//!   it made before. Another copy of this process may find the same identity, and use that range.
//! - The daemon ends if the key is gone, cannot be read, or was made again. It also ends if the
//!   key's next number is below this daemon's numbers. A daemon never makes the key itself.
//!
//! A daemon that stops gives the rest of its ranges back, by writing a lower number. The coordinator
//! does that write only if the key still has the whole text of the daemon's last write, with the
//! write's identity. So a write that is late, or done twice, never lowers what another daemon took
//! since. Only ranges of the present generation go back: after a restore, another copy of this
//! process may use the others.
//!
//! If the key has reached a source's maximum, the source gets an empty range, and nothing is
//! written.
//!
//! The daemon also ends if no daemon can have written the key's value ([`CounterLoss::Leaps`]).
//! Otherwise one wrong write by hand would use up the numbers for good.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::key::{self, KeyError, id_bound};
use snowbank_id::layout::Position;
use snowbank_id::numbering::{LAST_ID, Numbering};

pub use snowbank_core::keeper::NumberRange;

/// The largest difference between the end of a range and its first ID. With small increments,
/// daemons take far shorter ranges: at most 10 million numbers, plus those that waiting requests
/// want.
const RANGE_IDS_MAX: u64 = 1 << 40;

/// The value at a shared counter's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterKey {
    /// The identity of the counter, made together with the counter. A counter that was made again
    /// has another identity.
    pub counter: String,
    /// The next free number: all lower numbers may have been handed out. It is text, because
    /// JavaScript's integers end at 2^53.
    #[serde(with = "id_bound")]
    pub next: u64,
    /// The first number of the range that this write took. An operator's command takes no range,
    /// and sets this field to `next`.
    #[serde(with = "id_bound")]
    pub from: u64,
    /// The identity of this write: 128 bits, new for each write. By this identity, a daemon
    /// recognises its own writes.
    pub write: String,
    /// The name, for people, of the daemon or the command that wrote the value.
    pub writer: String,
}

impl CounterKey {
    /// Returns the value that takes this range of the counter with this identity.
    pub fn new(counter: &str, range: NumberRange, write: &str, writer: &str) -> Self {
        let [counter, write, writer] = [counter, write, writer].map(str::to_owned);
        let NumberRange { from, to: next } = range;
        CounterKey { counter, next, from, write, writer }
    }

    /// Reads a value, to compare or to show it.
    ///
    /// # Errors
    /// The text is not a counter's value, or only later releases may read it.
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
    /// The numbers that the write takes.
    pub range: NumberRange,
}

/// Numbers at the end of the counter that are all this daemon's: ranges between which no other daemon
/// wrote the key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    range: NumberRange,
    /// The key's value as the write of the last range left it.
    text: String,
    /// The grant's generation in which all these ranges were taken.
    generation: u64,
}

/// What is left of a daemon's ranges when it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The source's index.
    pub source: usize,
    /// The lowest number that was not handed out. The state must have it already.
    pub next: u64,
    /// The generation of the source's grant.
    pub generation: u64,
}

/// The reason why a counter cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CounterLoss {
    /// The key is gone.
    Gone,
    /// The key's next number is below this daemon's numbers. The fields are the key's next number,
    /// and the number below which all numbers may have been handed out.
    WentBack(u64, u64),
    /// The counter was made again.
    Replaced,
    /// The value cannot be read.
    Unreadable(KeyError),
    /// No daemon takes a range such as the key's last one.
    Leaps(Box<CounterKey>),
}

impl CounterLoss {
    /// Returns true if no daemon of this release can have written the key's value. An operator can
    /// correct such a value, or update the daemon.
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
                "its counter at the coordinator is at {found}, but numbers below {known} may have been handed out; run \
                 `snowbank ticket set NAME VALUE --config FILE`, with the highest number that any daemon handed out; or, if \
                 no number above VALUE was handed out, lower this daemon's own record with `snowbank ticket set NAME VALUE --lower --state-dir \
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
                "its counter at the coordinator went from {} to {} in one write of {}, allowed: the numbers of one range; \
                 find out who wrote it, then run `snowbank ticket set NAME VALUE --lower \
                 --config FILE`, with the highest number that any daemon handed out",
                key.from, key.next, key.writer
            ),
        }
    }
}

/// The next step after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The range is this daemon's. An empty range means that the source has no number left.
    Ours(NumberRange),
    /// Write the key to claim this range.
    Write(Claim),
    /// The key's next number is below this daemon's numbers: the answer is old, or the coordinator
    /// went back. A swap that compares the key shows which of the two has happened.
    Verify,
}

/// A daemon's side of a shared counter.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    /// The source's numbering without its maximum, because other daemons may have a higher maximum.
    numbering: Numbering,
    /// The number after the source's maximum.
    end: u64,
    /// No range begins below this number. It is the end of this daemon's last range, or the state's
    /// bound: all numbers below it may have been handed out.
    floor: u64,
    /// The identity of the counter, once the daemon has read it.
    identity: Option<String>,
    /// The write whose outcome is unknown, and the grant's generation when the write's identity
    /// was made.
    trying: Option<(Claim, u64)>,
    /// The numbers that the daemon's last writes took.
    last: Option<Last>,
}

impl Counter {
    /// Creates a counter whose numbers below `floor` may all have been handed out.
    pub(super) fn new(numbering: Numbering, floor: u64) -> Self {
        let end = numbering.id_bound(numbering.end());
        let whole = numbering.ticket().and_then(|counter| counter.clone().up_to(LAST_ID).ok());
        let numbering = whole.map_or(numbering, Numbering::from);
        Counter { numbering, end, floor, identity: None, trying: None, last: None }
    }

    /// Decides how to take `count` numbers; with 0, checks the key and takes none. `found` is the
    /// key's value, as it was read. `generation` changes when the source's grant is taken away.
    /// `new_identity` returns a new identity for a write.
    ///
    /// # Errors
    /// The counter cannot go on.
    pub(super) fn step(
        &mut self,
        found: Option<&String>,
        count: u64,
        generation: u64,
        new_identity: impl FnOnce() -> String,
    ) -> Result<Step, CounterLoss> {
        let Some(key) = self.check(found)? else { return Ok(Step::Verify) };
        if let Some((claim, of)) = self.trying.take()
            && of == generation
            && claim.write == key.write
        {
            return Ok(Step::Ours(self.done(claim, key.text(), generation)));
        }
        // If another daemon has written since, its state may say that all numbers below the key's next
        // number were handed out, although it gave its whole range back. So nothing below goes back.
        self.last = self.last.take().filter(|last| found == Some(&last.text));
        let from = self.numbering.position_from(key.next);
        if count == 0 || from >= self.numbering.position_from(self.end) {
            return Ok(Step::Ours(NumberRange { from: key.next, to: key.next }));
        }
        let to = Position(from.0.saturating_add(count)).min(self.furthest(key.next));
        let range = NumberRange { from: key.next, to: self.numbering.id_bound(to).min(self.end) };
        let claim = Claim { write: new_identity(), range };
        self.trying = Some((claim.clone(), generation));
        Ok(Step::Write(claim))
    }

    /// Returns the text that a claim writes to the key.
    pub(super) fn text(&self, claim: &Claim, writer: &str) -> String {
        let identity = self.identity.as_deref().unwrap_or_default();
        CounterKey::new(identity, claim.range, &claim.write, writer).text()
    }

    /// Records that a write of this daemon was done, and returns its range. `text` is the value that
    /// it wrote.
    pub(super) fn done(&mut self, claim: Claim, text: String, generation: u64) -> NumberRange {
        assert!(claim.range.from >= self.floor, "a range begins above all numbers that this daemon had");
        self.trying = None;
        self.floor = claim.range.to;
        let NumberRange { from, to } = claim.range;
        let before = self.last.take().filter(|last| last.range.to == from && last.generation == generation);
        let from = before.map_or(from, |last| last.range.from);
        self.last = Some(Last { range: NumberRange { from, to }, text, generation });
        claim.range
    }

    /// Returns the value that the key must have for the rest of the last ranges to go back. Also
    /// returns the value that it then gets. `None` if nothing is left, or if another copy of this
    /// process may use it. `write` is the identity of this write.
    pub(super) fn give_back(&self, rest: Rest, write: &str, writer: &str) -> Option<(String, String)> {
        let last = self.last.as_ref().filter(|last| last.generation == rest.generation)?;
        let next = rest.next.max(last.range.from);
        if next >= last.range.to {
            return None;
        }
        let identity = self.identity.as_deref().unwrap_or_default();
        let range = NumberRange { from: next, to: next };
        Some((last.text.clone(), CounterKey::new(identity, range, write, writer).text()))
    }

    /// Returns the loss, after a swap has shown that the key really has this older value.
    pub(super) fn went_back(&self, text: &str) -> CounterLoss {
        let found = CounterKey::parse(text);
        found.map_or_else(CounterLoss::Unreadable, |key| CounterLoss::WentBack(key.next, self.floor))
    }

    /// Checks the key's value, as it was read. Returns `None` if the next number is below this
    /// daemon's numbers ([`Step::Verify`]).
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

    /// Returns the furthest end that a range can have if it begins at `from`. If the increment is
    /// larger than [`RANGE_IDS_MAX`], that range has one number.
    fn furthest(&self, from: u64) -> Position {
        let one = Position(self.numbering.position_from(from).0.saturating_add(1));
        let by_ids = self.numbering.position_from(from.saturating_add(RANGE_IDS_MAX));
        by_ids.max(one).min(self.numbering.end())
    }
}

#[cfg(test)]
mod tests;
