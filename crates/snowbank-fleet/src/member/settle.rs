//! The pause of a daemon after it has taken a number that it did not hold.
//!
//! A coordinator that went back may show numbers as free although their holders still run. Each
//! holder polls its keys. So a holder whose write was lost soon notices the loss, and raises the
//! floor. A taker writes its key, waits as long as holders need to notice a loss
//! ([`noticed_within`]), and compares the marker and its keys again before it hands out anything.
//! Answers may become slow during the wait. So the taker keeps asking, and the slowest answer sets
//! the length of the pause. The taker polls too, because its write has made it a holder. A start
//! that goes on with its own number usually does not wait.
//!
//! A daemon whose bound has passed, because the daemon slept or the coordinator was away, pauses in
//! the same way when it raises the bound. Another daemon may have taken the number after the bound
//! had passed, and the coordinator may have lost that daemon's write.

use std::time::Duration;

use super::marker::marker_changes;
use super::{Bound, Clocks, Held, Member, NoAnswer, Taken};
use crate::line::ANSWER_TIMEOUT;
use crate::{Coordinator, FleetError, Swap, Swapped, noticed_within, rules};

/// A daemon tries to compare the marker and the keys at most this many times. A try fails if a
/// value has changed or no answer comes.
const TRIES_MAX: usize = 3;

/// The time from one question to the next in a pause. If the coordinator stalls, the taker asks at
/// most this long after the stall began, and gets the answer when the stall ends. The pause then
/// lasts longer than ten such answers. If the stall is longer than a second, ten such answers take
/// longer than the stall. A shorter stall does not matter, because [`noticed_within`] always allows
/// for two seconds.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The progress of a pause.
struct Pause {
    passed: Duration,
    /// The slowest answer so far.
    slowest: Duration,
    /// The longest time that the pause may take.
    longest: Duration,
}

