use std::cell::RefCell;

use proptest::prelude::*;

use super::wait_queue::{Refusal, Signals, WaitId, WaitRequest};
use super::*;
use crate::clock::BootMicros;
use snowbank_client::layout::Tick;
use snowbank_client::layout::{Layout, WorkerSet};

const SECOND_US: i64 = 1_000_000;
/// 2027-01-15, a start of a millisecond.
pub(super) const START: Now =
    Now { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US), jumped: false };
/// A minute before: a source that starts then has its whole reserve at `START`.
pub(super) const BEFORE: Now = Now {
    wall: UnixMicros(START.wall.0 - 60 * SECOND_US),
    boot: BootMicros(START.boot.0 - 60 * SECOND_US),
    jumped: false,
};
pub(super) const TWITTER: &str = "twitter";
/// Ten IDs in a millisecond.
const SCARCE: &str = "time:41,worker:5,sequence:=10";
pub(super) const RULES: Rules = Rules {
    burst_window: Duration::from_millis(10),
    max_ahead: Duration::from_secs(10),
    on_step_back: OnStepBack::Ride,
    sequence_start: SequenceStart::Zero,
};

pub(super) fn numbering(layout: &str) -> Numbering {
    let layout = Layout::resolve(layout).expect("a layout");
    Numbering::new(layout, WorkerSet::single(0)).expect("worker 0 exists")
}

/// A source that has been idle for long, without a ceiling in the way.
pub(super) fn source(layout: &str, rules: Rules) -> Source {
    let numbering = numbering(layout);
    let grant = Grant::new(numbering.end());
    Source::new(String::from("test"), numbering, rules, grant, Position(0), BEFORE)
}

pub(super) fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}

fn after_ms(ms: u64) -> Now {
    START.after(Duration::from_millis(ms))
}

#[derive(Default)]
pub(super) struct Heard {
    shards: RefCell<Vec<usize>>,
    ceilings: RefCell<usize>,
}

impl Signals for Heard {
    fn finished(&self, shard: usize) {
        self.shards.borrow_mut().push(shard);
    }

    fn ceiling_reached(&self) {
        *self.ceilings.borrow_mut() += 1;
    }
}

fn request(count: u64, now: Now, wait_ms: u64) -> WaitRequest {
    WaitRequest { count, due: now.boot.after(Duration::from_millis(wait_ms)), partial: false, shard: 0 }
}

#[test]
fn a_window_reaches_from_the_burst_window_to_the_end_of_the_tick() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let tick = source.numbering().tick_at(START.wall);
    assert_eq!(window.floor, source.numbering().first_of(Tick(tick.0 - 10)));
    assert_eq!(window.limit, source.numbering().first_of(Tick(tick.0 + 1)));
    assert_eq!(window.bound, Bound::Clock);
    assert_eq!(source.left(&window), 11 * 4_096);
}

#[test]
fn a_whole_window_can_be_claimed_and_no_more_until_the_next_tick() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.claim(&window, 11 * 4_096, &mut rng()).expect("the whole window");
    assert_eq!(first, window.floor);
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(source.next_tick_in(&window), Duration::from_millis(1));
    let window = source.window(after_ms(1));
    assert_eq!(source.claim(&window, 4_096, &mut rng()), Some(Position(first.0 + 11 * 4_096)));
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
}

#[test]
fn after_idling_the_sequence_starts_spread_over_the_lowest_quarter() {
    let source = source(TWITTER, Rules { sequence_start: SequenceStart::Spread, ..RULES });
    let mut rng = rng();
    let mut highest = 0;
    for ms in 0..2_000 {
        let window = source.window(after_ms(ms));
        let position = source.claim(&window, 1, &mut rng).expect("there is room");
        let index = position.0 - window.floor.0;
        assert!(index < 1_024, "index {index}");
        highest = highest.max(index);
    }
    assert!(highest > 900, "the whole quarter is used, not only up to {highest}");
    // Under load one tick flows into the next at 0.
    let window = source.window(after_ms(2_001));
    let first = source.claim(&window, 1, &mut rng).expect("there is room");
    assert_eq!(source.claim(&window, 4_096, &mut rng), Some(Position(first.0 + 1)));
}

