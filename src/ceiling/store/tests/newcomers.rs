//! Sources that join those in the state.

use super::*;

fn newcomer<'a>(name: &'a str, numbering: &'a Numbering, ceiling: u64) -> Newcomer<'a> {
    Newcomer { name, numbering, ceiling: Position(ceiling) }
}

#[test]
fn a_newcomer_is_stored_beside_the_others_and_raised_like_them() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (numbering("twitter", "1"), numbering("twitter", "2"));
    let mut store = open(directory.path(), &first, Position(100));
    store.raise(&[(0, Position(500))], 1).unwrap();
    store.add(1, &[newcomer("new", &second, 700)], 2).unwrap();
    let stored = |name: &str| {
        let records = read(directory.path()).unwrap();
        records.iter().find(|record| record.name == name).map(|record| record.ceiling.0)
    };
    assert_eq!((stored("orders"), stored("new")), (Some(500), Some(700)));
    assert_eq!(store.still_ours(), Ok(()));
    store.raise(&[(0, Position(600)), (1, Position(800))], 3).unwrap();
    assert_eq!((stored("orders"), stored("new")), (Some(600), Some(800)));
    // After a failure too.
    store.file.fail();
    store.raise(&[(1, Position(900))], 4).unwrap();
    store.trim(&left(&first, Position(550)), 5).unwrap();
    assert_eq!((stored("orders"), stored("new")), (Some(550), Some(900)));
    // One that was given up makes room for the next, and binds nothing.
    store.add(1, &[newcomer("other", &numbering("twitter", "3"), 300)], 5).unwrap();
    store.raise(&[(1, Position(400))], 6).unwrap();
    let all = (stored("orders"), stored("new"), stored("other"));
    assert_eq!(all, (Some(550), None, Some(400)));
}

#[test]
fn a_newcomer_that_cannot_be_stored_leaves_all_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (numbering("twitter", "1"), numbering("twitter", "2"));
    let mut store = open(directory.path(), &first, Position(100));
    store.raise(&[(0, Position(500))], 1).unwrap();
    // In the way of the new file that a name of this length needs.
    let in_the_way = directory.path().join("ceilings.new");
    fs::create_dir(&in_the_way).unwrap();
    let long = "n".repeat(64 * 1024);
    let refused = store.add(1, &[newcomer(&long, &second, 700)], 2).unwrap_err();
    assert!(refused.to_string().contains("ceilings.new"), "{refused}");
    // The store continues with the file that it has: this write fits into it.
    store.raise(&[(0, Position(600))], 3).unwrap();
    assert_eq!(store.still_ours(), Ok(()));
    let stored = read(directory.path()).unwrap();
    assert_eq!((stored.len(), stored[0].ceiling), (1, Position(600)));
    fs::remove_dir(&in_the_way).unwrap();
    store.add(1, &[newcomer(&long, &second, 700)], 4).unwrap();
    assert_eq!(read(directory.path()).unwrap().len(), 2);
}

#[test]
fn a_newcomer_starts_above_what_is_stored_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let running = numbering("twitter", "1");
    let here = HostIdentity::here();
    let retired = vec![record("back", "twitter", "2", 5_000), record("gone", "discord", "3", 4_000)];
    let home = StateDir::lock(directory.path()).unwrap();
    let orders = [first_record(&running, Position(100))];
    let mut store = DiskStore::new(home, orders, retired.clone(), &Owner::new(), &here);
    store.raise(&[(0, Position(500))], 1).unwrap();
    let starts = |name: &str, numbering: &Numbering| {
        let running = [claimant("orders", &running)];
        plan_beside(&running, &retired, &[claimant(name, numbering)], WALL).map(|plan| plan.starts[0])
    };
    let second = numbering("twitter", "2");
    assert_eq!(starts("back", &second), Ok(Some(at(&second, 5_000))), "its name");
    assert_eq!(starts("renamed", &second), Ok(Some(at(&second, 5_000))), "its worker ID");
    let wider = numbering("twitter", "2,7");
    assert!(starts("wider", &wider).unwrap() >= Some(at(&wider, 5_000)), "one of its worker IDs");
    // A newcomer that no record matches may be a source that is gone, under another name, but not
    // one that runs.
    let other = numbering("twitter", "9");
    assert!(starts("new", &other).unwrap().is_some());
    let discord = numbering("discord", "3");
    assert_eq!(starts("moved", &discord), Ok(Some(at(&discord, 4_000))));

    // It has taken the stored one's place, and is not lower after a failure either.
    store.add(1, &[newcomer("back", &second, at(&second, 6_000).0)], 2).unwrap();
    store.file.fail();
    store.raise(&[(0, Position(600))], 3).unwrap();
    let stored = read(directory.path()).unwrap();
    let back: Vec<_> = stored.iter().filter(|record| record.name == "back").collect();
    assert_eq!((back.len(), back[0].ceiling), (1, at(&second, 6_000)));
    assert_eq!(stored.len(), 3);
    // Given up, it leaves what was stored before it.
    store.add(1, &[newcomer("other", &numbering("twitter", "8"), 300)], 4).unwrap();
    let stored = read(directory.path()).unwrap();
    assert!(stored.contains(&Record { retired: true, ..retired[0].clone() }), "{stored:?}");
    assert_eq!(stored.len(), 4);
}

#[test]
fn a_newcomer_keeps_the_bound_of_lent_worker_ids() {
    let directory = tempfile::tempdir().unwrap();
    let (running, new) = (numbering("discord", "1"), numbering("twitter", "2"));
    let lent = lent("9", 5_000);
    let bound = Some(lent.id_bound);
    let home = StateDir::lock(directory.path()).unwrap();
    let orders = [first_record(&running, Position(100))];
    let mut store = DiskStore::new(home, orders, vec![lent], &Owner::new(), &HostIdentity::here());
    store.raise(&[(0, Position(500))], 1).unwrap();
    store.add(1, &[newcomer("new", &new, 700)], 2).unwrap();
    let stored = read(directory.path()).unwrap();
    let record = stored.iter().find(|record| record.name == "new").unwrap();
    assert_eq!(record.lent_bound, bound);
}
