//! The store over real files, and the start rules over any history.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ceiling::locked_file::file_id;
use snowbank_client::layout::{Layout, Tick, UnixMicros, WorkerSet, collision};

pub(super) const WALL: UnixMicros = UnixMicros(1_800_000_000_000_000);

pub(super) fn numbering(layout: &str, workers: &str) -> Numbering {
    Numbering::new(Layout::resolve(layout).unwrap(), workers.parse().unwrap()).unwrap()
}

/// The first position of the tick this far from `WALL`.
fn at(numbering: &Numbering, ms: i64) -> Position {
    numbering.first_of(numbering.tick_at(UnixMicros(WALL.0 + ms * 1_000)))
}

pub(super) fn record(name: &str, layout: &str, workers: &str, ahead_ms: i64) -> Record {
    let numbering = numbering(layout, workers);
    Record::new(name, &numbering, at(&numbering, ahead_ms), &Owner::new(), &HostIdentity::default())
}

fn claimant<'a>(name: &'a str, numbering: &'a Numbering) -> Claimant<'a> {
    let max_ahead = Duration::from_secs(10);
    Claimant { name, numbering, max_ahead, catch_up: max_ahead, in_fleet: false }
}

fn first_record(numbering: &Numbering, start: Position) -> FirstRecord<'_> {
    FirstRecord { name: "orders", numbering, start, is_clean: false, is_lent: false, was_lent: false }
}

fn open(path: &Path, numbering: &Numbering, start: Position) -> DiskStore {
    let directory = StateDir::lock(path).unwrap();
    let here = HostIdentity::here();
    DiskStore::new(directory, [first_record(numbering, start)], Vec::new(), &Owner::new(), &here)
}

#[test]
fn ceilings_rise_in_place_and_come_down_at_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    assert_eq!(read(directory.path()).unwrap(), [], "nothing is written before the first raise");
    store.raise(&[(0, Position(500))], 7).unwrap();
    let file = fs::metadata(file::path(directory.path())).unwrap();
    store.raise(&[(0, Position(900))], 8).unwrap();
    store.raise(&[(0, Position(600))], 9).unwrap();
    assert_eq!(file_id(&file), file_id(&fs::metadata(file::path(directory.path())).unwrap()));
    let stored = read(directory.path()).unwrap();
    assert_eq!((stored[0].ceiling, stored[0].clean), (Position(900), false), "a ceiling never sinks");
    assert_eq!(stored[0].wall_minus_boot_us, 9);
    assert_eq!(stored[0].id_bound, numbering.id_at(Position(900)));
    store.trim(&[(0, Position(123))], 10).unwrap();
    let stored = read(directory.path()).unwrap();
    assert_eq!((stored[0].ceiling, stored[0].clean), (Position(123), true));
    assert_eq!(stored[0].wall_minus_boot_us, 10, "what was believed at the stop");
    store.trim(&[(0, Position(100))], 10).unwrap();
    assert!(!read(directory.path()).unwrap()[0].clean, "nothing was claimed since the crash");
}

#[test]
fn what_others_do_to_the_file_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = file::path(directory.path());
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    assert_eq!(store.still_ours(), Ok(()));
    store.raise(&[(0, Position(500))], 0).unwrap();
    let before = fs::read(&path).unwrap();
    store.raise(&[(0, Position(600))], 0).unwrap();
    assert_eq!(store.still_ours(), Ok(()));

    let after = fs::read(&path).unwrap();
    fs::write(&path, &before).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("somebody else"));
    fs::write(&path, &after).unwrap();
    assert_eq!(store.still_ours(), Ok(()));

    // One copy alone, and found before the next write if not sooner.
    let half = after.len() / 2;
    fs::write(&path, [&after[..half], &before[half..]].concat()).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("somebody else"));
    assert!(store.raise(&[(0, Position(700))], 0).unwrap_err().to_string().contains("somebody else"));
    fs::write(&path, &after).unwrap();

    fs::rename(&path, directory.path().join("moved")).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("removed"));
    fs::write(&path, &after).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("replaced"));
    fs::rename(directory.path().join("moved"), &path).unwrap();
    assert_eq!(store.still_ours(), Ok(()));

    fs::remove_file(directory.path().join("lock")).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("lock"));
}

