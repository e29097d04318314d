//! SIGHUP: what can change does, what cannot is refused as a whole, and nobody who is served notices.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::failing_disk::{ENOSPC, FailingDisk};
use support::http::{get, sample, scrape};
use support::ids::{assert_distinct, twitter_worker};
use support::wire::{self, BAD_COUNT, EXHAUSTED, TOO_BUSY, UNAUTHORIZED, UNKNOWN_SOURCE};
use support::witness::{MIXED, SPARSE, Witness};
use support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, Wire, poll};

/// The beginning of the last line that a daemon logs of a reload.
const ENDS: [&str; 3] = ["reloaded: ", "reloaded without a configuration file", "nothing was reloaded"];

/// Gives the daemon another configuration, whole at any moment.
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

/// Has the daemon reload, and gives what it says of it.
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

/// Checks that a reload is refused with one line for each of `reasons`, all of whose parts that line holds.
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

/// The sources that a daemon tells of.
fn sources_of(daemon: &Daemon) -> Vec<String> {
    let Reply::Info(_, json) = daemon.connect().call(&wire::info(1)) else { panic!("no INFO") };
    let info: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let name = |source: &serde_json::Value| source["name"].as_str().expect("a name").to_owned();
    info["sources"].as_array().expect("sources").iter().map(name).collect()
}

/// Enough connections for each shard to have some.
fn connections(daemon: &Daemon) -> Vec<Wire> {
    (0..6).map(|_| daemon.connect()).collect()
}

/// Reloads as `systemctl reload` does, and returns the exit code and the error output.
fn reload_by_command(daemon: &Daemon) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
    command
        .arg("reload")
        .env("MAINPID", daemon.id().to_string())
        .env("RUNTIME_DIRECTORY", daemon.path("run"));
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn the_result_of_a_reload_is_an_exit_code_and_shows_in_status_metrics_and_configuration() {
    let setup = Setup::configured("limits.max_count = 1000");
    std::fs::create_dir(setup.path("run")).expect("a runtime directory");
    let run = setup.path("run");
    let daemon = setup.env("RUNTIME_DIRECTORY", run).admin().start();
    let success = || sample(&scrape(&daemon), "snowbank_config_last_reload_successful");
    let reload_check = || {
        let checks = get(&daemon, "/readyz").json()["checks"].clone();
        let check =
            checks.as_array().expect("checks").iter().find(|check| check["name"] == "reload").cloned();
        check.expect("the check")["message"].as_str().expect("a message").to_owned()
    };
    assert_eq!((success(), reload_check().as_str()), (1.0, "none since the start"));
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 1000\n"));

    configure(&daemon, "shards = 7\nlimits.max_count = 2000");
    let (code, said) = reload_by_command(&daemon);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the reload was refused: ") && said.contains("shards: found 7"), "{said}");
    assert_eq!(success(), 0.0);
    assert!(reload_check().contains("was refused: ") && reload_check().contains("shards: found 7"));
    assert_eq!(get(&daemon, "/readyz").code, 200, "it serves on");
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 1000\n"), "the live one");

    configure(&daemon, "limits.max_count = 3000");
    assert_eq!(reload_by_command(&daemon), (Some(0), String::new()));
    assert_eq!((success(), reload_check().as_str()), (1.0, "the last reload succeeded"));
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 3000\n"));
    assert!(sample(&scrape(&daemon), "snowbank_config_last_reload_timestamp_seconds") > 1.7e9);
    assert!(!daemon.path("run/reload.sock").exists());
}

