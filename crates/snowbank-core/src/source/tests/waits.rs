//! Requests that wait: admission, order, passing, partial replies and lost grants.

use super::*;

/// Advances the wait queue at each millisecond until no request waits or time is over. Returns what
/// finished when.
fn run_queue(source: &Source, from_ms: u64, to_ms: u64) -> Vec<(u64, WaitId, u64, Option<Refusal>)> {
    let mut finished = Vec::new();
    let mut rng = rng();
    for ms in from_ms..=to_ms {
        let again = source.advance(after_ms(ms), &mut rng, &());
        for each in source.collect(0) {
            let ids = each.spans.iter().map(|span| span.count).sum();
            finished.push((ms, each.id, ids, each.refusal));
        }
        if again.is_none() {
            break;
        }
    }
    finished
}

#[test]
fn more_than_the_window_holds_comes_in_ticks_and_evenly() {
    let source = source(TWITTER, RULES);
    let now = START;
    let big =
        source.admit(&source.window(now), request(100 * 4_096, now, 1_000)).expect("available in 90 ticks");
    let next = source.admit(&source.window(now), request(4_096, now, 1_000)).expect("available beside it");
    let finished = run_queue(&source, 0, 200);
    // 101 ticks are wanted and 11 are at hand, so an even share is more than the second request
    // wants. The last 256 IDs of each tick are left for others until the next tick.
    assert_eq!(finished, [(0, next, 4_096, None), (91, big, 100 * 4_096, None)]);
    assert_eq!(source.wait_queue().admitted_ids(), 0);
}

#[test]
fn what_cannot_be_had_by_the_deadline_is_refused_at_once() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    assert_eq!(
        source.admit(&window, request(112 * 4_096, START, 100)),
        Err(Refusal::Exhausted(None)),
        "never at this size: 11 ticks at hand and 100 to come"
    );
    source.admit(&window, request(61 * 4_096, START, 100)).expect("50 ticks to wait");
    let Err(Refusal::Exhausted(Some(retry_after))) = source.admit(&window, request(61 * 4_096, START, 100))
    else {
        panic!("50 of the 61 ticks are left");
    };
    // 11 ticks short, and the sixteenth that large requests leave to others.
    assert!((17..=18).contains(&retry_after.as_millis()), "{retry_after:?}");
    assert_eq!(source.wait_queue().admitted_ids(), 61 * 4_096);
    // After that time it is admitted.
    let later = START.after(retry_after);
    run_queue(&source, 0, u64::try_from(retry_after.as_millis()).expect("a few"));
    source.admit(&source.window(later), request(61 * 4_096, later, 100)).expect("retry_after says when");
}

#[test]
fn small_requests_that_wait_are_served_first_in_their_order() {
    let source = source(SCARCE, RULES);
    let mut rng = rng();
    let window = source.window(START);
    source.claim(&window, 110, &mut rng).expect("the whole window");
    let large = source.admit(&window, request(100, START, 1_000)).expect("available");
    let small: Vec<WaitId> =
        (0..5).map(|_| source.admit(&window, request(1, START, 1_000)).expect("available")).collect();
    let finished = run_queue(&source, 1, 100);
    let order: Vec<WaitId> = finished.iter().map(|each| each.1).collect();
    assert_eq!(order, [small, vec![large]].concat());
    assert!(finished[4].0 == 1, "all five in the first tick: {finished:?}");
}

#[test]
fn a_partial_request_takes_what_there_is_when_its_wait_ends() {
    let source = source(SCARCE, RULES);
    let window = source.window(START);
    let partial = WaitRequest { partial: true, ..request(1_000, START, 20) };
    let id = source.admit(&window, partial).expect("some are welcome");
    let finished = run_queue(&source, 0, 20);
    assert_eq!(
        finished,
        [(20, id, 110 + 200 - 1, None)],
        "the window's 11 ticks and 20 more, less one for others"
    );
    let now = after_ms(20);
    drain(&source, now);
    let none = WaitRequest { partial: true, ..request(50, now, 0) };
    assert!(
        matches!(source.admit(&source.window(now), none), Err(Refusal::Exhausted(Some(_)))),
        "nothing is there, and it does not wait"
    );
}

