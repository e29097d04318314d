//! SIGHUP: settings that can change do. If one cannot, the whole reload is refused. Connections are served
//! throughout.

mod words;

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::failing_disk::FailingDisk;
use crate::support::http::{get, sample, scrape};
use crate::support::ids::{assert_distinct, twitter_worker};
use crate::support::wire::{self, BAD_COUNT, TOO_BUSY, UNAUTHORIZED};
use crate::support::witness::{MIXED, SPARSE, Witness};
use crate::support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

/// The starts of the last line that a daemon logs about a reload.
const ENDS: [&str; 3] = ["reloaded: ", "reloaded without a configuration file", "nothing was reloaded"];

/// Replaces the daemon's configuration in one step.
fn configure(daemon: &Daemon, toml: &str) {
    replace(&daemon.path("snowbank.toml"), toml);
}

fn replace(path: &Path, text: &str) {
    let unfinished = path.with_extension("new");
    std::fs::write(&unfinished, text).expect("the file is written");
    std::fs::rename(&unfinished, path).expect("the file is put in place");
}

fn ends_in(said: &str) -> usize {
    said.lines().filter(|line| ENDS.iter().any(|end| line.contains(end))).count()
}

/// Makes the daemon reload, and returns its log lines about it.
fn reload(daemon: &Daemon) -> String {
    let before = daemon.log();
    daemon.signal(Signal::HUP);
    poll("the end of a reload", || {
        let said = daemon.log();
        (said.ends_with('\n') && ends_in(&said) > ends_in(&before)).then(|| said[before.len()..].to_owned())
    })
}

#[track_caller]
fn assert_reloaded(daemon: &Daemon, toml: &str, parts: &[&str]) {
    configure(daemon, toml);
    let said = reload(daemon);
    let line = said.lines().find(|line| line.contains("reloaded: ")).unwrap_or_else(|| panic!("{said}"));
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    assert!(!said.contains("ERROR"), "{said}");
}

/// Checks that a reload is refused with one line for each of `reasons`, which has all parts of that reason.
#[track_caller]
fn assert_refused(daemon: &Daemon, toml: &str, reasons: &[&[&str]]) {
    configure(daemon, toml);
    let said = reload(daemon);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("reload refused: ")).collect();
    assert_eq!(lines.len(), reasons.len(), "{said}");
    for parts in reasons {
        let is_it = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert!(lines.iter().any(|line| is_it(&line)), "no line has all of {parts:?}:\n{said}");
    }
    assert!(said.contains("nothing was reloaded"), "{said}");
}

fn source(name: &str, worker: usize) -> String {
    format!("[[sources]]\nname = \"{name}\"\nworker_ids = {worker}\n")
}

/// Returns the sources that a daemon reports.
fn sources_of(daemon: &Daemon) -> Vec<String> {
    let Reply::Info(_, json) = daemon.connect().call(&wire::info(1)) else { panic!("no INFO") };
    let info: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let name = |source: &serde_json::Value| source["name"].as_str().expect("a name").to_owned();
    info["sources"].as_array().expect("sources").iter().map(name).collect()
}

/// Opens enough connections that each shard has some.
fn connections(daemon: &Daemon) -> Vec<Wire> {
    (0..6).map(|_| daemon.connect()).collect()
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing() {
    for order in ["relaxed", "strict"] {
        let sources: String = (0..=10).map(|index| source(&format!("s{index}"), index)).collect();
        let toml = |round: usize| {
            let (wait, count) = (2 + round % 3, 1_000 + round);
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
                let found = wire.next(Ask::of(3).source(index as u16)).runs();
                assert_eq!(twitter_worker(found[0].first), index as u64);
                runs.extend(found);
            }
        }
        witness.await_ids();
        let testimony = witness.stop();
        testimony.assert_no_refusal();
        testimony.assert_unique_and_ordered();
        if order == "strict" {
            testimony.assert_strictly_ordered();
        }
        runs.extend(testimony.runs());
        assert_distinct(runs);
    }
}

