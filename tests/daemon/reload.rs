//! Reloads by SIGHUP. If one setting cannot change while the daemon runs, the whole reload is
//! refused. The daemon continues to serve after every reload, even after a refused one.

mod sources;
mod words;

use crate::support::failing_disk::FailingDisk;
use crate::support::http::{get, sample, scrape};
use crate::support::ids::{assert_distinct, twitter_worker};
use crate::support::wire::{self, BAD_COUNT, TOO_BUSY};
use crate::support::witness::{MIXED, SPARSE, Witness, play_until_fed};
use crate::support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

#[track_caller]
fn assert_reloaded(daemon: &Daemon, toml: &str, parts: &[&str]) {
    daemon.replace("snowbank.toml", toml);
    let said = daemon.reload();
    let line = said.lines().find(|line| line.contains("reloaded: ")).unwrap_or_else(|| panic!("{said}"));
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    assert!(!said.contains("ERROR"), "{said}");
}

fn source(name: &str, worker: usize) -> String {
    format!("[[sources]]\nname = \"{name}\"\nworker_ids = {worker}\n")
}

/// Opens so many connections that every shard has at least one.
fn connections(daemon: &Daemon) -> Vec<Wire> {
    (0..6).map(|_| daemon.connect()).collect()
}

#[test]
fn a_hundred_reloads_under_load_disturb_no_request() {
    for order in ["relaxed", "strict"] {
        play_until_fed(|| {
            let sources: String = (0..=10).map(|index| source(&format!("s{index}"), index)).collect();
            let toml = |round: usize| {
                let wait = 10 + round % 3;
                let count = 1_000 + round;
                format!(
                    "shards = 2\norder = {order:?}\n[limits]\nmax_wait = \"{wait}s\"\nmax_count = {count}\n{sources}"
                )
            };
            let daemon = Setup::configured(&toml(0)).start();
            let witness = Witness::of(&daemon, &[MIXED, MIXED, MIXED, SPARSE, SPARSE, SPARSE]);
            let mut runs = Vec::new();
            for round in 1..=100 {
                assert_reloaded(&daemon, &toml(round), &["limits.max_count: "]);
                let mut wire = daemon.connect();
                for index in 0..=10 {
                    let found = wire.next(Ask::of(3).source(&format!("s{index}")).wait_ms(10_000)).runs();
                    assert_eq!(twitter_worker(found[0].first), index as u64);
                    runs.extend(found);
                }
            }
            witness.await_ids();
            let testimony = witness.stop();
            if order == "strict" {
                testimony.assert_strictly_ordered();
            }
            runs.extend(testimony.runs());
            assert_distinct(runs);
            testimony.if_fed()?.assert_no_refusal();
            Some(())
        });
    }
}

#[test]
fn reloaded_limits_apply_to_open_connections() {
    let toml = |limits: &str| format!("shards = 2\n[limits]\n{limits}");
    let daemon = Setup::configured(&toml("max_count = 100")).start();
    let mut open = connections(&daemon);
    let mut half = daemon.connect();
    half.send(&Ask::of(1).bytes()[..5]);
    let mut silent = daemon.connect();
    silent.assert_open();
    open[0].next(Ask::of(101)).assert_error(0, BAD_COUNT);
    assert_reloaded(&daemon, &toml("max_count = 200"), &["limits.max_count: 100 -> 200"]);
    for wire in &mut open {
        wire.next(Ask::of(200)).ids();
        assert!(wire.next(Ask::of(201)).assert_error(0, BAD_COUNT).contains("allowed 1 to 200"));
        assert_eq!(wire.info()["max_count"], 200);
    }
    // Sets the limit below the number of open connections. The open connections stay open, but a
    // new connection is refused.
    assert_reloaded(
        &daemon,
        &toml("max_count = 200\nmax_connections = 2"),
        &["limits.max_connections: 10000 -> 2"],
    );
    open.iter_mut().for_each(Wire::assert_open);
    daemon.connect().reply().assert_error(0, TOO_BUSY);
    assert_reloaded(&daemon, &toml("max_count = 200"), &["limits.max_connections: 2 -> 10000"]);
    daemon.connect().assert_open();
    // The new timeouts also apply to half a request and to an idle connection from before the
    // reload.
    assert_reloaded(
        &daemon,
        &toml("stall_timeout = \"1ms\"\nidle_timeout = \"1s\""),
        &["limits.idle_timeout: \"off\" -> \"1s\""],
    );
    half.assert_closed();
    silent.assert_closed();
}

#[test]
fn a_stop_obeys_the_drain_timeout_of_the_last_reload() {
    let toml = |drain: &str| format!("[limits]\ndrain_timeout = \"{drain}\"\n{TWO_SOURCES}");
    let mut daemon = Setup::configured(&toml("1h")).start();
    let mut waiting = daemon.connect();
    waiting.send(&[wire::ping(1, b""), Ask::of(96).source("slow").wait_ms(60_000).bytes()].concat());
    assert_eq!(waiting.reply(), Reply::Pong(1, vec![]));
    assert_reloaded(&daemon, &toml("100ms"), &["limits.drain_timeout: \"1h\" -> \"100ms\""]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}
