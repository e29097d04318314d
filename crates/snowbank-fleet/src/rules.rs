//! The rules of a fleet: who may take a number, where a daemon starts, and what each answer of the
//! coordinator means. They are pure: times and answers come in, decisions go out.
//!
//! Five facts keep IDs unique:
//! - All IDs that were granted to a holder are below its key's bound, because the holder writes the
//!   bound first.
//! - A daemon that takes a number starts at the key's bound. It starts lower only after a write of
//!   its own state: the key's last write, or a write that the coordinator lost. This machine's
//!   marks must show that no copy of the state was granted more ([`Proof::Newest`]), or the same
//!   process must have made the write in an earlier try.
//! - A start that does not ask the coordinator hands out only IDs below the bound that was
//!   acknowledged last. The marks must also show that no clean stop has returned the number
//!   ([`Proof::Held`], `member::resume`). So such a start has only IDs that the process before it
//!   was granted.
//! - A daemon hands out nothing more once it finds a write of another daemon at one of its keys.
//! - With a number that it did not hold, a daemon starts above the fleet's *floor*. The floor is an
//!   instant in the marker, and each write of a key compares the marker. The floor is above all IDs
//!   that the keys do not show. These are IDs from before the fleet, of replaced ID spaces, and of
//!   writes that a restore has lost. A grant ends at most `max_ahead` and a horizon ahead of its
//!   holder's clock ([`counts_from`]). Both belong to the fleet and stand in its marker
//!   ([`FleetLimits`](super::FleetLimits)). A daemon that is configured otherwise is refused, and a
//!   change of them raises the floor above all bounds.
//!
//! So a daemon may take a number whose earlier holder still runs: that holder has only IDs below
//! the bound. The clock only decides when a number counts as abandoned.
//!
//! If a key has a lower bound than an acknowledged bound, the coordinator went back, or the answer
//! is old ([`Seen::Older`]). In the first case the daemon raises the floor before it does anything
//! else ([`floor_after_loss`]).

use std::fmt;
use std::time::Duration;

use super::key::{KeyError, NumberKey, REACH_MAX};
use snowbank_core::clock;
use snowbank_id::layout::{Tick, UnixMicros};
use snowbank_id::numbering::Numbering;
use snowbank_state::{Fate, Mark};

pub use snowbank_core::keeper::far::{ceiling, counts_from, left};

/// The most by which a bound is believed to be ahead of the clock, beyond its holder's reach.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(3_600);

/// How a source starts with a number that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The key's last write is this state's: the source continues at its own ceiling.
    Resume,
    /// The number is this state's, but the coordinator lost the key's last write. The source
    /// continues at its own ceiling, below this bound, which the coordinator had acknowledged.
    Again(u64),
    /// The source starts at this bound or higher. 0: the number has no key.
    Above(u64),
}

/// A daemon that wants a number.
#[derive(Clone, Copy, Debug)]
pub struct Taker<'a> {
    /// The writes of this state that may be the last write of the number's key. If the state may be
    /// an older copy, only those of this process.
    pub writes: &'a [String],
    /// The writes of this state that a later one has replaced. Only a restore brings one back.
    pub replaced: &'a [String],
    /// The bound that the coordinator had acknowledged to this state. `None` if there was none, or
    /// less than [`Proof::Lost`].
    pub acknowledged: Option<Acknowledged<'a>>,
    /// The wall clock.
    pub wall: UnixMicros,
    /// The latest that it can be by the clocks of other daemons, but for their difference
    /// ([`Clocks::latest`](super::Clocks::latest)).
    pub latest: UnixMicros,
    /// How far IDs may be ahead of the wall clock.
    pub max_ahead: Duration,
}

/// A bound that the coordinator had acknowledged for a number.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a> {
    /// The term in which the coordinator acknowledged the bound.
    pub term: &'a str,
    /// The bound.
    pub id_bound: u64,
    /// The instant of the bound.
    pub until: UnixMicros,
}

