//! An operator's commands at a coordinator: prepare a fleet, list its numbers, free a number, set a
//! counter.

mod spaces;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::cluster;
use super::counter::CounterKey;
use super::key::{self, FleetLimits, Marker, NumberKey, Paths};
use super::member::{check_start, first_numbering, instant_of};
use super::rules;
use super::{Coordinator, FleetError, KeyError, NumberRange, Swap, Swapped};
use snowbank_id::layout::{Layout, UnixMicros};

pub use spaces::{Begins, Prepared, Preparing, above};

/// A worker ID at the coordinator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// The ID space.
    pub space: String,
    /// The number in that space.
    pub number: u64,
    /// `held`, `released`, `unreadable`, or `free` (held until an instant that has passed).
    pub state: &'static str,
    /// The holder's name for people, or why the key cannot be read.
    pub holder: String,
    /// The source that uses the number.
    pub source: String,
    /// When the holder took the number.
    pub since_unix_s: i64,
    /// The lowest ID that was not granted.
    pub id_bound: String,
    /// The instant of `id_bound`.
    pub until: String,
    /// True if a daemon can take the number now. After an operator's release, a number is free only
    /// once the clock is near its bound.
    #[serde(skip)]
    pub is_free: bool,
}

/// The name of the writer in a counter that `snowbank ticket set` has written.
const COUNTER_SETTER: &str = "snowbank ticket set";

/// The name of the holder in a key that `snowbank fleet release` has written in place of a value
/// that it could not read.
const UNKNOWN_HOLDER: &str = "a daemon whose key could not be read";

/// An operator's request to free a number.
#[derive(Clone, Copy, Debug)]
pub struct Freeing<'a> {
    /// The identity of the write.
    pub write: &'a str,
    /// The wall clock.
    pub now: UnixMicros,
    /// True to free the number even if its holder may still run.
    pub is_forced: bool,
    /// True if the command may lower a bound that is ahead of all right clocks. The operator knows
    /// that no IDs so far ahead were handed out.
    pub is_lowering: bool,
}

impl Freeing<'_> {
    /// Returns the bound at which the next holder starts: the key's bound. If the key cannot be
    /// read (`None`), returns the highest bound that daemons accept. If `is_lowering` is true,
    /// returns at most a bound above all IDs that can have been granted by right clocks.
    ///
    /// # Errors
    /// The key's bound is too far ahead for any clock, and `is_lowering` is false. A daemon whose
    /// clock was ahead may have been granted that bound.
    fn granted(&self, layout: &Layout, key: Option<&NumberKey>, marker: &Marker) -> Result<u64, KeyError> {
        let numbering = first_numbering(layout);
        let from = self.now.max(marker.floor());
        let reach = marker.reach();
        let Some(key) = key else {
            return Ok(rules::bound_above(&numbering, rules::latest(from, reach)));
        };
        if self.is_lowering {
            let longest_reach = reach.max(key.limits.reach());
            let floor = rules::floor_after_loss(self.now, marker.floor(), longest_reach);
            return Ok(key.id_bound.min(rules::bound_above(&numbering, floor)));
        }
        rules::check_bound(&numbering, key, from, reach).map(|()| key.id_bound)
    }
}

/// Returns the refusal of a marker that cannot be used.
fn bad_marker(key: &str, error: &KeyError) -> FleetError {
    let way_out = match error {
        KeyError::Garbage(_) => {
            "; if it cannot be put right, stop all daemons of the fleet, delete its keys, and go on as after lost data \
             (docs/fleet.md)"
        }
        _ => "",
    };
    FleetError::Refused(format!("key {key}: {error}{way_out}"))
}

/// An operator's access to a fleet.
pub struct Operator<'c> {
    /// The coordinator.
    pub coordinator: &'c mut dyn Coordinator,
    /// The fleet's name.
    pub name: &'c str,
}

