//! The daemon as a service: its notifications, the sockets that it inherits, and its log.

mod sockets;

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::frozen::FrozenThread;
use crate::support::has_program;
use crate::support::http::{self, sample};
use crate::support::machine::Machine;
use crate::support::manager::{Manager, Message};
use crate::support::{Address, Ask, Port, Setup, Wire, poll};
use rustix::process::Signal;

/// The watchdog's period in these tests. The daemon sends two messages to the service manager in
/// each period.
const PERIOD: Duration = Duration::from_millis(400);

fn is_ready(message: &Message) -> bool {
    message.says("READY=1")
}

fn with_watchdog(setup: Setup) -> Setup {
    setup.env("WATCHDOG_USEC", PERIOD.as_micros().to_string())
}

#[test]
fn ready_comes_first_then_watchdog_messages_then_the_stop() {
    let manager = Manager::new();
    let mut daemon = with_watchdog(manager.over(Setup::new())).start();
    let first = manager.next_within(crate::support::DEADLINE).expect("a message");
    assert!(is_ready(&first) && first.value("STATUS").is_some(), "{first:?}");
    for _ in 0..5 {
        manager.until("a watchdog message", |message| message.says("WATCHDOG=1"));
    }
    daemon.signal(Signal::TERM);
    let stopping = manager.until("the stop", |message| message.says("STOPPING=1"));
    let extension: u64 = stopping.value("EXTEND_TIMEOUT_USEC").expect("time to drain").parse().expect("µs");
    // The sum of the default drain_timeout, the times for storage and for the log, and a margin.
    assert!(extension >= 11_000_000, "{stopping:?}");
    assert_eq!(daemon.wait(), Some(0));
    while let Some(message) = manager.next_within(Duration::from_millis(1)) {
        assert!(!is_ready(&message), "the daemon is ready after the stop");
    }
}

#[test]
fn a_reload_notifies_its_start_and_end_and_changes_the_level() {
    let manager = Manager::new();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let setup = Setup::bare().config("listen = [\"127.0.0.9:0\"]\n").inheriting(tcp, "native");
    let daemon = manager.over(setup).start();
    manager.until("readiness", is_ready);
    // At a reload the inherited socket still replaces the listener of the file.
    let reload = |toml: &str, says: &str| {
        let before = daemon.log().len();
        std::fs::write(daemon.path("snowbank.toml"), toml).expect("written");
        daemon.signal(Signal::HUP);
        let reloading = manager.until("the reload", |message| message.says("RELOADING=1"));
        assert!(reloading.value("MONOTONIC_USEC").is_some(), "{reloading:?}");
        // The daemon reports that it is ready again, even if the reload was refused.
        manager.until("the end of the reload", is_ready);
        poll("the result in the log", || daemon.log()[before..].contains(says).then_some(()));
    };
    // With level "error" the daemon logs this line, and then nothing below an error.
    reload("[log]\nlevel = \"error\"\n", "INFO reloaded: log.level");
    reload("[log]\nlevel = \"warn\"\norder = 1\n", "ERROR reload refused");
    reload("[log]\nlevel = \"info\"\n", "INFO reloaded: log.level");
}

#[test]
fn a_failed_start_has_its_reason_in_the_status() {
    let manager = Manager::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let runtime = crate::support::directory();
    let setup = manager.over(Setup::bare()).env("RUNTIME_DIRECTORY", runtime.path());
    setup.args(["--listen", &address]).end().assert_refusal_for_now(&[&address]);
    let failed = manager.until("the reason", |message| message.value("STATUS").is_some());
    let status = failed.value("STATUS").expect("one");
    assert!(status.starts_with("cannot start: ") && status.contains(&address), "{status}");
    assert_eq!(std::fs::read_dir(runtime.path()).expect("it exists").count(), 0, "a file is left");
}

#[test]
fn the_status_shows_the_rate_and_is_not_repeated_when_idle() {
    let manager = Manager::new();
    let daemon = manager.over(Setup::new()).start();
    let ready = manager.until("readiness", is_ready);
    assert_eq!(ready.value("STATUS"), Some("ready: idle, 0 connections"));
    let mut wire = daemon.connect();
    assert_eq!(wire.next(Ask::of(1_000)).id_count(), Some(1_000));
    // The status may show the connection before its IDs.
    let is_busy = |status: &str| status.contains(" IDs/s, ") && status.ends_with(", 1 connection");
    manager.until("a rate", |message| message.value("STATUS").is_some_and(is_busy));
    let idle = manager.next_within(crate::support::DEADLINE).expect("a message");
    assert_eq!(idle.value("STATUS"), Some("ready: idle, 1 connection"));
    // Waits for longer than the interval between two statuses.
    assert_eq!(manager.next_within(Duration::from_secs(6)), None);
    daemon.stop();
}

/// The service manager reads nothing during the start and the stop. The daemon does not wait for
/// the service manager.
#[test]
fn a_stopped_or_missing_service_manager_delays_nothing() {
    let manager = Manager::new();
    manager.stand_still();
    let daemon = with_watchdog(manager.over(Setup::configured("order = \"strict\""))).start();
    for round in 0..10 {
        // Connects each time, because the thread that accepts connections also sends the watchdog's
        // messages.
        assert_eq!(daemon.connect().next(Ask::of(5)).id_count(), Some(5), "{round}");
        thread::sleep(PERIOD / 4);
    }
    daemon.signal(Signal::HUP);
    daemon.assert_logs("reload");
    // When the manager reads again, the daemon repeats that it is ready, with its status, and the
    // watchdog's messages continue. The message about the end of the reload may come first, without
    // a status.
    manager.until("readiness", |message| is_ready(message) && message.value("STATUS").is_some());
    manager.until("a watchdog message", |message| message.says("WATCHDOG=1"));
    manager.stand_still();
    daemon.stop();
    // A missing service manager delays nothing either.
    let daemon = with_watchdog(Setup::new()).env("NOTIFY_SOCKET", "/nowhere/notify").start();
    assert_eq!(daemon.connect().next(Ask::of(5)).id_count(), Some(5));
    daemon.stop();
}

