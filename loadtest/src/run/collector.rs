//! Combines the messages of the load threads while the threads run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::samples::Samples;
use super::{Loaded, Outcome};
use crate::check::Violation;
use crate::check::distinct::{Distinct, NotAdded};
use crate::load::{Message, Shared};
use crate::machine::owner::Owner;
use crate::measure::{Fault, Second, SecondFigures};
use crate::promise::Span;

/// The time between updates of the progress bar: often enough to look alive, and too rarely to
/// disturb the run.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

struct Collector<'a, 'i> {
    shared: &'a Shared<'a>,
    /// The target under load. Targets that share a counter add their positions to those of the
    /// first such target.
    loaded: &'a mut Loaded<'i>,
    /// For each thread, the earliest possible date of an ID that the thread has yet to receive.
    low_us: Vec<Option<i64>>,
    /// For each thread, the first second that the thread has yet to send.
    reached: Vec<u64>,
    running: usize,
    pending: BTreeMap<u64, Second>,
    /// When the measurement begins; `None` once the measurement has begun.
    begins_at: Option<Instant>,
    /// When our own daemon is due to end; `None` without an outage, or once the outage has begun.
    outage_at: Option<Instant>,
    samples: Samples,
    outcome: Outcome,
}

/// Receives messages until every thread is done.
pub(super) fn collect(
    loaded: &mut Loaded<'_>,
    shared: &Shared<'_>,
    from: &Receiver<Message>,
) -> (Outcome, Samples) {
    let scenario = &shared.scenario;
    let origin = shared.watched.origin;
    let mut collector = Collector::new(loaded, shared);
    let mut shown = Instant::now();
    while collector.running > 0 {
        let due = collector.begins_at.into_iter().chain(collector.outage_at).min();
        let until_due = due.map(|at| at.saturating_duration_since(Instant::now()));
        match from.recv_timeout(until_due.unwrap_or(PROGRESS_INTERVAL).min(PROGRESS_INTERVAL)) {
            Ok(message) => collector.receive(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if collector.loaded.terminal.is_interrupted() {
            collector.outcome.interrupted = true;
            collector.stop();
        }
        collector.begin_measurement();
        collector.finish_seconds();
        collector.end_daemon();
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            let elapsed = shown.saturating_duration_since(origin);
            let last_second = collector.outcome.seconds.last();
            collector.loaded.terminal.show(elapsed, scenario.ends_at(), last_second);
        }
    }
    collector.finish()
}

impl<'a, 'i> Collector<'a, 'i> {
    fn new(loaded: &'a mut Loaded<'i>, shared: &'a Shared<'a>) -> Self {
        let scenario = &shared.scenario;
        let until_origin = shared.watched.origin.saturating_duration_since(Instant::now());
        loaded.seen.resize_with(shared.peers.len(), Distinct::default);
        let mut outcome = Outcome::default();
        // The log grows with the run, so it is kept only for --hlog.
        if scenario.keeps_interval_log {
            let begin = SystemTime::now() + until_origin + scenario.warm_up;
            outcome.interval_log = begin_log(begin, scenario.loop_words());
        }
        Self {
            shared,
            loaded,
            low_us: vec![None; scenario.threads],
            reached: vec![0; scenario.threads],
            running: scenario.threads,
            pending: BTreeMap::new(),
            begins_at: Some(shared.watched.origin + scenario.warm_up),
            outage_at: scenario.outage_at().map(|at| shared.watched.origin + at),
            samples: Samples::default(),
            outcome,
        }
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Spans { thread, spans, low_us } => self.record(thread, spans, low_us),
            Message::Second { thread, number, second } => {
                self.reached[thread] = number + 1;
                self.pending.entry(number).or_default().merge(&second);
            }
            Message::Done { thread, counts, fault } => {
                self.running -= 1;
                self.reached[thread] = u64::MAX;
                // This thread receives no more IDs.
                self.low_us[thread] = Some(i64::MAX);
                self.outcome.counts.merge(*counts);
                self.outcome.faults.extend(fault);
            }
        }
    }

    /// Takes the first sample of the target's processor time when the measurement begins.
    fn begin_measurement(&mut self) {
        if self.begins_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.samples.add(Instant::now(), self.shared.watched.target_used().cpu);
        }
    }

    /// Ends our own daemon and starts it again when the outage is due.
    fn end_daemon(&mut self) {
        let (Some(outage), Some(daemon)) = (self.shared.scenario.outage, &mut self.loaded.daemon) else {
            return;
        };
        if self.outage_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.outage_at = None;
        let restarted = daemon.restart(outage.ending);
        self.shared.watched.set_owner(0, Owner::Process(daemon.process()));
        if let Err(error) = restarted {
            let reason = format!("the daemon did not start again: {error}");
            self.outcome.faults.push(Fault::NotBegun { reason, is_ours: false });
            self.stop();
        }
    }

    fn finish(mut self) -> (Outcome, Samples) {
        self.reached.fill(u64::MAX);
        self.finish_seconds();
        self.outcome.left_out = self.left_out();
        (self.outcome, self.samples)
    }

    /// Returns how many numbers the targets left out, if all targets are counters and every
    /// position was kept.
    fn left_out(&self) -> Option<u64> {
        let are_counters = self.shared.peers.iter().all(|peer| peer.promise.increment().is_some());
        let is_known = are_counters && !self.outcome.too_scattered;
        is_known.then(|| self.loaded.seen.iter().map(Distinct::left_out).sum())
    }

    fn record(&mut self, thread: usize, spans: Vec<Vec<Span>>, low_us: Option<i64>) {
        self.low_us[thread] = low_us;
        if self.outcome.too_scattered {
            return;
        }
        for (peer, mut spans) in spans.into_iter().enumerate() {
            let promise = &self.shared.peers[peer].promise;
            let first = self.shared.peers.iter().position(|other| other.promise.shares_counter_with(promise));
            match self.loaded.seen[first.unwrap_or(peer)].add(&mut spans) {
                Ok(()) => {}
                Err(NotAdded::Twice { position }) => self.repeated(peer, position),
                Err(NotAdded::Full) => {
                    self.outcome.too_scattered = true;
                    self.stop();
                }
            }
        }
        let oldest_us = self.low_us.iter().copied().min().flatten();
        for (distinct, peer) in self.loaded.seen.iter_mut().zip(&self.shared.peers) {
            if let Some(position) = oldest_us.and_then(|low_us| peer.promise.first_position_at(low_us)) {
                distinct.forget_below(position);
            }
        }
    }

    fn repeated(&mut self, peer: usize, position: u64) {
        let duplicate = Violation::Duplicate { id: self.shared.peers[peer].promise.id_at(position) };
        // The connection that received the ID may have reported the duplicate, too.
        if !self.outcome.faults.contains(&Fault::Violation(duplicate)) {
            self.outcome.faults.insert(0, Fault::Violation(duplicate));
        }
        self.stop();
    }

    /// Records the seconds that every thread has sent.
    fn finish_seconds(&mut self) {
        let complete = self.reached.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.pending.first_entry()
            && *entry.key() < complete
        {
            let (number, second) = entry.remove_entry();
            if self.shared.scenario.keeps_interval_log {
                log_second(&mut self.outcome.interval_log, number, &second);
            }
            self.outcome.counts.response.merge(&second.response);
            let used = self.shared.watched.target_used();
            self.outcome.seconds.push(SecondFigures {
                target_cpu_share: self.samples.add(Instant::now(), used.cpu),
                target_memory_bytes: used.memory,
                ..SecondFigures::of(number, &second)
            });
        }
    }
}

/// Returns the header of an interval log. Writing to memory does not fail.
fn begin_log(began: SystemTime, loop_words: &str) -> Vec<u8> {
    let mut log = Vec::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(&format!("[snowbank-loadtest: {loop_words}, response times in nanoseconds]"));
    builder.add_comment("[Histogram log format version 1.3]");
    builder.with_start_time(began).with_base_time(began);
    let headed = builder.begin_log_with(&mut log, &mut V2DeflateSerializer::new()).is_ok();
    debug_assert!(headed);
    log
}

/// Appends a second to a log. A second takes one or two KiB.
fn log_second(log: &mut Vec<u8>, number: u64, second: &Second) {
    let mut serializer = V2DeflateSerializer::new();
    let start = Duration::from_secs(number);
    let length = Duration::from_secs(1);
    let writer = IntervalLogWriterBuilder::new().begin_log_with(log, &mut serializer);
    let written = writer.map(|mut log| log.write_histogram(&second.response, start, length, None).is_ok());
    debug_assert!(matches!(written, Ok(true)));
}
