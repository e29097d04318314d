//! The loop of one load thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use snowbank_id::layout::Run;

use super::clocks::ClockOffset;
use super::connection::Connection;
use super::meter::Meter;
use super::{ANSWER_TIMEOUT, MAX_IN_FLIGHT, Message, Now, RETRY_NS, Shared};
use crate::machine::processor::RunDelay;
use crate::machine::stalls::MIN_STALL_NS;
use crate::measure::Fault;
use crate::promise::Span;
use crate::scenario::Drive;
use crate::target::Stream;

/// Room for several of the largest reply frames.
const INPUT_SIZE: usize = 256 * 1024;

/// The longest sleep that a thread asks for, so that it soon sees the stop flag. A thread that
/// sleeps longer was paused.
const MAX_SLEEP_NS: u64 = 50_000_000;

/// After a shorter sleep, the thread does not look up how long it waited for a core, because this
/// takes a system call.
const LONG_SLEEP_NS: u64 = 500_000;

/// The interval at which positions go to the collector and timeouts are checked.
const HOUSEKEEPING_NS: u64 = 100_000_000;

/// The most spans that a thread keeps before it sends them to the collector early.
pub(super) const MAX_SPANS: usize = 16_384;

/// In an open loop, the most requests that are prepared before replies are read again.
const MAX_SENDS_PER_TURN: usize = 1_024;

pub(super) struct Worker<'a> {
    thread: usize,
    pub(super) shared: &'a Shared<'a>,
    pub(super) to: &'a SyncSender<Message>,
    pub(super) connections: Vec<Connection>,
    pub(super) epoll: OwnedFd,
    pub(super) meter: Meter,
    pub(super) end_ns: u64,
    /// The positions received since the last hand-over, by target.
    pub(super) spans: Vec<Vec<Span>>,
    /// The distance to each target's clock.
    pub(super) clocks: Vec<ClockOffset>,
    /// The runs of one part of a reply. The list is reused for each part, and is empty in between.
    pub(super) runs: Vec<Run>,
    next_connection: usize,
    housekeeping_ns: u64,
    /// The instant at which the thread tries to open connections again.
    pub(super) retry_ns: u64,
    run_delay: RunDelay,
}

/// Runs one thread of the load to its end, and sends its results to the collector.
pub(crate) fn run(
    thread: usize,
    streams: Vec<(usize, Stream)>,
    shared: &Shared<'_>,
    to: &SyncSender<Message>,
) {
    // With the default timer slack, the thread may wake 50 us late. If the system refuses the
    // change, the slip includes this lateness.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    match Worker::new(thread, streams, shared, to) {
        Ok(worker) => worker.run_to_end(),
        Err(error) => {
            let reason = format!("a thread cannot watch its connections: {error}");
            let fault = Some(Fault::NotBegun { reason, is_ours: true });
            let _ = to.send(Message::Done { thread, counts: Box::default(), fault });
        }
    }
}