#[test]
fn after_a_failure_a_new_file_takes_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = file::path(directory.path());
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    store.raise(&[(0, Position(500))], 0).unwrap();
    let before = file_id(&fs::metadata(&path).unwrap());
    store.file.fail();
    store.raise(&[(0, Position(700))], 0).unwrap();
    assert_eq!(read(directory.path()).unwrap()[0].ceiling, Position(700));
    assert_ne!(file_id(&fs::metadata(&path).unwrap()), before);

    // Taken over meanwhile: nothing is written over what another has there.
    store.file.fail();
    let theirs = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &theirs).unwrap();
    assert!(store.raise(&[(0, Position(950))], 0).unwrap_err().to_string().contains("replaced"));
    assert_eq!(fs::read(&path).unwrap(), theirs);
}

#[test]
fn a_file_is_read_whole_while_it_is_raised() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(1));
    store.raise(&[(0, Position(2))], 0).unwrap();
    thread::scope(|scope| {
        let raising = scope.spawn(|| {
            for ceiling in 3..400 {
                store.raise(&[(0, Position(ceiling))], 0).unwrap();
                // About the pace of a daemon, next to that of a reader.
                thread::sleep(Duration::from_millis(3));
            }
        });
        let (mut last, mut readings) = (Position(0), 0);
        while !raising.is_finished() {
            if let Ok(records) = read(directory.path()) {
                assert!(records[0].ceiling >= last);
                last = records[0].ceiling;
                readings += 1;
            }
        }
        assert!(readings > 10, "{readings} whole readings");
    });
}

#[test]
fn a_file_of_an_older_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let older = directory.path().join("ceilings.redb");
    fs::write(&older, "redb").unwrap();
    let refused = read(directory.path()).unwrap_err().to_string();
    assert!(refused.contains(older.to_str().unwrap()) && refused.contains("state export"), "{refused}");
    // Left behind by an import: what counts is there.
    StateFile::of(directory.path()).write([&record("orders", "twitter", "0", 0)]).unwrap();
    assert_eq!(read(directory.path()).unwrap().len(), 1);
}

#[test]
fn what_a_crash_left_unfinished_is_swept_away() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ceilings.new"), "half a file").unwrap();
    let numbering = numbering("twitter", "1");
    assert_eq!(read(directory.path()).unwrap(), []);
    open(directory.path(), &numbering, Position(1)).raise(&[(0, Position(5))], 0).unwrap();
    assert!(!directory.path().join("ceilings.new").exists());
}

#[test]
fn what_root_makes_belongs_to_the_owner_of_the_directory() {
    const OWNER: u32 = 61_184;
    let directory = tempfile::tempdir().unwrap();
    if directory.path().metadata().unwrap().uid() != 0
        || chown(directory.path(), Some(OWNER), Some(OWNER)).is_err()
    {
        println!("skipped: only root can give files away");
        return;
    }
    let _lock = StateDir::lock(directory.path()).unwrap();
    let record = record("orders", "twitter", "0", 0);
    StateFile::of(directory.path()).write([&record]).unwrap();
    for name in ["ceilings", "lock"] {
        let made = directory.path().join(name).metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (OWNER, OWNER), "{name}");
    }
}

#[test]
fn a_start_lies_at_the_highest_bound_of_its_name_and_its_ids() {
    let wanted = numbering("twitter", "1,2");
    let records = [
        record("orders", "twitter", "7", 1_000),
        record("other", "twitter", "2-4", 2_000),
        record("unrelated", "twitter", "9", 9_000),
    ];
    let plan = plan(&records, &[claimant("orders", &wanted)], WALL).unwrap();
    assert_eq!(plan.starts, [Some(wanted.position_from(records[1].id_bound))]);
    assert_eq!(plan.retired, records, "worker IDs that it does not have may come back");
}

#[test]
fn a_start_between_two_ids_takes_the_higher_one() {
    let (stored, wanted) = (numbering("twitter", "2"), numbering("twitter", "1"));
    // Worker 2's first ID of the tick lies above all of worker 1's.
    let bound = stored.id_bound(at(&stored, 0));
    let start = wanted.position_from(bound);
    assert_eq!(start, at(&wanted, 1));
    assert!(wanted.id_at(start) >= bound && wanted.id_at(Position(start.0 - 1)) < bound);
}

#[test]
fn a_renamed_source_takes_its_ceiling_with_it() {
    let wanted = numbering("twitter", "1-3");
    let records = [record("old", "twitter", "1,2", 1_000)];
    let plan = plan(&records, &[claimant("new", &wanted)], WALL).unwrap();
    assert_eq!(plan.starts, [Some(wanted.position_from(records[0].id_bound))]);
    assert_eq!(plan.retired, []);
}

