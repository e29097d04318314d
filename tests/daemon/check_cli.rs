//! `snowbank check`, as a person or a deployment script runs it.
use std::path::Path;
use std::process::Command;

use crate::support::machine::Machine;
use crate::support::program::Said;
use crate::support::{Ask, lock_files};
use tempfile::TempDir;

/// A directory with a configuration of this text.
fn directory_with(text: &[u8]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("snowbank.toml"), text).unwrap();
    directory
}

/// Runs `snowbank check` in this directory, with an empty environment.
fn check(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
    command.arg("check").args(arguments).current_dir(directory).env_clear();
    command
}

/// Returns the exit code, standard output and standard error.
fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let Said { code, out, err } = Said::by(command);
    (code, out, err)
}

/// Returns the result of `check` on a configuration with this text.
fn run(text: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let directory = directory_with(text.as_bytes());
    let mut command = check(directory.path(), &["--config", "snowbank.toml"]);
    outcome(command.args(arguments).envs(environment.iter().copied()))
}

#[test]
fn a_good_configuration_is_summarized() {
    let text =
        "listen = [\"127.0.0.1:7661\"]\nshards = 2\n[[sources]]\nname = \"orders\"\nlayout = \"game\"\n";
    let (code, out, err) = run(text, &[], &[("STATE_DIRECTORY", ""), ("XDG_STATE_HOME", "/s")]);
    assert_eq!((code, &*err), (Some(0), ""));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "snowbank.toml: no mistakes");
    assert_eq!(lines[1], "listens on 127.0.0.1:7661; 2 shards, order relaxed, no token asked for");
    assert!(lines[2].starts_with("source 0 \"orders\": time:37,server:20,sequence:6;tick=20ms;"), "{out}");
    assert!(lines[2].contains("worker 0, 3,200 IDs/s until "), "{out}");
    assert_eq!(lines[3], "state in /s/snowbank (by $XDG_STATE_HOME)");
    assert_eq!(lines.len(), 4);
}

/// Returns two sources, with these layouts and worker settings.
fn two_sources((first, worker): (&str, u64), (second, other): (&str, u64)) -> String {
    let source = |name, layout, worker| {
        format!("[[sources]]\nname = \"{name}\"\nlayout = \"{layout}\"\nworker_ids = {worker}\n")
    };
    source("orders", first, worker) + &source("invoices", second, other)
}

#[test]
fn colliding_sources_are_refused_however_they_are_written() {
    let constant = "time:41,region:2:constant(1),worker:8,sequence:12;epoch=2020-01-01";
    let node = "time:41,region:2,worker:8,sequence:12;epoch=2020-01-01";
    let later = "time:41,region:2,worker:8,sequence:12;epoch=2020-01-01T00:00:05Z";
    let other_cut = "time:41,worker:11,sequence:11;epoch=2020-01-01";
    for (first, second, when) in [
        ((constant, 5), (node, 261), ""),
        ((node, 261), (other_cut, 522), ""),
        ((node, 261), (later, 261), ", 5 s apart"),
    ] {
        let (code, out, _) = run(&two_sources(first, second), &[], &[]);
        let expected = format!(
            "snowbank.toml:8: sources[1].worker_ids: sources[0] (\"orders\"), worker {}, and sources[1] (\"invoices\"), \
             worker {}, can make the same IDs{when}: their layouts differ, but the IDs grow alike; give one of them \
             other worker IDs\n",
            first.1, second.1
        );
        assert_eq!((code, out), (Some(1), expected));
    }
    for (first, second) in [
        ((constant, 5), (node, 5)),
        ((node, 261), (later, 5)),
        ((node, 261), (other_cut, 5)),
        // Independent counters: an order and an invoice may have the same number.
        (("twitter", 3), ("clearing", 3)),
        (("clearing", 81), ("clearing-batch", 81)),
    ] {
        let (code, out, err) = run(&two_sources(first, second), &[], &[]);
        assert_eq!((code, &*err), (Some(0), ""), "{out}");
    }
}

#[test]
fn sources_that_collide_at_another_time_are_warned_of() {
    for (first, second, apart) in
        [(("twitter", 3), ("discord", 3), "1518 days"), (("simple-2020", 7), ("twitter", 7), "3557 days")]
    {
        let (code, out, _) = run(&two_sources(first, second), &[], &[]);
        let expected = format!(
            "sources[0] (\"orders\"), worker {}, and sources[1] (\"invoices\"), worker {}, make the same IDs {apart} apart, \
             as their epochs are: never use both for one table, or give one of them other worker IDs",
            first.1, second.1
        );
        assert_eq!(code, Some(0));
        assert!(out.contains(&expected), "{out}");
    }
}

