//! Requests that wait: admission, order, bypass, partial replies and lost grants.

use super::*;

#[test]
fn a_request_that_meets_the_ceiling_wakes_the_keeper_and_waits() {
    let source = source_below(TWITTER, RULES, first_at(START.wall));
    let mut rng = rng();
    let id = source.admit(&source.window(START), request(11 * 4_096, START, 100)).expect("available");
    let wakes = [START, after_ms(1)].map(|now| source.advance(now, &mut rng).meets_ceiling);
    assert_eq!(wakes, [true, false], "the keeper is woken once");
    assert!(source.collect(0).is_empty());
    source.grant().raise(source.numbering().end());
    assert_eq!(source.advance(after_ms(2), &mut rng).shards, [0]);
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].id, finished[0].refusal), (1, id, None));
}

#[test]
fn a_request_that_cannot_wait_wakes_the_keeper_too() {
    let ceiling = first_at(UnixMicros(START.wall.0 - SECOND_US));
    let source = source_below(TWITTER, RULES, ceiling);
    source.admit(&source.window(START), request(1, START, 0)).expect("the ceiling may rise at any moment");
    assert!(source.advance(START, &mut rng()).meets_ceiling);
    assert_eq!(source.collect(0)[0].refusal, Some(Refusal::NoCeiling));
    assert!(source.grant().is_wanted(), "the keeper must raise although no request waits");
}

#[test]
fn half_of_the_ticks_are_promised_without_a_burst_window() {
    let source = source(TWITTER, Rules { burst_window: Duration::ZERO, ..RULES });
    let window = source.window(START);
    assert_eq!(source.admit(&window, request(60 * 4_096, START, 100)), Err(Refusal::Exhausted(None)));
    source.admit(&window, request(50 * 4_096, START, 100)).expect("half of 100 ticks");
}

#[test]
fn a_request_whose_wait_has_passed_behind_another_may_come_again() {
    let source = source(TWITTER, Rules { burst_window: Duration::ZERO, ..RULES });
    let asked = request(50 * 4_096, START, 100);
    let now = after_ms(90);
    let window = source.window(now);
    source.claim(&window, source.left(&window), &mut rng()).expect("all there is");
    // With its whole wait it would be admitted, so it is not refused for ever.
    assert!(matches!(source.admit(&window, asked), Err(Refusal::Exhausted(Some(_)))));
    source.admit(&window, request(50 * 4_096, now, 100)).expect("half of 100 ticks");
}

#[test]
fn an_old_reading_is_refused_with_a_time_to_retry() {
    let source = source(TWITTER, RULES);
    let later = after_ms(9);
    let window = source.window(later);
    source.claim(&window, source.left(&window), &mut rng()).expect("all there is");
    let late = source.window(START);
    assert!(matches!(source.admit(&late, request(1, START, 5)), Err(Refusal::Exhausted(Some(_)))));
}

/// Returns the reading `ms` milliseconds after the start, on a wall clock that has stepped forward
/// by less than a jump.
fn stepped(ms: u64) -> Now {
    let now = after_ms(ms);
    Now { wall: UnixMicros(now.wall.0 + 1_900_000), ..now }
}

#[test]
fn a_step_forward_makes_no_waiting_request_urgent() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    for _ in 0..2 {
        source.admit(&source.window(START), request(400 * 4_096, START, 1_000)).expect("available");
    }
    source.advance(stepped(5), &mut rng());
    let sooner = source.admit(&source.window(stepped(6)), request(20, START, 400));
    source.advance(stepped(7), &mut rng());
    let served: Vec<_> = source.collect(0).into_iter().map(|each| (each.id, each.refusal)).collect();
    assert_eq!(served, [(sooner.expect("the IDs are available beside those of the others"), None)]);
    assert!(source.claim(&source.window(stepped(7)), 1, &mut rng()).is_some(), "a small request bypasses it");
}

#[test]
fn old_limits_refuse_no_request_after_a_jump() {
    let stepped = |ms| {
        let now = after_ms(ms);
        Now { wall: UnixMicros(now.wall.0 + 3 * SECOND_US), ..now }
    };
    let source = source(TWITTER, RULES);
    source.admit(&source.window(START), request(20 * 4_096, START, 1_000)).expect("available");
    source.grant().revoke();
    source.grant().raise(source.numbering().end());
    let window = source.window(stepped(5));
    source.claim(&window, 1, &mut rng()).expect("it bypasses the waiting request");
    source.admit(&window, request(20, START, 999)).expect("both requests can be served");
    let mut ended = Vec::new();
    for ms in 5..50 {
        source.advance(stepped(ms), &mut rng());
        ended.extend(source.collect(0).into_iter().map(|each| each.refusal));
    }
    assert_eq!(ended, [None, None]);
}

