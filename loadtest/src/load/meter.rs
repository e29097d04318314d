//! Counts and times the requests of one thread.

use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::frontend::{Refusal, text};
use crate::machine::processor::{RunDelay, ran};
use crate::machine::stalls::{MIN_STALL_NS, Stalls};
use crate::measure::settling::Slow;
use crate::measure::{Counts, Second};
use crate::scenario::Scenario;

use super::connection::InFlight;
use super::{Message, Now};

/// The shortest measurement for which the busiest thread is reported.
const MIN_SHARED: Duration = Duration::from_millis(100);

/// All stalls that ended this long ago have been recorded. A stall that is longer than this does
/// not excuse answers that came early in it.
const SETTLED_AFTER_NS: u64 = 1_000_000_000;

/// Figures of requests that were due between the warm-up and the end.
#[derive(Debug, Default)]
pub(super) struct Meter {
    thread: usize,
    /// False for a closed loop. There, a request is due when it leaves, so there is no slip.
    is_open_loop: bool,
    warm_ns: u64,
    end_ns: u64,
    /// `counts.response` stays empty, because the collector merges the response times of all
    /// seconds.
    pub(super) counts: Counts,
    second: Second,
    second_number: u64,
    /// The outage of the run's own daemon, as this thread sees it. Requests that are due during the
    /// outage do not count. The range is empty in a run without an outage, and has no end until all
    /// connections are back.
    outage: Range<u64>,
    /// `None` during the warm-up.
    began: Option<Began>,
    /// The instant since which the thread has been busy, or should have been. An answer that the
    /// thread reads now may have arrived at any time since then.
    busy_since_ns: u64,
}

/// The instant at which the measurement began, and how long the thread had run and had waited for a
/// core until then.
#[derive(Debug)]
struct Began {
    at_ns: u64,
    ran: Duration,
    run_delay: RunDelay,
}

impl Meter {
    pub(super) fn new(thread: usize, scenario: &Scenario) -> Self {
        Self {
            thread,
            is_open_loop: scenario.is_open_loop(),
            warm_ns: scenario.warm_up.as_nanos() as u64,
            end_ns: scenario.ends_at().as_nanos() as u64,
            outage: scenario.outage_at().map_or(0..0, |at| at.as_nanos() as u64..u64::MAX),
            ..Self::default()
        }
    }

    pub(super) fn counts_at(&self, intended_ns: u64) -> bool {
        (self.warm_ns..self.end_ns).contains(&intended_ns) && !self.outage.contains(&intended_ns)
    }

    /// Returns the time since the start of the outage; `None` before the outage, and once all
    /// connections are back.
    pub(super) fn outage_lasting(&self, now: Now) -> Option<Duration> {
        self.outage.contains(&now.ns).then(|| Duration::from_nanos(now.ns - self.outage.start))
    }

    /// Records that all connections are back from the outage.
    pub(super) fn recovered(&mut self, now: Now) {
        self.counts.outage = self.outage_lasting(now).unwrap_or_default();
        self.outage.end = now.ns;
    }

    /// Begins a turn that was due at `due_ns`. The thread counts as busy since then, or since `now`
    /// if that is earlier.
    pub(super) fn woke(&mut self, now: Now, due_ns: u64) {
        self.busy_since_ns = now.ns.min(due_ns);
    }

    /// Ends a turn: the thread has nothing to do until its next turn. The longest turn may excuse a
    /// fault that occurs during the measurement, so turns of the warm-up do not count.
    pub(super) fn turned(&mut self, now: Now) {
        if now.ns < self.warm_ns {
            return;
        }
        let turn = Duration::from_nanos(now.ns.saturating_sub(self.busy_since_ns));
        self.counts.longest_turn = self.counts.longest_turn.max(turn);
    }

    /// Counts a request in flight that the outage took away. If the request was due before the
    /// outage, it is timed as if its answer had come when the outage began.
    pub(super) fn lost(&mut self, request: &InFlight, now: Now) {
        self.counts.lost += 1;
        if request.sent_ns == 0 || !self.counts_at(request.intended_ns) {
            return;
        }
        self.counts.requests -= 1;
        let ns = self.outage.start.max(request.sent_ns);
        self.time(request, Now { ns, ..now });
    }

    pub(super) fn sent(&mut self, request: &InFlight) {
        if request.intended_ns < self.warm_ns {
            self.counts.warm_up_requests += 1;
        } else if self.counts_at(request.intended_ns) {
            self.counts.requests += 1;
            if self.is_open_loop {
                let slip_ns = request.sent_ns.saturating_sub(request.intended_ns);
                self.counts.slip.saturating_record(slip_ns);
            }
        }
    }

