use super::super::tests::{Store, WALL, member, pick_some, store, want};
use crate::{Notes, Paths};

/// Picks this many worker IDs below a limit. Returns the worker IDs, how often keys were read, how
/// often keys were listed, and the notes.
fn picked(
    store: &Store,
    notes: Notes,
    is_proven: bool,
    count: usize,
    below: u64,
) -> (String, [usize; 2], Notes) {
    let asked = || store.0.lock().map(|keys| [keys.reads, keys.lists]).unwrap();
    let mut member = member(store, notes);
    let before = asked();
    let taken = pick_some(&mut member, want(WALL, is_proven), count, |id| id < below).unwrap();
    let now = asked();
    // The first read reads the marker, and is not counted.
    (taken.worker_ids.to_string(), [now[0] - before[0] - 1, now[1] - before[1]], member.notes().clone())
}

#[test]
fn a_start_prefers_its_own_numbers_to_unused_ones() {
    let store = store();
    let (first, asked, notes) = picked(&store, Notes::default(), false, 2, 1_024);
    assert_eq!((first.as_str(), asked), ("0-1", [1, 0]));
    let (again, asked, notes) = picked(&store, notes, true, 2, 1_024);
    assert_eq!((again.as_str(), asked), ("0-1", [1, 0]));
    let (others, asked, _) = picked(&store, notes.clone(), false, 2, 1_024);
    assert_eq!((others.as_str(), asked), ("2-3", [2, 0]), "0 and 1 may belong to a copy of the state");
    let (one, asked, notes) = picked(&store, notes, true, 1, 1_024);
    assert_eq!((one.as_str(), asked), ("0", [1, 0]));
    let (more, asked, notes) = picked(&store, notes, true, 3, 1_024);
    assert_eq!((more.as_str(), asked), ("0,4-5", [2, 0]));
    let key = |number| Paths::of("f").number(0, number);
    [0, 1, 4, 5].iter().for_each(|&number| store.remove(&key(number)));
    store.put(&key(0), "of another daemon");
    let (other, asked, _) = picked(&store, notes, true, 2, 1_024);
    assert_eq!(
        (other.as_str(), asked),
        ("4-5", [1, 0]),
        "the coordinator has lost the keys of this state's numbers"
    );
}

#[test]
fn a_start_lists_all_keys_if_one_read_finds_too_few_unused() {
    let store = store();
    let key = |number| Paths::of("f").number(0, number);
    let pick = |count| {
        let (taken, asked, _) = picked(&store, Notes::default(), false, count, 1_024);
        (taken, asked)
    };
    (0..700).for_each(|number| store.put(&key(number), "of a newer release"));
    assert_eq!(pick(1), ("700".to_owned(), [1, 1]), "the lowest unused number");
    store.remove(&key(17));
    assert_eq!(pick(1), ("17".to_owned(), [1, 0]), "17 is unused now");
    [17, 300].iter().for_each(|&number| store.remove(&key(number)));
    assert_eq!(pick(2), ("17,300".to_owned(), [1, 1]), "one read finds only one unused number");
}

#[test]
fn a_start_that_finds_too_few_free_numbers_takes_none() {
    let store = store();
    let mut member = member(&store, Notes::default());
    let refused = pick_some(&mut member, want(WALL, false), 2, |id| id < 1).unwrap_err();
    assert!(refused.to_string().contains("fewer than 2 free worker IDs"), "{refused}");
    assert_eq!(store.0.lock().unwrap().found.len(), 1, "the marker alone");
}