#[test]
fn a_hundred_reloads_under_load_lose_nothing() {
    for order in ["relaxed", "strict"] {
        let toml = |round: usize| {
            let sources: String = (0..=round / 10).map(|index| source(&format!("s{index}"), index)).collect();
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
            for index in 0..=round / 10 {
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
        assert_eq!(sources_of(&daemon).len(), 11);
    }
}

#[test]
fn an_added_source_serves_at_once_and_goes_on_after_a_crash() {
    let setup = Setup::configured(&format!("shards = 2\n{}", source("old", 1)));
    let (state, locks) = (setup.path("state"), setup.path("locks"));
    let mut daemon = setup.start();
    let mut open = connections(&daemon);
    for wire in &mut open {
        wire.next(Ask::of(1).source(1)).assert_error(0, UNKNOWN_SOURCE);
    }
    let both = format!("shards = 2\n{}{}", source("old", 1), source("new", 2));
    assert_reloaded(&daemon, &both, &["reloaded: source \"new\" added"]);
    assert!(daemon.log().contains("source \"new\" starts for the first time"));
    assert_eq!(sources_of(&daemon), ["old", "new"]);
    let mut highest = 0;
    for wire in open.iter_mut().chain(&mut connections(&daemon)) {
        for (index, worker) in [(0, 1), (1, 2)] {
            let runs = wire.next(Ask::of(100).source(index)).runs();
            assert_eq!(twitter_worker(runs[0].first), worker);
            highest = highest.max(runs[runs.len() - 1].last());
        }
    }
    // Its worker ID is held, and its ceiling kept.
    let other = Setup::configured(&source("other", 2)).env("SNOWBANK_LOCK_DIR", &locks);
    other.end().assert_refusal_for_now(&["worker ID 2 of layout", "held by another daemon"]);
    daemon.kill();
    let again = Setup::configured(&both).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state);
    let again = again.start();
    let first = again.connect().next(Ask::of(1).source(1)).ids()[0];
    assert!(first > highest, "{first} after {highest}");
    assert!(!again.log().contains("starts for the first time"), "{}", again.log());
    again.stop();
}

#[test]
fn a_change_that_needs_a_restart_is_refused_with_every_reason() {
    let base = "shards = 2\nstate_dir = \"none\"\nlock_dir = \"locks\"\nlisten = \"127.0.0.1:0\"\n";
    let setup = Setup::bare().env("SNOWBANK_STATE_DIR", "").env("SNOWBANK_LOCK_DIR", "");
    let daemon = setup.config(&format!("{base}{}{}", source("a", 1), source("b", 2))).start();
    let files: [(String, &[&[&str]]); 9] = [
        (
            format!(
                "shards = 3\nstate_dir = \"s\"\nlock_dir = \"l\"\nlisten = \"127.0.0.1:1\"\norder = \"strict\"\n\
                 unix_mode = \"0600\"\n{}{}[clock]\nstep_hold = \"6s\"\n",
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
                &["snowbank.toml:6: unix_mode: found \"0600\", the daemon runs with \"0660\": "],
                &[":14: clock.step_hold: found \"6s\", the daemon runs with \"1m\": "],
            ],
        ),
        (
            format!("{base}{}", source("a", 1)),
            &[&[":5: sources[1]: found no source \"b\", the daemon runs with it: "]],
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
        // Beside what could change, which does not either.
        (
            format!("{base}{}{}[limits]\nmax_count = 5\n", source("a", 1), source("c", 2)),
            &[&["sources[1].name: found \"c\""]],
        ),
        // A start would refuse these.
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
    // What the next file says is held against what runs, not against what was refused.
    assert_reloaded(&daemon, &format!("{base}{}{}", source("a", 1), source("b", 2)), &["nothing changed"]);
}

#[test]
fn a_source_that_cannot_join_is_refused_and_gives_back_what_it_took() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let locks = setup.path("locks");
    let daemon = setup.start();
    let neighbour = Setup::configured(&source("x", 5)).env("SNOWBANK_LOCK_DIR", &locks).start();
    let both = format!("{old}{}{}", source("free", 4), source("taken", 5));
    assert_refused(&daemon, &both, &[&["worker ID 5 of layout", "is held by another daemon"]]);
    assert_eq!(sources_of(&daemon), ["old"]);
    neighbour.stop();
    // The free one's worker ID was given back.
    let neighbour = Setup::configured(&source("x", 4)).env("SNOWBANK_LOCK_DIR", &locks).start();
    assert_refused(&daemon, &both, &[&["worker ID 4 of layout", "is held by another daemon"]]);
    neighbour.stop();
    assert_reloaded(&daemon, &both, &["source \"free\" added, source \"taken\" added"]);
    let mut wire = daemon.connect();
    for index in 0..3 {
        wire.next(Ask::of(1).source(index)).ids();
    }
}

#[test]
fn a_joining_source_obeys_the_stored_ceiling() {
    let old = source("old", 1);
    let two = format!("{old}{}", source("back", 2));
    let setup = Setup::configured(&two);
    let (state, locks) = (setup.path("state"), setup.path("locks"));
    let mut daemon = setup.start();
    let before = daemon.connect().next(Ask::of(1).source(1)).ids()[0];
    daemon.kill();
    let again = Setup::configured(&old).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state);
    let mut daemon = again.start();
    // Of the same name, with a layout whose IDs of today are lower.
    let lower =
        "name = \"back\"\nlayout = \"time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=2025-01-01\"";
    let lower = format!("{old}[[sources]]\n{lower}\nworker_ids = 2\n");
    assert_refused(&daemon, &lower, &[&["source \"back\": its IDs must go on above those of layout"]]);
    assert_reloaded(&daemon, &two, &["source \"back\" added"]);
    assert!(!daemon.log().contains("source \"back\": no ceiling"), "{}", daemon.log());
    let after = daemon.connect().next(Ask::of(1).source(1)).ids()[0];
    assert!(after > before, "{after} after {before}");
    daemon.kill();
    let last =
        Setup::configured(&two).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state).start();
    assert!(last.connect().next(Ask::of(1).source(1)).ids()[0] > after);
    last.stop();
}

