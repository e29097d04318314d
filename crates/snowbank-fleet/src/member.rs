//! What a daemon does at its coordinator. It takes numbers, raises their bounds, checks their keys,
//! and releases the numbers. Each call blocks until the coordinator answers, for a bounded time at
//! most. `rules` decides what the answers mean.

mod check;
mod counters;
mod held;
mod marker;
mod pick;
mod pool;
mod resume;
mod settle;
mod take;
mod want;

use super::cluster;
use super::key::{FleetLimits, NumberKey, Paths, check_replaceable};
use super::notes::{Note, Notes};
use super::rules::{self, Seen};
use super::{Cluster, Coordinator, FleetError, KeyError, NoAnswer, Rest, Swap, Swapped};
use counters::HeldCounter;
use held::Held;
use marker::{Known, Noticed, old_answer};
use std::sync::Arc;
use std::time::Duration;

use snowbank_core::clock::{self, BootMicros, Reading};
use snowbank_id::layout::{Space, UnixMicros};
use take::Tried;

pub(super) use marker::{check_start, first_numbering, instant_of, other_limits};
pub use pick::Free;
pub use pool::{Counted, Pool};
pub use settle::Pause;
pub use want::{Taken, Want};

/// A daemon tries one write at most this many times. A write is refused if an earlier write of this
/// daemon took effect but its answer was lost, or if the marker has changed. Both are rare.
const TRIES_MAX: usize = 5;

/// The longest time that one try of a write waits for the notes. The keeper tries again.
const NOTES_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest wait for the notes between two polls.
const NOTES_WAIT_MIN: Duration = Duration::from_millis(100);

/// A daemon of a fleet. `C` is a boxed [`Coordinator`], or a simulated one in tests, which can be
/// cloned.
#[derive(Clone)]
pub struct Member<C> {
    coordinator: C,
    paths: Paths,
    /// The fleet's name.
    fleet: String,
    /// The limits of this daemon's configuration, which must be the fleet's.
    limits: FleetLimits,
    /// The identity of the daemon's state, which holds the numbers.
    state: String,
    /// The daemon's name for people.
    holder: String,
    notes: Notes,
    /// Makes the identity of a write. It never makes the same identity twice, not even in two
    /// copies of this process's memory.
    new_identity: fn() -> String,
    sources: Vec<Held>,
    /// The indices of the sources that hand out nothing: they start
    /// ([`begin_start`](Member::begin_start)), or they have ended.
    idle: Vec<usize>,
    /// Takes the grants away while the daemon asks whether a loss that it has read is one: see
    /// [`on_doubt`](Member::on_doubt).
    doubt: Arc<dyn Fn(bool) + Send + Sync>,
    /// The first loss of a source that serves.
    lost: Option<FleetError>,
    /// What this process remembers of its earlier tries to take numbers.
    tried: Tried,
    /// The shared counters.
    counters: Vec<HeldCounter>,
    /// True once the endpoints need no comparison, because each new connection is checked.
    are_compared: bool,
    /// The marker that the daemon knows. Each write of a number's key compares the marker.
    marker: Option<Known>,
    /// The last poll that had an answer. If no poll has had an answer, the last poll that the
    /// daemon tried. `None` until the first poll, or until the first number is taken.
    polled: Option<Polled>,
    /// The clocks as the caller last gave them. Each use adds the time since then, because a job
    /// may have waited in a queue, and a call may have waited for answers.
    clocks: Clocks,
}

/// The names by which a daemon is known in its fleet.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The fleet's name.
    pub fleet: &'a str,
    /// The identity of the daemon's state, to which its numbers belong.
    pub state: &'a str,
    /// The daemon's name for people.
    pub holder: &'a str,
}

/// The beginning of a poll.
#[derive(Clone, Copy, Debug)]
struct Polled {
    at: BootMicros,
    is_answered: bool,
}

/// The clocks at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The wall clock. While a step of the clock is held, this is the clock as if it had not
    /// stepped.
    pub wall: UnixMicros,
    /// The wall clock as it was read.
    pub read: UnixMicros,
    /// The boot clock, which keeps running while the machine sleeps.
    pub boot: BootMicros,
    /// The wall clock as it was read, minus the boot clock, in microseconds.
    pub wall_minus_boot_us: i64,
}

