//! A source that wants numbers, and the numbers that it may take by the rules.

use std::time::Duration;

use crate::clock::{self, BootMicros, Now};
use crate::fleet::rules::{self, Proof, Taker, Taking};
use crate::fleet::{NoAnswer, NumberKey, Stored};
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, LayoutError, UnixMicros, WorkerSet};

/// A source that wants numbers.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The source's index in the daemon.
    pub index: usize,
    /// The source's name.
    pub source: &'a str,
    /// Its layout.
    pub layout: &'a Layout,
    /// The wall clock, as far as it is believed.
    pub wall: UnixMicros,
    /// The proof that the state may continue with the worker IDs that it had.
    pub proof: Proof,
    /// The distance that IDs may be ahead of the wall clock.
    pub max_ahead: Duration,
    /// The distance that the fleet's ceiling is kept ahead.
    pub horizon: Duration,
}

/// Numbers that were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The worker IDs.
    pub worker_ids: WorkerSet,
    /// The lowest ID bound at which the source may start. 0: it starts at its own ceiling.
    pub floor: u64,
    /// The fleet's ceiling, as an ID bound. 0: none is known, and nothing may be handed out before a raise.
    pub covered: u64,
}

/// The reason why a daemon cannot join its fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The coordinator did not answer.
    #[error("the coordinator does not answer: {0}")]
    NoAnswer(NoAnswer),
    /// Only an operator can change it.
    #[error("{0}")]
    Refused(String),
    /// Other daemons hold the numbers now.
    #[error("{0}")]
    Held(String),
    /// This state or a copy of it holds the numbers, and nothing shows that this one is the newest.
    #[error("{0}")]
    Unproven(String),
}

impl From<NoAnswer> for JoinError {
    fn from(answer: NoAnswer) -> Self {
        JoinError::NoAnswer(answer)
    }
}

impl Want<'_> {
    pub(super) fn numbering(&self, worker_ids: &WorkerSet) -> Result<Numbering, JoinError> {
        let made = Numbering::new(self.layout.clone(), worker_ids.clone());
        made.map_err(|error: LayoutError| JoinError::Refused(format!("source {:?}: {error}", self.source)))
    }

    /// Decides whether a key's number may be taken.
    pub(super) fn judge(
        &self,
        numbering: &Numbering,
        stored: Option<&Stored>,
        writes: &[String],
    ) -> Result<Taking, Busy> {
        let key = stored.map(|stored| NumberKey::parse(&stored.text)).transpose();
        let key = key.map_err(|error| Busy::Unreadable(error.to_string()))?;
        let until = key.as_ref().map_or(self.wall, |key| instant(numbering, key.id_bound));
        let taker = Taker { writes, wall: self.wall, max_ahead: self.max_ahead };
        rules::take(key.as_ref(), until, taker).map_err(Busy::Held)
    }

    /// Returns whether a source could hand out IDs at once under a number whose key is as found. A number that an operator
    /// released is free, and its bound may be minutes ahead.
    pub(super) fn is_ready(&self, numbering: &Numbering, stored: Option<&Stored>, writes: &[String]) -> bool {
        let reach = self.wall.0.saturating_add(clock::micros(self.max_ahead));
        match self.judge(numbering, stored, writes) {
            Ok(Taking::Above(bound)) => instant(numbering, bound).0 < reach,
            Ok(Taking::New | Taking::Resume) => true,
            Err(_) => false,
        }
    }

    /// Returns the bound of the first write: a horizon above the source's start, and no lower than the keys' bounds.
    /// Repeated starts do not push it up: it is never further ahead of the clock than `max_ahead` and a horizon, unless a
    /// key is.
    pub(super) fn first_bound(&self, numbering: &Numbering, floor: u64, lowest: u64) -> u64 {
        let now = Now { wall: self.wall, boot: BootMicros(0), jumped: false };
        let from = instant(numbering, floor).min(now.after(self.max_ahead).wall);
        numbering.id_bound(rules::ceiling(numbering, now, from, self.horizon)).max(lowest.max(floor))
    }
}

/// Why a number is not free.
pub(super) enum Busy {
    Held(rules::Held),
    Unreadable(String),
}

/// Returns the instant at which the clock is past all IDs below a bound.
fn instant(numbering: &Numbering, bound: u64) -> UnixMicros {
    numbering.start_of(numbering.tick_of(numbering.position_from(bound)))
}
