//! Tests: a coordinator that went back.

use super::*;
use crate::counter::CounterKey;
use crate::{Begins, Marker, NumberRange, Preparing, noticed_within};
use snowbank_id::layout::{UnixMicros, WorkerSet};
use snowbank_id::numbering::{Numbering, TicketCounter};

fn floor(store: &Store) -> UnixMicros {
    marker_at(store).floor()
}

/// Returns the bound that a keeper with this clock requests.
fn keepers_bound(wall: UnixMicros) -> Bound {
    let ceiling = rules::ceiling(&numbering(), wall, HORIZON);
    Bound { source: 0, id_bound: numbering().id_bound(ceiling) }
}

/// The first try has no answer. In generation 1, the grant was taken away before the first try.
#[test]
fn no_later_try_of_a_raise_lowers_a_bound() {
    for generation in [0, 1] {
        let store = store();
        let covered = take(&mut member(&store, Notes::default()), want(WALL, false), &five()).covered;
        let until = rules::instant_of(&numbering(), covered);
        // The daemon starts at the previous holder's bound, so its first bound is further ahead
        // than a bound that a keeper requests.
        let now = at(until, -9);
        let mut daemon = other(&store);
        take(&mut daemon, want(now, false), &five());
        store.set(Fault::ReadOnly);
        let refused = raised(&mut daemon, &[(keepers_bound(now), generation)], clocks(now));
        assert!(matches!(refused, Err(FleetError::NoAnswer(_))), "{refused:?}");
        store.set(Fault::None);
        let next = at(now, 1);
        assert_eq!(raised(&mut daemon, &[(keepers_bound(next), generation)], clocks(next)), Ok(()));
        assert_eq!(daemon.check(clocks(next)), Ok(()), "generation {generation}");
        assert_eq!(floor(&store), UnixMicros(0), "no restore is noticed");
    }
}

#[test]
fn a_daemon_that_loses_a_counter_raises_the_floor_first() {
    let store = store();
    let counter_key = Paths::of("f").counter("tickets");
    let range = NumberRange { from: 1, to: 1 };
    store.put(&counter_key, &CounterKey::new("c", range, "w0", "operator").text());
    let (mut daemon, _) = holder(&store);
    let tickets = Numbering::from(TicketCounter::new("tickets", 1, 1).unwrap());
    daemon.add_counter(1, "tickets", &tickets, 0);
    assert_eq!(daemon.check(clocks(WALL)), Ok(()));
    let backup = [key_five(), counter_key].map(|key| (store.text(&key), key));
    let later = at(WALL, 200);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(later), 0)], clocks(later)), Ok(()));
    assert!(daemon.take_range(1, 1_000, 0).is_ok());
    for (text, key) in backup {
        store.put(&key, &text);
    }
    let taken = daemon.take_range(1, 1_000, 0);
    assert!(matches!(&taken, Err(FleetError::Held(reason)) if reason.contains("tickets")), "{taken:?}");
    assert!(floor(&store) > later);
}

/// The pause protects the IDs of a holder that was cut off, and whose write an earlier restore has
/// lost.
#[test]
fn a_start_pauses_if_the_last_pause_was_cut_short() {
    let store = store();
    let mut first = member(&store, Notes::default());
    first.take(want(WALL, false), &five()).unwrap();
    let backup = store.text(&key_five());
    first.give_up(&[0]);
    let mut second = first;
    let now = at(WALL, 7);
    second.take(want(now, true), &five()).unwrap();
    store.put(&key_five(), &backup);
    let mut third = member(&store, second.notes().clone());
    let taken = third.take(want(now, true), &five()).unwrap();
    assert!(floor(&store) > now, "the start notices the restore");
    assert!(taken.is_new, "the start pauses");
    assert!(rules::instant_of(&numbering(), taken.floor) > now, "the start is above the floor");
}