/// The reason why a number cannot be taken: another daemon holds it, or a copy of this state may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The value at its key.
    pub key: Box<NumberKey>,
    /// The instant from which the number may be taken.
    pub free_at: UnixMicros,
}

/// The proof by this machine's marks that a state may continue with the worker IDs that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// No proof: the state may be an older copy.
    None,
    /// Nothing above the state's ceiling was granted on this machine. But a clean stop has returned
    /// a worker ID, or a command has marked it, so only the coordinator knows who holds it now.
    Newest,
    /// As [`Held`](Proof::Held), but the last process asked and had no grant afterwards, or has lost one of
    /// the worker IDs, so the start must ask the coordinator.
    Lost,
    /// Nothing above the state's ceiling was granted on this machine, and the worker IDs were not
    /// returned.
    Held,
}

/// Returns the proof for a state with this many worker IDs. `stored` is the state's ceiling.
/// `marks` are this machine's marks of the worker IDs. Each grant writes the marks. They are not
/// part of the state, so a copy of the state does not contain them.
///
/// A copy of the state that starts on another machine finds no marks there. So that copy starts at
/// the key's bound, and makes a new write. So all IDs that were granted under a noted write were
/// granted on this machine.
pub fn proof(marks: &[Mark], worker_ids: usize, state: &str, stored: u64) -> Proof {
    let are_covered =
        marks.iter().all(|mark| mark.state == state && !mark.is_released() && mark.id_bound <= stored);
    if marks.len() != worker_ids || !are_covered {
        return Proof::None;
    }
    let has = |fate| marks.iter().any(|mark| mark.fate == fate);
    match (has(Fate::Returned), has(Fate::Lost)) {
        (true, _) => Proof::Newest,
        (false, true) => Proof::Lost,
        (false, false) => Proof::Held,
    }
}

