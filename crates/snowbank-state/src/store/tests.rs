//! Tests of the store with real files, and of the rules of a start with any history.

mod starts;
mod written;

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::locked_file::file_id;
use crate::{Cause, Owner};
use snowbank_core::clock::BootMicros;
use snowbank_id::layout::{Layout, Tick, UnixMicros, WorkerSet};
use snowbank_id::numbering::{Numbering, TicketCounter};

pub(super) const WALL: UnixMicros = UnixMicros(1_800_000_000_000_000);

pub(crate) fn numbering(layout: &str, workers: &str) -> Numbering {
    Numbering::new(Layout::resolve(layout).unwrap(), workers.parse().unwrap()).unwrap()
}

/// Returns the first position of the tick that is this many ms after `WALL`.
fn at(numbering: &Numbering, ms: i64) -> Position {
    numbering.first_of(numbering.tick_at(UnixMicros(WALL.0 + ms * 1_000)))
}

pub(crate) fn record(name: &str, layout: &str, workers: &str, ahead_ms: i64) -> Record {
    let numbering = numbering(layout, workers);
    Record::new(name, &numbering, at(&numbering, ahead_ms), &Owner::new(), &HostIdentity::default())
}

pub(super) fn claimant<'a>(name: &'a str, numbering: &'a Numbering) -> Claimant<'a> {
    let max_ahead = Duration::from_secs(10);
    Claimant { name, numbering, max_ahead, catch_up: max_ahead, in_fleet: false, options: "" }
}

fn position(start: Option<Start>, numbering: &Numbering) -> Option<Position> {
    start.map(|start| numbering.position_from(start.id_bound))
}

/// Returns the argument of a trim that leaves the first source at this position.
fn left(numbering: &Numbering, at: Position) -> [Left; 1] {
    [Left { source: 0, id_bound: numbering.id_bound(at), is_untouched: false }]
}

fn open(path: &Path, numbering: &Numbering, start: Position) -> DiskStore {
    let directory = StateDir::lock(path).unwrap();
    let here = HostIdentity::here();
    let first = Record::new("orders", numbering, start, &Owner::new(), &here);
    let mut store = DiskStore::new(directory, Vec::new(), &here);
    store.begin(Beginning { sources: vec![(0, first)], ..Beginning::default() }, 0).unwrap();
    store
}

#[test]
fn ceilings_rise_in_place_and_come_down_at_a_clean_stop() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    store.raise(&[(0, Position(500))], 7).unwrap();
    let file = fs::metadata(file::path(directory.path())).unwrap();
    store.raise(&[(0, Position(900))], 8).unwrap();
    store.raise(&[(0, Position(600))], 9).unwrap();
    assert_eq!(file_id(&file), file_id(&fs::metadata(file::path(directory.path())).unwrap()));
    let stored = read(directory.path()).unwrap();
    assert_eq!(
        (stored[0].ceiling(), stored[0].clean),
        (Position(900), false),
        "a raise never lowers a ceiling"
    );
    assert_eq!(stored[0].wall_minus_boot_us, 9);
    assert_eq!(stored[0].id_bound, numbering.id_at(Position(900)));
    store.trim(&left(&numbering, Position(123)), 10).unwrap();
    let stored = read(directory.path()).unwrap();
    assert_eq!((stored[0].ceiling(), stored[0].clean), (Position(123), true));
    assert_eq!(stored[0].wall_minus_boot_us, 10, "the clocks as believed at the stop");
    assert!(stored[0].ends_at_a_claim());
    let between = numbering.id_bound(Position(4_096)) - 1;
    store.raise(&[(0, Position(5_000))], 10).unwrap();
    store.trim(&[Left { source: 0, id_bound: between, is_untouched: true }], 10).unwrap();
    let stored = read(directory.path()).unwrap();
    assert!(!stored[0].ends_at_a_claim(), "nothing was claimed since the crash");
    assert_eq!(
        (stored[0].ceiling(), stored[0].id_bound),
        (Position(4_096), between),
        "the stop kept the bound of another worker ID"
    );
    store.record_id_time(Some(12));
    store.record_unknown(&[0]);
    store.raise(&[(0, Position(8_000))], 11).unwrap();
    let stored = read(directory.path()).unwrap();
    assert!(!stored[0].clean && !stored[0].untouched, "claims may follow a raise");
    assert_eq!((stored[0].id_minus_boot_us, stored[0].restored), (Some(12), true));
}

