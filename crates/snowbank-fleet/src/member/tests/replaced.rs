//! Tests: an operator's commands while daemons run, which replace ID spaces, free numbers and set
//! counters; and
//! the fleet's limits.

use std::time::Duration;

use super::*;
use crate::{Begins, Freeing, Marker, Prepared, Preparing};
use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};

fn after() -> Layout {
    Layout::resolve("time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657").unwrap()
}

fn init(store: &Store, layout: &Layout, preparing: Preparing) -> Result<Prepared, String> {
    let prepared = operate(store, |operator| operator.init(&[layout], preparing, new_identity));
    prepared.map_err(|error| error.to_string())
}

/// Adds a layout to the store's fleet. Returns the spaces that the layout replaced, or `None` if
/// the fleet had the layout already.
fn add(store: &Store, layout: &Layout) -> Result<Option<Vec<String>>, String> {
    let prepared = init(store, layout, Preparing { is_growing: true, ..preparing(None) })?;
    Ok((!prepared.added.is_empty()).then_some(prepared.replaced))
}

/// Adds a layout that collides with the layout of the store's fleet.
fn replace(store: &Store) -> Result<Vec<String>, String> {
    add(store, &after()).map(|replaced| replaced.expect("the layout is new"))
}

fn active(store: &Store) -> Vec<String> {
    let marker = marker_at(store);
    marker.active().into_iter().map(String::from).collect()
}

fn number_key(id_bound: u64, released: bool) -> String {
    NumberKey { id_bound, released, ..NumberKey::new("state", "holder", "orders", 0) }.text()
}

/// An earlier command may have failed between its writes.
#[test]
fn a_space_replaced_before_must_have_no_held_number() {
    let store = store();
    let key = key_five();
    let mut marker = Marker::new("1f", vec![twitter().space().to_string()], limits());
    marker.replace(&[0]);
    store.put(&marker_key(), &marker.text());
    for text in [number_key(7, false), String::from("of a newer release")] {
        store.put(&key, &text);
        assert!(replace(&store).is_err(), "{text}");
    }
    store.put(&key, &number_key(7, true));
    assert_eq!(replace(&store), Ok(Vec::new()));
    assert_eq!(active(&store), [after().space().to_string()]);
}

/// The new daemon's clock is behind the clocks of the replaced space's daemons.
#[test]
fn a_replacing_space_starts_above_the_replaced_spaces_ids() {
    let layout = twitter();
    let store = store();
    let key = key_five();
    let numbering = numbering();
    let bound = numbering.id_bound(numbering.first_of(numbering.tick_at(WALL)));
    store.put(&key, &number_key(bound, true));
    assert_eq!(replace(&store), Ok(vec![layout.space().to_string()]));
    let behind = UnixMicros(WALL.0 - 30_000_000);
    let mut member = member(&store, Notes::default());
    let after = after();
    let taken = member.take(Want { layout: &after, ..want(behind, false) }, &WorkerSet::single(9)).unwrap();
    assert!(taken.floor > bound, "{} is not above {bound}", taken.floor);
}

/// Daemons without a state of their own would make the other layout's IDs again in silence.
#[test]
fn a_layout_below_the_fleets_ids_is_told_of() {
    for (text, is_below) in [
        ("time:41,worker:10,sequence:12;epoch=2020-01-01", true),
        ("time:43,worker:8,sequence:12;epoch=2020-01-01", true),
        ("time:41,worker:10,sequence:12;epoch=2005-01-01", false),
        // The floor keeps these apart.
        ("time:41,worker:10,sequence:12;epoch=2010-12-01", false),
    ] {
        let (store, layout) = (store(), Layout::resolve(text).unwrap());
        let prepared = init(&store, &layout, Preparing { is_growing: true, ..preparing(None) }).unwrap();
        assert_eq!(prepared.lies_below == [twitter().space().to_string()], is_below, "{text}: {prepared:?}");
    }
}

