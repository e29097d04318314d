//! Tests: harmless fields of a later release at the coordinator. A daemon reads such lines, and does
//! not write what would drop the fields.

use super::*;
use crate::{CounterKey, NumberRange};
use snowbank_id::numbering::TicketCounter;

const COUNTER: u64 = 7_001;

/// Gives the value at a key a field that only a later release knows.
fn add_field(store: &Store, key: &str) {
    let text = store.text(key);
    let later = text.replacen("\"format\":2", "\"format\":3,\"more\":7", 1);
    assert_ne!(later, text);
    store.put(key, &later);
}

/// Returns whether a write was refused, and the daemon goes on.
fn is_refused<T>(written: &Result<T, FleetError>) -> bool {
    matches!(written, Err(FleetError::NoAnswer(answer)) if answer.reason.contains("found \"more\" in it"))
}

#[test]
fn a_daemon_serves_on_beside_a_later_releases_fields() {
    let store = store();
    let counter_key = Paths::of("f").counter("tickets");
    let range = NumberRange { from: COUNTER, to: COUNTER };
    store.put(&counter_key, &CounterKey::new("c", range, "w0", "operator").text());
    let (mut daemon, covered) = holder(&store);
    let tickets = Numbering::from(TicketCounter::new("tickets", 1, 1).unwrap());
    daemon.add_counter(1, "tickets", &tickets, 0);
    let raise = |by| [(Bound { source: 0, id_bound: covered + by }, 0)];

    add_field(&store, &marker_key());
    assert_eq!(daemon.check(clocks(WALL)), Ok(()));
    assert_eq!(raised(&mut daemon, &raise(1), clocks(WALL)), Ok(()), "it only compares the marker");
    assert_eq!(daemon.confirm(&[0], clocks(WALL)), Ok(()));
    let mut starting = other(&store);
    let six = starting.take(want(WALL, false), &WorkerSet::single(6)).unwrap();
    assert_eq!(settle(&mut starting, &mut [Some(six)], clocks(WALL)), Ok(()));

    add_field(&store, &counter_key);
    let before = store.text(&counter_key);
    assert_eq!(daemon.check(clocks(WALL)), Ok(()));
    assert!(is_refused(&daemon.take_range(1, 10, 0)));
    assert_eq!(store.text(&counter_key), before);

    add_field(&store, &key_five());
    let before = store.text(&key_five());
    assert_eq!(daemon.check(clocks(WALL)), Ok(()));
    assert_eq!(daemon.confirm(&[0], clocks(WALL)), Ok(()));
    assert!(is_refused(&raised(&mut daemon, &raise(2), clocks(WALL))));
    daemon.coordinator.connect();
    assert!(is_refused(&daemon.check(clocks(WALL))), "a new connection needs a write");
    assert_eq!(store.text(&key_five()), before);
    assert_eq!(daemon.loss(), None);
}

/// Only a later release may have the worker ID, although its key is free.
#[test]
fn a_number_with_a_later_releases_field_is_not_taken() {
    let store = store();
    let (_, covered) = holder(&store);
    add_field(&store, &key_five());
    let later = at(rules::instant_of(&numbering(), covered), 60);
    let taken = other(&store).take(want(later, false), &five());
    assert!(
        matches!(&taken, Err(FleetError::Unreadable(line)) if line.contains("found \"more\"")),
        "{taken:?}"
    );
    assert_ne!(pick(&mut other(&store), want(later, false)).unwrap().worker_ids, five());
}

/// Otherwise a holder whose write a restore has lost could not protect its IDs.
#[test]
fn a_floor_is_raised_in_a_marker_with_a_later_releases_field() {
    let store = store();
    let (mut daemon, covered) = holder(&store);
    add_field(&store, &marker_key());
    let backup = store.text(&key_five());
    assert_eq!(raised(&mut daemon, &[(Bound { source: 0, id_bound: covered + 9 }, 0)], clocks(WALL)), Ok(()));
    store.put(&key_five(), &backup);
    assert!(matches!(daemon.check(clocks(WALL)), Err(FleetError::WentBack(_))));
    assert!(marker_at(&store).floor() > WALL);
    assert!(store.text(&marker_key()).contains("\"more\":7"));
}

#[test]
fn an_operator_frees_a_number_of_a_later_release_by_force() {
    let store = store();
    let (_, covered) = holder(&store);
    add_field(&store, &key_five());
    let freeing = |is_forced| Freeing { write: "w", now: WALL, is_forced, is_lowering: false };
    let free = |is_forced| operate(&store, |operator| operator.release(&twitter(), 5, freeing(is_forced)));
    assert!(free(false).unwrap_err().to_string().contains("found \"more\""));
    assert!(free(true).unwrap().0.is_some());
    let freed = NumberKey::parse(&store.text(&key_five())).unwrap();
    assert_eq!(freed.id_bound, covered, "its bound holds");
}