#[test]
fn a_spread_start_never_costs_a_claim() {
    let source = source(TWITTER, Rules { sequence_start: SequenceStart::Spread, ..RULES });
    let window = source.window(START);
    assert_eq!(source.claim(&window, 11 * 4_096, &mut rng()), Some(window.floor));
}

#[test]
fn small_ticks_are_spread_whole() {
    let source = source(SCARCE, Rules { sequence_start: SequenceStart::Spread, ..RULES });
    let mut rng = rng();
    let mut seen = [false; 10];
    for ms in 0..1_000 {
        let window = source.window(after_ms(ms * 20));
        let position = source.claim(&window, 1, &mut rng).expect("there is room");
        seen[(position.0 - window.floor.0) as usize] = true;
    }
    assert_eq!(seen, [true; 10]);
}

#[test]
fn nothing_is_claimed_at_or_above_the_ceiling() {
    let source = source(TWITTER, RULES);
    let numbering = numbering(TWITTER);
    let ceiling = Position(source.window(START).floor.0 + 5);
    let source =
        Source::new(String::from("test"), numbering, RULES, Grant::new(ceiling), Position(0), BEFORE);
    let window = source.window(START);
    assert_eq!((window.limit, window.bound), (ceiling, Bound::Ceiling));
    assert_eq!(source.claim(&window, 6, &mut rng()), None);
    assert_eq!(source.claim(&window, 5, &mut rng()), Some(window.floor));
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    source.grant().raise(Position(ceiling.0 + 1));
    let window = source.window(START);
    assert_eq!(source.claim(&window, 1, &mut rng()), Some(ceiling));
}

#[test]
fn a_start_ahead_of_the_wall_clock_rides_from_its_first_position() {
    // After a crash also where a step back is waited for.
    for on_step_back in [OnStepBack::Ride, OnStepBack::Wait] {
        let numbering = numbering(TWITTER);
        let ahead = numbering.first_of(numbering.tick_at(START.after(Duration::from_secs(3)).wall));
        let grant = Grant::new(numbering.end());
        let rules = Rules { on_step_back, ..RULES };
        let source = Source::new(String::from("test"), numbering, rules, grant, ahead, START);
        let window = source.window(START);
        assert_eq!(source.claim(&window, 4_096, &mut rng()), Some(ahead), "the first tick is there at once");
        assert_eq!(source.claim(&window, 1, &mut rng()), None);
        assert_eq!(source.next_tick_in(&window), Duration::from_millis(2), "half speed");
        let window = source.window(after_ms(2));
        assert_eq!(source.claim(&window, 4_096, &mut rng()), Some(Position(ahead.0 + 4_096)));
    }
}

#[test]
fn starts_that_find_nothing_stored_share_no_tick_with_those_before_them() {
    const SECONDS: &str = "time:32,worker:10,sequence:12;tick=1s";
    for guard_ticks in [1, 3] {
        let mut seen = std::collections::HashSet::new();
        // A crash loop: each life lasts 400 ms, and waits for its first ID as long as it can.
        for life in 0..20_u64 {
            let now = after_ms(life * 400);
            let numbering = numbering(SECONDS);
            let start = numbering.first_of(Tick(numbering.tick_at(now.wall).0 + guard_ticks));
            let grant = Grant::new(numbering.end());
            let source = Source::new(String::from("test"), numbering, RULES, grant, start, now);
            let source = source.begins_with_the_clock();
            for later in (0..400).step_by(20) {
                let now = after_ms(life * 400 + later);
                source.advance(now, &mut rng(), &Heard::default());
                if let Some(position) = source.claim(&source.window(now), 1, &mut rng()) {
                    assert!(seen.insert(position), "life {life}: {position:?} again");
                    assert!(source.numbering().start_of(source.numbering().tick_of(position)) <= now.wall);
                }
            }
        }
        assert!(guard_ticks > 1 || !seen.is_empty(), "some lives see the next tick begin");
    }
}