/// The coordinator was restored to before another daemon took the number. That daemon may not have
/// noticed yet when the next start follows a stop in the middle of a pause.
#[test]
fn a_start_pauses_if_the_last_start_stopped_in_its_pause() {
    let store = store();
    let (first, _) = holder(&store);
    take(&mut other(&store), want(at(WALL, 400), false), &five());
    let backup = store.text(&key_five());
    let wall = at(WALL, 800);
    take(&mut member_of(&store, "serves", Notes::default()), want(wall, false), &five());
    store.put(&key_five(), &backup);
    let mut stopped = member(&store, first.notes().clone());
    let taken = [Some(stopped.take(want(wall, true), &five()).unwrap())];
    let due = stopped.settle(&mut Pause::of(vec![0]), clocks(wall)).unwrap();
    assert!(due.is_some(), "the pause has more than one step");
    let unused: Vec<Bound> = taken[0].iter().filter_map(|taken| taken.unused(0)).collect();
    stopped.give_back(&unused, &[], clocks(wall), &|| true).unwrap();
    assert!(five_at(&store).released);
    let again = member(&store, stopped.notes().clone()).take(want(wall, true), &five());
    assert!(again.is_ok_and(|taken| taken.is_new));
}

/// Another daemon notices a restore, and raises the floor above the bound that had passed. The keeper
/// tries a raise again if its pause has failed.
#[test]
fn a_passed_bound_below_a_floor_that_is_raised_in_its_pause_is_lost() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    let wall = at(WALL, 400);
    let raise = [(keepers_bound(wall), 0)];
    let mut paused = daemon.raise(&raise, clocks(wall)).unwrap();
    assert!(matches!(daemon.settle(&mut paused, clocks(wall)), Ok(Some(_))));
    let (mut again, paused_at) = (daemon.clone(), store.now());
    store.set(Fault::Away);
    let failed = pause(&mut again, &mut paused.clone(), clocks(wall));
    assert!(matches!(failed, Err(FleetError::NoAnswer(_))), "{failed:?}");
    store.set(Fault::None);
    let mut marker = marker_at(&store);
    marker.raise_floor(wall);
    store.put(&marker_key(), &marker.text());
    assert!(is_lost(&raised(&mut again, &raise, clocks(wall))));
    store.0.lock().unwrap().boot = paused_at;
    assert!(is_lost(&pause(&mut daemon, &mut paused, clocks(wall))));
}

/// The answer to what the daemon asks may take long, and another daemon may have the number by then.
#[test]
fn nothing_is_handed_out_while_a_daemon_asks_whether_it_has_lost_a_number() {
    let prepare_again = |store: &Store| {
        let spaces = marker_at(store).spaces;
        store.put(&marker_key(), &Marker::new("2f", spaces, limits()).text());
    };
    let doubts = |lose: &dyn Fn(&Store), fault| -> Vec<bool> {
        let store = store();
        let (mut daemon, _) = holder(&store);
        let seen: Arc<Mutex<Vec<(bool, UnixMicros)>>> = Arc::default();
        let (sees, at_the_store) = (Arc::clone(&seen), store.clone());
        daemon.on_doubt(Arc::new(move |is| sees.lock().unwrap().push((is, floor(&at_the_store)))));
        lose(&store);
        store.set(fault);
        assert!(is_lost(&daemon.check(clocks(WALL))));
        let seen = seen.lock().unwrap().clone();
        if let [(_, before), (_, after)] = seen[..] {
            assert!(before < after, "the grants go before the floor is written");
        }
        seen.into_iter().map(|(is, _)| is).collect()
    };
    assert_eq!(doubts(&|store| store.remove(&key_five()), Fault::None), [true, false]);
    assert_eq!(doubts(&prepare_again, Fault::None), [true, false]);
    assert_eq!(doubts(&|store| store.remove(&key_five()), Fault::ReadOnly), [true]);
}

/// A replica of the coordinator is behind. The daemon goes on once it knows.
#[test]
fn an_old_answer_ends_a_doubt() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    let older = store.text(&key_five());
    let later = at(WALL, 200);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(later), 0)], clocks(later)), Ok(()));
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let sees = Arc::clone(&seen);
    daemon.on_doubt(Arc::new(move |in_doubt| sees.lock().unwrap().push(in_doubt)));
    store.be_stale(older);
    assert!(matches!(daemon.check(clocks(later)), Err(FleetError::NoAnswer(_))));
    assert_eq!(*seen.lock().unwrap(), [true, false]);
    let covered = |daemon: &Member<Store>| {
        daemon.notes().of("f", "orders", &want(WALL, true).layout.space().to_string()).unwrap().covered
    };
    assert_eq!(covered(&daemon), 0, "a start must ask until the next raise");
    let again = at(later, 10);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(again), 1)], clocks(again)), Ok(()));
    assert_eq!(covered(&daemon), keepers_bound(again).id_bound);
}