#[test]
fn a_blocked_thread_stops_the_watchdog_and_fails_healthz() {
    let manager = Manager::new();
    let daemon = with_watchdog(manager.over(Setup::new().args(["--shards", "2"]).admin())).start();
    for name in ["shard-0", "shard-1", "keeper"] {
        manager.until("a watchdog message", |message| message.says("WATCHDOG=1"));
        let (frozen, found) = FrozenThread::once(daemon.id(), name, || {
            // Drops earlier messages, which the test may not have read yet.
            manager.forget();
            let messages = manager.all_within(5 * PERIOD);
            let sent = messages.iter().filter(|message| message.says("WATCHDOG=1")).count();
            let code = http::get(&daemon, "/healthz").code;
            // If the thread answered the last check just before it was frozen, one more message
            // follows.
            (sent <= 1 && code == 503, (sent, code))
        });
        let (sent, code) = found;
        assert!(sent <= 1, "{name} is blocked, but the daemon sent {sent} watchdog messages");
        assert_eq!(code, 503, "{name} is blocked");
        assert!(sample(&http::scrape(&daemon), "snowbank_shards") >= 1.0, "the metrics are still available");
        drop(frozen);
    }
    manager.until("a watchdog message", |message| message.says("WATCHDOG=1"));
    poll("progress of every thread", || (http::get(&daemon, "/healthz").code == 200).then_some(()));
    daemon.stop();
}

/// A unit that is still starting is ended by `systemctl daemon-reload`. So a daemon whose disk is
/// slow is ready for the service manager, and says in its status what it waits for. Its requests
/// wait within their deadlines, and load balancers see that it is not ready.
#[test]
fn a_slow_disk_delays_first_ids_but_no_message() {
    let manager = Manager::new();
    let machine = Machine::new();
    let disk = machine.disk();
    disk.order("sync stall 700");
    let daemon = with_watchdog(manager.over(disk.under(machine.setup("").admin()))).start();
    let first = manager.next_within(crate::support::DEADLINE).expect("a message");
    assert!(is_ready(&first), "{first:?}");
    assert!(first.value("STATUS").is_some_and(|status| status.contains("storage")), "{first:?}");
    assert_eq!(http::get(&daemon, "/readyz").code, 503);
    let (code, _, message) = daemon.connect().next(Ask::of(1).wait_ms(0)).error();
    assert_eq!(code, crate::support::wire::NO_CEILING, "{message}");
    assert!(message.contains("has not begun yet"), "{message}");
    assert_eq!(daemon.connect().next(Ask::of(1).wait_ms(10_000)).id_count(), Some(1));
    poll("a ready daemon", || (http::get(&daemon, "/readyz").code == 200).then_some(()));
    // Now the storage thread waits for a sync until the end of the test.
    disk.stall_syncs(120_000, || {});
    manager.forget();
    let hangs = |message: &Message| {
        let status = message.value("STATUS").unwrap_or_default();
        status.starts_with("not ready: ") && status.contains("storage has taken")
    };
    manager.until("a status that names the disk", hangs);
    for _ in 0..4 {
        manager.until("a watchdog message", |message| message.says("WATCHDOG=1"));
    }
    drop(daemon);
}

#[test]
fn a_start_far_below_its_ceiling_is_not_ready() {
    let Some(machine) = Machine::with_clock() else { return };
    // The ceiling is further ahead than max_ahead. It is less than a minute ahead, so that the
    // daemon follows the corrected clock at once.
    machine.clock().set(40_000);
    machine.start("").kill();
    machine.clock().set(0);
    let manager = Manager::new();
    let mut daemon = manager.over(machine.setup("")).start();
    // To the service manager the unit is active, and its status says what is missing.
    let first = manager.next_within(crate::support::DEADLINE).expect("a message");
    assert!(is_ready(&first), "{first:?}");
    assert!(first.value("STATUS").is_some_and(|status| status.starts_with("not ready: ")), "{first:?}");
    // The daemon listens, and its refusal gives the reason.
    daemon.connect().next(Ask::of(1).wait_ms(0)).assert_error(0, crate::support::wire::CLOCK_BEHIND);
    machine.clock().set(40_000);
    let is_serving = |message: &Message| message.value("STATUS").is_some_and(|it| it.starts_with("ready: "));
    manager.until("a daemon that serves", is_serving);
    assert_eq!(daemon.connect().next(Ask::of(1)).id_count(), Some(1));
    daemon.kill();
}

#[test]
fn json_logs_have_one_object_per_line_even_if_a_start_fails() {
    let parse = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"))).collect()
    };
    let mut daemon = Setup::configured("[log]\nformat = \"json\"\n").start();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let lines = parse(&daemon.log());
    assert!(lines.iter().all(|line| line["level"].is_string() && line["message"].is_string()), "{lines:?}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    // The first start fails after the daemon has read its configuration. The second start fails
    // because of the configuration.
    for options in [["--listen", &address], ["--shards", "0"]] {
        let ended = Setup::bare().args(options).args(["--log-format", "json"]).end();
        let lines = parse(&ended.stderr);
        assert!(matches!(&lines[..], [line] if line["level"] == "ERROR"), "{ended:?}");
    }
}
