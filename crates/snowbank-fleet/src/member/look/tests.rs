use crate::member::tests::{Store, WALL, clocks, member, store, take, want};
use crate::{Bound, Member, Notes, NumberKey, Paths, Raised, Want};
use snowbank_id::layout::{Layout, WorkerSet};

/// Returns a daemon that took number 5, its coordinator, and its ceiling.
fn taken() -> (Member<Store>, Store, u64) {
    let layout = Layout::resolve("twitter").unwrap();
    let store = store(&layout);
    let mut member = member(&store, Notes::default());
    let covered = member.take(want(&layout, WALL, false), &WorkerSet::single(5)).unwrap().covered;
    (member, store, covered)
}

fn path() -> String {
    Paths::of("f").number(0, 5)
}

fn key(store: &Store) -> NumberKey {
    NumberKey::parse(&store.text(&path())).unwrap()
}

fn raise(id_bound: u64) -> [Bound; 1] {
    [Bound { source: 0, id_bound }]
}

#[test]
fn each_new_connection_is_used_for_one_write_of_the_same_bound() {
    let (mut member, store, covered) = taken();
    for _ in 0..3 {
        let before = key(&store);
        assert_eq!(member.look(clocks(WALL)), Raised::Done);
        assert_eq!(key(&store), before, "nothing has changed");
        member.coordinator.connect();
        assert_eq!(member.look(clocks(WALL)), Raised::Done);
        let after = key(&store);
        assert_eq!((after.id_bound, after.write == before.write), (covered, false));
    }
    assert_eq!(member.raise(&raise(covered + 9), 0, clocks(WALL)), Raised::Done);
    assert_eq!(key(&store).id_bound, covered + 9);
}

#[test]
fn of_two_copies_of_a_memory_the_first_to_connect_again_has_the_number() {
    let (mut one, store, covered) = taken();
    let mut two = one.clone();
    two.coordinator.connect();
    assert_eq!(one.look(clocks(WALL)), Raised::Done, "the other one has not written yet");
    assert_eq!(two.look(clocks(WALL)), Raised::Done);
    assert!(matches!(one.look(clocks(WALL)), Raised::Lost(_)));
    assert_eq!(two.look(clocks(WALL)), Raised::Done);
    assert_eq!(key(&store).id_bound, covered);
}

/// The memory was saved in a raise. Each copy tries it again, and finds that it was done.
#[test]
fn a_write_from_before_the_connection_does_not_count() {
    let (mut one, store, covered) = taken();
    store.set_mute(true);
    assert!(matches!(one.raise(&raise(covered + 9), 0, clocks(WALL)), Raised::NoAnswer(_)));
    let mut two = one.clone();
    store.set_mute(false);
    for copy in [&mut one, &mut two] {
        copy.coordinator.connect();
        assert_eq!(copy.raise(&raise(covered + 9), 0, clocks(WALL)), Raised::Done);
    }
    assert_eq!(one.look(clocks(WALL)), Raised::Done);
    assert!(matches!(two.look(clocks(WALL)), Raised::Lost(_)));
    assert_eq!(one.look(clocks(WALL)), Raised::Done);
    assert_eq!(key(&store).id_bound, covered + 9);

    // The look tries it again.
    store.set_mute(true);
    assert!(matches!(one.raise(&raise(covered + 20), 0, clocks(WALL)), Raised::NoAnswer(_)));
    let mut two = one.clone();
    store.set_mute(false);
    for copy in [&mut one, &mut two] {
        copy.coordinator.connect();
        assert_eq!(copy.look(clocks(WALL)), Raised::Done);
    }
    assert_eq!(two.look(clocks(WALL)), Raised::Done);
    assert!(matches!(one.look(clocks(WALL)), Raised::Lost(_)));
    assert_eq!(key(&store).id_bound, covered + 20);
}

#[test]
fn a_write_on_a_new_connection_is_tried_again_until_it_has_an_answer() {
    let (mut member, store, covered) = taken();
    store.set_mute(true);
    member.coordinator.connect();
    for _ in 0..100 {
        assert!(matches!(member.look(clocks(WALL)), Raised::NoAnswer(_)));
        assert_eq!(key(&store).id_bound, covered);
        member.coordinator.connect();
    }
    store.set_mute(false);
    store.set_read_only(true);
    for _ in 0..100 {
        member.coordinator.connect();
        assert!(matches!(member.look(clocks(WALL)), Raised::NoAnswer(_)));
    }
    assert!(member.sources[0].note().writes.len() < 5, "they do not add up");
    store.set_read_only(false);
    assert_eq!([member.look(clocks(WALL)), member.look(clocks(WALL))], [Raised::Done, Raised::Done]);
    let write = key(&store).write;
    assert_eq!(member.look(clocks(WALL)), Raised::Done);
    assert_eq!(key(&store).write, write);
}

/// A raise whose answer was lost is done late, between the read and the write of a look.
#[test]
fn a_write_on_a_new_connection_lowers_no_bound_that_is_written_late() {
    let (mut member, store, covered) = taken();
    let before = store.text(&path());
    store.set_mute(true);
    assert!(matches!(member.raise(&raise(covered + 9), 0, clocks(WALL)), Raised::NoAnswer(_)));
    store.set_mute(false);
    let raised = store.text(&path());
    store.put(&path(), &before);
    store.put_late(&path(), &raised);
    member.coordinator.connect();
    assert_eq!(member.look(clocks(WALL)), Raised::Done);
    assert_eq!(key(&store).id_bound, covered + 9);
}

/// After a restored snapshot the daemon trusts no bound that it had. The read lags.
#[test]
fn a_write_on_a_new_connection_lowers_no_bound_beside_an_old_answer() {
    let (mut member, store, covered) = taken();
    let older = store.text(&path());
    assert_eq!(member.raise(&raise(covered + 9), 0, clocks(WALL)), Raised::Done);
    store.set_read_only(true);
    assert!(matches!(member.raise(&raise(covered + 20), 1, clocks(WALL)), Raised::NoAnswer(_)));
    store.set_read_only(false);
    member.coordinator.connect();
    store.be_stale(older);
    assert!(matches!(member.look(clocks(WALL)), Raised::NoAnswer(_)));
    assert_eq!(key(&store).id_bound, covered + 9);
    let before = key(&store).write;
    assert_eq!(member.look(clocks(WALL)), Raised::Done);
    assert_eq!((key(&store).id_bound, key(&store).write == before), (covered + 9, false));
}

/// Its first source went on without asking, and only the second one has asked.
#[test]
fn a_poll_is_due_until_the_keys_of_all_sources_were_read() {
    let layout = Layout::resolve("twitter").unwrap();
    let five = WorkerSet::single(5);
    let store = store(&layout);
    let mut first = member(&store, Notes::default());
    take(&mut first, want(&layout, WALL, false), &five);
    let mut again = member(&store, first.notes().clone());
    assert!(again.resume_unseen(want(&layout, WALL, true), &five).is_some());
    let other = Want { index: 1, source: "rows", ..want(&layout, WALL, false) };
    again.take(other, &WorkerSet::single(6)).unwrap();
    assert!(again.poll_due_in().is_zero());
    again.check_taken(clocks(WALL)).unwrap();
    assert!(again.poll_due_in().is_zero());
    assert_eq!(again.look(clocks(WALL)), Raised::Done);
    assert!(!again.poll_due_in().is_zero());
}