/// Decides whether a number may be taken. `until` is the instant of the key's bound.
///
/// If the coordinator went back, it may have lost the write of another daemon that took the number.
/// So a state gets its number [`Again`](Taking::Again) only if no other daemon can have taken it
/// ([`may_be_abandoned`]).
///
/// # Errors
/// The number is held, and the clock is not yet near the number's bound.
pub fn judge(key: Option<&NumberKey>, until: UnixMicros, taker: Taker<'_>) -> Result<Taking, Held> {
    if key.is_some_and(|key| taker.writes.contains(&key.write)) {
        return Ok(Taking::Resume);
    }
    let is_lost = |own: &Acknowledged<'_>| match key {
        Some(key) if taker.replaced.contains(&key.write) => true,
        Some(key) => key.term == own.term && is_older(Some(key), own.term, own.id_bound),
        None => own.id_bound > 0,
    };
    let lost = taker.acknowledged.filter(is_lost);
    if let Some(own) = lost {
        return Ok(if may_be_abandoned(own.until, taker.latest, taker.max_ahead) {
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

/// Returns the instant from which a number may be taken: shortly before its bound. The bound of a
/// running holder is far ahead, and the bound after a clean stop is near. An operator's release
/// does not change the holder's bound, so no other daemon can take the number for a while. If a
/// restore then loses the release, the holder can tell by its clock whether other daemons may have
/// had its number ([`may_be_abandoned`]). The holder can tell because this instant is at most the
/// holder's `max_ahead` before the bound.
pub fn free_at(key: &NumberKey, until: UnixMicros, max_ahead: Duration) -> UnixMicros {
    let near = max_ahead.min(key.limits.max_ahead());
    UnixMicros(until.0.saturating_sub(clock::micros(near)))
}

/// Returns whether other daemons may have taken a number with this bound from a holder with this
/// `max_ahead`. Their clocks may be ahead by `max_ahead`, and they may take the number as early as
/// `max_ahead` before its bound ([`free_at`]).
pub fn may_be_abandoned(until: UnixMicros, wall: UnixMicros, max_ahead: Duration) -> bool {
    until.0 < wall.0.saturating_add(clock::micros(max_ahead.saturating_mul(2)))
}

/// Returns the instant of a bound: the start of the tick with the first ID at or above the bound.
pub fn instant_of(numbering: &Numbering, id_bound: u64) -> UnixMicros {
    numbering.start_of(numbering.tick_of(numbering.position_from(id_bound)))
}

/// Returns the lowest ID above a floor. Returns 0 for a fleet without a floor.
pub fn bound_above(numbering: &Numbering, floor: UnixMicros) -> u64 {
    if floor.0 <= 0 {
        return 0;
    }
    let tick = numbering.tick_at(floor);
    numbering.id_bound(numbering.first_of(Tick(tick.0.saturating_add(1))))
}

/// Returns the floor after the coordinator has lost writes. No daemon can have been granted IDs
/// above that floor ([`counts_from`]), if `longest_reach` is the longest reach of the fleet.
/// `acknowledged` is the instant of the caller's highest granted bound. That instant may be further
/// ahead than the reach, if the caller's clock was set back.
///
/// If the caller started at an earlier floor, `acknowledged` may be that floor. The reach is not
/// added to `acknowledged`, so repeated restores do not push the floor further ahead.
pub fn floor_after_loss(wall: UnixMicros, acknowledged: UnixMicros, longest_reach: Duration) -> UnixMicros {
    UnixMicros(wall.0.saturating_add(clock::micros(longest_reach))).max(acknowledged)
}

/// Returns whether a key shows that the coordinator has lost the bound `acknowledged`, which it had
/// acknowledged in this term. If `acknowledged` is 0, the coordinator had acknowledged no bound.
///
/// A later term begins at the number's bound or higher. So the `from` of a key in another term must
/// be at least the acknowledged bound.
pub fn is_older(key: Option<&NumberKey>, term: &str, acknowledged: u64) -> bool {
    let Some(key) = key else { return acknowledged > 0 };
    let reaches = if key.term == term { key.id_bound.max(key.highest) } else { key.from };
    reaches < acknowledged
}

/// Returns whether a key shows that the coordinator went back. It has a write that a later one of
/// this state had replaced, or is older than the acknowledged bound ([`is_older`]).
pub fn went_back(key: Option<&NumberKey>, term: &str, acknowledged: u64, replaced: &[String]) -> bool {
    key.is_some_and(|key| replaced.contains(&key.write)) || is_older(key, term, acknowledged)
}

/// Returns the latest instant that a granted bound can have. A later bound is refused, because
/// otherwise one wrong write by hand would take the number out of use until that bound has passed.
/// `from` is the wall clock, or a later instant that IDs may have reached.
pub fn latest(from: UnixMicros, reach: Duration) -> UnixMicros {
    let reach = reach.min(REACH_MAX).saturating_add(CLOCKS_DIFFER_MAX);
    UnixMicros(from.0.saturating_add(clock::micros(reach)))
}

/// Checks that the key's bound can have been granted to its holder, or to a daemon with this
/// reach.
///
/// # Errors
/// The bound cannot have been granted: [`KeyError::TooFarAhead`].
pub fn check_bound(
    numbering: &Numbering,
    key: &NumberKey,
    from: UnixMicros,
    reach: Duration,
) -> Result<(), KeyError> {
    let until = instant_of(numbering, key.id_bound);
    let latest = latest(from, key.limits.reach().max(reach));
    if until <= latest {
        return Ok(());
    }
    Err(KeyError::TooFarAhead { until, holder: key.holder.clone(), latest })
}

/// The reason why a number is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The key is gone.
    Gone,
    /// Somebody else wrote the key: another daemon, a copy of this daemon, or an operator.
    Taken(Box<NumberKey>),
    /// The key's value is older than an acknowledged value.
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
            Loss::Unreadable(error) => {
                write!(f, "{error}, then `snowbank fleet release NUMBER --force`")
            }
        }
    }
}

