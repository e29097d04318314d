//! Tests: starts that go on without asking the coordinator, and starts that must ask it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::Paths;
use crate::{Marker, NoteStore};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
use snowbank_state::StateError;

/// Returns the ceiling below which a start with these notes goes on without asking. Returns `None`
/// if the start must ask.
fn resumed(store: &Store, notes: &Notes, want: Want<'_>, worker_ids: &WorkerSet) -> Option<u64> {
    let taken = member(store, notes.clone()).resume_at_once(want, worker_ids);
    taken.map(|taken| taken.covered)
}

#[test]
fn a_start_with_less_than_a_quarter_of_the_horizon_left_asks() {
    let store = store();
    let (first, covered) = holder(&store);
    store.set(Fault::Away);
    let at = |wall, is_proven| resumed(&store, first.notes(), want(wall, is_proven), &five());
    let [in_time, too_late] = [6, 7].map(|part| UnixMicros(WALL.0 + (HORIZON / 8 * part).as_micros() as i64));
    assert_eq!(at(WALL, true), Some(covered));
    assert_eq!(at(in_time, true), Some(covered));
    assert_eq!(at(too_late, true), None, "the ceiling is too near");
    assert_eq!(at(WALL, false), None, "the state may be a copy");
}

#[test]
fn a_start_goes_on_only_below_a_ceiling_of_its_own_numbers() {
    let [one, two] = [1, 2].map(|constant| {
        Layout::resolve(&format!("time:41,site:5:constant({constant}),worker:5,sequence:12;tick=1ms"))
            .unwrap()
    });
    assert_eq!(one.space(), two.space());
    let store = store_of(&one);
    let mut first = member(&store, Notes::default());
    take(&mut first, Want { layout: &one, ..want(WALL, false) }, &five());
    let at =
        |layout, worker_ids| resumed(&store, first.notes(), Want { layout, ..want(WALL, true) }, &worker_ids);
    assert!(at(&one, five()).is_some());
    assert_eq!(at(&one, WorkerSet::single(6)), None);
    assert_eq!(at(&two, five()), None, "worker ID 5 is another number in that layout");
    let renamed = Want { source: "another", layout: &one, ..want(WALL, true) };
    assert_eq!(resumed(&store, first.notes(), renamed, &five()), None);
    let mut other = member(&store, first.notes().clone());
    other.claim_note(renamed, &WorkerSet::single(6));
    assert_eq!(other.resume_at_once(renamed, &five()), None);
    other.claim_note(renamed, &five());
    assert!(other.resume_at_once(renamed, &five()).is_some());
    let before = Want { layout: &one, ..want(WALL, true) };
    assert_eq!(resumed(&store, other.notes(), before, &five()), None, "the numbers have one note");
}

/// The first two daemons are killed, the second one during a raise.
#[test]
fn repeated_starts_stay_below_the_acknowledged_ceiling() {
    let store = store();
    let (first, covered) = holder(&store);
    let newest = want(WALL, true);
    store.set(Fault::Away);
    let mut second = member(&store, first.notes().clone());
    assert_eq!(second.resume_at_once(newest, &five()).map(|taken| taken.covered), Some(covered));
    assert!(matches!(second.check(clocks(WALL)), Err(FleetError::NoAnswer(_))));
    store.set(Fault::None);
    assert_eq!(second.check(clocks(WALL)), Ok(()));
    store.set(Fault::Away);
    assert!(matches!(
        raised(&mut second, &[(Bound { source: 0, id_bound: covered + 9 }, 0)], clocks(WALL)),
        Err(FleetError::NoAnswer(_))
    ));
    assert_eq!(five_at(&store).id_bound, covered + 9, "the raise was done without an answer");
    assert_eq!(resumed(&store, second.notes(), newest, &five()), Some(covered));
    store.set(Fault::None);
    let mut third = member(&store, second.notes().clone());
    third.resume_at_once(newest, &five()).unwrap();
    assert_eq!(third.check(clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).id_bound, covered + 9, "no bound is lowered");
    assert_eq!(resumed(&store, third.notes(), newest, &five()), Some(covered + 9));
    third.give_back(&[Bound { source: 0, id_bound: covered }], &[], clocks(WALL), &|| true).unwrap();
    assert_eq!(resumed(&store, third.notes(), newest, &five()), None, "the daemon has released the number");
}

