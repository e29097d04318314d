//! A daemon at its coordinator: it takes numbers, raises and checks their keys, and releases them. Each call blocks on the
//! coordinator for a bounded time. `rules` decides what the answers mean.

mod clusters;
mod counters;
mod held;
mod look;
mod pick;
mod resume;
mod take;
mod unused;
mod wait;
mod want;

use super::key::{NumberKey, Paths};
use super::notes::{Note, Notes};
use super::rules::{self, Holding, Seen};
use super::{Coordinator, NoAnswer, SWAPS_MAX, Stored, Swap, Swapped, Version};
use counters::HeldCounter;
use held::Held;
use wait::Waiting;

pub use counters::Ranged;
pub use want::{JoinError, Taken, Want};

/// The most tries of one write that is refused because another write of ours came first. Each such refusal needs a lost
/// answer before it.
const TRIES_MAX: usize = 3;

/// A daemon of a fleet. Its coordinator is a box of any kind, or in tests a simulated one, which can be cloned.
#[derive(Clone)]
pub struct Member<C> {
    coordinator: C,
    paths: Paths,
    /// The identity of the state that the numbers belong to.
    state: String,
    /// The daemon's name for people.
    holder: String,
    notes: Notes,
    /// Draws the identity of a write: never the same twice, not even in two copies of this process's memory.
    draw: fn() -> String,
    sources: Vec<Held>,
    /// Sources that started without the coordinator, and hand out nothing until they have their numbers.
    waiting: Vec<Waiting>,
    /// The start bounds of sources that have their numbers now.
    late_starts: Vec<Bound>,
    /// The writes by which this process tried to take numbers.
    first_writes: Vec<String>,
    /// The shared counters.
    counters: Vec<HeldCounter>,
    /// True once the endpoints need no comparison: each new connection shows its cluster.
    are_compared: bool,
}

/// A bound to write for the source of this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The source's index.
    pub source: usize,
    /// The ID bound.
    pub id_bound: u64,
}

/// The end of a call that needed the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raised {
    /// The keys are this daemon's, and what had to be written is written.
    Done,
    /// Nothing is known of the outcome.
    NoAnswer(NoAnswer),
    /// A number is lost, for this reason.
    Lost(String),
}

/// The keys of a source, as they were read.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    /// True if an answer about one of them was older than an earlier one.
    is_stale: bool,
    /// The highest bound in newer answers.
    id_bound: u64,
}

/// Why a call ends early: the coordinator did not answer, or a number or a counter is lost.
enum Stop {
    NoAnswer(NoAnswer),
    Lost(String),
}

impl From<NoAnswer> for Stop {
    /// In another cluster, other daemons may have the numbers, and its answers about this daemon's keys mean nothing.
    fn from(answer: NoAnswer) -> Self {
        match answer.is_foreign {
            true => Stop::Lost(answer.reason),
            false => Stop::NoAnswer(answer),
        }
    }
}

impl From<Result<(), Stop>> for Raised {
    fn from(result: Result<(), Stop>) -> Self {
        match result {
            Ok(()) => Raised::Done,
            Err(Stop::NoAnswer(answer)) => Raised::NoAnswer(answer),
            Err(Stop::Lost(reason)) => Raised::Lost(reason),
        }
    }
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Makes a member that holds nothing yet. `draw` gives the identity of each write.
    pub fn new(
        coordinator: C,
        name: &str,
        (state, holder): (&str, &str),
        notes: Notes,
        draw: fn() -> String,
    ) -> Self {
        let (paths, state, holder) = (Paths::of(name), state.to_owned(), holder.to_owned());
        let (sources, waiting, late_starts, first_writes, counters, are_compared) = Default::default();
        Member {
            coordinator,
            paths,
            state,
            holder,
            notes,
            draw,
            sources,
            waiting,
            late_starts,
            first_writes,
            counters,
            are_compared,
        }
    }

    /// Asks the coordinator in a hurry from now on: see [`Coordinator::hurry`].
    pub fn hurry(&mut self) {
        self.coordinator.as_mut().hurry();
    }

    /// Returns the notes of its writes, as they are durable.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns bounds with the sources' indices in this member instead of those in the daemon.
    fn placed(&self, bounds: &[Bound]) -> Vec<Bound> {
        let place = |index| self.sources.iter().position(|held| held.index == index);
        let placed =
            bounds.iter().map(|bound| Bound { source: place(bound.source).unwrap_or(usize::MAX), ..*bound });
        placed.collect()
    }

