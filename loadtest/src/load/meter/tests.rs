use std::sync::mpsc::sync_channel;

use super::*;
use crate::check::reply::Asked;
use crate::machine::stalls::Stall;
use crate::measure::TimeHistogram;

const WARM_NS: u64 = 1_000_000;
const END_NS: u64 = 5_000_000_000;

fn at(ns: u64) -> Now {
    Now { ns, wall_us: 0 }
}

fn request(intended_ns: u64, sent_ns: u64) -> InFlight {
    let asked = Asked { count: 3, sent_us: 0, above: 0 };
    InFlight { intended_ns, sent_ns, asked, tag: 0 }
}

fn meter() -> Meter {
    Meter { is_open_loop: true, warm_ns: WARM_NS, end_ns: END_NS, ..Meter::default() }
}

fn meter_with_outage(from_ns: u64) -> Meter {
    Meter { outage: from_ns..u64::MAX, ..meter() }
}

/// Sends a request, and reads its answer at `read_ns`, on a thread that has been busy since
/// `busy_since_ns`.
fn answer(meter: &mut Meter, asked: &InFlight, busy_since_ns: u64, read_ns: u64) {
    meter.sent(asked);
    meter.woke(at(read_ns), busy_since_ns);
    meter.answered(asked, at(read_ns));
}

fn max_ms(times: &TimeHistogram) -> u64 {
    times.max() / 1_000_000
}

#[test]
fn lateness_of_the_generator_is_not_in_the_targets_part() {
    let mut meter = meter();
    answer(&mut meter, &request(2_000_000, 7_000_000), 8_000_000, 8_000_000);
    assert_eq!([&meter.second.response, &meter.counts.target, &meter.counts.slip].map(max_ms), [6, 1, 5]);
}

#[test]
fn time_in_which_an_answer_lay_unread_is_not_the_targets() {
    // The thread reads the answer 6 ms after it sent the request, but should have run 4 ms earlier.
    let mut meter = meter();
    answer(&mut meter, &request(2_000_000, 2_000_000), 4_000_000, 8_000_000);
    assert_eq!([&meter.second.response, &meter.counts.target].map(max_ms), [6, 2]);
}

#[test]
fn a_slow_request_is_settled_once_its_stalls_are_known() {
    let stalls = Stalls::from_measurement(0);
    stalls.add(Stall { from_ns: 3_000_000, until_ns: 7_000_000, lost_ns: 4_000_000 });
    let mut meter = meter();
    for sent_ns in [2_000_000, 900_000_000] {
        answer(&mut meter, &request(sent_ns, sent_ns), u64::MAX, sent_ns + 8_000_000);
    }
    meter.settle(at(1_800_000_000), &stalls);
    // Of the 8 ms of the first request, the stall excuses 4 ms, and the queue behind the stall
    // excuses 1 ms. A stall that is not recorded yet may touch the second request.
    let certain = &meter.counts.settling.certain;
    assert_eq!((certain.len(), max_ms(certain)), (1, 3));
    meter.settle(at(u64::MAX), &stalls);
    let certain = &meter.counts.settling.certain;
    assert_eq!((certain.len(), max_ms(certain)), (2, 8));
}

#[test]
fn the_warm_up_is_checked_and_not_timed() {
    let mut meter = meter();
    for intended_ns in [WARM_NS - 1, END_NS] {
        answer(&mut meter, &request(intended_ns, intended_ns), END_NS, END_NS);
    }
    let counts = &meter.counts;
    assert_eq!((counts.requests, counts.answered, counts.ids, counts.checked_ids), (0, 0, 0, 6));
    assert_eq!((counts.warm_up_requests, meter.second.response.len()), (1, 0));
}

#[test]
fn an_unanswered_request_lasts_until_the_end() {
    let mut meter = meter();
    meter.woke(at(3_002_000_000), u64::MAX);
    meter.unanswered(&request(2_000_000, 2_000_000), at(3_002_000_000));
    assert_eq!((meter.counts.unanswered, meter.second.answered), (1, 0));
    assert!(meter.second.response.max() >= 3_000_000_000);
}

#[test]
fn requests_due_in_the_outage_do_not_count() {
    let mut meter = meter_with_outage(1_000_000_000);
    for taken in [request(999_000_000, 999_000_000), request(1_000_000_000, 1_100_000_000)] {
        meter.sent(&taken);
        meter.lost(&taken, at(1_100_000_000));
    }
    meter.recovered(at(2_000_000_000));
    meter.answered(&request(1_999_999_999, 1_999_999_999), at(2_000_000_001));
    assert_eq!((meter.counts.requests, meter.counts.lost, meter.counts.answered), (0, 2, 0));
    assert_eq!(meter.counts.outage, Duration::from_secs(1));
    meter.answered(&request(2_000_000_000, 2_000_000_000), at(2_000_000_001));
    assert_eq!(meter.counts.answered, 1);
}

#[test]
fn a_request_lost_in_an_outage_lasts_until_the_outage() {
    let mut meter = meter_with_outage(3_000_000_000);
    let hung = request(500_000_000, 500_000_000);
    meter.sent(&hung);
    meter.woke(at(3_600_000_000), 3_600_000_000);
    meter.lost(&hung, at(3_600_000_000));
    let mut counts = meter.counts;
    counts.settling.settle(u64::MAX, &Stalls::default());
    assert_eq!((counts.requests, counts.lost), (0, 1));
    let times = [&meter.second.response, &counts.target, &counts.settling.certain];
    assert_eq!(times.map(|times| times.at(1.0).as_millis() / 10), [250; 3]);
}

#[test]
fn a_second_goes_to_the_collector_when_it_is_over() {
    let (to, from) = sync_channel(8);
    let mut meter = meter();
    meter.answered(&request(WARM_NS, WARM_NS), at(WARM_NS + 1));
    meter.tick(at(WARM_NS + 999_999_999), &to);
    assert!(from.try_recv().is_err(), "the second is not over");
    meter.tick(at(WARM_NS + 1_000_000_000), &to);
    let Ok(Message::Second { number: 0, second, .. }) = from.try_recv() else {
        panic!("the first second is due");
    };
    assert_eq!((second.ids, second.response.len()), (3, 1));
}
