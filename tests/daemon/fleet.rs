//! Daemons of one fleet on real coordinators: assignment of worker IDs, outages, and takeovers.

mod advice;
mod bad_input;
mod endpoints;
mod numbers;
mod operator;
mod outages;
mod reloads;
mod restored;
mod rolling;
mod schedules;
mod shown;
mod starts;
mod tls;

use crate::support::coordinators::{Coordinator, Etcd, Proxy, each, on_one};
use crate::support::daemon::Ended;
use crate::support::http::{get, sample, scrape};
use crate::support::ids::{assert_distinct, twitter_worker};
use crate::support::machine::Machine;
use crate::support::program::run_configured;
use crate::support::wire::{self, CLOCK_BEHIND, NO_CEILING, Run};
use crate::support::{Ask, Daemon, Reply, poll};
use rustix::process::Signal;

/// A short horizon: the worker ID of a killed daemon is free after some seconds. The horizon is
/// long enough for the pause of a start on a busy machine.
const SHORT: &str = "16s";
/// The key of worker ID 5.
const KEY: &str = "/snowbank/default/space-0/5";
/// A horizon longer than any test.
const LONG: &str = "10m";

/// Returns the configuration of a daemon with this worker ID. With `None`, the fleet assigns the
/// worker ID.
fn toml(at: &dyn Coordinator, worker: Option<u64>, horizon: &str) -> String {
    toml_at(at, &[&at.url()], worker, horizon)
}

/// Returns the configuration of [`toml`] with these endpoints.
fn toml_at(at: &dyn Coordinator, urls: &[&str], worker: Option<u64>, horizon: &str) -> String {
    let origin =
        worker.map_or("worker_id_from = \"coordinator\"".to_owned(), |id| format!("worker_ids = {id}"));
    format!("max_ahead = \"400ms\"\n{origin}\n{}horizon = \"{horizon}\"\n", at.table(urls))
}

/// Prepares a fleet whose daemons reach the coordinator through a proxy. Returns the proxy and the
/// daemons' configuration.
fn prepared_behind_proxy(at: &dyn Coordinator, worker: Option<u64>, horizon: &str) -> (Proxy, String) {
    let proxy = at.proxy();
    let toml = toml_at(at, &[&proxy.url()], worker, horizon);
    init(&toml);
    (proxy, toml)
}

/// Runs `snowbank fleet` with a configuration. Returns the exit code and both outputs.
fn fleet(toml: &str, args: &[&str]) -> (Option<i32>, String) {
    run_configured(toml, &[&["fleet"], args].concat())
}

/// Runs `snowbank fleet`, which must end with this code and print all of these parts.
#[track_caller]
fn fleet_says(toml: &str, args: &[&str], code: i32, parts: &[&str]) {
    let (found, text) = fleet(toml, args);
    assert_eq!(found, Some(code), "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?}: {text}"));
}

/// Prepares a fleet with the limits of its daemons.
#[track_caller]
pub(crate) fn init(toml: &str) {
    fleet_says(toml, &["init", "--new"], 0, &[]);
}

/// Prepares a fleet, and returns the configuration of its daemons.
fn prepared(at: &dyn Coordinator, worker: Option<u64>, horizon: &str) -> String {
    let toml = toml(at, worker, horizon);
    init(&toml);
    toml
}

/// Starts a daemon. Returns its machine, the daemon and its first IDs.
fn serving(toml: &str) -> (Machine, Daemon, Vec<Run>) {
    let machine = Machine::new();
    let daemon = machine.start(toml);
    let runs = draw(&daemon);
    (machine, daemon, runs)
}

/// Draws IDs once the daemon has its worker IDs. On a busy machine the daemon may listen before the
/// coordinator answers.
fn draw(daemon: &Daemon) -> Vec<Run> {
    daemon.assert_has_numbers();
    daemon.connect().next_once_granted(Ask::of(100)).runs()
}

fn worker_of(runs: &[Run]) -> u64 {
    twitter_worker(runs[0].first)
}

