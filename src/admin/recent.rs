//! The last minute as clients experienced it: refused requests, slow requests, connections in use. It comes from samples
//! of the counters, which cost a request nothing. A share of requests counts as high only if it is high over the last
//! minute and over the last ten seconds. The minute keeps a hiccup from raising an alarm. The ten seconds end the alarm
//! soon after its cause. A level of a share is left at a lower value than it was entered at, so that no share makes it
//! flap. Of connections in use only the last ten seconds count.

mod thresholds;

use std::collections::{BTreeMap, VecDeque};

use self::thresholds::{CONNECTIONS, LIMITED, REFUSED, SLOW};
use super::status::{LastMinute, Latency, Level, LimitedMinute, SourceMinute, Status};

/// The time that the figures of a status cover.
const MINUTE_S: f64 = 60.0;
/// The time after which a cause that has ended raises no alarm any more.
const SOON_S: f64 = 10.0;
/// The time between two samples. A window is longer than asked for by at most this.
const SAMPLE_EVERY_S: f64 = 5.0;
/// The last minute's samples, the one before it, and one to spare.
const SAMPLES_MAX: usize = 14;
/// The number of refused or slow requests below which their share is ignored: on a quiet daemon one mistake is a large
/// share.
const COUNT_MIN: u64 = 5;

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    at_s: f64,
    /// By source.
    sources: Vec<SourceMinute>,
    /// By name, because a reload changes their number.
    identities: BTreeMap<String, LimitedMinute>,
    latency: Latency,
    connections_refused: u64,
    answers: u64,
    errors: u64,
    unauthorized: u64,
    /// The highest share of connections in use since the sample before.
    most_open: f64,
}

/// The last minute's samples, and the levels of the last look.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    samples: VecDeque<Sample>,
    /// The highest share of connections in use since the last sample.
    most_open: f64,
    latency: Level,
    connections: Level,
    authorization: Level,
    refusals: Vec<Level>,
    /// By identity.
    identities: BTreeMap<String, Level>,
}

/// The difference of two samples.
struct Window {
    sources: Vec<SourceMinute>,
    identities: Vec<LimitedMinute>,
    latency: Latency,
    connections_refused: u64,
    answers: u64,
    errors: u64,
    unauthorized: u64,
    over_s: f64,
}

impl Recent {
    /// Takes the counters, about once a second, and finds the levels. A level falls some ten seconds after its cause has
    /// ended.
    pub(crate) fn observe(&mut self, status: &Status) {
        let (minute, soon) = (self.window(status, MINUTE_S), self.window(status, SOON_S));
        let refused = minute.sources.iter().zip(&soon.sources);
        let refused = refused.map(|(minute, soon)| minute.refused_share().min(soon.refused_share()));
        self.refusals.resize(status.sources.len(), Level::Ok);
        for (level, share) in self.refusals.iter_mut().zip(refused) {
            *level = REFUSED.level(share, *level);
        }
        let slow = |window: &Window| slow_share(&window.latency, status.slow_s());
        self.latency = SLOW.level(slow(&minute).min(slow(&soon)), self.latency);

        let open = status.connections.open as f64 / status.connections.max.max(1) as f64;
        self.most_open = self.most_open.max(open);
        self.connections = CONNECTIONS.level(self.most_open_soon(status, &soon), self.connections);
        let unauthorized = minute.unauthorized.min(soon.unauthorized);
        self.authorization = if unauthorized >= COUNT_MIN { Level::Warn } else { Level::Ok };
        self.find_limited(status, &minute, &soon);
        self.sample(status);
    }

    /// Finds the levels of clients with limits.
    fn find_limited(&mut self, status: &Status, minute: &Window, soon: &Window) {
        let of = |window: &LimitedMinute| share(window.limited, window.requests);
        let share = |minute, soon| of(minute).min(of(soon));
        let before = std::mem::take(&mut self.identities);
        let shares = minute.identities.iter().zip(&soon.identities).map(|(minute, soon)| share(minute, soon));
        for (identity, share) in status.identities.iter().zip(shares) {
            let was = before.get(&identity.name).copied().unwrap_or_default();
            self.identities.insert(identity.name.clone(), LIMITED.level(share, was));
        }
    }

