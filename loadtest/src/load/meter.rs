//! Counts and times the requests of one thread.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::machine::processor::Use;
use crate::machine::stalls::Stalls;
use crate::measure::disturbed::Slow;
use crate::measure::{Counts, Refusals, Second};
use crate::units::printable;

use super::behind::Behind;
use super::connection::InFlight;
use super::{Message, Now};

/// The shortest measurement whose share of waiting means something.
const MIN_SHARED_S: f64 = 0.1;

/// Stalls are known after this time; a longer one leaves the run without a verdict anyway.
const SETTLED_AFTER_NS: u64 = 1_000_000_000;

/// Figures of requests that were meant to leave between the warm-up and the end.
#[derive(Debug)]
pub(super) struct Meter {
    thread: usize,
    warm_ns: u64,
    end_ns: u64,
    pub(super) counts: Counts,
    second: Second,
    second_number: u64,
    /// From its begin, until it is over.
    outage: Option<(u64, Option<u64>)>,
    last_answer_ns: Option<u64>,
    /// The processor time used when the measurement began on this thread, and that instant.
    began: Option<(Use, u64)>,
    /// The instant since which the thread has been busy, or should have been: answers may have been there
    /// since.
    busy_since_ns: u64,
    /// The delay of the target that is not its fault.
    behind: Behind,
}

impl Meter {
    pub(super) fn new(thread: usize, warm_ns: u64, end_ns: u64, outage_ns: Option<u64>) -> Self {
        let (counts, second) = (Counts::default(), Second::default());
        Self {
            thread,
            warm_ns,
            end_ns,
            counts,
            second,
            second_number: 0,
            outage: outage_ns.map(|from_ns| (from_ns, None)),
            last_answer_ns: None,
            began: None,
            busy_since_ns: 0,
            behind: Behind::default(),
        }
    }

    pub(super) fn counts_at(&self, intended_ns: u64) -> bool {
        let in_outage = self.outage.is_some_and(|(from_ns, until_ns)| {
            intended_ns >= from_ns && until_ns.is_none_or(|until_ns| intended_ns < until_ns)
        });
        (self.warm_ns..self.end_ns).contains(&intended_ns) && !in_outage
    }

    /// Returns the begin of the announced outage while it lasts.
    pub(super) fn outage_since(&self, now: Now) -> Option<u64> {
        let (from_ns, until_ns) = self.outage?;
        (until_ns.is_none() && now.ns >= from_ns).then_some(from_ns)
    }

    /// Ends the announced outage: requests due before now do not count.
    pub(super) fn recovered(&mut self, now: Now) {
        if let Some((from_ns, until_ns)) = &mut self.outage {
            *until_ns = Some(now.ns);
            self.counts.outage = Duration::from_nanos(now.ns.saturating_sub(*from_ns));
        }
    }

    /// Begins a turn that was due at `due_ns`, if it was not woken before.
    pub(super) fn woke(&mut self, now: Now, due_ns: u64) {
        self.busy_since_ns = now.ns.min(due_ns);
    }

    /// Counts a request in flight that the outage took away.
    pub(super) fn lost(&mut self, request: &InFlight) {
        self.counts.lost += 1;
        if request.sent_ns > 0 {
            self.behind.left();
        }
        if self.counts_at(request.intended_ns) && !request.excused {
            self.counts.requests -= 1;
        }
    }

    /// Counts a request that was due while there was no connection.
    pub(super) fn lost_unsent(&mut self) {
        self.counts.lost += 1;
    }

    /// Excuses a request that was sent and counted.
    pub(super) fn excuse_sent(&mut self, request: &InFlight) {
        self.counts.excused += 1;
        if self.counts_at(request.intended_ns) {
            self.counts.requests -= 1;
        }
    }

    pub(super) fn sent(&mut self, request: &mut InFlight) {
        let slip_ns = request.sent_ns.saturating_sub(request.intended_ns);
        request.behind_ns = self.behind.sent(slip_ns);
        if request.excused {
            self.counts.excused += 1;
        } else if self.counts_at(request.intended_ns) {
            self.counts.requests += 1;
            self.counts.slip.saturating_record(slip_ns);
        }
    }