impl Clocks {
    /// Returns the clocks of a reading, with this wall clock.
    pub fn at(wall: UnixMicros, reading: Reading) -> Clocks {
        Clocks { wall, read: reading.wall, boot: reading.boot, wall_minus_boot_us: reading.offset_us() }
    }

    /// Returns the later of the wall clock and its reading. While a forward step is held, the reading
    /// may be right. Whether other daemons may have passed an instant is asked of this clock.
    pub fn latest(self) -> UnixMicros {
        self.wall.max(self.read)
    }

    /// Returns the clocks at a later moment, provided that they do not jump meanwhile.
    fn at_boot(self, boot: BootMicros) -> Clocks {
        let passed_us = clock::micros(boot.since(self.boot));
        let [wall, read] = [self.wall, self.read].map(|it| UnixMicros(it.0.saturating_add(passed_us)));
        Clocks { wall, read, boot, ..self }
    }
}

/// What a write needs to know if it is a release.
#[derive(Clone, Copy)]
struct Release<'a> {
    /// The bound that the coordinator had acknowledged before.
    before: u64,
    /// Asks whether the machine was not restored from a snapshot meanwhile.
    is_current: &'a dyn Fn() -> bool,
}

/// Checks, right before a release, that no other copy of this process can have the numbers.
fn check_current(is_current: &dyn Fn() -> bool) -> Result<(), NoAnswer> {
    if is_current() {
        return Ok(());
    }
    Err(NoAnswer::passing(
        "the machine may have been restored from a snapshot, so nothing more is given back",
    ))
}

/// A bound to write for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The source's index in the daemon.
    pub source: usize,
    /// The ID bound.
    pub id_bound: u64,
}

/// A write of the keys of one source.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// The source's place in [`Member::sources`], which lasts only for the call.
    at: usize,
    id_bound: u64,
}

impl<C: AsMut<dyn Coordinator>> Member<C> {
    /// Makes a member that holds nothing yet. `limits` are those of its configuration.
    /// `new_identity` makes the identity of each write.
    pub fn new(
        coordinator: C,
        names: Names<'_>,
        limits: FleetLimits,
        notes: Notes,
        new_identity: fn() -> String,
    ) -> Self {
        let paths = Paths::of(names.fleet);
        let state = names.state.to_owned();
        let holder = names.holder.to_owned();
        let clocks =
            Clocks { wall: UnixMicros(0), read: UnixMicros(0), boot: BootMicros(0), wall_minus_boot_us: 0 };
        Member {
            coordinator,
            paths,
            fleet: names.fleet.to_owned(),
            limits,
            state,
            holder,
            notes,
            new_identity,
            sources: Vec::new(),
            idle: Vec::new(),
            doubt: Arc::new(|_| ()),
            lost: None,
            tried: Tried::default(),
            counters: Vec::new(),
            are_compared: false,
            marker: None,
            polled: None,
            clocks,
        }
    }

    /// Sets what is called with `true` once a number seems to be lost, before the daemon asks further,
    /// which may take long: nothing may be handed out meanwhile. It is called with `false` if the daemon
    /// may go on, with new grants: the answer was old, or a poll has found all in order.
    pub fn on_doubt(&mut self, doubt: Arc<dyn Fn(bool) + Send + Sync>) {
        self.doubt = doubt;
    }

    /// Takes the grants away, and begins to note that: the process may be killed while it asks.
    fn begin_doubt(&mut self) {
        (self.doubt)(true);
        self.notes.forget_ceilings();
        self.notes.begin();
    }

    /// Forgets all ceilings but those of these worker IDs of sources, which the daemon has locked, and of
    /// the sources that it has. Waits until that is durable: after a loss, the locks say of these that
    /// their next start must ask, and nothing would say so of the others.
    ///
    /// # Errors
    /// That could not be stored.
    pub fn keep_ceilings_of(&mut self, locked: &[(Space, Vec<u64>)]) -> Result<(), FleetError> {
        let locked = locked.iter().map(|(space, numbers)| (space.to_string(), numbers.clone()));
        let mut kept: Vec<(String, Vec<u64>)> = locked.collect();
        for held in &self.sources {
            kept.push((held.space.clone(), held.numbers.iter().map(|(number, _)| *number).collect()));
        }
        let fleet = &self.fleet;
        self.notes
            .keep_ceilings(|note| kept.iter().any(|(space, numbers)| note.is_of(fleet, space, numbers)));
        self.notes.begin();
        self.await_notes()
    }

