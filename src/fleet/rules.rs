//! The rules of a fleet: which daemon may take a number, where it starts, and what each answer of the coordinator means.
//! Pure: times and answers come in, decisions go out.
//!
//! Four facts keep IDs unique:
//! - Everything that was granted under a key is below the key's bound: a bound is written before it is granted.
//! - A daemon that takes a number starts at the key's bound. It continues below that bound only if its own state made the
//!   key's last write, and this machine remembers that no copy of the state was granted more ([`Proof::Newest`]).
//! - A start that does not ask continues below the bound that was acknowledged last, if this machine also remembers that no
//!   stop has returned the number ([`Proof::Held`], `member::resume`). So it has only what the daemon before it had.
//! - A daemon that finds a key with a write that is not its own hands out nothing more.
//!
//! So a number may be taken from a daemon that still runs: both have their own positions. The clock only decides when a
//! number counts as abandoned.

use std::fmt;
use std::time::Duration;

use super::key::{KeyError, NumberKey};
use super::{Stored, Version};
use crate::ceiling::{Fate, Mark};
use crate::clock::{self, Now};
use crate::numbering::Numbering;
use snowbank_client::layout::{Position, Tick, UnixMicros};

/// The start of a source under a number that it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The number was never used in this fleet.
    New,
    /// The number is this state's, and nothing was written since: the source continues at its own ceiling.
    Resume,
    /// The source starts at this bound, or above.
    Above(u64),
}

/// A daemon that wants a number.
#[derive(Clone, Copy, Debug)]
pub struct Taker<'a> {
    /// The writes of this state that may be the number's last. Empty if the state may be an older copy.
    pub writes: &'a [String],
    /// The wall clock.
    pub wall: UnixMicros,
    /// The distance that IDs may be ahead of the wall clock.
    pub max_ahead: Duration,
}

/// A number is another daemon's.
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
    /// None: the state may be an older copy.
    None,
    /// Nothing above the state's ceiling was granted on this machine. But a clean stop has returned a worker ID since, so only
    /// the coordinator knows whose it is.
    Newest,
    /// Nothing above the state's ceiling was granted on this machine, and the worker IDs were not returned.
    Held,
}

/// Returns the proof for a state with this many worker IDs. `stored` is its ceiling. `marks` are this machine's: they are
/// written with each grant, and a copy of the state does not contain them.
///
/// A copy that starts on another machine finds no marks, so it starts at the key's bound, with a new write of its own. So
/// everything granted under a noted write was granted on this machine.
pub fn proof(marks: &[Mark], worker_ids: usize, state: &str, stored: u64) -> Proof {
    let is_covered = |mark: &Mark| mark.state == state && !mark.is_released() && mark.id_bound <= stored;
    if marks.len() != worker_ids || !marks.iter().all(is_covered) {
        return Proof::None;
    }
    match marks.iter().any(|mark| mark.fate == Fate::Returned) {
        true => Proof::Newest,
        false => Proof::Held,
    }
}

/// Decides whether a number may be taken. `until` is the instant of the key's bound.
///
/// # Errors
/// Another daemon holds the number, and the clock has not come near its bound.
pub fn take(key: Option<&NumberKey>, until: UnixMicros, taker: Taker<'_>) -> Result<Taking, Held> {
    let Some(key) = key else { return Ok(Taking::New) };
    if taker.writes.contains(&key.write) {
        return Ok(Taking::Resume);
    }
    let max_ahead_us = clock::micros(taker.max_ahead);
    // A live holder's bound is minutes ahead.
    if key.released || until.0 < taker.wall.0.saturating_add(max_ahead_us) {
        return Ok(Taking::Above(key.id_bound));
    }
    let free_at = UnixMicros(until.0.saturating_sub(max_ahead_us));
    Err(Held { key: Box::new(key.clone()), free_at })
}

/// Returns whether the coordinator holds a bound for the next holder of the number: a state's record of it may go.
pub fn holds(key: Option<&NumberKey>, id_bound: u64) -> bool {
    key.is_some_and(|key| key.id_bound >= id_bound)
}

