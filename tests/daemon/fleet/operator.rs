//! An operator's commands while a fleet runs, and keys that somebody deletes.

use serde_json::Value;
use snowbank_id::layout::UnixMicros;

use super::endpoints::another;
use super::*;
use crate::support::ids::unix_ms;

#[test]
fn deleting_or_releasing_a_key_ends_its_daemon() {
    on_one(|at| {
        let toml = prepared(at, Some(5), LONG);
        let (machine, mut daemon, mut runs) = serving(&toml);
        at.delete(KEY);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        // A daemon on this machine may take its worker ID again at once. A daemon on another
        // machine would start above the fleet's floor.
        let mut daemon = machine.start(&toml);
        runs.extend(draw(&daemon));
        fleet_says(&toml, &["release", "5"], 1, &["may still run"]);
        fleet_says(&toml, &["release", "5", "--force"], 0, &[]);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        daemon.assert_logs("released");
        fleet_says(&toml, &["list", "--json"], 0, &["\"state\":\"released\""]);
        // Another daemon must wait until the clock is near the bound of the worker ID. This takes
        // minutes.
        Machine::new().setup(&toml).assert_waits(&["worker ID 5 was released", "wait until"]);
        assert_distinct(runs);
    });
}

#[test]
fn commands_without_an_answer_end_with_code_3() {
    let toml = "worker_ids = 5\n[fleet]\ncoordinator = \"etcd\"\nendpoints = [\"http://127.0.0.1:1\"]\n";
    for args in [&["list"][..], &["check"], &["init", "--new"], &["release", "5"]] {
        fleet_says(toml, args, 3, &["the coordinator does not answer"]);
    }
}

