//! An operator replaces an ID space by one that collides with it, while a daemon takes a number.

use super::tests::{HORIZON, Store, WALL, member, store, want};
use super::*;
use crate::fleet::{Marker, Operator};
use snowbank_client::layout::{Layout, WorkerSet};

fn before() -> Layout {
    Layout::resolve("twitter").unwrap()
}

/// Adds a layout that collides with that of the store's fleet. Returns the error.
fn replace(store: &Store) -> Result<bool, String> {
    let after = Layout::resolve("time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657").unwrap();
    let mut coordinator = store.clone();
    let mut operator = Operator { coordinator: &mut coordinator, name: "f", horizon: HORIZON };
    operator.init(&[&after], "1f", (true, WALL)).map_err(|error| error.to_string())
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
    marker.add("another", |_| true);
    store.put_late(&Paths::of("f").marker(), &marker.text());
    let taken = member(&store, Notes::default()).take(want(&layout, WALL, false), &WorkerSet::single(5));
    assert!(matches!(taken, Err(JoinError::Refused(_))), "{taken:?}");
}

#[test]
fn a_space_whose_number_was_taken_meanwhile_is_not_replaced() {
    let store = store(&before());
    store.put_after_list(&Paths::of("f").number(0, 5), &number_key(7, false));
    let error = replace(&store).expect_err("a daemon holds a number");
    assert!(error.contains("where daemons hold numbers (1)"), "{error}");
    assert_eq!(active(&store), [before().space().to_string()], "as it was");
}

#[test]
fn a_space_is_not_replaced_while_its_ids_are_ahead_of_the_clock() {
    let (store, key) = (store(&before()), Paths::of("f").number(0, 5));
    store.put(&key, &number_key(u64::MAX >> 1, true));
    let error = replace(&store).expect_err("they are ahead");
    assert!(error.contains("ahead of the clock"), "{error}");
    store.put(&key, "of a newer release");
    assert!(replace(&store).is_err(), "nobody knows who holds it");
    store.put(&key, &number_key(7, true));
    assert_eq!(replace(&store), Ok(true));
    assert_ne!(active(&store), [before().space().to_string()]);
}