#[test]
fn what_nothing_matches_binds_whom_nothing_matches() {
    let (known, fresh) = (numbering("twitter", "1"), numbering("twitter", "5"));
    let records = [record("known", "twitter", "1", 1_000), record("gone", "twitter", "3", 2_000)];
    let both = [claimant("known", &known), claimant("fresh", &fresh)];
    let starts = plan(&records, &both, WALL).unwrap().starts;
    assert_eq!(starts[0], Some(known.position_from(records[0].id_bound)));
    assert_eq!(starts[1], Some(fresh.position_from(records[1].id_bound)));
    assert_eq!(plan(&records[..1], &both, WALL).unwrap().starts[1], None, "new beside known ones");
    let released = Record { released: true, ..records[1].clone() };
    assert_eq!(plan(&[records[0].clone(), released], &both, WALL).unwrap().starts[1], None);
}

#[test]
fn released_worker_ids_are_refused() {
    let wanted = numbering("twitter", "1-3");
    let records = [Record { released: true, ..record("orders", "twitter", "2", 0) }];
    let refused = plan(&records, &[claimant("new", &wanted)], WALL).unwrap_err();
    assert!(matches!(refused, PlanError::Released { .. }), "{refused}");
    let others = numbering("twitter", "3");
    assert!(plan(&records, &[claimant("orders", &others)], WALL).is_ok());
}

#[test]
fn far_bounds_are_waited_for_in_one_id_space_and_refused_in_another() {
    let same = numbering("time:41,machine:10,sequence:12;epoch=1288834974657", "1");
    let records = [record("orders", "twitter", "1", 3_600_000)];
    let plan_of = |numbering: &Numbering| plan(&records, &[claimant("orders", numbering)], WALL);
    assert_eq!(plan_of(&same).unwrap().starts, [Some(at(&same, 3_600_000))]);
    // Ten seconds later in its count: reached ten seconds later.
    for (epoch, expected) in
        [(1288834974657_i64 + 10_000, Err(3_600_000)), (1288834974657 - 3_600_000, Ok(0))]
    {
        let other = numbering(&format!("time:41,datacenter:5,worker:5,sequence:12;epoch={epoch}"), "1");
        match (plan_of(&other), expected) {
            (Ok(plan), Ok(ms)) => assert_eq!(plan.starts, [Some(at(&other, ms))]),
            (Err(PlanError::TooFarAhead { when: When::From(when), clock_may_be_slow, .. }), Err(ms)) => {
                assert_eq!(when, UnixMicros(WALL.0 + ms * 1_000));
                assert!(clock_may_be_slow, "an hour before what was granted");
            }
            (found, expected) => panic!("{epoch}: {found:?}, expected {expected:?}"),
        }
    }
    let small = numbering("js53", "1");
    let refused = plan_of(&small).unwrap_err();
    assert!(matches!(refused, PlanError::TooFarAhead { when: When::Never, .. }), "{refused}");
}

#[test]
fn a_name_binds_the_order_as_far_as_the_id_clock_can_ride() {
    let (used, unused, both) =
        (numbering("twitter", "1"), numbering("twitter", "2"), numbering("twitter", "1-2"));
    let plan_of = |ahead_ms, numbering: &Numbering, catch_up| {
        let records = [record("orders", "twitter", "1", ahead_ms)];
        let claimant = Claimant { catch_up, ..claimant("orders", numbering) };
        let Plan { starts, passed_over, retired } = plan(&records, &[claimant], WALL).unwrap();
        assert_eq!(retired.len(), usize::from(numbering == &unused), "what was granted stays known");
        (starts[0], passed_over[0].as_ref().map(|record| record.id_bound == records[0].id_bound))
    };
    let ten = Duration::from_secs(10);
    assert_eq!(plan_of(10_000, &unused, ten), (Some(at(&unused, 10_000)), None));
    assert_eq!(plan_of(10_001, &unused, ten), (None, Some(true)));
    assert_eq!(plan_of(1, &unused, Duration::ZERO), (None, Some(true)), "it does not ride");
    assert_eq!(plan_of(3_600_000, &used, ten), (Some(at(&used, 3_600_000)), None));
    let (start, passed_over) = plan_of(3_600_000, &both, ten);
    assert!(start.is_some_and(|start| start >= at(&both, 3_600_000)), "one of them was used");
    assert_eq!(passed_over, None);

    // Of two records the one that is within reach binds, and a source that is gone binds no further than a name.
    let records = [record("orders", "twitter", "1", 3_600_000), record("orders", "twitter", "3", 5_000)];
    let found = plan(&records, &[claimant("orders", &unused)], WALL).unwrap();
    assert_eq!(found.starts, [Some(unused.position_from(records[1].id_bound))]);
    let found = plan(&records, &[claimant("renamed", &unused)], WALL).unwrap();
    assert_eq!(found.starts, [Some(unused.position_from(records[1].id_bound))]);
}

