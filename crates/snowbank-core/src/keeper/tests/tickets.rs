//! A ticket source under the keeper: reservations instead of a clock.

use super::*;
use crate::source::tests::counter;

/// Returns a keeper of one ticket source at position 0, whose first reservation is granted.
fn world(source: Source) -> World {
    let now = wall().believe(START);
    World::of(vec![ManagedSource::new(Arc::new(source), CEILING_RULE, Position(0), now)], &[Reach::Local])
}

/// The ranges of a shared counter raise its grant, so nothing waits for its ceiling.
#[test]
fn a_shared_counter_never_counts_as_revoked() {
    let mut world = world(counter(0).with_shared_counter());
    world.source.note_restored();
    world.settle(START);
    assert!(!world.keeper.was_revoked);
}

/// At one request a second, the reservation is more than half full for minutes, so no raise is
/// near.
#[test]
fn a_trickle_of_numbers_wakes_the_keeper_once_a_second() {
    let mut world = world(counter(0));
    for second in 1..1_000 {
        assert!(world.claim(START, 1).is_some(), "{second}");
        let looked = world.look(later(second * SECOND_US, 0));
        assert!(looked.next_in >= Duration::from_millis(500), "second {second}: {:?}", looked.next_in);
        for write in looked.writes {
            world.end(&write, Ok(()), later(second * SECOND_US, 0));
        }
        let looked = world.look(later(second * SECOND_US + 1_000, 0));
        assert!(looked.next_in >= Duration::from_millis(400), "second {second}: {:?}", looked.next_in);
    }
}