#[test]
fn a_step_back_is_ridden_and_beyond_max_ahead_refused() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.claim(&window, 11 * 4_096, &mut rng()).expect("there is room");
    let back = |us: i64, after_ms: u64| {
        let now = START.after(Duration::from_millis(after_ms));
        Now { wall: UnixMicros(now.wall.0 - us), ..now }
    };
    let window = source.window(back(5 * SECOND_US, 2));
    assert_eq!(window.bound, Bound::Clock);
    assert_eq!(source.claim(&window, 1, &mut rng()), None, "the catch-up starts at the tick used last");
    let window = source.window(back(5 * SECOND_US, 4));
    assert_eq!(source.claim(&window, 4_096, &mut rng()), Some(Position(first.0 + 11 * 4_096)));

    let window = source.window(back(15 * SECOND_US, 4));
    let Bound::Standing(ready_in) = window.bound else {
        panic!("{window:?}");
    };
    assert_eq!(ready_in, Duration::from_secs(5) - Duration::from_millis(3));
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(
        source.admit(&window, request(1, back(15 * SECOND_US, 4), 10_000)),
        Err(Refusal::ClockBehind(ready_in))
    );
}

#[test]
fn on_step_back_wait_refuses_at_once() {
    let source = source(TWITTER, Rules { on_step_back: OnStepBack::Wait, ..RULES });
    let window = source.window(START);
    source.claim(&window, 11 * 4_096, &mut rng()).expect("there is room");
    let back = Now { wall: UnixMicros(START.wall.0 - 5_000), ..after_ms(1) };
    assert_eq!(source.window(back).bound, Bound::Standing(Duration::from_millis(5)));
    // A clock that is behind by no more than readings differ is waited for.
    let skewed = Now { wall: UnixMicros(START.wall.0 - 500), ..START };
    assert_eq!(source.window(skewed).bound, Bound::Clock);
    assert_eq!(source.left(&source.window(skewed)), 0);
}

#[test]
fn a_thread_that_was_held_up_after_reading_the_clock_does_not_set_it_back() {
    for on_step_back in [OnStepBack::Ride, OnStepBack::Wait] {
        let source = source(TWITTER, Rules { on_step_back, ..RULES });
        let an_hour_later = START.after(Duration::from_secs(3_600));
        source.claim(&source.window(an_hour_later), 1, &mut rng()).expect("there is room");
        let held_up = source.window(START);
        assert_eq!((held_up.bound, source.left(&held_up)), (Bound::Clock, 0));
        assert_eq!(source.id_time(an_hour_later), an_hour_later.wall, "no catch-up");
        assert_eq!(source.window(an_hour_later).bound, Bound::Clock);
    }
}

#[test]
fn a_sealed_source_claims_nothing_and_says_where_it_stood() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.claim(&window, 7, &mut rng()).expect("there is room");
    assert_eq!(source.seal(), Some(Position(first.0 + 7)));
    assert_eq!(source.seal(), None);
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(source.window(after_ms(5)).bound, Bound::Sealed);
    assert_eq!(source.cursor(), None);
    assert_eq!(source.admit(&source.window(START), request(1, START, 10)), Err(Refusal::Sealed));
}