    pub(super) fn answered(&mut self, request: &InFlight, now: Now) {
        self.behind.answered(request.sent_ns, now.ns);
        self.counts.checked_ids += u64::from(request.asked.count);
        if request.excused {
            return;
        }
        if now.ns >= self.warm_ns {
            let last_ns = self.last_answer_ns.replace(now.ns).unwrap_or(now.ns);
            self.counts.longest_gap = self.counts.longest_gap.max(Duration::from_nanos(now.ns - last_ns));
        }
        if !self.counts_at(request.intended_ns) {
            return;
        }
        self.counts.answered += 1;
        self.counts.ids += u64::from(request.asked.count);
        self.second.ids += u64::from(request.asked.count);
        self.time(request, now);
    }

    pub(super) fn refused(&mut self, request: &InFlight, now: Now, code: u16, message: &[u8]) {
        self.behind.answered(request.sent_ns, now.ns);
        if !self.counts_at(request.intended_ns) || request.excused {
            return;
        }
        let words = || printable(&String::from_utf8_lossy(message));
        let fresh = || Refusals { count: 0, first_message: words() };
        self.counts.refused.entry(code).or_insert_with(fresh).count += 1;
        self.second.refused += 1;
        // A refusal is no answer: a target must not look fast by refusing.
        self.counts.last_receipt = Duration::from_nanos(now.ns - self.warm_ns);
    }

    fn time(&mut self, request: &InFlight, now: Now) {
        let response_ns = now.ns.saturating_sub(request.intended_ns);
        self.counts.response.saturating_record(response_ns);
        self.second.response.saturating_record(response_ns);
        let service_ns = now.ns.saturating_sub(request.sent_ns);
        self.counts.service.saturating_record(service_ns);
        let target_ns = service_ns.saturating_sub(self.own_delay_ns(request, now));
        self.counts.target.saturating_record(target_ns);
        let (intended_ns, sent_ns) = (request.intended_ns, request.sent_ns);
        self.counts.disturbed.note(Slow { intended_ns, sent_ns, received_ns: now.ns, target_ns });
        self.counts.last_receipt = Duration::from_nanos(now.ns - self.warm_ns);
    }

    /// Decides which slow requests a stall of the machine touched, once it is known.
    pub(super) fn settle(&mut self, now: Now, stalls: &Stalls) {
        self.counts.disturbed.settle(now.ns.saturating_sub(SETTLED_AFTER_NS), stalls);
    }

    /// Returns the generator's part of an answer's delay: it may have been unread while the thread was busy
    /// or did not run, and its request may have waited behind others that left late.
    fn own_delay_ns(&self, request: &InFlight, now: Now) -> u64 {
        now.ns.saturating_sub(self.busy_since_ns) + request.behind_ns
    }

    /// Counts a request without an answer: it lasted at least until now.
    pub(super) fn unanswered(&mut self, request: &InFlight, now: Now) {
        if self.counts_at(request.intended_ns) && !request.excused {
            self.counts.unanswered += 1;
            self.counts.response.saturating_record(now.ns.saturating_sub(request.intended_ns));
        }
    }

    /// Notes how long the thread did not run when it should have.
    pub(super) fn paused(&mut self, now: Now, pause_ns: u64) {
        if now.ns < self.warm_ns {
            return;
        }
        self.counts.longest_pause = self.counts.longest_pause.max(Duration::from_nanos(pause_ns));
    }

    /// Begins the measurement, and hands over the second that is past.
    pub(super) fn tick(&mut self, now: Now, to: &SyncSender<Message>) {
        if now.ns < self.warm_ns {
            return;
        }
        if self.began.is_none() {
            self.began = Some((Use::now(), now.ns));
        }
        let number = (now.ns - self.warm_ns) / 1_000_000_000;
        if number > self.second_number {
            self.hand_over(to);
            self.second_number = number;
        }
    }

    fn hand_over(&mut self, to: &SyncSender<Message>) {
        let second = Box::new(std::mem::take(&mut self.second));
        // A collector that is gone has stopped the run.
        let _ = to.send(Message::Second { thread: self.thread, number: self.second_number, second });
    }