    /// Raises the bounds of sources. `generation` changes when a grant is taken away. The write then gets a new identity,
    /// so that of two copies of this process's memory only one finds its own.
    pub fn raise(&mut self, bounds: &[Bound], generation: u64) -> Raised {
        let mut bounds = self.placed(bounds);
        for bound in &mut bounds {
            let Some(held) = self.sources.get_mut(bound.source) else { continue };
            // A source that had to wait may have taken its numbers with a higher bound than the one that was asked for
            // meanwhile. A start without the coordinator continues up to that bound, so no key may sink below it.
            bound.id_bound = bound.id_bound.max(held.floor).max(held.acknowledged);
            if held.trying.is_none() || held.generation != generation {
                if held.generation != generation {
                    // A snapshot may have been restored: another copy may continue under the same ceiling.
                    (held.covered, held.acknowledged) = (0, 0);
                }
                held.generation = generation;
                self.draw_write(bound.source);
            }
        }
        let raised = bounds.iter().try_for_each(|&bound| self.write(bound, false));
        self.ended(raised)
    }

    /// Returns the end of a call. A daemon that has lost a number ends, and the next start must ask.
    fn ended(&mut self, result: Result<(), Stop>) -> Raised {
        if matches!(result, Err(Stop::Lost(_))) {
            self.forget_ceilings();
        }
        Raised::from(result)
    }

    /// Takes groups of numbers, each with a bound. Returns for each group whether the coordinator holds the bound at all
    /// keys of the group. All are false for a source that went on without asking.
    ///
    /// # Errors
    /// The coordinator did not answer.
    pub fn holds(&mut self, source: usize, stretches: &[(Vec<u64>, u64)]) -> Result<Vec<bool>, NoAnswer> {
        let held = self.sources.iter().find(|held| held.index == source && held.is_claimed);
        let Some(place) = held.map(|held| held.place) else {
            return Ok(vec![false; stretches.len()]);
        };
        let key = |&number| self.paths.number(place, number);
        let keys: Vec<String> = stretches.iter().flat_map(|(numbers, _)| numbers).map(key).collect();
        let mut found = self.coordinator.as_mut().read(&keys)?.into_iter();
        let mut is_held = |id_bound| {
            let key = found.next().flatten().and_then(|stored| NumberKey::parse(&stored.text).ok());
            rules::holds(key.as_ref(), id_bound)
        };
        // No short cut: each group uses up all its keys.
        let all = |(numbers, id_bound): &(Vec<u64>, u64)| {
            numbers.iter().fold(true, |held, _| is_held(*id_bound) && held)
        };
        Ok(stretches.iter().map(all).collect())
    }

    /// Releases the numbers: each key gets the bound below which IDs were handed out, and is free at once. The state must
    /// have that bound already. The notes drop the higher bound first.
    ///
    /// # Errors
    /// This state keeps the numbers until their bounds have passed.
    pub fn release(&mut self, bounds: &[Bound]) -> Result<(), String> {
        for Bound { source, id_bound } in self.placed(bounds) {
            let Some(held) = self.sources.get_mut(source) else { continue };
            held.covered = 0;
            let bound = Bound { source, id_bound: id_bound.max(held.floor) };
            self.draw_write(source);
            self.note(source).map_err(|error| format!("cannot note it in the state directory: {error}"))?;
            match Raised::from(self.write(bound, true)) {
                Raised::Done => {}
                Raised::NoAnswer(NoAnswer { reason, .. }) | Raised::Lost(reason) => return Err(reason),
            }
        }
        Ok(())
    }

    /// Reads a source's keys: all, or those of unknown version.
    fn read(&mut self, source: usize, is_unknown_alone: bool) -> Result<Read, Stop> {
        self.check_marker(source)?;
        let mut read = Read::default();
        let Some(held) = self.sources.get(source) else { return Ok(read) };
        let wanted = |(_, holding): &&(u64, Holding)| !is_unknown_alone || holding.version().is_none();
        let wanted: Vec<u64> = held.numbers.iter().filter(wanted).map(|(number, _)| *number).collect();
        if wanted.is_empty() {
            return Ok(read);
        }
        let keys: Vec<String> = wanted.iter().map(|&number| self.paths.number(held.place, number)).collect();
        let found = self.coordinator.as_mut().read(&keys)?;
        let is_current = self.coordinator.as_mut().reads_are_current();
        let held = &mut self.sources[source];
        for (number, stored) in wanted.iter().zip(&found) {
            let Some(at) = held.numbers.iter().position(|(held, _)| held == number) else { continue };
            match held.numbers[at].1.see(stored.as_ref(), is_current) {
                Seen::Ours(key) => {
                    read.id_bound = read.id_bound.max(key.id_bound);
                }
                Seen::Stale => read.is_stale = true,
                Seen::Lost(loss) => return Err(held.lost(at, &loss)),
            }
        }
        Ok(read)
    }