    /// Makes later calls hurry: see [`Coordinator::hurry`].
    pub fn hurry(&mut self) {
        self.coordinator.as_mut().hurry();
    }

    /// Sets the clocks, and returns the clocks as they are now.
    fn set_clocks(&mut self, clocks: Clocks) -> Clocks {
        self.clocks = clocks;
        self.clocks_now()
    }

    /// Returns the clocks as they are now, if they have not jumped since the caller read them.
    fn clocks_now(&mut self) -> Clocks {
        self.clocks.at_boot(self.coordinator.as_mut().now().max(self.clocks.boot))
    }

    /// Makes the coordinator's client use this cluster only, so that the endpoints need no
    /// comparison.
    fn stay_in(&mut self, cluster: Cluster) {
        self.coordinator.as_mut().set_cluster(Some(cluster));
        self.are_compared = true;
    }

    /// Checks that the endpoints lead to one cluster ([`cluster::compare`]), unless the client stays
    /// in one cluster.
    fn compare_at(
        &mut self,
        key: &str,
        identity: impl Fn(&str) -> Result<String, KeyError>,
    ) -> Result<(), FleetError> {
        if self.are_compared { Ok(()) } else { cluster::compare(self.coordinator.as_mut(), key, identity) }
    }

    /// Returns the notes.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns the place in `sources` of the source with this index in the daemon. `None`: the daemon
    /// holds no number for it.
    fn place_of(&self, index: usize) -> Option<usize> {
        self.sources.iter().position(|held| held.index == index)
    }

    /// Raises the bounds of sources. Each bound comes with the generation of its source's grant. If
    /// the machine may have been restored from a snapshot, grants are taken away, and their
    /// generations change. The write then gets a new identity, so that only one of two copies of this
    /// process recognises the write as its own.
    ///
    /// Nothing is granted before the returned pause is over: see [`settle`](Member::settle).
    pub fn raise(&mut self, raises: &[(Bound, u64)], clocks: Clocks) -> Result<Pause, FleetError> {
        let mut writes = Vec::with_capacity(raises.len());
        for &(Bound { source, id_bound }, generation) in raises {
            let Some(at) = self.place_of(source) else {
                return Err(NoAnswer::passing("the source has no worker ID in the fleet").into());
            };
            writes.push((Write { at, id_bound }, generation));
        }
        // A source that went on without asking may be one of two copies. Until a check has compared
        // its keys and written them, nothing rises above the ceiling with which it started.
        if writes.iter().any(|(write, _)| !self.sources[write.at].is_claimed) {
            self.check(clocks)?;
        }
        self.set_clocks(clocks);
        for (write, generation) in &mut writes {
            let (held, generation) = (&mut self.sources[write.at], *generation);
            assert!(held.is_claimed, "a check precedes the first raise");
            // Until a start has compared its keys, another daemon may have the numbers.
            assert!(
                held.released_by.is_some() || !self.idle.contains(&held.index),
                "nothing raises a source that starts"
            );
            // The start may have written a higher bound than this raise asks for. A later start may
            // hand out IDs below that higher bound without asking the coordinator, so no key may
            // get a lower bound.
            write.id_bound = write.id_bound.max(held.floor).max(held.acknowledged);
            if held.trying.is_none() || held.generation != generation {
                if held.generation != generation {
                    // After the machine was restored from a snapshot, another copy of this process
                    // may go on below the same ceiling.
                    held.covered = 0;
                }
                held.generation = generation;
                self.renew_write(write.at);
            }
        }
        let writes: Vec<Write> = writes.into_iter().map(|(write, _)| write).collect();
        for &Write { at, .. } in &writes {
            self.unsettle_if_passed(at, self.sources[at].lowest_acknowledged());
        }
        let raised = self
            .note_writes(&writes)
            .and_then(|()| writes.iter().try_for_each(|&write| self.write(write, None)));
        self.ended(raised)?;
        let pausing = writes.iter().map(|write| &self.sources[write.at]).filter(|held| held.is_unsettled);
        Ok(Pause::of(pausing.map(|held| held.index).collect()))
    }

