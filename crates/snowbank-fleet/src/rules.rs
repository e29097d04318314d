//! The rules of a fleet: which daemon may take a number, where it starts, and what each answer of
//! the coordinator means. Pure: times and answers come in, decisions go out.
//!
//! Five facts keep IDs unique:
//! - Everything that was granted under a key is below the key's bound: a bound is written before it
//!   is granted.
//! - A daemon that takes a number starts at the key's bound. It continues below that bound only if
//!   its own state made the key's last write, and this machine remembers that no copy of the state
//!   was granted more ([`Proof::Newest`]).
//! - A start that does not ask continues below the bound that was acknowledged last, if this
//!   machine also remembers that no stop has returned the number ([`Proof::Held`],
//!   `member::resume`). So it has only what the daemon before it had.
//! - A daemon that finds a key with a write that is not its own hands out nothing more.
//! - Nobody starts below the fleet's *floor* under a number that it does not hold. The floor is an
//!   instant in the marker, and a daemon's every write of a key compares the marker. The floor is
//!   above all IDs that the coordinator knows nothing of: those from before the fleet, those of
//!   replaced ID spaces, and those that were granted by writes which a restored coordinator lost.
//!   However far ahead a grant starts, it reaches no further than `max_ahead` and a horizon from
//!   its holder's clock ([`counts_from`]). Daemons may differ in these settings, so the marker has
//!   the longest [`reach`] of all.
//!
//! So a number may be taken from a daemon that still runs: both have their own positions. The clock
//! only decides when a number counts as abandoned.
//!
//! A coordinator that was restored to an older state is recognised by a bound that is lower than
//! one that it had acknowledged ([`Seen::Older`]). The daemon that sees such a bound raises the
//! floor ([`floor_after_loss`]) before anything else.

use std::fmt;
use std::time::Duration;

use super::key::{KeyError, NumberKey};
use snowbank_core::clock;
use snowbank_id::layout::{Tick, UnixMicros};
use snowbank_id::numbering::Numbering;
use snowbank_state::{Fate, Mark};

pub use snowbank_core::keeper::far::{ceiling, counts_from, left};

/// The longest horizon that a fleet may have: others wait about this long for the number of a
/// daemon that crashed.
pub const HORIZON_MAX: Duration = Duration::from_secs(86_400);

/// The longest [`reach`] that is believed. A configuration has a `max_ahead` of a sixth of the
/// horizon at most.
pub const REACH_MAX: Duration = HORIZON_MAX.saturating_mul(2);

/// The most that clocks of a fleet are expected to differ. A bound that is ahead by more than its
/// holder's reach plus this was never granted.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(3_600);

/// The start of a source under a number that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The number is this state's, and nothing was written since: the source continues at its own
    /// ceiling.
    Resume,
    /// The number is this state's, and the coordinator lost its last write. The source continues at
    /// its own ceiling, below this bound, which the coordinator had acknowledged.
    Again(u64),
    /// The source starts at this bound, or above. 0: the number was never used in this fleet.
    Above(u64),
}

/// A daemon that wants a number.
#[derive(Clone, Copy, Debug)]
pub struct Taker<'a> {
    /// The writes of this state that may be the number's last. Empty if the state may be an older
    /// copy.
    pub writes: &'a [String],
    /// The bound that the coordinator had acknowledged to this state. `None`: none, or the state
    /// may be an older copy.
    pub acknowledged: Option<Acknowledged<'a>>,
    /// The wall clock.
    pub wall: UnixMicros,
    /// How far IDs may be ahead of the wall clock.
    pub max_ahead: Duration,
}

/// A bound that the coordinator had acknowledged for a number.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a> {
    /// The term in which the coordinator acknowledged it.
    pub term: &'a str,
    /// The bound.
    pub id_bound: u64,
    /// The instant of the bound.
    pub until: UnixMicros,
}

/// The number belongs to another daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The value at its key.
    pub key: Box<NumberKey>,
    /// The instant from which it may be taken.
    pub free_at: UnixMicros,
}