/// Starts daemons until one is refused because its endpoints belong to two clusters. If an endpoint
/// answers late, the daemon does not compare its cluster, and the start succeeds or fails for
/// another reason.
pub(crate) fn refused_for_two_clusters(toml: &str) -> Ended {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        match Machine::new().setup(toml).try_start() {
            Ok(daemon) => drop(daemon.stop()),
            Err(daemon) => {
                let ended = Ended::of(*daemon);
                if ended.stderr.contains("two clusters") {
                    return ended;
                }
                println!("{}", ended.stderr);
            }
        }
    }
    panic!("no start of {TRIES} was refused because of two clusters")
}

#[test]
fn a_daemon_starts_only_in_a_fleet_that_init_prepared() {
    on_one(|at| {
        let toml = toml(at, Some(5), LONG);
        let machine = Machine::new();
        machine.setup(&toml).end().assert_refusal(&["no fleet of this name", "snowbank fleet init"]);
        fleet_says(&toml, &["init"], 1, &["--new", "--above"]);
        init(&toml);
        for again in [&["init"][..], &["init", "--new"]] {
            fleet_says(&toml, again, 0, &["is prepared already"]);
        }
        let daemon = machine.start(&toml);
        assert_eq!(worker_of(&draw(&daemon)), 5);
        let (_, text) = fleet(&toml, &["list"]);
        assert!(text.starts_with("5: held by ") && text.contains("for source \"default\""), "{text}");
        let other = format!("layout = \"sonyflake\"\n{toml}");
        Machine::new().setup(&other).end().assert_refusal(&["other ID spaces", "found ", "allowed: "]);
        fleet_says(&other, &["init"], 1, &["--add"]);
    });
}

#[test]
fn a_paused_daemon_whose_worker_id_was_taken_ends() {
    on_one(|at| {
        let toml = toml(at, Some(5), SHORT);
        init(&toml);
        let first = Machine::new();
        let second = Machine::new();
        let mut paused = first.start(&toml);
        let mut runs = draw(&paused);
        paused.signal(Signal::STOP);
        let taker = poll("a free worker ID", || {
            let (_, text) = fleet(&toml, &["list"]);
            text.contains("free since").then(|| second.start(&toml))
        });
        runs.extend(draw(&taker));
        let mut wire = paused.connect();
        wire.send(&Ask::of(10).wait_ms(0).bytes());
        paused.signal(Signal::CONT);
        if let Ok(Some(Reply::Runs(_, more))) = wire.try_reply() {
            runs.extend(more);
        }
        assert_eq!(paused.wait(), Some(3), "{}", paused.log());
        // docs/operations.md tells operators to search the journal for "is lost".
        paused.assert_logs("stopped, because IDs may no longer be this daemon's alone");
        runs.extend(draw(&taker));
        assert_distinct(runs);
    });
}

#[test]
fn a_coordinator_that_lost_its_data_is_not_a_new_fleet() {
    each(|at| {
        let toml = prepared(at, Some(5), LONG);
        let (machine, mut daemon, mut runs) = serving(&toml);
        at.kill();
        at.run();
        runs.extend(draw(&daemon));
        at.kill();
        at.lose_data();
        at.run();
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        daemon.assert_logs("gone from the coordinator");
        machine.setup(&toml).end().assert_refusal(&["no fleet of this name", "lost its data"]);
        // The next lines follow the steps of docs/fleet.md.
        let highest = runs.iter().map(Run::last).max().expect("the daemon has drawn");
        std::fs::remove_file(machine.path("state/fleet")).expect("the notes are removed");
        fleet_says(&toml, &["init", "--above", &highest.to_string()], 0, &["starts above"]);
        runs.extend(draw(&machine.start(&toml)));
        assert_distinct(runs);
    });
}

#[test]
fn another_cluster_at_the_same_address_ends_the_daemons() {
    let Some(mut etcd) = Etcd::start() else { return };
    let toml = prepared(&etcd, Some(5), LONG);
    let (_machine, mut daemon, _) = serving(&toml);
    etcd.kill();
    etcd.become_another();
    etcd.run();
    assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
    daemon.assert_logs("found cluster");
}
