mod newer;
mod noticed;
mod replaced;
mod resumed;
mod search;
mod went_back;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use super::pick::Pick;
use super::*;
use crate::rules::Proof;
use crate::{Begins, Freeing, Marker, NUMBERS_MAX, Operator, Preparing};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;

static TWITTER: LazyLock<Layout> = LazyLock::new(|| Layout::resolve("twitter").unwrap());
pub(super) const WALL: UnixMicros = UnixMicros(1_800_000_000_000_000);
pub(super) const MAX_AHEAD: Duration = Duration::from_secs(10);
pub(super) const HORIZON: Duration = Duration::from_secs(300);

/// The fault of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// The store answers no reads. It does writes, but answers only refusals.
    Away,
    /// All connections lead to another cluster, until the client leaves its cluster.
    Foreign,
    /// As `Foreign`, from the next pause on.
    ForeignAfterPause,
    /// The store answers reads. It does writes too, but answers only refusals.
    Mute,
    /// The store answers reads. It does no swaps, and does not answer them.
    ReadOnly,
    /// The store's log stalls: the store answers reads and comparisons, and does no writes.
    Stalled,
}

#[derive(Default)]
pub(super) struct Keys {
    pub(super) found: BTreeMap<String, String>,
    fault: Fault,
    /// True if the next write is sent twice. The answer to the first try is lost with the
    /// connection, and the second try is refused.
    pub(super) repeats: bool,
    pub(super) reads: usize,
    pub(super) has_paused: bool,
    pub(super) lists: usize,
    /// An older value, which the next read returns for any key.
    stale: Option<String>,
    /// A write that is done right after the next read.
    late: Option<(String, String)>,
    /// A write that is done right after the next list.
    pub(super) late_list: Option<(String, String)>,
    boot: BootMicros,
    /// How long the client's machine sleeps during the next swap.
    sleep: Duration,
}

/// A client of the store, with the count of its connections.
#[derive(Clone, Default)]
pub(super) struct Store(pub(super) Arc<Mutex<Keys>>, u64);

impl Store {
    pub(super) fn set(&self, fault: Fault) {
        self.0.lock().unwrap().fault = fault;
    }

    /// Makes the next read return an older value.
    pub(super) fn be_stale(&self, older: String) {
        self.0.lock().unwrap().stale = Some(older);
    }

    /// Returns the clocks now, after pauses.
    pub(super) fn clocks(&self, wall: UnixMicros) -> Clocks {
        Clocks { boot: self.now(), ..clocks(wall) }
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.0.lock().unwrap().found[key].clone()
    }

    pub(super) fn put(&self, key: &str, text: &str) {
        self.0.lock().unwrap().found.insert(key.to_owned(), text.to_owned());
    }

    /// Opens another connection.
    pub(super) fn connect(&mut self) {
        self.1 += 1;
    }

    /// Makes a write happen right after the next read.
    pub(super) fn put_late(&self, key: &str, text: &str) {
        self.0.lock().unwrap().late = Some((key.to_owned(), text.to_owned()));
    }

    /// Makes the client's machine sleep during the next swap.
    pub(super) fn sleep_late(&self, time: Duration) {
        self.0.lock().unwrap().sleep = time;
    }

    pub(super) fn remove(&self, key: &str) {
        self.0.lock().unwrap().found.remove(key);
    }
}

impl Waits for Store {
    fn wait(&mut self, time: Duration) {
        let mut store = self.0.lock().unwrap();
        store.boot = store.boot.after(time);
        store.has_paused = true;
        if store.fault == Fault::ForeignAfterPause {
            store.fault = Fault::Foreign;
        }
    }
}

impl AsMut<dyn Coordinator> for Store {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Store {
    fn now(&self) -> BootMicros {
        self.0.lock().unwrap().boot
    }

    fn connections(&self) -> u64 {
        self.1
    }

