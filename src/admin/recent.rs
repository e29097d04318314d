//! What clients experienced in the last minute: refused requests, slow requests, connections. The
//! figures are differences between samples of the counters, so they need no counting of their own
//! at each request.
//!
//! A share is computed for the last minute and for the last ten seconds, and the lower share is
//! used. The share of the minute prevents an alarm after a short disturbance. The share of the ten
//! seconds makes an alarm end soon after its cause has ended.

use std::collections::{BTreeMap, VecDeque};

use super::counts::{AccessCounts, SourceCounts};
use super::status::{LastMinute, Latency, LimitedMinute, SourceMinute, Status};

/// The time that most figures cover.
const MINUTE_S: f64 = 60.0;
/// The shorter time that shares cover. An alarm ends some 15 s after its cause has ended.
const SOON_S: f64 = 10.0;
/// The least time between two samples. A figure may cover about this much more than its nominal
/// time.
const SAMPLE_EVERY_S: f64 = 5.0;
/// The samples of a minute, the sample before that minute, and one sample to spare.
const SAMPLES_MAX: usize = 14;
/// The number of refused, slow or limited requests below which their share counts as 0. On a quiet
/// daemon, a single refusal would be a large share.
const COUNT_MIN: u64 = 5;

/// The counters at one moment, or the differences between two moments.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The time since the daemon's start, or between the two moments.
    pub(super) at_s: f64,
    /// The counters of each source, by index.
    /// The counts of the sources, by their indices in the daemon.
    pub(super) sources: BTreeMap<usize, SourceCounts>,
    /// The counters of each identity. The key is the identity's name, because a reload can add and
    /// remove identities.
    identities: BTreeMap<String, LimitedMinute>,
    pub(super) latency: Latency,
    connections_refused: u64,
    answers: u64,
    errors: u64,
    unauthorized: u64,
}

/// The samples of the last minute, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    samples: VecDeque<Sample>,
}

impl Sample {
    pub(super) fn of(status: &Status) -> Sample {
        let identities = status.identities.iter();
        let AccessCounts { unauthorized_refusals, unauthorized_timeouts } = status.connections.access;
        Sample {
            at_s: status.uptime_s,
            sources: status.sources.iter().map(|source| (source.index, source.counts)).collect(),
            identities: identities.map(|identity| (identity.name.clone(), identity.counted())).collect(),
            latency: status.latency.clone(),
            connections_refused: status.connections.refused,
            answers: status.protocols.iter().map(|protocol| protocol.counts.requests).sum(),
            errors: status.protocols.iter().map(|protocol| protocol.counts.errors).sum(),
            unauthorized: unauthorized_refusals + status.connections.evicted + unauthorized_timeouts,
        }
    }

    /// Returns the differences from an earlier sample.
    pub(super) fn since(mut self, then: &Sample) -> Sample {
        for (index, now) in &mut self.sources {
            *now = *now - then.sources.get(index).copied().unwrap_or_default();
        }
        for (name, now) in &mut self.identities {
            let then = then.identities.get(name).copied().unwrap_or_default();
            now.requests = now.requests.saturating_sub(then.requests);
            now.limited = now.limited.saturating_sub(then.limited);
        }
        Sample {
            at_s: self.at_s - then.at_s,
            latency: self.latency.since(&then.latency),
            connections_refused: self.connections_refused.saturating_sub(then.connections_refused),
            answers: self.answers.saturating_sub(then.answers),
            errors: self.errors.saturating_sub(then.errors),
            unauthorized: self.unauthorized.saturating_sub(then.unauthorized),
            ..self
        }
    }

    pub(super) fn per_second(&self, count: u64) -> f32 {
        (count as f64 / self.at_s) as f32
    }
}

impl Recent {
    /// Fills in the figures of the last minute.
    pub(crate) fn fill(&self, status: &mut Status) {
        let minute = self.window(status, MINUTE_S);
        let soon = self.window(status, SOON_S);
        for identity in &mut status.identities {
            let minute = minute.identities[&identity.name];
            let soon = soon.identities[&identity.name];
            let limited_share =
                share(minute.limited, minute.requests).min(share(soon.limited, soon.requests));
            identity.last_minute = LimitedMinute { limited_share, ..minute };
        }
        for source in &mut status.sources {
            let SourceCounts { requests, refused, exhausted, .. } = minute.sources[&source.index];
            let soon = soon.sources[&source.index];
            let exhausted_share = share(exhausted, requests).min(share(soon.exhausted, soon.requests));
            source.last_minute = SourceMinute { requests, refused, exhausted, exhausted_share };
        }
        let slow_s = status.slow_s();
        status.last_minute = LastMinute {
            over_s: minute.at_s,
            p99_us: minute.latency.quantile_us(0.99),
            slow_share: slow_share(&minute.latency, slow_s).min(slow_share(&soon.latency, slow_s)),
            connections_refused: soon.connections_refused,
            answers: minute.answers,
            errors: minute.errors,
            unauthorized: minute.unauthorized,
            unauthorized_lately: soon.unauthorized,
        };
    }

