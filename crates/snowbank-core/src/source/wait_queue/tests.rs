use super::*;
use crate::source::tests::{RULES, START, TWITTER, drain, rng, source};

fn after_ms(ms: u64) -> Now {
    START.after(Duration::from_millis(ms))
}

fn request(count: u64, now: Now, wait_ms: u64, partial: bool) -> WaitRequest {
    WaitRequest { count, due: now.boot.after(Duration::from_millis(wait_ms)), partial, shard: 0 }
}

/// Refused requests must not keep others from passing those that wait.
#[test]
fn requests_that_are_refused_keep_nobody_from_passing() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    source.admit(&window, request(4_096 * 8, START, 10, false)).expect("there is time enough");
    for _ in 0..100 {
        let refused = source.admit(&window, request(1, START, 0, false));
        assert!(matches!(refused, Err(Refusal::Exhausted(_))), "{refused:?}");
    }
    assert_eq!(source.wait_queue.admitted_ids(), 4_096 * 8);
    source.advance(after_ms(1), &mut rng());
    source.claim(&source.window(after_ms(1)), 1, &mut rng()).expect("it passes");
}

/// Passing requests can reach a tick before the wake-up that shares it out.
#[test]
fn passing_before_a_ticks_wake_up_breaks_no_promise() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let window = source.window(START);
    // The request wants exactly the hundred ticks to come.
    source.admit(&window, request(100 * 4_096, START, 100, false)).expect("just available");
    for ms in 1..=100 {
        let now = after_ms(ms);
        let window = source.window(now);
        while source.claim(&window, 1, &mut rng()).is_some() {}
        source.advance(now, &mut rng());
    }
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].refusal), (1, None));
}
