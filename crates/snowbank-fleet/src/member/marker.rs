//! The fleet's marker: its ID spaces, and the floor, above which a daemon starts with a number that
//! it did not hold.
//!
//! Each write of a number's key compares the marker, so the write is done only if the daemon knows
//! the newest marker. So once the floor is raised, no daemon starts below it with a number that it
//! did not hold. Once an ID space is replaced, no daemon starts in that space.

use std::time::Duration;

use super::want::Want;
use super::{Clocks, Member, NoAnswer};
use crate::key::{KeyError, REACH_MAX};
use crate::rules;
use crate::{Cluster, Coordinator, FleetError, FleetLimits, Marker, Swap, Swapped};
use snowbank_id::layout::{Layout, Space, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

/// A daemon tries to write the marker at most this many times. A try fails if the marker has
/// changed.
const TRIES_MAX: usize = 10;

/// The marker that a daemon knows. A poll may have read a newer one.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) text: String,
    pub(super) marker: Marker,
}

/// What the coordinator granted to a daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// The instant of the highest acknowledged bound.
    pub(super) until: UnixMicros,
    /// How far ahead of other clocks IDs were granted under those limits.
    pub(super) reach: Duration,
}

/// The reason why an answer shows a key with a lower bound than an acknowledged bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    /// The coordinator went back. The daemon has raised the floor above all grants that the
    /// coordinator has lost.
    WentBack,
    /// The answer was old: the key has another value by now.
    OldAnswer,
}

/// Returns the instant of a bound by worker ID 0, up to a tick after [`rules::instant_of`].
pub(crate) fn instant_of(layout: &Layout, id_bound: u64) -> UnixMicros {
    rules::instant_of(&first_numbering(layout), id_bound)
}

/// Returns the numbering of a layout's first worker ID, which every layout has.
pub(crate) fn first_numbering(layout: &Layout) -> Numbering {
    Numbering::new(layout.clone(), WorkerSet::single(0)).expect("every layout has the worker ID 0")
}

/// Returns the error for an old answer: the caller must ask again.
pub(super) fn old_answer() -> NoAnswer {
    NoAnswer::passing("it gave an answer that is older than an earlier one")
}

/// Returns the error for a marker that has changed at each try.
pub(super) fn marker_changes() -> NoAnswer {
    NoAnswer::passing("the fleet's marker has changed at each try")
}

/// Returns the error for a configuration with other limits than the fleet has.
pub(crate) fn other_limits(marker: &Marker, key: &str, own: FleetLimits) -> FleetError {
    if marker.lacks_limits() {
        return FleetError::Refused(format!("key {key}: {}", KeyError::NoLimits));
    }
    FleetError::Refused(format!(
        "this configuration has {own}, allowed: {}, as in the fleet's marker (key {key}); correct the configuration; or, to \
         change the fleet, stop all its daemons, and run `snowbank fleet init --above now --config FILE` with the new \
         configuration",
        marker.limits
    ))
}