/// A configured source of a history: its name, its layout and its worker IDs.
#[derive(Clone, Debug)]
pub(super) struct Configured(pub(super) &'static str, pub(super) &'static str, pub(super) String);

pub(super) fn any_source() -> impl Strategy<Value = Configured> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    // Three spellings of one ID space, two that differ by a little, one of longer ticks, and one with the node below.
    let layouts = prop::sample::select(vec![
        "twitter",
        "time:41,machine:10,sequence:12;epoch=1288834974657",
        "time:41,region:8:constant(0),machine:2,sequence:12;epoch=1288834974657",
        "time:41,datacenter:5,worker:5,sequence:12;epoch=1288834970000",
        "time:40,node:10,sequence:12;tick=10ms;epoch=-9000000000000",
        "time:41,sequence:12,node:10;epoch=1288834974657",
    ]);
    let workers = prop::collection::btree_set(0_u64..4, 1..4);
    (names, layouts, workers).prop_map(|(name, layout, workers)| {
        let workers: Vec<String> = workers.iter().map(u64::to_string).collect();
        Configured(name, layout, workers.join(","))
    })
}

/// One run of the daemon: what it is configured as, by how much the clock changed before it, and how far it gets.
fn any_run() -> impl Strategy<Value = (Vec<Configured>, i64, i64, bool)> {
    (prop::collection::vec(any_source(), 1..4), -20_000_i64..20_000, 0_i64..5_000, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// As the fuzzer does; its own bytes alone rarely reach a whole copy.
    #[test]
    fn damage_to_a_copy_is_noticed_or_without_effect(input: Vec<u8>) {
        super::fuzzing::state_file(&[&[0], &input[..]].concat());
    }
}

proptest! {
    /// Over any history of configurations, clocks, crashes and clean stops, no start is at or below an ID that was ever
    /// granted to a source that can make the same IDs, or under its name just before.
    #[test]
    fn no_start_is_below_what_was_granted(runs in prop::collection::vec(any_run(), 1..12)) {
        let mut wall = WALL;
        let mut stored: Vec<Record> = Vec::new();
        let mut granted: Vec<(Layout, WorkerSet, u64)> = Vec::new();
        for (configured, step_ms, gets_ms, is_clean) in runs {
            wall.0 += step_ms * 1_000;
            let numberings: Vec<Numbering> = configured.iter().map(|source| numbering(source.1, &source.2)).collect();
            // As the settings demand: names and IDs are one source's.
            let collides = |left: usize, right: usize| {
                let ids = |index: usize| numberings[index].snowflake().unwrap();
                configured[left].0 == configured[right].0 || collision(ids(left), ids(right)).is_some()
            };
            if (0..configured.len()).any(|right| (0..right).any(|left| collides(left, right))) {
                continue;
            }
            let claimants: Vec<Claimant<'_>> = configured.iter().zip(&numberings).map(|(source, numbering)| claimant(source.0, numbering)).collect();
            let Ok(plan) = plan(&stored, &claimants, wall) else { continue };
            let mut records = plan.retired;
            for (claimant, start) in claimants.iter().zip(&plan.starts) {
                let numbering = claimant.numbering;
                let first = numbering.first_of(Tick(numbering.tick_at(wall).0 + 1));
                let start = start.unwrap_or(first);
                let ids = numbering.snowflake().unwrap();
                for (layout, workers, bound) in &granted {
                    let is_apart = collision(ids, (layout, workers)).is_none();
                    prop_assert!(is_apart || numbering.id_bound(start) >= *bound, "workers {workers} of {layout}");
                }
                for record in stored.iter().filter(|record| record.name == claimant.name) {
                    let ahead = numbering.start_of(numbering.tick_of(numbering.position_from(record.id_bound)));
                    if plan.passed_over.iter().flatten().any(|passed| passed.name == claimant.name)
                        && ahead.0 > wall.0 + 10_000_000
                    {
                        continue;
                    }
                    prop_assert!(numbering.id_bound(start) >= record.id_bound, "the name {}", claimant.name);
                }
                let ceiling = Position(start.0 + 1 + gets_ms.unsigned_abs() * numbering.ids_per_tick() / 10);
                let ceiling = if is_clean { Position(start.0 + 1) } else { ceiling };
                granted.push((ids.0.clone(), ids.1.clone(), numbering.id_bound(ceiling)));
                let record = Record::new(claimant.name, numbering, ceiling, &Owner::default(), &HostIdentity::default());
                records.retain(|old| old.key() != record.key());
                records.push(record);
            }
            stored = records;
        }
    }
}

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
    store.trim(&[(0, Position(550))], 5).unwrap();
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
    // The file that is there is used on: it needs no other.
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
    // What nothing matches may be one that is gone, but not one that runs.
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

/// A record of worker IDs that a fleet lent.
fn lent(workers: &str, ahead_ms: i64) -> Record {
    Record { lent: true, was_lent: true, ..record("orders", "twitter", workers, ahead_ms) }
}

#[test]
fn a_record_that_was_let_go_stays_until_its_sources_own_is_as_high() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "3");
    let home = StateDir::lock(directory.path()).unwrap();
    let (let_go, other) = (lent("9", 5_000), record("invoices", "twitter", "7", 1_000));
    let starts = [FirstRecord { is_lent: true, ..first_record(&numbering, at(&numbering, 0)) }];
    let store = DiskStore::new(home, starts, vec![other], &Owner::new(), &HostIdentity::here());
    let mut store = store.letting_go(vec![let_go]);
    let stored = || {
        let records = read(directory.path()).unwrap();
        let workers = records
            .iter()
            .map(|record| (record.numbering.snowflake().unwrap().1.to_string(), record.retired));
        workers.collect::<Vec<_>>()
    };
    let [three, seven, nine] = [("3", false), ("7", true), ("9", true)].map(|(id, is)| (id.to_owned(), is));
    store.raise(&[(0, at(&numbering, 3_000))], 0).unwrap();
    assert_eq!(stored(), [seven.clone(), three.clone(), nine.clone()], "it binds the order of IDs");
    store.raise(&[(0, at(&numbering, 5_001))], 0).unwrap();
    assert_eq!(stored(), [seven.clone(), three.clone()]);
    store.trim(&[(0, at(&numbering, 4_000))], 0).unwrap();
    assert_eq!(stored(), [seven, three, nine], "a stop that left the source lower brings it back");
}

