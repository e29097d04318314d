//! What clients experienced in the last minute: refused requests, slow requests, connections. The
//! figures are differences between samples at two moments, so they need no counting of their own at
//! each request.
//!
//! A share is computed for the last minute and for the last ten seconds, and the lower share is
//! used. The share of the minute prevents an alarm after a short disturbance. The share of the ten
//! seconds makes an alarm end soon after its cause has ended.

use std::collections::VecDeque;

use super::figures::Figure::*;
use super::figures::Group;
use super::findings::slow_s;
use super::latency::Latency;
use super::samples::{Samples, Subject};

/// The time that most figures cover.
const MINUTE_S: f64 = 60.0;
/// The shorter time that shares cover. An alarm ends some 15 s after its cause has ended.
const SOON_S: f64 = 10.0;
/// The least time between two moments. A figure may cover about this much more than its nominal
/// time.
const EVERY_S: f64 = 5.0;
/// The moments of a minute, the moment before that minute, and one moment to spare.
const MOMENTS_MAX: usize = 14;
/// The number of refused, slow or limited requests below which their share counts as 0. On a quiet
/// daemon, a single refusal would be a large share.
const COUNT_MIN: u64 = 5;

/// The growing figures at moments of the last minute, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    moments: VecDeque<Samples>,
    /// The daemon's uptime when the grant of a source was last seen under way.
    under_way_s: Option<f64>,
}

impl Recent {
    /// Adds the figures of the last minute.
    pub(crate) fn fill(&self, now: &mut Samples) {
        let minute = self.window(now, MINUTE_S);
        let soon = self.window(now, SOON_S);
        let slow_s = slow_s(now);
        for (index, of) in now.others.iter_mut().enumerate() {
            let [minute, soon] = [&minute, &soon].map(|window| &window.others[index]);
            match of.group {
                Group::Source => fill_source(of, minute, soon),
                Group::Identity => fill_identity(of, minute, soon),
                Group::Daemon | Group::Protocol | Group::Pool => {}
            }
        }
        let slow_share = |window: &Samples| slow_share(&window.daemon.latency(), slow_s);
        // Requests wait for the start of their source. That is no fault, so they count for nothing.
        let passed_s = self.under_way_s.map_or(f64::MAX, |at_s| uptime_s(now) - at_s);
        let is_starting = is_under_way(now) || passed_s < SOON_S + EVERY_S;
        let slow_share = if is_starting { 0.0 } else { slow_share(&minute).min(slow_share(&soon)) };
        now.daemon
            .put(MinuteS, minute.daemon.measure(UptimeS))
            .put(MinuteP99Us, minute.daemon.latency().quantile_us(0.99))
            .put(MinuteSlowShare, slow_share)
            .put(MinuteConnectionsRefused, soon.daemon.count(ConnectionsRefused))
            .put(MinuteAnswers, minute.sum(ProtocolRequests))
            .put(MinuteErrors, minute.sum(ProtocolErrors))
            .put(MinuteUnauthorized, unauthorized(&minute.daemon))
            .put(UnauthorizedLately, unauthorized(&soon.daemon));
    }

    /// Returns how the figures have grown in the last `over_s` seconds.
    fn window(&self, now: &Samples, over_s: f64) -> Samples {
        let from_s = uptime_s(now) - over_s;
        // At the daemon's start, all counters are 0.
        let at_start = Samples::default();
        let first = if from_s <= 0.0 { None } else { self.moments.front() };
        let before = self.moments.iter().rev().find(|moment| uptime_s(moment) <= from_s);
        now.since(before.or(first).unwrap_or(&at_start))
    }

    /// Keeps the moment if the last one is at least [`EVERY_S`] old.
    pub(crate) fn observe(&mut self, now: &Samples) {
        if is_under_way(now) {
            self.under_way_s = Some(uptime_s(now));
        }
        if self.moments.back().is_some_and(|last| uptime_s(now) - uptime_s(last) < EVERY_S) {
            return;
        }
        if self.moments.len() == MOMENTS_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back(now.since(&Samples::default()));
    }
}

fn uptime_s(samples: &Samples) -> f64 {
    samples.daemon.measure(UptimeS)
}

fn is_under_way(samples: &Samples) -> bool {
    samples.sources().any(|source| source.is(IsUnderWay))
}

fn fill_source(source: &mut Subject, minute: &Subject, soon: &Subject) {
    let share = |of: &Subject| share(of.count(SourceExhausted), of.count(SourceRequests));
    source
        .put(MinuteSourceRequests, minute.count(SourceRequests))
        .put(MinuteSourceRefused, minute.count(SourceRefused))
        .put(MinuteExhausted, minute.count(SourceExhausted))
        .put(MinuteExhaustedShare, share(minute).min(share(soon)));
}

fn fill_identity(identity: &mut Subject, minute: &Subject, soon: &Subject) {
    let limited = |of: &Subject| of.count(IdentityDenied) + of.count(IdentitySlowed);
    let share = |of: &Subject| share(limited(of), of.count(IdentityRequests));
    identity
        .put(MinuteIdentityRequests, minute.count(IdentityRequests))
        .put(MinuteLimited, limited(minute))
        .put(MinuteLimitedShare, share(minute).min(share(soon)));
}