#[test]
fn a_new_fleet_is_refused_without_new_or_above() {
    let store = Store::default();
    let layout = twitter();
    let refused = init(&store, &layout, preparing(None)).unwrap_err();
    assert!(refused.contains("--new") && refused.contains("--above"), "{refused}");
    let far = UnixMicros(WALL.0 + 100_000_000_000);
    assert!(init(&store, &layout, preparing(Some(Begins::Above(far)))).unwrap_err().contains("allowed: "));
    let prepared = init(&store, &layout, preparing(Some(Begins::New))).unwrap();
    assert_eq!((prepared.is_new, prepared.floor), (true, None));
    let later = UnixMicros(WALL.0 + 5_000_000);
    let raised = init(&store, &layout, preparing(Some(Begins::Above(later)))).unwrap();
    assert_eq!((raised.is_new, raised.is_floor_changed, raised.floor), (false, true, Some(later)));
    let again = init(&store, &layout, preparing(Some(Begins::Above(WALL)))).unwrap();
    assert_eq!((again.is_floor_changed, again.floor), (false, Some(later)), "a floor is not lowered");
    assert_eq!(init(&store, &layout, preparing(None)).unwrap().floor, Some(later));
}

/// The daemon's clock is behind the instant that the operator gave.
#[test]
fn a_number_that_was_never_used_starts_above_the_floor() {
    let store = Store::default();
    let layout = twitter();
    let floor = UnixMicros(WALL.0 + 60_000_000);
    init(&store, &layout, preparing(Some(Begins::Above(floor)))).unwrap();
    let numbering = numbering();
    let taken = member(&store, Notes::default()).take(want(WALL, false), &five()).unwrap();
    assert!(numbering.start_of(numbering.tick_of(numbering.position_from(taken.floor))) > floor);
}

/// The daemon was suspended. Until its bound passed, nobody else could have its number. After that
/// another daemon may have had the number, and only the floor shows that daemon's IDs.
#[test]
fn a_passed_bound_below_the_floor_is_a_loss() {
    let rows = [
        (100, 0, true, false),
        (3_600, 0, false, false),
        (3_600, 0, true, true),
        // The bound passes between the first try of the write and its second.
        (100, 3_500, true, true),
    ];
    for (seconds, sleep_s, is_raised, is_loss) in rows {
        let store = store();
        let (mut member, covered) = holder(&store);
        if is_raised {
            let now = at(WALL, 3_600);
            let floor = init(&store, &twitter(), Preparing { now, ..preparing(Some(Begins::Above(now))) });
            assert!(floor.is_ok_and(|prepared| prepared.is_floor_changed));
        }
        let bound = Bound { source: 0, id_bound: covered + 1 };
        store.sleep_late(Duration::from_secs(sleep_s));
        let raised = raised(&mut member, &[(bound, 0)], clocks(at(WALL, seconds)));
        let lost = raised.err().map(|error| error.to_string());
        assert_eq!(lost.is_some(), is_loss, "after {seconds} s, and {sleep_s} s asleep: {lost:?}");
        assert!(lost.is_none_or(|reason| reason.contains("the fleet's floor has been raised above it")));
    }
}

#[test]
fn a_replaced_space_can_return_while_its_numbers_are_held() {
    let store = store();
    let key = key_five();
    let mut markers = Vec::new();
    for _ in 0..3 {
        replace(&store).unwrap();
        // A daemon that was refused after its write may leave this value.
        store.put(&key, &number_key(7, false));
        assert_eq!(add(&store, &after()), Ok(None), "the fleet has the layout already");
        assert_eq!(add(&store, &twitter()), Ok(Some(vec![after().space().to_string()])));
        assert_eq!(active(&store), [twitter().space().to_string()]);
        store.put(&key, &number_key(7, true));
        markers.push(store.text(&marker_key()));
    }
    // The second and the third marker have the same floor.
    assert_ne!(markers[1], markers[2], "each write of the marker has another text");
}

fn release(store: &Store, number: u64, is_forced: bool) -> Result<(), String> {
    free(store, number, is_forced, false)
}

