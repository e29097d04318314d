//! Counters, each written by one thread. Readers add them up.
//!
//! The counters of each shard have cache lines of their own. The shard's thread adds to a counter
//! with a load and a store, which cost no more than a plain addition. A reader on another thread
//! may see a value that is a moment old.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam::utils::CachePadded;

use super::fleet_seen::FleetSeen;
use super::history::History;
use super::last_seen::LastSeen;
use super::latency::{BOUNDS_US, Latency};
use super::recent::Recent;
use crate::config::{PROTOCOLS, Protocol, SOURCES_MAX};
use crate::frontends::{Counts, GetCounters, Gets, IncrConnections};
use crate::metric_counter::Counter;
use crate::os_clock;
use crate::server::shared::instance::Instance;
use snowbank_core::clock::{BootMicros, Reading};
use snowbank_wire::ErrorCode;

/// The counters of one shard for one source.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    pub(crate) ids: Counter,
    pub(crate) requests: Counter,
    pub(crate) refused: Counter,
    pub(crate) exhausted: Counter,
    pub(crate) waits: Counter,
}

/// The counters of one shard for one protocol.
#[derive(Debug, Default)]
pub(crate) struct ProtocolCounters {
    pub(crate) requests: Counter,
    pub(crate) errors: Counter,
}

/// The counters of one shard. [`Figure`](super::figures::Figure) has their meanings.
#[derive(Debug)]
pub(crate) struct ShardCounters {
    /// One entry for each source that a daemon can have, by index.
    pub(crate) sources: [SourceCounters; SOURCES_MAX],
    pub(crate) protocols: [ProtocolCounters; PROTOCOLS],
    /// Requests that need no IDs, such as PING, INFO and HELLO, answered without an error.
    pub(crate) others: Counter,
    /// The gets of clients of katsubushi.
    pub(crate) gets: GetCounters,
    /// One counter for each error code, at the index code − 1.
    pub(crate) errors: [Counter; ErrorCode::ALL.len()],
    pub(crate) unauthorized_refusals: Counter,
    pub(crate) unauthorized_timeouts: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) latency: LatencyCounters,
}

/// The reason why the daemon closed a connection by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client sent nothing for `idle_timeout`.
    Idle,
    /// The rest of a request did not arrive within `stall_timeout`.
    HalfRequest,
    /// The client did not read its replies for `stall_timeout`.
    UnreadReplies,
    /// The queues had no room for a long request within `stall_timeout`.
    Queue,
    /// The client sent what is no request of the protocol.
    BadRequest,
    /// A thousand requests in a row were errors.
    Errors,
    /// The client sent a wrong token or none, or a reload revoked its token or certificate.
    Unauthorized,
}

impl CloseReason {
    pub(crate) const ALL: [CloseReason; 7] = [
        CloseReason::Idle,
        CloseReason::HalfRequest,
        CloseReason::UnreadReplies,
        CloseReason::Queue,
        CloseReason::BadRequest,
        CloseReason::Errors,
        CloseReason::Unauthorized,
    ];

    /// Returns the name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CloseReason::Idle => "idle",
            CloseReason::HalfRequest => "half_request",
            CloseReason::UnreadReplies => "unread_replies",
            CloseReason::Queue => "queue",
            CloseReason::BadRequest => "bad_request",
            CloseReason::Errors => "errors",
            CloseReason::Unauthorized => "unauthorized",
        }
    }
}

impl ShardCounters {
    fn new() -> Self {
        ShardCounters {
            sources: std::array::from_fn(|_| SourceCounters::default()),
            protocols: Default::default(),
            others: Counter::default(),
            gets: GetCounters::default(),
            errors: Default::default(),
            unauthorized_refusals: Counter::default(),
            unauthorized_timeouts: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            latency: LatencyCounters::default(),
        }
    }

    /// Counts an error of this protocol.
    pub(crate) fn record_error(&self, protocol: Protocol, code: ErrorCode) {
        self.errors[code as usize - 1].add(1);
        self.protocols[protocol as usize].errors.add(1);
    }

    /// Counts an answer that the protocol's front end gave by itself, without a source.
    #[cold]
    pub(crate) fn record_other(&self, protocol: Protocol, error: Option<ErrorCode>) {
        self.protocols[protocol as usize].requests.add(1);
        let Some(code) = error else { return self.others.add(1) };
        self.record_error(protocol, code);
    }

    /// Counts a request for IDs that was read at `read_at` and is being answered now.
    pub(crate) fn record_served(&self, protocol: Protocol, read_at: BootMicros) {
        let took = os_clock::boot().since(read_at);
        self.latency.record(snowbank_core::clock::micros(took).unsigned_abs(), 1);
        self.protocols[protocol as usize].requests.add(1);
    }
}

