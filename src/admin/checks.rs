//! The checks of a status, in words for the operator. They decide whether the daemon is ready.
//!
//! - Fail: requests are refused, so a load balancer should send them elsewhere.
//! - Warn: requests are served, and an operator should look.
//!
//! A daemon that is saturated warns and does not fail: it still hands out IDs at its full rate, and out of service it would
//! hand out none.

use super::status::{CertificateStatus, Check, ClockState, Level, SourceStatus, Status};
use crate::config::Grouped;

/// The time after which a raise fails the check if a request waits for it.
const SLOW_RAISE_S: f64 = 1.0;
/// The share of the default wait above which the wait queue counts as saturated. New requests are then refused, or soon
/// will be.
const SATURATED_SHARE: f64 = 0.75;
/// The remaining life below which a layout must be replaced.
const LAST_YEARS: f64 = 1.0;
/// The subject of two checks: of the machine's clock, and of its effect on a source.
const CLOCK: &str = "clock";

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
        about_daemon(
            "stop",
            match self.draining {
                true => fail(
                    "stopping: send requests to other daemons, because this one closes its listeners soon",
                ),
                false => ok("serving"),
            },
        )
    }

    fn check_worker_ids(&self) -> Check {
        let advice = "no more IDs are handed out: stop this daemon, and find the other one";
        about_daemon(
            "worker_ids",
            match &self.ceilings.lost {
                Some(reason) => fail(format!("lost: {reason}; {advice}")),
                None => ok("held by this daemon alone"),
            },
        )
    }

    /// Checks the machine's clock. Its effect on a source is that source's check.
    fn check_wall_clock(&self) -> Option<Check> {
        let by = seconds(self.clock.by_s);
        let found = match self.clock.state {
            ClockState::Steady => return None,
            ClockState::Behind => format!("the wall clock is {by} behind IDs already handed out"),
            ClockState::Held => {
                format!(
                    "the wall clock stepped forward by {by}, and is not followed until the step has lasted"
                )
            }
        };
        Some(about_daemon(CLOCK, warn(format!("{found}: check time synchronisation"))))
    }

    fn check_clock(&self, source: &SourceStatus) -> Check {
        let result = if source.stands_s > 0.0 {
            let wait = seconds(source.stands_s);
            let (found, remedy) = if source.yet_to_begin {
                ("keeps no state, and the clock has not reached its first tick", "keep a state (state_dir)")
            } else {
                let remedy = "set the clock right, or give the source a worker ID that was never used";
                ("the wall clock is too far behind the next ID", remedy)
            };
            fail(format!("{found}: refuses with clock_behind for another {wait}; {remedy}"))
        } else if source.ahead_s > 0.0 {
            let (ahead, most) = (seconds(source.ahead_s), seconds(source.max_ahead_s));
            let found = format!("catching up: {ahead} ahead of the wall clock");
            let message =
                format!("{found}, at half speed until that has caught up; at most {most} is allowed");
            // After a crash or a takeover, a catch-up is normal.
            if self.clock.state == ClockState::Steady { ok(message) } else { warn(message) }
        } else {
            ok("follows the wall clock")
        };
        about(source, CLOCK, result)
    }

    fn check_ceiling(&self, source: &SourceStatus) -> Check {
        let ceilings = &self.ceilings;
        let left = seconds(source.headroom_s);
        let is_reached = source.headroom_s <= 0.0;
        let advice = "check the state directory's disk";
        let result = match &ceilings.failing {
            _ if ceilings.lost.is_some() => fail("revoked, because the worker IDs are lost"),
            Some(reason) if is_reached => {
                let effect = "refuses with no_ceiling until storage works";
                fail(format!("reached, and cannot be raised: {reason}; {effect}: {advice}"))
            }
            Some(reason) => {
                warn(format!("cannot be raised: {reason}; IDs last for another {left}: {advice}"))
            }
            None if is_reached && source.ceiling_wanted && ceilings.under_way_s > SLOW_RAISE_S => {
                let took = seconds(ceilings.under_way_s);
                fail(format!("reached; storage has taken {took} so far to raise it: requests wait"))
            }
            None if is_reached && source.ceiling_wanted => ok("reached, and being raised"),
            None if is_reached => ok("unused, and raised with the next request"),
            None => ok(format!("durable for {left} ahead")),
        };
        about(source, "ceiling", result)
    }
}

