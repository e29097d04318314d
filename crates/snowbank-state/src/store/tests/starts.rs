//! The plan of a start: which stored bounds bind which source.

use super::*;
use snowbank_id::numbering::TicketCounter;

#[test]
fn a_start_lies_at_the_highest_bound_of_its_name_and_its_ids() {
    let wanted = numbering("twitter", "1,2");
    let records = [
        record("orders", "twitter", "7", 1_000),
        record("other", "twitter", "2-4", 2_000),
        record("unrelated", "twitter", "9", 9_000),
    ];
    let plan = plan(&records, &[claimant("orders", &wanted)], WALL).unwrap();
    assert_eq!(plan.starts[0].map(|start| start.id_bound), Some(records[1].id_bound));
    assert_eq!(plan.retired, records, "a later source may have these worker IDs again");
}

#[test]
fn above_a_bound_between_two_ids_a_start_is_at_the_higher_id() {
    let stored = numbering("twitter", "2");
    let wanted = numbering("twitter", "1");
    // In each tick, the first ID of worker 2 lies above all IDs of worker 1.
    let bound = stored.id_bound(at(&stored, 0));
    let start = wanted.position_from(bound);
    assert_eq!(start, at(&wanted, 1));
    assert!(wanted.id_at(start) >= bound && wanted.id_at(Position(start.0 - 1)) < bound);
}

#[test]
fn a_record_of_no_source_binds_sources_without_a_record() {
    let known = numbering("twitter", "1");
    let fresh = numbering("twitter", "5");
    let records = [record("known", "twitter", "1", 1_000), record("gone", "twitter", "3", 2_000)];
    let both = [claimant("known", &known), claimant("fresh", &fresh)];
    let starts = plan(&records, &both, WALL).unwrap().starts;
    let bounds: Vec<u64> = starts.into_iter().flatten().map(|start| start.id_bound).collect();
    assert_eq!(bounds, [records[0].id_bound, records[1].id_bound]);
    assert_eq!(
        plan(&records[..1], &both, WALL).unwrap().starts[1],
        None,
        "no record binds a new source beside a known one"
    );
    let released = Record { released: true, ..records[1].clone() };
    assert_eq!(plan(&[records[0].clone(), released], &both, WALL).unwrap().starts[1], None);
}

#[test]
fn released_worker_ids_are_refused() {
    let wanted = numbering("twitter", "1-3");
    let records = [Record { released: true, ..record("orders", "twitter", "2", 0) }];
    let refused = plan(&records, &[claimant("new", &wanted)], WALL).unwrap_err();
    assert_eq!(refused.cause(), Cause::Released, "{refused}");
    let others = numbering("twitter", "3");
    assert!(plan(&records, &[claimant("orders", &others)], WALL).is_ok());
    let some_of_them = [Record { released: true, ..record("orders", "twitter", "3-4", 0) }];
    let refused = plan(&some_of_them, &[claimant("new", &wanted)], WALL).unwrap_err();
    assert_eq!(refused.cause(), Cause::Released, "{refused}");
}

#[test]
fn a_record_stays_unless_a_new_one_has_all_its_worker_ids() {
    let wanted = numbering("twitter", "1-3");
    let [part, more] = [record("orders", "twitter", "2", 0), record("orders", "twitter", "3-4", 0)];
    let planned = plan(&[part, more.clone()], &[claimant("orders", &wanted)], WALL).unwrap();
    assert_eq!(planned.retired, [more]);
}

