use crate::member::tests::{
    Fault, Store, WALL, clocks, five, five_at, holder, is_lost, key_five, limits, member, raised, settle,
    store, want,
};
use crate::{Bound, FleetError, Member, Notes, POLL_PERIOD, Want};
use snowbank_id::layout::WorkerSet;

/// Returns a daemon that has taken number 5. Also returns its coordinator and the number's bound.
fn taken() -> (Member<Store>, Store, u64) {
    let store = store();
    let mut member = member(&store, Notes::default());
    let covered = member.take(want(WALL, false), &five()).unwrap().covered;
    (member, store, covered)
}

fn raise(id_bound: u64, generation: u64) -> [(Bound, u64); 1] {
    [(Bound { source: 0, id_bound }, generation)]
}

#[test]
fn one_write_with_the_same_bound_follows_each_new_connection() {
    let (mut member, store, covered) = taken();
    for _ in 0..3 {
        let before = five_at(&store);
        assert_eq!(member.check(clocks(WALL)), Ok(()));
        assert_eq!(five_at(&store), before, "nothing has changed");
        member.coordinator.connect();
        assert_eq!(member.check(clocks(WALL)), Ok(()));
        let after = five_at(&store);
        assert_eq!((after.id_bound, after.write == before.write), (covered, false));
    }
    assert_eq!(raised(&mut member, &raise(covered + 9, 0), clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).id_bound, covered + 9);
}

#[test]
fn the_memory_copy_that_connects_again_first_has_the_number() {
    let (mut one, store, covered) = taken();
    let mut two = one.clone();
    two.coordinator.connect();
    assert_eq!(one.check(clocks(WALL)), Ok(()), "the other copy has not written yet");
    assert_eq!(two.check(clocks(WALL)), Ok(()));
    assert!(is_lost(&one.check(clocks(WALL))));
    assert_eq!(two.check(clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).id_bound, covered);
}

/// The memory was copied during a raise. Each copy tries the raise again, and finds that it was
/// done.
#[test]
fn a_write_made_before_the_connection_does_not_count() {
    let (mut one, store, covered) = taken();
    store.set(Fault::Mute);
    assert!(matches!(raised(&mut one, &raise(covered + 9, 0), clocks(WALL)), Err(FleetError::NoAnswer(_))));
    let mut two = one.clone();
    store.set(Fault::None);
    for copy in [&mut one, &mut two] {
        copy.coordinator.connect();
        assert_eq!(raised(copy, &raise(covered + 9, 0), clocks(WALL)), Ok(()));
    }
    assert_eq!(one.check(clocks(WALL)), Ok(()));
    assert!(is_lost(&two.check(clocks(WALL))));
    assert_eq!(one.check(clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).id_bound, covered + 9);

    // This time each copy's check tries the raise again.
    store.set(Fault::Mute);
    assert!(matches!(raised(&mut one, &raise(covered + 20, 0), clocks(WALL)), Err(FleetError::NoAnswer(_))));
    let mut two = one.clone();
    store.set(Fault::None);
    for copy in [&mut one, &mut two] {
        copy.coordinator.connect();
        assert_eq!(copy.check(clocks(WALL)), Ok(()));
    }
    assert_eq!(two.check(clocks(WALL)), Ok(()));
    assert!(is_lost(&one.check(clocks(WALL))));
    assert_eq!(five_at(&store).id_bound, covered + 20);
}

#[test]
fn the_write_on_a_new_connection_is_tried_until_it_is_answered() {
    let (mut member, store, covered) = taken();
    store.set(Fault::Mute);
    member.coordinator.connect();
    for _ in 0..100 {
        assert!(matches!(member.check(clocks(WALL)), Err(FleetError::NoAnswer(_))));
        assert_eq!(five_at(&store).id_bound, covered);
        member.coordinator.connect();
    }
    store.set(Fault::ReadOnly);
    for _ in 0..100 {
        member.coordinator.connect();
        assert!(matches!(member.check(clocks(WALL)), Err(FleetError::NoAnswer(_))));
    }
    assert!(member.sources[0].note("f", limits()).writes.len() < 5, "retries make no new writes");
    store.set(Fault::None);
    assert_eq!([member.check(clocks(WALL)), member.check(clocks(WALL))], [Ok(()), Ok(())]);
    let write = five_at(&store).write;
    assert_eq!(member.check(clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).write, write);
}