/// Its own ceiling was not acknowledged. Below it, the start would collide with another daemon, which
/// would start at the key's lower bound.
#[test]
fn a_start_whose_write_had_no_answer_goes_on_below_the_ceiling_before() {
    let store = store();
    let (first, covered) = holder(&store);
    let mut later = want(UnixMicros(WALL.0 + (HORIZON / 8).as_micros() as i64), true);
    store.set(Fault::ReadOnly);
    let mut second = member(&store, first.notes().clone());
    second.take(later, &five()).unwrap_err();
    let resumed = |want| {
        let taken = member(&store, second.notes().clone()).resume_unseen(want, &five());
        taken.map(|taken| taken.covered)
    };
    assert_eq!(resumed(later), Some(covered));
    // The ceiling counts only with the clocks with which it was requested.
    later.clocks.wall_minus_boot_us += 30_000_000;
    assert_eq!(resumed(later), None);
    let mut third = member(&store, second.notes().clone());
    third.take(later, &five()).unwrap_err();
    assert_eq!(member(&store, third.notes().clone()).resume_unseen(later, &five()), None);
}

/// The coordinator answers reads and does no writes, for days.
#[test]
fn tries_that_are_not_done_leave_few_writes_in_the_notes() {
    let store = store();
    let (first, _) = holder(&store);
    store.set(Fault::ReadOnly);
    let mut tries = member(&store, first.notes().clone());
    for _ in 0..1_000 {
        tries.take(want(WALL, true), &five()).unwrap_err();
    }
    let writes = tries.notes().of("f", "orders", &twitter().space().to_string()).unwrap().writes.len();
    assert!(writes <= 16, "{writes}");
    store.set(Fault::None);
    let taken = member(&store, tries.notes().clone()).take(want(WALL, true), &five()).unwrap();
    assert!(!taken.is_new, "the start recognises the write that was done");
}

/// Before a stop returns a number, the coordinator must confirm that the daemon still has it.
#[test]
fn a_stop_without_an_answer_keeps_the_number_as_a_kill_does() {
    let store = store();
    let (mut first, covered) = holder(&store);
    let newest = want(WALL, true);
    store.set(Fault::Away);
    assert!(matches!(first.confirm(&[0], clocks(WALL)), Err(FleetError::NoAnswer(_))));
    assert_eq!(resumed(&store, first.notes(), newest, &five()), Some(covered));
    store.set(Fault::None);
    assert_eq!(first.confirm(&[0], clocks(WALL)), Ok(()));
    store.set(Fault::Mute);
    first
        .give_back(&[Bound { source: 0, id_bound: keepers(WALL) }], &[], clocks(WALL), &|| true)
        .unwrap_err();
    assert_eq!(resumed(&store, first.notes(), newest, &five()), None, "another daemon may have the number");
    // Nobody knows when the release was done. The coordinator may have lost what another daemon wrote
    // before.
    store.set(Fault::None);
    let returned = Want { proof: Proof::Newest, ..newest };
    assert!(member(&store, first.notes().clone()).take(returned, &five()).unwrap().is_new);
}

/// The machine may have been restored from a snapshot, perhaps twice, and the daemon was killed
/// before it asked the coordinator.
#[test]
fn a_start_after_a_jump_of_the_clocks_asks() {
    let store = store();
    let (mut first, covered) = holder(&store);
    let mut jumped = want(WALL, true);
    jumped.clocks.wall_minus_boot_us += 30_000_000;
    assert_eq!(resumed(&store, first.notes(), jumped, &five()), None);
    assert_eq!(member(&store, first.notes().clone()).resume_unseen(jumped, &five()), None);
    // A ceiling that was acknowledged with the new difference of the clocks counts.
    let bound = Bound { source: 0, id_bound: covered + 9 };
    assert_eq!(raised(&mut first, &[(bound, 1)], jumped.clocks), Ok(()));
    assert_eq!(resumed(&store, first.notes(), jumped, &five()), Some(covered + 9));
}

