mod properties;
mod waits;

use proptest::prelude::*;

use super::wait_queue::{Refusal, WaitId, WaitRequest};
use super::*;
use crate::clock::BootMicros;
use crate::clock::tests::SECOND_US;
use snowbank_id::layout::{Layout, Tick, WorkerSet};
use snowbank_id::numbering::TicketCounter;

/// 2027-01-15, at the start of a millisecond.
pub(crate) const START: Now =
    Now { wall: UnixMicros(1_800_000_000 * SECOND_US), boot: BootMicros(500 * SECOND_US), jumped: false };
/// A minute before `START`: a source that starts then has its whole burst reserve at `START`.
pub(crate) const BEFORE: Now = Now {
    wall: UnixMicros(START.wall.0 - 60 * SECOND_US),
    boot: BootMicros(START.boot.0 - 60 * SECOND_US),
    jumped: false,
};
pub(crate) const TWITTER: &str = "twitter";
/// Ten IDs in a millisecond.
const SCARCE: &str = "time:41,worker:5,sequence:=10";
pub(crate) const RULES: Rules = Rules {
    burst_window: Duration::from_millis(10),
    max_ahead: Duration::from_secs(10),
    on_step_back: OnStepBack::Ride,
    sequence_start: SequenceStart::Zero,
};

pub(crate) fn numbering(layout: &str) -> Numbering {
    let layout = Layout::resolve(layout).expect("a layout");
    Numbering::new(layout, WorkerSet::single(0)).expect("worker 0 exists")
}

/// Returns a source that has been idle for a minute, with a ceiling that limits nothing.
pub(super) fn source(layout: &str, rules: Rules) -> Source {
    let end = numbering(layout).end();
    source_below(layout, rules, end)
}

/// Returns a source that has been idle for a minute, with this ceiling.
fn source_below(layout: &str, rules: Rules, ceiling: Position) -> Source {
    let name = String::from("test");
    Source::new(name, numbering(layout), rules, Grant::new(ceiling), Position(0), BEFORE)
}

/// Returns the first position of Twitter's layout at an instant.
fn first_at(wall: UnixMicros) -> Position {
    let numbering = numbering(TWITTER);
    numbering.first_of(numbering.tick_at(wall))
}

pub(super) fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}

fn after_ms(ms: u64) -> Now {
    START.after(Duration::from_millis(ms))
}

fn request(count: u64, now: Now, wait_ms: u64) -> WaitRequest {
    let wait = Duration::from_millis(wait_ms);
    WaitRequest { count, due: now.boot.after(wait), wait, partial: false, shard: 0 }
}

#[test]
fn a_whole_burst_window_is_claimed_and_then_each_tick() {
    let source = source(TWITTER, RULES);
    let window = source.window(START);
    let tick = source.numbering().tick_at(START.wall);
    assert_eq!(window.floor, source.numbering().first_of(Tick(tick.0 - 10)));
    assert_eq!(window.limit, source.numbering().first_of(Tick(tick.0 + 1)));
    assert_eq!((window.bound, source.left(&window)), (Bound::Clock, 11 * 4_096));
    let first = source.claim(&window, 11 * 4_096, &mut rng()).expect("the whole window");
    assert_eq!(first, window.floor);
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(source.next_tick_in(&window), Duration::from_millis(1));
    let window = source.window(after_ms(1));
    assert_eq!(source.claim(&window, 4_096, &mut rng()), Some(Position(first.0 + 11 * 4_096)));
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
}

#[test]
fn sequences_start_in_the_lowest_quarter_after_an_idle_time() {
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
    // Under load the next tick starts at index 0.
    let window = source.window(after_ms(2_001));
    let first = source.claim(&window, 1, &mut rng).expect("there is room");
    assert_eq!(source.claim(&window, 4_096, &mut rng), Some(Position(first.0 + 1)));
}