    /// Fills in the figures of the last minute, and the levels of the last look.
    pub(crate) fn fill(&self, status: &mut Status) {
        let window = self.window(status, MINUTE_S);
        let Window { sources, identities, latency, .. } = window;
        for (identity, minute) in status.identities.iter_mut().zip(identities) {
            let level = self.identities.get(&identity.name).copied().unwrap_or_default();
            identity.last_minute = LimitedMinute { level, ..minute };
        }
        for (index, (source, minute)) in status.sources.iter_mut().zip(sources).enumerate() {
            let level = self.refusals.get(index).copied().unwrap_or_default();
            source.last_minute = SourceMinute { level, ..minute };
        }
        status.last_minute = LastMinute {
            over_s: window.over_s,
            p99_us: latency.quantile_us(0.99),
            connections_refused: window.connections_refused,
            answers: window.answers,
            errors: window.errors,
            unauthorized: window.unauthorized,
            latency_level: self.latency,
            connections_level: self.connections,
            authorization_level: self.authorization,
        };
    }

    /// Returns the highest share of connections in use in the last seconds: 1 if one was refused.
    fn most_open_soon(&self, status: &Status, soon: &Window) -> f64 {
        if soon.connections_refused > 0 {
            return 1.0;
        }
        let samples = self.samples.iter().filter(|sample| sample.at_s > status.uptime_s - SOON_S);
        samples.map(|sample| sample.most_open).fold(self.most_open, f64::max)
    }

    fn window(&self, status: &Status, over_s: f64) -> Window {
        let from_s = status.uptime_s - over_s;
        let is_before = |sample: &&Sample| sample.at_s <= from_s;
        // All counters are 0 at the start.
        let at_start = Sample::default();
        let first = if from_s <= 0.0 { None } else { self.samples.front() };
        let before = self.samples.iter().rev().find(is_before).or(first).unwrap_or(&at_start);
        let sources = status.sources.iter().enumerate().map(|(index, source)| {
            let (now, then) = (source.counted(), before.sources.get(index).copied().unwrap_or_default());
            SourceMinute {
                requests: now.requests.saturating_sub(then.requests),
                refused: now.refused.saturating_sub(then.refused),
                exhausted: now.exhausted.saturating_sub(then.exhausted),
                level: Level::Ok,
            }
        });
        let identities = status.identities.iter().map(|identity| {
            identity.counted().since(before.identities.get(&identity.name).copied().unwrap_or_default())
        });
        Window {
            sources: sources.collect(),
            identities: identities.collect(),
            latency: status.latency.since(&before.latency),
            connections_refused: status.connections.refused.saturating_sub(before.connections_refused),
            answers: status.answers().saturating_sub(before.answers),
            errors: status.answers_with_errors().saturating_sub(before.errors),
            unauthorized: status.unauthorized().saturating_sub(before.unauthorized),
            over_s: status.uptime_s - before.at_s,
        }
    }

    fn sample(&mut self, status: &Status) {
        let is_due = self.samples.back().is_none_or(|last| status.uptime_s - last.at_s >= SAMPLE_EVERY_S);
        if !is_due {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at_s: status.uptime_s,
            sources: status.sources.iter().map(|source| source.counted()).collect(),
            identities: status
                .identities
                .iter()
                .map(|identity| (identity.name.clone(), identity.counted()))
                .collect(),
            latency: status.latency.clone(),
            connections_refused: status.connections.refused,
            answers: status.answers(),
            errors: status.answers_with_errors(),
            unauthorized: status.unauthorized(),
            most_open: std::mem::take(&mut self.most_open),
        });
    }
}

impl SourceMinute {
    /// Returns the share of requests refused. 0 if there are too few requests for a share.
    fn refused_share(&self) -> f64 {
        share(self.refused, self.requests)
    }
}

impl LimitedMinute {
    /// Returns the requests since an earlier moment.
    fn since(self, then: LimitedMinute) -> LimitedMinute {
        let requests = self.requests.saturating_sub(then.requests);
        LimitedMinute { requests, limited: self.limited.saturating_sub(then.limited), level: Level::Ok }
    }
}

/// Returns the share of requests that took longer than this. 0 if there are too few requests for a share.
fn slow_share(latency: &Latency, slow_s: f64) -> f64 {
    let is_slow = |bound_us: u64| bound_us as f64 / 1e6 > slow_s;
    let first = latency.bounds_us.partition_point(|&bound_us| !is_slow(bound_us));
    share(latency.counts.iter().skip(first).sum(), latency.count())
}

