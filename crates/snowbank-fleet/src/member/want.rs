//! A source that wants numbers, and the decision which of them it may take.

use super::{Bound, Clocks, Note};
use crate::key::check_replaceable;
use crate::rules::{self, Acknowledged, Proof, Taker, Taking};
use crate::{FleetError, FleetLimits, KeyError, NumberKey};
use snowbank_core::clock::{BootMicros, Now};
use snowbank_id::layout::{Layout, LayoutError, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

/// A source that wants numbers.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The source's index in the daemon.
    pub index: usize,
    /// The source's name.
    pub source: &'a str,
    /// The source's layout.
    pub layout: &'a Layout,
    /// The clocks of the start.
    pub clocks: Clocks,
    /// The proof that the state may continue with the worker IDs that it had.
    pub proof: Proof,
}

/// Numbers that were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The worker IDs.
    pub worker_ids: WorkerSet,
    /// The lowest ID at which the source may start. 0: the fleet sets no limit.
    pub floor: u64,
    /// The bound above all IDs that were handed out with these numbers before.
    pub unused_from: u64,
    /// The fleet's ceiling, as an ID bound.
    pub covered: u64,
    /// True if the source must pause before it serves: see
    /// [`Member::settle`](super::Member::settle).
    pub is_new: bool,
    /// True if the source continues its earlier term.
    pub is_same_term: bool,
}

impl Taken {
    /// Returns what a source with this index gives back if no ID of it was handed out. Numbers that
    /// continue an earlier term are kept, because only this state can use them before their bound
    /// has passed.
    pub fn unused(&self, source: usize) -> Option<Bound> {
        (!self.is_same_term).then_some(Bound { source, id_bound: self.unused_from })
    }
}

impl Want<'_> {
    pub(super) fn space(&self) -> String {
        self.layout.space().to_string()
    }

    pub(super) fn worker_ids(&self, numbering: &Numbering) -> WorkerSet {
        numbering.snowflake().map_or_else(|| WorkerSet::single(0), |(_, worker_ids)| worker_ids.clone())
    }

    pub(super) fn numbering(&self, worker_ids: &WorkerSet) -> Result<Numbering, FleetError> {
        let made = Numbering::new(self.layout.clone(), worker_ids.clone());
        made.map_err(|error: LayoutError| FleetError::Refused(format!("source {:?}: {error}", self.source)))
    }

    /// Decides whether a number with this key may be taken.
    pub(super) fn judge(&self, numbering: &Numbering, found: &Found, own: &Own) -> Result<Taking, Busy> {
        let key = found.key.as_ref().map_err(|error| Busy::Unreadable(error.clone()))?;
        check_replaceable::<NumberKey>(found.text.as_deref()).map_err(Busy::Unreadable)?;
        let wall = self.clocks.wall;
        let until = key.as_ref().map_or(wall, |key| rules::instant_of(numbering, key.id_bound));
        if let Some(key) = key {
            let from =
                self.clocks.latest().max(own.floor).max(own.acknowledged_until(numbering, found.number));
            rules::check_bound(numbering, key, from, own.limits.reach()).map_err(Busy::Unreadable)?;
        }
        let noted = own.noted(found.number).filter(|_| self.proof >= Proof::Lost);
        let acknowledged = noted.map(|note| Acknowledged {
            term: &note.term,
            id_bound: note.acknowledged,
            until: rules::instant_of(numbering, note.acknowledged),
        });
        let replaced = noted.map_or(&[][..], |note| &note.replaced);
        let max_ahead = own.limits.max_ahead();
        let latest = self.clocks.latest();
        let taker = Taker { writes: &own.writes, replaced, acknowledged, wall, latest, max_ahead };
        rules::judge(key.as_ref(), until, taker).map_err(Busy::Held)
    }

    /// Returns the bound of the first write: a horizon above the clock or the floor, whichever is
    /// later, and no lower than the keys' bounds. The returned bound is at most `max_ahead` and a
    /// horizon ahead of the clock, unless a key's bound or the floor is further ahead. So repeated
    /// starts do not push the bound further ahead.
    pub(super) fn first_bound(
        &self,
        numbering: &Numbering,
        limits: FleetLimits,
        floor: u64,
        unused_from: u64,
    ) -> u64 {
        let now = Now { wall: self.clocks.wall, boot: BootMicros(0), jumped: false };
        let from = rules::counts_from(now, rules::instant_of(numbering, floor), limits.max_ahead());
        numbering.id_bound(rules::ceiling(numbering, from, limits.horizon())).max(unused_from)
    }
}

/// A number and the value of its key.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) text: Option<String>,
    /// The parsed text. `None`: there is no key.
    pub(super) key: Result<Option<NumberKey>, KeyError>,
}

impl Found {
    pub(super) fn new(number: u64, text: Option<String>) -> Found {
        let key = text.as_deref().map(NumberKey::parse).transpose();
        Found { number, text, key }
    }

    /// Returns the key, if there is one that can be read.
    pub(super) fn readable(&self) -> Option<&NumberKey> {
        self.key.as_ref().ok()?.as_ref()
    }
}

/// The writes of a state, and its note.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// The writes of this state that may be the last write of one of its numbers' keys.
    pub(super) writes: Vec<String>,
    /// The state's note, if the note was made under the present marker's identity.
    pub(super) note: Option<Note>,
    /// The fleet's floor, which may be ahead of all clocks.
    pub(super) floor: UnixMicros,
    pub(super) limits: FleetLimits,
}

impl Own {
    /// Returns the note, if it has this number.
    pub(super) fn noted(&self, number: u64) -> Option<&Note> {
        self.note.as_ref().filter(|note| note.numbers.contains(&number))
    }

    /// Returns the instant of the bound that the coordinator had acknowledged for a number.
    fn acknowledged_until(&self, numbering: &Numbering, number: u64) -> UnixMicros {
        self.noted(number).map_or(UnixMicros(0), |note| rules::instant_of(numbering, note.acknowledged))
    }
}

/// Why a number is not free.
pub(super) enum Busy {
    Held(rules::Held),
    Unreadable(KeyError),
}
