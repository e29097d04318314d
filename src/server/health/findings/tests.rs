use serde_json::{Value, json};

use super::super::figures::Figure;
use super::super::samples::tests::healthy_but;
use super::super::status::Status;
use super::*;
use Effect::{CouldRepeat, Look, Refuses, RefusesSome, RefusesSoon};

fn headline_of(status: &Status) -> &str {
    status.samples.daemon.text(Headline).expect("a headline")
}

/// Checks the worst finding of a healthy daemon with other values of these figures.
#[track_caller]
fn finds(name: &str, effect: Effect, part: &str, figures: impl IntoIterator<Item = (Figure, Value)>) {
    let status = Status::new(healthy_but(figures));
    let finding = status.findings.first().expect("something is found");
    assert_eq!((finding.name.as_ref(), finding.effect), (name, effect), "{finding:?}");
    assert!(finding.message.contains(part), "{finding:?}");
    let is_unready = effect == Refuses || effect == CouldRepeat;
    assert_eq!(status.is_ready(), !is_unready, "{finding:?}");
    let is_stopping = status.samples.daemon.is(Draining);
    assert_eq!(headline_of(&status).starts_with("NOT READY"), is_unready && !is_stopping);
}

#[track_caller]
fn finds_nothing(figures: impl IntoIterator<Item = (Figure, Value)>) {
    let status = Status::new(healthy_but(figures));
    assert_eq!((status.is_ready(), &*status.findings), (true, &[][..]));
    assert_eq!(headline_of(&status), "Serving, all is as it should be");
}

#[test]
fn a_finding_of_refused_requests_makes_the_daemon_unready() {
    finds("stop", Refuses, "closes its listeners", [(Draining, json!(true))]);
    finds("worker_ids", CouldRepeat, "lock file is gone", [(Lost, json!("the lock file is gone"))]);
    finds("clock", Refuses, "clock_behind for another 4.0 s", [(StandsS, json!(4.0))]);
    // A command that lets IDs repeat is named only where its conditions are: in the log of a start.
    let message = Status::new(healthy_but([(StandsS, json!(4.0))])).findings[0].message.clone();
    assert!(!message.contains("snowbank state"), "{message}");
    let failing = [(Failing, json!("disk full")), (HeadroomS, json!(0.0))];
    finds("ceiling", Refuses, "disk full", failing);
    let slow = [(InFlightS, json!(5.0)), (HeadroomS, json!(0.0))];
    finds("ceiling", Refuses, "storage has taken 5.0 s", slow);
    finds("layout", Refuses, "ended", [(LayoutYearsLeft, json!(0.0))]);
}

#[test]
fn a_finding_without_refusals_leaves_the_daemon_ready() {
    let clock = |state, by_s| [(ClockState, json!(state)), (ClockByS, json!(by_s))];
    finds("wall_clock", Look, "3.0 s behind", clock("behind", 3.0));
    finds("wall_clock", Look, "stepped forward by 2 h", clock("held", 7_200.0));
    finds("ceiling", RefusesSoon, "last for another 2.5 s", [(Failing, json!("disk full"))]);
    let waiting = [(WaitQueueS, json!(0.9)), (WaitingIds, json!(3_000_000))];
    finds("refusals", Look, "exhausted", waiting);
    let reload = [
        (ReloadAt, json!(1_800_000_050.0)),
        (ReloadRefused, json!("max_count: found 0")),
        (UptimeS, json!(60.0)),
    ];
    finds("reload", Look, "the reload 10 s ago was refused: max_count", reload);
    finds("layout", Look, "in 182 days", [(LayoutYearsLeft, json!(0.5))]);
}

/// Returns how long each raise takes, and the current headroom.
fn raises(raise_s: f64, headroom_s: f64) -> [(Figure, Value); 3] {
    [(SlowestRaiseS, json!(raise_s)), (UsualRaiseS, json!(raise_s)), (HeadroomS, json!(headroom_s))]
}