#[test]
fn a_request_that_meets_the_ceiling_asks_for_more_and_waits() {
    let source = source_below(TWITTER, RULES, first_at(START.wall));
    let heard = Heard::default();
    let mut rng = rng();
    let id = source.admit(&source.window(START), request(11 * 4_096, START, 100)).expect("available");
    source.advance(START, &mut rng, &heard);
    source.advance(after_ms(1), &mut rng, &heard);
    assert_eq!(*heard.ceilings.borrow(), 1, "the keeper is nudged once");
    assert!(source.collect(0).is_empty());
    source.grant().raise(source.numbering().end());
    source.advance(after_ms(2), &mut rng, &heard);
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].id, finished[0].refusal), (1, id, None));
    assert_eq!(*heard.shards.borrow(), [0]);
}

#[test]
fn a_request_that_does_not_wait_nudges_the_keeper_too() {
    let ceiling = first_at(UnixMicros(START.wall.0 - SECOND_US));
    let source = source_below(TWITTER, RULES, ceiling);
    let heard = Heard::default();
    source.admit(&source.window(START), request(1, START, 0)).expect("the ceiling may rise at any moment");
    source.advance(START, &mut rng(), &heard);
    assert_eq!(source.collect(0)[0].refusal, Some(Refusal::NoCeiling));
    assert_eq!(*heard.ceilings.borrow(), 1);
    assert!(source.grant().is_wanted(), "for the keeper to see, though nobody waits any more");
}

#[test]
fn a_partial_request_that_cannot_be_had_in_full_holds_nobody_up() {
    let source = source(SCARCE, RULES);
    let mut rng = rng();
    let hog = WaitRequest { partial: true, ..request(1_000_000, START, 1_000) };
    let hog = source.admit(&source.window(START), hog).expect("some are welcome");
    let exact =
        source.admit(&source.window(START), request(4_000, START, 1_000)).expect("less than half of all");
    let mut singles = 0;
    for ms in 0..1_000 {
        source.advance(after_ms(ms), &mut rng, &());
        let window = source.window(after_ms(ms));
        singles += u64::from(source.claim(&window, 1, &mut rng).is_some());
    }
    assert!(singles > 900, "{singles} single IDs in 1,000 ticks");
    source.advance(after_ms(1_000), &mut rng, &());
    let finished = source.collect(0);
    let ended: Vec<_> = finished.iter().map(|each| (each.id, each.refusal)).collect();
    assert_eq!(ended, [(exact, None), (hog, None)]);
}

/// A request that is promised nothing more does not keep the rest of a long tick from single IDs
/// until its deadline.
#[test]
fn a_partial_request_leaves_single_ids_of_a_long_tick() {
    let rules = Rules { burst_window: Duration::from_secs(2), ..RULES };
    let source = source("time:31,worker:10,sequence:10;tick=1s;epoch=2020-01-01", rules);
    let partial = WaitRequest { partial: true, ..request(1_000_000, START, 500) };
    source.admit(&source.window(START), partial).expect("some are welcome");
    source.advance(START, &mut rng(), &());
    assert!(source.claim(&source.window(after_ms(1)), 1, &mut rng()).is_some(), "a sixteenth is left");
}

#[test]
fn what_waits_keeps_nothing_of_a_lost_grant() {
    let source = source(TWITTER, RULES);
    let mut rng = rng();
    let heard = Heard::default();
    source.admit(&source.window(START), request(20 * 4_096, START, 1_000)).expect("available");
    source.advance(START, &mut rng, &heard);
    let used = source.cursor().expect("not sealed");
    source.grant().revoke();
    source.advance(after_ms(1), &mut rng, &heard);
    source.grant().raise(source.numbering().end());
    for ms in 2..30 {
        source.advance(after_ms(ms), &mut rng, &heard);
    }
    let finished = source.collect(0);
    assert_eq!(finished[0].refusal, None);
    assert!(finished[0].spans.iter().all(|span| span.from >= used), "all is claimed again");
    assert_eq!(finished[0].spans.iter().map(|span| span.count).sum::<u64>(), 20 * 4_096);
    assert_eq!(source.wait_queue().admitted_ids(), 0);
}

#[test]
fn without_a_burst_window_half_the_ticks_are_promised() {
    let source = source(TWITTER, Rules { burst_window: Duration::ZERO, ..RULES });
    let window = source.window(START);
    assert_eq!(source.admit(&window, request(60 * 4_096, START, 100)), Err(Refusal::Exhausted(None)));
    source.admit(&window, request(50 * 4_096, START, 100)).expect("half of 100 ticks");
}

#[test]
fn a_late_reading_is_told_when_not_never() {
    let source = source(TWITTER, RULES);
    let later = after_ms(9);
    let window = source.window(later);
    source.claim(&window, source.left(&window), &mut rng()).expect("all there is");
    let late = source.window(START);
    assert!(matches!(source.admit(&late, request(1, START, 5)), Err(Refusal::Exhausted(Some(_)))));
}