#[test]
fn while_the_disk_fails_no_source_joins_and_the_others_serve_on() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let locks = setup.path("locks");
    let daemon = disk.under(setup).start();
    let witness = Witness::of(&daemon, &[SPARSE, SPARSE]);
    let both = format!("{old}{}[limits]\nmax_count = 600\n", source("new", 2));
    let limits = format!("{old}[limits]\nmax_count = 500\n");
    disk.order(&format!("write fail {ENOSPC}"));
    assert_refused(
        &daemon,
        &both,
        &[&["cannot make the first ceilings of the new sources durable", "No space"]],
    );
    // Still no room for another file: the one that is there is written again.
    disk.order(&format!("open fail {ENOSPC}"));
    assert_reloaded(&daemon, &limits, &["limits.max_count: 1000000 -> 500"]);
    let before = daemon.log().len();
    witness.await_time(Duration::from_secs(4));
    witness.await_ids();
    // The refused reload's write may have been the last one when the checks were made. It stays no finding: the raises since
    // succeeded.
    poll("no finding of the ceiling", || {
        let said = daemon.log();
        let last = said[before..].rfind("check ceiling of old").map(|at| &said[before + at..]);
        last.is_none_or(|line| line.starts_with("check ceiling of old is ok again")).then_some(())
    });
    for order in ["sync", "write"] {
        disk.order(&format!("{order} fail {ENOSPC}"));
        assert_refused(&daemon, &both, &[&["durable", "No space"]]);
        disk.works();
        witness.await_ids();
    }
    disk.order(&format!("sync lie {ENOSPC}"));
    assert_refused(&daemon, &both, &[&["durable", "No space"]]);
    // Nothing of it is left behind: another daemon may have the worker ID.
    Setup::configured(&source("x", 2)).env("SNOWBANK_LOCK_DIR", &locks).start().stop();
    assert_eq!(sources_of(&daemon), ["old"]);
    disk.works();
    assert_reloaded(&daemon, &both, &["limits.max_count: 500 -> 600", "source \"new\" added"]);
    daemon.connect().next(Ask::of(600).source(1)).ids();
    // A slow disk keeps the reload waiting, and nobody else.
    disk.order("sync stall 400");
    let third = format!("{both}{}", source("third", 3));
    assert_reloaded(&daemon, &third, &["source \"third\" added"]);
    let testimony = witness.stop();
    testimony.assert_no_refusal();
    testimony.assert_unique_and_ordered();
    // A stop that comes while a reload waits for the disk.
    configure(&daemon, &format!("{third}{}", source("fourth", 4)));
    daemon.signal(Signal::HUP);
    daemon.stop();
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
    // Fewer connections than are open: they stay, and no other comes.
    assert_reloaded(
        &daemon,
        &toml("max_count = 200\nmax_connections = 2"),
        &["limits.max_connections: 10000 -> 2"],
    );
    open.iter_mut().for_each(Wire::assert_open);
    daemon.connect().reply().assert_error(0, TOO_BUSY);
    assert_reloaded(&daemon, &toml("max_count = 200"), &["limits.max_connections: 2 -> 10000"]);
    daemon.connect().assert_open();
    // Half a request, and silence, that began under other timeouts.
    assert_reloaded(
        &daemon,
        &toml("stall_timeout = \"1ms\"\nidle_timeout = \"1s\""),
        &["limits.idle_timeout: \"off\" -> \"1s\""],
    );
    half.assert_closed();
    silent.assert_closed();
}

