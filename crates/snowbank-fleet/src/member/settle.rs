//! The pause of a daemon that has taken a number which it did not hold.
//!
//! A coordinator that was restored to an older state shows numbers as free whose holders still run. Those that are connected
//! poll their keys, so one of them soon sees that a write of its own is gone, and raises the floor. So a taker writes its key,
//! waits until they have done that ([`noticed_within`]), and compares the marker and its keys again before it hands out
//! anything. It polls meanwhile, because it is a holder too. A start that goes on with its own number does not wait.
//!
//! A daemon whose bound has passed, after a long pause or outage, raises it in the same way: others may have taken the number
//! since, and the coordinator may have lost that.

use super::marker::marker_changes;
use super::take::not_taken;
use super::want::JoinError;
use std::time::Duration;

use super::{Bound, Clocks, Member, NoAnswer, Polled, Stop, Taken};
use crate::{Coordinator, SWAPS_MAX, Swap, Swapped, noticed_within, rules};

/// The part of a horizon that the pause may take. The rest is left to raise the first ceiling.
const PAUSE_PART: u32 = 2;

/// The most tries to compare the marker and the keys, each after a change or without an answer.
const TRIES_MAX: usize = 3;

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Waits, if one of these sources did not hold its numbers before. Raises the start of those to the fleet's floor.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, or the coordinator did not answer.
    pub fn settle(&mut self, taken: &mut [Option<Taken>], clocks: Clocks) -> Result<(), JoinError> {
        if !taken.iter().flatten().any(|taken| taken.is_new) {
            return Ok(());
        }
        let paused = self.pause_and_poll(self.shortest_horizon());
        self.go_on(paused)?;
        let now = self.clocks_now().unwrap_or(clocks);
        self.check_taken(now)?;
        for (index, taken) in taken.iter_mut().enumerate() {
            if let Some(taken) = taken.as_mut().filter(|taken| taken.is_new) {
                taken.floor = self.settled_floor(index, taken.floor)?;
            }
        }
        Ok(())
    }

    /// Checks that the numbers which a start took are still its own: after the pause, and right before it hands out anything.
    /// It may have waited for peers, for storage, or for connections of its wait to end.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, or the coordinator did not answer.
    pub fn check_taken(&mut self, clocks: Clocks) -> Result<(), JoinError> {
        let at = self.coordinator.as_mut().now();
        for source in 0..self.sources.len() {
            if self.sources[source].is_claimed {
                let compared = self.compare(source, clocks);
                self.go_on(compared)?;
            }
        }
        if let Some(polled) = &mut self.polled {
            *polled = Polled { at, clocks, is_answered: true };
        }
        Ok(())
    }

    /// Goes on with a start, unless a number is lost or the coordinator did not answer.
    fn go_on(&mut self, step: Result<(), Stop>) -> Result<(), JoinError> {
        if !matches!(step, Ok(()) | Err(Stop::NoAnswer(_))) {
            // The state may have a ceiling by now, so that the next start would go on below it.
            self.forget_ceilings();
        }
        step.map_err(not_taken)
    }

    fn shortest_horizon(&self) -> Duration {
        self.sources.iter().map(|held| held.horizon).min().unwrap_or_default()
    }

    /// Returns the time in which other daemons notice what they have lost.
    ///
    /// # Errors
    /// The coordinator is too slow for the horizon.
    fn pause_time(&mut self, horizon: Duration) -> Result<Duration, NoAnswer> {
        let answer = self.coordinator.as_mut().answer_time();
        let pause = noticed_within(self.poll_period(), answer);
        if pause > horizon / PAUSE_PART {
            return Err(NoAnswer::passing(format!(
                "an answer took {answer:.1?}, so a pause of {pause:.0?} is needed before a number may be used, allowed: half of \
                 fleet.horizon ({horizon:?}); find out why it is slow, or give all daemons a longer fleet.horizon"
            )));
        }
        Ok(pause)
    }

    /// Waits as long as daemons with this horizon do, and polls meanwhile.
    pub(super) fn pause_and_poll(&mut self, horizon: Duration) -> Result<(), Stop> {
        /// The shortest part of the pause, where polls take longer than their period.
        const PART_MIN: Duration = Duration::from_millis(100);
        let mut left = self.pause_time(horizon)?;
        while !left.is_zero() {
            self.poll_if_due()?;
            let part = self.poll_due_in().max(PART_MIN).min(left);
            self.coordinator.as_mut().pause(part);
            left -= part;
        }
        Ok(())
    }

    /// Waits after a raise, if these bounds had passed before it.
    pub(super) fn settle_again(&mut self, passed: &[Bound], clocks: Clocks) -> Result<(), Stop> {
        if passed.is_empty() {
            return Ok(());
        }
        self.pause_and_poll(self.shortest_horizon())?;
        for &bound in passed {
            self.poll_if_due()?;
            self.compare(bound.source, clocks)?;
            self.check_floor(bound)?;
            self.sources[bound.source].is_unsettled = false;
            let _ = self.note(bound.source);
        }
        Ok(())
    }

    /// Returns the bound at which a source starts, after its keys were compared.
    fn settled_floor(&mut self, index: usize, floor: u64) -> Result<u64, JoinError> {
        let Some(at) = self.sources.iter().position(|held| held.index == index) else { return Ok(floor) };
        let fleets_floor = self.known_marker()?.marker.floor();
        let held = &mut self.sources[at];
        held.floor = floor.max(rules::bound_above(&held.numbering, fleets_floor));
        held.is_unsettled = false;
        let floor = held.floor;
        // Without the note, the next start pauses again.
        let _ = self.note(at);
        Ok(floor)
    }

    /// Checks by a swap, which unlike a read never lags, that the marker is known and the keys of a source are its own.
    pub(super) fn compare(&mut self, source: usize, clocks: Clocks) -> Result<(), Stop> {
        let mut stop = Stop::NoAnswer(marker_changes());
        for _ in 0..TRIES_MAX {
            match self.compare_once(source, clocks) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(Stop::NoAnswer(answer)) => stop = Stop::NoAnswer(answer),
                Err(lost) => return Err(lost),
            }
        }
        Err(stop)
    }

    /// Returns `false` if the marker, or a key, has another value than it was known to have.
    fn compare_once(&mut self, source: usize, clocks: Clocks) -> Result<bool, Stop> {
        let count = self.sources[source].numbers.len();
        for from in (0..count).step_by(SWAPS_MAX) {
            let held = &self.sources[source];
            let mut swaps = vec![Swap::compare(self.paths.marker(), Some(self.known_marker()?.text.clone()))];
            for (number, holding) in held.numbers[from..].iter().take(SWAPS_MAX) {
                swaps.push(Swap::compare(self.paths.number(held.place, *number), holding.text().cloned()));
            }
            if let Swapped::Refused(found) = self.coordinator.as_mut().swap(&swaps)? {
                let mut found = found.into_iter();
                self.see_marker(source, found.next().flatten())?;
                for (at, text) in (from..).zip(found) {
                    self.see(source, at, text.as_deref(), clocks)?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}