/// It tries again every few seconds, for as long as its key is missing.
#[test]
fn a_counter_that_is_missing_when_its_source_starts_is_no_loss() {
    let (mut daemon, _) = holder(&store());
    let doubts: Arc<Mutex<Vec<bool>>> = Arc::default();
    let sees = Arc::clone(&doubts);
    daemon.on_doubt(Arc::new(move |in_doubt| sees.lock().unwrap().push(in_doubt)));
    let tickets = Numbering::from(TicketCounter::new("tickets", 1, 1).unwrap());
    daemon.begin_start([1]);
    daemon.add_counter(1, "tickets", &tickets, 0);
    assert!(daemon.take_range(1, 1_000, 0).is_err());
    assert!(doubts.lock().unwrap().is_empty(), "the other sources go on");
}

/// While the machine sleeps, another daemon may take the number and hand out IDs, and a restore of the
/// coordinator may lose that. The swap then finds what it expects.
#[test]
fn a_bound_that_passes_before_the_answer_to_its_write_is_paused_for() {
    for fault in [Fault::None, Fault::Mute] {
        let store = store();
        let (mut daemon, covered) = holder(&store);
        let half = HORIZON / 2;
        let wall = at(WALL, half.as_secs() as i64);
        assert!(!rules::may_be_abandoned(rules::instant_of(&numbering(), covered), wall, MAX_AHEAD));
        let raise = [(keepers_bound(wall), 0)];
        store.set(fault);
        // The old bound passes meanwhile, and the new one does not.
        store.sleep_late(half);
        let mut raised = daemon.raise(&raise, clocks(wall));
        if fault == Fault::Mute {
            raised.unwrap_err();
            store.set(Fault::None);
            // A poll sees that the write was done.
            let _ = daemon.poll();
            raised = daemon.raise(&raise, daemon.clocks);
        }
        let mut paused = raised.unwrap();
        assert!(matches!(daemon.settle(&mut paused, daemon.clocks), Ok(Some(_))), "{fault:?}");
        assert!(!daemon.notes().of("f", "orders", &twitter().space().to_string()).unwrap().is_held);
    }
}

/// The clock was ahead, and has been set right. The source of that time is not configured any more.
#[test]
fn the_floor_is_above_the_grants_of_a_source_that_is_gone() {
    let store = store();
    let mut before = member(&store, Notes::default());
    let six = Want { source: "gone", ..want(at(WALL, 300), false) };
    let gone = take(&mut before, six, &WorkerSet::single(6));
    let mut daemon = member(&store, before.notes().clone());
    take(&mut daemon, want(WALL, false), &five());
    store.remove(&key_five());
    assert!(is_lost(&daemon.check(clocks(WALL))));
    assert!(floor(&store) >= rules::instant_of(&numbering(), gone.covered));
}

/// The restore lost the write of a new connection, which had left the bound as it was.
#[test]
fn a_start_that_finds_a_replaced_write_raises_the_floor() {
    let store = store();
    let (mut first, _) = holder(&store);
    let backup = store.text(&key_five());
    first.coordinator.connect();
    assert_eq!(first.check(clocks(WALL)), Ok(()));
    store.put(&key_five(), &backup);
    assert_eq!(floor(&store), UnixMicros(0));
    let _ = member(&store, first.notes().clone()).take(want(WALL, true), &five());
    assert!(floor(&store) > WALL);
}

/// The clock was slow since the machine's boot, and has been set right. The daemon does not follow that
/// step yet. The other daemons, whose clocks were right, have grants by their clocks, and may have taken
/// its number.
#[test]
fn a_daemon_whose_slow_clock_was_set_right_thinks_of_the_right_clock() {
    let store = store();
    let (first, _) = holder(&store);
    let right = at(WALL, 300);
    let held_step = Clocks { read: right, ..clocks(at(WALL, 1)) };
    let backup = store.text(&key_five());
    let mut raises = first.clone();
    let raise = (keepers_bound(held_step.wall), 0);
    let mut pause = raises.raise(&[raise], held_step).unwrap();
    assert!(matches!(raises.settle(&mut pause, held_step), Ok(Some(_))), "its bound has passed for others");
    for notes in [first.notes(), raises.notes()] {
        store.put(&key_five(), &backup);
        let want = Want { clocks: held_step, ..want(WALL, true) };
        assert!(member(&store, notes.clone()).take(want, &five()).unwrap().is_new);
    }
    store.put(&key_five(), &backup);
    let _ = raises.check(held_step);
    assert!(floor(&store) >= at(right, HORIZON.as_secs() as i64));
}