    /// Writes a bound to all keys of a source.
    fn write(&mut self, bound: Bound, is_release: bool) -> Result<(), Stop> {
        self.read(bound.source, true)?;
        let Some(held) = self.sources.get(bound.source) else {
            return Err(Stop::NoAnswer(NoAnswer::passing("the source has no worker number in the fleet")));
        };
        let mut id_bound = u64::MAX;
        for from in (0..held.numbers.len()).step_by(SWAPS_MAX) {
            id_bound = id_bound.min(self.write_chunk(bound, from, is_release)?);
        }
        let held = &mut self.sources[bound.source];
        (held.trying, held.is_claimed) = (None, true);
        held.acknowledged = id_bound;
        held.covered = if is_release { 0 } else { id_bound };
        // Without the note a later start needs the coordinator's answer. Nothing else is lost.
        let _ = self.note(bound.source);
        Ok(())
    }

    /// Writes a bound to the keys of a source from this one on, as many as fit one swap. Returns the bound that they have
    /// then: only a release lowers a bound that is found meanwhile.
    fn write_chunk(&mut self, mut bound: Bound, from: usize, is_release: bool) -> Result<u64, Stop> {
        let write = self.sources[bound.source].trying.clone().unwrap_or_default();
        for _ in 0..TRIES_MAX {
            let swaps = self.swaps(bound, from, &write, is_release);
            // Noted before it is tried, so that a start recognises it. Without the note, a start must wait until the bound
            // has passed.
            let _ = self.note(bound.source);
            match self.coordinator.as_mut().swap(&swaps)? {
                Swapped::Done(version) => {
                    self.done(bound.source, from, version, &write);
                    return Ok(bound.id_bound);
                }
                Swapped::Refused(found) => {
                    if self.is_done(bound, from, &found, &write)? {
                        return Ok(bound.id_bound);
                    }
                    let found = found.iter().map(|stored| take::bound_of(stored.as_ref()));
                    bound.id_bound = found.filter(|_| !is_release).fold(bound.id_bound, u64::max);
                }
            }
        }
        Err(Stop::NoAnswer(NoAnswer::passing("the key changes with each answer")))
    }

    fn swaps(&mut self, bound: Bound, from: usize, write: &str, is_release: bool) -> Vec<Swap> {
        let held = &mut self.sources[bound.source];
        let first = NumberKey::new(&self.state, &self.holder, &held.source, held.since_unix_s);
        let key =
            NumberKey { write: write.to_owned(), id_bound: bound.id_bound, released: is_release, ..first };
        let (text, place) = (key.text(), held.place);
        let swap = |(number, holding): &mut (u64, Holding)| {
            holding.try_write(write);
            let (key, expected) = (self.paths.number(place, *number), holding.version());
            Swap { key, expected, text: text.clone() }
        };
        held.numbers[from..].iter_mut().take(SWAPS_MAX).map(swap).collect()
    }

    fn done(&mut self, source: usize, from: usize, version: Version, write: &str) {
        let numbers = self.sources[source].numbers[from..].iter_mut().take(SWAPS_MAX);
        numbers.for_each(|(_, holding)| holding.written(version, write));
    }

    /// Returns whether a refused swap was done before: its answer was lost.
    fn is_done(
        &mut self,
        bound: Bound,
        from: usize,
        found: &[Option<Stored>],
        write: &str,
    ) -> Result<bool, Stop> {
        let mut is_done = true;
        let held = &mut self.sources[bound.source];
        for (at, stored) in (from..).zip(found) {
            match held.numbers[at].1.see(stored.as_ref(), true) {
                Seen::Ours(key) => is_done &= key.write == write && key.id_bound == bound.id_bound,
                Seen::Stale => is_done = false,
                Seen::Lost(loss) => return Err(held.lost(at, &loss)),
            }
        }
        Ok(is_done)
    }

    fn note(&mut self, source: usize) -> std::io::Result<()> {
        let Some(held) = self.sources.get(source) else { return Ok(()) };
        self.notes.set(held.note());
        self.notes.save()
    }
}

#[cfg(test)]
mod replaced;
#[cfg(test)]
mod resumed;
#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