/// A reload removes the counter while the disk hangs, so it does not end here, and adds it again.
#[test]
fn a_lost_counter_is_refused_once_it_runs_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    let counter = Numbering::from(TicketCounter::new("orders", 1, 1).unwrap());
    let mut store = open(directory.path(), &counter, Position(100));
    store.record_unknown(&[0]);
    let planned = |running: &[usize]| plan(&store.records(running), &[claimant("orders", &counter)], WALL);
    assert!(planned(&[0]).is_ok(), "its own record refuses no other source");
    assert!(planned(&[1]).unwrap_err().to_string().contains("its record here is not enough"));
}

#[test]
fn the_record_of_another_machine_is_found() {
    let on = |machine: Option<&str>| HostIdentity {
        machine: machine.map(str::to_owned),
        ..HostIdentity::default()
    };
    let written_on = |machine| {
        let numbering = numbering("twitter", "1");
        Record::new("orders", &numbering, Position(0), &Owner::new(), &on(machine))
    };
    let records = [written_on(None), written_on(Some("here")), written_on(Some("there"))];
    assert!(foreign(&records, &on(Some("here"))).eq(&records[2..]));
    assert_eq!(foreign(&records, &on(None)).count(), 0);
}

#[test]
fn a_file_that_others_change_or_replace_is_noticed() {
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
    assert!(store.still_ours().unwrap_err().to_string().contains("another program"));
    fs::write(&path, &after).unwrap();
    assert_eq!(store.still_ours(), Ok(()));

    // Another program changes only one of the copies. The daemon notices this before its next write
    // at the latest.
    let half = after.len() / 2;
    fs::write(&path, [&after[..half], &before[half..]].concat()).unwrap();
    assert!(store.still_ours().unwrap_err().to_string().contains("another program"));
    assert!(store.raise(&[(0, Position(700))], 0).unwrap_err().to_string().contains("another program"));
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
fn a_new_file_replaces_the_state_file_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = file::path(directory.path());
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    store.raise(&[(0, Position(500))], 0).unwrap();
    let before = file_id(&fs::metadata(&path).unwrap());
    store.file.fail();
    store.raise(&[(0, Position(700))], 0).unwrap();
    assert_eq!(read(directory.path()).unwrap()[0].ceiling(), Position(700));
    assert_ne!(file_id(&fs::metadata(&path).unwrap()), before);

    // Another process has taken over the file meanwhile, so the store must not overwrite it.
    store.file.fail();
    let theirs = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &theirs).unwrap();
    assert!(store.raise(&[(0, Position(950))], 0).unwrap_err().to_string().contains("replaced"));
    assert_eq!(fs::read(&path).unwrap(), theirs);
}

