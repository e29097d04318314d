//! The last hour, as one point for each half minute, for an operator who opens the page after an
//! incident.

use std::collections::VecDeque;

use serde::Serialize;

use super::figures::Figure::*;
use super::samples::Samples;

/// The time that a point covers. It is short enough to show when an incident began, and long enough
/// that the points of an hour take at most 40 KB.
const POINT_S: f64 = 30.0;
/// The number of points in an hour. A point takes 60 bytes if the daemon has one source, and 300
/// bytes if it has 64. With 1,024 the page reads 500 KB once.
const POINTS_MAX: usize = 120;

/// The points of the last hour.
#[derive(Debug, Default, Serialize)]
pub(crate) struct History {
    /// The time that a point covers, in seconds.
    every_s: f64,
    /// The points, the oldest first.
    points: VecDeque<Point>,
    /// The counters at the end of the last point. At the daemon's start, all counters are 0.
    #[serde(skip)]
    before: Samples,
    /// The indices of the sources whose rates each point has.
    #[serde(skip)]
    order: Vec<usize>,
}

/// The rates and latencies of half a minute.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Point {
    /// The end of the half minute.
    uptime_s: f64,
    /// IDs per second, by source, in the order of the status.
    ids: Box<[f32]>,
    /// Requests for IDs per second, and refused requests per second.
    requests: f32,
    refused: f32,
    /// The times within which 50, 99 and 99.9 % of requests were answered. `None`: there were no
    /// requests.
    latency_s: [Option<f32>; 3],
}

impl Point {
    /// Puts the rates of sources into the order `after`, once a reload has added or removed sources.
    fn reorder(&mut self, before: &[usize], after: &[usize]) {
        let rate_of = |index| before.iter().position(|of| of == index).map_or(0.0, |at| self.ids[at]);
        self.ids = after.iter().map(rate_of).collect();
    }
}

impl History {
    /// Adds a point once the last point is half a minute old. Must be called every few seconds.
    pub(crate) fn observe(&mut self, now: &Samples) {
        let over_s = now.daemon.measure(UptimeS) - self.before.daemon.measure(UptimeS);
        if over_s < POINT_S {
            return;
        }
        let since = now.since(&self.before);
        self.before = now.since(&Samples::default());
        let order: Vec<usize> = now.sources().map(|source| source.index).collect();
        if order != self.order {
            let before = std::mem::replace(&mut self.order, order);
            self.points.iter_mut().for_each(|point| point.reorder(&before, &self.order));
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.every_s = POINT_S;
        let per_second = |count: u64| (count as f64 / over_s) as f32;
        let latency = since.daemon.latency();
        self.points.push_back(Point {
            uptime_s: now.daemon.measure(UptimeS),
            ids: since.sources().map(|source| per_second(source.count(SourceIds))).collect(),
            requests: per_second(since.sum(SourceRequests)),
            refused: per_second(since.sum(SourceRefused)),
            latency_s: [0.5, 0.99, 0.999].map(|share| latency.quantile_us(share).map(|us| (us / 1e6) as f32)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::tests::healthy_but;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_history_has_an_hour_of_half_minute_points() {
        let mut history = History::default();
        let mut now = healthy_but([(SourceIds, json!(0)), (SourceRequests, json!(0))]);
        let mut latency = now.daemon.latency();
        for second in 1..=7_200 {
            let refused = u64::from(second > 7_100) * 4;
            now.first_source().add(SourceIds, 50).add(SourceRequests, 10).add(SourceRefused, refused);
            latency.counts[7] += 10;
            now.daemon.set(UptimeS, f64::from(second)).set(Durations, latency.value());
            history.observe(&now);
        }
        assert_eq!(history.points.len(), POINTS_MAX);
        let first = &history.points[0];
        let last = &history.points[POINTS_MAX - 1];
        assert_eq!((first.uptime_s, last.uptime_s), (3_630.0, 7_200.0));
        assert_eq!((&*first.ids, first.requests, first.refused), (&[50.0][..], 10.0, 0.0));
        assert_eq!((last.refused, last.latency_s[1].is_some_and(|p99_s| p99_s <= 0.002)), (4.0, true));
        let json = serde_json::to_string(&history).unwrap();
        assert!(json.len() < 20_000, "{}", json.len());
    }
}
