//! A *check* compares a daemon's keys with its last writes, and writes the keys that need a new
//! write. Its first part is a *poll*, which reads the keys. Other jobs poll between their steps
//! whenever a poll is due, so that no job delays a poll for long (`notice`).
//!
//! A check writes the keys of a source once on each new connection, with a new identity. The new
//! identity tells two copies of one memory apart, even if nothing shows that the machine was
//! restored. Two copies cannot share a connection, so at least one of them connects again. Until
//! one copy writes, both recognise the key's last write as their own. Once one copy has written,
//! the other copy does not recognise that write, and ends at its next check. The identity must be
//! made after the connection: both copies may know an identity that was made earlier.
//!
//! A check's write lowers no bound, and grants nothing. While the outcome of a write is unknown, the
//! next check tries the same write again, with the same identity, so that the notes have few writes.
//! If the connection is new, the check after that writes again, with a new identity. If there is no
//! answer, the daemon continues: it ends only if an answer shows a loss. All keys are read before one
//! is written, so a failed write hides no loss.

use std::time::Duration;

use super::{Clocks, Member, Polled, Write};
use crate::{Coordinator, FleetError, POLL_PERIOD};
use snowbank_core::clock::BootMicros;

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Checks that all keys are this daemon's, and writes the keys that need a new write.
    ///
    /// # Errors
    /// The coordinator did not answer, or a number is lost.
    pub fn check(&mut self, clocks: Clocks) -> Result<(), FleetError> {
        self.set_clocks(clocks);
        let checked = self.poll().and_then(|due| self.write_again(&due));
        self.ended(checked)
    }

    /// Returns the time until a poll is due. The first poll is that of the first check. A write
    /// that takes numbers counts as a poll. If the first check has no answer, a poll is due at
    /// once, because the coordinator may have been restored before it answers again.
    pub(super) fn poll_due_in(&mut self) -> Duration {
        let now = self.coordinator.as_mut().now();
        match self.polled {
            None => POLL_PERIOD,
            Some(Polled { is_answered: false, .. }) => Duration::ZERO,
            Some(last) => POLL_PERIOD.saturating_sub(now.since(last.at)),
        }
    }

    /// Records that the keys of all claimed sources were compared at this time. The keys of a
    /// source that went on without asking were not compared.
    pub(super) fn record_taken(&mut self, at: BootMicros) {
        let is_answered = self.sources.iter().all(|held| held.is_claimed);
        self.polled = Some(Polled { at, is_answered });
    }

    /// Polls if a poll is due. Called before each call to the coordinator: see `notice`.
    pub(super) fn poll_if_due(&mut self) -> Result<(), FleetError> {
        if self.poll_due_in().is_zero() { self.poll_again() } else { Ok(()) }
    }

    /// Polls if this process has polled or taken numbers before.
    pub(super) fn poll_again(&mut self) -> Result<(), FleetError> {
        if self.polled.is_some() { self.poll().map(drop) } else { Ok(()) }
    }

    /// Reads all keys at once. Returns the writes that are due, each with the highest bound of the
    /// source's keys.
    ///
    /// A loss of a source that hands out nothing raises the floor, if it shows that the coordinator
    /// went back. Otherwise it is left to the start, which compares its keys.
    pub(super) fn poll(&mut self) -> Result<Vec<Write>, FleetError> {
        let polled = self.poll_once();
        if let Err(error) = &polled
            && error.is_loss()
        {
            self.lose(error.clone());
        }
        polled
    }

    fn poll_once(&mut self) -> Result<Vec<Write>, FleetError> {
        let began = self.coordinator.as_mut().now();
        if self.polled.is_none_or(|last| !last.is_answered) {
            self.polled = Some(Polled { at: began, is_answered: false });
        }
        let mut due = Vec::new();
        let (mut lost, mut is_start_lost) = (None, false);
        for source in 0..self.sources.len() {
            match self.check_marker(source) {
                Err(error) if error.is_loss() && self.is_idle(source) => {
                    is_start_lost |= self.sources[source].released_by.is_none();
                }
                // The keys may still show that the coordinator went back.
                Err(error) if error.is_of_one_key() => lost = lost.or(Some(error)),
                checked => checked?,
            }
        }
        let mut keys = vec![self.paths.marker()];
        for held in &self.sources {
            keys.extend(held.numbers.iter().map(|(number, _)| self.paths.number(held.place, *number)));
        }
        // A daemon with shared counters alone has no numbers, and needs no marker.
        let found =
            if self.sources.is_empty() { Vec::new() } else { self.coordinator.as_mut().read(&keys)? };
        self.polled = Some(Polled { at: began, is_answered: true });
        let mut found = found.into_iter();
        self.poll_marker(found.next().flatten())?;
        for source in 0..self.sources.len() {
            let mut id_bound = 0;
            for at in 0..self.sources[source].numbers.len() {
                match self.see_one(source, at, found.next().flatten().as_deref()) {
                    Ok(key) => id_bound = key.id_bound.max(id_bound),
                    Err(error) if error.is_loss() && self.is_idle(source) => {
                        is_start_lost |= self.sources[source].released_by.is_none();
                    }
                    // The keys that follow may still show that the coordinator went back.
                    Err(error) if error.is_of_one_key() => lost = lost.or(Some(error)),
                    Err(error) => return Err(error),
                }
            }
            let held = &self.sources[source];
            if self.is_idle(source) {
                continue;
            }
            if !held.is_claimed || held.made_on != self.coordinator.as_mut().connections() {
                due.push(Write { at: source, id_bound });
            }
        }
        if is_start_lost {
            self.forget_ceilings();
        }
        if let Some(error) = lost {
            return Err(error);
        }
        self.check_counters()?;
        if !is_start_lost {
            (self.doubt)(false);
        }
        Ok(due)
    }

    pub(super) fn is_idle(&self, source: usize) -> bool {
        self.idle.contains(&self.sources[source].index)
    }

    /// Writes the keys of these sources with the bounds that they have. A write has a new identity,
    /// unless the outcome of an earlier write is unknown.
    fn write_again(&mut self, due: &[Write]) -> Result<(), FleetError> {
        for found in due {
            if self.sources[found.at].trying.is_none() {
                self.renew_write(found.at);
            }
        }
        self.note_writes(due)?;
        due.iter().try_for_each(|&Write { at, id_bound }| {
            let id_bound = id_bound.max(self.sources[at].acknowledged);
            self.write(Write { at, id_bound }, None)
        })
    }

    /// Makes the identity of the next write of a source.
    pub(super) fn renew_write(&mut self, source: usize) {
        let new = (Some((self.new_identity)()), self.coordinator.as_mut().connections());
        let held = &mut self.sources[source];
        held.made_with_us = self.clocks.wall_minus_boot_us;
        (held.trying, held.made_on) = new;
    }
}

#[cfg(test)]
mod tests;
