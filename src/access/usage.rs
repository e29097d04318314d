//! The counts of one identity, and the limits of log lines about it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crossbeam::utils::CachePadded;

use crate::clock::BootMicros;
use crate::config::SOURCES_MAX;
use crate::counter::Counter;

/// The time between two log lines about one event of one identity, in microseconds.
const LOG_PERIOD_US: i64 = 60_000_000;

/// A count of events, of which a log line is due at most once a minute.
#[derive(Debug)]
pub struct Events {
    count: AtomicU64,
    /// The part of `count` that was logged.
    logged: AtomicU64,
    next_log_us: AtomicI64,
}

impl Default for Events {
    fn default() -> Self {
        Events { count: AtomicU64::new(0), logged: AtomicU64::new(0), next_log_us: AtomicI64::new(i64::MIN) }
    }
}

impl Events {
    /// Counts an event. If it must be logged, returns the number of events since the last log line, this one included.
    pub fn note(&self, now: BootMicros) -> Option<u64> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.next_log_us.load(Ordering::Relaxed);
        let next = now.0.saturating_add(LOG_PERIOD_US);
        // Only one of several threads logs.
        let is_due = now.0 >= due
            && self.next_log_us.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_due.then(|| count.saturating_sub(self.logged.swap(count, Ordering::Relaxed)))
    }

    /// Returns the number of events.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// The counts of one identity. A reload keeps them as long as it keeps the identity's name.
#[derive(Debug)]
pub struct Usage {
    /// IDs by shard and source. Each shard writes its own.
    ids: Box<[CachePadded<[Counter; SOURCES_MAX]>]>,
    /// Connections open now.
    pub(super) connections: AtomicU64,
    /// Connections that had this identity so far.
    pub(super) connected: AtomicU64,
    /// Requests that came under its limits.
    pub asked: AtomicU64,
    /// Requests to sources that it may not draw from.
    pub denied: Events,
    /// Requests that waited for its rate, or were refused for it.
    pub slowed: Events,
}

impl Usage {
    pub(super) fn new(shards: usize) -> Self {
        let of_shard = || CachePadded::new(std::array::from_fn(|_| Counter::default()));
        Usage {
            ids: std::iter::repeat_with(of_shard).take(shards).collect(),
            connections: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            denied: Events::default(),
            slowed: Events::default(),
        }
    }

    /// Counts IDs that a shard hands out. Only that shard's thread may.
    #[inline]
    pub(crate) fn note_ids(&self, shard: usize, source: usize, count: u64) {
        if let Some(of_shard) = self.ids.get(shard) {
            of_shard[source].add(count);
        }
    }

    /// Returns the IDs drawn from a source.
    pub(crate) fn ids(&self, source: usize) -> u64 {
        self.ids.iter().map(|of_shard| of_shard[source].get()).sum()
    }

    /// Returns the connections that have this identity now.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the connections that had this identity so far.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_a_minute_counts_all_events_since_the_last() {
        let (events, second) = (Events::default(), 1_000_000);
        assert_eq!(events.note(BootMicros(5 * second)), Some(1));
        assert_eq!(events.note(BootMicros(6 * second)), None);
        assert_eq!(events.note(BootMicros(64 * second)), None);
        assert_eq!(events.note(BootMicros(65 * second)), Some(3));
        assert_eq!(events.count(), 4);
    }
}