#[test]
fn a_far_bound_is_refused_only_if_the_id_space_changed() {
    let same = numbering("time:41,machine:10,sequence:12;epoch=1288834974657", "1");
    let records = [record("orders", "twitter", "1", 3_600_000)];
    let plan_of = |numbering: &Numbering| plan(&records, &[claimant("orders", numbering)], WALL);
    assert_eq!(position(plan_of(&same).unwrap().starts[0], &same), Some(at(&same, 3_600_000)));
    // With an epoch ten seconds later, IDs reach the bound ten seconds later. But max_ahead lets
    // the source start ten seconds before that.
    for (epoch, expected) in
        [(1288834974657_i64 + 10_000, Err(3_600_000)), (1288834974657 - 3_600_000, Ok(0))]
    {
        let other = numbering(&format!("time:41,datacenter:5,worker:5,sequence:12;epoch={epoch}"), "1");
        match (plan_of(&other), expected) {
            (Ok(plan), Ok(ms)) => assert_eq!(position(plan.starts[0], &other), Some(at(&other, ms))),
            (Err(refused), Err(ms)) => {
                let when = UnixMicros(WALL.0 + ms * 1_000).rfc3339(3);
                assert!(refused.to_string().contains(&format!("it gets there at {when}")), "{refused}");
                assert_eq!(
                    refused.cause(),
                    Cause::ClockBehind,
                    "the clock is an hour before what was granted"
                );
            }
            (found, expected) => panic!("{epoch}: {found:?}, expected {expected:?}"),
        }
    }
    let small = numbering("js53", "1");
    let refused = plan_of(&small).unwrap_err();
    assert!(refused.to_string().contains("all its IDs lie below that"), "{refused}");
    assert_eq!(refused.cause(), Cause::Setting);
}

#[test]
fn only_other_worker_ids_start_at_the_id_clock_after_a_crash() {
    let used = numbering("twitter", "1");
    let unused = numbering("twitter", "2");
    let both = numbering("twitter", "1-2");
    let crashed = |granted_ms, reached_us| {
        let boot = Some(String::from("this boot"));
        let id_minus_boot_us = Some(WALL.0 + reached_us);
        Record { boot, id_minus_boot_us, ..record("orders", "twitter", "1", granted_ms) }
    };
    let start = |record: &Record, numbering, boot, in_fleet| {
        let at = Moment { wall: WALL, boot: Some((boot, BootMicros(0))) };
        let claimant = Claimant { in_fleet, ..claimant("orders", numbering) };
        let plan = plan(std::slice::from_ref(record), &[claimant], at).unwrap();
        position(plan.starts[0], numbering).unwrap()
    };
    let record = crashed(3_000, 100_500);
    assert_eq!(
        start(&record, &unused, "this boot", false),
        at(&unused, 101),
        "the tick after that of the ID clock"
    );
    assert_eq!(
        start(&crashed(50, 100_500), &unused, "this boot", false),
        at(&unused, 50),
        "nothing was granted above that"
    );
    for its_own in [&used, &both] {
        assert!(
            start(&record, its_own, "this boot", true) >= at(its_own, 3_000),
            "all granted IDs may have been used"
        );
    }
    assert_eq!(
        start(&record, &unused, "another", false),
        at(&unused, 3_000),
        "the boot clock of that boot means nothing here"
    );
    let was_assigned = Record { assigned_bound: Some(0), ..record };
    assert_eq!(start(&was_assigned, &unused, "this boot", true), at(&unused, 101));
    assert_eq!(
        start(&was_assigned, &unused, "this boot", false),
        at(&unused, 3_000),
        "records of other assigned worker IDs may be gone"
    );
}

#[test]
fn a_counter_without_a_record_starts_only_with_a_coordinator() {
    let counter = Numbering::from(TicketCounter::new("orders", 1, 1).unwrap());
    let planned = |in_fleet| plan(&[], &[Claimant { in_fleet, ..claimant("orders", &counter) }], WALL);
    assert_eq!(planned(false).unwrap_err().cause(), Cause::Setting);
    assert_eq!(planned(true).unwrap().starts, [Some(Start::default())]);
}

/// The source of the record waits for its worker ID.
#[test]
fn a_record_of_a_configured_source_binds_no_other_layout() {
    let records = [record("orders", "twitter", "5", -1_000)];
    let new = numbering("discord", "6");
    let claimants = [claimant("invoices", &new)];
    let gone = plan(&records, &claimants, WALL);
    assert!(gone.is_err(), "the source may be this one, under a new name: {gone:?}");
    let waits = plan_beside(&records, &claimants, &["orders"], WALL).unwrap();
    assert_eq!(waits.starts, [None]);
}
