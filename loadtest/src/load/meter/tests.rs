use std::sync::mpsc::sync_channel;

use super::*;
use crate::check::reply::Asked;
use crate::machine::stalls::Stall;
use crate::measure::TimeHistogram;
use crate::measure::disturbed::Undisturbed;

const WARM_NS: u64 = 1_000_000;
const END_NS: u64 = 5_000_000_000;

fn at(ns: u64) -> Now {
    Now { ns, wall_us: 0 }
}

fn request(intended_ns: u64, sent_ns: u64) -> InFlight {
    let asked = Asked { count: 3, sent_us: 0, above: 0 };
    InFlight { intended_ns, sent_ns, behind_ns: 0, asked, tag: 0, excused: false }
}

fn meter(outage: Option<Window>) -> Meter {
    Meter::new((0, true), WARM_NS, END_NS, outage)
}

#[test]
fn response_time_counts_from_the_intended_instant_and_service_time_from_the_sending() {
    let mut meter = meter(None);
    let mut late = request(2_000_000, 7_000_000);
    meter.sent(&mut late);
    meter.answered(&late, at(8_000_000));
    meter.record_alike();
    let counts = &meter.counts;
    let max_of = |histogram: &crate::measure::TimeHistogram| histogram.max() / 100_000;
    assert_eq!([&counts.response, &counts.service, &counts.slip].map(max_of), [60, 10, 50]);
}

#[test]
fn in_a_closed_loop_a_request_is_due_when_it_leaves() {
    let (to, _from) = sync_channel(8);
    let mut meter = Meter::new((0, false), WARM_NS, END_NS, None);
    let mut slow = request(2_000_000, 2_001_000);
    meter.sent(&mut slow);
    meter.answered(&slow, at(9_000_000));
    let stalls = Stalls::default();
    stalls.add(Stall { from_ns: 3_000_000, until_ns: 5_000_000, lost_ns: 2_000_000 });
    let mut counts = meter.finish(at(9_000_000), &to);
    counts.disturbed.settle(u64::MAX, &stalls);
    let undisturbed = Undisturbed::of(&counts, stalls.sum(), Duration::from_millis(10));
    let ms = |times: &TimeHistogram| times.at(1.0).as_millis();
    assert_eq!([ms(&counts.response), ms(&counts.service)], [7, 7]);
    assert_eq!(undisturbed.response.len(), 0, "a stall cut it off, and there is no other");
    assert_eq!(undisturbed.slip.len(), 1);
}

#[test]
fn what_the_target_took_is_without_the_generators_own_delays() {
    let least_ms = |meter: &mut Meter| {
        meter.record_alike();
        meter.counts.target.max() / 1_000_000
    };
    // Read 6 ms after it was sent, by a thread that should have run 4 ms before that.
    let mut woken_late = meter(None);
    let mut request_on_time = request(2_000_000, 2_000_000);
    woken_late.sent(&mut request_on_time);
    woken_late.woke(at(8_000_000), 4_000_000);
    woken_late.answered(&request_on_time, at(8_000_000));
    assert_eq!(least_ms(&mut woken_late), 2);
    // Sent on time, behind one that left 20 ms late: that was in its way.
    let mut bunched = meter(None);
    let (mut late, mut behind) = (request(10_000_000, 30_000_000), request(30_000_000, 30_000_000));
    bunched.sent(&mut late);
    bunched.sent(&mut behind);
    bunched.woke(at(31_000_000), 31_000_000);
    bunched.answered(&late, at(31_000_000));
    bunched.woke(at(40_000_000), 40_000_000);
    bunched.answered(&behind, at(40_000_000));
    assert_eq!(least_ms(&mut bunched), 1);
    // With nothing in flight the target's time is its own.
    let mut alone = request(60_000_000, 60_000_000);
    bunched.sent(&mut alone);
    bunched.woke(at(67_000_000), 67_000_000);
    bunched.answered(&alone, at(67_000_000));
    assert_eq!(least_ms(&mut bunched), 7);
}

#[test]
fn what_is_due_on_a_stalled_connection_is_checked_and_not_judged() {
    let mut meter = meter(None);
    let (mut before, mut during) = (request(2_000_000, 2_000_000), request(3_000_000, 3_000_000));
    meter.sent(&mut before);
    let before = InFlight { excused: true, ..before };
    meter.excuse_sent(&before);
    during.excused = true;
    meter.sent(&mut during);
    for excused in [&before, &during] {
        meter.answered(excused, at(4_000_000_000));
        meter.unanswered(excused, at(4_000_000_000));
        meter.refused(excused, at(4_000_000_000), 6, b"");
    }
    meter.record_alike();
    let counts = &meter.counts;
    assert_eq!((counts.requests, counts.excused, counts.answered, counts.checked_ids), (0, 2, 0, 6));
    assert_eq!((counts.response.len(), counts.refused_count(), counts.unanswered), (0, 0, 0));
    assert_eq!(counts.longest_gap, Duration::ZERO);
}