    fn set_cluster(&mut self, cluster: Option<Cluster>) {
        if cluster.is_none() {
            self.set(Fault::None);
        }
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let mut store = self.0.lock().unwrap();
        match store.fault {
            Fault::Away => return Err(NoAnswer::passing("away")),
            Fault::Foreign => return Err(NoAnswer::foreign("another cluster")),
            _ => {}
        }
        store.reads += 1;
        let read = keys.iter().map(|key| store.found.get(key).cloned()).collect();
        if let Some(stale) = store.stale.take() {
            return Ok(keys.iter().map(|_| Some(stale.clone())).collect());
        }
        let late = store.late.take();
        drop(store);
        late.into_iter().for_each(|(key, text)| self.put(&key, &text));
        Ok(read)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let mut store = self.0.lock().unwrap();
        store.lists += 1;
        let found = store.found.iter().filter(|(key, _)| key.starts_with(prefix));
        let found = found.map(|(key, stored)| (key.clone(), stored.clone())).collect();
        let late = store.late_list.take();
        drop(store);
        late.into_iter().for_each(|(key, text)| self.put(&key, &text));
        Ok(found)
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut store = self.0.lock().unwrap();
        if store.fault == Fault::Foreign {
            return Err(NoAnswer::foreign("another cluster"));
        }
        store.boot = store.boot.after(std::mem::take(&mut store.sleep));
        let is_written = swaps.iter().any(|swap| swap.text.is_some());
        if store.fault == Fault::ReadOnly || store.fault == Fault::Stalled && is_written {
            return Err(NoAnswer::passing("reads alone"));
        }
        let mut swapped = apply(&mut store.found, swaps);
        if std::mem::take(&mut store.repeats) {
            swapped = apply(&mut store.found, swaps);
        }
        let is_lost = matches!(store.fault, Fault::Away | Fault::Mute) && swapped == Swapped::Done;
        if is_lost { Err(NoAnswer::passing("lost on the way back")) } else { Ok(swapped) }
    }
}

/// Compares and writes keys, as a coordinator does.
pub(super) fn apply(keys: &mut BTreeMap<String, String>, swaps: &[Swap]) -> Swapped {
    let found: Vec<_> = swaps.iter().map(|swap| keys.get(&swap.key).cloned()).collect();
    if found.iter().zip(swaps).any(|(it, swap)| *it != swap.expected) {
        return Swapped::Refused(found);
    }
    for Swap { key, text, .. } in swaps {
        if let Some(text) = text {
            keys.insert(key.clone(), text.clone());
        }
    }
    Swapped::Done
}

pub(super) fn twitter() -> Layout {
    TWITTER.clone()
}

pub(super) fn five() -> WorkerSet {
    WorkerSet::single(5)
}

/// Returns the numbering of worker ID 5.
pub(super) fn numbering() -> Numbering {
    Numbering::new(twitter(), five()).unwrap()
}

pub(super) fn key_five() -> String {
    Paths::of("f").number(0, 5)
}

pub(super) fn marker_key() -> String {
    Paths::of("f").marker()
}

pub(super) fn five_at(store: &Store) -> NumberKey {
    NumberKey::parse(&store.text(&key_five())).unwrap()
}

pub(super) fn marker_at(store: &Store) -> Marker {
    Marker::parse(&store.text(&marker_key())).unwrap()
}

/// Returns the limits of the fleet.
pub(super) fn limits() -> FleetLimits {
    FleetLimits::new(HORIZON, MAX_AHEAD)
}

/// Acts as an operator of the store's fleet.
pub(super) fn operate<T>(store: &Store, act: impl FnOnce(&mut Operator<'_>) -> T) -> T {
    let mut coordinator = store.clone();
    act(&mut Operator { coordinator: &mut coordinator, name: "f" })
}

/// Returns an operator's request that changes no ID space.
pub(super) fn preparing(begins: Option<Begins>) -> Preparing {
    Preparing { begins, is_growing: false, limits: limits(), now: WALL }
}

pub(super) fn at(wall: UnixMicros, seconds: i64) -> UnixMicros {
    UnixMicros(wall.0 + seconds * 1_000_000)
}

/// Returns a coordinator with a prepared fleet.
pub(super) fn store() -> Store {
    store_of(&TWITTER)
}

pub(super) fn store_of(layout: &Layout) -> Store {
    let store = Store::default();
    let marker = Marker::new("1f", vec![layout.space().to_string()], limits());
    store.put(&marker_key(), &marker.text());
    store
}

/// Returns clocks that have not jumped.
pub(super) fn clocks(wall: UnixMicros) -> Clocks {
    Clocks { wall, read: wall, boot: BootMicros(0), wall_minus_boot_us: 0 }
}

pub(super) fn want(wall: UnixMicros, is_proven: bool) -> Want<'static> {
    let proof = if is_proven { Proof::Held } else { Proof::None };
    Want { index: 0, source: "orders", layout: &TWITTER, clocks: clocks(wall), proof }
}

/// Returns the names of a daemon. The name of its state is also its name for people.
pub(super) fn names(state: &str) -> Names<'_> {
    Names { fleet: "f", state, holder: state }
}