/// The proof by this machine's marks that a state may continue with the worker IDs that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// No proof: the state may be an older copy.
    None,
    /// Nothing above the state's ceiling was granted on this machine. But a clean stop has returned
    /// a worker ID since, so only the coordinator knows whose it is.
    Newest,
    /// Nothing above the state's ceiling was granted on this machine, and the worker IDs were not
    /// returned.
    Held,
}

/// Returns the proof for a state with this many worker IDs. `stored` is its ceiling. `marks` are
/// this machine's: they are written with each grant, and a copy of the state does not contain them.
///
/// A copy that starts on another machine finds no marks, so it starts at the key's bound, with a
/// new write of its own. So everything granted under a noted write was granted on this machine.
pub fn proof(marks: &[Mark], worker_ids: usize, state: &str, stored: u64) -> Proof {
    let are_covered =
        marks.iter().all(|mark| mark.state == state && !mark.is_released() && mark.id_bound <= stored);
    if marks.len() != worker_ids || !are_covered {
        return Proof::None;
    }
    let was_returned = marks.iter().any(|mark| mark.fate == Fate::Returned);
    if was_returned { Proof::Newest } else { Proof::Held }
}

/// Decides whether a number may be taken. `until` is the instant of the key's bound.
///
/// Others may have taken a number in a history that the coordinator has lost. So a state gets its
/// own number [`Again`](Taking::Again) only while nobody [may have](may_be_abandoned) taken it.
///
/// # Errors
/// Another daemon holds the number, and the clock has not come near its bound.
pub fn take(key: Option<&NumberKey>, until: UnixMicros, taker: Taker<'_>) -> Result<Taking, Held> {
    if key.is_some_and(|key| taker.writes.contains(&key.write)) {
        return Ok(Taking::Resume);
    }
    let lost = taker
        .acknowledged
        .filter(|own| key.is_none_or(|key| key.term == own.term) && is_older(key, own.term, own.id_bound));
    if let Some(own) = lost {
        return Ok(if may_be_abandoned(own.until, taker.wall, taker.max_ahead) {
            Taking::Above(own.id_bound)
        } else {
            Taking::Again(own.id_bound)
        });
    }
    let Some(key) = key else { return Ok(Taking::Above(0)) };
    let free_at = free_at(key, until, taker.max_ahead);
    if free_at < taker.wall {
        return Ok(Taking::Above(key.id_bound));
    }
    Err(Held { key: Box::new(key.clone()), free_at })
}

/// Returns the instant from which a number may be taken: once the clock is near its bound. A live
/// holder's bound is minutes ahead. A clean stop leaves a bound that is near. An operator's release
/// leaves the holder's bound: if a restore loses that release, the holder still knows by its clock
/// that others may have had its number ([`may_be_abandoned`]). The instant is at most the holder's
/// `max_ahead` before the bound, because the holder relies on that.
pub fn free_at(key: &NumberKey, until: UnixMicros, max_ahead: Duration) -> UnixMicros {
    let near = max_ahead.min(Duration::from_millis(key.max_ahead_ms));
    UnixMicros(until.0.saturating_sub(clock::micros(near)))
}

/// Returns whether others may have taken a number with this bound from a holder with this
/// `max_ahead`. They may take it once their clocks, which may be ahead by `max_ahead`, are within
/// `max_ahead` of the bound ([`free_at`]).
pub fn may_be_abandoned(until: UnixMicros, wall: UnixMicros, max_ahead: Duration) -> bool {
    until.0 < wall.0.saturating_add(clock::micros(max_ahead.saturating_mul(2)))
}

/// Returns the instant at which the clock is past all IDs below a bound.
pub fn instant_of(numbering: &Numbering, id_bound: u64) -> UnixMicros {
    numbering.start_of(numbering.tick_of(numbering.position_from(id_bound)))
}

