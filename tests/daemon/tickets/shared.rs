//! Ticket sources whose counter is at the coordinator of a fleet: several daemons, outages, lost
//! data and wrong values, on real coordinators.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::fleet::refused_for_two_clusters;
use crate::support::coordinators::{Coordinator, Etcd, ZooKeeper, each, on_one};
use crate::support::http::{get, sample, scrape};
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::program::{Said, program, run_configured};
use crate::support::wire::{EXHAUSTED, NO_CEILING, Run};
use crate::support::witness::{MIXED, SPARSE, Witness};
use crate::support::{Ask, Daemon, Reply, poll};

const KEY: &str = "/snowbank/default/ticket-orders";

fn source(name: &str) -> String {
    format!("[[sources]]\nname = \"{name}\"\nkind = \"fleet-ticket\"\n")
}

fn toml_at(at: &dyn Coordinator, urls: &[&str], more: &str) -> String {
    at.table(urls) + &source("orders") + more
}

fn toml(at: &dyn Coordinator) -> String {
    toml_at(at, &[&at.url()], "")
}

#[track_caller]
fn set(toml: &str, value: &str) {
    let (code, text) = run_configured(toml, &["ticket", "set", "orders", value]);
    assert_eq!(code, Some(0), "{text}");
}

/// Checks that `ticket set` with these arguments is refused with this code and this text.
#[track_caller]
fn assert_not_set(toml: &str, arguments: &[&str], code: i32, part: &str) {
    let (found, text) = run_configured(toml, &[&["ticket", "set", "orders"], arguments].concat());
    assert!(found == Some(code) && text.contains(part), "{text}");
}

fn draw(daemon: &Daemon, count: u32) -> Vec<Run> {
    daemon.connect().next_once_granted(Ask::of(count)).runs()
}

fn draw_after_an_outage(daemon: &Daemon) -> Vec<Run> {
    poll("numbers after the outage", || match daemon.connect().next(Ask::of(1).wait_ms(500)) {
        Reply::Runs(_, runs) => Some(runs),
        _ => None,
    })
}

fn assert_rising(runs: &[Run]) {
    assert!(runs.windows(2).all(|pair| pair[0].last() < pair[1].first), "{runs:?}");
}