#[test]
fn the_end_of_a_layouts_life_is_refused_never_wrapped() {
    let source = source("time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=0", RULES);
    let end = Now { wall: UnixMicros((1 << 41) * 1_000), ..START };
    let window = source.window(end);
    assert_eq!(window.bound, Bound::Ended);
    assert_eq!(source.left(&window), 10 * 4_096, "what the burst window still holds");
    source.claim(&window, 10 * 4_096, &mut rng()).expect("the last ticks");
    let late = end.after(Duration::from_secs(1_000));
    let window = source.window(late);
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(source.admit(&window, request(1, late, 1_000)), Err(Refusal::Ended));
}

/// Advances the wait queue at each millisecond until no request waits or time is over. Returns what finished when.
fn run_queue(source: &Source, from_ms: u64, to_ms: u64) -> Vec<(u64, WaitId, u64, Option<Refusal>)> {
    let mut finished = Vec::new();
    let mut rng = rng();
    for ms in from_ms..=to_ms {
        let again = source.advance(after_ms(ms), &mut rng, &Heard::default());
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
    // 11 of 101 ticks are at hand: more than both shares of the second. The last 256 IDs of each are left for others until
    // the next.
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
fn small_requests_pass_large_ones_within_their_slack() {
    let source = source(TWITTER, RULES);
    let mut rng = rng();
    let window = source.window(START);
    source.claim(&window, 11 * 4_096, &mut rng).expect("the whole window");
    let large = source.admit(&window, request(400 * 4_096, START, 1_000)).expect("available in 400 ticks");
    for ms in 1..=400 {
        let now = after_ms(ms);
        source.advance(now, &mut rng, &Heard::default());
        let window = source.window(now);
        for _ in 0..10 {
            assert!(source.claim(&window, 1, &mut rng).is_some(), "single IDs are there at {ms} ms");
        }
        assert_eq!(source.claim(&window, 1_000, &mut rng), None, "larger ones queue");
    }
    let finished = run_queue(&source, 401, 500);
    assert_eq!(finished.len(), 1);
    assert_eq!((finished[0].1, finished[0].2, finished[0].3), (large, 400 * 4_096, None));
}

#[test]
fn passing_never_makes_an_admitted_request_late() {
    let source = source(SCARCE, RULES);
    let mut rng = rng();
    let window = source.window(START);
    source.claim(&window, 110, &mut rng).expect("the whole window");
    // 1,000 IDs in exactly 100 ticks of 10: no slack.
    let large = source.admit(&window, request(1_000, START, 100)).expect("just available");
    let mut singles = 0;
    let mut finished = Vec::new();
    for ms in 1..=101 {
        let now = after_ms(ms);
        source.advance(now, &mut rng, &Heard::default());
        finished.extend(source.collect(0));
        let window = source.window(now);
        singles += u64::from(source.claim(&window, 1, &mut rng).is_some());
    }
    let done = finished.iter().find(|each| each.id == large).expect("its wait is over");
    assert_eq!(done.refusal, None, "{singles} single IDs went first");
    assert_eq!(done.spans.iter().map(|span| span.count).sum::<u64>(), 1_000);
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
fn a_request_that_does_not_wait_takes_its_turn_if_it_has_come() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    source.admit(&window, request(4_096, START, 100)).expect("there");
    source.admit(&window, request(4_096, START, 0)).expect("there after it");
    let finished = run_queue(&source, 0, 0);
    assert_eq!(finished.len(), 2);
    assert!(finished.iter().all(|each| each.3.is_none()), "{finished:?}");
}

#[test]
fn a_cancelled_request_leaves_the_line_and_its_place() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.admit(&window, request(500 * 4_096, START, 1_000)).expect("available");
    let second = source.admit(&window, request(50 * 4_096, START, 1_000)).expect("available");
    source.cancel(first);
    assert_eq!(source.wait_queue().admitted_ids(), 50 * 4_096);
    let finished = run_queue(&source, 0, 100);
    assert_eq!(finished.iter().map(|each| each.1).collect::<Vec<_>>(), [second]);
    source.cancel(second);
    assert_eq!(source.wait_queue().admitted_ids(), 0);
}

#[test]
fn a_request_that_meets_the_ceiling_asks_for_more_and_waits() {
    let numbering = numbering(TWITTER);
    let tick = numbering.tick_at(START.wall);
    let ceiling = numbering.first_of(tick);
    let source =
        Source::new(String::from("test"), numbering, RULES, Grant::new(ceiling), Position(0), BEFORE);
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
fn a_ceiling_that_is_not_raised_is_no_ceiling() {
    let numbering = numbering(TWITTER);
    let ceiling = numbering.first_of(numbering.tick_at(START.wall));
    let source =
        Source::new(String::from("test"), numbering, RULES, Grant::new(ceiling), Position(0), BEFORE);
    source.admit(&source.window(START), request(20 * 4_096, START, 100)).expect("the ceiling may rise");
    let finished = run_queue(&source, 0, 100);
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].3, Some(Refusal::NoCeiling));
}