#[test]
fn a_stop_takes_as_long_as_the_last_reload_said() {
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
fn requests_wait_for_an_added_source_as_for_any_other() {
    let slow =
        "[[sources]]\nname = \"slow\"\nlayout = \"time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01\"\n";
    let toml = format!("shards = 2\n{}", source("old", 1));
    let daemon = Setup::configured(&toml).start();
    let mut open = connections(&daemon);
    assert_reloaded(&daemon, &format!("{toml}{slow}"), &["source \"slow\" added"]);
    // More than two ticks have, and for the last more than can be had in time.
    for wire in &mut open[..4] {
        wire.send(&Ask::of(12).source(1).wait_ms(10_000).bytes());
    }
    let mut ids: Vec<u64> = open[..4].iter_mut().flat_map(|wire| wire.reply().ids()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 48);
    open[5].next(Ask::of(1_000).source(1).wait_ms(1_000)).assert_error(0, EXHAUSTED);
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

#[test]
fn options_stay_above_the_file() {
    let setup = Setup::configured("shards = 1\nworker_ids = 9\n").option("--worker-id", "3");
    let daemon = setup.env("SNOWBANK_SHARDS", "2").start();
    assert_reloaded(&daemon, "shards = 5\nworker_ids = 8\nlisten = \"127.0.0.1:1\"", &["nothing changed"]);
    assert_eq!(twitter_worker(daemon.connect().next(Ask::of(1)).ids()[0]), 3);
    let two = format!("{}{}", source("default", 3), source("other", 4));
    assert_refused(&daemon, &two, &[&["--worker-id: found 2 [[sources]] in the file, allowed: one"]]);
}

#[test]
fn the_level_of_the_log_changes_and_says_so() {
    let toml = |level: &str| format!("[log]\nlevel = \"{level}\"\n");
    let daemon = Setup::configured(&toml("info")).start();
    for (from, to) in [("info", "warn"), ("warn", "debug"), ("debug", "error"), ("error", "info")] {
        assert_reloaded(&daemon, &toml(to), &[&format!("log.level: \"{from}\" -> \"{to}\"")]);
    }
    assert_reloaded(&daemon, &toml("warn"), &[]);
    configure(&daemon, &format!("{}[limits]\nmax_count = 7\n", toml("warn")));
    let before = daemon.log();
    daemon.signal(Signal::HUP);
    let mut wire = daemon.connect();
    poll("the reload", || wire.next(Ask::of(8)).id_count().is_none().then_some(()));
    assert_eq!(daemon.log(), before, "said below the level");
    assert_refused(&daemon, "log.format = \"json\"", &[&["log.format: found \"json\""]]);
}

#[test]
fn the_same_place_in_other_words_is_no_change() {
    let setup = Setup::new().env("SNOWBANK_STATE_DIR", "");
    let home = setup.path("service");
    let daemon = setup.env("STATE_DIRECTORY", &home).config("").start();
    let toml = |path: &Path| format!("state_dir = {path:?}\n");
    assert_reloaded(&daemon, &toml(&home), &["nothing changed"]);
    let service = format!("the daemon runs with {home:?}");
    assert_refused(&daemon, &toml(&daemon.path("else")), &[&["state_dir: found ", &service]]);
}

#[test]
fn without_a_file_a_reload_says_so() {
    let daemon = Setup::new().start();
    let said = reload(&daemon);
    assert!(said.contains("without a configuration file") && said.contains("nothing changed"), "{said}");
    daemon.connect().next(Ask::of(1)).ids();
    daemon.stop();
}

#[test]
fn hang_ups_at_any_time_end_nothing_and_the_last_one_counts() {
    let toml = |count: usize| {
        format!("[limits]\ndrain_timeout = \"30s\"\nmax_count = {count}\n{}", source("slow", 1))
    };
    let setup = Setup::configured(&toml(1));
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    disk.order("sync stall 300");
    let mut daemon = {
        let setup = disk.under(setup);
        let path = setup.path("snowbank.toml");
        // While it starts: it is there from its first sync on.
        let state = setup.path("state");
        let hang_up = std::thread::spawn(move || {
            let file = state.join("lock");
            let holder = poll("a daemon that starts", || {
                let text = std::fs::read_to_string(&file).ok()?;
                text.split_whitespace()
                    .find_map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok())
            });
            replace(&path, &toml(2));
            let pid = rustix::process::Pid::from_raw(holder).expect("a process");
            rustix::process::kill_process(pid, Signal::HUP).expect("it is there");
        });
        let daemon = setup.start();
        hang_up.join().expect("no panic");
        daemon
    };
    poll("the reload of the start", || daemon.log().contains("limits.max_count: 1 -> 2").then_some(()));
    disk.works();
    for round in 3..50 {
        configure(&daemon, &toml(round));
        daemon.signal(Signal::HUP);
    }
    let mut wire = daemon.connect();
    poll("the last configuration", || wire.next(Ask::of(49)).id_count());
    // While it stops: half a request keeps it from its end.
    wire.send(&Ask::of(1_000).bytes());
    wire.reply().assert_error(0, BAD_COUNT);
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::HUP);
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}