#[test]
fn an_unreadable_file_is_refused() {
    let directory = directory_with(b"shards = 1\n# \xff\n");
    // A pipe is not waited for.
    assert!(Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap().success());
    for (file, said) in [
        ("missing.toml", "cannot read missing.toml: No such file or directory"),
        (".", "cannot read .: Is a directory"),
        ("snowbank.toml", "snowbank.toml:2: found bytes that are not UTF-8"),
        ("pipe", "cannot read pipe: it is a pipe"),
    ] {
        let (code, out, err) = outcome(&mut check(directory.path(), &["--config", file]));
        assert_eq!((code, &*out), (Some(2), ""));
        assert!(err.starts_with(&format!("snowbank: {said}")), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (code, _, err) = outcome(&mut check(directory.path(), &[]));
    assert_eq!(code, Some(2));
    assert!(err.contains("--config"), "{err}");
}

#[test]
fn the_file_may_be_an_argument_or_an_option() {
    let directory = directory_with(b"shards = 2\n");
    let path = "snowbank.toml";
    let variable = |name| Some(("SNOWBANK_CONFIG", name));
    let cases = [
        (&[path][..], None),
        (&["--config", path], None),
        (&[], variable(path)),
        (&[path], variable("other.toml")),
    ];
    for (arguments, variable) in cases {
        let (code, out, err) = outcome(check(directory.path(), arguments).envs(variable));
        assert_eq!((code, &*err), (Some(0), ""), "{arguments:?} {variable:?}");
        assert!(out.starts_with("snowbank.toml: no mistakes\n"), "{out}");
    }
    let (code, _, err) = outcome(&mut check(directory.path(), &[path, "--config", "other.toml"]));
    assert_eq!(
        (code, err.contains("found two configurations, snowbank.toml and --config other.toml")),
        (Some(2), true),
        "{err}"
    );
}

/// A fleet's coordinator, which `check` does not ask.
const FLEET: &str = "[fleet]\ncoordinator = \"etcd\"\nendpoints = [\"http://127.0.0.1:1\"]\n";

/// Returns the result of `check` on this machine's state.
fn checked(machine: &Machine, toml: &str, options: &[&str]) -> Said {
    let file = machine.path("snowbank.toml");
    std::fs::write(&file, toml).unwrap();
    machine.run(&[&["check", file.to_str().unwrap()], options].concat())
}

#[track_caller]
fn assert_accepted(machine: &Machine, toml: &str, options: &[&str]) {
    let said = checked(machine, toml, options);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[track_caller]
fn assert_refused(machine: &Machine, toml: &str, words: &str) {
    let Said { code, out, err } = checked(machine, toml, &[]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains(words) && err.contains("`serve` refuses the state"), "{out}{err}");
}

/// Each of these states is checked with the options of a daemon that a start with it refuses, and
/// with those of one that starts.
#[test]
fn a_state_that_serve_refuses_is_a_mistake() {
    let machine = Machine::new();
    let assert_accepted = |toml: &str, options: &[&str]| assert_accepted(&machine, toml, options);
    let assert_refused = |toml: &str, words: &str| assert_refused(&machine, toml, words);
    let tickets = "[[sources]]\nname = \"default\"\n[[sources]]\nname = \"bills\"\nkind = \"ticket\"\n";
    assert_accepted("", &[]);
    assert_accepted(tickets, &[]);
    let mut daemon = machine.start("");
    let running = machine.back_up();
    assert_accepted("", &[]);
    machine.draw_past_a_raise(&daemon);
    daemon.kill();
    assert_accepted("", &[]);
    assert_refused(tickets, "nothing is stored of its counter");
    assert_refused(
        "layout = \"time:41,worker:10,sequence:12;tick=1ms;epoch=2020-01-01T00:00:00Z\"\n",
        "it can start",
    );
    let newest = machine.back_up();
    machine.restore(&running);
    assert_refused("", "is older than the one that served");
    assert_accepted("", &["--adopt-state"]);
    // The coordinator says above which IDs the source goes on.
    assert_accepted(&format!("worker_ids = 0\n{FLEET}"), &[]);
    machine.restore(&newest);
    machine.edit(|record| record["machine"] = "0123456789abcdef0123456789abcdef".into());
    assert_refused("", "another machine's");
    assert_accepted("", &["--adopt-state"]);
    machine.restore(&newest);
    let lock = lock_files(&machine.path("locks")).remove(0);
    let marked = std::fs::read_to_string(&lock).unwrap();
    std::fs::write(&lock, marked.replace("granted", "grunted")).unwrap();
    assert_refused("", "does not say how far the IDs of its worker ID were granted");
    std::fs::write(&lock, marked).unwrap();
    machine.run(&["state", "export", "--output", machine.path("export").to_str().unwrap()]).printed();
    assert_refused("", "`snowbank state export` moved");
    // It is not known which worker IDs this source gets, but the counter is known.
    let unknown = "[[sources]]\nname = \"default\"\nworker_id_from = \"file:/missing\"\n";
    assert_accepted(unknown, &[]);
    let beside = "[[sources]]\nname = \"bills\"\nkind = \"ticket\"\n";
    assert_refused(&format!("{unknown}{beside}"), "nothing is stored of its counter");
    machine.restore(b"not a state");
    assert_refused("", "is corrupt");
}

#[test]
fn a_counter_that_serve_refuses_is_a_mistake() {
    let orders = |kind, more| format!("[[sources]]\nname = \"orders\"\nkind = \"{kind}\"\n{more}");
    let alone = orders("ticket", "");
    let machine = Machine::new();
    machine.run(&["ticket", "set", "orders", "9000"]).printed();
    assert_accepted(&machine, &alone, &[]);
    assert_refused(&machine, &orders("ticket", "maximum = 500\n"), "found maximum 500, allowed: from 9000");
    let set = machine.back_up();
    let daemon = machine.start(&alone);
    daemon.connect().next_once_granted(Ask::of(12_000));
    daemon.stop();
    machine.restore(&set);
    assert_refused(&machine, &alone, "is older than the one that served");
    assert_accepted(&machine, &orders("fleet-ticket", FLEET), &[]);
}
