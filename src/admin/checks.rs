//! The checks of a status, in words for the operator. They decide whether the daemon is ready.
//!
//! - Fail: requests or connections are refused, or another daemon hands out the same IDs.
//! - Warn: requests are served, and an operator should look.
//!
//! A daemon is ready unless a check fails that decides readiness. The checks of [`SATURATION`] do not: a daemon that is
//! saturated still hands out IDs at its full rate. Out of service it would hand out none, and its load would saturate the
//! next daemon.

use super::finding::{about, about_daemon, fail, ok, seconds, warn};
use super::fleet::{self, check_fleet};
use super::kind::{KindStatus, SnowflakeStatus, TicketStatus};
use super::saturation::{SATURATION, check_refusals};
use super::status::{CertificateStatus, Check, ClockState, LastReload, Level, SourceStatus, Status};
use crate::config::Grouped;
use crate::numbering::LAST_ID;

/// The shortest time after which a raise fails the check once the ceiling is reached. Requests wait that long anyway.
const SLOW_RAISE_S: f64 = 1.0;
/// The remaining life below which a layout must be replaced.
const LAST_YEARS: f64 = 1.0;
/// The share of a ticket counter's numbers below which it must be replaced: a counter this high was set to a value that no
/// table counts up to, and at a million numbers a second it lasts for another 2,900 years.
const LAST_NUMBERS_SHARE: f64 = 0.01;
/// The subject of two checks: of the machine's clock, and of its effect on a source.
const CLOCK: &str = "clock";
const STOP: &str = "stop";
const RELOAD: &str = "reload";

impl Check {
    /// Returns whether a load balancer should send requests elsewhere.
    pub(crate) fn makes_unready(&self) -> bool {
        self.level == Level::Fail && !SATURATION.contains(&self.name.as_ref())
    }

    /// Returns true for a check of clients' experience, which changes with their requests.
    pub(crate) fn is_of_load(&self) -> bool {
        SATURATION.contains(&self.name.as_ref())
    }

    /// Returns whether a change of it is logged elsewhere: the stop and the reload are.
    pub(crate) fn is_logged_elsewhere(&self) -> bool {
        [STOP, RELOAD].contains(&self.name.as_ref())
    }

    /// Returns its name, with the name of its source if it has one.
    pub(crate) fn full_name(&self) -> String {
        match &self.source {
            Some(source) => format!("{} of {source}", self.name),
            None => self.name.to_string(),
        }
    }
}

impl Status {
    /// Runs all checks, and decides whether the daemon is ready.
    pub(crate) fn check(&mut self) {
        let mut checks = vec![
            self.check_stop(),
            self.check_worker_ids(),
            self.check_reload(),
            self.check_connections(),
            self.check_authorization(),
            self.check_client_limits(),
            self.check_queues(),
            self.check_latency(),
            self.check_wall_clock(),
        ];
        for source in &self.sources {
            checks.extend(source.snowflake().map(|snowflake| self.check_clock(source, snowflake)));
            checks.push(self.check_ceiling(source));
            checks.push(check_refusals(source, &self.last_minute));
            checks.push(match &source.kind {
                KindStatus::Snowflake(snowflake) => check_layout(source, snowflake),
                KindStatus::Ticket(ticket) => check_numbers(source, ticket),
            });
        }
        checks.extend(self.fleet.as_ref().map(check_fleet));
        let now_unix_s = self.started_unix_s + self.uptime_s;
        let of_fleet = self.fleet.as_ref().and_then(|fleet| fleet.certificate_ends_unix_s);
        checks.extend(of_fleet.map(|ends_unix_s| fleet::check_certificate(ends_unix_s, now_unix_s)));
        checks.extend(self.certificate.as_ref().map(check_certificate));
        // The worst first, and equals in the order above.
        checks.sort_by_key(|check| check.level);
        self.ready = !checks.iter().any(Check::makes_unready);
        self.checks = checks;
    }