/// Returns the lowest ID that a daemon may make under a number that it does not hold. Returns 0 for
/// a fleet without a floor.
pub fn bound_above(numbering: &Numbering, floor: UnixMicros) -> u64 {
    if floor.0 <= 0 {
        return 0;
    }
    let tick = numbering.tick_at(floor);
    numbering.id_bound(numbering.first_of(Tick(tick.0.saturating_add(1))))
}

/// Returns how far ahead of another daemon's clock a daemon with these settings may hand out IDs.
/// Its clock is at most `max_ahead` ahead, and its IDs are at most `max_ahead` and a horizon ahead
/// of its clock. The result is in whole milliseconds, as in the marker.
pub fn reach(horizon: Duration, max_ahead: Duration) -> Duration {
    let reach = horizon.saturating_add(max_ahead.saturating_mul(2));
    Duration::from_millis(u64::try_from(reach.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Returns the floor after the coordinator has lost writes: nobody can have been granted more
/// ([`counts_from`]) with the longest [`reach`] of the fleet. `acknowledged` is the instant of the
/// highest bound that the caller was granted, which is further ahead if its clock was set back
/// since.
///
/// For a caller that started at an earlier floor, `acknowledged` may be that floor. The reach is
/// not added to it, so restores in a row do not push the floor away.
pub fn floor_after_loss(wall: UnixMicros, acknowledged: UnixMicros, longest_reach: Duration) -> UnixMicros {
    UnixMicros(wall.0.saturating_add(clock::micros(longest_reach))).max(acknowledged)
}

/// Returns whether a key shows that the coordinator has lost a bound that it had acknowledged in a
/// term. `acknowledged` is 0 if there was no such bound.
///
/// Another term begins at the number's bound or above. So the `from` of a key in another term must
/// reach the acknowledged bound.
pub fn is_older(key: Option<&NumberKey>, term: &str, acknowledged: u64) -> bool {
    let Some(key) = key else { return acknowledged > 0 };
    let reaches = if key.term == term { key.id_bound.max(key.highest) } else { key.from };
    reaches < acknowledged
}

/// Returns the latest instant that a bound at the coordinator can have. A later one was never
/// granted. If a later bound counted, a mistake, or somebody who writes keys, could take the number
/// out of use for as long as the bound says. `from` is the wall clock, or a later instant that
/// granted bounds are known to have reached.
pub fn latest(from: UnixMicros, reach: Duration) -> UnixMicros {
    let reach = reach.min(REACH_MAX).saturating_add(CLOCKS_DIFFER_MAX);
    UnixMicros(from.0.saturating_add(clock::micros(reach)))
}

/// Checks that the bound of a key can have been granted to its holder, or to a daemon with this
/// [`reach`].
///
/// # Errors
/// Says why the bound cannot have been granted.
pub fn check_bound(
    numbering: &Numbering,
    key: &NumberKey,
    from: UnixMicros,
    reach: Duration,
) -> Result<(), String> {
    let until = instant_of(numbering, key.id_bound);
    let latest = latest(from, key.reach().max(reach));
    if until <= latest {
        return Ok(());
    }
    Err(format!(
        "found IDs until {} of {}, and by this clock none can have been granted after {}; set the clock right. If \
         somebody wrote the key by mistake, and no such IDs were handed out, free the number with `snowbank fleet release \
         NUMBER --force --lower`",
        until.rfc3339(0),
        key.holder,
        latest.rfc3339(0)
    ))
}

/// The reason why a number is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The key is gone.
    Gone,
    /// Another daemon wrote it.
    Taken(Box<NumberKey>),
    /// The coordinator has an older value than the one that it had acknowledged.
    WentBack,
    /// The value cannot be read.
    Unreadable(KeyError),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone => f.write_str("its key is gone from the coordinator"),
            Loss::Taken(key) if key.released => write!(f, "it was released ({})", key.holder),
            Loss::Taken(key) => write!(f, "{} has it now", key.holder),
            Loss::WentBack => f.write_str("the coordinator went back to an older value of its key"),
            Loss::Unreadable(error) => write!(f, "its key: {error}"),
        }
    }
}

