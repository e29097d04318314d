use std::num::NonZeroUsize;

use super::*;
use crate::config::{self, Overrides};
use snowbank_core::clock::BootMicros;
use snowbank_core::source::Bound;
use snowbank_id::layout::{Layout, PRESETS, Tick, UnixMicros};

/// A third of a second into a tick of one second.
const NOW: Now =
    Now { wall: UnixMicros(1_800_000_000_333_000), boot: BootMicros(500_000_000), jumped: false };

const FIRST: Reading = Reading { wall: NOW.wall, boot: NOW.boot };

fn source(toml: &str) -> (SourceSettings, Numbering) {
    with_layout(&format!("layout = \"time:32,worker:10,sequence:12;tick=1s\"\n{toml}"))
}

fn with_layout(toml: &str) -> (SourceSettings, Numbering) {
    let file = Some((Path::new("snowbank.toml"), toml));
    let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, NOW.wall);
    let source = settings.unwrap_or_else(|mistakes| panic!("{mistakes}")).sources.remove(0);
    let numbering =
        Numbering::new(source.layout.clone(), source.worker_ids.set.clone()).expect("the worker IDs exist");
    (source, numbering)
}

#[test]
fn a_first_start_begins_in_the_next_tick() {
    let (settings, numbering) = source("");
    let tick = numbering.tick_at(NOW.wall);
    let guarded = guard(&claimant(&settings, &numbering), &[], NOW.wall, NOW.wall);
    assert_eq!(guarded, numbering.id_bound(numbering.first_of(Tick(tick.0 + 1))));
}