#[test]
fn after_a_jump_no_earlier_limit_refuses_a_request() {
    let stepped = |ms| {
        let now = after_ms(ms);
        Now { wall: UnixMicros(now.wall.0 + 3 * SECOND_US), ..now }
    };
    let source = source(TWITTER, RULES);
    source.admit(&source.window(START), request(20 * 4_096, START, 1_000)).expect("available");
    source.grant().revoke();
    source.grant().raise(source.numbering().end());
    let window = source.window(stepped(5));
    source.claim(&window, 1, &mut rng()).expect("it passes the one that waits");
    source.admit(&window, request(20, START, 999)).expect("available, as well as the other one");
    let mut ended = Vec::new();
    for ms in 5..50 {
        source.advance(stepped(ms), &mut rng(), &());
        ended.extend(source.collect(0).into_iter().map(|each| each.refusal));
    }
    assert_eq!(ended, [None, None]);
}

/// The reading `ms` after the start, on a wall clock that has stepped forward by less than a jump.
fn stepped(ms: u64) -> Now {
    let now = after_ms(ms);
    Now { wall: UnixMicros(now.wall.0 + 1_900_000), ..now }
}

#[test]
fn after_a_step_forward_requests_that_have_time_are_not_due() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    for _ in 0..2 {
        source.admit(&source.window(START), request(400 * 4_096, START, 1_000)).expect("available");
    }
    source.advance(stepped(5), &mut rng(), &());
    let sooner = source.admit(&source.window(stepped(6)), request(20, START, 400));
    source.advance(stepped(7), &mut rng(), &());
    let served: Vec<_> = source.collect(0).into_iter().map(|each| (each.id, each.refusal)).collect();
    assert_eq!(served, [(sooner.expect("it is available beside the others"), None)]);
    assert!(source.claim(&source.window(stepped(7)), 1, &mut rng()).is_some(), "something is left to others");
}

#[test]
fn what_was_claimed_for_a_request_that_gave_up_goes_to_nobody() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.admit(&window, request(20 * 4_096, START, 1_000)).expect("available");
    let second = source.admit(&window, request(15 * 4_096, START, 1_000)).expect("available beside it");
    source.advance(START, &mut rng(), &());
    let used = source.cursor().expect("not sealed");
    let claimed = used.0 - window.floor.0;
    source.cancel(first);
    for ms in 1..30 {
        source.advance(after_ms(ms), &mut rng(), &());
    }
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].id), (1, second));
    let spans = &finished[0].spans;
    assert_eq!(spans.iter().map(|span| span.count).sum::<u64>(), 15 * 4_096);
    let below_used = |span: &Span| span.end().min(used).0.saturating_sub(span.from.0);
    let before: u64 = spans.iter().map(below_used).sum();
    assert_eq!(before, claimed / 2, "the other half was claimed for the first: {spans:?}");
}

#[test]
fn who_asks_while_the_clocks_have_jumped_waits_for_the_keeper() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    // An hour back: this counts only after the keeper has looked.
    let hour_back = UnixMicros(START.wall.0 - 3_600 * SECOND_US);
    let jumped = Now { wall: hour_back, jumped: true, ..START };
    source.admit(&source.window(jumped), request(1, jumped, 1_000)).expect("it waits");
    let heard = Heard::default();
    source.advance(jumped, &mut rng(), &heard);
    assert_eq!((heard.shards.borrow().len(), *heard.ceilings.borrow()), (0, 1), "the keeper is called");
    let looked = Now { jumped: false, ..START.after(Duration::from_millis(1)) };
    source.advance(looked, &mut rng(), &heard);
    assert_eq!(*heard.shards.borrow(), [0]);
}

#[test]
fn a_refusal_stays_what_it_is_when_the_grant_is_lost_meanwhile() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    for _ in 0..2 {
        source.admit(&source.window(START), request(1, START, 1_000)).expect("available with the next tick");
    }
    source.grant().revoke();
    source.grant().raise(source.numbering().end());
    let hour_back = UnixMicros(START.wall.0 - 3_600 * SECOND_US);
    source.advance(Now { wall: hour_back, ..after_ms(1_000) }, &mut rng(), &());
    let refusals: Vec<_> = source.collect(0).into_iter().map(|finished| finished.refusal).collect();
    assert_eq!(refusals.len(), 2);
    assert!(refusals.iter().all(|refusal| matches!(refusal, Some(Refusal::ClockBehind(_)))), "{refusals:?}");
}