#[test]
fn the_warm_up_is_checked_and_not_timed() {
    let mut meter = meter(None);
    for intended_ns in [WARM_NS - 1, END_NS] {
        let mut outside = request(intended_ns, intended_ns);
        meter.sent(&mut outside);
        meter.answered(&outside, at(END_NS));
    }
    meter.record_alike();
    let counts = &meter.counts;
    assert_eq!((counts.requests, counts.answered, counts.ids, counts.checked_ids), (0, 0, 0, 6));
    assert_eq!(counts.response.len(), 0);
}

#[test]
fn what_is_never_answered_lasted_at_least_until_the_end() {
    let mut meter = meter(None);
    meter.unanswered(&request(2_000_000, 2_000_000), at(3_002_000_000));
    assert_eq!(meter.counts.unanswered, 1);
    assert!(meter.counts.response.max() >= 3_000_000_000);
}

#[test]
fn what_was_due_in_the_announced_outage_does_not_count() {
    let mut meter = meter(Some(Window::new(Duration::from_secs(1), None)));
    let (mut before, mut taken) = (request(999_000_000, 999_000_000), request(1_000_000_000, 1_100_000_000));
    meter.sent(&mut before);
    meter.lost(&before, at(1_100_000_000));
    meter.sent(&mut taken);
    meter.lost(&taken, at(1_100_000_000));
    meter.recovered(at(2_000_000_000));
    meter.answered(&request(1_999_999_999, 1_999_999_999), at(2_000_000_001));
    assert_eq!((meter.counts.requests, meter.counts.lost, meter.counts.answered), (0, 2, 0));
    assert_eq!(meter.counts.outage, Duration::from_secs(1));
    meter.answered(&request(2_000_000_000, 2_000_000_000), at(2_000_000_001));
    assert_eq!(meter.counts.answered, 1);
}

#[test]
fn a_request_that_hung_before_the_announced_outage_took_at_least_until_its_begin() {
    let window = Window::new(Duration::from_secs(3), Some(Duration::from_secs(1)));
    let mut meter = meter(Some(window));
    let mut hung = request(500_000_000, 500_000_000);
    meter.sent(&mut hung);
    meter.woke(at(3_600_000_000), 3_600_000_000);
    meter.lost(&hung, at(3_600_000_000));
    let stalls = Stalls::default();
    meter.record_alike();
    let mut counts = meter.counts;
    counts.disturbed.settle(u64::MAX, &stalls);
    let undisturbed = Undisturbed::of(&counts, stalls.sum(), Duration::from_secs(5));
    assert_eq!((counts.requests, counts.lost), (0, 1));
    let times = [&counts.response, &undisturbed.response, &undisturbed.target];
    assert_eq!(times.map(|times| times.at(1.0).as_millis() / 10), [250; 3]);
}

#[test]
fn refusals_of_the_warm_up_are_a_share_of_all_requests() {
    let mut meter = Meter::new((0, true), 2_000_000, END_NS, None);
    for number in 0..10 {
        let mut request = request(number * 400_000, number * 400_000);
        meter.sent(&mut request);
        if number < 2 {
            meter.refused(&request, at(request.sent_ns), 6, b"");
        } else {
            meter.answered(&request, at(request.sent_ns));
        }
    }
    assert_eq!((meter.counts.requests, meter.counts.warm_up_requests), (5, 5));
    assert_eq!(meter.counts.error_share(), 0.2);
}

#[test]
fn seconds_are_handed_over_when_they_are_past() {
    let (to, from) = sync_channel(8);
    let mut meter = meter(None);
    meter.answered(&request(WARM_NS, WARM_NS), at(WARM_NS + 1));
    meter.tick(at(WARM_NS + 999_999_999), &to);
    assert!(from.try_recv().is_err(), "the second is not over");
    meter.tick(at(WARM_NS + 1_000_000_000), &to);
    let Ok(Message::Second { number: 0, second, .. }) = from.try_recv() else {
        panic!("the first second is due");
    };
    assert_eq!((second.ids, second.response.len()), (3, 1));
}