/// Returns true if a daemon with this result ends.
pub(super) fn is_lost<T>(ended: &Result<T, FleetError>) -> bool {
    ended.as_ref().is_err_and(FleetError::is_loss)
}

pub(super) fn new_identity() -> String {
    fastrand::u64(..).to_string()
}

pub(super) fn member_of(store: &Store, state: &str, notes: Notes) -> Member<Store> {
    Member::new(store.clone(), names(state), limits(), notes, new_identity)
}

pub(super) fn member(store: &Store, notes: Notes) -> Member<Store> {
    member_of(store, "state", notes)
}

pub(super) fn other(store: &Store) -> Member<Store> {
    member_of(store, "other", Notes::default())
}

/// A simulated coordinator whose time passes only by its calls.
pub(super) trait Waits {
    /// Lets this time pass.
    fn wait(&mut self, time: Duration);
}

/// Takes all steps of a pause.
pub(super) fn pause<C: AsMut<dyn Coordinator> + Waits>(
    member: &mut Member<C>,
    pause: &mut Pause,
    clocks: Clocks,
) -> Result<(), FleetError> {
    while let Some(due_in) = member.settle(pause, clocks)? {
        member.coordinator.wait(due_in);
    }
    Ok(())
}

/// Pauses as a start does.
pub(super) fn settle<C: AsMut<dyn Coordinator> + Waits>(
    member: &mut Member<C>,
    taken: &mut [Option<Taken>],
    clocks: Clocks,
) -> Result<(), FleetError> {
    let is_new = |index: &usize| taken[*index].as_ref().is_some_and(|taken| taken.is_new);
    let mut paused = Pause::of((0..taken.len()).filter(is_new).collect());
    pause(member, &mut paused, clocks)?;
    for Bound { source, id_bound } in paused.floors {
        taken[source].as_mut().unwrap().floor = id_bound;
    }
    Ok(())
}

/// Raises bounds, and pauses if they had passed.
pub(super) fn raised<C: AsMut<dyn Coordinator> + Waits>(
    member: &mut Member<C>,
    raises: &[(Bound, u64)],
    clocks: Clocks,
) -> Result<(), FleetError> {
    let mut paused = member.raise(raises, clocks)?;
    pause(member, &mut paused, clocks)
}

/// Takes worker IDs, and pauses as a start does.
pub(super) fn take(member: &mut Member<Store>, want: Want<'_>, worker_ids: &WorkerSet) -> Taken {
    let mut taken = [Some(member.take(want, worker_ids).unwrap())];
    settle(member, &mut taken, want.clocks).unwrap();
    let [taken] = taken;
    taken.unwrap()
}

/// Returns a daemon that has taken number 5, and its ceiling.
pub(super) fn holder(store: &Store) -> (Member<Store>, u64) {
    let mut member = member(store, Notes::default());
    let covered = take(&mut member, want(WALL, false), &five()).covered;
    (member, covered)
}

pub(super) fn pick(member: &mut Member<Store>, want: Want<'_>) -> Result<Taken, FleetError> {
    pick_some(member, want, 1, |_| true)
}

/// Takes this many free worker IDs, as a start does.
pub(super) fn pick_some<C: AsMut<dyn Coordinator>>(
    member: &mut Member<C>,
    want: Want<'_>,
    count: usize,
    allowed: impl Fn(u64) -> bool,
) -> Result<Taken, FleetError> {
    for tried in 0..100 {
        let free = member.find_free(want, count, None, &allowed, tried)?;
        if let Some(taken) = member.take_free(want, free)? {
            return Ok(taken);
        }
    }
    Err(FleetError::Held(String::from("others were faster at each try")))
}

/// Takes number 5 once a second. Returns how far ahead of the clock the number's bound gets.
fn ahead_after_starts(is_proven: bool) -> Duration {
    let store = store();
    let numbering = numbering();
    let mut notes = Notes::default();
    let mut furthest = Duration::ZERO;
    for second in 0..2_000 {
        let wall = at(WALL, second);
        let mut member = member(&store, notes.clone());
        let Ok(taken) = member.take(want(wall, is_proven), &five()) else { continue };
        notes = member.notes().clone();
        let until = numbering.start_of(numbering.tick_of(numbering.position_from(taken.covered)));
        furthest = furthest.max(Duration::from_micros(until.0.saturating_sub(wall.0).max(0).unsigned_abs()));
    }
    furthest
}