/// While the machine sleeps, another daemon may take the number, pause, and hand out IDs.
#[test]
fn a_start_that_sleeps_before_the_answer_pauses() {
    for is_clean in [false, true] {
        let store = store();
        let (mut first, covered) = holder(&store);
        if is_clean {
            let unused = [Bound { source: 0, id_bound: covered }];
            first.give_back(&unused, &[], clocks(at(WALL, 1)), &|| true).unwrap();
        }
        for (slept, is_new) in [(Duration::from_secs(1), false), (noticed_within(Duration::ZERO), true)] {
            let mut second = member(&store, first.notes().clone());
            store.sleep_late(slept);
            let taken = second.take(want(at(WALL, 2), true), &five()).unwrap();
            assert_eq!(taken.is_new, is_new, "{is_clean} {slept:?}");
            first = second;
            if is_clean {
                let unused = [Bound { source: 0, id_bound: taken.covered }];
                first.give_back(&unused, &[], clocks(at(WALL, 3)), &|| true).unwrap();
            }
        }
    }
}

/// A daemon is killed when its raise is done, and before that is noted. The machine may have slept
/// before the raise.
#[test]
fn a_start_that_knows_only_a_passed_bound_pauses() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    let noted = daemon.notes().clone();
    let half = at(WALL, (HORIZON / 2).as_secs() as i64);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(half), 0)], clocks(half)), Ok(()));
    let key = five_at(&store);
    let mut notes = noted;
    let note = notes.of("f", "orders", &twitter().space().to_string()).unwrap().clone();
    notes.set(Note { writes: vec![key.write], ..note });
    let wall = at(WALL, HORIZON.as_secs() as i64);
    let taken = member(&store, notes).take(want(wall, true), &five()).unwrap();
    assert!(taken.is_new);
}

/// The release of a start that is stopped in its pause has no answer: it is not done, or done.
#[test]
fn a_start_need_not_wait_after_an_unanswered_release_in_a_pause() {
    for fault in [Fault::ReadOnly, Fault::Mute] {
        let store = store();
        let mut stopped = member(&store, Notes::default());
        let taken = [Some(stopped.take(want(WALL, false), &five()).unwrap())];
        let unused: Vec<Bound> = taken[0].iter().filter_map(|taken| taken.unused(0)).collect();
        store.set(fault);
        stopped.give_back(&unused, &[], clocks(WALL), &|| true).unwrap_err();
        store.set(Fault::None);
        // A clean stop marks the number as returned.
        let newest = Want { proof: Proof::Newest, ..want(WALL, true) };
        let again = member(&store, stopped.notes().clone()).take(newest, &five());
        assert!(matches!(&again, Ok(taken) if taken.is_new), "{fault:?}: {again:?}");
    }
}

/// The daemon that notices the restore has a clock that is three days ahead. Only an operator knows
/// whether IDs were handed out so far ahead.
#[test]
fn init_lowers_a_floor_that_a_wrong_clock_wrote() {
    let layout = twitter();
    let store = store();
    let ahead = at(WALL, 3 * 86_400);
    let mut wrong = member(&store, Notes::default());
    take(&mut wrong, want(ahead, false), &five());
    let backup = store.text(&key_five());
    let later = at(ahead, 200);
    assert_eq!(raised(&mut wrong, &[(keepers_bound(later), 0)], clocks(later)), Ok(()));
    store.put(&key_five(), &backup);
    assert!(is_lost(&wrong.check(clocks(later))));
    let six = WorkerSet::single(6);
    let now = at(WALL, 300);
    let refused = other(&store).take(want(now, false), &six);
    let Err(FleetError::Unreadable(line)) = refused else { panic!("{refused:?}") };
    assert!(line.contains("fleet init --above INSTANT --lower"), "{line}");
    let init = |begins| {
        let preparing = Preparing { now, ..preparing(Some(begins)) };
        operate(&store, |operator| operator.init(&[&layout], preparing, new_identity)).unwrap()
    };
    assert!(!init(Begins::Above(now)).is_floor_changed, "only Lowered lowers the floor");
    let lowered = init(Begins::Lowered(now));
    assert_eq!((lowered.is_floor_changed, lowered.floor), (true, Some(now)));
    let taken = other(&store).take(want(now, false), &six).unwrap();
    assert!(rules::instant_of(&numbering(), taken.floor) > now, "the start is above the floor");
}