/// Returns the requests and connections whose clients did not authorize themselves.
fn unauthorized(daemon: &Subject) -> u64 {
    [UnauthorizedRefusals, Evicted, UnauthorizedTimeouts].map(|figure| daemon.count(figure)).iter().sum()
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
    use super::super::samples::tests::healthy_but;
    use super::*;
    use serde_json::json;

    /// A daemon's samples, which are observed once a second.
    struct Watched {
        now: Samples,
        recent: Recent,
        /// The samples with the last minute.
        filled: Samples,
    }

    impl Watched {
        fn new() -> Watched {
            let now = healthy_but([(UptimeS, json!(0.0)), (SourceRequests, json!(0))]);
            Watched { filled: now.clone(), now, recent: Recent::default() }
        }

        /// Makes the change once a second until the condition holds. Returns how many seconds that
        /// took.
        fn seconds_until(&mut self, change: impl Fn(&mut Samples), is_met: impl Fn(&Samples) -> bool) -> u32 {
            for seconds in 1..=200 {
                self.pass(1, &change);
                if is_met(&self.filled) {
                    return seconds;
                }
            }
            panic!("the condition never held: {:?}", self.filled);
        }

        fn pass(&mut self, seconds: u32, change: impl Fn(&mut Samples)) {
            for _ in 0..seconds {
                let uptime_s = self.now.daemon.measure(UptimeS) + 1.0;
                self.now.daemon.set(UptimeS, uptime_s);
                change(&mut self.now);
                self.recent.observe(&self.now);
                self.filled = self.now.clone();
                self.recent.fill(&mut self.filled);
            }
        }

        fn exhausted_share(&self) -> f64 {
            exhausted_share(&self.filled)
        }
    }

    /// Returns a change that counts `all` requests, of which `refused` were refused.
    fn requests(all: u64, refused: u64) -> impl Fn(&mut Samples) {
        move |samples| {
            let source = samples.first_source();
            source.add(SourceRequests, all).add(SourceRefused, refused).add(SourceExhausted, refused);
        }
    }

    fn exhausted_share(samples: &Samples) -> f64 {
        samples.sources().next().expect("a source").measure(MinuteExhaustedShare)
    }

    #[test]
    fn the_exhausted_share_rises_and_falls_within_seconds() {
        for (refused, share) in [(30, 0.01), (700, 0.1)] {
            let mut watched = Watched::new();
            watched.pass(120, requests(1_000, 0));
            assert_eq!(watched.exhausted_share(), 0.0);
            let is_raised = |samples: &Samples| exhausted_share(samples) >= share;
            let raised = watched.seconds_until(requests(1_000, refused), is_raised);
            assert!(raised <= 30, "{refused} of 1,000: {raised} s");
            watched.pass(60, requests(1_000, refused));
            let minute = watched.filled.daemon.measure(MinuteS);
            assert!((60.0..=65.0).contains(&minute), "{minute}");
            assert_eq!(watched.filled.first_source().count(MinuteSourceRefused), refused * minute as u64);
            let lowered =
                watched.seconds_until(requests(1_000, 0), |samples| exhausted_share(samples) == 0.0);
            assert!((5..=16).contains(&lowered), "{lowered}");
        }
    }

    #[test]
    fn a_few_refusals_on_a_quiet_daemon_are_ignored() {
        let mut watched = Watched::new();
        watched.pass(1, requests(COUNT_MIN - 1, COUNT_MIN - 1));
        assert_eq!(watched.exhausted_share(), 0.0);
        watched.pass(1, requests(1, 1));
        assert_eq!(watched.exhausted_share(), 1.0, "two seconds of samples are enough");
    }

    #[test]
    fn requests_above_half_of_the_default_wait_are_slow() {
        let slow = |share_percent: u64| {
            move |samples: &mut Samples| {
                let mut latency = samples.daemon.latency();
                latency.counts[0] += 1_000 - 10 * share_percent;
                // This bucket is above 500 ms, which is half of the default wait.
                latency.counts[15] += 10 * share_percent;
                samples.daemon.set(Durations, latency.value());
            }
        };
        let mut watched = Watched::new();
        watched.now.first_source().put(IsUnderWay, true);
        watched.pass(5, slow(50));
        watched.now.first_source().set(IsUnderWay, false);
        let share = |samples: &Samples| samples.daemon.measure(MinuteSlowShare);
        for _ in 0..30 {
            assert_eq!(share(&watched.filled), 0.0, "requests waited for the start");
            watched.pass(1, slow(0));
        }
        watched.pass(100, slow(0));
        assert_eq!(share(&watched.filled), 0.0);
        assert!(watched.seconds_until(slow(50), |samples| share(samples) >= 0.01) <= 10);
        watched.pass(100, slow(50));
        assert_eq!(share(&watched.filled), 0.5);
        assert!(watched.filled.daemon.measure(MinuteP99Us) > 500_000.0);
        assert!(watched.seconds_until(slow(0), |samples| share(samples) == 0.0) <= 16);
    }
}
