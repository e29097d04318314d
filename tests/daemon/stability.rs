//! Files, frames and names of 0.1.0, kept in `tests/stability/0.1.0` and read by the present
//! program. A change that one of these tests catches breaks a promise of `docs/stability.md`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::fleet::init;
use crate::support::coordinators::{Coordinator as _, Etcd, on_one};
use crate::support::http::get;
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::program::run_configured;
use crate::support::wire;
use crate::support::{Ask, Daemon, Reply, poll};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde_json::Value;
use snowbank_fleet::{CounterKey, Marker, Notes, NumberKey};
use snowbank_state::form::Form;
use snowbank_state::sealed;

/// The clients of other languages have such a program among their own tests.
#[path = "../stability/0.1.0/client.rs"]
mod client;

/// The sources of the kept state, which another machine kept.
const SOURCES: &str = "[[sources]]\nname = \"orders\"\nworker_ids = \"3-4\"\n\
                       [[sources]]\nname = \"invoices\"\nkind = \"ticket\"\n";
/// A bound at the beginning of 2025.
const BOUND: u64 = (1_735_689_600_000 - 1_288_834_974_657) << 22;
const SPACE: &str = "time,node:=1024,sequence:=4096;tick=1ms;epoch=1288834974657";

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).expect(path)
}

fn kept(name: &str) -> String {
    text_of(&format!("tests/stability/0.1.0/{name}"))
}

/// Returns the names of this kind.
fn names(kind: &str) -> Vec<String> {
    let names = kept("names.txt");
    let names: Vec<String> =
        names.lines().filter_map(|line| line.strip_prefix(kind)).map(str::to_owned).collect();
    assert!(!names.is_empty(), "{kind}");
    names
}

/// Returns a machine with this text as its state file, and with the kept locks.
fn machine_with(state: &str) -> Machine {
    let machine = Machine::new();
    for (directory, name, text) in [
        ("state", "ceilings", state.to_owned()),
        ("locks", "ad80eff9d3f857e2-3.lock", kept("ad80eff9d3f857e2-3.lock")),
        ("locks", "534ac86b32fb9637-1-1.lock", kept("534ac86b32fb9637-1-1.lock")),
    ] {
        fs::create_dir_all(machine.path(directory)).expect("made");
        let path = machine.path(directory).join(name);
        fs::write(&path, text).expect("written");
        // A lock that others can write counts as made by them.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
    }
    machine
}

#[test]
fn a_state_and_its_marks_are_continued() {
    let machine = machine_with(&kept("ceilings"));
    let shown = machine.run(&["state", "show", "--json"]).printed();
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    for (source, bound) in [(0, 5_033), (1, BOUND)] {
        let source = &shown["sources"][source];
        assert_eq!(source["id_bound"], bound.to_string());
        assert_eq!(source["marks"][0]["id"], bound.to_string(), "{source}");
    }
    let daemon = machine.setup(SOURCES).args(["--adopt-state"]).start();
    let mut wire = daemon.connect();
    assert_eq!(wire.next_once_granted(Ask::of(1).source("invoices")).runs()[0].first, 5_033);
    assert!(wire.next_once_granted(Ask::of(1).source("orders")).runs()[0].first > BOUND);
}

/// The export has records with each field that only some have.
#[test]
fn an_export_is_imported_whole() {
    let machine = Machine::new();
    let export = repository("tests/stability/0.1.0/export");
    let said = machine.run(&["state", "import", export.to_str().expect("text")]).printed();
    assert_eq!(said.matches(&format!("from ID {BOUND}")).count(), 3, "{said}");
    let state = fs::read_to_string(machine.path("state/ceilings")).expect("a state");
    for field in ["untouched", "assigned", "restored", "retired", "forgotten"] {
        assert!(state.contains(&format!("\"{field}\":true")), "{field}: {state}");
    }
    assert!(state.contains(&format!("\"assigned_bound\":\"{BOUND}\"")), "{state}");
}

#[test]
fn each_fate_of_a_mark_is_read() {
    for fate in ["granted", "returned", "released", "unknown"] {
        let machine = machine_with(&kept("ceilings"));
        for lock in ["ad80eff9d3f857e2-3.lock", "534ac86b32fb9637-1-1.lock"] {
            let text = kept(lock).replacen("granted ", &format!("{fate:8}"), 1);
            fs::write(machine.path("locks").join(lock), text).expect("written");
        }
        let shown = machine.run(&["state", "show", "--json"]).printed();
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        for source in [0, 1] {
            assert_eq!(shown["sources"][source]["marks"][0]["status"], fate, "{shown}");
        }
    }
}