/// Prepares a fleet again after a backup. Returns the store, a daemon that was granted IDs after
/// that preparation, the backup, and the daemon's clock.
fn prepared_again() -> (Store, Member<Store>, Vec<(String, String)>, UnixMicros) {
    let layout = twitter();
    let store = store();
    let marker_key = marker_key();
    let backup = vec![(marker_key.clone(), store.text(&marker_key))];
    let marker = Marker::new("2e", vec![layout.space().to_string()], limits());
    store.put(&marker_key, &marker.text());
    let (mut daemon, _) = holder(&store);
    let wall = at(WALL, 200);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(wall), 0)], clocks(wall)), Ok(()));
    (store, daemon, backup, wall)
}

fn restore(store: &Store, backup: &[(String, String)]) {
    store.remove(&key_five());
    for (key, text) in backup {
        store.put(key, text);
    }
}

/// Takes number 5, which is free, for another daemon. Returns the bound at which that daemon
/// starts.
fn takes_the_number(store: &Store, wall: UnixMicros) -> u64 {
    take(&mut other(store), want(wall, false), &five()).floor
}

#[test]
fn a_restore_to_before_the_fleet_was_prepared_raises_the_floor() {
    for is_raise in [false, true] {
        let (store, mut daemon, backup, wall) = prepared_again();
        restore(&store, &backup);
        let polled = if is_raise {
            raised(&mut daemon, &[(keepers_bound(at(wall, 1)), 0)], clocks(wall))
        } else {
            daemon.check(clocks(wall))
        };
        assert!(is_lost(&polled), "{polled:?}");
        assert!(takes_the_number(&store, wall) >= keepers_bound(wall).id_bound);
    }
}

/// A replica of the coordinator is behind.
#[test]
fn an_old_marker_with_another_identity_ends_no_daemon() {
    let (store, mut daemon, backup, wall) = prepared_again();
    store.be_stale(backup[0].1.clone());
    let checked = daemon.check(clocks(wall));
    assert!(matches!(checked, Err(FleetError::NoAnswer(_))), "{checked:?}");
    assert_eq!((daemon.check(clocks(wall)), floor(&store)), (Ok(()), UnixMicros(0)));
}

/// Another daemon writes the restored marker after this daemon has read it.
#[test]
fn the_floor_of_a_restored_marker_is_raised_although_it_changes() {
    let (store, mut daemon, backup, wall) = prepared_again();
    restore(&store, &backup);
    let restored = store.text(&marker_key());
    let mut changed = marker_at(&store);
    changed.raise_floor(WALL);
    store.put(&marker_key(), &changed.text());
    store.put_late(&marker_key(), &store.text(&marker_key()));
    store.put(&marker_key(), &restored);
    assert!(is_lost(&daemon.check(clocks(wall))));
    assert!(floor(&store) > wall);
}

/// All of the daemon's new connections lead to another cluster.
#[test]
fn a_daemon_raises_the_floor_of_a_cluster_that_replaced_its_own() {
    let (store, mut daemon, backup, wall) = prepared_again();
    restore(&store, &backup);
    store.set(Fault::Foreign);
    let checked = daemon.check(clocks(wall));
    assert!(is_lost(&checked), "{checked:?}");
    assert!(takes_the_number(&store, wall) >= keepers_bound(wall).id_bound);
}

/// The restored cluster is a copy of the daemon's own, so it has the same marker.
#[test]
fn a_restore_under_another_cluster_id_raises_the_floor() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    let backup = store.text(&key_five());
    let wall = at(WALL, 200);
    assert_eq!(raised(&mut daemon, &[(keepers_bound(wall), 0)], clocks(wall)), Ok(()));
    store.put(&key_five(), &backup);
    store.set(Fault::Foreign);
    let checked = daemon.check(clocks(wall));
    assert!(is_lost(&checked), "{checked:?}");
    assert!(rules::bound_above(&numbering(), floor(&store)) >= keepers_bound(wall).id_bound);
}