/// Returns the JSON that a command prints.
#[track_caller]
fn json(toml: &str, args: &[&str]) -> Value {
    let (code, text) = fleet(toml, &[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_fleet_command_prints_json() {
    const SPACE: &str = "time,node:=1024,sequence:=4096;tick=1ms;epoch=1288834974657";
    let Some(etcd) = Etcd::start() else { return };
    let toml = toml(&etcd, Some(5), LONG);
    let prepared =
        |is_new: bool| serde_json::json!({ "fleet": "default", "is_new": is_new, "spaces": [SPACE] });
    assert_eq!(json(&toml, &["init", "--new"]), prepared(true));
    assert_eq!(json(&toml, &["init"]), prepared(false));
    assert_eq!(json(&toml, &["list"]), serde_json::json!([]));
    let (_machine, _daemon, _) = serving(&toml);
    let held = &json(&toml, &["list"])[0];
    assert_eq!((&held["state"], &held["number"]), (&Value::from("held"), &Value::from(5)));
    let counts = |held: u64| {
        serde_json::json!([{
            "space": SPACE, "workers": 1024, "held": held, "free": 1_024 - held, "unreadable": 0
        }])
    };
    assert_eq!(json(&toml, &["check"]), counts(1));
    let freed = json(&toml, &["release", "5", "--force"]);
    assert_eq!(freed, serde_json::json!({ "space": SPACE, "number": 5, "holder": held["holder"] }));
    // The worker ID counts as held until the clock is near the bound of the worker ID.
    assert_eq!(json(&toml, &["check"]), counts(1));
    let (_, text) = fleet(&toml, &["list"]);
    assert!(
        text.starts_with("5: released by ") && text.contains("; can be taken once a clock is near "),
        "{text}"
    );
}

/// `check` refuses what a start refuses, and counts the worker IDs that the coordinator may assign.
#[test]
fn check_says_what_a_start_would_say() {
    on_one(|at| {
        let given = prepared(at, Some(5), LONG);
        let (_machine, _daemon, _) = serving(&given);
        let pool = format!("worker_ids = \"4-7\"\n{}", toml(at, None, LONG));
        fleet_says(&pool, &["check"], 0, &[": 1 of 4 worker IDs held, 3 free"]);
        let source = |name: &str, ids: &str| {
            format!(
                "[[sources]]\nname = \"{name}\"\nmax_ahead = \"400ms\"\nworker_id_from = \"coordinator\"\nworker_ids = \"{ids}\"\n"
            )
        };
        let table = format!("{}horizon = \"{LONG}\"\n", at.table(&[&at.url()]));
        let both = source("orders", "4-7") + &source("bills", "8-9") + &table;
        fleet_says(&both, &["check"], 0, &[": 1 of 6 worker IDs held, 5 free"]);
        let changed = given.replace(LONG, "20m");
        let differs =
            "has fleet.horizon 1200s and max_ahead 400ms, allowed: fleet.horizon 600s and max_ahead 400ms";
        for command in ["check", "init"] {
            fleet_says(
                &changed,
                &[command],
                1,
                &[differs, "`snowbank fleet init --above now --config FILE`"],
            );
        }
        let other = another(at);
        let two = toml_at(at, &[&at.url(), &other.url()], Some(5), LONG);
        let refused = || fleet(&two, &["check"]);
        let (_, text) =
            poll("a check that reaches both", || Some(refused()).filter(|(code, _)| *code == Some(1)));
        assert!(text.contains("the endpoints belong to two clusters: "), "{text}");
    });
}

/// The floor is above the one that the command gives.
#[test]
fn init_says_that_the_limits_have_changed() {
    on_one(|at| {
        let toml = toml(at, Some(5), LONG);
        fleet_says(&toml, &["init", "--above", "now"], 0, &["prepared"]);
        let changed = toml.replace(LONG, "20m");
        let says = "the fleet has fleet.horizon 1200s and max_ahead 400ms now";
        fleet_says(&changed, &["init", "--above", "2026-01-01T00:00:00Z"], 0, &["\"default\" changed", says]);
        fleet_says(&changed, &["init"], 0, &["nothing changed"]);
    });
}

#[test]
fn a_fleet_starts_above_an_instant_an_id_or_what_a_right_clock_allows() {
    const HOUR_MS: u64 = 3_600_000;
    let Some(etcd) = Etcd::start() else { return };
    // The source with the longest max_ahead counts.
    let source = |name: &str, max_ahead: &str| {
        format!("[[sources]]\nname = {name:?}\nworker_id_from = \"coordinator\"\nmax_ahead = {max_ahead:?}\n")
    };
    let table = etcd.table(&[&etcd.url()]);
    let toml = source("a", "400ms") + &source("b", "700ms") + &source("c", "300ms") + &table;
    let above_ms = |value: &str| {
        let shown = json(&toml, &["init", "--above", value]);
        let instant: UnixMicros = shown["above"].as_str().expect("an instant").parse().expect("RFC 3339");
        instant.0 as u64 / 1_000
    };
    let from_ms = unix_ms() + 700;
    let found_ms = above_ms("now");
    assert!((from_ms..=unix_ms() + 700 + 1).contains(&found_ms), "{found_ms}, from {from_ms}");
    let later_ms = found_ms + HOUR_MS;
    let instant = UnixMicros::from_unix_ms(later_ms as i64).rfc3339(3);
    assert_eq!(above_ms(&instant), later_ms);
    let last_id = (later_ms + HOUR_MS - 1_288_834_974_657) << 22;
    assert!(above_ms(&last_id.to_string()) > later_ms + HOUR_MS);
}

#[test]
fn release_refuses_an_unknown_or_ambiguous_worker_id() {
    let Some(etcd) = Etcd::start() else { return };
    let source = |name: &str, layout: &str| {
        format!("[[sources]]\nname = \"{name}\"\nlayout = \"{layout}\"\nworker_ids = 5\n")
    };
    let sources = source("orders", "twitter") + &source("bills", "sonyflake");
    let table = etcd.table(&[&etcd.url()]);
    let several = sources.clone() + &table;
    init(&several);
    let with_tickets = sources + "[[sources]]\nname = \"tickets\"\nkind = \"ticket\"\n" + &table;
    let refused = |args: &[&str], code: i32, parts: &[&str]| {
        let (found, text) = fleet(&with_tickets, &[&["release"], args].concat());
        assert_eq!(found, Some(code), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part:?}: {text}"));
    };
    refused(&["5"], 2, &["2 ID spaces", "--source", "\"orders\", \"bills\""]);
    refused(&["5", "--source", "order"], 2, &["--source: found \"order\"", "\"orders\", \"bills\""]);
    refused(
        &["5", "--source", "tickets"],
        2,
        &["--source: found \"tickets\", allowed: \"orders\", \"bills\""],
    );
    refused(&["5000", "--source", "orders"], 2, &["found worker ID 5000", "0 to 1023", "node:=1024"]);
    refused(
        &["5", "--source", "orders"],
        1,
        &["worker ID 5 (key /snowbank/default/space-0/5): nobody holds it"],
    );
    let machine = Machine::new();
    let daemon = machine.start(&several);
    drop(daemon.connect());
    let (code, text) = fleet(&several, &["list"]);
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("time,node:=1024,") && lines[1].starts_with("5: held"), "{text}");
    assert!(lines[2].starts_with("time,") && lines[3].starts_with("5: held"), "{text}");
}

#[test]
fn a_colliding_space_can_be_added_when_no_worker_id_is_held() {
    on_one(|at| {
        let before = toml(at, Some(5), LONG);
        init(&before);
        let machine = Machine::new();
        let daemon = machine.start(&before);
        daemon.assert_has_numbers();
        let wide = "layout = \"time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657\"\n";
        let after = format!("{wide}{before}");
        fleet_says(&after, &["init", "--add"], 1, &["holds a number"]);
        daemon.stop();
        // The release may reach the coordinator late. Until then `init --add` is refused.
        poll("the new layout is added", || (fleet(&after, &["init", "--add"]).0 == Some(0)).then_some(()));
        let daemon = machine.start(&after);
        let mut runs = draw(&daemon);
        // While this daemon runs, no daemon with the old layout starts, and `init --add` cannot
        // restore that layout.
        let late = Machine::new();
        late.setup(&before).end().assert_refusal(&["other ID spaces", "found ", "allowed: "]);
        fleet_says(&before, &["init", "--add"], 1, &["holds a number"]);
        daemon.stop();
        poll("the old layout is back", || (fleet(&before, &["init", "--add"]).0 == Some(0)).then_some(()));
        machine.setup(&after).end().assert_refusal(&["other ID spaces"]);
        runs.extend(draw(&late.start(&before)));
        assert_distinct(runs);
    });
}