/// Returns the bound of all IDs until now.
fn keepers(wall: UnixMicros) -> u64 {
    numbering().id_bound(numbering().first_of(numbering().tick_at(wall)))
}

/// One message must have room for all keys of a daemon, or its polls take longer than a pause.
#[test]
fn a_daemon_has_no_more_worker_ids_than_one_message_reads() {
    let most = NUMBERS_MAX as u64;
    let ids = |range: std::ops::Range<u64>| WorkerSet::from_list(range).unwrap();
    let store = store();
    let mut daemon = member(&store, Notes::default());
    let refused = |taken: &Result<Taken, FleetError>| matches!(taken, Err(FleetError::Refused(reason)) if reason.contains("at most 100"));
    assert!(refused(&daemon.take(want(WALL, false), &ids(0..most + 1))));
    take(&mut daemon, want(WALL, false), &ids(0..most - 1));
    let another = Want { index: 1, source: "other", ..want(WALL, false) };
    assert!(refused(&daemon.take(another, &ids(most..most + 2))));
    let refused = pick_some(&mut daemon, another, 2, |_| true);
    assert!(matches!(refused, Err(FleetError::Refused(_))), "{refused:?}");
    take(&mut daemon, another, &ids(most..most + 1));
}

#[test]
fn repeated_starts_do_not_push_the_bound_ahead() {
    let limit = HORIZON + MAX_AHEAD + Duration::from_secs(1);
    for is_proven in [true, false] {
        let furthest = ahead_after_starts(is_proven);
        assert!(furthest <= limit, "{furthest:?} ahead of the clock, is proven: {is_proven}");
    }
}

/// The raise asks for a lower bound than the start wrote.
#[test]
fn a_raise_lowers_no_bound_that_was_acknowledged() {
    let store = store();
    let mut member = member(&store, Notes::default());
    let taken = member.take(want(WALL, false), &five()).unwrap();
    let bound = Bound { source: 0, id_bound: taken.covered - 1 };
    assert_eq!(raised(&mut member, &[(bound, 0)], clocks(WALL)), Ok(()));
    let key = store.text(&key_five());
    assert_eq!(NumberKey::parse(&key).unwrap().id_bound, taken.covered);
}

/// The bounds were written while the clock was two hours ahead.
#[test]
fn own_bounds_are_believed_after_the_clock_was_set_back() {
    let store = store();
    let corrected = UnixMicros(WALL.0 - 2 * 3_600_000_000);
    let (mut first, covered) = holder(&store);
    assert_eq!(first.check(clocks(corrected)), Ok(()));
    let bound = Bound { source: 0, id_bound: covered };
    assert_eq!(raised(&mut first, &[(bound, 0)], clocks(corrected)), Ok(()));
    let key = key_five();
    assert_eq!(NumberKey::parse(&store.text(&key)).unwrap().id_bound, covered, "no bound is lowered");
    let again = member(&store, first.notes().clone()).take(want(corrected, true), &five());
    assert!(again.is_ok_and(|again| again.covered >= covered), "a start believes the bound too");
    let by_another = member(&store, Notes::default()).take(want(corrected, false), &five());
    assert!(matches!(by_another, Err(FleetError::Unreadable(_))), "{by_another:?}");
}

#[test]
fn a_copy_of_the_state_cannot_continue_with_its_number() {
    let store = store();
    let (first, _) = holder(&store);
    let notes = first.notes().clone();
    let refused = member(&store, notes.clone()).take(want(WALL, false), &five()).unwrap_err();
    assert!(matches!(&refused, FleetError::Held(line) if line.contains("a copy of it")), "{refused}");
    let taken = pick(&mut member(&store, notes.clone()), want(WALL, false));
    assert_ne!(taken.unwrap().worker_ids, five(), "another number is free");
    store.set(Fault::Away);
    assert_eq!(member(&store, notes.clone()).resume_unseen(want(WALL, false), &five()), None);
    let newest = want(WALL, true);
    assert_eq!(member(&store, notes.clone()).resume_unseen(newest, &WorkerSet::single(6)), None);
    assert!(member(&store, notes).resume_unseen(newest, &five()).is_some());
}