#[test]
fn a_request_that_does_not_wait_nudges_the_keeper_too() {
    let numbering = numbering(TWITTER);
    let ceiling = numbering.first_of(numbering.tick_at(UnixMicros(START.wall.0 - SECOND_US)));
    let source =
        Source::new(String::from("test"), numbering, RULES, Grant::new(ceiling), Position(0), BEFORE);
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
        source.advance(after_ms(ms), &mut rng, &Heard::default());
        let window = source.window(after_ms(ms));
        singles += u64::from(source.claim(&window, 1, &mut rng).is_some());
    }
    assert!(singles > 900, "{singles} single IDs in 1,000 ticks");
    source.advance(after_ms(1_000), &mut rng, &Heard::default());
    let finished = source.collect(0);
    let ended: Vec<_> = finished.iter().map(|each| (each.id, each.refusal)).collect();
    assert_eq!(ended, [(exact, None), (hog, None)]);
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
fn what_was_ready_when_the_grant_was_lost_is_refused() {
    let source = source(TWITTER, RULES);
    source.admit(&source.window(START), request(4_096, START, 1_000)).expect("available");
    source.advance(START, &mut rng(), &Heard::default());
    source.grant().revoke();
    let finished = source.collect(0);
    assert_eq!((finished[0].refusal, finished[0].spans.len()), (Some(Refusal::NoCeiling), 0));
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
fn nothing_is_claimed_after_a_jump_until_the_keeper_has_looked() {
    let source = source(TWITTER, RULES);
    let window = source.window(Now { jumped: true, ..START });
    assert_eq!((window.bound, source.left(&window)), (Bound::Ceiling, 0));
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    source.claim(&source.window(START), 1, &mut rng()).expect("the keeper has looked");
}

#[test]
fn what_was_claimed_for_a_request_that_gave_up_goes_to_nobody() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let first = source.admit(&window, request(20 * 4_096, START, 1_000)).expect("available");
    let second = source.admit(&window, request(15 * 4_096, START, 1_000)).expect("available beside it");
    source.advance(START, &mut rng(), &Heard::default());
    let used = source.cursor().expect("not sealed");
    let claimed = used.0 - window.floor.0;
    source.cancel(first);
    for ms in 1..30 {
        source.advance(after_ms(ms), &mut rng(), &Heard::default());
    }
    let finished = source.collect(0);
    assert_eq!((finished.len(), finished[0].id), (1, second));
    let spans = &finished[0].spans;
    assert_eq!(spans.iter().map(|span| span.count).sum::<u64>(), 15 * 4_096);
    let below_used = |span: &Span| span.end().min(used).0.saturating_sub(span.from.0);
    let before: u64 = spans.iter().map(below_used).sum();
    assert_eq!(before, claimed / 2, "the other half was claimed for the first: {spans:?}");
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Sleep { us: u64 },
    Jump { us: i64 },
    Claim { count: u64 },
    Wait { count: u64, wait_ms: u64, partial: bool },
    Advance,
    Ceiling { ahead_ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..5_000).prop_map(|us| Step::Sleep { us }),
        1 => (-20 * SECOND_US..20 * SECOND_US).prop_map(|us| Step::Jump { us }),
        6 => (1_u64..20_000).prop_map(|count| Step::Claim { count }),
        3 => (1_u64..200_000, 0_u64..100, any::<bool>())
            .prop_map(|(count, wait_ms, partial)| Step::Wait { count, wait_ms, partial }),
        4 => Just(Step::Advance),
        1 => (0_u64..50).prop_map(|ahead_ms| Step::Ceiling { ahead_ms }),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// Under any clock, no position is claimed twice, at or above the ceiling, or outside the ID clock's window. Each claim
    /// lies above those before it. In the end no admitted ID is left in the count.
    #[test]
    fn claims_keep_the_promises(
        steps in steps(),
        scarce: bool,
        spread: bool,
        wait_on_step_back: bool,
        seed: u64,
    ) {
        let rules = Rules {
            on_step_back: if wait_on_step_back { OnStepBack::Wait } else { OnStepBack::Ride },
            sequence_start: if spread { SequenceStart::Spread } else { SequenceStart::Zero },
            ..RULES
        };
        let numbering = numbering(if scarce { SCARCE } else { TWITTER });
        let ceiling = numbering.first_of(numbering.tick_at(after_ms(20).wall));
        let source = Source::new(String::from("test"), numbering, rules, Grant::new(ceiling), Position(0), BEFORE);
        let mut rng = fastrand::Rng::with_seed(seed);
        let heard = Heard::default();
        let mut now = START;
        let mut next_free = Position(0);
        let mut promised = Vec::new();
        let mut check = |span: Span, now: Now| {
            let numbering = source.numbering();
            prop_assert!(span.count > 0);
            prop_assert!(span.from >= next_free, "claimed {span:?} below {next_free:?}");
            prop_assert!(span.end() <= source.grant().ceiling());
            let last = numbering.start_of(numbering.tick_of(Position(span.end().0 - 1)));
            prop_assert!(last.0 <= now.wall.0 + micros_of(rules.max_ahead));
            next_free = span.end();
            Ok(())
        };
        for step in steps {
            match step {
                Step::Sleep { us } => now = now.after(Duration::from_micros(us)),
                Step::Jump { us } => now.wall.0 += us,
                Step::Claim { count } => {
                    let window = source.window(now);
                    if let Some(from) = source.claim(&window, count, &mut rng) {
                        prop_assert!(from >= window.floor);
                        check(Span { from, count }, now)?;
                    }
                }
                Step::Wait { count, wait_ms, partial } => {
                    let request = WaitRequest { partial, ..request(count, now, wait_ms) };
                    if let Ok(id) = source.admit(&source.window(now), request) {
                        promised.push((id, count, partial));
                    }
                }
                Step::Advance => {
                    source.advance(now, &mut rng, &heard);
                }
                Step::Ceiling { ahead_ms } => {
                    let reach = now.after(Duration::from_millis(ahead_ms)).wall;
                    source.grant().raise(source.numbering().first_of(source.numbering().tick_at(reach)));
                }
            }
        }
        // All waits end under any clock.
        now = now.after(Duration::from_secs(1));
        prop_assert_eq!(source.advance(now, &mut rng, &heard), None);
        prop_assert_eq!(source.wait_queue().admitted_ids(), 0);
        let mut finished = source.collect(0);
        prop_assert_eq!(finished.len(), promised.len());
        for each in &mut finished {
            let ids: u64 = each.spans.iter().map(|span| span.count).sum();
            let &(_, count, partial) = promised.iter().find(|one| one.0 == each.id).expect("was admitted");
            match each.refusal {
                None if partial => prop_assert!(ids >= 1 && ids <= count),
                None => prop_assert_eq!(ids, count),
                Some(_) => prop_assert!(ids < count),
            }
            prop_assert!(each.spans.windows(2).all(|pair| pair[0].end() <= pair[1].from));
        }
        // The spans of waiting requests never overlap either.
        let mut spans: Vec<Span> = finished.iter().flat_map(|each| each.spans.clone()).collect();
        spans.sort_by_key(|span| span.from);
        prop_assert!(spans.windows(2).all(|pair| pair[0].end() <= pair[1].from));
    }
}

