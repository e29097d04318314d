//! An operator replaces an ID space by one that collides with it, while a daemon takes a number.

use super::tests::{Store, WALL, member, store, want};
use super::*;
use crate::fleet::{Marker, Operator};
use crate::numbering::Numbering;
use snowbank_client::layout::{Layout, UnixMicros, WorkerSet};

fn before() -> Layout {
    Layout::resolve("twitter").unwrap()
}

fn after() -> Layout {
    Layout::resolve("time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657").unwrap()
}

/// Adds a layout to the store's fleet. `None`: it was there.
fn add(store: &Store, layout: &Layout) -> Result<Option<Vec<String>>, String> {
    let mut coordinator = store.clone();
    let mut operator = Operator { coordinator: &mut coordinator, name: "f" };
    let added = operator.init(&[layout], || fastrand::u64(..).to_string(), true);
    Ok(added.map_err(|error| error.to_string())?.map(|added| added.replaced))
}

/// Adds a layout that collides with that of the store's fleet.
fn replace(store: &Store) -> Result<Vec<String>, String> {
    add(store, &after()).map(|replaced| replaced.expect("it is new"))
}

fn active(store: &Store) -> Vec<String> {
    let marker = Marker::parse(&store.text(&Paths::of("f").marker())).unwrap();
    marker.active().into_iter().map(String::from).collect()
}

fn number_key(id_bound: u64, released: bool) -> String {
    NumberKey { id_bound, released, ..NumberKey::new("state", "holder", "orders", 0) }.text()
}

#[test]
fn a_number_of_a_space_that_was_replaced_meanwhile_is_of_no_use() {
    let (layout, store) = (before(), store(&before()));
    let mut marker = Marker::new("1f", vec![layout.space().to_string()]);
    marker.replace(&[0]);
    store.put_late(&Paths::of("f").marker(), &marker.text());
    let mut member = member(&store, Notes::default());
    let taken = member.take(want(&layout, WALL, false), &WorkerSet::single(5));
    assert!(matches!(taken, Err(JoinError::Refused(_))), "{taken:?}");
    let note = member.notes().of("orders", &layout.space().to_string()).unwrap();
    assert_eq!(note.covered, 0, "the next start asks first");
}

#[test]
fn a_space_whose_number_was_taken_meanwhile_is_not_replaced() {
    let store = store(&before());
    store.put_after_list(&Paths::of("f").number(0, 5), &number_key(7, false));
    let error = replace(&store).expect_err("a daemon holds a number");
    assert!(error.contains("holder holds a number (/snowbank/f/space-0/5)"), "{error}");
    assert_eq!(active(&store), [before().space().to_string()], "as it was");
}

/// An earlier command may have ended between its writes.
#[test]
fn a_space_that_is_replaced_already_must_have_no_held_number_either() {
    let (store, key) = (store(&before()), Paths::of("f").number(0, 5));
    let mut marker = Marker::new("1f", vec![before().space().to_string()]);
    marker.replace(&[0]);
    store.put(&Paths::of("f").marker(), &marker.text());
    for text in [number_key(7, false), String::from("of a newer release")] {
        store.put(&key, &text);
        assert!(replace(&store).is_err(), "{text}");
    }
    store.put(&key, &number_key(7, true));
    assert_eq!(replace(&store), Ok(Vec::new()));
    assert_eq!(active(&store), [after().space().to_string()]);
}

/// The clock of a new daemon may be behind those of the replaced ones.
#[test]
fn a_number_of_a_space_that_replaced_others_starts_above_their_ids() {
    let (layout, store, key) = (before(), store(&before()), Paths::of("f").number(0, 5));
    let numbering = Numbering::new(layout.clone(), WorkerSet::single(5)).unwrap();
    let bound = numbering.id_bound(numbering.first_of(numbering.tick_at(WALL)));
    store.put(&key, &number_key(bound, true));
    assert_eq!(replace(&store), Ok(vec![layout.space().to_string()]));
    let behind = UnixMicros(WALL.0 - 30_000_000);
    let mut member = member(&store, Notes::default());
    let after = after();
    let taken = member.take(want(&after, behind, false), &WorkerSet::single(9)).unwrap();
    assert_eq!(taken.floor, bound);
}

#[test]
fn a_space_comes_back_whatever_its_own_numbers_are() {
    let (store, key) = (store(&before()), Paths::of("f").number(0, 5));
    let mut markers = Vec::new();
    for _ in 0..3 {
        replace(&store).unwrap();
        // Left by a daemon that was refused after its write.
        store.put(&key, &number_key(7, false));
        assert_eq!(add(&store, &after()), Ok(None), "nothing is missing");
        assert_eq!(add(&store, &before()), Ok(Some(vec![after().space().to_string()])));
        assert_eq!(active(&store), [before().space().to_string()]);
        store.put(&key, &number_key(7, true));
        markers.push(store.text(&Paths::of("f").marker()));
    }
    // From the second on, they have the same floors.
    assert_ne!(markers[1], markers[2], "no text comes back");
}

/// A marker of an earlier release may have both.
#[test]
fn a_space_replaces_one_that_was_beside_it() {
    let store = store(&before());
    let both = [before(), after()].map(|layout| layout.space().to_string());
    store.put(&Paths::of("f").marker(), &Marker::new("1f", both.to_vec()).text());
    assert_eq!(replace(&store), Ok(vec![both[0].clone()]));
    assert_eq!(active(&store), [both[1].clone()]);
}