/// Nothing proves that the state is the newest. But no copy of the state can have made the write of
/// this process.
#[test]
fn a_first_start_whose_write_was_sent_twice_has_its_number() {
    let store = store();
    store.0.lock().unwrap().repeats = true;
    let taken = member(&store, Notes::default()).take(want(WALL, false), &five());
    assert!(taken.is_ok(), "{taken:?}");
}

#[test]
fn a_start_that_finds_its_own_write_keeps_that_writes_floor() {
    let store = store();
    let mut first = member(&store, Notes::default());
    let ours = first.take(want(WALL, false), &five()).unwrap();
    let mut other = other(&store);
    let later = at(WALL, 400);
    let theirs = other.take(want(later, false), &five()).unwrap();
    assert!(theirs.floor >= ours.covered);
    other.give_back(&[Bound { source: 0, id_bound: theirs.covered }], &[], clocks(WALL), &|| true).unwrap();
    let later = at(WALL, 800);
    let mut again = member(&store, first.notes().clone());
    let taken = again.take(want(later, true), &five()).unwrap();
    assert_eq!(taken.floor, theirs.covered);
    let mut after_kill = member(&store, again.notes().clone());
    let resumed = after_kill.take(want(later, true), &five()).unwrap();
    assert_eq!(resumed.floor, theirs.covered);
}

/// A daemon that waited for a number is stopped when it gets the number.
#[test]
fn a_number_that_a_start_gives_back_is_free_at_its_former_bound() {
    let store = store();
    let later = at(WALL, 400);
    let give_back = |state: &str, notes: Notes, wall: UnixMicros| {
        let mut member = member_of(&store, state, notes);
        let taken = take(&mut member, want(wall, true), &five());
        let bounds: Vec<Bound> = taken.unused(0).into_iter().collect();
        member.give_back(&bounds, &[], clocks(wall), &|| true).unwrap();
        member.notes().clone()
    };
    give_back("first", Notes::default(), WALL);
    let mut used = member_of(&store, "used", Notes::default());
    let taken = take(&mut used, want(WALL, false), &five());
    assert_eq!(taken.floor, 0, "nothing was handed out before");
    let notes = give_back("used", used.notes().clone(), WALL);
    let key = five_at(&store);
    assert!(!key.released, "a number of an earlier term is kept");
    let mut again = member_of(&store, "used", notes);
    take(&mut again, want(WALL, true), &five());
    again.give_back(&[Bound { source: 0, id_bound: taken.covered }], &[], clocks(WALL), &|| true).unwrap();
    // By its own note, this state may start lower than another daemon.
    give_back("used", again.notes().clone(), WALL);
    give_back("third", Notes::default(), later);
    let last = take(&mut member_of(&store, "last", Notes::default()), want(later, false), &five());
    assert_eq!(last.floor, taken.covered);
}

/// Another copy of the machine's memory may use the number. It is noticed right before the write.
#[test]
fn nothing_is_given_back_after_a_restore_of_the_machine() {
    let store = store();
    let (mut daemon, covered) = holder(&store);
    let before = store.text(&key_five());
    let bounds = [Bound { source: 0, id_bound: covered }];
    daemon.give_back(&bounds, &[], clocks(WALL), &|| false).unwrap_err();
    assert_eq!(store.text(&key_five()), before);
}

#[test]
fn numbers_are_held_once_all_their_keys_have_the_bound() {
    let store = store();
    let workers = |text: &str| text.parse::<WorkerSet>().unwrap();
    let mut earlier = member(&store, Notes::default());
    let covered = earlier.take(want(WALL, false), &workers("5,6")).unwrap().covered;
    let mut now = member(&store, Notes::default());
    assert_eq!(now.holds(0, &[5], 1), Ok(false), "the source has no number yet");
    now.take(want(WALL, false), &workers("9")).unwrap();
    assert_eq!(now.holds(0, &[5, 6], covered), Ok(true));
    assert_eq!(now.holds(0, &[5, 6], covered + 1), Ok(false));
    assert_eq!(now.holds(0, &[6, 7], 1), Ok(false));
    store.set(Fault::Away);
    assert!(now.holds(0, &[6], 1).is_err());
}