    /// Returns the result of a call. A daemon that has lost a number ends. So after a loss, this
    /// function forgets the daemon's ceilings, and the next start asks the coordinator. If all
    /// endpoints lead to another cluster, the numbers count as lost: other daemons may have these
    /// numbers in that cluster.
    fn ended<T>(&mut self, result: Result<T, FleetError>) -> Result<T, FleetError> {
        let result = match result {
            Err(FleetError::NoAnswer(answer)) if answer.is_foreign => Err(self.leave_cluster(answer)),
            result => result,
        };
        if let Err(error) = &result
            && error.is_loss()
        {
            self.lose(error.clone());
            self.forget_ceilings();
        }
        result
    }

    /// Returns the result of a call for sources that start. Their loss fails only their start. But
    /// such a call also polls, so it may have found the loss of a source that serves.
    fn tried<T>(&mut self, result: Result<T, FleetError>) -> Result<T, FleetError> {
        let is_of_all = match &result {
            Err(FleetError::NoAnswer(answer)) => answer.is_foreign,
            _ => self.lost.is_some(),
        };
        if is_of_all {
            return self.ended(result);
        }
        if result.as_ref().is_err_and(FleetError::is_loss) {
            self.forget_ceilings();
        }
        result
    }

    /// Returns the result of a call for the sources with these indices. If all of them hand out
    /// nothing, the daemon's other sources go on after their loss.
    fn concluded<T>(&mut self, sources: &[usize], result: Result<T, FleetError>) -> Result<T, FleetError> {
        if sources.iter().all(|index| self.idle.contains(index)) {
            self.tried(result)
        } else {
            self.ended(result)
        }
    }

    /// Records that these sources start. Until [`check_taken`](Member::check_taken) succeeds, the loss of
    /// one of their numbers ends no daemon.
    pub fn begin_start(&mut self, sources: impl IntoIterator<Item = usize>) {
        self.idle.extend(sources);
    }

    /// Returns true if a source serves, so that its keys must be checked.
    pub fn serves(&self) -> bool {
        let serves = |index: usize| !self.idle.contains(&index);
        self.sources.iter().any(|held| serves(held.index)) || self.counted().any(serves)
    }

    /// Returns the loss that a call has found, whichever sources the call was for. If there is one,
    /// the daemon must end.
    pub fn loss(&self) -> Option<&FleetError> {
        self.lost.as_ref()
    }

    /// Records a loss, if a source serves.
    fn lose(&mut self, loss: FleetError) {
        if self.serves() {
            self.lost.get_or_insert(loss);
        }
    }

    /// Returns whether all keys of these numbers have at least this bound. Returns false for a
    /// source that started without asking the coordinator, until it has written its keys.
    ///
    /// # Errors
    /// The coordinator did not answer.
    pub fn holds(&mut self, source: usize, numbers: &[u64], id_bound: u64) -> Result<bool, FleetError> {
        let held = self.sources.iter().find(|held| held.index == source && held.is_claimed);
        let Some(place) = held.map(|held| held.place) else { return Ok(false) };
        self.poll_if_due()?;
        let keys: Vec<String> = numbers.iter().map(|&number| self.paths.number(place, number)).collect();
        let found = self.coordinator.as_mut().read(&keys)?;
        let mut keys = found.iter().map(|text| NumberKey::parse(text.as_ref()?).ok());
        Ok(keys.all(|key| key.is_some_and(|key| key.id_bound >= id_bound)))
    }