/// Returns the fleet's ceiling to write for a source: its horizon ahead of the wall clock and of its newest ID.
pub fn ceiling(numbering: &Numbering, now: Now, id_time: UnixMicros, horizon: Duration) -> Position {
    let reach = now.wall.max(id_time).0.saturating_add(clock::micros(horizon));
    numbering.first_of(Tick(numbering.tick_at(UnixMicros(reach)).0.saturating_add(1)))
}

/// Returns whether half of the horizon below a fleet's ceiling is used up. It is then raised, even if no client asks.
pub fn is_due(
    numbering: &Numbering,
    ceiling: Position,
    now: Now,
    id_time: UnixMicros,
    horizon: Duration,
) -> bool {
    left(numbering, ceiling, now.wall.max(id_time)) <= horizon / 2
}

/// Returns the time from an instant to a ceiling.
pub fn left(numbering: &Numbering, ceiling: Position, from: UnixMicros) -> Duration {
    let until = numbering.start_of(numbering.tick_of(ceiling));
    Duration::from_micros(until.0.saturating_sub(from.0).max(0).unsigned_abs())
}

/// The reason why a number is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The key is gone.
    Gone,
    /// Another daemon wrote it.
    Taken(Box<NumberKey>),
    /// The coordinator has an older value than the one that it had acknowledged.
    RolledBack,
    /// The value cannot be read.
    Unreadable(KeyError),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Gone => f.write_str("its key is gone from the coordinator"),
            Loss::Taken(key) if key.released => write!(f, "it was released ({})", key.holder),
            Loss::Taken(key) => write!(f, "{} has it now", key.holder),
            Loss::RolledBack => f.write_str("the coordinator went back to an older value of its key"),
            Loss::Unreadable(error) => write!(f, "its key: {error}"),
        }
    }
}

/// The meaning of an answer about a held number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The last write of the key is one of ours: this one.
    Ours(Box<NumberKey>),
    /// The answer is older than an earlier one, so it is ignored.
    Stale,
    /// The number is not ours any more.
    Lost(Loss),
}

/// A number that this daemon holds: the version and the writes by which it recognises its key.
#[derive(Clone, Debug)]
pub struct Holding {
    version: Option<Version>,
    /// Writes of this state that may be the key's last. Those before the last known one are dropped.
    writes: Vec<String>,
}

impl Holding {
    /// Returns a number whose key has not been read yet. As far as this daemon knows, one of these writes was the key's
    /// last.
    pub fn unseen(writes: Vec<String>) -> Self {
        Holding { version: None, writes }
    }

    /// Returns a number whose key has this version, by this write.
    pub fn seen(version: Version, write: String) -> Self {
        Holding { version: Some(version), writes: vec![write] }
    }

    /// Returns the version that the next write expects; `None` before the key was read.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Notes a write that is about to be tried.
    pub fn try_write(&mut self, write: &str) {
        if self.writes.last().is_none_or(|last| last != write) {
            self.writes.push(write.to_owned());
        }
    }

    /// Notes that a write was done.
    pub fn written(&mut self, version: Version, write: &str) {
        self.try_write(write);
        self.version = Some(version);
        self.forget_before(self.writes.len() - 1);
    }

    /// Forgets the writes before this one. They expected an older version, so they can never be done any more.
    fn forget_before(&mut self, at: usize) {
        self.writes.drain(..at);
    }

    /// Returns the writes that may be the key's last.
    pub fn writes(&self) -> &[String] {
        &self.writes
    }

    /// Decides what an answer means. `is_current`: it was the newest value at that moment, as in the answer to a swap. A
    /// plain read may lag.
    pub fn see(&mut self, stored: Option<&Stored>, is_current: bool) -> Seen {
        let Some(stored) = stored else { return Seen::Lost(Loss::Gone) };
        let is_older = self.version.is_some_and(|version| stored.version < version);
        if is_older {
            return if is_current { Seen::Lost(Loss::RolledBack) } else { Seen::Stale };
        }
        let key = match NumberKey::parse(&stored.text) {
            Ok(key) => key,
            Err(error) => return Seen::Lost(Loss::Unreadable(error)),
        };
        let Some(at) = self.writes.iter().position(|write| *write == key.write) else {
            return Seen::Lost(Loss::Taken(Box::new(key)));
        };
        self.forget_before(at);
        self.version = Some(stored.version);
        Seen::Ours(Box::new(key))
    }
}

#[cfg(test)]
mod tests;