    /// Returns the checks that fail or warn, the worst first.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.level != Level::Ok)
    }

    fn check_stop(&self) -> Check {
        about_daemon(
            STOP,
            match self.draining {
                true => fail(
                    "stopping: send requests to other daemons, because this one closes its listeners soon",
                ),
                false => ok("serving"),
            },
        )
    }

    fn check_worker_ids(&self) -> Check {
        let advice = "no IDs are handed out any more: stop this daemon, and find the other one";
        about_daemon(
            "worker_ids",
            match &self.ceilings.lost {
                Some(reason) => fail(format!("lost: {reason}; {advice}")),
                None if self.fleet.as_ref().is_some_and(|fleet| fleet.waits_for.is_some()) => ok("none yet"),
                None if self.fleet.is_some() => ok("held by this daemon alone"),
                None => ok("locked on this machine; only a fleet knows of other machines and containers"),
            },
        )
    }

    fn check_reload(&self) -> Check {
        let effect = "the configuration from before is live, and the next start may refuse the file";
        let result = match &self.last_reload {
            Some(LastReload { at_unix_s, refused: Some(reason) }) => {
                let ago = seconds((self.started_unix_s + self.uptime_s - at_unix_s).max(0.0));
                warn(format!("the reload {ago} ago was refused: {reason}; {effect}"))
            }
            Some(_) => ok("the last reload succeeded"),
            None => ok("none since the start"),
        };
        about_daemon(RELOAD, result)
    }

    /// Checks the machine's clock. Its effect on a source is that source's check.
    fn check_wall_clock(&self) -> Check {
        let by = seconds(self.clock.by_s);
        let found = match self.clock.state {
            ClockState::Steady => return about_daemon(CLOCK, ok("the wall clock runs as expected")),
            ClockState::Behind => format!("the wall clock is {by} behind IDs already handed out"),
            ClockState::Held => {
                format!(
                    "the wall clock stepped forward by {by}, and is not followed until the step has lasted clock.step_hold"
                )
            }
        };
        about_daemon(CLOCK, warn(format!("{found}: check time synchronisation")))
    }

    fn check_clock(&self, source: &SourceStatus, snowflake: &SnowflakeStatus) -> Check {
        let result = if snowflake.stands_s > 0.0 {
            let wait = seconds(snowflake.stands_s);
            let (found, remedy) = if snowflake.yet_to_begin {
                ("keeps no state, and the clock has not reached its first tick", "keep a state (state_dir)")
            } else {
                let remedy = "set the clock right, or give the source a worker ID that was never used";
                ("the wall clock is too far behind the next ID", remedy)
            };
            fail(format!("{found}: refuses with clock_behind for another {wait}; {remedy}"))
        } else if snowflake.ahead_s > 0.0 {
            let (ahead, most) = (seconds(snowflake.ahead_s), seconds(snowflake.max_ahead_s));
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
        let left = match &source.kind {
            KindStatus::Snowflake(snowflake) => seconds(snowflake.headroom_s),
            KindStatus::Ticket(ticket) => format!("{} numbers", Grouped(ticket.reserved)),
        };
        let is_reached = source.is_ceiling_reached();
        let (took_s, took) = (ceilings.under_way_s, seconds(ceilings.under_way_s));
        let advice = "check the state directory's disk";
        let result = match &ceilings.failing {
            _ if ceilings.lost.is_some() => fail("revoked, because the worker IDs are lost"),
            _ if source.ticket().is_some_and(|ticket| ticket.restored) => {
                fail("revoked, because the machine was restored from a snapshot")
            }
            // Its ranges come from the coordinator, which a check of its own reports.
            _ if source.ticket().is_some_and(|ticket| ticket.shared) => {
                ok(format!("{left} from the fleet's coordinator"))
            }
            Some(reason) if is_reached => {
                let effect = "refuses with no_ceiling until storage works";
                fail(format!("reached, and cannot be raised: {reason}; {effect}: {advice}"))
            }
            Some(reason) => {
                warn(format!("cannot be raised: {reason}; IDs last for another {left}: {advice}"))
            }
            // Whether or not a request waits now: the next one would be refused.
            None if is_reached && took_s > SLOW_RAISE_S.max(ceilings.slow_write_s) => {
                let effect = "refuses with no_ceiling until storage answers";
                fail(format!("reached; storage has taken {took} so far to raise it; {effect}: {advice}"))
            }
            None if took_s > ceilings.slow_write_s => warn(format!(
                "storage has taken {took} so far to raise it; IDs last for another {left}: {advice}"
            )),
            None if source.fleet_headroom_s == Some(0.0) => ok("held down by the fleet's ceiling"),
            None if is_reached && source.ceiling_wanted => ok("reached, and being raised"),
            None if is_reached => ok("unused, and raised with the next request"),
            None => ok(format!("durable for {left} ahead")),
        };
        about(source, "ceiling", result)
    }
}