/// The meaning of an answer about a held number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The last write of the key is one of ours: this one.
    Ours(Box<NumberKey>),
    /// The bound is lower than one that the coordinator had acknowledged: the answer is old, or the
    /// coordinator went back.
    Older(Loss),
    /// The number is not ours any more.
    Lost(Loss),
}

/// A number that this daemon holds: the writes by which it recognises its key, and what it knows of
/// the key.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The key's value when it was last known. `None`: it was not read yet.
    text: Option<String>,
    /// The highest bound that the coordinator was known to have, and must not fall below.
    acknowledged: u64,
    /// Writes of this state that may be the key's last. Those before the last known one are
    /// dropped.
    writes: Vec<String>,
    /// The latest of the dropped writes. None of them can take effect any more. So if the key has
    /// one, the coordinator went back, even if only to a write with the same bound.
    replaced: Vec<String>,
}

/// The replaced writes that a daemon remembers for each number. If a restore loses a raise, the
/// bound shows it. Only writes that follow new connections leave the bound as it is.
const REPLACED_MAX: usize = 64;

impl Holding {
    /// Returns a number whose key has not been read yet. As far as this daemon knows, one of these
    /// writes was the key's last, and the coordinator had acknowledged this bound.
    pub fn unseen(writes: Vec<String>, acknowledged: u64) -> Self {
        Holding { text: None, acknowledged, writes, replaced: Vec::new() }
    }

    /// Returns the value that the next write expects; `None` before the key was read.
    pub fn text(&self) -> Option<&String> {
        self.text.as_ref()
    }

    /// Returns the highest bound that the coordinator was known to have.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Records a write that is about to be tried.
    pub fn try_write(&mut self, write: &str) {
        if self.writes.last().is_none_or(|last| last != write) {
            self.writes.push(write.to_owned());
        }
    }

    /// Records that a write of this value was done. A release may lower the bound.
    pub fn written(&mut self, text: &str, key: &NumberKey) {
        self.try_write(&key.write);
        self.text = Some(text.to_owned());
        self.acknowledged = if key.released { key.id_bound } else { self.acknowledged.max(key.id_bound) };
        self.forget_before(self.writes.len() - 1);
    }

    /// Lets a release lower the bound. The caller tries the release after this.
    pub fn lower(&mut self, id_bound: u64) {
        self.acknowledged = self.acknowledged.min(id_bound);
    }

    /// Forgets the writes before this one. They expected an older value, so they can never be done
    /// any more.
    fn forget_before(&mut self, at: usize) {
        self.replaced.extend(self.writes.drain(..at));
        let too_many = self.replaced.len().saturating_sub(REPLACED_MAX);
        self.replaced.drain(..too_many);
    }

    /// Returns the writes that may be the key's last.
    pub fn writes(&self) -> &[String] {
        &self.writes
    }

    /// Decides what an answer means, for a daemon in this term. `key` is the parsed text.
    pub fn see(&mut self, text: Option<&str>, key: &Result<Option<NumberKey>, KeyError>, term: &str) -> Seen {
        let key = match key.clone() {
            Ok(key) => key,
            Err(error) => return Seen::Lost(Loss::Unreadable(error)),
        };
        let Some(key) = key else {
            let is_older = is_older(None, term, self.acknowledged);
            return if is_older { Seen::Older(Loss::Gone) } else { Seen::Lost(Loss::Gone) };
        };
        let known = self.writes.iter().position(|write| *write == key.write);
        // This state's own last write may be of an earlier term.
        let its_term = if known.is_some() { &key.term } else { term };
        if self.replaced.contains(&key.write) || is_older(Some(&key), its_term, self.acknowledged) {
            return Seen::Older(Loss::WentBack);
        }
        let Some(at) = known else { return Seen::Lost(Loss::Taken(Box::new(key))) };
        self.forget_before(at);
        self.acknowledged = self.acknowledged.max(key.id_bound);
        self.text = text.map(str::to_owned);
        Seen::Ours(Box::new(key))
    }
}

#[cfg(test)]
mod tests;