    /// Returns the counts of the last `over_s` seconds.
    fn window(&self, status: &Status, over_s: f64) -> Sample {
        let from_s = status.uptime_s - over_s;
        // At the daemon's start, all counters are 0.
        let at_start = Sample::default();
        let first = if from_s <= 0.0 { None } else { self.samples.front() };
        let before = self.samples.iter().rev().find(|sample| sample.at_s <= from_s);
        let before = before.or(first).unwrap_or(&at_start);
        Sample::of(status).since(before)
    }

    /// Takes a sample if the last sample is at least [`SAMPLE_EVERY_S`] old.
    pub(crate) fn observe(&mut self, status: &Status) {
        let is_due = self.samples.back().is_none_or(|last| status.uptime_s - last.at_s >= SAMPLE_EVERY_S);
        if !is_due {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample::of(status));
    }
}

/// Returns the share of requests that took longer than the highest bound up to `slow_s`. Returns 0
/// if fewer than [`COUNT_MIN`] requests did.
fn slow_share(latency: &Latency, slow_s: f64) -> f64 {
    let first = latency.bounds_us.partition_point(|&bound_us| bound_us as f64 / 1e6 <= slow_s);
    share(latency.counts.iter().skip(first).sum(), latency.count())
}

/// Returns `some` as a share of `all`. Returns 0 if `some` is below [`COUNT_MIN`].
fn share(some: u64, all: u64) -> f64 {
    if some < COUNT_MIN { 0.0 } else { some as f64 / all.max(some) as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::healthy;
    use super::*;

    /// A daemon's status, which is observed once a second.
    struct Watched {
        status: Status,
        recent: Recent,
    }

    impl Watched {
        fn new() -> Watched {
            let mut status = healthy();
            (status.uptime_s, status.sources[0].counts.requests) = (0.0, 0);
            Watched { status, recent: Recent::default() }
        }

        /// Makes the change once a second until the condition holds. Returns how many seconds that
        /// took.
        fn seconds_until(&mut self, change: impl Fn(&mut Status), is_met: impl Fn(&Status) -> bool) -> u32 {
            for seconds in 1..=200 {
                self.pass(1, &change);
                if is_met(&self.status) {
                    return seconds;
                }
            }
            panic!("the condition never held: {:?}", self.status);
        }

        fn pass(&mut self, seconds: u32, change: impl Fn(&mut Status)) {
            for _ in 0..seconds {
                self.status.uptime_s += 1.0;
                change(&mut self.status);
                self.recent.observe(&self.status);
                self.recent.fill(&mut self.status);
            }
        }
    }

    /// Returns a change that counts `all` requests, of which `refused` were refused.
    fn requests(all: u64, refused: u64) -> impl Fn(&mut Status) {
        move |status| {
            status.sources[0].counts.requests += all;
            status.sources[0].counts.refused += refused;
            status.sources[0].counts.exhausted += refused;
        }
    }

    fn exhausted_share(status: &Status) -> f64 {
        status.sources[0].last_minute.exhausted_share
    }

    #[test]
    fn the_exhausted_share_rises_and_falls_within_seconds() {
        for (refused, share) in [(30, 0.01), (700, 0.1)] {
            let mut watched = Watched::new();
            watched.pass(120, requests(1_000, 0));
            assert_eq!(exhausted_share(&watched.status), 0.0);
            let is_raised = |status: &Status| exhausted_share(status) >= share;
            let raised = watched.seconds_until(requests(1_000, refused), is_raised);
            assert!(raised <= 30, "{refused} of 1,000: {raised} s");
            watched.pass(60, requests(1_000, refused));
            let minute = watched.status.last_minute.over_s;
            assert!((60.0..=65.0).contains(&minute), "{minute}");
            assert_eq!(watched.status.sources[0].last_minute.refused, refused * minute as u64);
            let lowered = watched.seconds_until(requests(1_000, 0), |status| exhausted_share(status) == 0.0);
            assert!((5..=16).contains(&lowered), "{lowered}");
        }
    }

    #[test]
    fn a_few_refusals_on_a_quiet_daemon_are_ignored() {
        let mut watched = Watched::new();
        watched.pass(1, requests(COUNT_MIN - 1, COUNT_MIN - 1));
        assert_eq!(exhausted_share(&watched.status), 0.0);
        watched.pass(1, requests(1, 1));
        assert_eq!(exhausted_share(&watched.status), 1.0, "two seconds of samples are enough");
    }

    #[test]
    fn requests_above_half_of_the_default_wait_are_slow() {
        let slow = |share_percent: u64| {
            move |status: &mut Status| {
                status.latency.counts[0] += 1_000 - 10 * share_percent;
                // This bucket is above 500 ms, which is half of the default wait.
                status.latency.counts[15] += 10 * share_percent;
            }
        };
        let mut watched = Watched::new();
        watched.pass(100, slow(0));
        assert_eq!(watched.status.last_minute.slow_share, 0.0);
        assert!(watched.seconds_until(slow(50), |status| status.last_minute.slow_share >= 0.01) <= 10);
        watched.pass(100, slow(50));
        assert_eq!(watched.status.last_minute.slow_share, 0.5);
        assert!(watched.status.last_minute.p99_us.is_some_and(|p99_us| p99_us > 500_000.0));
        assert!(watched.seconds_until(slow(0), |status| status.last_minute.slow_share == 0.0) <= 16);
    }
}