#[test]
fn without_its_fleet_a_source_starts_above_all_that_was_lent_to_it() {
    let (given, hour) = (numbering("twitter", "5"), 3_600_000);
    let records = [lent("7", hour)];
    let start = |in_fleet| {
        let claimant = Claimant { in_fleet, ..claimant("orders", &given) };
        plan(&records, &[claimant], WALL).unwrap()
    };
    assert_eq!(start(true).starts, [None], "the coordinator says where it starts");
    assert_eq!(start(false).starts, [Some(given.position_from(records[0].id_bound))]);
    let never_lent = [record("orders", "twitter", "7", hour)];
    assert_eq!(plan(&never_lent, &[claimant("orders", &given)], WALL).unwrap().starts, [None]);
}

#[test]
fn exported_worker_ids_are_the_fleets_in_it_and_moved_away_without_it() {
    let again = numbering("twitter", "7");
    let records = [Record { released: true, ..lent("7", 0) }];
    let planned = |in_fleet| plan(&records, &[Claimant { in_fleet, ..claimant("orders", &again) }], WALL);
    let in_fleet = planned(true).unwrap();
    assert_eq!((in_fleet.starts, in_fleet.retired), (vec![Some(records[0].ceiling)], vec![]));
    assert!(matches!(planned(false), Err(PlanError::Released { .. })));
    let given = [Record { lent: false, ..records[0].clone() }];
    let refused = plan(&given, &[Claimant { in_fleet: true, ..claimant("orders", &again) }], WALL);
    assert!(matches!(refused, Err(PlanError::Released { .. })), "a fleet knows nothing of it");
}

#[test]
fn only_what_is_retired_and_past_the_clock_is_forgotten() {
    let retired = |ahead_ms| Record { retired: true, ..record("orders", "twitter", "7", ahead_ms) };
    let forgotten = |record: Record| record.may_be_forgotten(WALL);
    assert!(forgotten(retired(-5)) && forgotten(retired(0)));
    assert!(!forgotten(retired(1)), "its IDs may be handed out again until then");
    assert!(!forgotten(Record { retired: false, ..retired(-5) }));
    assert!(!forgotten(Record { released: true, ..retired(-5) }));
}