    pub(super) fn answered(&mut self, request: &InFlight, now: Now) {
        self.counts.checked_ids += u64::from(request.asked.count);
        if !self.counts_at(request.intended_ns) {
            return;
        }
        self.counts.answered += 1;
        self.counts.ids += u64::from(request.asked.count);
        self.second.answered += 1;
        self.second.ids += u64::from(request.asked.count);
        self.time(request, now);
        self.counts.last_receipt = Duration::from_nanos(now.ns - self.warm_ns);
    }

    pub(super) fn refused(&mut self, request: &InFlight, now: Now, refusal: &Refusal<'_>) {
        let in_warm_up = request.intended_ns < self.warm_ns;
        if !(in_warm_up || self.counts_at(request.intended_ns)) {
            return;
        }
        let refused = if in_warm_up { &mut self.counts.warm_up_refused } else { &mut self.counts.refused };
        let known = refused.entry(refusal.code).or_default();
        if known.count == 0 {
            known.first_message = text(&refusal.words);
        }
        known.count += 1;
        if in_warm_up {
            return;
        }
        self.second.refused += 1;
        // A refusal has no response time, because a target must not look fast by refusing.
        self.counts.last_receipt = Duration::from_nanos(now.ns - self.warm_ns);
    }

    fn time(&mut self, request: &InFlight, now: Now) {
        let sent_ns = request.sent_ns.max(request.intended_ns);
        // If an answer arrived while the thread was busy or not running, the time for which the
        // answer lay unread is not the target's.
        let target_ns = now.ns.min(self.busy_since_ns).saturating_sub(sent_ns);
        self.second.response.saturating_record(now.ns.saturating_sub(request.intended_ns));
        self.counts.target.saturating_record(target_ns);
        if target_ns < MIN_STALL_NS {
            self.counts.settling.certain.saturating_record(target_ns);
        } else {
            // The stalls are subtracted later, once all stalls of that time are recorded.
            self.counts.settling.slow.push_back(Slow { sent_ns, received_ns: now.ns, target_ns });
        }
    }

    /// Subtracts the stalls from the slow requests that are so old that all their stalls are
    /// recorded.
    pub(super) fn settle(&mut self, now: Now, stalls: &Stalls) {
        self.counts.settling.settle(now.ns.saturating_sub(SETTLED_AFTER_NS), stalls);
    }

    /// Counts a request without an answer, and times it as if its answer came now.
    pub(super) fn unanswered(&mut self, request: &InFlight, now: Now) {
        if self.counts_at(request.intended_ns) {
            self.counts.unanswered += 1;
            self.time(request, now);
        }
    }

    /// Begins the measurement after the warm-up, and sends each second to the collector when the
    /// second is over.
    pub(super) fn tick(&mut self, now: Now, to: &SyncSender<Message>) {
        if now.ns < self.warm_ns {
            return;
        }
        if self.began.is_none() {
            self.began = Some(Began { at_ns: now.ns, ran: ran(), run_delay: RunDelay::this_thread() });
        }
        let number = (now.ns - self.warm_ns) / 1_000_000_000;
        if number > self.second_number {
            self.hand_over(to);
            self.second_number = number;
        }
    }

    fn hand_over(&mut self, to: &SyncSender<Message>) {
        let second = Box::new(std::mem::take(&mut self.second));
        // If the collector is gone, it has stopped the run.
        let _ = to.send(Message::Second { thread: self.thread, number: self.second_number, second });
    }

    pub(super) fn finish(mut self, now: Now, to: &SyncSender<Message>) -> Counts {
        self.turned(now);
        if !self.second.response.is_empty() || self.second.refused > 0 {
            self.hand_over(to);
        }
        if let Some(mut began) = self.began {
            self.counts.cpu = ran() - began.ran;
            let busy = self.counts.cpu + Duration::from_nanos(began.run_delay.since_last().waited_ns);
            let elapsed = Duration::from_nanos(now.ns - began.at_ns);
            // In a shorter run, a wait of one kernel tick would weigh too much.
            if elapsed >= MIN_SHARED {
                self.counts.busiest_thread = busy.as_secs_f64() / elapsed.as_secs_f64();
            }
        }
        self.counts
    }
}

#[cfg(test)]
mod tests;
