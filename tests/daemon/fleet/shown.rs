//! How the status, metrics and log of a daemon show its coordinator.

use super::*;
use crate::support::http::finding;
use crate::support::program::Said;

/// Waits until the finding `fleet` has this effect, and returns its message. With `None`, waits
/// until there is no such finding.
fn await_finding(daemon: &Daemon, effect: Option<&str>) -> String {
    poll(&format!("fleet {effect:?}"), || match finding(daemon, "fleet") {
        Some(finding) if finding["effect"].as_str() == effect => {
            finding["message"].as_str().map(str::to_owned)
        }
        None if effect.is_none() => Some(String::new()),
        _ => None,
    })
}

/// Returns whether the coordinator answers, and for how many seconds IDs last without it.
fn metrics(daemon: &Daemon) -> (f64, f64) {
    let samples = scrape(daemon);
    let left = sample(&samples, "snowbank_fleet_headroom_seconds{source=\"default\"}");
    (sample(&samples, "snowbank_fleet_coordinator_up"), left)
}

#[test]
fn an_outage_shows_how_long_ids_last() {
    const HORIZON_S: f64 = 16.0;
    let Some(etcd) = Etcd::start() else { return };
    let proxy = etcd.proxy();
    let toml = toml_at(&etcd, &[&proxy.url()], Some(5), &format!("{HORIZON_S}s"));
    init(&toml);
    let machine = Machine::new();
    let daemon = machine.setup(&toml).admin().start();
    draw(&daemon);
    await_finding(&daemon, None);
    let (is_up, left) = metrics(&daemon);
    assert!(is_up == 1.0 && left > 0.0 && left <= HORIZON_S + 1.0, "{is_up} {left}");
    let admin = daemon.addresses[1].to_string();
    let Said { code, out: page, .. } = machine.run(&["status", "--admin", &admin]);
    assert!(code == Some(0) && page.contains("coordinator answers; IDs last for "), "{page}");
    assert!(page.contains("worker 5 held by this daemon until "), "{page}");

    proxy.cut();
    let message = await_finding(&daemon, Some("refuses_soon"));
    assert!(message.contains("the coordinator does not answer: http://"), "{message}");
    assert!(message.contains("IDs last for another"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    assert_eq!(metrics(&daemon).0, 0.0);
    daemon.assert_logs("finding fleet: the coordinator does not answer");

    let message = await_finding(&daemon, Some("refuses"));
    assert!(message.contains("refuses with no_ceiling until it is raised"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 503);
    assert_eq!(metrics(&daemon), (0.0, 0.0));
    proxy.pass();
    await_finding(&daemon, None);
    poll("a ready daemon", || (get(&daemon, "/readyz").code == 200).then_some(()));
    assert_eq!(metrics(&daemon).0, 1.0);
}

/// A daemon with a new worker ID pauses. Requests wait for the end of the pause, which is no fault.
#[test]
fn a_pause_is_logged_and_shows_neither_a_worker_id_nor_a_finding_of_latency() {
    on_one(|at| {
        let toml = prepared(at, None, LONG);
        let machine = Machine::new();
        let daemon = machine.setup(&toml).admin().start();
        let admin = daemon.addresses[1].to_string();
        let shown = || machine.run(&["status", "--admin", &admin]).out;
        daemon.assert_logs("source \"default\" has worker ID 0 now, and pauses for 7 s or more");
        let page = shown();
        for part in ["no worker ID yet; at most ", "worker IDs   none yet", "ceiling: none yet"] {
            assert!(page.contains(part) && !page.contains("worker 0"), "{part:?}: {page}");
        }
        for _ in 0..6 {
            let mut wire = daemon.connect();
            wire.next(Ask::of(1).wait_ms(800));
        }
        draw(&daemon);
        let page = shown();
        assert!(page.contains("; worker 0; at most "), "{page}");
        assert!(finding(&daemon, "latency").is_none(), "{page}");
    });
}
