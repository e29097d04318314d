use super::*;

const HORIZON: Duration = Duration::from_secs(300);

/// Returns how often an idle source is written to its coordinator in an hour.
fn writes_in_an_hour() -> u64 {
    let (managed, wall, now) = managed(0);
    let covered = far::ceiling(managed.source().numbering(), now.wall, HORIZON);
    let mut managed = managed.under_fleet(Some(covered));
    managed.grant(managed.first_ceiling(now));
    let mut keeper =
        Keeper::new(vec![managed], &[Reach::Local, Reach::Fleet(HORIZON)], Arc::clone(&wall), START);
    let mut writes_to_fleet = 0;
    for second in 0..3_600 {
        let reading = later(second * SECOND_US, 0);
        loop {
            let writes = keeper.look(reading).writes;
            for Write { writer, number, .. } in &writes {
                writes_to_fleet += u64::from(*writer == 1);
                let outcome = Outcome { writer: *writer, number: *number, result: Ok(()) };
                keeper.written(outcome, wall.believe(reading), |_, _| {}).expect("it is in flight");
            }
            if writes.is_empty() {
                break;
            }
        }
    }
    writes_to_fleet
}

/// As docs/fleet.md computes it: 2 x numbers / horizon.
#[test]
fn a_fleet_of_1024_numbers_writes_seven_times_a_second() {
    assert_eq!((1_024 * writes_in_an_hour()).div_ceil(3_600), 7);
}

#[test]
fn a_mark_stays_as_high_as_the_state_though_the_fleet_allows_less() {
    // The clock stepped back by an hour, and the coordinator holds no bound yet.
    let (managed, wall, now) = managed(HOUR_US);
    let mut managed = managed.under_fleet(Some(Position(0)));
    let durable = managed.first_ceiling(now);
    managed.grant(durable);
    let source = Arc::clone(managed.source());
    assert_eq!(source.grant().ceiling(), Position(0), "the fleet's");
    let noted = source.numbering().id_bound(durable);
    let mut keeper =
        Keeper::new(vec![managed], &[Reach::Local, Reach::Fleet(HORIZON)], Arc::clone(&wall), START);
    let mut marks = 0;
    for second in 1..=10 {
        source.grant().want_more();
        let reading = later(second * SECOND_US, 0);
        for Write { writer, number, .. } in keeper.look(reading).writes {
            let outcome = Outcome { writer, number, result: Ok(()) };
            let mark = |_, id_bound| {
                marks += 1;
                assert!(id_bound >= noted, "an older copy of the state would be taken for the newest");
            };
            keeper.written(outcome, wall.believe(reading), mark).expect("it is in flight");
        }
    }
    assert!(marks > 0);
}

/// The coordinator took longer for the answers to a start than the start's ceiling reaches.
#[test]
fn a_start_that_took_longer_than_its_ceiling_hands_out_nothing_before_a_raise() {
    let (managed, wall, now) = managed(0);
    let covered = far::ceiling(managed.source().numbering(), now.wall, HORIZON);
    let mut managed = managed.under_fleet(Some(covered));
    managed.grant(managed.first_ceiling(now));
    let source = Arc::clone(managed.source());
    let mut keeper =
        Keeper::new(vec![managed], &[Reach::Local, Reach::Fleet(HORIZON)], Arc::clone(&wall), START);
    let mut rng = fastrand::Rng::with_seed(1);
    // A raise takes two seconds.
    let mut in_flight = Vec::new();
    let (mut raised, mut began_serving) = (0, None);
    for second in 400..700 {
        let reading = later(second * SECOND_US, 0);
        let now = wall.believe(reading);
        let ended = in_flight.extract_if(.., |(ends_at, _)| *ends_at <= second);
        for (_, Write { writer, number, .. }) in ended.collect::<Vec<_>>() {
            raised += u64::from(writer == 1);
            let outcome = Outcome { writer, number, result: Ok(()) };
            keeper.written(outcome, now, |_, _| {}).expect("it is in flight");
        }
        let is_shut = source.claim(&source.window(now), 1, &mut rng).is_none();
        assert!(is_shut || raised >= 1, "{second}");
        if !is_shut {
            began_serving.get_or_insert(second);
        }
        assert!(is_shut || source.grant().ceiling() > covered);
        source.grant().want_more();
        let begun = keeper.look(reading).writes.into_iter();
        in_flight.extend(begun.map(|write| (second + 2 * i64::from(write.writer == 1), write)));
    }
    assert!(began_serving.is_some_and(|second| second <= 410), "{began_serving:?}");
    // Each raise comes half of the horizon after the one before.
    assert!(raised <= 3, "{raised} raises in five minutes");
}

/// The daemon is paused while its write is in flight. The coordinator did the write long ago, and the next holder may have
/// taken the number since.
#[test]
fn an_answer_that_is_read_late_grants_no_more_than_was_written() {
    let (managed, wall, now) = managed(0);
    let covered = far::ceiling(managed.source().numbering(), now.wall, HORIZON);
    let mut managed = managed.under_fleet(Some(covered));
    managed.grant(managed.first_ceiling(now));
    let source = Arc::clone(managed.source());
    let mut keeper =
        Keeper::new(vec![managed], &[Reach::Local, Reach::Fleet(HORIZON)], Arc::clone(&wall), START);
    let mut look = |ended: Option<&Write>, reading| {
        if let Some(&Write { writer, number, .. }) = ended {
            let outcome = Outcome { writer, number, result: Ok(()) };
            keeper.written(outcome, wall.believe(reading), |_, _| {}).expect("it is in flight");
        }
        // A client asks all the time.
        source.grant().want_more();
        keeper.look(reading).writes
    };
    let asleep = later(200 * SECOND_US, 0);
    let [local, raise] = &look(None, asleep)[..] else { panic!("half of the horizon is used up") };
    let (_, written) = raise.ceilings[0];
    look(Some(local), asleep);
    let woken = later(HOUR_US, 0);
    let writes = look(Some(raise), woken);
    look(Some(writes.iter().find(|write| write.writer == 0).expect("a local raise")), woken);
    let now = wall.believe(woken);
    let mut rng = fastrand::Rng::with_seed(1);
    assert!(source.claim(&source.window(now), 1, &mut rng).is_none(), "above the bound at the coordinator");
    assert!(source.grant().ceiling() <= written);
}