/// The machine was restored from a snapshot twice, during a raise. Both copies recognise the write
/// of the raise as their own, and are killed before they have made another.
#[test]
fn a_write_made_before_a_jump_of_the_clocks_proves_nothing_after_it() {
    let store = store();
    let (mut one, covered) = holder(&store);
    store.set(Fault::Mute);
    let bound = Bound { source: 0, id_bound: covered + 9 };
    assert!(matches!(raised(&mut one, &[(bound, 0)], clocks(WALL)), Err(FleetError::NoAnswer(_))));
    store.set(Fault::None);
    let mut jumped = want(WALL, true);
    jumped.clocks.wall_minus_boot_us += 30_000_000;
    for mut copy in [one.clone(), one] {
        copy.coordinator.connect();
        assert_eq!(copy.check(jumped.clocks), Ok(()));
        assert_eq!(resumed(&store, copy.notes(), jumped, &five()), None);
    }
}

/// The machine was restored from a snapshot twice, and nothing shows that.
#[test]
fn the_first_of_two_copies_to_be_answered_has_the_number() {
    let store = store();
    let (first, _) = holder(&store);
    let copies = [(); 2].map(|()| {
        let mut copy = member(&store, first.notes().clone());
        copy.resume_at_once(want(WALL, true), &five()).unwrap();
        copy
    });
    let [mut one, mut two] = copies;
    assert_eq!(one.check(clocks(WALL)), Ok(()));
    assert!(
        matches!(two.check(clocks(WALL)), Err(FleetError::Held(reason)) if reason.contains("another copy of this daemon"))
    );
    assert_eq!(one.check(clocks(WALL)), Ok(()));
}

#[test]
fn a_start_after_a_loss_asks() {
    let newest = want(WALL, true);
    let lose: [fn(&Store); 3] = [
        |store| store.remove(&key_five()),
        |store| store.remove(&marker_key()),
        |store| store.put(&marker_key(), &Marker::new("1f", vec![String::from("other")], limits()).text()),
    ];
    for lose in lose {
        let store = store();
        let (first, _) = holder(&store);
        lose(&store);
        let mut again = member(&store, first.notes().clone());
        again.resume_at_once(newest, &five()).unwrap();
        assert!(is_lost(&again.check(clocks(WALL))));
        assert_eq!(resumed(&store, again.notes(), newest, &five()), None);
        assert_eq!(member(&store, again.notes().clone()).resume_unseen(newest, &five()), None);
    }
}

/// A disk that hangs, with the count of waits for it.
#[derive(Debug, Default)]
struct HangingDisk(AtomicUsize);

impl NoteStore for HangingDisk {
    fn begin(&self, _: Notes) {}

    fn wait(&self, _: Duration) -> Result<bool, StateError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }
}

/// Another daemon may take the number at once, and start below the old ceiling. A daemon that runs would
/// end.
#[test]
fn a_start_that_finds_a_loss_and_cannot_raise_the_floor_waits() {
    let store = store();
    let (first, _) = holder(&store);
    let wanted = want(at(WALL, 10), true);
    let resumes = |member: &mut Member<Store>, want| member.resume_unseen(want, &five()).is_some();
    assert!(resumes(&mut member(&store, first.notes().clone()), wanted), "the ceiling is ahead");
    store.remove(&key_five());
    store.set(Fault::ReadOnly);
    let stored = Arc::new(Stored::default());
    let mut again = member(&store, first.notes().clone().kept_in(Some(stored.clone())));
    assert!(matches!(again.take(wanted, &five()), Err(FleetError::NoAnswer(_))));
    assert!(!resumes(&mut again, wanted));
    let notes = stored.0.lock().unwrap().clone().expect("they are stored");
    assert!(!resumes(&mut member(&store, notes), wanted), "nor does the next process");
}

/// The last notes that were stored.
#[derive(Debug, Default)]
struct Stored(Mutex<Option<Notes>>);

impl NoteStore for Stored {
    fn begin(&self, notes: Notes) {
        *self.0.lock().unwrap() = Some(notes);
    }

    fn wait(&self, _: Duration) -> Result<bool, StateError> {
        Ok(true)
    }
}

