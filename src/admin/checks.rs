//! The checks of a status, in words for the operator. They decide whether the daemon is ready.
//!
//! - Fail: requests are refused, so a load balancer should send them elsewhere.
//! - Warn: requests are served, and an operator should look.
//!
//! A daemon that is saturated warns and does not fail: it still hands out IDs at its full rate, and out of service it would
//! hand out none.

use super::status::{CertificateStatus, Check, CheckName, ClockState, Level, SourceStatus, Status};
use crate::config::Grouped;

/// The time after which a raise fails the check if a request waits for it.
const SLOW_RAISE_S: f64 = 1.0;
/// The share of the default wait above which the wait queue counts as saturated. New requests are then refused, or soon
/// will be.
const SATURATED_SHARE: f64 = 0.75;
/// The remaining life below which a layout must be replaced.
const LAST_YEARS: f64 = 1.0;

impl Status {
    /// Runs all checks, and decides whether the daemon is ready.
    pub(crate) fn check(&mut self) {
        let mut checks = vec![self.check_stop(), self.check_worker_ids()];
        checks.extend(self.check_wall_clock());
        for source in &self.sources {
            checks.push(self.check_clock(source));
            checks.push(self.check_ceiling(source));
            checks.push(check_saturation(source));
            checks.push(check_layout(source));
        }
        checks.extend(self.certificate.as_ref().map(check_certificate));
        // The worst first, and equals in the order above.
        checks.sort_by_key(|check| check.level);
        self.ready = checks.iter().all(|check| check.level != Level::Fail);
        self.checks = checks;
    }

    /// Returns the checks that fail or warn, the worst first.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.level != Level::Ok)
    }

    fn check_stop(&self) -> Check {
        let (level, message) = match self.draining {
            true => (Level::Fail, "stopping: answers the requests that have arrived, and accepts no more"),
            false => (Level::Ok, "serving"),
        };
        Check { name: CheckName::Stop, source: None, level, message: message.to_owned() }
    }

    fn check_worker_ids(&self) -> Check {
        let (level, message) = match &self.ceilings.lost {
            Some(reason) => (
                Level::Fail,
                format!(
                    "lost: {reason}; no more IDs are handed out: stop this daemon, and find the other one"
                ),
            ),
            None => (Level::Ok, String::from("held by this daemon alone")),
        };
        Check { name: CheckName::WorkerIds, source: None, level, message }
    }

    /// Checks the machine's clock. Its effect on a source is that source's check.
    fn check_wall_clock(&self) -> Option<Check> {
        let by = seconds(self.clock.by_s);
        let message = match self.clock.state {
            ClockState::Steady => return None,
            ClockState::Behind => {
                format!("the wall clock is {by} behind IDs already handed out: check time synchronisation")
            }
            ClockState::Held => format!(
                "the wall clock stepped forward by {by}, and is not followed until the step has lasted: check time synchronisation"
            ),
        };
        Some(Check { name: CheckName::Clock, source: None, level: Level::Warn, message })
    }

    fn check_clock(&self, source: &SourceStatus) -> Check {
        let (level, message) = if source.stands_s > 0.0 {
            let wait = seconds(source.stands_s);
            (
                Level::Fail,
                format!(
                    "the wall clock is too far behind IDs already handed out: refuses with clock_behind for another {wait}"
                ),
            )
        } else if source.ahead_s > 0.0 {
            let (ahead, most) = (seconds(source.ahead_s), seconds(source.max_ahead_s));
            let message = format!(
                "catching up: {ahead} ahead of the wall clock, at half speed until that has caught up; at most {most} is allowed"
            );
            // After a crash or a takeover, a catch-up is normal.
            let is_odd = self.clock.state != ClockState::Steady;
            (if is_odd { Level::Warn } else { Level::Ok }, message)
        } else {
            (Level::Ok, String::from("follows the wall clock"))
        };
        about(source, CheckName::Clock, level, message)
    }

    fn check_ceiling(&self, source: &SourceStatus) -> Check {
        let ceilings = &self.ceilings;
        let left = seconds(source.headroom_s);
        let is_reached = source.headroom_s <= 0.0;
        let (level, message) = match &ceilings.failing {
            _ if ceilings.lost.is_some() => {
                (Level::Fail, String::from("revoked, because the worker IDs are lost"))
            }
            Some(reason) if is_reached => (
                Level::Fail,
                format!(
                    "reached, and cannot be raised: {reason}; refuses with no_ceiling until storage works: check the state directory's disk"
                ),
            ),
            Some(reason) => (
                Level::Warn,
                format!(
                    "cannot be raised: {reason}; IDs last for another {left}: check the state directory's disk"
                ),
            ),
            None if is_reached && source.ceiling_wanted && ceilings.under_way_s > SLOW_RAISE_S => {
                let took = seconds(ceilings.under_way_s);
                (Level::Fail, format!("reached; storage has taken {took} so far to raise it: requests wait"))
            }
            None if is_reached && source.ceiling_wanted => {
                (Level::Ok, String::from("reached, and being raised"))
            }
            None if is_reached => (Level::Ok, String::from("unused, and raised with the next request")),
            None => (Level::Ok, format!("durable for {left} ahead")),
        };
        about(source, CheckName::Ceiling, level, message)
    }
}