fn share(some: u64, all: u64) -> f64 {
    if some < COUNT_MIN { 0.0 } else { some as f64 / all.max(some) as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::healthy;
    use super::*;

    /// A daemon that is observed once a second.
    struct Watched {
        status: Status,
        recent: Recent,
    }

    impl Watched {
        fn new() -> Watched {
            let mut status = healthy();
            (status.uptime_s, status.sources[0].requests) = (0.0, 0);
            Watched { status, recent: Recent::default() }
        }

        /// Lets seconds pass, each with changes of the counters, until the condition holds. Returns their number.
        fn seconds_until(&mut self, change: impl Fn(&mut Status), is_met: impl Fn(&Status) -> bool) -> u32 {
            for seconds in 1..=200 {
                self.status.uptime_s += 1.0;
                change(&mut self.status);
                self.recent.observe(&self.status);
                self.recent.fill(&mut self.status);
                if is_met(&self.status) {
                    return seconds;
                }
            }
            panic!("it never was: {:?}", self.status);
        }

        fn pass(&mut self, seconds: u32, change: impl Fn(&mut Status)) {
            let passed = std::cell::Cell::new(0);
            self.seconds_until(change, |_| passed.replace(passed.get() + 1) + 1 == seconds);
        }
    }

    /// A second with requests of which some are refused.
    fn requests(all: u64, refused: u64) -> impl Fn(&mut Status) {
        move |status| {
            status.sources[0].requests += all;
            status.sources[0].refused += refused;
            status.sources[0].exhausted += refused;
        }
    }

    fn refusals(level: Level) -> impl Fn(&Status) -> bool {
        move |status| status.sources[0].last_minute.level == level
    }

    #[test]
    fn refusals_raise_their_level_within_seconds_and_lower_it_soon_after() {
        for (refused, level) in [(30, Level::Warn), (700, Level::Fail)] {
            let mut watched = Watched::new();
            watched.pass(120, requests(1_000, 0));
            assert!(refusals(Level::Ok)(&watched.status));
            let raised = watched.seconds_until(requests(1_000, refused), refusals(level));
            assert!(raised <= 30, "{refused} of 1,000: {raised} s");
            watched.pass(60, requests(1_000, refused));
            let minute = watched.status.last_minute.over_s;
            assert!((60.0..=65.0).contains(&minute), "{minute}");
            assert_eq!(watched.status.sources[0].last_minute.refused, refused * minute as u64);
            let lowered = watched.seconds_until(requests(1_000, 0), refusals(Level::Ok));
            assert!((5..=16).contains(&lowered), "{lowered}");
        }
    }

    #[test]
    fn a_share_at_a_threshold_does_not_flap() {
        let mut watched = Watched::new();
        watched.seconds_until(requests(1_000, 12), refusals(Level::Warn));
        for second in 0..100 {
            watched.pass(1, requests(1_000, if second % 20 < 10 { 8 } else { 12 }));
            assert!(refusals(Level::Warn)(&watched.status), "{second}");
        }
    }

    #[test]
    fn a_few_refusals_on_a_quiet_daemon_are_no_alarm() {
        let mut watched = Watched::new();
        watched.pass(1, requests(COUNT_MIN - 1, COUNT_MIN - 1));
        assert!(refusals(Level::Ok)(&watched.status));
        watched.pass(1, requests(1, 1));
        assert!(refusals(Level::Fail)(&watched.status), "from the first second on");
    }

    #[test]
    fn one_slow_request_in_a_hundred_is_a_warning() {
        let slow = |share_percent: u64| {
            move |status: &mut Status| {
                status.latency.counts[0] += 1_000 - 10 * share_percent;
                // Above 500 ms, half of the default wait.
                status.latency.counts[15] += 10 * share_percent;
            }
        };
        let level = |level| move |status: &Status| status.last_minute.latency_level == level;
        let mut watched = Watched::new();
        watched.pass(100, slow(0));
        assert!(level(Level::Ok)(&watched.status));
        assert!(watched.seconds_until(slow(50), level(Level::Warn)) <= 10);
        watched.pass(100, slow(50));
        assert!(level(Level::Warn)(&watched.status), "served, so that it does not fail");
        assert!(watched.status.last_minute.p99_us.is_some_and(|p99_us| p99_us > 500_000.0));
        assert!(watched.seconds_until(slow(0), level(Level::Ok)) <= 16);
    }

    #[test]
    fn connections_in_use_are_noticed_also_between_two_looks() {
        let level = |level| move |status: &Status| status.last_minute.connections_level == level;
        let open = |open| move |status: &mut Status| status.connections.open = open;
        let mut watched = Watched::new();
        watched.pass(20, open(8));
        assert!(level(Level::Ok)(&watched.status));
        watched.pass(1, open(9));
        assert!(level(Level::Warn)(&watched.status));
        watched.pass(1, open(10));
        assert!(level(Level::Fail)(&watched.status));
        assert!((5..=16).contains(&watched.seconds_until(open(1), level(Level::Ok))));
        watched.pass(1, |status| status.connections.refused += 1);
        assert!(level(Level::Fail)(&watched.status), "one was refused, and all are closed again");
        assert!((5..=16).contains(&watched.seconds_until(open(1), level(Level::Ok))));
    }
}