#[test]
fn nothing_is_claimed_at_or_above_the_ceiling() {
    let ceiling = Position(source(TWITTER, RULES).window(START).floor.0 + 5);
    let source = source_below(TWITTER, RULES, ceiling);
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
fn starts_without_a_state_never_repeat_a_position() {
    const SECONDS: &str = "time:32,worker:10,sequence:12;tick=1s";
    for guard_ticks in [1, 3] {
        let mut seen = std::collections::HashSet::new();
        // A crash loop: each process lives for 400 ms, and asks for an ID every 20 ms.
        for life in 0..20_u64 {
            let now = after_ms(life * 400);
            let numbering = numbering(SECONDS);
            let start = numbering.first_of(Tick(numbering.tick_at(now.wall).0 + guard_ticks));
            let grant = Grant::new(numbering.end());
            let source = Source::new(String::from("test"), numbering, RULES, grant, start, now);
            let source = source.begins_with_the_clock();
            for later in (0..400).step_by(20) {
                let now = after_ms(life * 400 + later);
                source.advance(now, &mut rng());
                if let Some(position) = source.claim(&source.window(now), 1, &mut rng()) {
                    assert!(seen.insert(position), "process {life}: {position:?} was claimed before");
                    assert!(source.numbering().start_of(source.numbering().tick_of(position)) <= now.wall);
                }
            }
        }
        assert!(guard_ticks > 1 || !seen.is_empty(), "no process lived to see the next tick");
    }
}

/// Returns a ticket counter at its first number.
pub(crate) fn counter(ceiling: u64) -> Source {
    let name = String::from("orders");
    let counter = TicketCounter::new("orders", 1, 1).expect("a counter");
    let grant = Grant::new(Position(ceiling));
    Source::new(name, counter.into(), Rules::TICKETS, grant, Position(0), START)
}

#[test]
fn on_step_back_wait_refuses_at_once() {
    let source = source(TWITTER, Rules { on_step_back: OnStepBack::Wait, ..RULES });
    let window = source.window(START);
    source.claim(&window, 11 * 4_096, &mut rng()).expect("there is room");
    let back = Now { wall: UnixMicros(START.wall.0 - 5_000), ..after_ms(1) };
    assert_eq!(source.window(back).bound, Bound::Standing(Duration::from_millis(5)));
    // Requests wait for a clock that is behind by less than `READING_SKEW`.
    let skewed = Now { wall: UnixMicros(START.wall.0 - 500), ..START };
    assert_eq!(source.window(skewed).bound, Bound::Clock);
    assert_eq!(source.left(&source.window(skewed)), 0);
}

#[test]
fn a_step_back_shuts_the_window_only_beyond_the_rules() {
    use OnStepBack::{Ride, Wait};
    for (on_step_back, back_us, unavailable_us) in
        [(Ride, 9_000_000, 0), (Ride, 12_000_000, 2_000_000), (Wait, 500, 0), (Wait, 12_000_000, 12_000_000)]
    {
        let source = source(TWITTER, Rules { on_step_back, ..RULES });
        source.claim(&source.window(START), 10 * 4_096 + 1, &mut rng()).expect("there is room");
        let back = Now { wall: UnixMicros(START.wall.0 - back_us), ..after_ms(1) };
        let unavailable = Duration::from_micros(unavailable_us);
        assert_eq!(source.unavailable_for(back), unavailable, "{on_step_back:?}, {back_us} us");
        let window = source.window(back);
        assert_eq!(window.is_shut(), !unavailable.is_zero(), "{on_step_back:?}, {back_us} us");
        if window.is_shut() {
            assert_eq!(source.next_tick_in(&window), unavailable);
        } else if on_step_back == Ride {
            drain(&source, back);
            let later = Now { wall: back.wall, ..back.after(Duration::from_millis(2)) };
            assert!(source.left(&source.window(later)) > 0, "the next tick of a catch-up at half speed");
        }
        assert!(source.window(Now { jumped: true, ..back }).is_shut());
    }
}

#[test]
fn a_catch_up_that_the_wall_clock_has_passed_is_not_resumed() {
    let source = source(TWITTER, RULES);
    drain(&source, START);
    let back = |now: Now| Now { wall: UnixMicros(START.wall.0 - 9_000_000), ..now };
    source.window(back(START));
    let later = START.after(Duration::from_secs(60));
    source.bound_catch_up(later);
    assert_eq!(source.id_time(back(later)), START.wall, "the tick of the last position claimed");
}

#[test]
fn a_start_ahead_of_the_clock_begins_at_once_or_at_its_tick() {
    let ahead = |max_ahead, on_step_back, by_ms| {
        let start = first_at(after_ms(by_ms).wall);
        let numbering = numbering(TWITTER);
        let grant = Grant::new(numbering.end());
        let rules = Rules { max_ahead, on_step_back, ..RULES };
        (start, Source::new(String::from("test"), numbering, rules, grant, start, START))
    };
    for on_step_back in [OnStepBack::Ride, OnStepBack::Wait] {
        let (start, source) = ahead(RULES.max_ahead, on_step_back, 5_000);
        assert_eq!(source.unavailable_for(START), Duration::ZERO);
        let back = Now { wall: UnixMicros(START.wall.0 - 7_000_000), ..START };
        assert_eq!(source.unavailable_for(back), Duration::from_secs(2), "12 s ahead, and 10 s are allowed");
        assert_eq!(source.claim(&source.window(START), 1, &mut rng()), Some(start));
    }
    let (start, source) = ahead(Duration::ZERO, OnStepBack::Ride, 1);
    assert_eq!(source.unavailable_for(START), Duration::ZERO, "it waits for a tick only");
    assert_eq!(source.claim(&source.window(START), 1, &mut rng()), None);
    assert_eq!(source.claim(&source.window(after_ms(1)), 1, &mut rng()), Some(start));
    let (_, source) = ahead(RULES.max_ahead, OnStepBack::Ride, 3);
    let source = source.begins_with_the_clock();
    let three = Duration::from_millis(3);
    assert_eq!((source.is_yet_to_begin(START), source.unavailable_for(START)), (true, three));
    assert_eq!(source.window(START).bound, Bound::YetToBegin(three));
    assert!(!source.is_yet_to_begin(after_ms(3)));
}

#[test]
fn a_waiting_request_begins_a_catch_up_only_if_allowed() {
    for (on_step_back, gained_us) in [(OnStepBack::Ride, 1_000), (OnStepBack::Wait, 0)] {
        let source = source(TWITTER, Rules { on_step_back, ..RULES });
        drain(&source, START);
        source.begin_catch_up(START);
        let standing = Now { wall: START.wall, ..after_ms(2) };
        assert_eq!(source.id_time(standing).0 - START.wall.0, gained_us, "{on_step_back:?}");
    }
}

#[test]
fn only_a_ticket_counter_loses_its_grant_for_good_at_a_restore() {
    for (source, is_lost) in [(counter(100), true), (source(TWITTER, RULES), false)] {
        source.record_restored();
        assert_eq!(source.left(&source.window(START)), 0);
        assert_eq!(source.grant().is_lost(), is_lost);
    }
}

#[test]
fn an_old_reading_of_a_delayed_thread_is_no_step_back() {
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
fn claims_fail_and_never_wrap_after_a_layouts_last_tick() {
    let source = source("time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=0", RULES);
    let end = Now { wall: UnixMicros((1 << 41) * 1_000), ..START };
    let window = source.window(end);
    assert_eq!(window.bound, Bound::Ended);
    assert_eq!(source.left(&window), 10 * 4_096, "the rest of the burst window");
    source.claim(&window, 10 * 4_096, &mut rng()).expect("the last ticks");
    let late = end.after(Duration::from_secs(1_000));
    let window = source.window(late);
    assert_eq!(source.claim(&window, 1, &mut rng()), None);
    assert_eq!(source.admit(&window, request(1, late, 1_000)), Err(Refusal::Ended));
}

/// Claims all that a window holds.
pub(super) fn drain(source: &Source, now: Now) {
    let window = source.window(now);
    source.claim(&window, source.left(&window), &mut rng()).expect("nobody else claims");
}

#[test]
fn the_next_want_wakes_the_keeper_after_a_new_range() {
    let source = counter(100).with_shared_counter();
    assert!(source.grant().want_more());
    assert!(!source.grant().want_more(), "the keeper was woken already");
    source.add_range(Range { from: Position(0), to: Position(2), generation: 0 });
    assert!(source.grant().want_more());
}

/// Other daemons have the numbers between the ranges.
#[test]
fn the_last_number_is_one_that_was_handed_out() {
    let rng = &mut fastrand::Rng::with_seed(1);
    let last = |source: &Source| source.last_number().map(|last| (last.number, last.is_exact));
    let alone = counter(100);
    assert_eq!(last(&alone), Some((0, true)), "the counter has not begun");
    assert!(alone.claim(&alone.window(START), 7, rng).is_some());
    assert_eq!(last(&alone), Some((7, true)));
    let shared = counter(0).with_shared_counter();
    let mut add = |from, to, before| {
        shared.add_range(Range { from: Position(from), to: Position(to), generation: 0 });
        assert_eq!(last(&shared), Some((before, true)), "{from}..{to}");
        let left = shared.in_ranges().rest;
        assert!(left == 0 || shared.claim(&shared.window(START), left, rng).is_some());
        assert_eq!(last(&shared), Some((shared.cursor().unwrap().0, true)), "{from}..{to}");
    };
    add(10, 15, 0);
    add(15, 20, 15);
    add(30, 40, 20);
    for from in [50, 60] {
        // The grant is taken away before a number of the range is used.
        shared.add_range(Range { from: Position(from), to: Position(from + 1), generation: from / 10 - 5 });
        assert_eq!(last(&shared), Some((40, true)), "{from}");
        shared.record_restored();
    }
    assert_eq!(shared.seal().and(last(&shared)), None);
}