fn check_saturation(source: &SourceStatus) -> Check {
    let (requests, ids) = (Grouped(source.waiting_requests), Grouped(source.waiting_ids));
    let is_held_up = source.stands_s > 0.0 || source.headroom_s <= 0.0;
    let is_saturated = source.line_s > 0.0 && source.line_s >= SATURATED_SHARE * source.default_wait_s;
    let (level, message) = if is_saturated && !is_held_up {
        let (line, rate) = (seconds(source.line_s), Grouped(source.ids_per_second));
        (
            Level::Warn,
            format!(
                "saturated: {requests} requests wait for {ids} IDs, which take {line} at the full rate of the layout \
                 ({rate} IDs/s); more requests are refused with exhausted. More worker IDs raise the rate"
            ),
        )
    } else if source.waiting_ids > 0 {
        (
            Level::Ok,
            format!("waiting requests: {requests}, for {ids} IDs, which take {}", seconds(source.line_s)),
        )
    } else {
        (Level::Ok, String::from("no request waits"))
    };
    about(source, CheckName::Saturation, level, message)
}

fn check_layout(source: &SourceStatus) -> Check {
    let (ends, years) = (&source.layout_ends, source.layout_years_left);
    let (level, message) = if years <= 0.0 {
        (Level::Fail, format!("the layout ended {ends}: change to another (a later epoch, or more time)"))
    } else if years < LAST_YEARS {
        let days = (years * 365.25) as u64;
        (
            Level::Warn,
            format!("the layout ends {ends}, in {days} days: plan for another (a later epoch, or more time)"),
        )
    } else {
        (Level::Ok, format!("the layout lasts until {ends}"))
    };
    about(source, CheckName::Layout, level, message)
}

/// Checks the certificate. Never a failure, because clients without TLS and open connections are still served.
fn check_certificate(certificate: &CertificateStatus) -> Check {
    let (level, message) = match &certificate.warning {
        Some(warning) => (Level::Warn, warning.clone()),
        None => (Level::Ok, String::from("lasts for another month and longer")),
    };
    Check { name: CheckName::Certificate, source: None, level, message }
}

fn about(source: &SourceStatus, name: CheckName, level: Level, message: String) -> Check {
    Check { name, source: Some(source.name.clone()), level, message }
}