fn free(store: &Store, number: u64, is_forced: bool, is_lowering: bool) -> Result<(), String> {
    let freeing = Freeing { write: "freed", now: WALL, is_forced, is_lowering };
    let freed = operate(store, |operator| operator.release(&twitter(), number, freeing));
    freed.map(drop).map_err(|error| error.to_string())
}

/// An operator's check finds what a start would be refused for.
#[test]
fn a_check_finds_other_limits_and_a_floor_that_no_clock_explains() {
    let store = store();
    let check = |limits| {
        let checked = operate(&store, |operator| operator.check(limits, WALL));
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(limits()), Ok(()));
    let other = FleetLimits::new(limits().horizon() * 2, limits().max_ahead());
    assert!(check(other).unwrap_err().contains("as in the fleet's marker (key /snowbank/f/marker)"));
    let mut marker = Marker::new("1f", vec![twitter().space().to_string()], limits());
    marker.raise_floor(UnixMicros(WALL.0 + 7 * 86_400_000_000));
    store.put(&marker_key(), &marker.text());
    let refused = check(limits()).unwrap_err();
    assert!(refused.starts_with("the fleet's floor (key /snowbank/f/marker) is "), "{refused}");
    assert!(refused.contains("--lower"), "{refused}");
}

/// Another command raises the floor while this command frees a number.
#[test]
fn a_number_is_not_freed_if_the_marker_has_changed() {
    let store = store();
    let key = key_five();
    store.put(&key, &number_key(7, false));
    let mut marker = Marker::new("1f", vec![twitter().space().to_string()], limits());
    marker.raise_floor(WALL);
    store.put_late(&marker_key(), &marker.text());
    assert!(release(&store, 5, true).unwrap_err().contains("marker has just changed"));
    assert_eq!(store.text(&key), number_key(7, false));
    assert!(release(&store, 5, true).is_ok());
}

/// No daemon takes a number whose bound cannot have been granted, so an operator must be able to
/// free such a number.
#[test]
fn a_number_with_a_wrong_key_is_freed_at_a_credible_bound() {
    let store = store();
    let key = key_five();
    let numbering = numbering();
    let take = |after_s: i64| {
        let wall = UnixMicros(WALL.0 + after_s * 1_000_000);
        let taken = member(&store, Notes::default()).take(want(wall, false), &five());
        taken.map_err(|error| error.to_string())
    };
    // A daemon whose clock was far ahead may have been granted the first row's bound. Only an
    // operator knows whether that happened.
    let rows = [(number_key(u64::MAX, false), 320), (String::from("garbage"), 320 + 3_600)];
    for (wrong, freed_at_s) in rows {
        store.put(&key, &wrong);
        let refused = take(0).unwrap_err();
        assert!(refused.contains("worker ID 5"), "{refused}");
        assert!(release(&store, 5, false).is_err());
        if wrong != "garbage" {
            assert!(release(&store, 5, true).unwrap_err().contains("--lower"));
        }
        free(&store, 5, true, wrong != "garbage").unwrap();
        let freed = NumberKey::parse(&store.text(&key)).unwrap();
        let freed_us = rules::instant_of(&numbering, freed.id_bound).0 - WALL.0;
        assert!((freed_at_s..freed_at_s + 2).contains(&(freed_us / 1_000_000)), "{freed_us}");
        assert!(wrong != "garbage" || freed.from == freed.id_bound, "the key begins no new term: {freed:?}");
        // No daemon takes the number before its clock is near that bound.
        assert!(take(60).unwrap_err().contains("was released"), "{:?}", take(60));
        assert!(take(freed_at_s + 2).is_ok());
    }
    // A bound that a daemon may have been granted is kept.
    let ahead = numbering.id_bound(numbering.first_of(numbering.tick_at(UnixMicros(WALL.0 + 1_800_000_000))));
    store.put(&key, &number_key(ahead, false));
    release(&store, 5, true).unwrap();
    assert_eq!(NumberKey::parse(&store.text(&key)).unwrap().id_bound, ahead);
}

