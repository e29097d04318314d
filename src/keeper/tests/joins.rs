//! Sources that join those of a running daemon.

use super::*;

#[test]
fn a_source_joins_when_all_writers_have_its_first_ceiling() {
    let mut world = World::new(2);
    let at = later(0, 0);
    world.settle(at);
    let now = world.wall.believe(at);
    let (joins, _, _) = managed(SECOND_US);
    let source = Arc::clone(joins.source());
    world.keeper.join(vec![joins], now).expect("nothing is lost");
    let looked = world.look(at);
    assert!(looked.writes.iter().all(|write| write.is_join && write.ceilings[0].0 == 1), "{looked:?}");
    assert_eq!(world.end(&looked.writes[0], Ok(()), at).expect("under way").joined, 0);
    assert_eq!(source.grant().ceiling(), Position(0), "the other has it not");
    assert_eq!(world.end(&looked.writes[1], Ok(()), at).expect("under way").joined, 1);
    let first = looked.writes[0].ceilings[0].1;
    assert_eq!((source.grant().ceiling(), world.keeper.sources().count()), (first, 2));
    // From then on it is raised and sealed like the others.
    world.settle(later(2 * SECOND_US, 0));
    assert!(source.grant().ceiling() > first);
    assert_eq!(world.keeper.seal().len(), 2);
    assert_eq!(source.cursor(), None);
}

#[test]
fn a_source_whose_first_ceiling_is_not_durable_does_not_join() {
    let mut world = World::new(1);
    let at = later(0, 0);
    world.settle(at);
    let now = world.wall.believe(at);
    let join = |world: &mut World| {
        let (joins, _, _) = managed(0);
        let source = Arc::clone(joins.source());
        world.keeper.join(vec![joins], now).expect("it may");
        (source, only(&world.look(at)))
    };
    let (refused, write) = join(&mut world);
    world.end(&write, failed(), at);
    assert_eq!(refused.grant().ceiling(), Position(0));
    assert_eq!(Arc::strong_count(&refused), 1, "it is not kept");
    assert!(world.look(at).failure.is_none(), "the others' ceilings rise");

    let (late, write) = join(&mut world);
    world.keeper.give_up_joining();
    let (early, _, _) = managed(0);
    assert!(world.keeper.join(vec![early], now).is_err(), "the writer may still be at the one before");
    assert_eq!(world.end(&write, Ok(()), at).expect("under way").joined, 0);
    assert_eq!(late.grant().ceiling(), Position(0));
    let (source, write) = join(&mut world);
    assert_eq!(world.end(&write, Ok(()), at).expect("under way").joined, 1);
    assert!(source.grant().ceiling() > Position(0));
}

#[test]
fn a_jump_while_a_source_joins_takes_its_grant_away_too() {
    let mut world = World::new(1);
    let at = later(0, 0);
    world.settle(at);
    let (joins, _, _) = managed(0);
    let source = Arc::clone(joins.source());
    world.keeper.join(vec![joins], world.wall.believe(at)).expect("nothing is lost");
    let write = only(&world.look(at));
    let jumped = later(0, 5 * SECOND_US);
    world.look(jumped);
    assert_eq!(world.end(&write, Ok(()), jumped).expect("under way").joined, 1);
    assert_eq!(source.grant().ceiling(), Position(0));
    world.settle(jumped);
    assert!(source.grant().ceiling() > Position(0));
}