fn check_saturation(source: &SourceStatus) -> Check {
    let (requests, ids) = (Grouped(source.waiting_requests), Grouped(source.waiting_ids));
    let line = seconds(source.line_s);
    let is_held_up = source.stands_s > 0.0 || source.headroom_s <= 0.0;
    let is_saturated = source.line_s > 0.0 && source.line_s >= SATURATED_SHARE * source.default_wait_s;
    let result = if is_saturated && !is_held_up {
        let rate = Grouped(source.ids_per_second);
        warn(format!(
            "saturated: {requests} requests wait for {ids} IDs, which take {line} at the full rate of the layout \
             ({rate} IDs/s); more requests are refused with exhausted. More worker IDs raise the rate"
        ))
    } else if source.waiting_ids > 0 {
        ok(format!("waiting requests: {requests}, for {ids} IDs, which take {line}"))
    } else {
        ok("no request waits")
    };
    about(source, "saturation", result)
}

fn check_layout(source: &SourceStatus) -> Check {
    let (ends, years) = (&source.layout_ends, source.layout_years_left);
    let another = "another (a later epoch, or more time)";
    let result = if years <= 0.0 {
        fail(format!("the layout ended {ends}: change to {another}"))
    } else if years < LAST_YEARS {
        let days = (years * 365.25) as u64;
        warn(format!("the layout ends {ends}, in {days} days: plan for {another}"))
    } else {
        ok(format!("the layout lasts until {ends}"))
    };
    about(source, "layout", result)
}

/// Checks the certificate. Never a failure, because clients without TLS and open connections are still served.
fn check_certificate(certificate: &CertificateStatus) -> Check {
    let result = match &certificate.warning {
        Some(warning) => warn(warning.as_str()),
        None => ok("lasts for another month and longer"),
    };
    about_daemon("certificate", result)
}

/// The severity of a check's result, and the result in words.
type CheckResult = (Level, String);

fn fail(message: impl Into<String>) -> CheckResult {
    (Level::Fail, message.into())
}

fn warn(message: impl Into<String>) -> CheckResult {
    (Level::Warn, message.into())
}

fn ok(message: impl Into<String>) -> CheckResult {
    (Level::Ok, message.into())
}

fn about_daemon(name: &'static str, (level, message): CheckResult) -> Check {
    Check { name: name.into(), source: None, level, message }
}

fn about(source: &SourceStatus, name: &'static str, result: CheckResult) -> Check {
    Check { source: Some(source.name.clone()), ..about_daemon(name, result) }
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
            id_space: String::new(),
            numbers_in_space: vec![0],
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
            yet_to_begin: false,
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
    fn checked(change: impl FnOnce(&mut Status)) -> (bool, Option<(String, Level, String)>) {
        let mut status = healthy();
        change(&mut status);
        status.check();
        let finding = status.findings().next().cloned();
        (status.ready, finding.map(|check| (check.name.into_owned(), check.level, check.message)))
    }

    #[track_caller]
    fn finds(name: &str, level: Level, part: &str, change: impl FnOnce(&mut Status)) {
        let (ready, finding) = checked(change);
        let (found_name, found_level, message) = finding.expect("a finding");
        assert_eq!((found_name.as_str(), found_level), (name, level), "{message}");
        assert_eq!(ready, level != Level::Fail);
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn a_daemon_as_it_should_be_has_no_findings() {
        assert_eq!(checked(|_| ()), (true, None));
    }

    #[test]
    fn what_refuses_requests_fails() {
        finds("stop", Level::Fail, "stopping", |status| status.draining = true);
        finds("worker_ids", Level::Fail, "lock file is gone", |status| {
            status.ceilings.lost = Some(String::from("the lock file is gone"));
        });
        finds("clock", Level::Fail, "clock_behind for another 4.0 s", |status| {
            status.sources[0].stands_s = 4.0;
        });
        finds("ceiling", Level::Fail, "disk full", |status| {
            status.ceilings.failing = Some(String::from("disk full"));
            status.sources[0].headroom_s = 0.0;
        });
        finds("ceiling", Level::Fail, "storage has taken 5.0 s", |status| {
            status.ceilings.under_way_s = 5.0;
            status.sources[0].headroom_s = 0.0;
            status.sources[0].ceiling_wanted = true;
        });
        finds("layout", Level::Fail, "ended", |status| status.sources[0].layout_years_left = 0.0);
    }

    #[test]
    fn what_is_served_anyway_warns() {
        finds("clock", Level::Warn, "3.0 s behind", |status| {
            status.clock.state = ClockState::Behind;
            status.clock.by_s = 3.0;
        });
        finds("clock", Level::Warn, "stepped forward by 2 h", |status| {
            status.clock.state = ClockState::Held;
            status.clock.by_s = 7_200.0;
        });
        finds("ceiling", Level::Warn, "last for another 2.5 s", |status| {
            status.ceilings.failing = Some(String::from("disk full"));
        });
        finds("saturation", Level::Warn, "exhausted", |status| {
            status.sources[0].line_s = 0.9;
            status.sources[0].waiting_ids = 3_000_000;
        });
        finds("layout", Level::Warn, "in 182 days", |status| {
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
        assert_eq!(first.expect("two findings").0, "stop");
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