/// Returns what the second source of a daemon wants.
fn six(wall: UnixMicros, is_proof: bool) -> Want<'static> {
    Want { index: 1, source: "six", ..want(wall, is_proof) }
}

/// Returns the notes of a daemon whose two sources have served.
fn notes_of_two(store: &Store) -> Notes {
    let mut first = member(store, Notes::default());
    let five = first.take(want(WALL, false), &five()).ok();
    let mut taken = [five, first.take(six(WALL, false), &WorkerSet::single(6)).ok()];
    settle(&mut first, &mut taken, clocks(WALL)).unwrap();
    first.notes().clone()
}

/// While the other starts of a daemon ask, a poll reads what a source that went on has lost.
#[test]
fn a_poll_that_reads_the_loss_of_a_source_that_starts_ends_no_doubt() {
    let store = store();
    let now = at(WALL, 10);
    let mut again = member(&store, notes_of_two(&store));
    let doubts: Arc<Mutex<Vec<bool>>> = Arc::default();
    let sees = Arc::clone(&doubts);
    again.on_doubt(Arc::new(move |in_doubt| sees.lock().unwrap().push(in_doubt)));
    again.begin_start([0]);
    assert!(again.resume_at_once(want(now, true), &five()).is_some());
    store.remove(&key_five());
    store.set(Fault::ReadOnly);
    assert_eq!(again.check(clocks(now)), Ok(()), "no source serves");
    assert_eq!(*doubts.lock().unwrap(), [true]);
    assert!(matches!(again.check_taken(&[0], clocks(now)), Err(FleetError::NoAnswer(_))));
}

/// One source goes on without asking, or serves. The other asks, and finds that the coordinator went back.
#[test]
fn no_source_goes_on_beside_one_that_found_a_loss() {
    for serves in [false, true] {
        let store = store();
        let mut again = member(&store, notes_of_two(&store));
        again.begin_start([0, 1]);
        let now = at(WALL, 10);
        assert!(again.resume_at_once(want(now, true), &five()).is_some());
        if serves {
            assert_eq!(again.check_taken(&[0], clocks(now)), Ok(()));
        }
        store.remove(&Paths::of("f").number(0, 6));
        store.set(Fault::ReadOnly);
        assert!(again.take(six(now, true), &WorkerSet::single(6)).is_err());
        if serves {
            assert!(matches!(again.loss(), Some(FleetError::WentBack(_))), "the daemon ends");
        } else {
            assert!(matches!(again.check_taken(&[0], clocks(now)), Err(FleetError::NoAnswer(_))));
        }
    }
}

/// A source may come back into the configuration after the loss of another one.
#[test]
fn a_loss_forgets_the_ceilings_of_sources_that_are_gone() {
    let store = store();
    let now = at(WALL, 10);
    let mut again = member(&store, notes_of_two(&store));
    assert!(again.clone().resume_at_once(six(now, true), &WorkerSet::single(6)).is_some(), "before the loss");
    assert!(again.resume_at_once(want(now, true), &five()).is_some());
    store.remove(&key_five());
    store.set(Fault::ReadOnly);
    assert!(again.check(clocks(now)).is_err());
    let mut last = member(&store, again.notes().clone());
    assert!(last.resume_unseen(six(now, true), &WorkerSet::single(6)).is_none());
}

/// The marks say that a loss was found, also if the notes are not durable.
#[test]
fn a_process_after_a_loss_asks() {
    let store = store();
    let (first, _) = holder(&store);
    let wanted = Want { proof: Proof::Lost, ..want(at(WALL, 10), true) };
    let mut again = member(&store, first.notes().clone());
    assert!(again.resume_unseen(wanted, &five()).is_none());
    store.remove(&key_five());
    assert!(again.take(wanted, &five()).is_ok());
    assert!(marker_at(&store).floor() > wanted.clocks.wall, "it notices the loss as with the whole proof");
}

