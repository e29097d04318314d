//! An operator at a coordinator: prepares a fleet, lists its numbers, and frees one.

use std::time::Duration;

use serde::Serialize;

use super::counter::CounterKey;
use super::key::{Marker, NumberKey, Paths};
use super::{Coordinator, KeyError, NoAnswer, Stored, Swap, Swapped, Version, rules};
use crate::clock;
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, Space, UnixMicros, WorkerSet};

/// The reason why an operator's command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The coordinator did not answer.
    #[error("the coordinator does not answer: {0}")]
    NoAnswer(NoAnswer),
    /// The command is refused, for this reason.
    #[error("{0}")]
    Refused(String),
}

impl From<NoAnswer> for OperatorError {
    fn from(answer: NoAnswer) -> Self {
        OperatorError::NoAnswer(answer)
    }
}

/// A worker number at the coordinator.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The ID space.
    pub space: String,
    /// The number in that space.
    pub number: u64,
    /// `held`, `released`, `unreadable`, or `free`: held until an instant that has passed.
    pub state: &'static str,
    /// The holder for people, or why the key cannot be read.
    pub holder: String,
    /// The source that uses it.
    pub source: String,
    /// Since when.
    pub since_unix_s: i64,
    /// The lowest ID that was not granted.
    pub id_bound: String,
    /// The instant of that ID; a horizon later if the coordinator may lose writes, unless the number was released.
    pub until: String,
}

/// A fleet as an operator sees it.
pub struct Operator<'c> {
    /// The coordinator.
    pub coordinator: &'c mut dyn Coordinator,
    /// The fleet's name.
    pub name: &'c str,
    /// The distance that its daemons keep their ceilings ahead.
    pub horizon: Duration,
}