#[test]
fn a_state_of_a_newer_format_is_refused_in_one_line() {
    let state = kept("ceilings");
    let document = &state[state.find('\n').unwrap() + 1..state.find("]}\n").unwrap() + 3];
    let newer = |least_reader, document: &str| {
        let form = Form { format: 3, least_reader };
        let copy = sealed::header("snowbank ceilings", form, 6, document) + document;
        machine_with(&copy.repeat(2))
    };
    let more = document.replacen("{\"name\"", "{\"more\":7,\"name\"", 1);
    for (least_reader, document, is_shown, reason) in [
        (
            3,
            document,
            false,
            "found format 3, for programs that know format 3, allowed: up to 1; run the newer release",
        ),
        (1, &*more, true, "found \"more\" in it, which this release does not know and would drop, allowed: "),
    ] {
        let machine = newer(least_reader, document);
        let show = machine.run(&["state", "show"]);
        assert_eq!(show.code, Some(if is_shown { 0 } else { 1 }), "{show:?}");
        assert!(is_shown || show.refusal(1).contains(reason));
        let config = machine.path("snowbank.toml");
        let toml = format!("state_dir = {:?}\n{SOURCES}", machine.path("state"));
        fs::write(&config, toml).expect("written");
        let check = machine.run(&["check", "--config", config.to_str().expect("text")]);
        assert!(check.code == Some(1) && check.out.contains(reason), "{check:?}");
        machine.setup(SOURCES).end().assert_refusal(&[reason]);
        let left = fs::read_to_string(machine.path("state/ceilings")).expect("it is there");
        assert!(left.contains("format 3"), "it is left as it was");
    }
}

#[test]
fn notes_and_values_at_a_coordinator_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("fleet"), kept("fleet")).expect("written");
    let (notes, fault) = Notes::read(directory.path(), None, "").expect("readable");
    let note = notes.of("default", "orders", SPACE).expect("the source's note");
    assert_eq!((fault, note.acknowledged, &*note.numbers), (None, BOUND, &[0][..]));
    let marker = Marker::parse(kept("marker").trim()).expect("a marker");
    assert_eq!((marker.active(), &*marker.identity), (vec![SPACE], &*note.identity));
    let number = NumberKey::parse(kept("number").trim()).expect("a number's key");
    assert_eq!((number.id_bound, number.released, &*number.term), (BOUND, false, &*note.term));
    let counter = CounterKey::parse(kept("counter").trim()).expect("a counter");
    assert_eq!((counter.from, counter.next), (7_001, 7_033));
}

/// Returns the text of a key at etcd.
fn value(etcd: &Etcd, key: &str) -> String {
    let answer = etcd.get(key);
    let (_, value) = answer.split_once("\"value\":\"").expect("a value");
    let (value, _) = value.split_once('"').expect("a text");
    String::from_utf8(STANDARD.decode(value).expect("base64")).expect("text")
}

/// A newer daemon has written the lines, and an older one serves with them. On a new connection the
/// daemon would write its key.
#[test]
fn a_serving_daemon_leaves_a_newer_releases_fields_as_they_are() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = etcd.proxy();
    let toml = format!(
        "{}[[sources]]\nname = \"orders\"\nworker_ids = 5\n[[sources]]\nname = \"rows\"\nkind = \"fleet-ticket\"\n",
        etcd.table(&[&proxy.url()])
    );
    init(&toml);
    assert_eq!(run_configured(&toml, &["ticket", "set", "rows", "0"]).0, Some(0));
    let machine = Machine::new();
    let daemon = machine.setup(&toml).admin().start();
    let draw = |source, count| daemon.connect().next_once_granted(Ask::of(count).source(source)).runs();
    let mut runs = [draw("orders", 1), draw("rows", 1)].concat();
    let keys = ["marker", "space-0/5", "ticket-rows"].map(|key| format!("/snowbank/default/{key}"));
    let newer = keys.each_ref().map(|key| {
        let text = value(&etcd, key).replacen("\"format\":2", "\"format\":3,\"more\":7", 1);
        etcd.put(key, &text);
        text
    });
    proxy.cut();
    proxy.pass();
    let is_refused = || get(&daemon, "/status").body.contains("found \\\"more\\\" in it");
    poll("a write that is refused", || is_refused().then_some(()));
    runs.extend([draw("orders", 1), draw("rows", 1)].concat());
    assert_eq!(keys.each_ref().map(|key| value(&etcd, key)), newer);
    assert_distinct(runs);
}

/// Both sides are tested with the present vectors: `crates/snowbank-wire/src/vectors.rs`, and
/// `malformed_frames_are_answered_as_in_the_test_vectors`.
#[test]
fn the_frames_are_among_the_present_vectors() {
    for file in ["requests.txt", "replies.txt", "faults.txt"] {
        let present = text_of(&format!("tests/vectors/{file}"));
        let present: BTreeSet<&str> = present.lines().collect();
        for line in kept(file).lines().filter(|line| !line.starts_with('#')) {
            assert!(present.contains(line), "{file}: {line}");
        }
    }
}

