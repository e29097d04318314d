//! Readiness, health and findings, as probes and operators see them.

use super::*;

/// Returns the code of /readyz, and its findings as "NAME of SOURCE: EFFECT".
fn found(daemon: &Daemon) -> (u16, Vec<String>) {
    let answer = get(daemon, "/readyz");
    let json = answer.json();
    let text = |finding: &serde_json::Value| {
        let of = finding["source"].as_str().map_or_else(String::new, |source| format!(" of {source}"));
        let name = finding["name"].as_str();
        let effect = finding["effect"].as_str();
        format!("{}{of}: {}", name.expect("a name"), effect.expect("an effect"))
    };
    (answer.code, json["findings"].as_array().expect("findings").iter().map(text).collect())
}

/// Waits until /readyz answers with this code and these findings.
fn await_found(daemon: &Daemon, code: u16, findings: &[&str]) {
    poll(&format!("{code} with {findings:?}"), || {
        let (found_code, found) = found(daemon);
        (found_code == code && found == findings).then_some(())
    });
}

/// With these ticks the ceiling is about ten seconds ahead, so a warning is visible for some
/// seconds before the ceiling is reached.
const LONG_TICKS: &str = "time:31,worker:10,sequence:20;tick=4s;epoch=2025-01-01T00:00:00Z";

/// Starts a daemon with [`LONG_TICKS`] on a disk that can fail.
fn on_a_failing_disk() -> (FailingDisk, Daemon) {
    let setup = Setup::new();
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let setup = disk.under(setup).option("--layout", LONG_TICKS).config("max_ahead = \"2m\"");
    (disk, setup.admin().start())
}

/// A source with 16 IDs in a tick. Its ceiling is two of these long ticks ahead, so the daemon does
/// not reach it even if the machine pauses.
const SLOW: &str = "[[sources]]\nname = \"slow\"\nworker_ids = 1\n\
                    layout = \"time:31,worker:10,sequence:4;tick=10s;epoch=2025-01-01T00:00:00Z\"\n";

#[test]
fn readyz_answers_503_with_the_cause_at_the_ceiling() {
    let (disk, mut daemon) = on_a_failing_disk();
    assert_eq!(found(&daemon), (200, vec![]));
    let mut wire = daemon.connect();
    wire.next(Ask::of(1));

    disk.order(&format!("any fail {EIO}"));
    // If the machine pauses, the test may miss the warning in /readyz, but not in the log.
    daemon.assert_logs("; IDs last for another");
    await_found(&daemon, 503, &["ceiling of default: refuses"]);
    // Unused IDs below the ceiling remain available for the length of the burst window.
    daemon.draw_until(Ask::of(1), wire::NO_CEILING);
    let samples = scrape(&daemon);
    assert_eq!(sample(&samples, "snowbank_ready"), 0.0);
    assert_eq!(sample(&samples, "snowbank_ceiling_raise_failing"), 1.0);
    assert!(sample(&samples, "snowbank_ceiling_raise_failures_total") >= 1.0);
    let admin = admin_of(&daemon).to_string();
    let said = status(&["--admin", &admin]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.starts_with("NOT READY"), "{said:?}");
    assert_eq!(said.err, "snowbank: not ready: ceiling of default\n");
    poll("/healthz answers 200", || (get(&daemon, "/healthz").code == 200).then_some(()));

    disk.works();
    poll("/readyz answers 200", || (get(&daemon, "/readyz").code == 200).then_some(()));
    wire.next(Ask::of(1).wait_ms(10_000));
    daemon.kill();
    let unasked = status(&["--admin", &admin, "--timeout", "2s"]);
    assert_eq!(unasked.code, Some(2), "{unasked:?}");
    assert!(unasked.err.contains(&admin), "{unasked:?}");
}

/// The daemon refuses most requests at once, and no request waits. So only the counts of refusals
/// reveal the problem.
#[test]
fn refusals_show_within_seconds_and_the_daemon_stays_ready() {
    let daemon = with_admin(SLOW);
    let mut wire = daemon.connect();
    poll("the finding", || {
        for _ in 0..10 {
            wire.call(&Ask::of(16).wait_ms(0).bytes());
        }
        let (code, findings) = found(&daemon);
        assert_eq!(code, 200, "a daemon that is not ready gets no requests at all");
        (findings == ["refusals of slow: refuses_some"]).then_some(())
    });
    let samples = scrape(&daemon);
    assert!(sample(&samples, "snowbank_refusals_total{source=\"slow\"}") >= 5.0);
    assert_eq!(sample(&samples, "snowbank_finding{finding=\"refusals\",source=\"slow\"}"), 2.0);
    let said = status(&["--admin", &admin_of(&daemon).to_string()]);
    let text = &said.out;
    assert!(
        text.starts_with("Serving, BUT some requests are refused\n  FAIL refusals of slow: refused "),
        "{text}"
    );
    assert_eq!(said.code, Some(0), "the daemon is ready");
    daemon.assert_logs("finding refusals of slow: refused ");
    await_found(&daemon, 200, &[]);
    daemon.assert_logs("finding refusals of slow has ended");
}

#[test]
fn too_few_open_files_for_all_connections_are_found() {
    let limited = Setup::new().through("sh", &["-c", "ulimit -n 300; exec \"$@\"", "sh"]);
    let daemon = limited.admin().start();
    await_found(&daemon, 200, &["connections: look"]);
    daemon.assert_logs("the limit of open files allows no more, and max_connections is 10,000");
}

#[test]
fn a_full_connection_limit_is_found_and_the_daemon_stays_ready() {
    let daemon = with_admin("limits.max_connections = 4");
    let mut kept = [(); 4].map(|()| daemon.connect());
    for wire in &mut kept {
        wire.assert_open();
    }
    for _ in 0..5 {
        let (code, retry_after_ms, message) = daemon.connect().reply().error();
        assert!(code == wire::TOO_BUSY && retry_after_ms > 0, "{code}: {message}");
    }
    await_found(&daemon, 200, &["connections: refuses_some"]);
    let refused = "snowbank_connections_refused_total";
    poll("all refused connections are counted", || (sample(&scrape(&daemon), refused) == 5.0).then_some(()));
    daemon.assert_logs("turned away");
    assert_eq!(daemon.log().matches("turned away").count(), 1, "{}", daemon.log());
    drop(kept);
    await_found(&daemon, 200, &[]);
}

/// The disk hangs while no client sends a request.
#[test]
fn hanging_storage_warns_while_ids_last_and_then_fails() {
    let (disk, daemon) = on_a_failing_disk();
    daemon.connect().next(Ask::of(1));
    disk.order("sync stall 100000");
    // If the machine pauses, the test may miss the warning in /readyz, but not in the log.
    daemon.assert_logs("finding ceiling of default: storage took up to ");
    assert!(sample(&scrape(&daemon), "snowbank_ceiling_write_seconds") > 1.0);
    assert_eq!(sample(&scrape(&daemon), "snowbank_ceiling_raise_failing"), 0.0);
    await_found(&daemon, 503, &["ceiling of default: refuses"]);
    daemon.assert_logs("not ready: /readyz answers 503, because of ceiling of default");
    disk.works();
}