    /// Checks before a release, by a swap, that the coordinator answers and that the numbers of
    /// these sources are still this daemon's.
    ///
    /// If the answer to a release is lost, another daemon may get the number at once. So after a
    /// release the next start must ask the coordinator, however long that takes. So a daemon tries
    /// a release only at a coordinator that has just answered.
    pub fn confirm(&mut self, sources: &[usize], clocks: Clocks) -> Result<(), FleetError> {
        self.set_clocks(clocks);
        let mut confirmed = self.lost.clone().map_or_else(|| self.poll_if_due(), Err);
        for source in 0..self.sources.len() {
            if !sources.contains(&self.sources[source].index) {
                continue;
            }
            confirmed = confirmed.and_then(|()| self.read_unread(source)).and_then(|()| self.compare(source));
        }
        self.concluded(sources, confirmed)
    }

    /// Gives back what sources held that have ended, and forgets their keys. Each key gets a bound
    /// above all IDs that were handed out, and each rest of a range goes back. A number is then free
    /// for another daemon whose clock is near that bound. The caller must have stored the bounds in
    /// the state already. Before a key is written, the notes forget its higher bound.
    ///
    /// `is_current` returns false once the machine may have been restored from a snapshot since the
    /// sources ended. Then another copy of this process may use the same numbers. It is asked right
    /// before each write.
    ///
    /// # Errors
    /// Something was not given back. Numbers stay this state's until their bounds have passed, and
    /// numbers of a range are skipped.
    pub fn give_back(
        &mut self,
        bounds: &[Bound],
        rests: &[Rest],
        clocks: Clocks,
        is_current: &dyn Fn() -> bool,
    ) -> Result<(), FleetError> {
        self.set_clocks(clocks);
        // Another daemon may have a number as soon as it is given back, which is no loss.
        self.idle.extend(bounds.iter().map(|bound| bound.source));
        self.idle.extend(rests.iter().map(|rest| rest.source));
        let (mut writes, mut releases) = (Vec::with_capacity(bounds.len()), Vec::with_capacity(bounds.len()));
        for bound in bounds {
            let Some(at) = self.place_of(bound.source) else { continue };
            let before = self.sources[at].lowest_acknowledged();
            self.unsettle_if_passed(at, before);
            let held = &mut self.sources[at];
            held.covered = 0;
            let id_bound = bound.id_bound.max(held.floor);
            for (_, holding) in &mut held.numbers {
                holding.lower(id_bound);
            }
            self.renew_write(at);
            self.sources[at].released_by = Some(self.sources[at].trying().to_owned());
            writes.push(Write { at, id_bound });
            releases.push(Release { before, is_current });
        }
        let noted = self.note_writes(&writes);
        let mut both = writes.iter().zip(releases);
        let released =
            noted.and_then(|()| both.try_for_each(|(&write, release)| self.write(write, Some(release))));
        // Without this note, the next start pauses.
        let released = released.and_then(|()| self.await_notes());
        let given = self.give_back_ranges(rests, is_current);
        released.and(given)
    }

    /// Reads the keys of a source that this process has not read yet.
    fn read_unread(&mut self, source: usize) -> Result<(), FleetError> {
        let checked = self.check_marker(source);
        self.or_went_back(checked)?;
        let held = &self.sources[source];
        let unread: Vec<usize> =
            (0..held.numbers.len()).filter(|&at| held.numbers[at].1.text().is_none()).collect();
        if unread.is_empty() {
            return Ok(());
        }
        let numbers = unread.iter().map(|&at| held.numbers[at].0);
        let keys: Vec<String> = numbers.map(|number| self.paths.number(held.place, number)).collect();
        let found = self.coordinator.as_mut().read(&keys)?;
        for (at, text) in unread.into_iter().zip(found) {
            self.see(source, at, text.as_deref())?;
        }
        Ok(())
    }

    /// Checks the value of a number's key, as an answer gave it. Returns the parsed value.
    fn see(&mut self, source: usize, at: usize, text: Option<&str>) -> Result<NumberKey, FleetError> {
        let seen = self.see_one(source, at, text);
        self.or_went_back(seen)
    }

    /// Returns `seen`. If `seen` is a loss, polls first. Other keys may show that the coordinator
    /// went back, and then the daemon must raise the floor before it ends.
    fn or_went_back<T>(&mut self, seen: Result<T, FleetError>) -> Result<T, FleetError> {
        match seen {
            Err(error) if error.is_of_one_key() => {
                self.begin_doubt();
                match self.poll() {
                    Err(FleetError::WentBack(reason)) => Err(FleetError::WentBack(reason)),
                    _ => Err(error),
                }
            }
            seen => seen,
        }
    }