/// The daemon's first call asks for a range of a counter.
#[test]
fn a_start_that_did_not_ask_raises_the_floor_ahead_of_its_clock() {
    let store = store();
    let (first, _) = holder(&store);
    let wall = at(WALL, 100);
    let mut again = member(&store, first.notes().clone());
    let wanted = Want { clocks: store.clocks(wall), ..want(wall, true) };
    assert!(again.resume_at_once(wanted, &five()).is_some());
    let tickets = Numbering::from(TicketCounter::new("tickets", 1, 1).unwrap());
    again.add_counter(1, "tickets", &tickets, 0);
    store.set(Fault::Foreign);
    let taken = again.take_range(1, 1_000, 0);
    assert!(is_lost(&taken), "{taken:?}");
    assert_eq!(floor(&store), at(wall, limits().reach().as_secs() as i64));
}

/// The daemon is killed before the restore, and starts after it.
#[test]
fn a_start_that_finds_an_earlier_marker_raises_its_floor_once() {
    let (store, daemon, backup, wall) = prepared_again();
    restore(&store, &backup);
    let mut again = member(&store, daemon.notes().clone());
    let ours = take(&mut again, want(wall, true), &WorkerSet::single(6));
    let raised = floor(&store);
    assert!(ours.floor >= rules::bound_above(&numbering(), raised) && raised > wall);
    assert!(takes_the_number(&store, wall) >= keepers_bound(wall).id_bound);
    let mut third = member(&store, again.notes().clone());
    take(&mut third, want(at(wall, 1), true), &WorkerSet::single(6));
    assert_eq!(floor(&store), raised);
}

#[test]
fn a_start_raises_the_floor_once_even_if_it_is_refused() {
    let (store, daemon, backup, wall) = prepared_again();
    restore(&store, &backup);
    take(&mut other(&store), want(wall, false), &five());
    let mut notes = daemon.notes().clone();
    let mut raised = Vec::new();
    for second in 0..2 {
        let mut again = member(&store, notes);
        let refused = again.take(want(at(wall, second), true), &five());
        assert!(matches!(refused, Err(FleetError::Held(_))), "{refused:?}");
        notes = again.notes().clone();
        raised.push(floor(&store));
    }
    assert!(raised[0] > wall && raised[0] == raised[1], "{raised:?}");
}

/// Another daemon has taken the number since the restore, and raises its bound.
#[test]
fn a_start_that_waits_raises_the_floor_once() {
    let store = store();
    let (first, _) = holder(&store);
    store.remove(&key_five());
    let mut holds = other(&store);
    take(&mut holds, want(at(WALL, 10), false), &five());
    let backup = store.text(&marker_key());
    let mut waits = member(&store, first.notes().clone());
    let mut floors = Vec::new();
    for second in [20, 25, 30] {
        let refused = waits.take(want(at(WALL, second), true), &five());
        assert!(matches!(refused, Err(FleetError::Held(_))), "{refused:?}");
        waits.give_up(&[0]);
        floors.push(floor(&store));
        let now = at(WALL, second + 1);
        assert_eq!(raised(&mut holds, &[(keepers_bound(now), 0)], clocks(now)), Ok(()));
    }
    assert!(floors[0] > at(WALL, 20) && floors == [floors[0]; 3], "{floors:?}");
    // A second restore has lost the floor.
    store.put(&marker_key(), &backup);
    let _ = waits.take(want(at(WALL, 35), true), &five());
    assert!(floor(&store) >= floors[0]);
}

#[test]
fn a_start_after_a_release_without_an_answer_notices_no_restore() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    store.set(Fault::Mute);
    let bound = numbering().id_bound(numbering().first_of(numbering().tick_at(WALL)));
    assert!(daemon.give_back(&[Bound { source: 0, id_bound: bound }], &[], clocks(WALL), &|| true).is_err());
    store.set(Fault::None);
    take(&mut other(&store), want(at(WALL, 1), false), &five());
    let refused = member(&store, daemon.notes().clone()).take(want(at(WALL, 1), true), &five());
    assert!(matches!(refused, Err(FleetError::Held(_))), "{refused:?}");
    assert_eq!(floor(&store), UnixMicros(0));
}

/// The coordinator lost the number's key while the daemon was stopped.
#[test]
fn a_start_that_picks_raises_the_floor_ahead_of_its_clock() {
    let store = store();
    let (first, _) = holder(&store);
    store.remove(&key_five());
    let wall = at(WALL, 200);
    let wanted = Want { clocks: store.clocks(wall), ..want(wall, true) };
    assert!(pick(&mut member(&store, first.notes().clone()), wanted).is_ok());
    assert_eq!(floor(&store), at(wall, limits().reach().as_secs() as i64));
}