impl Operator<'_> {
    /// Writes the marker with these ID spaces. A new one gets this identity. `is_growing` adds those that an existing marker
    /// does not have. Returns whether anything was written.
    ///
    /// # Errors
    /// Another fleet has the name, numbers of a colliding ID space are in use, or the coordinator did not answer.
    pub fn init(
        &mut self,
        spaces: &[String],
        identity: &str,
        is_growing: bool,
    ) -> Result<bool, OperatorError> {
        let key = Paths::of(self.name).marker();
        let found = self.coordinator.read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let known = found.as_ref().map(|stored| Marker::parse(&stored.text)).transpose();
        let known = known.map_err(|error| OperatorError::Refused(format!("key {key}: {error}")))?;
        let mut all = known.as_ref().map(|marker| marker.spaces.clone()).unwrap_or_default();
        let new: Vec<String> = spaces.iter().filter(|space| !all.contains(space)).cloned().collect();
        let is_new = !new.is_empty();
        // An earlier write may have failed because no replica had it. It is confirmed by the same write.
        if !is_new && !self.coordinator.may_lose_writes() {
            return Ok(false);
        }
        if is_new && known.is_some() && !is_growing {
            return Err(OperatorError::Refused(format!(
                "the fleet {:?} has other ID spaces: found {}, this configuration has {} besides; choose another \
                 fleet.name, or add them with --add",
                self.name,
                all.join(", "),
                new.join(", ")
            )));
        }
        self.refuse_colliding(&all, &new, spaces)?;
        all.extend(new);
        let identity = known.map_or_else(|| identity.to_owned(), |marker| marker.identity);
        let expected = found.map(|stored| stored.version);
        let swap = Swap { key, expected, text: Marker::new(&identity, all).text() };
        match self.coordinator.swap(&[swap])? {
            Swapped::Done(_) => Ok(is_new),
            Swapped::Refused(_) => Err(OperatorError::Refused(String::from(
                "another command changed the fleet at the same time; try again",
            ))),
        }
    }

    /// Refuses new ID spaces whose IDs could be those of numbers that are in use in another space of the fleet. Spaces of one
    /// configuration were compared when it was read.
    fn refuse_colliding(
        &mut self,
        known: &[String],
        new: &[String],
        configured: &[String],
    ) -> Result<(), OperatorError> {
        for (place, other) in known.iter().enumerate().filter(|(_, other)| !configured.contains(other)) {
            let Some(space) = new.iter().find(|space| collides(space, other)) else { continue };
            let listed = self.coordinator.list(&Paths::of(self.name).space(place))?;
            let is_held = |text: &str| NumberKey::parse(text).is_ok_and(|key| !key.released);
            let held = listed.iter().filter(|(_, stored)| is_held(&stored.text)).count();
            if held > 0 {
                return Err(OperatorError::Refused(format!(
                    "IDs of the ID space {space} could be those of {other}, where daemons hold numbers ({held}): stop them, \
                     release the numbers of those that are gone (`snowbank fleet release`), and start none with that layout \
                     again; or choose a layout whose epoch is at least a year apart"
                )));
            }
        }
        Ok(())
    }

    /// Returns the fleet's ID spaces.
    ///
    /// # Errors
    /// There is no fleet of this name, or the coordinator did not answer.
    pub fn spaces(&mut self) -> Result<Vec<String>, OperatorError> {
        let key = Paths::of(self.name).marker();
        let found = self.coordinator.read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let stored = found.ok_or_else(|| {
            let name = self.name;
            OperatorError::Refused(format!(
                "no fleet {name:?} at the coordinator (key {key}): `snowbank fleet init` makes one"
            ))
        })?;
        let marker = Marker::parse(&stored.text);
        Ok(marker.map_err(|error| OperatorError::Refused(format!("key {key}: {error}")))?.spaces)
    }

    /// Lists the numbers of a layout's ID space that were ever used.
    ///
    /// # Errors
    /// The fleet does not have the space, or the coordinator did not answer.
    pub fn list(&mut self, layout: &Layout, now: UnixMicros) -> Result<Vec<Entry>, OperatorError> {
        let (place, space) = self.place(layout)?;
        let prefix = Paths::of(self.name).space(place);
        let listed = self.coordinator.list(&prefix)?;
        let number = |key: &str| key.strip_prefix(&prefix)?.parse::<u64>().ok();
        let until = |key: &NumberKey| self.until(layout, key);
        let entry =
            |(key, stored): &(String, Stored)| Some(entry(&space, number(key)?, &stored.text, until, now));
        let mut entries: Vec<Entry> = listed.iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| entry.number);
        Ok(entries)
    }

    /// Returns the instant at which a number's ceiling has passed; a horizon later if the coordinator may lose writes,
    /// unless the number was released.
    fn until(&self, layout: &Layout, key: &NumberKey) -> UnixMicros {
        let numbering = Numbering::new(layout.clone(), WorkerSet::single(0));
        let Ok(numbering) = numbering else { return UnixMicros(i64::MAX) };
        let bound = numbering.start_of(numbering.tick_of(numbering.position_from(key.id_bound)));
        let margin = rules::margin(self.coordinator.may_lose_writes(), key, self.horizon);
        UnixMicros(bound.0.saturating_add(clock::micros(margin)))
    }

    fn place(&mut self, layout: &Layout) -> Result<(usize, String), OperatorError> {
        let (spaces, space) = (self.spaces()?, layout.space().to_string());
        let place = spaces.iter().position(|known| *known == space).ok_or_else(|| {
            let (name, known) = (self.name, spaces.join(", "));
            OperatorError::Refused(format!(
                "the fleet {name:?} has other ID spaces: found {space}, allowed: {known}"
            ))
        })?;
        Ok((place, space))
    }

    /// Returns the key of a shared counter.
    ///
    /// # Errors
    /// There is none, or the coordinator did not answer.
    pub fn counter(&mut self, source: &str) -> Result<CounterKey, OperatorError> {
        let (key, found) = self.read_counter(source)?;
        let found = found.map(|(_, counter)| counter);
        found.ok_or_else(|| {
            OperatorError::Refused(format!(
                "source {source:?}: no counter at the coordinator (key {key}): `snowbank ticket set` makes one"
            ))
        })
    }

    /// Stores the highest number of a shared counter that was handed out: daemons take only later ones. `write` is the
    /// identity of this write, and `writer` the command's name for people.
    ///
    /// # Errors
    /// Higher numbers may have been handed out, or the coordinator did not answer.
    pub fn set_counter(
        &mut self,
        source: &str,
        value: u64,
        (write, writer): (&str, &str),
    ) -> Result<(), OperatorError> {
        let refused = |text: String| OperatorError::Refused(format!("source {source:?}: {text}"));
        if self.coordinator.may_lose_writes() {
            return Err(refused(String::from(
                "this coordinator may lose its last writes, and keeps no counter",
            )));
        }
        let (key, found) = self.read_counter(source)?;
        if let Some((_, CounterKey { next, .. })) =
            found.as_ref().filter(|(_, counter)| counter.next > value + 1)
        {
            let highest = next - 1;
            return Err(refused(format!(
                "found {value}, allowed: from {highest} on, because the coordinator's key {key} shows that numbers up to \
                 {highest} may have been handed out"
            )));
        }
        let identity = found.as_ref().map_or(write, |(_, counter)| &counter.counter);
        let text = CounterKey::new(identity, value + 1, write, writer).text();
        let swap = Swap { key, expected: found.map(|(version, _)| version), text };
        match self.coordinator.swap(&[swap])? {
            Swapped::Done(_) => Ok(()),
            Swapped::Refused(_) => Err(refused(String::from(
                "a daemon took numbers at the same time; try again with a higher value",
            ))),
        }
    }

    fn read_counter(
        &mut self,
        source: &str,
    ) -> Result<(String, Option<(Version, CounterKey)>), OperatorError> {
        let key = Paths::of(self.name).counter(source);
        let found = self.coordinator.read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let counter = found.map(|stored| Ok((stored.version, CounterKey::parse(&stored.text)?))).transpose();
        let counter =
            counter.map_err(|error: KeyError| OperatorError::Refused(format!("key {key}: {error}")))?;
        Ok((key, counter))
    }

    /// Frees a number: its holder stops handing out IDs when it notices, and the next holder starts at its bound. `write`
    /// is the identity of this write. Without `is_forced`, a holder that may still run keeps the number.
    ///
    /// # Errors
    /// The number is not held, its holder may run, or the coordinator did not answer.
    pub fn release(
        &mut self,
        layout: &Layout,
        number: u64,
        (write, now): (&str, UnixMicros),
        is_forced: bool,
    ) -> Result<NumberKey, OperatorError> {
        let (place, _) = self.place(layout)?;
        let key = Paths::of(self.name).number(place, number);
        let found = self.coordinator.read(std::slice::from_ref(&key))?.into_iter().next().flatten();
        let refused = |text: String| OperatorError::Refused(format!("worker number {number}: {text}"));
        let stored = found.ok_or_else(|| refused(String::from("nobody holds it")))?;
        let held = NumberKey::parse(&stored.text).map_err(|error| refused(error.to_string()))?;
        if held.released {
            return Err(refused(format!("it is released already ({})", held.holder)));
        }
        let until = self.until(layout, &held);
        if until > now && !is_forced {
            return Err(refused(format!(
                "{} may still run: its number counts as held until {}; stop it, or release its number with --force, and it \
                 stops when it notices",
                held.holder,
                until.rfc3339(0)
            )));
        }
        // At a coordinator that may lose writes the holder may have been granted more than its key shows.
        let id_bound = held.id_bound.max(bound_at(layout, until));
        let released = NumberKey { write: write.to_owned(), released: true, id_bound, ..held.clone() };
        let swap = Swap { key, expected: Some(stored.version), text: released.text() };
        match self.coordinator.swap(&[swap])? {
            Swapped::Done(_) => Ok(held),
            Swapped::Refused(_) => Err(refused(String::from("its key has just changed: its holder runs"))),
        }
    }
}