    /// Checks one key as [`Member::see`] does, but does not poll after a loss.
    fn see_one(&mut self, source: usize, at: usize, text: Option<&str>) -> Result<NumberKey, FleetError> {
        let parsed = text.map(NumberKey::parse).transpose();
        // If the value cannot be read, `Holding::see` reports a loss.
        if let Ok(Some(key)) = &parsed {
            self.check_bound(source, at, key)?;
        }
        let held = &mut self.sources[source];
        let before = held.lowest_acknowledged();
        match held.numbers[at].1.see(text, &parsed, &held.term) {
            Seen::Ours(key) => {
                if held.lowest_acknowledged() > before {
                    // The answer to the write of this bound was lost.
                    self.unsettle_if_passed(source, before);
                }
                Ok(*key)
            }
            Seen::Lost(loss) => Err(FleetError::Held(held.lost(at, &loss, &self.paths, &self.state))),
            Seen::Older(loss) => {
                let lost = FleetError::WentBack(held.lost(at, &loss, &self.paths, &self.state));
                let key = self.paths.number(held.place, held.numbers[at].0);
                let older = Swap::compare(key, text.map(str::to_owned));
                let mut granted = self.granted();
                if let Ok(Some(key)) = &parsed {
                    granted.reach = granted.reach.max(key.limits.reach());
                }
                match self.raise_floor(Some(older), granted) {
                    // If there was no answer, the daemon ends as well, and its next start raises
                    // the floor. If the daemon went on, it could hand out the same IDs as daemons
                    // that start before that.
                    Ok(Noticed::WentBack) | Err(_) => Err(lost),
                    Ok(Noticed::OldAnswer) => Err(FleetError::NoAnswer(old_answer())),
                }
            }
        }
    }

    /// Checks that the key's bound is one that a daemon can have been granted, before anything of
    /// the key is remembered.
    fn check_bound(&mut self, source: usize, at: usize, key: &NumberKey) -> Result<(), FleetError> {
        let latest = self.clocks_now().latest();
        let held = &self.sources[source];
        let floor = self.marker.as_ref().map_or(UnixMicros(0), |known| known.marker.floor());
        let (_, holding) = &held.numbers[at];
        let own = rules::instant_of(&held.numbering, holding.acknowledged());
        rules::check_bound(&held.numbering, key, latest.max(floor).max(own), self.limits.reach())
            .map_err(|error| FleetError::Unreadable(held.named(at, &self.paths, &error)))
    }

    /// Notes the next writes of these sources, and waits until that is durable. So a later start
    /// recognises the writes.
    fn note_writes(&mut self, writes: &[Write]) -> Result<(), FleetError> {
        for &Write { at, .. } in writes {
            let held = &mut self.sources[at];
            let write = held.trying().to_owned();
            for (_, holding) in &mut held.numbers {
                holding.try_write(&write);
            }
            self.store_note(at);
        }
        self.await_notes()
    }

    /// Writes a bound to all keys of a source, whose next write is noted. `Some` is a release:
    /// [`give_back`](Member::give_back).
    fn write(&mut self, write: Write, release: Option<Release<'_>>) -> Result<(), FleetError> {
        self.read_unread(write.at)?;
        let id_bound = self.write_keys(write, release)?;
        if let Some(release) = release {
            // The notes or the answer may have taken long, or the machine slept.
            self.unsettle_if_passed(write.at, release.before);
        }
        let held = &mut self.sources[write.at];
        (held.trying, held.is_claimed, held.acknowledged) = (None, true, id_bound);
        held.covered = if release.is_some() { 0 } else { id_bound };
        held.wall_minus_boot_us = held.made_with_us;
        // If the daemon is killed before this is durable, its next start knows only an earlier ceiling.
        self.store_note(write.at);
        Ok(())
    }