/// Returns how far above now the ceiling of the first source is, in ms, and its ID.
fn stored_ceiling(daemon: &Daemon) -> (i64, u64) {
    let mut show = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank"));
    let shown = show.args(["state", "show", "--json", "--state-dir"]).arg(daemon.path("state")).output();
    let shown: serde_json::Value = serde_json::from_slice(&shown.expect("it runs").stdout).expect("JSON");
    let source = &shown["sources"][0];
    let id = source["ceiling_id"].as_str().and_then(|id| id.parse().ok()).expect("an ID");
    (source["ahead_ms"].as_i64().expect("a number"), id)
}

#[test]
fn a_file_that_a_newcomers_write_has_failed_on_is_not_raised_past() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let daemon = disk.under(setup).start();
    let mut wire = daemon.connect();
    wire.next(Ask::of(1)).ids();
    disk.order(&format!("sync lie {ENOSPC}"));
    assert_refused(&daemon, &format!("{old}{}", source("new", 2)), &[&["durable", "No space"]]);
    disk.works();
    // Longer than the ceilings of that moment reach: what is under the name must have followed.
    let until = Instant::now() + Duration::from_secs(5);
    let mut last = 0;
    while Instant::now() < until {
        last = wire.next(Ask::of(1)).ids()[0];
        std::thread::sleep(Duration::from_millis(20));
    }
    let ceiling = stored_ceiling(&daemon).1;
    assert!(last < ceiling, "{last} was handed out, and the file under the name ends at {ceiling}");
    daemon.stop();
}
