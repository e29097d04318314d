//! The shared counters of a daemon at its coordinator: takes ranges of numbers, and checks the keys.

use super::{Member, Stop};
use crate::fleet::counter::{Claim, Counter, CounterKey, NumberRange, Step};
use crate::fleet::{Cluster, Coordinator, NoAnswer, Stored, Swap, Swapped};
use crate::numbering::Numbering;

/// The most tries to take one range, each after another daemon was faster.
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

/// The end of a request for a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranged {
    /// The numbers are this daemon's.
    Taken(NumberRange),
    /// Nothing is known of the outcome.
    NoAnswer(NoAnswer),
    /// The counter cannot go on, for this reason.
    Lost(String),
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Adds the shared counter of the source of this index and name. All numbers below `floor` may have been handed out.
    pub fn add_counter(&mut self, (index, source): (usize, &str), numbering: &Numbering, floor: u64) {
        let (key, counter) = (self.paths.counter(source), Counter::new(numbering.clone(), floor));
        self.counters.push(HeldCounter { index, source: source.to_owned(), key, counter });
    }

    /// Takes a range of `count` numbers for the source of this index. `generation` changes when its grant is lost.
    pub fn take_range(&mut self, index: usize, count: u64, generation: u64) -> Ranged {
        match self.try_take_range(index, (count, generation)) {
            Ok(range) => Ranged::Taken(range),
            Err(Stop::NoAnswer(answer)) => Ranged::NoAnswer(answer),
            Err(Stop::Lost(reason)) => {
                self.forget_ceilings();
                Ranged::Lost(reason)
            }
        }
    }

    fn try_take_range(&mut self, index: usize, wanted: (u64, u64)) -> Result<NumberRange, Stop> {
        let Some(at) = self.counters.iter().position(|held| held.index == index) else {
            return Err(Stop::NoAnswer(NoAnswer::passing("the source has no counter in the fleet")));
        };
        let key = self.counters[at].key.clone();
        self.compare_counters(at)?;
        let mut found = self.read_key(&key)?;
        if let Some(Ok(cluster)) =
            found.as_ref().map(|stored| Cluster::of(&key, &stored.text, CounterKey::identity_in))
        {
            self.stay_in(cluster);
        }
        let mut is_current = self.coordinator.as_mut().reads_are_current();
        for _ in 0..TRIES_MAX {
            let claim = match self.step(at, (found.as_ref(), is_current), wanted)? {
                Step::Ours(range) => return Ok(range),
                Step::Verify => None,
                Step::Write(claim) => Some(claim),
            };
            let swap = self.swap_of(at, claim.as_ref(), found.as_ref())?;
            match self.coordinator.as_mut().swap(std::slice::from_ref(&swap))? {
                Swapped::Done(_) if claim.is_none() => {
                    let held = &self.counters[at];
                    return Err(held.lost(&held.counter.went_back(&swap.text)));
                }
                Swapped::Done(_) => {
                    return self.counters[at]
                        .counter
                        .done()
                        .ok_or_else(|| Stop::NoAnswer(NoAnswer::passing("the range was given up")));
                }
                Swapped::Refused(now) => (found, is_current) = (now.into_iter().next().flatten(), true),
            }
        }
        Err(Stop::NoAnswer(NoAnswer::passing("other daemons take ranges all the time")))
    }

    /// Checks that all endpoints have the same counter, unless they were compared before.
    fn compare_counters(&mut self, at: usize) -> Result<(), Stop> {
        if !self.are_compared {
            let key = self.counters[at].key.clone();
            self.compare_at(&key, CounterKey::identity_in)
                .map_err(|reason| self.counters[at].lost(&reason))?;
        }
        Ok(())
    }

    /// Returns the write of a claim, or of the same value at its version.
    fn swap_of(&self, at: usize, claim: Option<&Claim>, found: Option<&Stored>) -> Result<Swap, Stop> {
        let held = &self.counters[at];
        let (expected, text) = match (claim, found) {
            (Some(claim), _) => (claim.expected, held.counter.text(claim, &self.holder)),
            (None, Some(stored)) => (stored.version, stored.text.clone()),
            (None, None) => return Err(held.lost(&"its counter is gone")),
        };
        Ok(Swap { key: held.key.clone(), expected: Some(expected), text })
    }

    fn step(&mut self, at: usize, found: (Option<&Stored>, bool), wanted: (u64, u64)) -> Result<Step, Stop> {
        let (held, draw) = (&mut self.counters[at], self.draw);
        held.counter.step(found, wanted, draw).map_err(|loss| held.lost(&loss))
    }

    /// Checks the keys of all shared counters.
    pub(super) fn look_at_counters(&mut self) -> Result<(), Stop> {
        if self.counters.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = self.counters.iter().map(|held| held.key.clone()).collect();
        let (found, is_current) =
            (self.coordinator.as_mut().read(&keys)?, self.coordinator.as_mut().reads_are_current());
        self.counters.iter_mut().zip(&found).try_for_each(|(held, stored)| {
            held.counter.check((stored.as_ref(), is_current)).map(drop).map_err(|loss| held.lost(&loss))
        })
    }

    fn read_key(&mut self, key: &String) -> Result<Option<Stored>, NoAnswer> {
        Ok(self.coordinator.as_mut().read(std::slice::from_ref(key))?.into_iter().next().flatten())
    }
}

impl HeldCounter {
    /// Returns the reason why the counter cannot go on, in words.
    fn lost(&self, loss: &impl std::fmt::Display) -> Stop {
        Stop::Lost(format!("source {:?} (key {}): {loss}", self.source, self.key))
    }
}