/// The meaning of a held number's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The key's last write is this daemon's. The field is the key's value.
    Ours(Box<NumberKey>),
    /// The value is older than an acknowledged value: the answer is old, or the coordinator went
    /// back.
    Older(Loss),
    /// Somebody else wrote the key, or the key is gone or cannot be read.
    Lost(Loss),
}

/// A number that this daemon holds: the writes by which the daemon recognises the key, and the
/// key's last known value.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The key's last known value. `None`: the key was not read yet.
    text: Option<String>,
    /// The highest acknowledged bound. If the key has a lower bound, the coordinator went back.
    acknowledged: u64,
    /// The writes of this state that may be the key's last. Once a write is known to be done, the
    /// writes before it move to `replaced`.
    writes: Vec<String>,
    /// The writes that a later write of this daemon has replaced. The coordinator can no longer do
    /// them. So if the key has a replaced write, the coordinator went back, even if the bound is
    /// the same.
    replaced: Vec<String>,
}

/// The most replaced writes that a daemon remembers for each number, also in its notes. They matter
/// only if a restore loses a write that left the bound unchanged. A daemon makes one such write on
/// each new connection. If a restore loses a raise, the lower bound shows the loss.
const REPLACED_MAX: usize = 16;

/// The most writes of unknown outcome that a process remembers for each number, also in its notes. While
/// a coordinator answers reads and does no writes, each try of a start adds one. If a forgotten write is
/// done after all, the number counts as another daemon's until its bound has passed.
pub(crate) const WRITES_MAX: usize = 16;

impl Holding {
    /// Returns a number whose key has not been read yet. One of these writes may be the key's last,
    /// and the coordinator had acknowledged this bound.
    pub fn unseen(writes: Vec<String>, replaced: Vec<String>, acknowledged: u64) -> Self {
        Holding { text: None, acknowledged, writes, replaced }
    }

    /// Returns the value that the next write expects; `None` before the key was read.
    pub fn text(&self) -> Option<&String> {
        self.text.as_ref()
    }

    /// Returns the highest acknowledged bound.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Records a write that is about to be tried. The first write is the one that was found last, and it
    /// is the key's last for as long as no later one is done.
    pub fn try_write(&mut self, write: &str) {
        if self.writes.last().is_none_or(|last| last != write) {
            self.writes.push(write.to_owned());
        }
        if self.writes.len() > WRITES_MAX {
            self.writes.remove(1);
        }
    }

    /// Records that a write of this value was done. A release may have lowered the bound.
    pub fn written(&mut self, text: &str, key: &NumberKey) {
        self.try_write(&key.write);
        self.text = Some(text.to_owned());
        self.acknowledged = if key.released { key.id_bound } else { self.acknowledged.max(key.id_bound) };
        self.forget_before(self.writes.len() - 1);
    }

    /// Lowers the acknowledged bound, before the caller tries a release.
    pub fn lower(&mut self, id_bound: u64) {
        self.acknowledged = self.acknowledged.min(id_bound);
    }

    /// Moves the writes before the write at index `at` to `replaced`. Those writes expect an older
    /// value, so the coordinator can no longer do them.
    fn forget_before(&mut self, at: usize) {
        let before = self.writes.drain(..at).filter(|write| !self.replaced.contains(write));
        let before: Vec<String> = before.collect();
        self.replaced.extend(before);
        let too_many = self.replaced.len().saturating_sub(REPLACED_MAX);
        self.replaced.drain(..too_many);
    }

    /// Returns the writes that may be the key's last.
    pub fn writes(&self) -> &[String] {
        &self.writes
    }

    /// Returns the last writes that the coordinator can no longer do.
    pub fn replaced(&self) -> &[String] {
        &self.replaced
    }

    /// Decides what a value of the key means, for a daemon in this term. `key` is the parsed
    /// `text`.
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
        // A write of this state may be of an earlier term.
        let its_term = if known.is_some() { &key.term } else { term };
        if went_back(Some(&key), its_term, self.acknowledged, &self.replaced) {
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