#[test]
fn a_request_during_a_jump_waits_until_the_keepers_poll() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    // The wall clock went back by an hour. The step counts only after the keeper's poll.
    let hour_back = UnixMicros(START.wall.0 - 3_600 * SECOND_US);
    let jumped = Now { wall: hour_back, jumped: true, ..START };
    source.admit(&source.window(jumped), request(1, jumped, 1_000)).expect("it waits");
    let advanced = source.advance(jumped, &mut rng());
    assert!(advanced.shards.is_empty() && advanced.meets_ceiling, "the keeper is woken");
    let polled = Now { jumped: false, ..START.after(Duration::from_millis(1)) };
    assert_eq!(source.advance(polled, &mut rng()).shards, [0]);
}

/// Refused requests must not count as waiting.
#[test]
fn refused_requests_do_not_stop_the_bypass_of_small_ones() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    source.admit(&window, request(4_096 * 8, START, 10)).expect("there is time enough");
    for _ in 0..100 {
        let refused = source.admit(&window, request(1, START, 0));
        assert!(matches!(refused, Err(Refusal::Exhausted(_))), "{refused:?}");
    }
    assert_eq!(source.wait_queue().admitted_ids(), 4_096 * 8);
    source.advance(after_ms(1), &mut rng());
    source.claim(&source.window(after_ms(1)), 1, &mut rng()).expect("it bypasses the waiting request");
}

#[test]
fn a_sixteenth_of_each_tick_is_left_for_small_requests() {
    for (burst_window_ms, expected) in [(10, 4_096 / 16), (4, 4_096 / 16), (3, 0)] {
        let source = source(TWITTER, Rules { burst_window: Duration::from_millis(burst_window_ms), ..RULES });
        drain(&source, START);
        source.admit(&source.window(START), request(20 * 4_096, START, 100)).expect("there is time enough");
        for ms in 1..=5 {
            let now = after_ms(ms);
            source.advance(now, &mut rng());
            let window = source.window(now);
            let bypasses = std::iter::from_fn(|| source.claim(&window, 1, &mut rng())).count();
            assert_eq!(bypasses, expected, "tick {ms}, a burst window of {burst_window_ms} ms");
        }
    }
}

/// Requests that bypass others can claim positions of a tick before the wake-up that shares out
/// this tick.
#[test]
fn small_requests_that_bypass_break_no_promise() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    // The request wants exactly the IDs of the hundred ticks to come.
    source.admit(&window, request(100 * 4_096, START, 100)).expect("exactly as many as will be available");
    for ms in 1..=100 {
        let now = after_ms(ms);
        let window = source.window(now);
        while source.claim(&window, 1, &mut rng()).is_some() {}
        source.advance(now, &mut rng());
    }
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].refusal), (1, None));
}

#[test]
fn a_step_back_ends_at_once_the_waits_that_it_makes_too_short() {
    let source = source(TWITTER, Rules { on_step_back: OnStepBack::Wait, ..RULES });
    let window = source.window(START);
    source.claim(&window, source.left(&window), &mut rng()).expect("all there is");
    let [short, long] =
        [100, 500].map(|wait_ms| source.admit(&window, request(5 * 4_096, START, wait_ms)).expect("in time"));
    let back = Now { wall: UnixMicros(START.wall.0 - 200_000), ..after_ms(1) };
    source.advance(back, &mut rng());
    let finished = source.collect(0);
    let refusal = Some(Refusal::ClockBehind(Duration::from_millis(200)));
    assert_eq!(finished.iter().map(|it| (it.id, it.refusal)).collect::<Vec<_>>(), [(short, refusal)]);
    let ready = after_ms(250).after(Duration::ZERO);
    source.advance(Now { wall: UnixMicros(START.wall.0 + 50_000), ..ready }, &mut rng());
    assert_eq!(source.collect(0).iter().map(|it| (it.id, it.refusal)).collect::<Vec<_>>(), [(long, None)]);
}