proptest! {
    /// Whatever the wall clock did: IDs flow as soon as it is at most `max_ahead` behind them, and from then on the lead
    /// over it shrinks at half speed.
    #[test]
    fn after_any_steps_the_lead_shrinks_at_half_speed(
        steps in proptest::collection::vec((-20 * SECOND_US..20 * SECOND_US, 0_u64..20_000, any::<bool>()), 1..12),
    ) {
        let source = source(TWITTER, RULES);
        let claim_all = |now: Now| {
            let window = source.window(now);
            let left = source.left(&window);
            (left > 0).then(|| source.claim(&window, left, &mut rng()).expect("nobody else claims"));
            window
        };
        let mut now = START;
        claim_all(now);
        for (jump_us, sleep_ms, is_asked) in steps {
            now.wall.0 += jump_us;
            source.bound_catch_up(now);
            is_asked.then(|| claim_all(now));
            now = now.after(Duration::from_millis(sleep_ms));
        }
        source.bound_catch_up(now);
        let used = Position(source.cursor().expect("not sealed").0 - 1);
        let ahead_us = source.numbering().start_of(source.numbering().tick_of(used)).0 - now.wall.0;
        let stands_us = (ahead_us - micros_of(RULES.max_ahead)).max(0);
        if stands_us >= 1_000 {
            prop_assert_eq!(claim_all(now).bound, Bound::Standing(Duration::from_micros(stands_us.unsigned_abs())));
        }
        let flows = now.after(Duration::from_micros(stands_us.unsigned_abs()));
        let lead_us = |now: Now| claim_all(now).id_time.0 - now.wall.0;
        let first_us = lead_us(flows);
        prop_assert!(first_us <= micros_of(RULES.max_ahead));
        for half_seconds in 1..=44 {
            let after_us = half_seconds * SECOND_US / 2;
            let expected_us = (first_us - after_us / 2).max(0);
            let found_us = lead_us(flows.after(Duration::from_micros(after_us.unsigned_abs())));
            prop_assert!((found_us - expected_us).abs() <= 1_000, "{found_us} us ahead, not {expected_us}");
        }
    }
}

