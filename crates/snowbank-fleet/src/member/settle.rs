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
//!
//! A pause is made of steps. The daemon's other calls come between them.

use std::time::Duration;

use super::marker::marker_changes;
use super::{Bound, Clocks, Held, Member, NoAnswer};
use crate::line::ANSWER_TIMEOUT;
use crate::{Coordinator, FleetError, Swap, Swapped, noticed_within, rules};
use snowbank_core::clock::BootMicros;

/// A daemon tries to compare the marker and the keys at most this many times. A try fails if a
/// value has changed or no answer comes.
const TRIES_MAX: usize = 3;

/// The time from one question to the next in a pause. If the coordinator stalls, the taker asks at
/// most this long after the stall began, and gets the answer when the stall ends. The pause then
/// lasts longer than ten such answers. If the stall is longer than a second, ten such answers take
/// longer than the stall. A shorter stall does not matter, because [`noticed_within`] always allows
/// for two seconds.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A pause of sources that have taken numbers or raised passed bounds.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The indices of the sources in the daemon.
    sources: Vec<usize>,
    /// The lowest bounds at which sources start that have taken numbers, once the pause is over.
    pub floors: Vec<Bound>,
    /// `None` before the first step.
    progress: Option<Progress>,
}

impl Pause {
    /// Returns the pause of the sources with these indices, which has not begun. It is over at once
    /// without a source.
    pub fn of(sources: Vec<usize>) -> Pause {
        Pause { sources, floors: Vec::new(), progress: None }
    }
}

/// The progress of a pause.
#[derive(Clone, Copy, Debug)]
struct Progress {
    began: BootMicros,
    /// When the next question is due. The time until its answer counts from here, even if the thread
    /// that asks is late or asks again, because the coordinator may have stalled meanwhile.
    due: BootMicros,
    /// When the next step is due. A call before it asks nothing, so no caller can shorten a pause.
    step_due: BootMicros,
    /// The slowest answer so far.
    slowest: Duration,
}

impl Progress {
    /// Returns the length of the pause, which follows from the slowest answer so far.
    fn length(&self) -> Duration {
        noticed_within(self.slowest)
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Begins a pause, or goes on with it. Each call asks the coordinator a question or two, unless it
    /// comes too early. Returns the time after which the next call is due, or `None` when the pause is
    /// over. Sources that have been given back or forgotten meanwhile pause no longer.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, a source that serves has lost a number, or the
    /// coordinator did not answer in time. The pause has failed.
    pub fn settle(&mut self, pause: &mut Pause, clocks: Clocks) -> Result<Option<Duration>, FleetError> {
        let places = pause.sources.iter().filter_map(|&index| self.place_of(index));
        let pausing: Vec<usize> =
            places.filter(|&source| self.sources[source].released_by.is_none()).collect();
        if pausing.is_empty() {
            return Ok(None);
        }
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        self.set_clocks(clocks);
        let mut paused = self.pause_on(&mut pause.progress, &pausing);
        if paused == Ok(None) {
            let ended = pausing.iter().try_for_each(|&source| self.end_pause(source, &mut pause.floors));
            paused = ended.map(|()| None);
        }
        // After a loss, this forgets the ceilings, so that the next start asks.
        self.concluded(&pause.sources, paused)
    }

    /// Checks that the numbers which these sources took are still this daemon's, right before they
    /// hand out anything. The start may have waited for peers, for storage, or for connections to end.
    /// From then on, the loss of one of their numbers ends the daemon.
    ///
    /// # Errors
    /// Another daemon holds one of the numbers by now, a source that serves has lost a number, or the
    /// coordinator did not answer.
    pub fn check_taken(&mut self, starting: &[usize], clocks: Clocks) -> Result<(), FleetError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
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
        // Since such a source went on, another one may have found a loss.
        let mut unasked = self.sources.iter().filter(|held| !held.is_claimed && held.covered == 0);
        if unasked.any(|held| starting.contains(&held.index)) {
            let reason = "the coordinator went back, and the fleet's floor is not raised yet";
            return Err(FleetError::NoAnswer(NoAnswer::passing(reason)));
        }
        self.idle.retain(|index| !starting.contains(index));
        // An earlier start may have ended in doubt.
        (self.doubt)(false);
        Ok(())
    }