impl Pause {
    /// Returns the length of the pause, which follows from the slowest answer so far.
    fn length(&self) -> Duration {
        noticed_within(self.slowest)
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Pauses if one of these sources must ([`Taken::is_new`]). After the pause, raises their
    /// floors to the fleet's floor.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, or the coordinator did not answer.
    pub fn settle(&mut self, taken: &mut [Option<Taken>], clocks: Clocks) -> Result<(), FleetError> {
        if !taken.iter().flatten().any(|taken| taken.is_new) {
            return Ok(());
        }
        self.set_clocks(clocks);
        let claimed: Vec<usize> =
            (0..self.sources.len()).filter(|&source| self.sources[source].is_claimed).collect();
        let paused = self.pause_and_compare(&claimed);
        // After a loss, `tried` forgets the ceilings, so that the next start asks.
        self.tried(paused)?;
        for (index, taken) in taken.iter_mut().enumerate() {
            if let Some(taken) = taken.as_mut().filter(|taken| taken.is_new) {
                taken.floor = self.settled_floor(index, taken.floor)?;
            }
        }
        Ok(())
    }

    /// Checks that the numbers which these sources took are still this daemon's, right before they
    /// hand out anything. The start may have waited for peers, for storage, or for connections to end.
    /// From then on, the loss of one of their numbers ends the daemon.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, or the coordinator did not answer.
    pub fn check_taken(&mut self, starting: &[usize], clocks: Clocks) -> Result<(), FleetError> {
        self.set_clocks(clocks);
        for source in 0..self.sources.len() {
            let Held { index, is_claimed, .. } = self.sources[source];
            // A source that went on without asking is compared by its first poll.
            if is_claimed && starting.contains(&index) {
                // Another source may run already, and must soon notice a loss.
                let compared = self.poll_if_due().and_then(|()| self.compare(source));
                self.concluded(&[index], compared)?;
            }
        }
        self.idle.retain(|index| !starting.contains(index));
        Ok(())
    }

    /// Waits as long as other daemons need to notice a lost write, and then compares the keys of
    /// these sources. The slowest answer decides how long the wait is. During the wait the daemon
    /// polls, because it is a holder too.
    pub(super) fn pause_and_compare(&mut self, sources: &[usize]) -> Result<(), FleetError> {
        // `max_ahead` is at most a sixth of the horizon, so the bound has not passed yet after two
        // thirds of a horizon. An answer that takes longer than `ANSWER_TIMEOUT` counts as an
        // outage.
        let longest = (self.limits.horizon() * 2 / 3).min(noticed_within(ANSWER_TIMEOUT));
        let mut pause = Pause { passed: Duration::ZERO, slowest: Duration::ZERO, longest };
        loop {
            self.wait(&mut pause)?;
            let passed = pause.passed;
            self.ask(&mut pause, Self::follow_writes)?;
            for &source in sources {
                self.ask(&mut pause, Self::poll_if_due)?;
                self.ask(&mut pause, |member| member.compare(source))?;
            }
            if passed >= pause.length() {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, pause: &mut Pause) -> Result<(), FleetError> {
        /// The shortest wait between two questions, even if polls take longer than their period.
        const PART_MIN: Duration = Duration::from_millis(100);
        let mut asked_at = self.coordinator.as_mut().now();
        while pause.passed < pause.length() {
            self.ask(pause, Self::poll_if_due)?;
            let now = self.coordinator.as_mut().now();
            if now.since(asked_at) >= ASK_EVERY {
                asked_at = now;
                self.ask(pause, Self::ask_for_marker)?;
            }
            // The wait ends with a sleep, and not with an answer. So when the comparison follows,
            // other daemons have had enough time to notice a loss.
            let left = pause.length().saturating_sub(pause.passed);
            let part = self.poll_due_in().clamp(PART_MIN, ASK_EVERY).min(left);
            self.coordinator.as_mut().pause(part);
            pause.passed += part;
        }
        Ok(())
    }

    /// Asks the coordinator until it answers. All tries count as one slow answer, because daemons
    /// that lost a write get no answer in that time either.
    fn ask(
        &mut self,
        pause: &mut Pause,
        question: impl Fn(&mut Self) -> Result<(), FleetError>,
    ) -> Result<(), FleetError> {
        let asked_at = pause.passed;
        loop {
            let began = self.coordinator.as_mut().now();
            let answer = question(self);
            pause.passed += self.coordinator.as_mut().now().since(began);
            let took = pause.passed - asked_at;
            pause.slowest = pause.slowest.max(took);
            let is_late = pause.length() > pause.longest;
            match answer {
                Err(FleetError::NoAnswer(reason)) if is_late || reason.is_lasting => {
                    return Err(FleetError::NoAnswer(reason));
                }
                Err(FleetError::NoAnswer(_)) => {
                    self.coordinator.as_mut().pause(ASK_EVERY);
                    pause.passed += ASK_EVERY;
                }
                Ok(()) if is_late => {
                    return Err(FleetError::NoAnswer(NoAnswer::passing(format!(
                        "an answer took {took:.1?}, which makes the pause before new worker IDs are used longer than allowed: \
                         {:.1?}; find out why the coordinator is slow, or give all daemons a longer fleet.horizon",
                        pause.longest
                    ))));
                }
                ended => return ended,
            }
        }
    }

    /// Writes the marker's text again, so that the next comparison sees every floor that another
    /// daemon wrote before. A swap that writes nothing would not be enough: etcd may answer such a
    /// swap while a raised floor still waits for the slow disk of etcd's log.
    fn follow_writes(&mut self) -> Result<(), FleetError> {
        let text = self.known_marker()?.text.clone();
        let swap = Swap::write(self.paths.marker(), Some(text.clone()), text);
        self.coordinator.as_mut().swap(&[swap])?;
        Ok(())
    }

    fn ask_for_marker(&mut self) -> Result<(), FleetError> {
        self.coordinator.as_mut().read_one(&self.paths.marker())?;
        Ok(())
    }

    /// Pauses after a raise. `passed` has the bounds that had passed before they were raised.
    pub(super) fn settle_again(&mut self, passed: &[Bound]) -> Result<(), FleetError> {
        if passed.is_empty() {
            return Ok(());
        }
        let sources: Vec<usize> = passed.iter().map(|bound| bound.source).collect();
        self.pause_and_compare(&sources)?;
        for &bound in passed {
            self.check_floor(bound)?;
            self.sources[bound.source].is_unsettled = false;
            self.store_note(bound.source);
        }
        Ok(())
    }

    /// Returns the bound at which a source starts after its pause.
    fn settled_floor(&mut self, index: usize, floor: u64) -> Result<u64, FleetError> {
        let Some(at) = self.sources.iter().position(|held| held.index == index) else { return Ok(floor) };
        let fleets_floor = self.known_marker()?.marker.floor();
        let held = &mut self.sources[at];
        held.floor = floor.max(rules::bound_above(&held.numbering, fleets_floor));
        held.is_unsettled = false;
        let floor = held.floor;
        // If the note is not durable before the daemon is killed, the next start pauses again.
        self.store_note(at);
        Ok(floor)
    }

    /// Checks that the marker has its known value, and that this daemon made the last writes of a
    /// source's keys. Uses a swap, because a read may lag behind writes.
    pub(super) fn compare(&mut self, source: usize) -> Result<(), FleetError> {
        let mut stop = FleetError::NoAnswer(marker_changes());
        for _ in 0..TRIES_MAX {
            match self.compare_once(source) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(FleetError::NoAnswer(answer)) if !answer.is_foreign => {
                    stop = FleetError::NoAnswer(answer);
                }
                Err(lost) => return Err(lost),
            }
        }
        Err(stop)
    }

    /// Returns `false` if the marker or a key no longer has its known value.
    fn compare_once(&mut self, source: usize) -> Result<bool, FleetError> {
        let held = &self.sources[source];
        let mut swaps = vec![Swap::compare(self.paths.marker(), Some(self.known_marker()?.text.clone()))];
        for (number, holding) in &held.numbers {
            swaps.push(Swap::compare(self.paths.number(held.place, *number), holding.text().cloned()));
        }
        let Swapped::Refused(found) = self.coordinator.as_mut().swap(&swaps)? else { return Ok(true) };
        let mut found = found.into_iter();
        let seen = self.see_marker(source, found.next().flatten());
        self.or_went_back(seen)?;
        for (at, text) in found.enumerate() {
            self.see(source, at, text.as_deref())?;
        }
        Ok(false)
    }
}