/// The daemon must end before it hands out more, however slow its disk is.
#[test]
fn a_loss_is_returned_without_a_wait_for_the_disk() {
    let store = store();
    let (first, _) = holder(&store);
    let disk = Arc::new(HangingDisk::default());
    let mut again = member(&store, first.notes().clone().kept_in(Some(disk.clone())));
    again.resume_at_once(want(WALL, true), &five()).unwrap();
    store.remove(&key_five());
    assert!(is_lost(&again.check(clocks(WALL))));
    assert_eq!(disk.0.load(Ordering::Relaxed), 0);
}

/// The number is lost before the start compares its keys the second time.
#[test]
fn a_start_after_one_that_lost_a_number_asks() {
    let store = store();
    let (mut first, covered) = holder(&store);
    let newest = want(WALL, true);
    store.set(Fault::Away);
    assert!(matches!(first.check_taken(&[0], clocks(WALL)), Err(FleetError::NoAnswer(_))));
    assert_eq!(resumed(&store, first.notes(), newest, &five()), Some(covered));
    store.set(Fault::None);
    store.remove(&key_five());
    assert!(matches!(first.check_taken(&[0], clocks(WALL)), Err(FleetError::WentBack(_))));
    assert_eq!(resumed(&store, first.notes(), newest, &five()), None);
}

/// Each try writes a key, but the answer is lost.
#[test]
fn a_start_tries_the_number_of_its_unanswered_write_again() {
    let layout = twitter();
    let store = store();
    let mut daemon = member(&store, Notes::default());
    let mut try_again = || {
        let picked = pick(&mut daemon, want(WALL, false));
        daemon.give_up(&[0]);
        (picked, daemon.notes().of("f", "orders", &layout.space().to_string()).unwrap().writes.len())
    };
    for _ in 0..100 {
        store.set(Fault::Mute);
        let (picked, writes) = try_again();
        assert!(matches!(picked, Err(FleetError::NoAnswer(_))) && writes < 20, "{writes} writes are noted");
    }
    store.set(Fault::None);
    let (picked, _) = try_again();
    let taken = picked.unwrap();
    assert_eq!(
        (taken.worker_ids, taken.floor),
        (WorkerSet::single(0), 0),
        "nothing was handed out with this number"
    );
}

/// The daemon waits for another worker ID while the machine is restored. Another copy of the machine
/// may have the same notes.
#[test]
fn a_try_after_a_restore_of_the_machine_asks() {
    let store = store();
    let (first, covered) = holder(&store);
    store.set(Fault::Away);
    let newest = want(WALL, true);
    let waiting = || member(&store, first.notes().clone());
    assert_eq!(waiting().resume_at_once(newest, &five()).map(|taken| taken.covered), Some(covered));
    let mut restored = waiting();
    restored.record_restored();
    assert!(restored.resume_at_once(newest, &five()).is_none(), "the copy went on without asking");
}

#[test]
fn a_renamed_source_keeps_its_note_and_a_removed_one_its_bound() {
    let store = store();
    let (mut first, covered) = holder(&store);
    first.rename(&[(0, String::from("other"))]);
    let other = Want { source: "other", ..want(WALL, true) };
    assert_eq!(resumed(&store, first.notes(), other, &five()), Some(covered));
    assert_eq!(resumed(&store, first.notes(), want(WALL, true), &five()), None);
    first.give_back(&[Bound { source: 0, id_bound: covered }], &[], clocks(WALL), &|| true).unwrap();
    first.leave(&[0]);
    assert_eq!(first.check(clocks(WALL)), Ok(()), "a removed source is checked no more");
    let again = first.take(other, &five()).unwrap();
    assert!(again.is_new && again.unused_from >= covered, "{again:?}");
}

/// Its process has no lock of them, so after a loss nothing else says that they must ask.
#[test]
fn a_start_forgets_the_ceilings_of_sources_that_it_does_not_have() {
    let store = store();
    let now = at(WALL, 10);
    let mut again = member(&store, notes_of_two(&store));
    let five_numbers = want(now, true).layout.numbers_in_space(&five());
    assert_eq!(again.keep_ceilings_of(&[(want(now, true).layout.space(), five_numbers)]), Ok(()));
    assert!(again.resume_at_once(want(now, true), &five()).is_some());
    assert!(again.resume_unseen(six(now, true), &WorkerSet::single(6)).is_none());
}