/// Checks that a daemon with these limits may start in the fleet by this clock, and that a daemon
/// can have written the floor.
///
/// # Errors
/// The marker at this key has other limits, or a floor that no clock explains.
pub(crate) fn check_start(
    marker: &Marker,
    key: &str,
    own: FleetLimits,
    wall: UnixMicros,
) -> Result<(), FleetError> {
    if marker.limits != own {
        return Err(other_limits(marker, key, own));
    }
    let latest = rules::latest(wall, REACH_MAX);
    if marker.floor() > latest {
        return Err(FleetError::Unreadable(format!(
            "the fleet's floor (key {key}) is {}, and by this clock no ID can have been granted after {}; set the clock right; \
             or, if the clock of another daemon was wrong and no later IDs were handed out, run `snowbank fleet init --above \
             INSTANT --lower`, with an instant that no ID has reached",
            marker.floor().rfc3339(0),
            latest.rfc3339(0)
        )));
    }
    Ok(())
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Reads the marker.
    ///
    /// # Errors
    /// There is no marker, or the endpoints belong to two clusters.
    pub(super) fn read_marker(&mut self) -> Result<(), FleetError> {
        let key = self.paths.marker();
        // The comparison comes first, because it connects to an endpoint that answers.
        self.compare_at(&key, Marker::identity_in)?;
        let found = self.coordinator.as_mut().read_one(&key)?;
        if let Some(text) = &found {
            let cluster = Cluster::of(&key, text, Marker::identity_in);
            self.stay_in(cluster.map_err(|error| FleetError::Unreadable(format!("key {key}: {error}")))?);
        }
        self.know_marker(found)
    }

    /// Remembers the marker as it was read.
    fn know_marker(&mut self, found: Option<String>) -> Result<(), FleetError> {
        let key = self.paths.marker();
        let Some(text) = found else {
            return Err(FleetError::no_marker(&key));
        };
        let marker =
            Marker::parse(&text).map_err(|error| FleetError::Unreadable(format!("key {key}: {error}")))?;
        self.marker = Some(Known { text, marker });
        Ok(())
    }

    /// Checks that the known marker allows an ID space. Returns the space's index.
    pub(super) fn check_space(&self, space: &str) -> Result<usize, FleetError> {
        let key = self.paths.marker();
        let Known { marker, .. } = self.known_marker()?;
        let Some(place) = marker.place_of(space) else {
            return Err(FleetError::Refused(format!(
                "the fleet has other ID spaces (key {key}): found {space}, allowed: {}; correct the layout, or, \
                 for tables without IDs of this fleet, choose another fleet.name",
                marker.shown()
            )));
        };
        Ok(place)
    }

    /// Prepares a source to take numbers: reads the marker and checks it, and returns the index of
    /// the source's ID space.
    ///
    /// # Errors
    /// There is no marker, the endpoints belong to two clusters, or the marker does not allow this
    /// daemon to take numbers.
    pub(super) fn place_for(&mut self, want: Want<'_>) -> Result<usize, FleetError> {
        self.read_marker()?;
        // First of all, whatever this daemon is refused for.
        self.notice_other_fleet(want)?;
        let Known { marker, .. } = self.known_marker()?;
        let key = self.paths.marker();
        check_start(marker, &key, self.limits, want.clocks.latest())?;
        self.check_space(&want.space())
    }

    /// Checks the identity of the marker that a poll has read. The next write notices other changes.
    ///
    /// # Errors
    /// The marker has another identity than it had when the daemon took its numbers.
    pub(super) fn poll_marker(&mut self, text: Option<String>) -> Result<(), FleetError> {
        let Some(Ok(identity)) = text.as_deref().map(Marker::identity_in) else { return Ok(()) };
        let mut serving = self.sources.iter().filter(|held| !self.idle.contains(&held.index));
        if serving.any(|held| held.identity != identity) {
            self.know_marker(text)?;
            return Err(self.meet_other_fleet());
        }
        Ok(())
    }

    /// Returns what the coordinator granted to this daemon, for all its numbers, and to earlier processes
    /// of its state, as they have noted: what has lost one write may have lost others.
    pub(super) fn granted(&self) -> Granted {
        let held = self.sources.iter();
        let mut until: Vec<UnixMicros> =
            held.flat_map(|held| (0..held.numbers.len()).map(|at| held.until(at))).collect();
        let mut reach = self.limits.reach();
        for note in self.notes.of_fleet(&self.fleet) {
            let space = note.space.parse::<Space>();
            until.extend(space.ok().map(|space| space.end_of_tick(note.acknowledged)));
            reach = reach.max(note.limits.reach());
        }
        Granted { until: until.into_iter().max().unwrap_or(UnixMicros(0)), reach }
    }

    /// Raises the floor of a marker with another identity, unless it is above this daemon's grants.
    /// Returns the error: the daemon must end, unless the answer was old. Either an operator has
    /// prepared the fleet again, with a floor above all bounds, or the coordinator was restored to an
    /// earlier marker. The daemons of an earlier marker do not know what this daemon was granted.
    pub(super) fn meet_other_fleet(&mut self) -> FleetError {
        match self.raise_floor_above(self.granted()) {
            Ok(Noticed::OldAnswer) => FleetError::NoAnswer(old_answer()),
            _ => FleetError::WentBack(String::from(
                "the fleet was prepared again, or its coordinator was restored to before that",
            )),
        }
    }

    /// Raises the floor of a marker with another identity, unless it is above this grant.
    pub(super) fn raise_floor_above(&mut self, granted: Granted) -> Result<Noticed, FleetError> {
        if self.known_marker()?.marker.floor() < granted.until {
            return self.raise_floor(None, granted);
        }
        self.doubting(|member| {
            // Only a comparison shows that the answer with this marker was not an old one.
            let text = member.known_marker()?.text.clone();
            let swap = Swap::compare(member.paths.marker(), Some(text));
            Ok(match member.coordinator.as_mut().swap(&[swap])? {
                Swapped::Done => Noticed::WentBack,
                Swapped::Refused(_) => Noticed::OldAnswer,
            })
        })
    }

    /// Asks whether the coordinator went back. Nothing is handed out until there is an answer.
    fn doubting(
        &mut self,
        ask: impl FnOnce(&mut Self) -> Result<Noticed, FleetError>,
    ) -> Result<Noticed, FleetError> {
        self.begin_doubt();
        let noticed = ask(self);
        if noticed.is_ok() {
            (self.doubt)(false);
        }
        noticed
    }

    /// Raises the floor of the cluster that all endpoints now lead to, if it has a marker. That
    /// cluster may be the daemon's own cluster, restored from a backup: to a state before the fleet
    /// was prepared, or under another cluster ID.
    pub(super) fn leave_cluster(&mut self, foreign: NoAnswer) -> FleetError {
        self.begin_doubt();
        self.coordinator.as_mut().set_cluster(None);
        let found = self.coordinator.as_mut().read_one(&self.paths.marker());
        if self.know_marker(found.ok().flatten()).is_ok() {
            let _ = self.meet_other_fleet();
        }
        FleetError::Held(foreign.reason)
    }

    /// Returns the marker that the daemon knows.
    pub(super) fn known_marker(&self) -> Result<&Known, NoAnswer> {
        self.marker.as_ref().ok_or_else(|| NoAnswer::passing("the fleet's marker was not read yet"))
    }

    /// Checks the marker that a refused swap of a source's keys has found.
    pub(super) fn see_marker(&mut self, source: usize, found: Option<String>) -> Result<(), FleetError> {
        let before = self.known_marker()?.clone();
        if found.as_ref() == Some(&before.text) {
            return Ok(());
        }
        self.know_marker(found)?;
        if self.known_marker()?.marker.identity != before.marker.identity {
            return Err(self.meet_other_fleet());
        }
        self.check_space(&self.sources[source].space).map(drop)
    }

    /// Returns the bound of a source if it has passed or nearly passed: other daemons may have taken
    /// the source's numbers. If the source has raised its passed bound, returns that bound until the
    /// source's pause is over.
    pub(super) fn passed(&self, source: usize, clocks: Clocks) -> Option<u64> {
        let held = &self.sources[source];
        let lowest = held.lowest_acknowledged();
        self.has_passed(source, lowest, clocks).then(|| held.passed.unwrap_or(lowest))
    }

    /// Returns whether this bound of a source has passed or nearly passed, or a bound before it in whose
    /// pause the source is.
    fn has_passed(&self, source: usize, id_bound: u64, clocks: Clocks) -> bool {
        let held = &self.sources[source];
        let until = rules::instant_of(&held.numbering, id_bound);
        held.is_unsettled || rules::may_be_abandoned(until, clocks.latest(), self.limits.max_ahead())
    }

    /// Makes a source pause before it is granted more, if the bound that it had until now has passed
    /// or nearly passed: other daemons may have taken its numbers, and the coordinator may have lost
    /// that. Asked again whenever a higher bound is acknowledged, because the time until then counts.
    pub(super) fn unsettle_if_passed(&mut self, source: usize, before: u64) {
        let clocks = self.clocks_now();
        if self.has_passed(source, before, clocks) {
            let held = &mut self.sources[source];
            held.is_unsettled = true;
            held.passed.get_or_insert(before);
        }
    }

    /// Checks a source against the floor if its bound has passed.
    pub(super) fn check_passed(&mut self, source: usize) -> Result<(), FleetError> {
        let clocks = self.clocks_now();
        self.passed(source, clocks).map_or(Ok(()), |passed| self.check_floor(source, passed))
    }

    /// Checks that a passed bound is above the floor. If the bound is below the floor, the
    /// coordinator may have gone back, and before that, other daemons may have had the number. So
    /// the source must start again, above the floor.
    pub(super) fn check_floor(&self, source: usize, passed: u64) -> Result<(), FleetError> {
        let floor = rules::bound_above(&self.sources[source].numbering, self.known_marker()?.marker.floor());
        if passed < floor {
            return Err(FleetError::Held(String::from(
                "its ceiling had passed, and the fleet's floor has been raised above it",
            )));
        }
        Ok(())
    }

    /// Raises the fleet's floor above all grants that the coordinator has lost. `older` compares
    /// the key that shows the loss: if that key has another value by now, does nothing. If `older`
    /// is `None`, the known marker shows the loss.
    ///
    /// A daemon that notices that the coordinator went back calls this first. Another daemon may be
    /// about to take a number whose holder was granted more than the number's key shows.
    pub(super) fn raise_floor(
        &mut self,
        older: Option<Swap>,
        granted: Granted,
    ) -> Result<Noticed, FleetError> {
        self.doubting(|member| member.try_to_raise_floor(older, granted))
    }

    fn try_to_raise_floor(&mut self, older: Option<Swap>, granted: Granted) -> Result<Noticed, FleetError> {
        for _ in 0..TRIES_MAX {
            let Known { text, mut marker } = self.known_marker()?.clone();
            let wall = self.clocks_now().latest();
            let reach = granted.reach.max(marker.reach());
            marker.raise_floor(rules::floor_after_loss(wall, granted.until, reach));
            marker.write = (self.new_identity)();
            let raised = marker.text_after(&text);
            let mut swaps = vec![Swap::write(self.paths.marker(), Some(text.clone()), raised.clone())];
            swaps.extend(older.clone());
            match self.coordinator.as_mut().swap(&swaps)? {
                Swapped::Done => {
                    self.marker = Some(Known { text: raised, marker });
                    return Ok(Noticed::WentBack);
                }
                Swapped::Refused(found) => {
                    let mut found = found.into_iter();
                    let now = found.next().flatten();
                    let key = found.next().flatten();
                    if now.as_ref() == Some(&raised) {
                        // An earlier try was done, and its answer was lost.
                        self.marker = Some(Known { text: raised, marker });
                        return Ok(Noticed::WentBack);
                    }
                    if now == Some(text) && older.as_ref().is_some_and(|older| key != older.expected) {
                        return Ok(Noticed::OldAnswer);
                    }
                    self.know_marker(now)?;
                    if older.is_none() && self.known_marker()?.marker.identity != marker.identity {
                        return Ok(Noticed::OldAnswer);
                    }
                }
            }
        }
        Err(FleetError::NoAnswer(marker_changes()))
    }
}