#[test]
fn a_shared_counter_must_be_set_before_its_first_daemon() {
    on_one(|at| {
        let toml = toml(at);
        let machine = Machine::new();
        machine.setup(&toml).end().assert_refusal(&["not at the coordinator", "snowbank ticket set", KEY]);
        set(&toml, "1000");
        assert_not_set(&toml, &["999"], 1, "found 999, allowed: from 1000 on");
        assert_not_set(&toml, &["5", "--state-dir", "elsewhere"], 2, "found --config and --state-dir");
        let daemon = machine.start(&toml);
        assert_eq!(draw(&daemon, 2)[0].first, 1_001);
        let (_, text) = run_configured(&toml, &["fleet", "list"]);
        let shown = "counter \"orders\": the next free number is 1033, last written by ";
        assert!(text.contains(shown), "{text}");
        let (_, json) = run_configured(&toml, &["fleet", "list", "--json"]);
        assert!(json.contains(r#"{"counter":"orders","next":"1033","#), "{json}");
        let (code, text) = run_configured(&toml, &["fleet", "check"]);
        assert!(code == Some(0) && text.contains("the next free number is 1033"), "{text}");
        // Sets the counter while the daemon still runs. Variables override the file here, too.
        set(&toml, "500000");
        let config = machine.path("elsewhere.toml");
        std::fs::write(&config, toml.replace(&at.url(), "http://127.0.0.1:1")).expect("written");
        let mut command = program();
        command.args(["ticket", "set", "orders", "600000", "--config"]).arg(&config);
        Said::by(command.env("SNOWBANK_FLEET_ENDPOINTS", at.url())).printed();
        daemon.stop();
        assert_eq!(draw(&machine.start(&toml), 1)[0].first, 600_001);
    });
}

#[test]
fn a_start_that_lacks_its_counter_keeps_no_worker_id() {
    on_one(|at| {
        let toml =
            toml_at(at, &[&at.url()], "[[sources]]\nname = \"rows\"\nworker_id_from = \"coordinator\"\n");
        let toml = format!("state_dir = \"none\"\n{toml}");
        let (code, text) = run_configured(&toml, &["fleet", "init", "--new"]);
        assert_eq!(code, Some(0), "{text}");
        Machine::new().setup(&toml).end().assert_refusal(&["not at the coordinator"]);
        set(&toml, "0");
        let (_, text) = run_configured(&toml, &["fleet", "list"]);
        assert!(text.contains("0: free, released by "), "{text}");
    });
}

#[test]
fn two_daemons_of_one_counter_repeat_no_number() {
    each(|at| {
        let toml = toml(at);
        set(&toml, "0");
        let machines = [Machine::new(), Machine::new()];
        // The daemons share the lock directory, as on one machine.
        let second = machines[1].setup(&toml).env("SNOWBANK_LOCK_DIR", machines[0].path("locks"));
        let daemons = [machines[0].start(&toml), second.start()];
        let loads = [MIXED, MIXED, SPARSE];
        let witnesses = daemons.each_ref().map(|daemon| Witness::beside(daemon, &loads, &[at.id()]));
        witnesses[1].await_time(Duration::from_secs(3));
        let mut runs = Vec::new();
        for witness in witnesses {
            let testimony = witness.stop();
            testimony.assert_refusals(|sample, _, _| sample.is_starved);
            testimony.assert_strictly_ordered();
            runs.extend(testimony.runs());
        }
        let highest = runs.iter().map(Run::last).max().unwrap_or(0);
        assert!(highest > 10_000, "the daemons took too few ranges: {highest}");
        assert_distinct(runs);
    });
}

#[test]
fn many_counters_get_ranges_at_the_same_time() {
    let Some(etcd) = Etcd::start() else { return };
    let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let toml = toml_at(&etcd, &[&etcd.url()], &names.map(source).concat());
    let machine = Machine::new();
    set(&toml, "0");
    names.iter().for_each(|name| assert_eq!(run_configured(&toml, &["ticket", "set", name, "0"]).0, Some(0)));
    let daemon = machine.start(&toml);
    let mut wires: Vec<_> = [""].into_iter().chain(names).map(|source| (source, daemon.connect())).collect();
    for count in [900, 2_000, 5_000, 10_000] {
        for (source, wire) in &mut wires {
            wire.send(&Ask { source, ..Ask::of(count).wait_ms(9_000) }.bytes());
        }
        wires.iter_mut().for_each(|(_, wire)| assert_eq!(wire.reply().id_count(), Some(count.into())));
    }
}

#[test]
fn an_outage_stops_the_numbers_at_the_end_of_the_range() {
    each(|at| {
        let toml = toml(at);
        set(&toml, "0");
        let machine = Machine::new();
        let daemon = machine.setup(&toml).admin().start();
        let mut runs = draw(&daemon, 1);
        at.kill();
        runs.extend(daemon.draw_until(Ask::of(1), NO_CEILING));
        assert!(runs.iter().map(|run| run.count).sum::<u32>() >= 30, "refused too early");
        poll("a daemon that is not ready", || (get(&daemon, "/readyz").code == 503).then_some(()));
        at.run();
        runs.extend(draw_after_an_outage(&daemon));
        poll("a ready daemon", || (get(&daemon, "/readyz").code == 200).then_some(()));
        daemon.stop();
        // A daemon starts during the outage, and waits for the coordinator.
        at.kill();
        let mut daemon = machine.start(&toml);
        daemon.assert_logs("has no numbers yet, and waits for its coordinator");
        daemon.connect().next(Ask::of(1).wait_ms(0)).assert_error(0, NO_CEILING);
        at.run();
        runs.extend(draw_after_an_outage(&daemon));
        assert_rising(&runs);
        // Although it checked nothing at its start, its polls notice a loss.
        at.delete(KEY);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
    });
}

#[test]
fn a_counter_whose_value_is_lost_is_refused_until_it_is_set() {
    on_one(|at| {
        let toml = toml(at);
        set(&toml, "0");
        let machine = Machine::new();
        let mut daemon = machine.start(&toml);
        let mut runs = draw(&daemon, 10);
        at.delete(KEY);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        daemon.assert_logs("not at the coordinator");
        machine.setup(&toml).end().assert_refusal(&["not at the coordinator", "snowbank ticket set"]);
        // The state shows that the daemon handed out larger numbers.
        set(&toml, "5");
        machine.setup(&toml).end().assert_refusal(&["is at 6", "may have been handed out", "ticket set"]);
        set(&toml, "2000");
        runs.extend(draw(&machine.start(&toml), 10));
        assert_rising(&runs);
        assert_eq!(runs[1].first, 2_001);
    });
}

/// A fleet that has only a counter has no marker, so the daemon compares the counter's key at both
/// clusters.
#[test]
fn endpoints_of_two_clusters_are_refused() {
    let (Some(one), Some(other)) = (ZooKeeper::start(), ZooKeeper::start()) else { return };
    let both = toml_at(&one, &[&one.url(), &other.url()], "");
    set(&toml(&one), "0");
    // Asks the second ZooKeeper once, because its first answer takes longer than later ones.
    other.put("/asked", "");
    refused_for_two_clusters(&both).assert_refusal(&["no value at "]);
    set(&toml(&other), "0");
    refused_for_two_clusters(&both).assert_refusal(&[KEY]);
}

#[test]
fn a_counter_moves_to_the_coordinator_and_not_back_by_itself() {
    let Some(at) = Etcd::start() else { return };
    let shared = toml(&at);
    let machine = Machine::new();
    let alone = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";
    machine.run(&["ticket", "set", "orders", "100"]).printed();
    let daemon = machine.start(alone);
    assert_eq!(draw(&daemon, 5)[0].first, 101);
    daemon.stop();
    set(&shared, "100");
    machine.setup(&shared).end().assert_refusal(&["is at 101", "numbers below 106"]);
    set(&shared, "105");
    let daemon = machine.start(&shared);
    assert_eq!(draw(&daemon, 5)[0].first, 106);
    daemon.stop();
    machine.setup(alone).end().assert_refusal(&["shared in a fleet", "ticket set orders VALUE"]);
}

/// Somebody writes a wrong value into the key. The state does not store the wrong value, so a
/// daemon starts again once the value is corrected.
#[test]
fn a_wrong_value_of_a_counter_ends_its_daemon_until_corrected() {
    let Some(etcd) = Etcd::start() else { return };
    let toml = toml(&etcd);
    let lower = |value: &str| {
        let (code, text) = run_configured(&toml, &["ticket", "set", "orders", value, "--lower"]);
        assert_eq!(code, Some(0), "{text}");
    };
    set(&toml, "1000");
    let machine = Machine::new();
    let mut daemon = machine.start(&toml);
    draw(&daemon, 10);
    let next = i64::MAX;
    let leaps = format!(
        r#"{{"format":2,"counter":"c","next":"{next}","from":"1001","write":"w","writer":"somebody"}}"#
    );
    let rows = [
        (5_000, &leaps[..], "to 9223372036854775807 in one write of somebody"),
        (9_000, "?", "did not write"),
    ];
    for (right, wrong, part) in rows {
        etcd.put(KEY, wrong);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        machine.setup(&toml).end().assert_refusal_for_now(&[KEY, part, "--lower"]);
        assert_not_set(&toml, &["2000"], 1, "--lower");
        lower(&right.to_string());
        daemon = machine.start(&toml);
        assert!(draw(&daemon, 10)[0].first > right);
    }
    lower("500");
    assert_eq!(daemon.wait(), Some(3), "the daemon runs on with a range above the counter: {}", daemon.log());
    machine.setup(&toml).end().assert_refusal(&["--lower --state-dir"]);
    machine.run(&["ticket", "set", "orders", "500", "--lower"]).printed();
    assert_eq!(draw(&machine.start(&toml), 1)[0].first, 501);
}

#[test]
fn a_counter_ends_at_its_maximum() {
    let Some(etcd) = Etcd::start() else { return };
    let toml = toml_at(&etcd, &[&etcd.url()], "maximum = 1005\n");
    set(&toml, "1000");
    assert_not_set(&toml, &["1005"], 2, "up to 1004");
    let machines = [Machine::new(), Machine::new()];
    let daemon = machines[0].setup(&toml).admin().start();
    let runs = draw(&daemon, 5);
    assert_eq!((runs[0].first, runs[0].last()), (1_001, 1_005));
    let other = machines[1].setup(&toml).admin().start();
    let last_write = etcd.get(KEY);
    for daemon in [&daemon, &other] {
        daemon.assert_logs("finding numbers of orders: the counter has ended");
        assert_eq!(get(daemon, "/readyz").code, 503);
        let left = sample(&scrape(daemon), "snowbank_ticket_left_ratio{source=\"orders\"}");
        assert!(left < f64::EPSILON, "{left}");
        daemon.connect().next(Ask::of(1).wait_ms(9_000)).assert_error(0, EXHAUSTED);
    }
    assert_eq!(etcd.get(KEY), last_write);
    let lower = toml_at(&etcd, &[&etcd.url()], "maximum = 1004\n");
    Machine::new().setup(&lower).end().assert_refusal(&["found maximum 1004, allowed: from 1005 on"]);
}

#[test]
fn an_ended_counter_goes_on_with_numbers_that_are_given_back() {
    let Some(etcd) = Etcd::start() else { return };
    let toml = toml_at(&etcd, &[&etcd.url()], "maximum = 1005\n");
    set(&toml, "1000");
    let machines = [Machine::new(), Machine::new()];
    let first = machines[0].start(&toml);
    assert_eq!(draw(&first, 2)[0].last(), 1_002);
    let second = machines[1].start(&toml);
    second.connect().next(Ask::of(1).wait_ms(9_000)).assert_error(0, EXHAUSTED);
    first.stop();
    let runs = poll("numbers that the first daemon gave back", || match second.connect().next(Ask::of(3)) {
        Reply::Runs(_, runs) => Some(runs),
        _ => None,
    });
    assert_eq!((runs[0].first, runs[0].last()), (1_003, 1_005));
    second.connect().next(Ask::of(1).wait_ms(9_000)).assert_error(0, EXHAUSTED);
}

/// After a jump of the clock, the machine may be a restored copy. Another copy may then have the
/// same range.
#[test]
fn numbers_come_from_another_range_after_a_jump_of_the_clock() {
    let (Some(at), Some(machine)) = (Etcd::start(), Machine::with_clock()) else { return };
    let toml = toml(&at);
    set(&toml, "0");
    let daemon = machine.start(&toml);
    assert_eq!(draw(&daemon, 1)[0].first, 1);
    machine.clock().step(60_000);
    let next = poll("a number of another range", || {
        let first = draw(&daemon, 1)[0].first;
        (first > 32).then_some(first)
    });
    assert_eq!(next % 32, 1, "{next}");
}

/// The daemon of the fleet keeps no state, or another one, so the old state does not know that the
/// counter was shared.
#[test]
fn the_way_back_to_an_own_counter_is_refused() {
    on_one(|at| {
        let own = source("orders").replace("fleet-ticket", "ticket");
        set(&toml(at), "100");
        for state in ["none", "another"] {
            let machine = Machine::new();
            machine.run(&["ticket", "set", "orders", "0"]).printed();
            let daemon = machine.start(&own);
            assert_eq!(daemon.draw_one(), 1);
            let toml = toml(at);
            let state = if state == "none" { state.into() } else { machine.path(state) };
            let shared = || machine.setup(&toml).option("--state-dir", &state);
            shared().end().assert_refusal_for_now(&["ticket orders", "held by another daemon"]);
            daemon.stop();
            // Without the counter's lock, nothing would remember that the counter was shared.
            let set_mode = |mode| {
                fs::set_permissions(machine.path("locks"), fs::Permissions::from_mode(mode)).unwrap();
            };
            set_mode(0o777);
            shared().end().assert_refusal(&["every user can write"]);
            set_mode(0o700);
            for _ in 0..2 {
                let daemon = shared().start();
                draw(&daemon, 1);
                daemon.stop();
            }
            for increment in ["", "increment = 3\noffset = 1\n"] {
                machine.setup(&(own.clone() + increment)).end().assert_refusal(&["shared in a fleet"]);
            }
            machine.run(&["ticket", "set", "orders", "9000"]).printed();
            assert_eq!(machine.start(&own).draw_one(), 9_001);
        }
    });
}

#[test]
fn clean_restarts_of_two_daemons_skip_and_repeat_no_number() {
    each(|at| {
        let toml = toml(at);
        set(&toml, "0");
        let machines = [Machine::new(), Machine::new()];
        let start = |machine: &Machine| {
            machine.setup(&toml).env("SNOWBANK_LOCK_DIR", machines[0].path("locks")).start()
        };
        let mut expected = 1;
        for round in 0..3 {
            for machine in &machines {
                let daemon = start(machine);
                for count in [1, 500 * round + 3] {
                    let runs = draw(&daemon, count);
                    assert_eq!((runs[0].first, runs.len()), (expected, 1), "round {round}");
                    expected += u64::from(count);
                }
                daemon.stop();
            }
        }
        // While another daemon has numbers above, the rest of the first one's range is skipped.
        let [first, second] = machines.each_ref().map(start);
        let mut runs = draw(&first, 1);
        runs.extend(draw(&second, 1));
        first.stop();
        second.stop();
        assert!(runs[1].first > expected);
        runs.extend(draw(&start(&machines[0]), 1));
        assert_rising(&runs);
        assert_eq!(runs[2].first, runs[1].first + 1, "the last range went back, and nothing below it");
    });
}

/// The coordinator is away while the daemon stops, so the daemon gives nothing back.
#[test]
fn a_stop_in_an_outage_skips_the_range_and_repeats_nothing() {
    on_one(|at| {
        let toml = toml(at);
        set(&toml, "0");
        let machine = Machine::new();
        let daemon = machine.start(&toml);
        assert_eq!(draw(&daemon, 3)[0].first, 1);
        at.kill();
        daemon.stop();
        at.run();
        let daemon = machine.start(&toml);
        assert_eq!(draw_after_an_outage(&daemon)[0].first, 33);
        daemon.stop();
        assert_eq!(draw(&machine.start(&toml), 1)[0].first, 34);
    });
}

#[test]
fn with_a_reserve_of_one_each_range_is_of_a_request() {
    on_one(|at| {
        let toml = toml_at(at, &[&at.url()], "reserve = 1\n");
        set(&toml, "0");
        let machine = Machine::new();
        let mut expected = 1;
        for _ in 0..2 {
            machine.start(&toml).kill();
            let mut daemon = machine.setup(&toml).admin().start();
            // Between two requests it has no numbers, and lacks none.
            assert_eq!(get(&daemon, "/readyz").code, 200);
            for count in [2, 1, 40, 1] {
                assert_eq!(draw(&daemon, count)[0].first, expected);
                expected += u64::from(count);
            }
            assert_eq!(get(&daemon, "/readyz").code, 200);
            daemon.kill();
        }
    });
}