fn micros_of(duration: Duration) -> i64 {
    clock::micros(duration)
}

/// Claims all that a window holds.
pub(super) fn drain(source: &Source, now: Now) {
    let window = source.window(now);
    source.claim(&window, source.left(&window), &mut rng()).expect("nobody else claims");
}

#[test]
fn who_waits_rides_past_a_wall_clock_that_stands() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let stands = |ms: u64| Now { wall: START.wall, ..after_ms(ms) };
    source
        .admit(&source.window(stands(0)), request(1, stands(0), 1_000))
        .expect("available with the next tick");
    let heard = Heard::default();
    source.advance(stands(1), &mut rng(), &heard);
    assert_eq!(*heard.shards.borrow(), [] as [usize; 0], "at half speed there is no next tick yet");
    source.advance(stands(2), &mut rng(), &heard);
    assert_eq!(*heard.shards.borrow(), [0]);
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
    source.advance(Now { wall: hour_back, ..after_ms(1_000) }, &mut rng(), &Heard::default());
    let refusals: Vec<_> = source.collect(0).into_iter().map(|finished| finished.refusal).collect();
    assert_eq!(refusals.len(), 2);
    assert!(refusals.iter().all(|refusal| matches!(refusal, Some(Refusal::ClockBehind(_)))), "{refusals:?}");
}