/// Formats a length of time for people: `2.9 s`, `340 ms`, `4 min`, `3 h`, `2 days`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        ..0.001 if seconds > 0.0 => format!("{:.0} µs", seconds * 1e6),
        0.001..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::{CeilingsStatus, ClockStatus, Connections, Latency};
    use super::*;

    /// A healthy daemon's status.
    pub(crate) fn healthy() -> Status {
        let source = SourceStatus {
            name: String::from("orders"),
            layout: String::from("twitter"),
            worker_ids: String::from("0"),
            ids_per_second: 4_096_000,
            ids: 10,
            requests: 1,
            exhausted: 0,
            waits: 0,
            waiting_requests: 0,
            waiting_ids: 0,
            line_s: 0.0,
            default_wait_s: 1.0,
            headroom_s: 2.5,
            ceiling_wanted: false,
            ahead_s: 0.0,
            max_ahead_s: 10.0,
            stands_s: 0.0,
            layout_ends: String::from("2080-07-10"),
            layout_years_left: 54.0,
        };
        let mut status = Status {
            version: String::from("0.1.0"),
            instance: String::from("host-1"),
            started_unix_s: 1_800_000_000.0,
            uptime_s: 60.0,
            ready: false,
            checks: Vec::new(),
            draining: false,
            shards: 2,
            order: String::from("relaxed"),
            clock: ClockStatus { state: ClockState::Steady, by_s: 0.0, steps_back: 0, steps_forward: 0 },
            ceilings: CeilingsStatus {
                raises: 1,
                failures: 0,
                raising_s: 0.002,
                last_raise_ago_s: Some(0.5),
                under_way_s: 0.0,
                failing: None,
                lost: None,
            },
            sources: vec![source],
            certificate: None,
            connections: Connections { open: 1, max: 10, accepted: 1, refused: 0 },
            errors: std::collections::BTreeMap::new(),
            other_requests: 0,
            received_bytes: 0,
            sent_bytes: 0,
            latency: Latency::default(),
        };
        status.check();
        status
    }

    /// Changes a healthy daemon's status. Returns whether it is ready, and the first finding.
    fn checked(change: impl FnOnce(&mut Status)) -> (bool, Option<(CheckName, Level, String)>) {
        let mut status = healthy();
        change(&mut status);
        status.check();
        let finding = status.findings().next().cloned();
        (status.ready, finding.map(|check| (check.name, check.level, check.message)))
    }

    #[track_caller]
    fn finds(name: CheckName, level: Level, part: &str, change: impl FnOnce(&mut Status)) {
        let (ready, finding) = checked(change);
        let (found_name, found_level, message) = finding.expect("a finding");
        assert_eq!((found_name, found_level), (name, level), "{message}");
        assert_eq!(ready, level != Level::Fail);
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn a_daemon_as_it_should_be_has_no_findings() {
        assert_eq!(checked(|_| ()), (true, None));
    }

    #[test]
    fn what_refuses_requests_fails() {
        finds(CheckName::Stop, Level::Fail, "stopping", |status| status.draining = true);
        finds(CheckName::WorkerIds, Level::Fail, "lock file is gone", |status| {
            status.ceilings.lost = Some(String::from("the lock file is gone"));
        });
        finds(CheckName::Clock, Level::Fail, "clock_behind for another 4.0 s", |status| {
            status.sources[0].stands_s = 4.0;
        });
        finds(CheckName::Ceiling, Level::Fail, "disk full", |status| {
            status.ceilings.failing = Some(String::from("disk full"));
            status.sources[0].headroom_s = 0.0;
        });
        finds(CheckName::Ceiling, Level::Fail, "storage has taken 5.0 s", |status| {
            status.ceilings.under_way_s = 5.0;
            status.sources[0].headroom_s = 0.0;
            status.sources[0].ceiling_wanted = true;
        });
        finds(CheckName::Layout, Level::Fail, "ended", |status| status.sources[0].layout_years_left = 0.0);
    }

    #[test]
    fn what_is_served_anyway_warns() {
        finds(CheckName::Clock, Level::Warn, "3.0 s behind", |status| {
            status.clock.state = ClockState::Behind;
            status.clock.by_s = 3.0;
        });
        finds(CheckName::Clock, Level::Warn, "stepped forward by 2 h", |status| {
            status.clock.state = ClockState::Held;
            status.clock.by_s = 7_200.0;
        });
        finds(CheckName::Ceiling, Level::Warn, "last for another 2.5 s", |status| {
            status.ceilings.failing = Some(String::from("disk full"));
        });
        finds(CheckName::Saturation, Level::Warn, "exhausted", |status| {
            status.sources[0].line_s = 0.9;
            status.sources[0].waiting_ids = 3_000_000;
        });
        finds(CheckName::Layout, Level::Warn, "in 182 days", |status| {
            status.sources[0].layout_years_left = 0.5;
        });
    }

    #[test]
    fn a_ceiling_that_rests_or_is_being_raised_is_as_it_should_be() {
        assert_eq!(checked(|status| status.sources[0].headroom_s = 0.0), (true, None));
        let being_raised = |status: &mut Status| {
            status.sources[0].headroom_s = 0.0;
            status.sources[0].ceiling_wanted = true;
            status.ceilings.under_way_s = 0.01;
        };
        assert_eq!(checked(being_raised), (true, None));
        assert_eq!(
            checked(|status| status.sources[0].ahead_s = 2.0),
            (true, None),
            "catching up after a crash"
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let (_, first) = checked(|status| {
            status.sources[0].layout_years_left = 0.5;
            status.draining = true;
        });
        assert_eq!(first.expect("two findings").0, CheckName::Stop);
    }

    #[test]
    fn lengths_of_time_are_short() {
        for (length, text) in [
            (0.0, "0.0 s"),
            (0.000_05, "50 µs"),
            (0.34, "340 ms"),
            (2.94, "2.9 s"),
            (61.0, "61 s"),
            (240.0, "4 min"),
            (10_800.0, "3 h"),
            (200_000.0, "2 days"),
        ] {
            assert_eq!(seconds(length), text);
        }
    }
}