#[test]
fn a_slow_disk_is_found_whatever_the_headroom() {
    for headroom_s in [0.0, 0.1, 0.8, 1.5, 2.9] {
        finds("ceiling", Look, "up to 1.4 s in the last minute", raises(1.44, headroom_s));
        let message = "takes 1.8 s to raise the ceiling, so requests wait";
        finds("ceiling", RefusesSoon, message, raises(1.8, headroom_s));
        finds("ceiling", Refuses, "stays reached for longer than requests wait", raises(2.2, headroom_s));
    }
    finds("ceiling", Look, "up to 2.2 s", [(SlowestRaiseS, json!(2.2)), (HeadroomS, json!(0.0))]);
    finds_nothing(raises(0.02, 1.0));
}

#[test]
fn slow_storage_is_named_as_the_cause_of_slow_requests() {
    let slow = [(MinuteSlowShare, json!(0.05)), (MinuteP99Us, json!(700_000.0))];
    let message = "99 % within 700 ms in the last minute, where up to 500 ms is expected; see";
    finds("latency", Look, message, slow.clone());
    let status = Status::new(healthy_but(slow.into_iter().chain(raises(1.8, 0.4))));
    let latency = status.findings.iter().find(|finding| finding.name == "latency").expect("found");
    assert!(latency.message.contains("requests waited for storage"), "{latency:?}");
    assert!(!latency.message.contains("CPU"), "{latency:?}");
}

#[test]
fn saturation_leaves_the_daemon_ready() {
    let refused = |share: f64| {
        [
            (MinuteS, json!(60.0)),
            (MinuteSourceRequests, json!(4_500)),
            (MinuteExhausted, json!((4_500.0 * share) as u64)),
            (MinuteExhaustedShare, json!(share)),
        ]
    };
    let message = "refused 66.6 % of the requests of the last 60 s with exhausted (2,999";
    finds("refusals", RefusesSome, message, refused(0.6666));
    finds("refusals", Look, "refused 2.0 %", refused(0.02));
    finds_nothing(refused(0.009));
    let too_busy = [(MinuteConnectionsRefused, json!(7))];
    finds("connections", RefusesSome, "7 refused with too_busy", too_busy);
    finds("connections", RefusesSome, "10 of 10 connections", [(Open, json!(10))]);
    finds("connections", Look, "max_connections is 10,000", [(OpenWanted, json!(10_000))]);
    // The limit that binds is named also once connections are refused.
    let few_files = [(MinuteConnectionsRefused, json!(7)), (OpenWanted, json!(10_000))];
    finds("connections", RefusesSome, "raise the limit (LimitNOFILE=, ulimit -n)", few_files);
    finds("connections", Look, "9 of 10 connections", [(Open, json!(9))]);
    finds("queues", Look, "75 of 100 bytes queued", [(QueuedBytes, json!(75))]);
    let unauthorized = |lately: u64| {
        [
            (MinuteUnauthorized, json!(11_000)),
            (UnauthorizedLately, json!(lately)),
            (UnauthorizedAddresses, json!(3)),
        ]
    };
    let message = "11,000 requests or connections refused in the last minute, from 3";
    finds("authorization", Look, message, unauthorized(5));
    finds_nothing(unauthorized(4));
}

/// A page says what to do, and a second one would say to add worker IDs.
#[test]
fn a_source_that_has_ended_is_found_once() {
    let refused = [(MinuteExhaustedShare, json!(0.9))];
    let ended = [(TicketLeftShare, json!(0.0)), (TicketLeft, json!(0))];
    let ends = [("numbers", ended.to_vec()), ("layout", vec![(LayoutYearsLeft, json!(0.0))])];
    for (name, end) in ends {
        let status = Status::new(healthy_but(refused.clone().into_iter().chain(end)));
        let names: Vec<_> = status.findings.iter().map(|finding| finding.name.as_ref()).collect();
        assert_eq!(names, [name]);
    }
}