/// Returns the name, the type and the labels in this row of a table.
fn metric_in(row: &str) -> Option<String> {
    let [_, name, kind, labels, ..] = *row.split('|').collect::<Vec<_>>() else { return None };
    let text = [name, kind, labels].join(" ").replace(['`', ','], "");
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn options_and_presets_are_known() {
    let machine = Machine::new();
    for kept in names("options ") {
        let (command, options) = kept.split_once(": ").expect("a command");
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push("--help");
        let help = machine.run(&arguments).printed();
        let shown: BTreeSet<&str> = help.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
        for option in options.split(' ') {
            assert!(shown.contains(option), "{command} {option}");
        }
    }
    for preset in names("preset ") {
        let (name, text) = preset.split_once(' ').expect("a name");
        let shown: Value =
            serde_json::from_str(&machine.run(&["layout", name, "--json"]).printed()).expect("JSON");
        assert_eq!(shown["spec"], text, "{name}");
    }
}

/// Other tests hold these pages to the program.
#[test]
fn settings_metrics_findings_and_exit_codes_are_on_their_pages() {
    let mut settings = BTreeSet::new();
    let mut table = String::new();
    for line in text_of("docs/snowbank.toml").lines() {
        let line = line.trim_start_matches('#');
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = format!("{}.", name.trim_matches(['[', ']']));
        } else if let Some((name, _)) = line.split_once(" = ") {
            settings.insert(format!("{table}{name}"));
        }
    }
    for setting in names("setting ") {
        assert!(settings.contains(&setting), "{setting}");
    }
    let [metrics, operations] = ["monitoring", "operations"].map(|page| text_of(&format!("docs/{page}.md")));
    let metrics: BTreeSet<String> = metrics.lines().filter_map(metric_in).collect();
    for metric in names("metric ") {
        assert!(metrics.contains(&metric), "{metric}");
    }
    for finding in names("finding ") {
        assert!(operations.contains(&format!("| finding `{finding}` |")), "{finding}");
    }
    for exit in names("exit ") {
        let (code, meaning) = exit.split_once(' ').expect("a code");
        assert!(operations.contains(&format!("\n| {code} | {meaning}")), "{exit}");
    }
}

/// Adds the paths of all fields in this JSON, such as `sources[].name`.
fn add_paths(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_paths(value, &path, paths);
                paths.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_paths(value, &format!("{path}[]"), paths)),
        _ => {}
    }
}

#[track_caller]
fn assert_has_fields(command: &str, json: &str) {
    let mut paths = BTreeSet::new();
    add_paths(&serde_json::from_str(json).expect("JSON"), "", &mut paths);
    for field in names(&format!("json {command}: ")) {
        assert!(paths.contains(&field), "{command}: {field} is not in {json}");
    }
}

#[test]
fn json_of_commands_has_the_fields() {
    on_one(|at| {
        let orders = "[[sources]]\nname = \"orders\"\nworker_id_from = \"coordinator\"\n";
        let invoices = "[[sources]]\nname = \"invoices\"\nkind = \"fleet-ticket\"\n";
        let toml =
            format!("max_ahead = \"400ms\"\n{}horizon = \"10m\"\n{orders}{invoices}", at.table(&[&at.url()]));
        init(&toml);
        let (code, text) = run_configured(&toml, &["ticket", "set", "invoices", "7000"]);
        assert_eq!(code, Some(0), "{text}");
        let machine = Machine::new();
        let daemon: Daemon = machine.setup(&toml).admin().start();
        daemon.assert_has_numbers();
        for source in ["orders", "invoices"] {
            daemon.connect().next_once_granted(Ask::of(1).source(source));
        }
        for command in ["list", "check"] {
            let (_, json) = run_configured(&toml, &["fleet", command, "--json"]);
            assert_has_fields(&format!("fleet {command}"), &json);
        }
        let admin = daemon.addresses.last().expect("an admin listener").to_string();
        let address = daemon.addresses[0].to_string();
        let status = machine.run(&["status", "--json", "--admin", &admin]);
        assert_has_fields("status", &status.printed());
        for command in [&["ping"][..], &["next", "--source", "orders", "--format", "hex"]] {
            let arguments = [command, &["--json", "--address", &address]].concat();
            assert_has_fields(command[0], &machine.run(&arguments).printed());
        }
        let Reply::Info(_, info) = daemon.connect().call(&wire::info(1)) else { panic!("no INFO") };
        assert_has_fields("info", &info);
    });
    let machine = machine_with(&kept("ceilings"));
    for (command, arguments) in [
        ("state show", &["state", "show"][..]),
        ("decode", &["decode", "--layout", "twitter", "600000000000000000"]),
        ("layout", &["layout", "twitter"]),
        ("range", &["range", "--from", "2025-01-01", "--to", "2025-01-02"]),
    ] {
        assert_has_fields(command, &machine.run(&[arguments, &["--json"]].concat()).printed());
    }
}