/// A clean stop, or an earlier command without `--lower`, has released the key.
#[test]
fn a_released_number_is_freed_again_only_at_a_lower_bound() {
    let store = store();
    let key = key_five();
    let bound = |ahead_s| keepers(at(WALL, ahead_s));
    for ahead_s in [7_200, 3_000] {
        store.put(&key, &number_key(bound(ahead_s), true));
        assert!(release(&store, 5, true).unwrap_err().contains("--lower"));
        free(&store, 5, true, true).unwrap();
        let freed = NumberKey::parse(&store.text(&key)).unwrap();
        assert!((bound(320)..bound(322)).contains(&freed.id_bound), "{freed:?}");
        assert!(free(&store, 5, true, true).unwrap_err().contains("released already"), "it is low already");
    }
}

/// The daemon does not note the impossible bound, so its next start can go on once the key is
/// corrected.
#[test]
fn an_impossible_bound_ends_a_daemon_and_is_not_noted() {
    let layout = twitter();
    let store = store();
    let key = key_five();
    let (mut member, covered) = holder(&store);
    let right = store.text(&key);
    let wrong = NumberKey { id_bound: u64::MAX, ..NumberKey::parse(&right).unwrap() };
    store.put(&key, &wrong.text());
    let checked = member.check(clocks(WALL));
    assert!(
        matches!(&checked, Err(FleetError::Unreadable(line)) if line.contains("worker ID 5")),
        "{checked:?}"
    );
    let note = member.notes().of("f", "orders", &layout.space().to_string()).unwrap();
    assert_eq!(note.acknowledged, covered);
}

/// The first try was done but its answer was lost, and the second try is refused.
#[test]
fn a_counter_is_set_although_the_first_answer_was_lost() {
    let store = store();
    store.0.lock().unwrap().repeats = true;
    let set = operate(&store, |operator| operator.set_counter("tickets", 100, "w1", false));
    assert_eq!(set, Ok(()));
    let key = operate(&store, |operator| operator.counter("tickets")).unwrap();
    assert_eq!((key.next, key.write.as_str()), (101, "w1"));
}

/// Returns an operator's request that changes the fleet's limits.
fn changing(horizon: Duration, now: UnixMicros) -> Preparing {
    let limits = FleetLimits::new(horizon, MAX_AHEAD);
    Preparing { limits, now, ..preparing(Some(Begins::Above(now))) }
}

#[test]
fn a_daemon_with_other_limits_than_the_fleet_is_refused() {
    let store = store();
    let (first, _) = holder(&store);
    for limits in [FleetLimits::new(2 * HORIZON, MAX_AHEAD), FleetLimits::new(HORIZON, MAX_AHEAD / 10)] {
        let mut again =
            Member::new(store.clone(), names("state"), limits, first.notes().clone(), new_identity);
        assert_eq!(again.resume_at_once(want(WALL, true), &five()), None, "only the coordinator knows");
        assert_eq!(again.resume_unseen(want(WALL, true), &five()), None);
        let refused = again.take(want(WALL, true), &five());
        let Err(FleetError::Refused(line)) = refused else { panic!("{refused:?}") };
        assert!(line.contains("allowed: fleet.horizon 300s and max_ahead 10s"), "{line}");
        assert!(line.contains("fleet init --above now"), "{line}");
    }
}

#[test]
fn limits_change_only_while_no_daemon_has_ids() {
    let store = store();
    let (mut daemon, covered) = holder(&store);
    let before = marker_at(&store);
    let refused = init(&store, &twitter(), Preparing { begins: None, ..changing(2 * HORIZON, WALL) });
    assert!(refused.unwrap_err().contains("run `snowbank fleet init --above now --config FILE`"));
    let refused = init(&store, &twitter(), changing(2 * HORIZON, WALL)).unwrap_err();
    assert!(refused.contains("stop all daemons"), "{refused}");
    assert_eq!(marker_at(&store), before);
    daemon.give_back(&[Bound { source: 0, id_bound: keepers(WALL) }], &[], clocks(WALL), &|| true).unwrap();
    let changed = init(&store, &twitter(), changing(2 * HORIZON, WALL)).unwrap();
    assert_eq!(changed.limits, Some(FleetLimits::new(2 * HORIZON, MAX_AHEAD)));
    let marker = marker_at(&store);
    assert_ne!(marker.identity, before.identity);
    assert!(rules::bound_above(&numbering(), marker.floor()) > keepers(WALL));
    assert!(covered > keepers(WALL));
}