#[test]
fn a_change_that_needs_a_restart_is_refused_with_every_reason() {
    let base = "shards = 2\nstate_dir = \"none\"\nlock_dir = \"locks\"\nlisten = \"127.0.0.1:0\"\n";
    let setup = Setup::bare().env("SNOWBANK_STATE_DIR", "").env("SNOWBANK_LOCK_DIR", "");
    let daemon = setup.config(&format!("{base}{}{}", source("a", 1), source("b", 2))).start();
    let files: [(String, &[&[&str]]); 10] = [
        (
            format!(
                "shards = 3\nstate_dir = \"s\"\nlock_dir = \"l\"\nlisten = \"127.0.0.1:1\"\norder = \"strict\"\n\
                 {}{}[clock]\nstep_hold = \"6s\"\n",
                source("a", 1),
                source("b", 2)
            ),
            &[
                &["snowbank.toml:1: shards: found 3, the daemon runs with 2: ", "restart the daemon"],
                &["snowbank.toml:2: state_dir: found ", "/s\", the daemon runs with \"none\": "],
                &["snowbank.toml:3: lock_dir: found ", "/l\"", "/locks\": "],
                &[
                    "snowbank.toml:4: listen: found [\"127.0.0.1:1\"], the daemon runs with [\"127.0.0.1:0\"]: ",
                ],
                &["snowbank.toml:5: order: found \"strict\", the daemon runs with \"relaxed\": "],
                &[":13: clock.step_hold: found \"6s\", the daemon runs with \"1m\": "],
            ],
        ),
        (
            format!("{base}{}", source("a", 1)),
            &[&[":5: sources[1]: found no source \"b\", the daemon runs with it: "]],
        ),
        (
            format!("{base}{}{}{}", source("a", 1), source("b", 2), source("c", 3)),
            &[&[":11: sources[2]: found source \"c\", the daemon runs without it: "]],
        ),
        (
            format!("{base}{}{}", source("b", 2), source("a", 1)),
            &[
                &[":6: sources[0].name: found \"b\", the daemon runs with \"a\": ", "keeps its place"],
                &[":9: sources[1].name: found \"a\", the daemon runs with \"b\": "],
            ],
        ),
        (
            format!("{base}{}{}", source("a", 3), source("b", 2)),
            &[&[":7: sources[0].worker_ids: found \"3\", the daemon runs with \"1\": "]],
        ),
        (
            format!("{base}{}layout = \"discord\"\n{}", source("a", 1), source("b", 2)),
            &[&[
                ":8: sources[0].layout: found \"time:41,worker:5,process:5,",
                "the daemon runs with \"time:41,datacenter:5,",
            ]],
        ),
        (
            format!("{base}burst_window = \"7ms\"\n{}{}", source("a", 1), source("b", 2)),
            &[
                &[":5: sources[0].burst_window: found \"7ms\", the daemon runs with \"10ms\": "],
                &[":5: sources[1].burst_window: found \"7ms\""],
            ],
        ),
        // With settings that could change: they do not change either.
        (
            format!("{base}{}{}[limits]\nmax_count = 5\n", source("a", 1), source("c", 2)),
            &[&["sources[1].name: found \"c\""]],
        ),
        // A start would refuse these settings.
        (
            format!("{base}shrds = 2\n{}{}[limits]\nmax_count = 0\n", source("a", 1), source("b", 1)),
            &[
                &[":5: shrds: not known; did you mean `shards`?"],
                &["limits.max_count: found 0"],
                &["both use worker 1"],
            ],
        ),
        (
            format!("{base}{}{}[auth]\ntoken_file = \"nowhere\"\n", source("a", 1), source("b", 2)),
            &[&[":12: auth.token_file: cannot read the token file", "No such file"]],
        ),
    ];
    let mut wire = daemon.connect();
    for (toml, reasons) in &files {
        assert_refused(&daemon, toml, reasons);
        wire.next(Ask::of(10).source(1)).ids();
    }
    std::fs::remove_file(daemon.path("snowbank.toml")).expect("it is there");
    let said = reload(&daemon);
    assert!(said.contains("reload refused: cannot read ") && said.contains("nothing was reloaded"), "{said}");
    assert_eq!(sources_of(&daemon), ["a", "b"]);
    // The next file is compared with the live configuration, not with the refused one.
    assert_reloaded(&daemon, &format!("{base}{}{}", source("a", 1), source("b", 2)), &["nothing changed"]);
}

#[test]
fn limits_hold_for_connections_that_are_open() {
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
        let Reply::Info(_, json) = wire.call(&wire::info(1)) else { panic!("no INFO") };
        assert!(json.contains("\"max_count\":200"), "{json}");
    }
    // The limit is lower than the number of open connections: they stay, and no other is accepted.
    assert_reloaded(
        &daemon,
        &toml("max_count = 200\nmax_connections = 2"),
        &["limits.max_connections: 10000 -> 2"],
    );
    open.iter_mut().for_each(Wire::assert_open);
    daemon.connect().reply().assert_error(0, TOO_BUSY);
    assert_reloaded(&daemon, &toml("max_count = 200"), &["limits.max_connections: 2 -> 10000"]);
    daemon.connect().assert_open();
    // Half a request, and an idle connection, that started under other timeouts.
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
    waiting.send(&[wire::ping(1, b""), Ask::of(96).source(1).wait_ms(60_000).bytes()].concat());
    assert_eq!(waiting.reply(), Reply::Pong(1, vec![]));
    assert_reloaded(&daemon, &toml("100ms"), &["limits.drain_timeout: \"1h\" -> \"100ms\""]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}

#[test]
fn tokens_are_read_again_and_hold_for_open_connections() {
    let setup = Setup::new();
    let (tokens, with, without) = (setup.path("tokens"), "[auth]\ntoken_file = \"tokens\"\n", "");
    replace(&tokens, "pineapple\n");
    let daemon = setup.config(with).start();
    let accepts = |token: &str| daemon.connect().call(&wire::auth(1, token.as_bytes())) == Reply::Ok(1);
    let mut open = daemon.connect();
    assert_eq!(open.call(&wire::auth(1, b"pineapple")), Reply::Ok(1));
    let mut undecided = daemon.connect();
    undecided.assert_open();

    replace(&tokens, "tangerine\nnectarine\n");
    assert_reloaded(&daemon, with, &["reloaded: other tokens"]);
    assert!(!accepts("pineapple") && accepts("tangerine") && accepts("nectarine"));
    open.reply().assert_error(0, UNAUTHORIZED);
    open.assert_closed();
    assert_eq!(undecided.call(&wire::auth(2, b"nectarine")), Reply::Ok(2));
    assert_reloaded(&daemon, with, &["reloaded: nothing changed"]);

    replace(&tokens, "# none\n");
    assert_refused(&daemon, with, &[&["auth.token_file", "holds no token"]]);
    assert!(accepts("tangerine"));

    assert_reloaded(&daemon, without, &["auth.token_file: ", "other tokens"]);
    daemon.connect().next(Ask::of(1)).ids();
    let mut before = daemon.connect();
    before.assert_open();
    replace(&tokens, "persimmon\n");
    assert_reloaded(&daemon, with, &["other tokens"]);
    daemon.connect().next(Ask::of(1)).assert_error(0, UNAUTHORIZED);
    before.next(Ask::of(1)).assert_error(0, UNAUTHORIZED);
    for token in ["pineapple", "tangerine", "nectarine", "persimmon"] {
        assert!(!daemon.log().contains(token), "a token is in the log");
    }
}