fn check_layout(source: &SourceStatus, snowflake: &SnowflakeStatus) -> Check {
    let (ends, years) = (&snowflake.layout_ends, snowflake.layout_years_left);
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

/// Checks that a ticket counter has numbers left.
fn check_numbers(source: &SourceStatus, ticket: &TicketStatus) -> Check {
    let (left, percent) = (Grouped(ticket.left), 100.0 * ticket.left_share);
    let another = "move its table to larger IDs, or to a source with a layout";
    let result = if ticket.restored {
        fail(
            "refuses with no_ceiling, because another process, or another copy of the machine that was restored from a \
             snapshot, may hand out the same numbers: stop this daemon, and run `snowbank ticket set` with the highest number \
             that any copy handed out",
        )
    } else if ticket.left == 0 {
        fail(format!("the counter has ended at {LAST_ID}: {another}"))
    } else if ticket.left_share < LAST_NUMBERS_SHARE {
        warn(format!("{left} numbers are left until {LAST_ID}, {percent:.2} % of all: plan to {another}"))
    } else {
        ok(format!("{left} numbers are left"))
    };
    about(source, "numbers", result)
}

/// Checks the certificate. Never a failure, because clients without TLS and open connections are still served.
fn check_certificate(certificate: &CertificateStatus) -> Check {
    let result = match &certificate.warning {
        Some(warning) => warn(warning.as_str()),
        None => ok("lasts for another month and longer"),
    };
    about_daemon("certificate", result)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::status::{FleetStatus, SourceMinute, tests::healthy};
    use super::*;

    /// Changes a healthy daemon's status. Returns whether it is ready, and the first finding.
    pub(in crate::admin) fn checked(
        change: impl FnOnce(&mut Status),
    ) -> (bool, Option<(String, Level, String)>) {
        let mut status = healthy();
        change(&mut status);
        status.check();
        let finding = status.findings().next().cloned();
        (status.ready, finding.map(|check| (check.name.into_owned(), check.level, check.message)))
    }

    #[track_caller]
    pub(in crate::admin) fn finds(name: &str, level: Level, part: &str, change: impl FnOnce(&mut Status)) {
        let (ready, finding) = checked(change);
        let (found_name, found_level, message) = finding.expect("a finding");
        assert_eq!((found_name.as_str(), found_level), (name, level), "{message}");
        assert_eq!(ready, level != Level::Fail || SATURATION.contains(&name));
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn a_daemon_as_it_should_be_has_no_findings() {
        assert_eq!(checked(|_| ()), (true, None));
    }

    #[test]
    fn only_a_fleet_knows_whether_worker_ids_are_held_by_one_daemon_alone() {
        let mut status = healthy();
        assert!(status.check_worker_ids().message.contains("only a fleet knows"));
        let mut fleet = FleetStatus { left_s: 9.0, ..FleetStatus::default() };
        status.fleet = Some(fleet.clone());
        assert_eq!(status.check_worker_ids().message, "held by this daemon alone");
        fleet.waits_for = Some(String::from("all are held"));
        status.fleet = Some(fleet);
        assert_eq!(status.check_worker_ids().message, "none yet");
    }

    #[test]
    fn what_refuses_requests_fails() {
        finds("stop", Level::Fail, "stopping", |status| status.draining = true);
        finds("worker_ids", Level::Fail, "lock file is gone", |status| {
            status.ceilings.lost = Some(String::from("the lock file is gone"));
        });
        finds("clock", Level::Fail, "clock_behind for another 4.0 s", |status| {
            status.first_snowflake().stands_s = 4.0;
        });
        finds("ceiling", Level::Fail, "disk full", |status| {
            status.ceilings.failing = Some(String::from("disk full"));
            status.first_snowflake().headroom_s = 0.0;
        });
        finds("ceiling", Level::Fail, "storage has taken 5.0 s", |status| {
            status.ceilings.under_way_s = 5.0;
            status.first_snowflake().headroom_s = 0.0;
        });
        finds("layout", Level::Fail, "ended", |status| status.first_snowflake().layout_years_left = 0.0);
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
        finds("ceiling", Level::Warn, "taken 1.6 s so far", |status| status.ceilings.under_way_s = 1.6);
        finds("refusals", Level::Warn, "exhausted", |status| {
            status.first_snowflake().wait_queue_s = 0.9;
            status.sources[0].waiting_ids = 3_000_000;
        });
        finds("reload", Level::Warn, "the reload 10 s ago was refused: max_count", |status| {
            let at_unix_s = status.started_unix_s + status.uptime_s - 10.0;
            let refused = Some(String::from("max_count: found 0"));
            status.last_reload = Some(LastReload { at_unix_s, refused });
        });
        finds("layout", Level::Warn, "in 182 days", |status| {
            status.first_snowflake().layout_years_left = 0.5;
        });
    }

    #[test]
    fn a_minute_that_was_slow_is_no_contradiction_to_quick_seconds() {
        let mut status = healthy();
        status.last_minute.p99_us = Some(1_900_000.0);
        let Check { level, message, .. } = status.check_latency();
        let expected = "quick in the last seconds; 99 % within 1.9 s in the last minute";
        assert_eq!((level, message.as_str()), (Level::Ok, expected));
    }

    #[test]
    fn saturation_fails_and_leaves_the_daemon_ready() {
        finds(
            "refusals",
            Level::Fail,
            "refused 66.7 % of the requests of the last 60 s (3,000 of 4,500)",
            |status| {
                status.last_minute.over_s = 60.0;
                status.sources[0].last_minute =
                    SourceMinute { requests: 4_500, refused: 3_000, exhausted: 3_000, level: Level::Fail };
            },
        );
        finds("connections", Level::Fail, "7 refused with too_busy", |status| {
            status.last_minute.connections_level = Level::Fail;
            status.last_minute.connections_refused = 7;
        });
        finds("queues", Level::Warn, "75 of 100 bytes queued", |status| {
            (status.connections.queued_bytes, status.connections.queued_bytes_max) = (75, 100);
        });
        finds(
            "authorization",
            Level::Warn,
            "11,000 requests or connections refused in the last minute, from 3",
            |status| {
                status.last_minute.authorization_level = Level::Warn;
                status.last_minute.unauthorized = 11_000;
                status.connections.unauthorized_addresses = 3;
            },
        );
        finds("latency", Level::Warn, "99 % within 700 ms", |status| {
            status.last_minute.latency_level = Level::Warn;
            status.last_minute.p99_us = Some(700_000.0);
        });
    }

    #[test]
    fn a_ceiling_that_rests_or_is_being_raised_is_as_it_should_be() {
        assert_eq!(checked(|status| status.first_snowflake().headroom_s = 0.0), (true, None));
        let being_raised = |status: &mut Status| {
            status.first_snowflake().headroom_s = 0.0;
            status.sources[0].ceiling_wanted = true;
            status.ceilings.under_way_s = 0.01;
        };
        assert_eq!(checked(being_raised), (true, None));
        assert_eq!(
            checked(|status| status.first_snowflake().ahead_s = 2.0),
            (true, None),
            "catching up after a crash"
        );
    }

    #[test]
    fn the_worst_comes_first() {
        let (_, first) = checked(|status| {
            status.first_snowflake().layout_years_left = 0.5;
            status.draining = true;
        });
        assert_eq!(first.expect("two findings").0, "stop");
    }
}