impl Operator<'_> {
    fn marker(&mut self) -> Result<(Marker, String), FleetError> {
        let (key, found) = self.read_marker_text()?;
        let marker = found.map(|text| Ok((Marker::parse(&text)?, text))).transpose();
        marker.map_err(|error| bad_marker(&key, &error))?.ok_or_else(|| FleetError::no_marker(&key))
    }

    fn read_marker_text(&mut self) -> Result<(String, Option<String>), FleetError> {
        let key = Paths::of(self.name).marker();
        let found = self.coordinator.read_one(&key)?;
        Ok((key, found))
    }

    /// Reads the marker for a command that writes it again.
    fn read_marker(&mut self) -> Result<Option<(Marker, String)>, FleetError> {
        let (key, found) = self.read_marker_text()?;
        let marker = found.map(|text| Ok((key::parse_to_replace(&text)?, text))).transpose();
        marker.map_err(|error| bad_marker(&key, &error))
    }

    /// Checks what a start checks before it takes a number. The endpoints lead to one cluster, the
    /// fleet has these limits, and a daemon can have written its floor.
    ///
    /// # Errors
    /// The marker is missing, a start would be refused, or the coordinator did not answer.
    pub fn check(&mut self, limits: FleetLimits, now: UnixMicros) -> Result<(), FleetError> {
        let key = Paths::of(self.name).marker();
        cluster::compare(self.coordinator, &key, Marker::identity_in)?;
        let (marker, _) = self.marker()?;
        check_start(&marker, &key, limits, now)
    }

    /// Checks that the endpoints lead to one cluster, by the key of a shared counter.
    ///
    /// # Errors
    /// The endpoints belong to two clusters.
    pub fn check_counter(&mut self, source: &str) -> Result<(), FleetError> {
        cluster::compare(self.coordinator, &Paths::of(self.name).counter(source), CounterKey::identity_in)
    }

    /// Lists all numbers of a layout's ID space that were ever used.
    ///
    /// # Errors
    /// The fleet lacks the space, or the coordinator did not answer.
    pub fn list(&mut self, layout: &Layout, now: UnixMicros) -> Result<Vec<Entry>, FleetError> {
        let (marker, _) = self.marker()?;
        let (place, space) = self.place(&marker, layout, Marker::place_of)?;
        let prefix = Paths::of(self.name).space(place);
        let mut entries = Vec::new();
        for (key, text) in self.coordinator.list(&prefix)? {
            if let Some(number) = key.strip_prefix(&prefix).and_then(|number| number.parse().ok()) {
                entries.push(entry(&space, number, (&key, &text), layout, now));
            }
        }
        entries.sort_by_key(|entry| entry.number);
        Ok(entries)
    }

    fn place(
        &self,
        marker: &Marker,
        layout: &Layout,
        find: impl Fn(&Marker, &str) -> Option<usize>,
    ) -> Result<(usize, String), FleetError> {
        let space = layout.space().to_string();
        let place = find(marker, &space).ok_or_else(|| {
            let name = self.name;
            let known = marker.shown();
            FleetError::Refused(format!(
                "the fleet {name:?} lacks this ID space: found {space}, allowed: {known}"
            ))
        })?;
        Ok((place, space))
    }

    /// Returns the key of a shared counter.
    ///
    /// # Errors
    /// The counter does not exist or cannot be read, or the coordinator did not answer.
    pub fn counter(&mut self, source: &str) -> Result<CounterKey, FleetError> {
        let (key, found) = self.read_counter_text(source)?;
        let found = found.as_deref().map(CounterKey::parse).transpose();
        let found = found.map_err(|error| FleetError::Refused(format!("key {key}: {error}")))?;
        found.ok_or_else(|| {
            FleetError::Refused(format!(
                "source {source:?}: no counter at the coordinator (key {key}): `snowbank ticket set` makes one"
            ))
        })
    }

    /// Sets a shared counter above `value`, the highest number that was handed out. `write` is the
    /// identity of this write. `is_lowering` is true if the operator knows that the key's value is
    /// wrong.
    ///
    /// # Errors
    /// The command is refused, or the coordinator did not answer.
    pub fn set_counter(
        &mut self,
        source: &str,
        value: u64,
        write: &str,
        is_lowering: bool,
    ) -> Result<(), FleetError> {
        let (key, before) = self.read_counter_text(source)?;
        let found = match before.as_deref().map(key::parse_to_replace::<CounterKey>).transpose() {
            Ok(found) => found,
            Err(_) if is_lowering => None,
            Err(error) => {
                return Err(FleetError::Refused(format!(
                    "source {source:?}: key {key}: {error}; with --lower, the command overwrites the key, and daemons that use this counter end"
                )));
            }
        };
        if let Some(found) = found.as_ref().filter(|found| found.next > value + 1 && !is_lowering) {
            let highest = found.next - 1;
            let writer = &found.writer;
            return Err(FleetError::Refused(format!(
                "source {source:?}: found {value}, allowed: from {highest} on, because the coordinator's key {key} shows that numbers up to \
                 {highest} may have been handed out ({writer} wrote it); if the key is wrong, and no number above {value} was \
                 handed out, add --lower"
            )));
        }
        // A lowered counter gets a new identity, so that daemons that took numbers from it end at
        // their next check.
        let identity = found.as_ref().filter(|_| !is_lowering).map_or(write, |found| &found.counter);
        let range = NumberRange { from: value + 1, to: value + 1 };
        let text = CounterKey::new(identity, range, write, COUNTER_SETTER).text();
        match self.coordinator.swap(&[Swap::write(key, before, text.clone())])? {
            Swapped::Done => Ok(()),
            // The first try was done, and its answer was lost.
            Swapped::Refused(found) if found.first() == Some(&Some(text)) => Ok(()),
            Swapped::Refused(_) => Err(FleetError::Refused(format!(
                "source {source:?}: a daemon took numbers at the same time; try again with a higher value"
            ))),
        }
    }

    fn read_counter_text(&mut self, source: &str) -> Result<(String, Option<String>), FleetError> {
        let key = Paths::of(self.name).counter(source);
        let found = self.coordinator.read_one(&key)?;
        Ok((key, found))
    }

    /// Frees a number. The number's holder stops handing out IDs when it notices the release. The
    /// next holder starts at the number's bound. If the holder may still run, `freeing.is_forced`
    /// must be true.
    ///
    /// A key that cannot be read gets the highest bound that daemons accept.
    ///
    /// Returns the former holder's name for people, unless the key could not be read, and the instant
    /// from which a daemon can take the number.
    ///
    /// # Errors
    /// The command is refused, or the coordinator did not answer.
    pub fn release(
        &mut self,
        layout: &Layout,
        number: u64,
        freeing: Freeing<'_>,
    ) -> Result<(Option<String>, UnixMicros), FleetError> {
        let (marker, before) = self.marker()?;
        let (place, _) = self.place(&marker, layout, Marker::index_of)?;
        let key = Paths::of(self.name).number(place, number);
        let refused = |reason: &dyn fmt::Display| {
            FleetError::Refused(format!("worker ID {number} (key {key}): {reason}"))
        };
        let stored = self.coordinator.read_one(&key)?.ok_or_else(|| refused(&"nobody holds it"))?;
        let parse = if freeing.is_forced { NumberKey::parse } else { key::parse_to_replace };
        let parsed = parse(&stored);
        let id_bound = freeing.granted(layout, parsed.as_ref().ok(), &marker);
        let holder = parsed.as_ref().ok().map(|held| held.holder.clone());
        let held = match parsed {
            Ok(held) => held,
            // The former holder finds another term that began at this bound. So it does not
            // conclude that the coordinator went back.
            Err(_) if freeing.is_forced => NumberKey {
                id_bound: u64::MAX,
                from: id_bound.clone().map_err(|error| refused(&error))?,
                ..NumberKey::new("", UNKNOWN_HOLDER, "", freeing.now.0.div_euclid(1_000_000))
            },
            Err(error) => {
                return Err(refused(&format_args!("{error}; with --force, the command overwrites it")));
            }
        };
        let until = instant_of(layout, held.id_bound);
        if held.released && id_bound.as_ref().is_ok_and(|&bound| bound >= held.id_bound) {
            return Err(refused(&format_args!(
                "it is released already (holder: {}), and can be taken once a clock is near {}; if no such IDs were \
                 handed out, --lower lowers a ceiling that is too far ahead",
                held.holder,
                until.rfc3339(0)
            )));
        }
        if until > freeing.now && !held.released && !freeing.is_forced {
            return Err(refused(&format_args!(
                "{} may still run, and holds this worker ID until {}; stop that daemon, or add --force: the daemon ends when it notices",
                held.holder,
                until.rfc3339(0)
            )));
        }
        let id_bound = id_bound.map_err(|error| refused(&error))?;
        // The key keeps the holder's term. So if the coordinator had acknowledged a higher bound to
        // the holder, the holder notices that the coordinator lost that bound.
        let highest = held.highest.max(id_bound);
        let write = freeing.write.to_owned();
        let released = NumberKey { write, released: true, id_bound, highest, ..held };
        let free_at = rules::free_at(&released, instant_of(layout, id_bound), Duration::MAX);
        let swaps = [
            Swap::compare(Paths::of(self.name).marker(), Some(before.clone())),
            Swap::write(key.clone(), Some(stored), released.text()),
        ];
        match self.coordinator.swap(&swaps)? {
            Swapped::Done => Ok((holder, free_at)),
            // The first try was done, and its answer was lost.
            Swapped::Refused(found) if found.get(1) == Some(&Some(released.text())) => Ok((holder, free_at)),
            Swapped::Refused(found) if found.first() != Some(&Some(before)) => {
                Err(refused(&"the fleet's marker has just changed; try again"))
            }
            Swapped::Refused(_) => Err(refused(&"its key has just changed: its holder runs")),
        }
    }
}

fn entry(space: &str, number: u64, (name, text): (&str, &str), layout: &Layout, now: UnixMicros) -> Entry {
    let space = space.to_owned();
    match NumberKey::parse(text) {
        Ok(key) => {
            let until = instant_of(layout, key.id_bound);
            let state = if key.released {
                "released"
            } else if until > now {
                "held"
            } else {
                "free"
            };
            let is_free = rules::free_at(&key, until, Duration::MAX) < now;
            let id_bound = key.id_bound.to_string();
            let until = until.rfc3339(0);
            let NumberKey { holder, source, since_unix_s, .. } = key;
            Entry { space, number, state, holder, source, since_unix_s, id_bound, until, is_free }
        }
        Err(error) => {
            let holder = format!("key {name}: {error}");
            Entry { space, number, state: "unreadable", holder, ..Entry::default() }
        }
    }
}
