//! The coordinator in the status, the metrics and the log of a daemon.

use super::*;
use crate::support::http::{sample, scrape};

/// Waits until the check of the fleet has this level, and returns its message.
fn await_check(daemon: &Daemon, level: &str) -> String {
    poll(&format!("fleet {level}"), || {
        let status = get(daemon, "/status").json();
        let check = status["checks"].as_array()?.iter().find(|check| check["name"] == "fleet")?.clone();
        (check["level"] == level).then(|| check["message"].as_str().map(str::to_owned))?
    })
}

/// Returns two metrics: whether the coordinator answers, and the time that is left without it.
fn metrics(daemon: &Daemon) -> (f64, f64) {
    let samples = scrape(daemon);
    let left = sample(&samples, "snowbank_fleet_headroom_seconds{source=\"default\"}");
    (sample(&samples, "snowbank_fleet_coordinator_up"), left)
}

#[test]
fn an_outage_is_shown_with_the_time_that_is_left() {
    const HORIZON_S: f64 = 16.0;
    let Some(etcd) = Etcd::start() else { return };
    let proxy = etcd.proxy();
    let toml = toml_at(&etcd, &proxy.url(), Some(5), &format!("{HORIZON_S}s"));
    init(&toml);
    let machine = Machine::new();
    let daemon = machine.setup(&toml).admin().start();
    draw(&daemon);
    let message = await_check(&daemon, "ok");
    assert!(message.starts_with("worker numbers held for "), "{message}");
    let (is_up, left) = metrics(&daemon);
    assert!(is_up == 1.0 && left > 0.0 && left <= HORIZON_S + 1.0, "{is_up} {left}");
    let admin = daemon.addresses[1].to_string();
    let (code, page, _) = machine.run(&["status", "--admin", &admin]);
    assert!(code == Some(0) && page.contains("coordinator answers; IDs last for "), "{page}");
    assert!(page.contains("worker 5 held by this daemon until "), "{page}");

    proxy.cut();
    let message = await_check(&daemon, "warn");
    assert!(message.contains("the coordinator does not answer: http://"), "{message}");
    assert!(message.contains("IDs last for another"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    assert_eq!(metrics(&daemon).0, 0.0);
    daemon.assert_logs("check fleet warns: the coordinator does not answer");

    let message = await_check(&daemon, "fail");
    assert!(message.contains("refuses with no_ceiling until it can"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 503);
    assert_eq!(metrics(&daemon), (0.0, 0.0));
    proxy.pass();
    await_check(&daemon, "ok");
    poll("ready", || (get(&daemon, "/readyz").code == 200).then_some(()));
    assert_eq!(metrics(&daemon).0, 1.0);
}
