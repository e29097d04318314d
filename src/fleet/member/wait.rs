//! Sources that start while the coordinator does not answer, without a proof that they may go on. They hand out nothing until
//! they have taken their numbers, by the rules of a start.

use std::time::Duration;

use super::{Bound, Clocks, Member, NoAnswer, Note, Raised, Stop};
use crate::fleet::Coordinator;
use crate::fleet::member::want::{JoinError, Taken, Want};
use crate::fleet::rules::Proof;
use snowbank_client::layout::{Layout, WorkerSet};

/// A source that waits for its numbers.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    index: usize,
    source: String,
    layout: Layout,
    worker_ids: WorkerSet,
    /// The proof that the start had. Meanwhile this machine remembers the state as the newest, which proves nothing.
    proof: Proof,
    /// True if another start would take other numbers.
    is_lent: bool,
    max_ahead: Duration,
    horizon: Duration,
}

impl Waiting {
    fn want(&self, clocks: Clocks) -> Want<'_> {
        Want {
            index: self.index,
            source: &self.source,
            layout: &self.layout,
            clocks,
            proof: self.proof,
            max_ahead: self.max_ahead,
            horizon: self.horizon,
        }
    }

    /// Returns whether to go on waiting after an error. What only another start can resolve ends the daemon.
    fn after(&self, error: JoinError) -> Stop {
        match error {
            JoinError::NoAnswer(answer) => Stop::from(answer),
            JoinError::Unproven(reason) if !self.is_lent => Stop::NoAnswer(NoAnswer::passing(reason)),
            JoinError::Unproven(reason)
            | JoinError::Held(reason)
            | JoinError::Unreadable(reason)
            | JoinError::Refused(reason) => Stop::Lost(reason),
        }
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Waits with the worker IDs that this state had. Returns `None` if it had others, or cannot be written.
    ///
    /// From now on this machine remembers the state as the newest. If it may be an older copy, it first forgets its writes:
    /// the next start must not take them for a proof. Those of this process stay: it tried to take the number, had no answer,
    /// and has handed out nothing. The ceiling is forgotten in any case, because the next start would not see what kept this
    /// one from going on.
    pub fn wait_for(&mut self, want: Want<'_>, worker_ids: &WorkerSet, is_lent: bool) -> Option<Taken> {
        let note = self.known(want)?.clone();
        if self.own(want).as_ref() != Some(worker_ids) {
            return None;
        }
        let writes = self.own_of(want).writes;
        let note = Note { writes, covered: 0, ..note };
        let note = match want.proof >= Proof::Newest {
            true => note,
            // What another copy of this state was granted is not this one's.
            false => Note { acknowledged: 0, term: String::new(), ..note },
        };
        self.notes.set(note);
        self.notes.save().ok()?;
        self.waiting.push(Waiting {
            index: want.index,
            source: want.source.to_owned(),
            layout: want.layout.clone(),
            worker_ids: worker_ids.clone(),
            proof: want.proof,
            is_lent,
            max_ahead: want.max_ahead,
            horizon: want.horizon,
        });
        Some(Taken {
            worker_ids: worker_ids.clone(),
            floor: 0,
            covered: 0,
            is_new: false,
            is_same_term: true,
        })
    }

    /// Takes the numbers of sources that wait for them.
    pub fn take_waiting(&mut self, clocks: Clocks) -> Raised {
        let taken = self.take_all_waiting(clocks);
        Raised::from(taken)
    }

    fn take_all_waiting(&mut self, clocks: Clocks) -> Result<(), Stop> {
        let mut taken = Vec::new();
        for waiting in self.waiting.clone() {
            // An earlier try may have taken them, without an answer to its last write.
            self.sources.retain(|held| held.index != waiting.index);
            let one = self.take(waiting.want(clocks), &waiting.worker_ids);
            let mut one = one.map_err(|error| waiting.after(error))?;
            // In an outage a coordinator may have been restored. Then its release may not be the last write of its number,
            // so that it pauses too.
            one.is_new |= !one.is_same_term;
            if let Some(held) = self.sources.last_mut().filter(|_| one.is_new) {
                held.is_unsettled = true;
                let _ = self.note(self.sources.len() - 1);
            }
            taken.push((waiting.index, one));
        }
        if taken.iter().any(|(_, taken)| taken.is_new) {
            self.pause()?;
        }
        for (index, taken) in taken {
            let floor =
                if taken.is_new { self.settled_floor(index, taken.floor, clocks) } else { Ok(taken.floor) };
            let id_bound = floor.map_err(|error| match error {
                JoinError::NoAnswer(answer) => Stop::NoAnswer(answer),
                error => Stop::Lost(error.to_string()),
            })?;
            self.late_starts.push(Bound { source: index, id_bound });
        }
        self.waiting.clear();
        Ok(())
    }

    /// Returns the start bounds of sources that had to wait, by their indices in the daemon.
    pub fn late_starts(&self) -> &[Bound] {
        &self.late_starts
    }
}