/// A shard's histogram of latencies.
#[derive(Debug, Default)]
pub(crate) struct LatencyCounters {
    counts: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl LatencyCounters {
    #[inline]
    pub(crate) fn record(&self, took_us: u64, requests: u64) {
        self.record_in(bucket_of(took_us), took_us, requests);
    }

    #[inline]
    fn record_in(&self, bucket: usize, took_us: u64, requests: u64) {
        self.counts[bucket].add(requests);
        self.sum_us.add(took_us.saturating_mul(requests));
    }

    /// Adds these counts to a sum over shards.
    pub(crate) fn add_to(&self, sum: &mut Latency) {
        for (sum, count) in sum.counts.iter_mut().zip(&self.counts) {
            *sum += count.get();
        }
        sum.sum_us += self.sum_us.get();
    }
}

fn bucket_of(took_us: u64) -> usize {
    BOUNDS_US.partition_point(|&bound_us| bound_us < took_us)
}

/// Of this many turns, a busy shard measures one: it reads the clock again at the end of the turn.
/// This sample stands for the turns up to the next sample. A reading costs a hundredth of a turn,
/// which is too much for a second reading in every turn.
const TIMED_TURNS: u32 = 64;
/// After this time without a sample, a shard measures its next turn. So an idle shard measures
/// nearly every turn. When the shard becomes busy, the distance between two samples doubles from 1
/// turn to [`TIMED_TURNS`]. The distance does not start at [`TIMED_TURNS`], because the first turn
/// after a pause is slow, and must not stand for many other turns.
const IDLE_US: i64 = 10_000;

/// Measures the latency of a shard's requests by samples. Each sample stands for the turns up to
/// the next sample.
#[derive(Debug)]
pub(crate) struct Timing {
    /// The requests answered in this turn.
    served: u64,
    /// The number of turns until the next sample.
    untimed_turns: u32,
    /// The number of turns from one sample to the next.
    stride: u32,
    /// The start of the turn that was measured last, its duration, and the bucket of this duration.
    timed_at: BootMicros,
    took_us: u64,
    bucket: usize,
}

impl Timing {
    pub(crate) fn new() -> Self {
        let timed_at = BootMicros(i64::MIN);
        Timing { served: 0, untimed_turns: 0, stride: 1, timed_at, took_us: 0, bucket: 0 }
    }

    #[inline]
    pub(crate) fn record_served(&mut self, requests: u64) {
        self.served += requests;
    }

    /// Counts the requests of a turn that began at `began`. Must be called after the turn has sent
    /// its replies.
    #[inline]
    pub(crate) fn end_turn(&mut self, counters: &LatencyCounters, requests: &Counter, began: BootMicros) {
        let served = std::mem::take(&mut self.served);
        if served == 0 {
            return;
        }
        requests.add(served);
        if self.untimed_turns == 0 || self.is_idle(began) {
            self.time(began, os_clock::boot());
        } else {
            self.untimed_turns -= 1;
        }
        counters.record_in(self.bucket, self.took_us, served);
    }

    /// Counts the requests of a turn whose bytes an earlier turn read, at `read_at`. Their latency
    /// is the time from `read_at` until this turn began.
    pub(crate) fn end_late_turn(
        &mut self,
        counters: &LatencyCounters,
        requests: &Counter,
        read_at: BootMicros,
        began: BootMicros,
    ) {
        let served = std::mem::take(&mut self.served);
        if served > 0 {
            requests.add(served);
            counters.record(snowbank_core::clock::micros(began.since(read_at)).unsigned_abs(), served);
        }
    }

    #[inline]
    fn is_idle(&self, began: BootMicros) -> bool {
        began.0.saturating_sub(self.timed_at.0) > IDLE_US
    }

    #[cold]
    fn time(&mut self, began: BootMicros, ended: BootMicros) {
        self.stride = if self.is_idle(began) { 1 } else { (self.stride * 2).min(TIMED_TURNS) };
        self.untimed_turns = self.stride - 1;
        self.timed_at = began;
        self.took_us = snowbank_core::clock::micros(ended.since(began)).unsigned_abs();
        self.bucket = bucket_of(self.took_us);
    }
}

/// The last reload of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct LastReload {
    pub(crate) at_unix_s: f64,
    /// The reasons why the reload was refused. `None`: the reload succeeded.
    pub(crate) refused: Option<String>,
}

/// All counters, and the other facts of the daemon's status.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) shards: Box<[Arc<CachePadded<ShardCounters>>]>,
    /// The number of open connections of each shard.
    pub(crate) open: Box<[Arc<AtomicUsize>]>,
    /// The protocols that have listeners, with their addresses.
    pub(crate) listeners: Vec<(Protocol, Vec<String>)>,
    /// The addresses of the admin listeners.
    pub(crate) admin: Vec<String>,
    pub(crate) incr_connections: IncrConnections,
    pub(crate) open_by_protocol: [Arc<AtomicUsize>; PROTOCOLS],
    /// Connections accepted, by protocol. Only the main thread counts them, because all acceptors
    /// run on the main thread.
    pub(crate) accepted: [Counter; PROTOCOLS],
    /// Connections refused because `max_connections` were open.
    pub(crate) refused: Counter,
    /// The number of bytes in replies that clients have not read yet, and in requests that are not
    /// decoded yet.
    pub(crate) queued_bytes: CachePadded<AtomicUsize>,
    keeper: Mutex<LastSeen>,
    fleet: Mutex<FleetSeen>,
    recent: Mutex<Recent>,
    history: Mutex<History>,
    last_reload: Mutex<Option<LastReload>>,
    /// True once the stop has begun.
    pub(crate) draining: AtomicBool,
    /// False while the last poll of the fleet's coordinator was not answered.
    pub(crate) fleet_answers: AtomicBool,
    pub(crate) instance: Instance,
    pub(crate) started: Reading,
    /// True if the previous run did not mark its record as clean. `None`: the state has no record
    /// of a run.
    pub(crate) previous_run_unclean: OnceLock<bool>,
}