/// The coordinator does a raise late, between the read and the write of a check.
#[test]
fn the_write_on_a_new_connection_lowers_no_bound_written_late() {
    let (mut member, store, covered) = taken();
    let before = store.text(&key_five());
    store.set(Fault::Mute);
    assert!(matches!(
        raised(&mut member, &raise(covered + 9, 0), clocks(WALL)),
        Err(FleetError::NoAnswer(_))
    ));
    store.set(Fault::None);
    let raised = store.text(&key_five());
    store.put(&key_five(), &before);
    store.put_late(&key_five(), &raised);
    member.coordinator.connect();
    assert_eq!(member.check(clocks(WALL)), Ok(()));
    assert_eq!(five_at(&store).id_bound, covered + 9);
}

/// The daemon has no grant, because its machine was restored from a snapshot. Then a read gets an
/// old answer.
#[test]
fn an_old_answer_lowers_no_bound_on_a_new_connection() {
    let (mut member, store, covered) = taken();
    let older = store.text(&key_five());
    assert_eq!(raised(&mut member, &raise(covered + 9, 0), clocks(WALL)), Ok(()));
    store.set(Fault::ReadOnly);
    assert!(matches!(
        raised(&mut member, &raise(covered + 20, 1), clocks(WALL)),
        Err(FleetError::NoAnswer(_))
    ));
    store.set(Fault::None);
    member.coordinator.connect();
    store.be_stale(older);
    assert!(matches!(member.check(clocks(WALL)), Err(FleetError::NoAnswer(_))));
    assert_eq!(five_at(&store).id_bound, covered + 9);
    let before = five_at(&store).write;
    assert_eq!(member.check(clocks(WALL)), Ok(()));
    assert_eq!((five_at(&store).id_bound, five_at(&store).write == before), (covered + 9, false));
}

/// The first source went on without asking. Only the second one has asked the coordinator.
#[test]
fn a_poll_is_due_until_the_keys_of_all_sources_were_read() {
    let store = store();
    let (first, _) = holder(&store);
    let mut again = member(&store, first.notes().clone());
    assert!(again.resume_unseen(want(WALL, true), &five()).is_some());
    let other = Want { index: 1, source: "rows", ..want(WALL, false) };
    again.take(other, &WorkerSet::single(6)).unwrap();
    assert!(again.poll_due_in().is_zero());
    again.check_taken(&[0], clocks(WALL)).unwrap();
    assert!(again.poll_due_in().is_zero(), "it compares no key of this source");
    again.check_taken(&[1], clocks(WALL)).unwrap();
    assert!(!again.poll_due_in().is_zero(), "it polls first");
}

#[test]
#[should_panic(expected = "nothing raises a source that starts")]
fn no_bound_is_raised_before_a_start_has_compared_its_keys() {
    let (mut member, _, covered) = taken();
    member.begin_start([0]);
    let _ = raised(&mut member, &raise(covered + 9, 0), clocks(WALL));
}

/// A source serves, and another one starts. Each in turn loses its number.
#[test]
fn a_loss_ends_the_daemon_only_if_the_source_serves() {
    let store = store();
    let (mut daemon, covered) = holder(&store);
    let space = want(WALL, true).layout.space().to_string();
    let six = Want { index: 1, source: "six", ..want(WALL, false) };
    let take = |daemon: &mut Member<Store>, number| {
        daemon.begin_start([1]);
        daemon.take(six, &WorkerSet::single(number))
    };
    let mut taken = [None, Some(take(&mut daemon, 6).unwrap())];
    store.remove(&key_five().replace("/5", "/6"));
    assert_eq!((daemon.check(clocks(WALL)), daemon.loss()), (Ok(()), None));
    assert!(is_lost(&settle(&mut daemon, &mut taken, clocks(WALL))));
    assert!(is_lost(&daemon.confirm(&[1], clocks(WALL))), "what it took does not go back");
    assert_eq!(daemon.loss(), None);
    daemon.give_up(&[1]);
    assert_eq!((daemon.check(clocks(WALL)), daemon.loss()), (Ok(()), None));
    assert_eq!(daemon.notes().of("f", "orders", &space).unwrap().covered, covered);

    store.sleep_late(POLL_PERIOD);
    let _ = take(&mut daemon, 7);
    store.remove(&key_five());
    assert!(is_lost(&take(&mut daemon, 8)), "its poll finds the loss of the source that serves");
    assert!(daemon.loss().is_some());
}
