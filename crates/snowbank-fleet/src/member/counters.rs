//! The shared counters of a daemon. The daemon takes ranges of numbers from them, and checks their
//! keys.

use super::{Member, check_current};
use crate::counter::{Counter, CounterKey, CounterLoss, NumberRange, Rest, Step};
use crate::key::check_replaceable;
use crate::{Cluster, Coordinator, FleetError, NoAnswer, Swap, Swapped};
use snowbank_id::numbering::Numbering;

/// A daemon tries to take one range at most this many times. A try fails if another daemon was
/// faster.
const TRIES_MAX: usize = 100;

/// A shared counter of a daemon.
#[derive(Clone, Debug)]
pub(super) struct HeldCounter {
    /// The source's index in the daemon.
    index: usize,
    source: String,
    key: String,
    counter: Counter,
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Adds a source's shared counter. All numbers below `floor` may have been handed out.
    pub fn add_counter(&mut self, index: usize, source: &str, numbering: &Numbering, floor: u64) {
        let key = self.paths.counter(source);
        let counter = Counter::new(numbering.clone(), floor);
        self.counters.push(HeldCounter { index, source: source.to_owned(), key, counter });
    }

    /// Forgets the counters of these sources.
    pub(super) fn forget_counters(&mut self, sources: &[usize]) {
        self.counters.retain(|held| !sources.contains(&held.index));
    }

    /// Takes a range of `count` numbers for the source with this index. `generation` changes when
    /// the source's grant is taken away.
    ///
    /// # Errors
    /// The coordinator did not answer, the counter cannot go on, or a number is lost.
    pub fn take_range(
        &mut self,
        index: usize,
        count: u64,
        generation: u64,
    ) -> Result<NumberRange, FleetError> {
        let taken = self.try_take_range(index, count, generation);
        let is_of_one_key = taken.as_ref().is_err_and(FleetError::is_of_one_key);
        if is_of_one_key && self.idle.contains(&index) && self.lost.is_none() {
            // A source that hands out nothing has lost nothing: its counter may be missing.
            return taken;
        }
        if is_of_one_key {
            // The keys of worker IDs may show that the coordinator went back. Then the daemon must
            // raise the floor before it ends.
            self.begin_doubt();
            let _ = self.poll_again();
        }
        self.concluded(&[index], taken)
    }

    /// Returns the indices of the sources with a shared counter.
    pub(super) fn counted(&self) -> impl Iterator<Item = usize> {
        self.counters.iter().map(|held| held.index)
    }

    fn try_take_range(
        &mut self,
        index: usize,
        count: u64,
        generation: u64,
    ) -> Result<NumberRange, FleetError> {
        let Some(at) = self.counters.iter().position(|held| held.index == index) else {
            return Err(FleetError::NoAnswer(NoAnswer::passing("the source has no counter in the fleet")));
        };
        let key = self.counters[at].key.clone();
        self.compare_at(&key, CounterKey::identity_in)
            .map_err(|error| FleetError::Held(self.counters[at].named(&error.reason())))?;
        let mut found = self.coordinator.as_mut().read_one(&key)?;
        if let Some(Ok(cluster)) = found.as_ref().map(|text| Cluster::of(&key, text, CounterKey::identity_in))
        {
            self.stay_in(cluster);
        }
        for _ in 0..TRIES_MAX {
            self.poll_if_due()?;
            let held = &mut self.counters[at];
            let step = held.counter.step(found.as_ref(), count, generation, self.new_identity);
            let claim = match step.map_err(|loss| held.lost(&loss))? {
                Step::Ours(range) => return Ok(range),
                Step::Verify => {
                    found = self.verify(at, found)?;
                    continue;
                }
                Step::Write(claim) => claim,
            };
            let text = held.counter.text(&claim, &self.holder);
            check_replaceable::<CounterKey>(found.as_deref())
                .map_err(|error| NoAnswer::lasting(self.counters[at].named(&error)))?;
            let swap = Swap::write(key.clone(), found.take(), text.clone());
            match self.coordinator.as_mut().swap(&[swap])? {
                Swapped::Done => return Ok(self.counters[at].counter.done(claim, text, generation)),
                Swapped::Refused(now) => found = now.into_iter().next().flatten(),
            }
        }
        Err(FleetError::NoAnswer(NoAnswer::passing("other daemons were faster at each try")))
    }

    /// Gives the rest of each source's ranges back, where they are still the last of the counter, and
    /// forgets the counters. The caller must have stored the lowest number that was not handed out.
    /// If this fails, the rest is skipped, as after a crash. [`give_back`](Member::give_back) explains
    /// `is_current`.
    ///
    /// # Errors
    /// The coordinator did not answer, so some ranges are perhaps not given back.
    pub fn give_back_ranges(
        &mut self,
        rests: &[Rest],
        is_current: &dyn Fn() -> bool,
    ) -> Result<(), FleetError> {
        // Another source may serve, and must soon notice a loss.
        let polled = self.poll_if_due();
        let mut given = polled.clone();
        for rest in rests {
            let Some(at) = self.counters.iter().position(|held| held.index == rest.source) else { continue };
            // The key may soon have a lower value, which is no loss to a source that has ended.
            let held = self.counters.swap_remove(at);
            let write = (self.new_identity)();
            let Some((expected, text)) = held.counter.give_back(*rest, &write, &self.holder) else {
                continue;
            };
            if polled.is_err() {
                continue;
            }
            let swap = Swap::write(held.key.clone(), Some(expected), text);
            // If another daemon took a range since, its write stays.
            let swapped = check_current(is_current).and_then(|()| self.coordinator.as_mut().swap(&[swap]));
            given = given.and(swapped.map(drop).map_err(FleetError::NoAnswer));
        }
        given
    }

    /// Checks by a swap whether the key really has this value, whose next number is below this
    /// daemon's numbers. If the key has another value, returns that value.
    fn verify(&mut self, at: usize, found: Option<String>) -> Result<Option<String>, FleetError> {
        let key = self.counters[at].key.clone();
        match self.coordinator.as_mut().swap(&[Swap::compare(key, found.clone())])? {
            Swapped::Done => {
                let held = &self.counters[at];
                Err(held.lost(&held.counter.went_back(&found.unwrap_or_default())))
            }
            Swapped::Refused(now) => Ok(now.into_iter().next().flatten()),
        }
    }

    /// Checks the keys of all shared counters.
    pub(super) fn check_counters(&mut self) -> Result<(), FleetError> {
        if self.counters.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = self.counters.iter().map(|held| held.key.clone()).collect();
        let found = self.coordinator.as_mut().read(&keys)?;
        for (at, found) in found.into_iter().enumerate() {
            let held = &mut self.counters[at];
            let is_idle = self.idle.contains(&held.index);
            let checked = held.counter.check(found.as_ref()).map_err(|loss| held.lost(&loss));
            let checked = match checked {
                Ok(None) => self.verify(at, found).map(drop),
                checked => checked.map(drop),
            };
            // A counter that starts has its first poll once it serves.
            if !is_idle || checked.as_ref().is_err_and(|error| !error.is_loss()) {
                checked?;
            }
        }
        Ok(())
    }
}

impl HeldCounter {
    /// Returns the error for a counter that cannot go on.
    fn lost(&self, loss: &CounterLoss) -> FleetError {
        let reason = self.named(loss);
        if loss.is_of_others() { FleetError::Unreadable(reason) } else { FleetError::Held(reason) }
    }

    fn named(&self, loss: &impl std::fmt::Display) -> String {
        format!("source {:?} (key {}): {loss}", self.source, self.key)
    }
}