fn planned(found: &Found, sources: &[Locked<'_>], fleet: &Joined, read: UnixMicros) -> (Vec<Start>, Begun) {
    let mut begun = Begun::default();
    (found.plan(sources, &[], fleet, NOW, read, &mut begun).unwrap(), begun)
}

/// Another machine may have used these worker IDs in the current tick, also those that this state had
/// before its last run. Records of other worker IDs do not show whether it has.
#[test]
fn worker_ids_that_the_last_run_had_not_start_above_the_current_tick() {
    let (_, known) = source("worker_ids = 2");
    let tick = known.tick_at(NOW.wall);
    let end = Position(known.first_of(tick).0 + 10);
    let of = |name: &str, worker_ids: &str, retired: bool| {
        let (_, numbering) = source(&format!("worker_ids = {worker_ids:?}"));
        let record = Record::new(name, &numbering, end, &Owner::new(), &host_in("this boot"));
        Record { retired, ..record }
    };
    let records = [of("default", "2", false), of("gone", "4", true)];
    for (worker_ids, had) in [("2", true), ("1", false), ("3", false), ("2-3", false), ("4", false)] {
        let (settings, numbering) = source(&format!("worker_ids = {worker_ids:?}"));
        let next = numbering.first_of(Tick(tick.0 + 1));
        let directory = tempfile::tempdir().unwrap();
        let locks = snowbank_state::lock_workers(directory.path(), &numbering).unwrap();
        let sources = [Locked { index: 0, settings: &settings, numbering, locks: &locks }];
        let (starts, _) = planned(&found(records.to_vec()), &sources, &Joined::default(), NOW.wall);
        let first = sources[0].numbering.position_from(starts[0].id_bound);
        assert_eq!(first >= next, !had, "{worker_ids}: {first:?}");
    }
}

/// The clock has gone back by 30 s, and another machine may have had the worker ID until then. One that was
/// never used is the cure for a clock that was wrong.
#[test]
fn a_worker_id_that_was_removed_starts_above_the_latest_time_that_was_believed() {
    let (settings, numbering) = source("worker_ids = 2");
    let end = numbering.first_of(Tick(numbering.tick_at(NOW.wall).0 - 3_600));
    let record = Record::new("default", &numbering, end, &Owner::new(), &host_in("this boot"));
    let wall_minus_boot_us = NOW.wall.0 + 30_000_000 - NOW.boot.0;
    let removed = Record { retired: true, wall_minus_boot_us, ..record };
    let lowered = Record { boot: None, ..removed.clone() };
    let directory = tempfile::tempdir().unwrap();
    let locks = snowbank_state::lock_workers(directory.path(), &numbering).unwrap();
    let sources = [Locked { index: 0, settings: &settings, numbering, locks: &locks }];
    let tick_of_start = |records: Vec<Record>| {
        let (starts, _) = planned(&found(records), &sources, &Joined::default(), NOW.wall);
        let numbering = &sources[0].numbering;
        numbering.tick_of(numbering.position_from(starts[0].id_bound)).0
    };
    let now = sources[0].numbering.tick_at(NOW.wall).0;
    assert_eq!(tick_of_start(vec![removed]), now + 31);
    assert_eq!(tick_of_start(vec![lowered]), now + 1);
}

/// The clock may be right, and another machine may have had the worker ID until then. Or it is wrong, and
/// what is written by it would last.
#[test]
fn only_worker_ids_of_the_last_run_start_beside_a_step_that_is_held() {
    let (settings, numbering) = source("worker_ids = 2");
    let read = UnixMicros(NOW.wall.0 + 1_200_000_000);
    let end = numbering.first_of(Tick(numbering.tick_at(NOW.wall).0 - 3_600));
    let record = Record::new("default", &numbering, end, &Owner::new(), &host_in("this boot"));
    let directory = tempfile::tempdir().unwrap();
    let locks = snowbank_state::lock_workers(directory.path(), &numbering).unwrap();
    let sources = [Locked { index: 0, settings: &settings, numbering, locks: &locks }];
    let started = |records: &[Record], read| {
        let mut begun = Begun::default();
        found(records.to_vec()).plan(&sources, &[], &Joined::default(), NOW, read, &mut begun)
    };
    let retired = Record { retired: true, ..record.clone() };
    let before = Record { boot: Some(String::from("an earlier boot")), ..record.clone() };
    for records in [&[][..], &[retired], &[before]] {
        let waits = started(records, read);
        assert!(waits.is_err_and(|error| error.waits()), "{records:?}");
        assert!(started(records, NOW.wall).is_ok(), "no step is held");
    }
    assert!(started(&[record], read).is_ok(), "the last run used it");
}

/// A daemon with another state used the worker ID after the clock was set right, and this daemon does not
/// follow the step yet.
#[test]
fn a_mark_is_judged_by_the_clock_that_was_read() {
    let (settings, numbering) = source("worker_ids = 2");
    let read = UnixMicros(NOW.wall.0 + 1_200_000_000);
    let granted = numbering.id_bound(numbering.first_of(numbering.tick_at(read)));
    let directory = tempfile::tempdir().unwrap();
    let mut locks = snowbank_state::lock_workers(directory.path(), &numbering).unwrap();
    locks.mark_for(&Owner::new());
    locks.mark_granted(granted).unwrap();
    let record = Record::new("default", &numbering, Position(7), &Owner::new(), &host_in("this boot"));
    let sources = [Locked { index: 0, settings: &settings, numbering, locks: &locks }];
    let found = found(vec![record]);
    let (starts, _) = planned(&found, &sources, &Joined::default(), read);
    assert_eq!(starts[0].id_bound, granted);
    let mut begun = Begun::default();
    let refused = found.plan(&sources, &[], &Joined::default(), NOW, NOW.wall, &mut begun);
    assert!(matches!(refused, Err(StartError::ClockBehind(_))), "{refused:?}");
}

/// A source that waits keeps the record of its last run, which may have been killed.
#[test]
fn only_the_last_run_tells_whether_it_crashed() {
    let of = |worker_ids: &str, end: u64, clean: bool| {
        let (_, numbering) = source(&format!("worker_ids = {worker_ids:?}"));
        let record = Record::new("default", &numbering, Position(end), &Owner::new(), &host_in("this boot"));
        Record { clean, ..record }
    };
    let (earlier, last) = (of("3", 1 << 40, false), of("4", 1 << 41, true));
    assert_eq!(found(vec![earlier.clone(), last.clone()]).follows_a_crash(), Some(false));
    assert_eq!(found(vec![earlier, Record { clean: false, ..last }]).follows_a_crash(), Some(true));
    assert_eq!(found(Vec::new()).follows_a_crash(), None);
}

/// `snowbank state export` moves it, and `snowbank state forget` leaves it.
#[test]
fn the_record_of_a_source_that_waits_is_in_use() {
    let (settings, numbering) = source("worker_ids = 2");
    let of = |name: &str, worker_ids: &str| {
        let (_, numbering) = source(&format!("worker_ids = {worker_ids:?}"));
        Record::new(name, &numbering, Position(7), &Owner::new(), &host_in("this boot"))
    };
    let directory = tempfile::tempdir().unwrap();
    let locks = snowbank_state::lock_workers(directory.path(), &numbering).unwrap();
    let sources = [Locked { index: 0, settings: &settings, numbering, locks: &locks }];
    let found = found(vec![of("waits", "3"), of("gone", "4")]);
    // The coordinator picks its worker IDs, or they are configured.
    for (own, retired) in [(None, false), (Some("3"), false), (Some("3-5"), false), (Some("5"), true)] {
        let own = own.map(|own| source(&format!("worker_ids = {own:?}")).1);
        let fleet = Joined { awaited: vec![(String::from("waits"), own)], ..Joined::default() };
        let kept = planned(&found, &sources, &fleet, NOW.wall).1.beginning.retired;
        let are_retired: Vec<(&str, bool)> = kept.iter().map(|it| (&*it.name, it.retired)).collect();
        assert_eq!(are_retired, [("waits", retired), ("gone", true)]);
    }
}

/// Returns a start without records and marks.
fn unknown(position: Position, numbering: &Numbering) -> Start {
    Start { id_bound: numbering.id_bound(position), is_clean: false }
}

/// Starts a source, claims one ID, and kills the source at once. Returns the first position of the
/// next start, or the reason why no ID was claimed.
fn life(
    source: &SourceSettings,
    numbering: &Numbering,
    start: Position,
    now: Now,
) -> Result<Position, Bound> {
    let rule = rule_of(source, numbering);
    let source = new_source(source, numbering.clone(), unknown(start, numbering), now);
    let mut managed = ManagedSource::new(Arc::new(source), rule, start, now);
    let ceiling = managed.first_ceiling(now);
    managed.grant(ceiling);
    let window = managed.source().window(now);
    let claimed = managed.source().claim(&window, 1, &mut fastrand::Rng::with_seed(1));
    assert_eq!(
        claimed.is_some(),
        managed.source().unavailable_for(now).is_zero(),
        "a claim fails exactly if the source says that the clock is behind"
    );
    claimed.map(|_| ceiling).ok_or(window.bound)
}

/// Tests ticks of many lengths, and several moments within a tick. The source starts three times at
/// the same moment. The first start begins at the next tick, as without a record, or at the current
/// tick. The other two starts each follow a kill.
#[test]
fn the_first_id_after_a_kill_comes_at_once_for_any_tick_length() {
    let preset_ticks = PRESETS.iter().map(|preset| Layout::resolve(preset.name).expect("a layout").tick_ms());
    let longer = [100, 1_500, 2_500, 5_000, 20_000, 60_000, 600_000, 86_400_000];
    for tick_ms in preset_ticks.chain(longer) {
        let layout = format!("time:36,worker:5,sequence:10;tick={tick_ms}ms;epoch=2026-01-01");
        let (source, numbering) = with_layout(&format!("layout = {layout:?}"));
        let tick_us = numbering.tick_ms() as i64 * 1_000;
        let tick = numbering.tick_at(NOW.wall);
        for into_us in [0, 1, tick_us / 3, tick_us / 2, tick_us - 1] {
            let wall = UnixMicros(numbering.start_of(tick).0 + into_us);
            let now = Now { wall, ..NOW };
            let guarded =
                numbering.position_from(guard(&claimant(&source, &numbering), &[], now.wall, now.wall));
            for mut start in [guarded, numbering.first_of(tick)] {
                for lives in 1..=3 {
                    let next = life(&source, &numbering, start, now);
                    start = next.unwrap_or_else(|bound| {
                        panic!("{layout}, {into_us} us into a tick, life {lives}: {bound:?}")
                    });
                }
            }
        }
    }
}

#[test]
fn a_start_beyond_max_ahead_returns_the_time_to_wait() {
    let (source, numbering) = source("max_ahead = \"10s\"");
    // `NOW` is a third of a second after a tick began. With a lead of 10 s, the ID clock can reach
    // the tenth tick after the current one at once, and the eleventh in two thirds of a second.
    let (reached, beyond) =
        [10, 11].map(|ahead| numbering.first_of(Tick(numbering.tick_at(NOW.wall).0 + ahead))).into();
    assert!(life(&source, &numbering, reached, NOW).is_ok());
    let wait = Duration::from_millis(667);
    assert_eq!(life(&source, &numbering, beyond, NOW), Err(Bound::Standing(wait)));
    let standing = new_source(&source, numbering.clone(), unknown(beyond, &numbering), NOW);
    assert_eq!(standing.unavailable_for(NOW), wait);
    assert!(life(&source, &numbering, beyond, NOW.after(wait)).is_ok());
}

fn host_in(boot: &str) -> HostIdentity {
    HostIdentity { boot: Some(boot.to_owned()), ..HostIdentity::default() }
}

/// Returns a state with these records, as a start in this boot would find it.
fn found(records: Vec<Record>) -> Found {
    Found {
        path: None,
        options: String::new(),
        adopt: false,
        records,
        owner: Owner::new(),
        here: host_in("this boot"),
        notes: Vec::new(),
    }
}

#[test]
fn an_offset_of_another_boot_is_not_remembered() {
    let (_, numbering) = source("");
    let record = |boot, ceiling, wall_minus_boot_us| {
        let record = Record::new("default", &numbering, Position(ceiling), &Owner::new(), &host_in(boot));
        Record { wall_minus_boot_us, ..record }
    };
    let known = found(vec![
        record("this boot", 1_000_000, 1),
        record("this boot", 2_000_000, 2),
        record("an earlier boot", 3_000_000, 3),
    ]);
    let remembered = |found: Found| found.remembered([&numbering].into_iter(), FIRST);
    assert_eq!(remembered(known), Remembered::Offset(2), "the offset of the latest ceiling");
    assert_eq!(remembered(found(vec![])), Remembered::Nothing);
}

#[test]
fn the_highest_ceiling_is_remembered_after_a_boot() {
    let (_, numbering) = source("");
    let record =
        |ceiling| Record::new("default", &numbering, ceiling, &Owner::new(), &host_in("an earlier boot"));
    let at = |seconds| numbering.first_of(Tick(seconds));
    let records = vec![record(at(1_000)), record(at(3_000)), record(at(2_000))];
    let granted = Remembered::GrantedUntil(numbering.start_of(Tick(3_000)));
    assert_eq!(found(records).remembered([&numbering].into_iter(), FIRST), granted);
}

#[test]
fn only_worker_ids_used_with_a_fast_clock_keep_its_lead() {
    let (_, used) = source("worker_ids = 1");
    let (_, unused) = source("worker_ids = 2");
    let remembered = |boot, configured: &Numbering, reading| {
        let record = Record::new("default", &used, Position(1_000_000), &Owner::new(), &host_in(boot));
        let record = Record { wall_minus_boot_us: FIRST.offset_us() + 1_000, ..record };
        found(vec![record]).remembered([configured].into_iter(), reading)
    };
    let ahead = Remembered::Offset(FIRST.offset_us() + 1_000);
    assert_eq!(remembered("this boot", &used, FIRST), ahead);
    let first = Remembered::Offset(FIRST.offset_us());
    assert_eq!(remembered("this boot", &unused, FIRST), first);
    assert_eq!(remembered("an earlier boot", &unused, FIRST), Remembered::Nothing);
    let behind = Reading { wall: UnixMicros(NOW.wall.0 + 5_000), ..FIRST };
    assert_eq!(remembered("this boot", &unused, behind), ahead, "a forward step since the last run is held");
}