#[test]
fn files_that_root_makes_belong_to_the_directorys_owner() {
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

/// A source that a daemon in a history is configured with: its name, its layout and its worker IDs.
#[derive(Clone, Debug)]
pub(super) struct Configured(pub(super) &'static str, pub(super) &'static str, pub(super) String);

pub(super) fn any_source() -> impl Strategy<Value = Configured> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    // Three spellings of one ID space, then three other ID spaces. One has a slightly earlier
    // epoch, one has longer ticks, and one has the node in the lowest bits.
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

/// Draws one run of the daemon: its sources, the change of the clock before the run, the time for
/// which the daemon is granted IDs, and true if it stops cleanly.
fn any_run() -> impl Strategy<Value = (Vec<Configured>, i64, i64, bool)> {
    (prop::collection::vec(any_source(), 1..4), -20_000_i64..20_000, 0_i64..5_000, any::<bool>())
}

fn has_collision(left: &Numbering, right: &Numbering) -> bool {
    let (left, workers) = left.snowflake().unwrap();
    let (right, others) = right.snowflake().unwrap();
    left.collision(workers, right, others).is_some()
}

proptest! {
    /// A history consists of any configurations, clocks, crashes and clean stops. Every start must
    /// lie above all IDs that were ever granted to a source that can make the same IDs. It must
    /// also lie above those stored records with the same name that a catch-up can reach.
    #[test]
    fn no_start_is_below_what_was_granted(runs in prop::collection::vec(any_run(), 1..12)) {
        let mut wall = WALL;
        let mut stored: Vec<Record> = Vec::new();
        let mut granted: Vec<(Layout, WorkerSet, u64)> = Vec::new();
        for (configured, step_ms, gets_ms, is_clean) in runs {
            wall.0 += step_ms * 1_000;
            let numberings: Vec<Numbering> = configured.iter().map(|source| numbering(source.1, &source.2)).collect();
            // As the settings demand, no two sources have the same name or IDs.
            let collides = |right: usize| (0..right).any(|left| {
                configured[left].0 == configured[right].0 || has_collision(&numberings[left], &numberings[right])
            });
            if (0..configured.len()).any(collides) {
                continue;
            }
            let claimants: Vec<Claimant<'_>> = configured.iter().zip(&numberings).map(|(source, numbering)| claimant(source.0, numbering)).collect();
            let Ok(plan) = plan(&stored, &claimants, wall) else { continue };
            let mut records = plan.retired;
            for (claimant, start) in claimants.iter().zip(&plan.starts) {
                let numbering = claimant.numbering;
                let first = numbering.first_of(Tick(numbering.tick_at(wall).0 + 1));
                let start = position(*start, numbering).unwrap_or(first);
                let ids = numbering.snowflake().unwrap();
                for (layout, workers, bound) in &granted {
                    let is_apart = ids.0.collision(ids.1, layout, workers).is_none();
                    prop_assert!(is_apart || numbering.id_bound(start) >= *bound, "workers {workers} of {layout}");
                }
                for record in stored.iter().filter(|record| record.name == claimant.name) {
                    let ahead = numbering.start_of(numbering.tick_of(numbering.position_from(record.id_bound)));
                    if plan.passed_over.iter().flatten().any(|passed| passed.name == claimant.name)
                        && ahead.0 > wall.0 + 10_000_000
                    {
                        continue;
                    }
                    prop_assert!(numbering.id_bound(start) >= record.id_bound, "records with the name {}", claimant.name);
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

fn assigned(workers: &str, ahead_ms: i64) -> Record {
    Record { assigned: true, assigned_bound: Some(0), ..record("orders", "twitter", workers, ahead_ms) }
}

#[test]
fn a_let_go_record_stays_until_the_new_record_is_as_high() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "3");
    let home = StateDir::lock(directory.path()).unwrap();
    let let_go = assigned("9", 5_000);
    let other = Record { retired: true, ..record("invoices", "twitter", "7", 1_000) };
    let mut store = DiskStore::new(home, Vec::new(), &HostIdentity::here());
    let sources = vec![(0, assigned("3", 0))];
    let beginning = Beginning { sources, retired: vec![other], let_go: vec![let_go], ..Beginning::default() };
    store.begin(beginning, 0).unwrap();
    let stored = || {
        let records = read(directory.path()).unwrap();
        let workers = records
            .iter()
            .map(|record| (record.numbering.snowflake().unwrap().1.to_string(), record.retired));
        workers.collect::<Vec<_>>()
    };
    let [three, seven, nine] = [("3", false), ("7", true), ("9", true)].map(|(id, is)| (id.to_owned(), is));
    store.raise(&[(0, at(&numbering, 3_000))], 0).unwrap();
    assert_eq!(
        stored(),
        [seven.clone(), three.clone(), nine.clone()],
        "the record of worker ID 9 still binds the order of IDs"
    );
    store.raise(&[(0, at(&numbering, 5_001))], 0).unwrap();
    assert_eq!(stored(), [seven.clone(), three.clone()]);
    store.trim(&left(&numbering, at(&numbering, 4_000)), 0).unwrap();
    assert_eq!(stored(), [seven, three, nine], "a stop below the record of worker ID 9 brings it back");
}

#[test]
fn a_record_that_was_let_go_replaces_no_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::lock(directory.path()).unwrap();
    let mut store = DiskStore::new(home, Vec::new(), &HostIdentity::here());
    let nine = assigned("9", 0).numbering;
    let end = left(&nine, at(&nine, 4_000))[0];
    let sources = vec![(0, assigned("3", 0))];
    store
        .begin(Beginning { sources, let_go: vec![assigned("9", 1_000)], ..Beginning::default() }, 0)
        .unwrap();
    // The source is removed and added twice. The first time, it gets worker ID 9 again.
    for (index, workers) in [(1, "9"), (2, "5")] {
        store.raise(&[(index - 1, at(&nine, 5_000))], 0).unwrap();
        store.end(&[Left { source: index - 1, ..end }], true, 0).unwrap();
        let sources = vec![(index, assigned(workers, 0))];
        let retired = store.records(&[]);
        store.begin(Beginning { sources, retired, ..Beginning::default() }, 0).unwrap();
    }
    let stored = read(directory.path()).unwrap();
    let last = stored.iter().find(|record| record.numbering == nine).unwrap();
    assert_eq!(last.id_bound, end.id_bound, "the source handed out IDs up to here");
}

/// The daemon may be killed before it writes anything else. Another machine may have the worker ID by
/// then. The removed source may be the only one with a grant.
#[test]
fn a_source_that_a_reload_removes_is_retired_at_once() {
    for (are_removed, retired) in [(true, 1), (false, 0)] {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::lock(directory.path()).unwrap();
        let mut store = DiskStore::new(home, Vec::new(), &HostIdentity::here());
        store.begin(Beginning { sources: vec![(0, assigned("5", 0))], ..Beginning::default() }, 0).unwrap();
        let numbering = assigned("5", 0).numbering;
        let end = [Left { source: 0, ..left(&numbering, at(&numbering, 0))[0] }];
        store.end(&end, are_removed, 0).unwrap();
        let stored = read(directory.path()).unwrap();
        assert_eq!(stored.iter().filter(|record| record.retired).count(), retired, "{are_removed}");
    }
}

/// The disk hung while a source was removed, so its end did not reach the store. The source is added
/// again, counts on and is removed.
#[test]
fn a_record_of_a_source_that_never_ended_replaces_no_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::lock(directory.path()).unwrap();
    let mut store = DiskStore::new(home, Vec::new(), &HostIdentity::here());
    let five = assigned("5", 0).numbering;
    for index in [0, 1] {
        let sources = vec![(index, assigned("5", 0))];
        store.begin(Beginning { sources, ..Beginning::default() }, 0).unwrap();
    }
    store.raise(&[(1, at(&five, 4_000))], 0).unwrap();
    let end = left(&five, at(&five, 4_000))[0];
    store.end(&[Left { source: 1, ..end }], true, 0).unwrap();
    store.trim(&[], 0).unwrap();
    let [stored] = &read(directory.path()).unwrap()[..] else { panic!("one record for one worker ID") };
    assert_eq!(stored.id_bound, end.id_bound);
}

#[test]
fn a_source_without_its_fleet_starts_above_assigned_bounds() {
    let given = numbering("twitter", "5");
    let hour = 3_600_000;
    let records = [assigned("7", hour)];
    let start = |in_fleet| {
        let claimant = Claimant { in_fleet, ..claimant("orders", &given) };
        plan(&records, &[claimant], WALL).unwrap()
    };
    assert_eq!(start(true).starts, [None], "the coordinator decides where the source starts");
    let bound_of = |plan: Plan| plan.starts[0].map(|start| start.id_bound);
    assert_eq!(bound_of(start(false)), Some(records[0].id_bound));
    let dropped = record("orders", "twitter", "9", 2 * hour).id_bound;
    let records = [Record { assigned_bound: Some(dropped), ..assigned("7", hour) }];
    let found = plan(&records, &[claimant("orders", &given)], WALL).unwrap().starts[0];
    let found = position(found, &given);
    assert!(found >= Some(given.position_from(dropped)), "the start is above records that are gone");
    assert!(found <= Some(at(&given, 2 * hour + 2)), "the start is close to the dropped bound");
    let never_assigned = [record("orders", "twitter", "7", hour)];
    assert_eq!(plan(&never_assigned, &[claimant("orders", &given)], WALL).unwrap().starts, [None]);
}

#[test]
fn exported_worker_ids_start_only_within_their_fleet() {
    let again = numbering("twitter", "7");
    let records = [Record { released: true, ..assigned("7", 0) }];
    let planned = |in_fleet| plan(&records, &[Claimant { in_fleet, ..claimant("orders", &again) }], WALL);
    let in_fleet = planned(true).unwrap();
    let start = position(in_fleet.starts[0], &again);
    assert_eq!((start, in_fleet.retired), (Some(records[0].ceiling()), vec![]));
    assert_eq!(planned(false).unwrap_err().cause(), Cause::Released);
    let given = [Record { assigned: false, ..records[0].clone() }];
    let refused = plan(&given, &[Claimant { in_fleet: true, ..claimant("orders", &again) }], WALL);
    assert_eq!(refused.unwrap_err().cause(), Cause::Released, "the fleet did not assign this worker ID");
}

#[test]
fn only_retired_records_behind_the_clock_are_forgotten() {
    let retired = |ahead_ms| Record { retired: true, ..record("orders", "twitter", "7", ahead_ms) };
    let forgotten = |record: Record| record.may_be_forgotten(WALL);
    assert!(forgotten(retired(-5)) && forgotten(retired(0)));
    assert!(!forgotten(retired(1)), "without the record, its IDs could be handed out again");
    assert!(!forgotten(Record { retired: false, ..retired(-5) }));
    assert!(!forgotten(Record { released: true, ..retired(-5) }));
}

/// The clock was right when the records were forgotten, and goes back afterwards.
#[test]
fn a_worker_id_without_a_record_starts_above_all_forgotten_ones() {
    let retired =
        |workers, ahead_ms| Record { retired: true, ..record("orders", "twitter", workers, ahead_ms) };
    let own = record("users", "twitter", "9", -60_000);
    let other = Record { retired: true, ..record("events", "js53", "1", -9_000) };
    let mut records = vec![retired("1", -20_000), retired("2", -5_000), own.clone(), other.clone()];
    let dropped = records[1].id_bound;
    assert_eq!(forget(&mut records, WALL).len(), 3);
    let standing: Vec<(u64, bool)> = records.iter().map(|it| (it.id_bound, it.forgotten)).collect();
    assert_eq!(standing, [(own.id_bound, false), (dropped, true), (other.id_bound, true)]);
    let before = UnixMicros(WALL.0 - 60_000_000);
    let start = |records: &[Record], name, workers, in_fleet| {
        let numbering = numbering("twitter", workers);
        let claimant = Claimant { in_fleet, ..claimant(name, &numbering) };
        plan(records, &[claimant], before).unwrap().starts[0].map(|start| start.id_bound)
    };
    for workers in ["1", "2", "7", "7,9"] {
        assert_eq!(start(&records, "new", workers, false), Some(dropped), "{workers}");
    }
    assert_eq!(start(&records, "users", "9", false), Some(own.id_bound), "it has a record");
    assert_eq!(start(&records, "users", "7", true), Some(own.id_bound), "the fleet's key has its bound");
    // A source with a forgotten worker ID does not replace the bound.
    let again = numbering("twitter", "2");
    let planned = plan(&records, &[claimant("orders", &again)], WALL).unwrap();
    assert!(planned.retired.iter().any(|record| record.forgotten && record.id_bound == dropped));
    assert_eq!(forget(&mut records, WALL), [], "nothing is forgotten twice");
}

/// An import brought a newer record of a worker ID that a source has.
#[test]
fn a_record_gets_the_bound_of_a_forgotten_one_of_its_worker_id() {
    let own = record("users", "twitter", "5", -60_000);
    let imported = Record { retired: true, ..record("orders", "twitter", "5", -20_000) };
    let mut records = vec![own, record("others", "twitter", "6", -50_000), imported.clone()];
    let others = records[1].clone();
    let bound = imported.id_bound;
    assert_eq!(forget(&mut records, WALL), [imported]);
    assert_eq!(records[0].id_bound, bound);
    assert_eq!(records[1], others);
}

/// Worker ID 5 of the one layout makes the IDs of worker ID 2 of the other one.
#[test]
fn a_forgotten_worker_id_starts_above_what_another_layout_forgot() {
    let other = "time:41,node:9,sequence:13;tick=1ms;epoch=1288834974657";
    let retired =
        |name, layout, workers, ahead_ms| Record { retired: true, ..record(name, layout, workers, ahead_ms) };
    let mut records = vec![
        retired("orders", "twitter", "5", -30_000),
        retired("users", other, "2", -20_000),
        retired("events", other, "3", -10_000),
    ];
    let same = numbering("twitter", "5");
    assert!(records[1].numbering.shares_ids_with(&same) && !records[2].numbering.shares_ids_with(&same));
    let dropped = records[2].id_bound;
    assert_eq!(forget(&mut records, WALL).len(), 3);
    assert_eq!(records.len(), 2, "one bound for each ID space");
    let before = UnixMicros(WALL.0 - 15_000_000);
    let start = |records: &[Record]| {
        let start = plan(records, &[claimant("new", &same)], before).unwrap().starts[0];
        start.map(|start| start.id_bound)
    };
    assert_eq!(start(&records), Some(dropped));
    // A record of this layout says nothing about the other one.
    records.push(record("new", "twitter", "5", -40_000));
    assert_eq!(start(&records), Some(dropped));
}

/// The disk was late, so a start was given up, and another one under the same index failed.
#[test]
fn the_end_of_a_failed_start_lowers_no_record_of_an_earlier_one() {
    let directory = tempfile::tempdir().unwrap();
    let numbering = numbering("twitter", "1");
    let mut store = open(directory.path(), &numbering, Position(100));
    let first = store.records(&[]);
    store.file.fail();
    let path = file::path(directory.path());
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, text).unwrap();
    let second = record("invoices", "twitter", "7", 0);
    let sources = vec![(0, second.clone())];
    assert!(store.begin(Beginning { sources, ..Beginning::default() }, 0).is_err());
    let _ = store.end(&left(&second.numbering, Position(0)), false, 0);
    let kept: Vec<(String, u64)> =
        store.records(&[]).into_iter().map(|record| (record.name, record.id_bound)).collect();
    assert_eq!(kept, [(first[0].name.clone(), first[0].id_bound)]);
}
