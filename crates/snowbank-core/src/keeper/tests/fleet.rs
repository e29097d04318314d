use super::*;

const HORIZON: Duration = Duration::from_secs(300);
/// The index of the coordinator among the writers of [`under_fleet`].
const COORDINATOR: usize = 1;

/// Returns a world whose second writer is a fleet's coordinator, which has the ceiling `covered`
/// already.
fn under_fleet(managed: ManagedSource, covered: Position) -> World {
    World::of(vec![managed.under_fleet(Some(covered))], &[Reach::Local, Reach::Fleet(HORIZON)])
}

/// Returns a source that starts at the wall clock, and the ceiling that the coordinator stored when
/// the source started.
fn covered() -> (ManagedSource, Position) {
    let managed = managed(0);
    let covered = far::ceiling(managed.source().numbering(), START.wall, HORIZON);
    (managed, covered)
}

/// Returns how many writes of a poll are for the coordinator.
fn to_coordinator(polled: &Polled) -> usize {
    polled.writes.iter().filter(|write| write.writer == COORDINATOR).count()
}

#[test]
fn marks_reach_the_stored_bound_even_if_the_fleet_grants_less() {
    // The clock stepped back by an hour, and the coordinator holds no bound yet.
    let managed = managed(HOUR_US);
    let durable = managed.first_ceiling(wall().believe(START));
    let mut world = under_fleet(managed, Position(0));
    assert_eq!(world.granted(), Position(0), "the fleet's ceiling is the lower one");
    for second in 1..=10 {
        world.source.grant().want_more();
        let reading = later(second * SECOND_US, 0);
        for write in world.poll(reading).writes {
            world.end(&write, Ok(()), reading).expect("the write is in flight");
        }
    }
    let noted = world.source.numbering().id_bound(durable);
    assert!(!world.marked.is_empty());
    let lower = world.marked.iter().find(|(_, id_bound)| *id_bound < noted);
    assert_eq!(lower, None, "a start would mistake an older copy of the state for the newest");
}

/// The keeper writes to an unreachable coordinator once a period, not with each poll.
#[test]
fn a_failed_write_to_the_coordinator_is_retried_each_period() {
    let (managed, covered) = covered();
    let mut world = under_fleet(managed, covered);
    let half_used_us = 200 * SECOND_US;
    let period_us = PERIOD.as_micros() as i64;
    for (us, raises) in [(0, 1), (1, 0), (period_us - 1, 0), (period_us, 1), (period_us + 1, 0)] {
        let reading = later(half_used_us + us, 0);
        world.source.grant().want_more();
        let polled = world.poll(reading);
        assert_eq!(to_coordinator(&polled), raises, "after {us} us");
        for write in &polled.writes {
            let result = if write.writer == COORDINATOR { failed() } else { Ok(()) };
            world.end(write, result, reading).expect("the write is in flight");
        }
    }
}

#[test]
fn the_coordinator_gets_only_its_sources_ceilings_and_when_due() {
    let half_used = later(200 * SECOND_US, 0);
    let (source, covered) = covered();
    let mut world = under_fleet(source, covered);
    assert_eq!(to_coordinator(&world.poll(START)), 0, "the horizon has just begun");
    let polled = world.poll(half_used);
    assert_eq!((to_coordinator(&polled), &polled.fleet_ceilings[..]), (1, &[covered][..]));
    for write in &polled.writes {
        world.end(write, failed(), half_used).expect("the write is in flight");
    }
    world.keeper.seal();
    let retried = later(210 * SECOND_US, 0);
    assert_eq!(to_coordinator(&world.poll(retried)), 0, "a stop raises nothing");
    let mut own = World::of(vec![managed(0)], &[Reach::Local, Reach::Fleet(HORIZON)]);
    assert_eq!(to_coordinator(&own.poll(half_used)), 0, "the coordinator has no key of the source");
    assert_eq!(World::new().poll(START).fleet_ceilings, []);
}

#[test]
fn failures_of_the_coordinator_and_of_the_disk_are_told_apart() {
    let half_used = later(200 * SECOND_US, 0);
    for is_local in [true, false] {
        let (managed, covered) = covered();
        let mut world = under_fleet(managed, covered);
        world.source.grant().want_more();
        for write in world.poll(half_used).writes {
            let fails = (write.writer != COORDINATOR) == is_local;
            let result = if fails { failed() } else { Ok(()) };
            world.end(&write, result, half_used).expect("the write is in flight");
        }
        let polled = world.poll(half_used);
        assert_eq!((polled.failure.is_some(), polled.fleet_failure.is_some()), (is_local, !is_local));
    }
}

/// The daemon is paused while its write is in flight. When the daemon wakes, the write ended long
/// ago, and another daemon may hold the worker ID.
#[test]
fn a_late_acknowledgement_grants_no_more_than_was_written() {
    let (managed, covered) = covered();
    let mut world = under_fleet(managed, covered);
    let mut poll = |ended: Option<&Write>, reading| {
        if let Some(write) = ended {
            world.end(write, Ok(()), reading).expect("the write is in flight");
        }
        // A client asks all the time.
        world.source.grant().want_more();
        world.poll(reading).writes
    };
    let asleep = later(200 * SECOND_US, 0);
    let [local, raise] = &poll(None, asleep)[..] else { panic!("both writers must write now") };
    let written = raise.ceilings[0].1.ceiling;
    poll(Some(local), asleep);
    let woken = later(HOUR_US, 0);
    let writes = poll(Some(raise), woken);
    poll(Some(writes.iter().find(|write| write.writer == 0).expect("a local raise")), woken);
    assert!(world.claim(woken, 1).is_none(), "claimed above the bound that the coordinator has");
    assert!(world.granted() <= written);
}