impl Metrics {
    pub(crate) fn new(
        shards: usize,
        listeners: Vec<(Protocol, Vec<String>)>,
        admin: Vec<String>,
        instance: Instance,
        started: Reading,
    ) -> Self {
        Metrics {
            shards: (0..shards).map(|_| Arc::new(CachePadded::new(ShardCounters::new()))).collect(),
            open: (0..shards).map(|_| Arc::default()).collect(),
            listeners,
            admin,
            incr_connections: IncrConnections::default(),
            open_by_protocol: Default::default(),
            accepted: Default::default(),
            refused: Counter::default(),
            queued_bytes: CachePadded::default(),
            keeper: Mutex::new(LastSeen::new(started)),
            fleet: Mutex::default(),
            recent: Mutex::default(),
            history: Mutex::default(),
            last_reload: Mutex::default(),
            draining: AtomicBool::new(false),
            fleet_answers: AtomicBool::new(true),
            instance,
            started,
            previous_run_unclean: OnceLock::new(),
        }
    }

    /// Returns the sum of a counter over all shards.
    pub(crate) fn sum(&self, counter: impl Fn(&ShardCounters) -> u64) -> u64 {
        self.shards.iter().map(|shard| counter(shard)).sum()
    }

    /// Locks and returns the keeper's last observations. Requests must not wait for this lock.
    pub(crate) fn keeper(&self) -> MutexGuard<'_, LastSeen> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks and returns what the coordinator last told.
    pub(crate) fn fleet(&self) -> MutexGuard<'_, FleetSeen> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last_reload(&self) -> MutexGuard<'_, Option<LastReload>> {
        self.last_reload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks and returns the samples of the last minute.
    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics {
    /// Returns the counts of a protocol, for its clients that ask for statistics.
    pub(crate) fn counts_of(&self, protocol: Protocol) -> Counts {
        let index = protocol as usize;
        let mut gets = Gets::default();
        self.shards.iter().for_each(|shard| shard.gets.add_to(&mut gets));
        Counts {
            uptime: os_clock::boot().since(self.started.boot),
            open: self.open_by_protocol[index].load(Ordering::Relaxed) as u64,
            accepted: self.accepted[index].get(),
            gets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency_of(counters: &LatencyCounters) -> Latency {
        let mut sum = Latency::default();
        counters.add_to(&mut sum);
        sum
    }

    #[test]
    fn a_bucket_counts_latencies_up_to_its_bound() {
        for (index, &bound_us) in BOUNDS_US.iter().enumerate() {
            assert_eq!(bucket_of(bound_us), index);
            assert_eq!(bucket_of(bound_us + 1), index + 1);
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BOUNDS_US.len());
    }

    #[test]
    fn every_request_is_counted_and_one_busy_turn_in_64_is_timed() {
        let mut timing = Timing::new();
        let counters = LatencyCounters::default();
        let mut timed = 0;
        let mut last = BootMicros(i64::MIN);
        for turn in 0..6_400 {
            timing.record_served(3);
            timing.end_turn(&counters, &Counter::default(), BootMicros(turn));
            timed += i32::from(timing.timed_at != last);
            last = timing.timed_at;
        }
        let latency = latency_of(&counters);
        assert_eq!(latency.counts.iter().sum::<u64>(), 3 * 6_400);
        assert!((100..110).contains(&timed), "{timed}");
    }

    #[test]
    fn an_idle_shard_measures_every_turn() {
        let mut timing = Timing::new();
        let counters = LatencyCounters::default();
        for turn in 1..100 {
            let began = BootMicros(turn * (IDLE_US + 1));
            timing.record_served(1);
            timing.end_turn(&counters, &Counter::default(), began);
            assert_eq!(timing.timed_at, began);
        }
    }

    #[test]
    fn requests_kept_for_a_later_turn_are_timed_from_their_read() {
        let mut timing = Timing::new();
        let counters = LatencyCounters::default();
        timing.record_served(2);
        timing.end_late_turn(&counters, &Counter::default(), BootMicros(1_000), BootMicros(4_000));
        let latency = latency_of(&counters);
        assert_eq!(latency.sum_us, 6_000);
        assert_eq!(latency.counts[bucket_of(3_000)], 2);
    }
}
