use super::super::status::{FleetStatus, SourceMinute, tests::healthy};
use super::*;
use Effect::{CouldRepeat, Look, Refuses, RefusesSome, RefusesSoon};

/// Returns the status of a healthy daemon after a change, judged again.
fn judged(change: impl FnOnce(&mut Status)) -> Status {
    let mut status = healthy();
    change(&mut status);
    status.judge();
    status
}

#[track_caller]
fn finds(name: &str, effect: Effect, part: &str, change: impl FnOnce(&mut Status)) {
    let status = judged(change);
    let finding = status.findings.first().expect("something is found");
    assert_eq!((finding.name.as_ref(), finding.effect), (name, effect), "{finding:?}");
    assert!(finding.message.contains(part), "{finding:?}");
    let is_unready = effect == Refuses || effect == CouldRepeat;
    assert_eq!(status.ready, !is_unready, "{finding:?}");
    assert_eq!(status.headline.starts_with("NOT READY"), is_unready && !status.draining);
}

#[track_caller]
fn finds_nothing(change: impl FnOnce(&mut Status)) {
    let status = judged(change);
    assert_eq!((status.ready, &*status.findings), (true, &[][..]));
    assert_eq!(status.headline, "Serving, all is as it should be");
}

#[test]
fn a_finding_of_refused_requests_makes_the_daemon_unready() {
    finds("stop", Refuses, "closes its listeners", |status| status.draining = true);
    finds("worker_ids", CouldRepeat, "lock file is gone", |status| {
        status.ceilings.lost = Some(String::from("the lock file is gone"));
    });
    finds("clock", Refuses, "clock_behind for another 4.0 s", |status| {
        status.first_snowflake().stands_s = 4.0;
    });
    finds("ceiling", Refuses, "disk full", |status| {
        status.ceilings.failing = Some(String::from("disk full"));
        status.first_snowflake().headroom_s = 0.0;
    });
    finds("ceiling", Refuses, "storage has taken 5.0 s", |status| {
        status.ceilings.in_flight_s = 5.0;
        status.first_snowflake().headroom_s = 0.0;
    });
    finds("layout", Refuses, "ended", |status| status.first_snowflake().layout_years_left = 0.0);
}

#[test]
fn a_finding_without_refusals_leaves_the_daemon_ready() {
    finds("wall_clock", Look, "3.0 s behind", |status| {
        status.clock.state = ClockState::Behind;
        status.clock.by_s = 3.0;
    });
    finds("wall_clock", Look, "stepped forward by 2 h", |status| {
        status.clock.state = ClockState::Held;
        status.clock.by_s = 7_200.0;
    });
    finds("ceiling", RefusesSoon, "last for another 2.5 s", |status| {
        status.ceilings.failing = Some(String::from("disk full"));
    });
    finds("refusals", Look, "exhausted", |status| {
        status.first_snowflake().wait_queue_s = 0.9;
        status.sources[0].waiting_ids = 3_000_000;
    });
    finds("reload", Look, "the reload 10 s ago was refused: max_count", |status| {
        let at_unix_s = status.started_unix_s + status.uptime_s - 10.0;
        let refused = Some(String::from("max_count: found 0"));
        status.last_reload = Some(LastReload { at_unix_s, refused });
    });
    finds("layout", Look, "in 182 days", |status| status.first_snowflake().layout_years_left = 0.5);
}

/// Returns a change that sets how long each raise takes, and the current headroom.
fn raises(raise_s: f64, headroom_s: f64) -> impl Fn(&mut Status) {
    move |status: &mut Status| {
        status.ceilings.slowest_raise_s = raise_s;
        status.ceilings.usual_raise_s = raise_s;
        status.first_snowflake().headroom_s = headroom_s;
    }
}

#[test]
fn a_slow_disk_is_found_whatever_the_headroom() {
    for headroom_s in [0.0, 0.1, 0.8, 1.5, 2.9] {
        finds("ceiling", Look, "up to 1.4 s in the last minute", raises(1.44, headroom_s));
        finds(
            "ceiling",
            RefusesSoon,
            "takes 1.8 s to raise the ceiling, so requests wait",
            raises(1.8, headroom_s),
        );
        finds("ceiling", Refuses, "stays reached for longer than requests wait", raises(2.2, headroom_s));
    }
    let hiccup = |status: &mut Status| {
        status.ceilings.slowest_raise_s = 2.2;
        status.first_snowflake().headroom_s = 0.0;
    };
    finds("ceiling", Look, "up to 2.2 s", hiccup);
    finds_nothing(raises(0.02, 1.0));
}