/// The coordinator was away during the pause. Without a state, only the process knows which number
/// it took.
#[test]
fn a_try_without_a_state_takes_the_number_of_the_last_try() {
    let store = store();
    let before = take(&mut other(&store), want(at(WALL, -310), false), &five()).covered;
    let mut first = member(&store, Notes::default());
    let mut taken = [first.take(want(WALL, false), &five()).ok()];
    store.set(Fault::Away);
    assert!(matches!(settle(&mut first, &mut taken, clocks(WALL)), Err(FleetError::NoAnswer(_))));
    store.set(Fault::None);
    first.give_up(&[0]);
    let picked = pick(&mut first, want(WALL, false)).unwrap();
    assert_eq!(picked.worker_ids, five());
    assert!(picked.floor >= before, "another daemon may have handed out all IDs below its bound");
}

/// The first number's write is not done, so the note must keep the floor of the second one's key.
#[test]
fn the_first_write_of_another_number_keeps_the_noted_floor() {
    let store = store();
    let before = take(&mut other(&store), want(at(WALL, -310), false), &five()).covered;
    let mut first = member(&store, Notes::default());
    assert!(take(&mut first, want(WALL, false), &five()).floor >= before);
    store.set(Fault::ReadOnly);
    let mut second = member(&store, first.notes().clone());
    assert!(second.take(want(WALL, true), &WorkerSet::single(6)).is_err());
    store.set(Fault::None);
    let mut third = member(&store, second.notes().clone());
    let taken = third.take(want(WALL, true), &five()).unwrap();
    assert!(taken.floor >= before, "the key's last write is the first daemon's");
}

/// During the second wait, the coordinator may have lost another holder's write.
#[test]
fn a_number_that_an_earlier_try_took_is_new_again() {
    let store = store();
    let mut first = member(&store, Notes::default());
    let covered = take(&mut first, want(WALL, false), &five()).covered;
    first.give_back(&[Bound { source: 0, id_bound: covered }], &[], clocks(WALL), &|| true).unwrap();
    let mut second = member(&store, first.notes().clone());
    assert!(!second.take(want(WALL, true), &five()).unwrap().is_new, "the number was released cleanly");
    second.give_up(&[0]);
    assert!(second.take(want(WALL, true), &five()).unwrap().is_new);
}

/// The coordinator lost the key. Only a state that is the newest may continue below its own bound,
/// and tells others of the loss.
#[test]
fn an_acknowledged_bound_counts_only_for_the_newest_state() {
    for (proof, is_same) in [(Proof::None, false), (Proof::Newest, false), (Proof::Held, true)] {
        let store = store();
        let (first, _) = holder(&store);
        store.remove(&key_five());
        let floor_before = floor(&store);
        let mut again = member(&store, first.notes().clone());
        let taken = again.take(Want { proof, ..want(WALL, false) }, &five()).unwrap();
        assert_eq!((taken.is_same_term, taken.is_new), (is_same, !is_same), "{proof:?}");
        assert_eq!(floor(&store) > floor_before, is_same, "{proof:?}");
    }
}

/// The restore loses the write of a new connection, which left the bound as it was.
#[test]
fn a_restore_that_loses_no_bound_costs_no_number() {
    let store = store();
    let (mut daemon, covered) = holder(&store);
    let before = store.text(&key_five());
    daemon.coordinator.connect();
    assert_eq!(daemon.check(clocks(WALL)), Ok(()));
    store.put(&key_five(), &before);
    assert!(matches!(daemon.check(clocks(WALL)), Err(FleetError::WentBack(_))));
    let mut again = member(&store, daemon.notes().clone());
    let taken = again.take(want(WALL, true), &five()).unwrap();
    assert!(taken.is_same_term && taken.covered >= covered, "{taken:?}");
}

/// The clock was ahead when the second source had its bound, and is right now.
#[test]
fn a_loss_of_one_number_raises_the_floor_above_the_bounds_of_all() {
    let store = store();
    let mut daemon = member(&store, Notes::default());
    take(&mut daemon, want(WALL, false), &five());
    let six = Want { index: 1, source: "six", ..want(at(WALL, 600), false) };
    take(&mut daemon, six, &WorkerSet::single(6));
    store.remove(&key_five());
    let checked = daemon.check(clocks(WALL));
    assert!(matches!(checked, Err(FleetError::WentBack(_))), "{checked:?}");
    assert!(floor(&store) >= UnixMicros(at(WALL, 600).0 + clock::micros(HORIZON)));
}
