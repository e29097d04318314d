//! What the load threads tell, put together while they run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::{Outcome, Progress, Scenario};
use crate::check::Violation;
use crate::check::distinct::{Distinct, Refused};
use crate::daemon::Daemon;
use crate::load::{Message, Shared};
use crate::measure::{Counts, Fault, Second, SecondFigures};
use crate::promise::Span;

/// How often the progress is told: often enough to look alive, too seldom to disturb.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct Collected {
    counts: Counts,
    faults: Vec<Fault>,
    seconds: Vec<SecondFigures>,
    interval_log: Vec<u8>,
    target_cpu: Option<Duration>,
    interrupted: bool,
    too_scattered: bool,
}

struct Collector<'a> {
    shared: &'a Shared,
    distinct: &'a mut Distinct,
    /// For each thread, what no ID still to come is dated before.
    low_us: Vec<Option<i64>>,
    /// For each thread, the first second that it has not told yet.
    reached: Vec<u64>,
    running: usize,
    pending: BTreeMap<u64, Second>,
    collected: Collected,
}

/// Listens until every thread is done.
pub(super) fn collect(
    scenario: &Scenario,
    shared: &Shared,
    seen: &mut Distinct,
    from: &Receiver<Message>,
    mut daemon: Option<&mut Daemon>,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Collected {
    let mut collector = Collector::new(shared, seen, scenario.threads);
    let until_origin = shared.origin.saturating_duration_since(Instant::now());
    let begin = SystemTime::now() + until_origin + scenario.measured_from();
    // It grows with the run, so it is kept only for who wants it.
    let mut log = scenario.keeps_interval_log.then(|| IntervalLog::begin(begin, scenario.loop_words()));
    let mut cpu = TargetCpu::default();
    let mut told = Instant::now();
    let mut restarted = false;
    while collector.running > 0 {
        match from.recv_timeout(until_next(scenario, shared.origin)) {
            Ok(message) => collector.hear(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interrupt.load(Ordering::Relaxed) {
            collector.collected.interrupted = true;
            shared.stop.store(true, Ordering::Relaxed);
        }
        collector.finish_seconds(log.as_mut());
        let elapsed = Instant::now().saturating_duration_since(shared.origin);
        match scenario.outage.zip(scenario.outage_at()) {
            None => cpu.look(daemon.as_deref(), elapsed, scenario),
            // The processor time of two processes would be of no use.
            Some((outage, at)) if elapsed >= at && !restarted => {
                restarted = true;
                if let Some(Err(error)) = daemon.as_mut().map(|daemon| daemon.restart(outage.ending)) {
                    collector.collected.faults.push(Fault::Unreadable(error.to_string()));
                    shared.stop.store(true, Ordering::Relaxed);
                }
            }
            Some(_) => {}
        }
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            let last_second = collector.collected.seconds.last();
            let loop_words = scenario.loop_words();
            progress(Progress { elapsed, total: scenario.ends_at(), last_second, loop_words });
        }
    }
    collector.reached.fill(u64::MAX);
    collector.finish_seconds(log.as_mut());
    let mut collected = collector.collected;
    collected.interval_log = log.map(|log| log.text).unwrap_or_default();
    collected.target_cpu = cpu.used(daemon.as_deref());
    collected
}

/// How long to listen at most: what is due at an instant of the run is not to wait for a message.
fn until_next(scenario: &Scenario, origin: Instant) -> Duration {
    let now = Instant::now();
    let due = [Some(scenario.measured_from()), scenario.outage_at(), scenario.ends_at()];
    let ahead =
        due.into_iter().flatten().map(|due| origin + due).filter(|&at| at > now).map(|at| at - now).min();
    ahead.map_or(PROGRESS_INTERVAL, |ahead| ahead.min(PROGRESS_INTERVAL))
}

impl<'a> Collector<'a> {
    fn new(shared: &'a Shared, distinct: &'a mut Distinct, threads: usize) -> Self {
        Self {
            shared,
            distinct,
            low_us: vec![None; threads],
            reached: vec![0; threads],
            running: threads,
            pending: BTreeMap::new(),
            collected: Collected {
                counts: Counts::empty(),
                faults: Vec::new(),
                seconds: Vec::new(),
                interval_log: Vec::new(),
                target_cpu: None,
                interrupted: false,
                too_scattered: false,
            },
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Spans { thread, spans, low_us } => self.take(thread, spans, low_us),
            Message::Second { thread, number, second } => {
                self.reached[thread] = number + 1;
                match self.pending.entry(number) {
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        entry.insert(*second);
                    }
                    std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(&second),
                }
            }
            Message::Done { thread, counts, fault } => {
                self.running -= 1;
                self.reached[thread] = u64::MAX;
                // It has nothing more to come, and so holds nothing back.
                self.low_us[thread] = Some(i64::MAX);
                self.collected.counts.merge(*counts);
                self.collected.faults.extend(fault);
            }
        }
    }

    fn take(&mut self, thread: usize, mut spans: Vec<Span>, low_us: Option<i64>) {
        self.low_us[thread] = low_us;
        if self.collected.too_scattered {
            return;
        }
        match self.distinct.add(&mut spans) {
            Ok(()) => {}
            Err(Refused::Twice { place }) => {
                let duplicate = Violation::Duplicate { id: self.shared.promise.id_at(place) };
                // The connection on which it came may have noticed, too.
                if !self.collected.faults.contains(&Fault::Violation(duplicate)) {
                    self.collected.faults.insert(0, Fault::Violation(duplicate));
                }
                self.shared.stop.store(true, Ordering::Relaxed);
            }
            Err(Refused::Full) => {
                self.collected.too_scattered = true;
                self.shared.stop.store(true, Ordering::Relaxed);
            }
        }
        let oldest_us = self.low_us.iter().copied().min().flatten();
        if let Some(place) = oldest_us.and_then(|low_us| self.shared.promise.first_place_at(low_us)) {
            self.distinct.forget_below(place);
        }
    }

    /// Writes down the seconds that every thread has told.
    fn finish_seconds(&mut self, mut log: Option<&mut IntervalLog>) {
        let complete = self.reached.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.pending.first_entry()
            && *entry.key() < complete
        {
            let (number, second) = entry.remove_entry();
            if let Some(log) = &mut log {
                log.write(number, &second);
            }
            self.collected.seconds.push(SecondFigures::of(number, &second));
        }
    }
}

/// The processor time of a daemon of our own, from the begin of the measurement to its end.
#[derive(Default)]
struct TargetCpu {
    at_begin: Option<Duration>,
    at_end: Option<Duration>,
}

impl TargetCpu {
    fn look(&mut self, daemon: Option<&Daemon>, elapsed: Duration, scenario: &Scenario) {
        if self.at_begin.is_none() && elapsed >= scenario.measured_from() {
            self.at_begin = daemon.and_then(Daemon::cpu);
        }
        if self.at_end.is_none() && scenario.ends_at().is_some_and(|end| elapsed >= end) {
            self.at_end = daemon.and_then(Daemon::cpu);
        }
    }

    fn used(self, daemon: Option<&Daemon>) -> Option<Duration> {
        let at_end = self.at_end.or_else(|| daemon.and_then(Daemon::cpu))?;
        Some(at_end.saturating_sub(self.at_begin?))
    }
}

/// An interval log in memory: one or two KiB for each second.
struct IntervalLog {
    text: Vec<u8>,
    began: SystemTime,
    headed: bool,
    loop_words: &'static str,
}

impl IntervalLog {
    fn begin(began: SystemTime, loop_words: &'static str) -> Self {
        Self { text: Vec::new(), began, headed: false, loop_words }
    }

    fn write(&mut self, number: u64, second: &Second) {
        let mut builder = IntervalLogWriterBuilder::new();
        if !self.headed {
            let loop_words = self.loop_words;
            builder.add_comment(&format!("[snowbank-loadtest: {loop_words}, response times in nanoseconds]"));
            builder.add_comment("[Histogram log format version 1.3]");
            builder.with_start_time(self.began).with_base_time(self.began);
            self.headed = true;
        }
        let mut serializer = V2DeflateSerializer::new();
        let (start, length) = (Duration::from_secs(number), Duration::from_secs(1));
        // Writing to memory, of a histogram that fits: neither fails.
        let written = builder
            .begin_log_with(&mut self.text, &mut serializer)
            .map(|mut log| log.write_histogram(&second.response, start, length, None).is_ok());
        debug_assert!(matches!(written, Ok(true)));
    }
}

impl Collected {
    pub(super) fn outcome(
        self,
        scenario: &Scenario,
        address: String,
        version: Option<String>,
        own_daemon: bool,
        same_clock: bool,
        shared: Arc<Shared>,
    ) -> Outcome {
        let wanted = if self.faults.is_empty() && !self.interrupted { scenario.measured_for() } else { None };
        let elapsed = self.counts.last_receipt.max(wanted.unwrap_or_default());
        let Some(shared) = Arc::into_inner(shared) else {
            unreachable!("every thread that had a part of it has been joined")
        };
        Outcome {
            address,
            version,
            own_daemon,
            same_clock,
            promise: shared.promise,
            counts: self.counts,
            faults: self.faults,
            seconds: self.seconds,
            interval_log: self.interval_log,
            elapsed,
            target_cpu: self.target_cpu,
            interrupted: self.interrupted,
            too_scattered: self.too_scattered,
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn an_interval_log_is_read_back() {
        let mut log =
            IntervalLog::begin(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), "open loop");
        for number in 0..3 {
            let mut second = Second::empty();
            second.response.saturating_record_n(5_000_000, number + 1);
            log.write(number, &second);
        }
        let entries = IntervalLogIterator::new(&log.text).map(|entry| entry.expect("a sound entry"));
        let mut counts = Vec::new();
        for entry in entries {
            if let LogEntry::Interval(interval) = entry {
                let bytes = base64::engine::general_purpose::STANDARD;
                let bytes = base64::Engine::decode(&bytes, interval.encoded_histogram()).expect("base64");
                let histogram: hdrhistogram::Histogram<u64> =
                    Deserializer::new().deserialize(&mut &bytes[..]).expect("a histogram");
                counts.push((interval.start_timestamp().as_secs(), histogram.len()));
            }
        }
        assert_eq!(counts, [(0, 1), (1, 2), (2, 3)]);
    }
}