#[test]
fn slow_storage_is_named_as_the_cause_of_slow_requests() {
    let slow = |status: &mut Status| {
        status.last_minute.slow_share = 0.05;
        status.last_minute.p99_us = Some(700_000.0);
    };
    finds(
        "latency",
        Look,
        "99 % within 700 ms in the last minute, where up to 500 ms is expected; see",
        slow,
    );
    let status = judged(|status| {
        slow(status);
        raises(1.8, 0.4)(status);
    });
    let latency = status.findings.iter().find(|finding| finding.name == "latency").expect("found");
    assert!(latency.message.contains("requests waited for storage"), "{latency:?}");
    assert!(!latency.message.contains("CPU"), "{latency:?}");
}

#[test]
fn saturation_leaves_the_daemon_ready() {
    let refused = |share: f64| {
        move |status: &mut Status| {
            status.last_minute.over_s = 60.0;
            status.sources[0].last_minute = SourceMinute {
                requests: 4_500,
                refused: (4_500.0 * share) as u64,
                exhausted: (4_500.0 * share) as u64,
                exhausted_share: share,
            };
        }
    };
    finds(
        "refusals",
        RefusesSome,
        "refused 66.6 % of the requests of the last 60 s with exhausted (2,999",
        refused(0.6666),
    );
    finds("refusals", Look, "refused 2.0 %", refused(0.02));
    finds_nothing(refused(0.009));
    finds("connections", RefusesSome, "7 refused with too_busy", |status| {
        status.last_minute.connections_refused = 7;
    });
    finds("connections", RefusesSome, "10 of 10 connections", |status| status.connections.open = 10);
    finds("connections", Look, "max_connections is 10,000", |status| {
        status.connections.wanted = Some(10_000)
    });
    finds("connections", Look, "9 of 10 connections", |status| status.connections.open = 9);
    finds("queues", Look, "75 of 100 bytes queued", |status| {
        (status.connections.queued_bytes, status.connections.queued_bytes_max) = (75, 100);
    });
    let unauthorized = |lately: u64| {
        move |status: &mut Status| {
            status.last_minute.unauthorized = 11_000;
            status.last_minute.unauthorized_lately = lately;
            status.connections.unauthorized_addresses = 3;
        }
    };
    let message = "11,000 requests or connections refused in the last minute, from 3";
    finds("authorization", Look, message, unauthorized(5));
    finds_nothing(unauthorized(4));
}

#[test]
fn a_coordinators_outage_is_urgent_near_the_ceiling() {
    let fleet = |left_s, silent: Option<&'static str>| {
        move |status: &mut Status| {
            let silent = silent.map(String::from);
            status.fleet = Some(FleetStatus { raises: 1, left_s, silent, ..FleetStatus::default() });
        }
    };
    finds("fleet", Refuses, "waits for a worker ID, and hands out nothing: all are held", |status| {
        let waits_for = Some(String::from("all are held"));
        status.fleet = Some(FleetStatus { waits_for, ..FleetStatus::default() });
    });
    finds_nothing(fleet(200.0, None));
    finds("fleet", Look, "refused; IDs last for another 2 min", fleet(120.0, Some("refused")));
    finds("fleet", RefusesSoon, "IDs last for another 50 s", fleet(50.0, Some("refused")));
    finds("fleet", Refuses, "cannot be raised: refused", fleet(0.0, Some("refused")));
    finds("fleet", Refuses, "being raised", fleet(0.0, None));
}

#[test]
fn a_fleet_certificate_is_found_two_weeks_before_it_ends() {
    let ends_in = |days: i64| {
        move |status: &mut Status| {
            let now_s = (status.started_unix_s + status.uptime_s) as i64;
            let certificate_ends_unix_s = Some(now_s + days * 86_400);
            status.fleet =
                Some(FleetStatus { left_s: 200.0, certificate_ends_unix_s, ..FleetStatus::default() });
        }
    };
    finds_nothing(ends_in(15));
    finds("fleet_certificate", Look, "ends in 13 days", ends_in(13));
    finds("fleet_certificate", Look, "has expired", ends_in(-1));
}

#[test]
fn an_unused_or_rising_ceiling_is_no_finding() {
    finds_nothing(|status| status.first_snowflake().headroom_s = 0.0);
    finds_nothing(|status| {
        status.first_snowflake().headroom_s = 0.0;
        status.sources[0].ceiling_wanted = true;
        status.ceilings.in_flight_s = 0.01;
    });
    // This happens during a catch-up after a crash.
    finds_nothing(|status| status.first_snowflake().ahead_s = 2.0);
}

#[test]
fn the_worst_finding_comes_first_and_makes_the_headline() {
    let status = judged(|status| {
        status.first_snowflake().layout_years_left = 0.5;
        status.first_snowflake().stands_s = 4.0;
        status.sources.push(SourceStatus {
            index: 1,
            name: String::from("other"),
            ..healthy().sources.remove(0)
        });
    });
    assert_eq!(status.findings[0].name, "clock");
    assert_eq!(status.headline, "NOT READY: requests of source orders are refused");
    let status = judged(|status| status.ceilings.lost = Some(String::from("the lock is gone")));
    assert_eq!(status.headline, "NOT READY: IDs could repeat, so none are handed out");
}