    pub(super) fn finish(mut self, now: Now, to: &SyncSender<Message>) -> Counts {
        if self.second.ids > 0 || self.second.refused > 0 {
            self.hand_over(to);
        }
        if let Some((at_begin, began_ns)) = self.began {
            let used = Use::now().since(at_begin);
            (self.counts.cpu, self.counts.waited) = (used.ran, used.waited);
            let elapsed_s = (now.ns.saturating_sub(began_ns) as f64 / 1e9).max(1e-9);
            self.counts.busiest_thread = used.ran.as_secs_f64() / elapsed_s;
            // A wait of one kernel tick is most of a shorter run.
            if elapsed_s >= MIN_SHARED_S {
                self.counts.hungriest_thread = (used.ran + used.waited).as_secs_f64() / elapsed_s;
            }
            self.counts.throttled_share = used.throttled.as_secs_f64() / elapsed_s;
        }
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::check::reply::Asked;

    const WARM_NS: u64 = 1_000_000;
    const END_NS: u64 = 5_000_000_000;

    fn at(ns: u64) -> Now {
        Now { ns, wall_us: 0 }
    }

    fn request(intended_ns: u64, sent_ns: u64) -> InFlight {
        let asked = Asked { count: 3, sent_us: 0, above: 0 };
        InFlight { intended_ns, sent_ns, behind_ns: 0, asked, tag: 0, excused: false }
    }

    fn meter(outage_ns: Option<u64>) -> Meter {
        Meter::new(0, WARM_NS, END_NS, outage_ns)
    }

    #[test]
    fn response_time_counts_from_the_intended_instant_and_service_time_from_the_sending() {
        let mut meter = meter(None);
        let mut late = request(2_000_000, 7_000_000);
        meter.sent(&mut late);
        meter.answered(&late, at(8_000_000));
        let counts = &meter.counts;
        let max_of = |histogram: &crate::measure::TimeHistogram| histogram.max() / 100_000;
        assert_eq!([&counts.response, &counts.service, &counts.slip].map(max_of), [60, 10, 50]);
    }

    #[test]
    fn what_the_target_took_is_without_the_generators_own_delays() {
        let least_ms = |meter: &Meter| meter.counts.target.max() / 1_000_000;
        // Read 6 ms after it was sent, by a thread that should have run 4 ms before that.
        let mut woken_late = meter(None);
        let mut request_on_time = request(2_000_000, 2_000_000);
        woken_late.sent(&mut request_on_time);
        woken_late.woke(at(8_000_000), 4_000_000);
        woken_late.answered(&request_on_time, at(8_000_000));
        assert_eq!(least_ms(&woken_late), 2);
        // Sent on time, behind one that left 20 ms late: that was in its way.
        let mut bunched = meter(None);
        let (mut late, mut behind) = (request(10_000_000, 30_000_000), request(30_000_000, 30_000_000));
        bunched.sent(&mut late);
        bunched.sent(&mut behind);
        bunched.woke(at(31_000_000), 31_000_000);
        bunched.answered(&late, at(31_000_000));
        bunched.woke(at(40_000_000), 40_000_000);
        bunched.answered(&behind, at(40_000_000));
        assert_eq!(least_ms(&bunched), 1);
        // With nothing in flight the target's time is its own.
        let mut alone = request(60_000_000, 60_000_000);
        bunched.sent(&mut alone);
        bunched.woke(at(67_000_000), 67_000_000);
        bunched.answered(&alone, at(67_000_000));
        assert_eq!(least_ms(&bunched), 7);
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
        let mut meter = meter(Some(1_000_000_000));
        let (mut before, mut taken) =
            (request(999_000_000, 999_000_000), request(1_000_000_000, 1_100_000_000));
        meter.sent(&mut before);
        meter.lost(&before);
        meter.sent(&mut taken);
        meter.lost(&taken);
        meter.recovered(at(2_000_000_000));
        meter.answered(&request(1_999_999_999, 1_999_999_999), at(2_000_000_001));
        assert_eq!((meter.counts.requests, meter.counts.lost, meter.counts.answered), (0, 2, 0));
        assert_eq!(meter.counts.outage, Duration::from_secs(1));
        meter.answered(&request(2_000_000_000, 2_000_000_000), at(2_000_000_001));
        assert_eq!(meter.counts.answered, 1);
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
}