/// The most numbers of an ID space that are compared, so that a layout with millions of workers delays no command.
const COMPARED_MAX: u64 = 1 << 16;

/// Returns whether numbers of two ID spaces can make the same IDs at about the same time.
fn collides(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<Space>(), other.parse::<Space>()) else { return false };
    let numbers = |space: &Space| (0..space.numbers().min(COMPARED_MAX)).collect::<Vec<_>>();
    one.runs_beside(&other) && one.collision(&numbers(&one), &other, &numbers(&other)).is_some()
}

/// Returns the bound of the IDs before an instant.
fn bound_at(layout: &Layout, instant: UnixMicros) -> u64 {
    let numbering = Numbering::new(layout.clone(), WorkerSet::single(0));
    numbering.map_or(u64::MAX, |numbering| rules::bound_at(&numbering, instant))
}

fn entry(
    space: &str,
    number: u64,
    text: &str,
    until: impl Fn(&NumberKey) -> UnixMicros,
    now: UnixMicros,
) -> Entry {
    let space = space.to_owned();
    match NumberKey::parse(text) {
        Ok(key) => {
            let until = until(&key);
            let state = match key.released {
                true => "released",
                false if until > now => "held",
                false => "free",
            };
            let (id_bound, until) = (key.id_bound.to_string(), until.rfc3339(0));
            let NumberKey { holder, source, since_unix_s, .. } = key;
            Entry { space, number, state, holder, source, since_unix_s, id_bound, until }
        }
        Err(error) => Entry {
            space,
            number,
            state: "unreadable",
            holder: error.to_string(),
            source: String::new(),
            since_unix_s: 0,
            id_bound: String::new(),
            until: String::new(),
        },
    }
}