#[test]
fn a_coordinators_outage_is_urgent_near_the_ceiling() {
    let fleet =
        |left_s: f64, silent: Option<&str>| [(FleetLeftS, json!(left_s)), (FleetSilent, json!(silent))];
    let message = "waits, and hands out nothing: all are held";
    let waits = [(FleetWaitsFor, json!("all are held")), (Awaits, json!("a worker ID"))];
    finds("fleet", Refuses, message, waits.clone());
    // One cause is one finding.
    assert_eq!(Status::new(healthy_but(waits)).findings.len(), 1);
    finds_nothing(fleet(200.0, None));
    finds("fleet", Look, "refused; IDs last for another 2 min", fleet(120.0, Some("refused")));
    finds("fleet", RefusesSoon, "IDs last for another 50 s", fleet(50.0, Some("refused")));
    let reached = |silent| [&fleet(0.0, silent)[..], &[(FleetHeadroomS, json!(0.0))]].concat();
    finds("fleet", Refuses, "cannot be raised: refused", reached(Some("refused")));
    finds("fleet", Refuses, "being raised", reached(None));
    // A ticket source beside it serves on.
    finds("fleet", RefusesSome, "cannot be raised: refused", fleet(0.0, Some("refused")));
}

#[test]
fn a_fleet_certificate_is_found_two_weeks_before_it_ends() {
    let ends_in = |days: i64| {
        let ends_unix_s = healthy_but([]).now_s() as i64 + days * 86_400;
        [(FleetLeftS, json!(200.0)), (FleetCertificateEnds, json!(ends_unix_s))]
    };
    finds_nothing(ends_in(15));
    finds("fleet_certificate", Look, "ends in 13 days", ends_in(13));
    finds("fleet_certificate", Look, "has expired", ends_in(-1));
}

#[test]
fn an_unused_or_rising_ceiling_is_no_finding() {
    finds_nothing([(HeadroomS, json!(0.0))]);
    finds_nothing([(HeadroomS, json!(0.0)), (CeilingWanted, json!(true)), (InFlightS, json!(0.01))]);
    // This happens during a catch-up after a crash.
    finds_nothing([(AheadS, json!(2.0))]);
}

/// Returns samples with these figures, and a second source that is healthy but for the figures that
/// it shares.
fn with_other(figures: impl IntoIterator<Item = (Figure, Value)>, shared: &[Figure]) -> Samples {
    let mut samples = healthy_but(figures);
    let mut other = Subject { name: String::from("other"), ..healthy_but([]).first_source().clone() };
    for figure in shared {
        let value = samples.first_source().measure(*figure);
        other.set(*figure, value);
    }
    samples.others.push(other);
    samples
}

#[test]
fn a_source_that_refuses_leaves_a_daemon_ready_while_another_serves() {
    let cases: [(&str, Vec<(Figure, Value)>); 5] = [
        ("clock", vec![(StandsS, json!(4.0))]),
        ("layout", vec![(LayoutYearsLeft, json!(0.0))]),
        ("numbers", vec![(TicketLeftShare, json!(0.0)), (TicketLeft, json!(0))]),
        ("ceiling", vec![(Awaits, json!("a worker ID"))]),
        ("fleet", vec![(FleetLeftS, json!(0.0)), (FleetHeadroomS, json!(0.0))]),
    ];
    for (name, figures) in cases {
        let status = Status::new(with_other(figures.clone(), &[]));
        let found = &status.findings[0];
        assert_eq!((found.name.as_ref(), found.effect), (name, RefusesSome), "{found:?}");
        assert!(status.is_ready(), "{found:?}");
        finds(name, Refuses, "", figures);
    }
    // The disk of one source is the disk of all.
    let status = Status::new(with_other([(Failing, json!("disk full")), (HeadroomS, json!(0.0))], &[]));
    assert!(!status.is_ready(), "{:?}", status.findings);
}

#[test]
fn the_worst_finding_comes_first_and_makes_the_headline() {
    let status = Status::new(with_other([(LayoutYearsLeft, json!(0.5)), (StandsS, json!(4.0))], &[StandsS]));
    assert_eq!(status.findings[0].name, "clock");
    assert_eq!(headline_of(&status), "NOT READY: requests of source orders are refused");
    let status = Status::new(healthy_but([(Lost, json!("the lock is gone"))]));
    assert_eq!(headline_of(&status), "NOT READY: IDs could repeat, so none are handed out");
}