/// The copy tries again during an outage and after it.
#[test]
fn a_copy_of_the_state_that_waits_starts_above_the_original() {
    let store = store();
    let mut original = member(&store, Notes::default());
    let covered = original.take(want(WALL, false), &five()).unwrap().covered;
    let mut copy = member(&store, original.notes().clone());
    let mut try_at = |wall| {
        let taken = copy.take(want(wall, false), &five());
        copy.give_up(&[0]);
        taken
    };
    store.set(Fault::Away);
    assert!(matches!(try_at(WALL), Err(FleetError::NoAnswer(_))));
    store.set(Fault::None);
    assert!(matches!(try_at(WALL), Err(FleetError::Held(line)) if line.contains("a copy of it")));
    let taken = try_at(at(WALL, 400)).unwrap();
    assert!(taken.floor >= covered && taken.is_new, "{taken:?}");
}

/// During the wait the coordinator may have lost what another holder wrote after the release.
#[test]
fn a_start_that_waited_pauses_even_with_a_released_number() {
    let store = store();
    let mut first = member(&store, Notes::default());
    let taken = take(&mut first, want(WALL, false), &five());
    first.give_back(&[Bound { source: 0, id_bound: taken.covered }], &[], clocks(WALL), &|| true).unwrap();
    let again = || member(&store, first.notes().clone());
    let mut waited = again();
    waited.give_up(&[0]);
    for (mut member, expected) in [(again(), false), (waited, true)] {
        let before = store.text(&key_five());
        let taken = member.take(want(WALL, true), &five()).unwrap();
        assert_eq!(taken.is_new, expected);
        store.put(&key_five(), &before);
    }
}

/// A floor that a holder wrote may still wait in the coordinator's log, and a comparison would not
/// see it.
#[test]
fn a_pause_does_not_end_while_writes_have_no_answer() {
    let store = store();
    let mut member = member(&store, Notes::default());
    let mut taken = [member.take(want(WALL, false), &five()).ok()];
    store.set(Fault::Stalled);
    assert!(matches!(settle(&mut member, &mut taken, clocks(WALL)), Err(FleetError::NoAnswer(_))));
    store.set(Fault::None);
    assert!(settle(&mut member, &mut taken, clocks(WALL)).is_ok());
}

/// The clocks of the daemons that pick a number are past all bounds.
#[test]
fn the_free_number_with_the_earliest_bound_is_taken_first() {
    let store = store();
    for (number, seconds) in [(3, 20), (1, 10), (2, 30)] {
        let mut other = member(&store, Notes::default());
        other.take(want(at(WALL, seconds), false), &WorkerSet::single(number)).unwrap();
    }
    let pick = |count| {
        let mut member = member(&store, Notes::default());
        let allowed = |id| (1..4).contains(&id);
        let want = want(at(WALL, 1_000), false);
        pick_some(&mut member, want, count, allowed).unwrap().worker_ids.to_string()
    };
    assert_eq!(pick(1), "1");
    assert_eq!(pick(1), "3", "1 has a new bound");
    assert_eq!(pick(1), "2");
}

#[test]
fn daemons_that_start_together_soon_have_different_numbers() {
    let layout = twitter();
    let store = store();
    let want = want(WALL, false);
    let states: Vec<String> = (0..200).map(|index| format!("state-{index}")).collect();
    let daemon = |state: &String| member_of(&store, state, Notes::default());
    let mut waiting: Vec<_> = states.iter().map(daemon).collect();
    for tried in 0.. {
        assert!(tried < 10, "{} daemons have no number yet", waiting.len());
        // All daemons read the keys before any of them writes.
        let found: Vec<_> = waiting
            .iter_mut()
            .map(|daemon| daemon.free(Pick { want, place: 0, count: 1, had: None, tried }, |_| true).unwrap())
            .collect();
        let mut found = found.into_iter();
        waiting.retain_mut(|daemon| {
            let (id, found) = found.next().unwrap().remove(0);
            let numbering = Numbering::new(layout.clone(), WorkerSet::single(id)).unwrap();
            daemon.place_for(want).unwrap();
            let taken = daemon.try_take(want, 0, &numbering, vec![found], BootMicros(0)).unwrap();
            taken.is_none()
        });
        if waiting.is_empty() {
            break;
        }
    }
    assert_eq!(
        store.0.lock().unwrap().found.len(),
        1 + states.len(),
        "the marker, and one key for each daemon"
    );
}