    /// Writes a bound to the keys of a source by one swap. Returns the bound that the keys then have.
    /// If a key has a higher bound, writes that higher bound to all of them, unless this is a
    /// release.
    fn write_keys(&mut self, write: Write, release: Option<Release<'_>>) -> Result<u64, FleetError> {
        let Write { at: source, mut id_bound } = write;
        let is_release = release.is_some();
        let held = &self.sources[source];
        // A later start may hand out IDs below the acknowledged bound without asking.
        let least = if is_release { held.floor } else { held.acknowledged };
        assert!(id_bound >= least, "only a release lowers a key's bound, and never below the start");
        let write = held.trying().to_owned();
        for _ in 0..TRIES_MAX {
            // Another source may serve, and must soon notice a loss.
            self.poll_if_due()?;
            let marker = self.known_marker()?.text.clone();
            let held = &self.sources[source];
            let key = NumberKey { write: write.clone(), ..self.value(held, id_bound, is_release) };
            let text = key.text();
            let mut swaps = vec![Swap::compare(self.paths.marker(), Some(marker))];
            for (at, (number, holding)) in held.numbers.iter().enumerate() {
                check_replaceable::<NumberKey>(holding.text().map(String::as_str))
                    .map_err(|error| NoAnswer::lasting(held.named(at, &self.paths, &error)))?;
                let name = self.paths.number(held.place, *number);
                swaps.push(Swap::write(name, holding.text().cloned(), text.clone()));
            }
            release.map_or(Ok(()), |release| check_current(release.is_current))?;
            match self.coordinator.as_mut().swap(&swaps)? {
                Swapped::Done => {
                    if !is_release {
                        // The answer may have taken long, or the machine slept.
                        self.unsettle_if_passed(source, self.sources[source].lowest_acknowledged());
                    }
                    let numbers = self.sources[source].numbers.iter_mut();
                    numbers.for_each(|(_, holding)| holding.written(&text, &key));
                    return Ok(id_bound);
                }
                Swapped::Refused(found) => {
                    let mut found = found.into_iter();
                    let seen = self.see_marker(source, found.next().flatten());
                    self.or_went_back(seen)?;
                    if !is_release {
                        self.check_passed(source)?;
                    }
                    let mut is_done = true;
                    let mut highest = 0;
                    for (at, text) in found.enumerate() {
                        let seen = self.see(source, at, text.as_deref())?;
                        is_done &= seen.write == key.write && seen.id_bound == id_bound;
                        highest = highest.max(seen.id_bound);
                    }
                    if is_done {
                        // An earlier try of this write was done, and its answer was lost.
                        return Ok(id_bound);
                    }
                    if !is_release {
                        id_bound = id_bound.max(highest);
                    }
                }
            }
        }
        Err(FleetError::NoAnswer(NoAnswer::passing("its key has changed at each try")))
    }

    /// Returns the value of a source's keys with a bound, without the identity of its write.
    fn value(&self, held: &Held, id_bound: u64, is_release: bool) -> NumberKey {
        NumberKey {
            term: held.term.clone(),
            id_bound,
            highest: held.acknowledged.max(id_bound),
            from: held.floor,
            limits: self.limits,
            released: is_release,
            ..NumberKey::new(&self.state, &self.holder, &held.source, held.since_unix_s)
        }
    }

    /// Begins to store the note of a source, and does not wait.
    fn store_note(&mut self, source: usize) {
        self.notes.set(self.sources[source].note(&self.fleet, self.limits));
        self.notes.begin();
    }

    /// Waits until the notes are durable, and polls meanwhile when a poll is due.
    fn await_notes(&mut self) -> Result<(), FleetError> {
        let mut left = NOTES_TIMEOUT;
        loop {
            let part = self.poll_due_in().clamp(NOTES_WAIT_MIN, left);
            let fault = match self.notes.wait(part) {
                Ok(true) => return Ok(()),
                Ok(false) => format!("the state directory has not stored the notes within {NOTES_TIMEOUT:?}"),
                Err(error) => return Err(FleetError::NoAnswer(NoAnswer::passing(error.to_string()))),
            };
            left = left.saturating_sub(part);
            if left < NOTES_WAIT_MIN {
                return Err(FleetError::NoAnswer(NoAnswer::passing(fault)));
            }
            self.poll_if_due()?;
        }
    }
}

#[cfg(test)]
mod tests;