/// Somebody wrote the marker by hand, or an earlier release wrote it.
#[test]
fn a_marker_without_limits_is_refused_until_init_mends_it() {
    let store = store();
    let mut fields: serde_json::Value = serde_json::from_str(&store.text(&marker_key())).unwrap();
    for limit in ["horizon_ms", "max_ahead_ms"] {
        fields.as_object_mut().unwrap().remove(limit).unwrap();
    }
    store.put(&marker_key(), &fields.to_string());
    let taken = member(&store, Notes::default()).take(want(WALL, false), &five());
    let checked = operate(&store, |operator| operator.check(limits(), WALL));
    let refusals = [
        taken.unwrap_err().to_string(),
        checked.unwrap_err().to_string(),
        init(&store, &twitter(), preparing(None)).unwrap_err(),
        init(&store, &twitter(), preparing(Some(Begins::New))).unwrap_err(),
        release(&store, 5, true).unwrap_err(),
    ];
    for refusal in refusals {
        assert!(refusal.contains("run `snowbank fleet init --above now"), "{refusal}");
    }
    init(&store, &twitter(), preparing(Some(Begins::Above(WALL)))).unwrap();
    assert_eq!(marker_at(&store).limits, limits());
    assert!(member(&store, Notes::default()).take(want(WALL, false), &five()).is_ok());
}

/// The daemon writes its key between the command's first look at the keys and its first write.
#[test]
fn a_daemon_that_starts_during_a_change_of_limits_undoes_it() {
    let store = store();
    let (mut first, _) = holder(&store);
    first.give_back(&[Bound { source: 0, id_bound: keepers(WALL) }], &[], clocks(WALL), &|| true).unwrap();
    let held = number_key(keepers(at(WALL, 200)), false);
    store.0.lock().unwrap().late_list = Some((key_five(), held));
    let refused = init(&store, &twitter(), changing(2 * HORIZON, WALL)).unwrap_err();
    assert!(refused.contains("may still have IDs until"), "{refused}");
    assert_eq!(marker_at(&store).limits, limits());
}

/// An operator has changed the fleet while the daemon slept. Nothing was lost.
#[test]
fn a_daemon_of_earlier_limits_ends_and_raises_no_floor() {
    let store = store();
    let (mut daemon, _) = holder(&store);
    let notes = daemon.notes().clone();
    let later = at(WALL, 400);
    init(&store, &twitter(), changing(2 * HORIZON, later)).unwrap();
    let floor = marker_at(&store).floor();
    assert!(is_lost(&daemon.check(clocks(later))));
    let limits = FleetLimits::new(2 * HORIZON, MAX_AHEAD);
    let mut again = Member::new(store.clone(), names("state"), limits, notes, new_identity);
    assert!(again.take(want(later, true), &five()).is_ok());
    assert_eq!(marker_at(&store).floor(), floor);
}

/// The other fleet is at the same coordinator.
#[test]
fn a_killed_daemon_raises_no_floor_in_a_fleet_of_another_name() {
    let store = store();
    let (daemon, _) = holder(&store);
    let marker = Marker::new("2e", vec![twitter().space().to_string()], limits());
    store.put(&Paths::of("g").marker(), &marker.text());
    let names = Names { fleet: "g", ..names("state") };
    let mut again = Member::new(store.clone(), names, limits(), daemon.notes().clone(), new_identity);
    let taken = again.take(want(WALL, true), &five()).unwrap();
    assert!(taken.is_new);
    assert_eq!(Marker::parse(&store.text(&Paths::of("g").marker())).unwrap().floor(), UnixMicros(0));
}