impl<'a> Worker<'a> {
    fn new(
        thread: usize,
        streams: Vec<(usize, Stream)>,
        shared: &'a Shared<'a>,
        to: &'a SyncSender<Message>,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for (index, (peer, stream)) in streams.into_iter().enumerate() {
            connections.push(Connection::watched(stream, peer, &epoll, index)?);
        }
        let scenario = &shared.scenario;
        Ok(Self {
            thread,
            shared,
            to,
            connections,
            epoll,
            meter: Meter::new(thread, scenario),
            end_ns: scenario.ends_at().as_nanos() as u64,
            spans: shared.peers.iter().map(|_| Vec::new()).collect(),
            clocks: shared.peers.iter().map(|peer| ClockOffset::new(peer.clock)).collect(),
            runs: Vec::new(),
            next_connection: 0,
            housekeeping_ns: 0,
            retry_ns: 0,
            run_delay: RunDelay::this_thread(),
        })
    }

    fn run_to_end(mut self) {
        std::thread::sleep(self.shared.watched.origin.saturating_duration_since(Instant::now()));
        let fault = self.turns().err();
        if fault.is_some() {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        let now = self.shared.now();
        if fault.is_some() && self.shared.scenario.is_open_loop() {
            let due_ns = self.shared.lanes.first_due_ns();
            self.meter.counts.late_at_fault = Duration::from_nanos(now.ns.saturating_sub(due_ns));
        }
        self.hand_over_spans(now);
        for connection in &self.connections {
            connection.in_flight.iter().for_each(|request| self.meter.unanswered(request, now));
        }
        let seen_us = self.clocks.iter().map(|clock| clock.seen_us);
        self.meter.counts.clock_offset_us = seen_us.max_by_key(|us| us.abs()).unwrap_or_default();
        let counts = Box::new(self.meter.finish(now, self.to));
        let _ = self.to.send(Message::Done { thread: self.thread, counts, fault });
    }

    /// Runs turns until all requests are sent and answered, or until the stop flag is set.
    fn turns(&mut self) -> Result<(), Fault> {
        let mut input = vec![0; INPUT_SIZE];
        let mut events = Vec::with_capacity(256);
        let mut turn = self.shared.now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.meter.tick(turn, self.to);
            self.recover(turn)?;
            let more = match self.shared.scenario.drive {
                Drive::Open { .. } => self.prepare_due(turn)?,
                Drive::Closed { depth } => self.refill(turn, depth),
            };
            let all_sent = self.flush()?;
            self.keep_house(turn)?;
            let answered = self.connections.iter().all(|connection| connection.in_flight.is_empty());
            if !more && answered {
                return Ok(());
            }
            let before_sleep = self.shared.now();
            self.meter.turned(before_sleep);
            let sleep_ns = if all_sent { self.until_due_ns(before_sleep, more) } else { 1_000_000 };
            let timeout = Timespec { tv_sec: 0, tv_nsec: sleep_ns as _ };
            // The wait fails only if a signal interrupts it, and then there are no events.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
            let began_ns = std::mem::replace(&mut turn, self.shared.now()).ns;
            let due_ns = before_sleep.ns + sleep_ns;
            let overslept_ns = turn.ns.saturating_sub(due_ns);
            if overslept_ns > HOUSEKEEPING_NS {
                // Answers may have arrived during the pause, or the pause stopped the target, too.
                // In both cases, the target is not silent.
                self.housekeeping_ns = turn.ns + overslept_ns.min(ANSWER_TIMEOUT.as_nanos() as u64);
            }
            let waited_ns = self.waited_ns(&events, sleep_ns, turn, before_sleep);
            let woken_ns = turn.ns.saturating_sub(waited_ns);
            let held_up_ns = held_up_since_ns(began_ns, before_sleep.ns, turn.ns).unwrap_or(woken_ns);
            self.meter.woke(turn, due_ns.min(woken_ns).min(held_up_ns));
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                self.receive(index, &mut input).or_else(|fault| self.excuse(index, fault))?;
            }
        }
        Ok(())
    }

    /// Prepares the requests that are due. Returns false if no more will follow.
    fn prepare_due(&mut self, now: Now) -> Result<bool, Fault> {
        let first_due_ns = self.shared.lanes.first_due_ns();
        let is_late = now.ns.saturating_sub(first_due_ns) >= MIN_STALL_NS;
        // Requests of an outage do not count, so it does not matter if they are late.
        if is_late && first_due_ns < self.end_ns && self.meter.outage_lasting(now).is_none() {
            self.shared.watched.add_late(first_due_ns, now.ns);
        }
        for _ in 0..MAX_SENDS_PER_TURN {
            // An outage prolongs the run: without requests, the end of the outage would go unseen.
            let end_ns = if self.meter.outage_lasting(now).is_none() { self.end_ns } else { u64::MAX };
            let Some(due_ns) = self.shared.lanes.take(self.thread, now.ns, end_ns) else {
                return Ok(self.shared.lanes.first_due_ns() < end_ns);
            };
            let Some(index) = self.next_open() else {
                self.meter.counts.lost += 1;
                continue;
            };
            let connection = &mut self.connections[index];
            if connection.in_flight.len() >= MAX_IN_FLIGHT {
                return Err(Fault::TooManyInFlight);
            }
            connection.ask(&self.shared.peers[connection.peer], self.shared.scenario.batch, due_ns);
        }
        Ok(true)
    }

    /// Returns the next connection in turn that is not down.
    fn next_open(&mut self) -> Option<usize> {
        for _ in 0..self.connections.len() {
            let index = self.next_connection;
            self.next_connection = (index + 1) % self.connections.len();
            if !self.connections[index].is_down {
                return Some(index);
            }
        }
        None
    }

    /// Prepares requests until each open connection has `depth` in flight. Returns false if no more
    /// will follow.
    fn refill(&mut self, now: Now, depth: usize) -> bool {
        if now.ns >= self.end_ns {
            return false;
        }
        for connection in &mut self.connections {
            if connection.is_down || connection.is_dirty() {
                continue;
            }
            while connection.in_flight.len() < depth {
                connection.ask(&self.shared.peers[connection.peer], self.shared.scenario.batch, now.ns);
            }
        }
        true
    }

    /// Sends the prepared requests. Returns true if the sockets took all bytes.
    fn flush(&mut self) -> Result<bool, Fault> {
        let mut all = true;
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.is_down || !connection.is_dirty() {
                continue;
            }
            let peer = &self.shared.peers[connection.peer];
            let above = if peer.promise.strict { peer.highest.load(Ordering::SeqCst) } else { 0 };
            let meter = &mut self.meter;
            let flushed = connection.flush(self.shared.now(), above, |request| meter.sent(request));
            flushed.or_else(|fault| self.excuse(index, fault))?;
            // After a pause of this machine, more requests may be due at once than a socket takes.
            all &= !self.connections[index].is_dirty();
        }
        Ok(all)
    }

    fn until_due_ns(&self, now: Now, more: bool) -> u64 {
        let is_down = self.meter.outage_lasting(now).is_some();
        let longest_ns = if is_down { RETRY_NS } else { MAX_SLEEP_NS };
        if !(more && self.shared.scenario.is_open_loop()) {
            return longest_ns;
        }
        self.shared.lanes.next_ns(self.thread).saturating_sub(now.ns).min(longest_ns)
    }

    /// Returns how long the thread may have waited for a core after an answer woke it. Returns 0 if
    /// no answer woke it, or after a short sleep, whose planned end is close enough to the answer's
    /// arrival.
    fn waited_ns(&mut self, events: &[epoll::Event], sleep_ns: u64, now: Now, before_sleep: Now) -> u64 {
        if sleep_ns < LONG_SLEEP_NS || events.is_empty() {
            return 0;
        }
        self.run_delay.since_last().waited_ns.min(now.ns - before_sleep.ns)
    }

    fn keep_house(&mut self, now: Now) -> Result<(), Fault> {
        if now.ns < self.housekeeping_ns {
            return Ok(());
        }
        self.housekeeping_ns = now.ns + HOUSEKEEPING_NS;
        self.hand_over_spans(now);
        self.meter.settle(now, &self.shared.watched.stalls);
        let oldest_ns = now.ns.saturating_sub(ANSWER_TIMEOUT.as_nanos() as u64);
        for connection in &self.connections {
            if connection.in_flight.front().is_some_and(|request| request.sent_ns < oldest_ns) {
                return Err(Fault::Silent { unanswered: connection.in_flight.len() });
            }
        }
        Ok(())
    }

    pub(super) fn hand_over_spans(&mut self, now: Now) {
        let sent_us = self.connections.iter().filter_map(|connection| connection.in_flight.front());
        let oldest_us = sent_us.map(|request| request.asked.sent_us).fold(now.wall_us, i64::min);
        let earliest_us = self.clocks.iter().zip(&self.shared.peers).map(|(clock, peer)| {
            clock.known_us.and_then(|offset_us| peer.promise.earliest_us(oldest_us, offset_us))
        });
        // While the clock of one of the targets is not known, no position may be forgotten.
        let low_us = earliest_us.min().flatten();
        let spans = self.spans.iter_mut().map(std::mem::take).collect();
        let _ = self.to.send(Message::Spans { thread: self.thread, spans, low_us });
    }
}

/// Returns `began_ns`, the start of the last turn, if something held up the thread in that turn.
/// Then the turn was long, and the sleep after it ended at once. Answers may have lain unread since
/// `began_ns`.
fn held_up_since_ns(began_ns: u64, slept_ns: u64, woke_ns: u64) -> Option<u64> {
    (slept_ns >= began_ns + MIN_STALL_NS && woke_ns < slept_ns + MIN_STALL_NS).then_some(began_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_after_a_long_turn_count_from_its_start() {
        const MS: u64 = 1_000_000;
        assert_eq!(held_up_since_ns(5 * MS, 19 * MS, 19 * MS + 1), Some(5 * MS));
        assert_eq!(held_up_since_ns(5 * MS, 19 * MS, 21 * MS), None, "the answers came during the sleep");
        assert_eq!(held_up_since_ns(5 * MS, 5 * MS + MIN_STALL_NS - 1, 6 * MS), None, "a short turn");
    }
}