    /// Goes on with a pause, which lasts as long as other daemons need to notice a lost write, and
    /// then compares the keys of these sources. The slowest answer decides how long the pause is. In
    /// the pause the daemon polls, because it is a holder too. Returns the time after which the next
    /// call is due, or `None` when the pause is over.
    fn pause_on(
        &mut self,
        pause: &mut Option<Progress>,
        sources: &[usize],
    ) -> Result<Option<Duration>, FleetError> {
        /// The shortest wait between two questions, even if polls take longer than their period.
        const PART_MIN: Duration = Duration::from_millis(100);
        let now = self.coordinator.as_mut().now();
        let pause =
            pause.get_or_insert(Progress { began: now, due: now, step_due: now, slowest: Duration::ZERO });
        if now < pause.step_due {
            return Ok(Some(pause.step_due.since(now)));
        }
        let passed = now.since(pause.began);
        let is_over = passed >= pause.length();
        let answered = if is_over { self.compare_after(pause, sources) } else { self.ask_in(pause) };
        let part = match answered {
            // All tries count as one slow answer, because daemons that lost a write get no answer in
            // that time either.
            Err(FleetError::NoAnswer(reason)) if !reason.is_lasting && !self.is_too_long(pause) => ASK_EVERY,
            Err(error) => return Err(error),
            // The wait before the comparison ends with a sleep, and not with an answer. So other
            // daemons have had enough time to notice a loss.
            Ok(()) if is_over && passed >= pause.length() => return Ok(None),
            Ok(()) => {
                let left = pause.length().saturating_sub(pause.due.since(pause.began));
                let part = self.poll_due_in().clamp(PART_MIN, ASK_EVERY).min(left);
                pause.due = pause.due.after(part);
                part
            }
        };
        pause.step_due = self.coordinator.as_mut().now().after(part);
        Ok(Some(part))
    }

    /// Asks a question in a pause.
    fn ask_in(&mut self, pause: &mut Progress) -> Result<(), FleetError> {
        self.ask(pause, Self::poll_if_due)?;
        self.ask(pause, Self::ask_for_marker)
    }

    /// Compares the marker and the keys of these sources at the end of a pause.
    fn compare_after(&mut self, pause: &mut Progress, sources: &[usize]) -> Result<(), FleetError> {
        self.ask(pause, Self::follow_writes)?;
        for &source in sources {
            self.ask(pause, Self::poll_if_due)?;
            self.ask(pause, |member| member.compare(source))?;
        }
        Ok(())
    }

    /// Asks the coordinator, and counts the time since the question was due.
    fn ask(
        &mut self,
        pause: &mut Progress,
        question: impl Fn(&mut Self) -> Result<(), FleetError>,
    ) -> Result<(), FleetError> {
        let asked = self.coordinator.as_mut().now();
        let late = asked.since(pause.due);
        let answered = question(self);
        let now = self.coordinator.as_mut().now();
        let took = now.since(pause.due);
        pause.slowest = pause.slowest.max(took);
        answered?;
        pause.due = now;
        if self.is_too_long(pause) {
            return Err(FleetError::NoAnswer(NoAnswer::passing(format!(
                "a question was {late:.1?} late, and its answer took {:.1?}, which makes the pause before new worker IDs are used \
                 longer than allowed: {:.1?}; find out why the state's disk (if the question was late) or the coordinator is \
                 slow, or give all daemons a longer fleet.horizon",
                now.since(asked),
                self.longest_pause()
            ))));
        }
        Ok(())
    }

    /// Returns the longest time that a pause may take. `max_ahead` is at most a sixth of the horizon, so
    /// a bound has not passed yet after two thirds of a horizon. An answer that takes longer than
    /// `ANSWER_TIMEOUT` counts as an outage.
    fn longest_pause(&self) -> Duration {
        (self.limits.horizon() * 2 / 3).min(noticed_within(ANSWER_TIMEOUT))
    }

    fn is_too_long(&self, pause: &Progress) -> bool {
        pause.length() > self.longest_pause()
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

    /// Ends the pause of a source. A source that serves goes on if its passed bound is above the
    /// fleet's floor. One that starts does so above the fleet's floor.
    fn end_pause(&mut self, source: usize, floors: &mut Vec<Bound>) -> Result<(), FleetError> {
        if let Some(passed) = self.sources[source].passed {
            self.check_floor(source, passed)?;
        } else {
            let fleets_floor = self.known_marker()?.marker.floor();
            let held = &mut self.sources[source];
            held.floor = held.floor.max(rules::bound_above(&held.numbering, fleets_floor));
            floors.push(Bound { source: held.index, id_bound: held.floor });
        }
        let held = &mut self.sources[source];
        (held.is_unsettled, held.passed) = (false, None);
        // If the note is not durable before the daemon is killed, the next start pauses again.
        self.store_note(source);
        Ok(())
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
