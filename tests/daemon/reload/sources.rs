//! Sources that a reload adds, removes or renames, while clients draw. No ID comes twice, and other
//! sources do not notice.

use std::thread;
use std::time::Duration;

use super::*;
use crate::support::Random;
use crate::support::machine::Machine;
use crate::support::wire::{NO_CEILING, Run, SHUTTING_DOWN, UNKNOWN_SOURCE};

/// A source with ticks of a second and few IDs, so that requests wait.
const SLOW: &str = "[[sources]]\nname = \"slow\"\nlayout = \"time:32,worker:10,sequence:=10;tick=1s\"\n";
const TICKET: &str = "[[sources]]\nname = \"inv\"\nkind = \"ticket\"\n";

fn reloaded(daemon: &Daemon, toml: &str) -> String {
    daemon.replace("snowbank.toml", toml);
    daemon.reload()
}

#[track_caller]
fn assert_refused(daemon: &Daemon, toml: &str, parts: &[&str]) {
    let said = reloaded(daemon, toml);
    let line =
        said.lines().find(|line| line.contains("reload refused: ")).unwrap_or_else(|| panic!("{said}"));
    parts.iter().for_each(|part| assert!(line.contains(part), "{part:?} is not in {line:?}"));
    assert!(said.contains("nothing was reloaded"), "{said}");
}

fn draw(daemon: &Daemon, source: &str, count: u32) -> Vec<Run> {
    daemon.connect().next(Ask::of(count).source(source).wait_ms(9_000)).runs()
}

fn names(daemon: &Daemon) -> Vec<String> {
    let info = daemon.connect().info();
    let sources = info["sources"].as_array().expect("sources");
    sources.iter().map(|source| source["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn sources_come_and_go_while_clients_draw() {
    play_until_fed(|| {
        let machine = Machine::new();
        let kept = format!("shards = 2\n{}", source("kept", 0));
        let daemon = machine.start(&kept);
        let witness = Witness::of(&daemon, &[MIXED, MIXED, SPARSE, SPARSE]);
        let mut open = connections(&daemon);
        let mut runs = Vec::new();
        for round in 0..8 {
            let name = format!("s{round}");
            // The worker ID of each round is free again in the next but one.
            let worker = 1 + round % 2;
            let with = format!("{kept}{}", source(&name, worker));
            assert_reloaded(&daemon, &with, &[&format!("source {name:?}: added")]);
            for wire in &mut open {
                let found = wire.next(Ask::of(50).source(&name).wait_ms(9_000)).runs();
                assert_eq!(twitter_worker(found[0].first), worker as u64);
                runs.extend(found);
            }
            let other = format!("other{round}");
            let renamed = format!("{kept}{}", source(&other, worker));
            assert_reloaded(&daemon, &renamed, &[&format!("name: {name:?} -> {other:?}")]);
            assert_eq!(names(&daemon), ["kept", &*other]);
            for wire in &mut open {
                wire.next(Ask::of(1).source(&name)).assert_error(0, UNKNOWN_SOURCE);
                let found = wire.next(Ask::of(50).source(&other).wait_ms(9_000)).runs();
                assert_eq!(twitter_worker(found[0].first), worker as u64);
                runs.extend(found);
            }
            assert_reloaded(&daemon, &kept, &[&format!("source {other:?}: removed")]);
            daemon.assert_logs(&format!("source {other:?} has ended"));
            for wire in &mut open {
                wire.next(Ask::of(1).source(&other)).assert_error(0, UNKNOWN_SOURCE);
                runs.extend(wire.next(Ask::of(3).source("kept").wait_ms(9_000)).runs());
            }
            // Another daemon of the machine gets the worker ID at once.
            let beside = machine.beside(&format!("worker_ids = {worker}")).start();
            runs.extend(beside.connect().next(Ask::of(20).wait_ms(9_000)).runs());
            beside.stop();
        }
        witness.await_ids();
        let testimony = witness.stop();
        runs.extend(testimony.runs());
        daemon.stop();
        // The next start of a source that a reload removed continues above its last ID.
        let with = format!("{kept}{}", source("s9", 1));
        runs.extend(draw(&machine.start(&with), "s9", 100));
        assert_distinct(runs);
        testimony.if_fed()?.assert_no_refusal();
        Some(())
    });
}

/// A request without a name draws from the first source of the file.
#[test]
fn the_first_source_of_the_file_may_change() {
    let daemon = Setup::configured(&source("a", 1)).start();
    let mut wire = daemon.connect();
    let mut runs = Vec::new();
    let files = [[("b", 2), ("a", 1)], [("a", 1), ("b", 2)], [("b", 2), ("c", 3)], [("d", 4), ("b", 2)]];
    for file in files {
        let [first, second] = file.map(|(name, worker)| source(name, worker));
        reloaded(&daemon, &format!("{first}{second}"));
        assert_eq!(names(&daemon), file.map(|(name, _)| name));
        let found = wire.next(Ask::of(10).wait_ms(9_000)).runs();
        assert_eq!(twitter_worker(found[0].first), file[0].1 as u64);
        runs.extend(found);
    }
    assert_distinct(runs);
    daemon.stop();
}

#[test]
fn requests_that_wait_for_a_removed_source_are_refused() {
    let machine = Machine::new();
    let kept = format!("shards = 2\n[limits]\nmax_wait = \"1m\"\n{}", source("kept", 1));
    let daemon = machine.setup(&format!("{kept}{SLOW}")).admin().start();
    draw(&daemon, "slow", 1);
    let mut waiting: Vec<Wire> = connections(&daemon);
    for wire in &mut waiting {
        wire.send(&Ask::of(50).source("slow").wait_ms(60_000).bytes());
    }
    let waits = || sample(&scrape(&daemon), "snowbank_waiting_requests{source=\"slow\"}");
    poll("requests that wait", || (waits() == 6.0).then_some(()));
    let said = reloaded(&daemon, &kept);
    assert!(said.contains("source \"slow\": removed"), "{said}");
    for wire in &mut waiting {
        let text = wire.reply().assert_error(0, UNKNOWN_SOURCE);
        assert!(text.contains("has removed source slow"), "{text}");
        wire.assert_open();
    }
    daemon.assert_logs("source \"slow\" was in use when it was removed");
    assert!(
        !scrape(&daemon).iter().any(|(name, _)| name.contains("\"slow\"")),
        "a removed source has metrics"
    );
    daemon.stop();
}

#[test]
fn a_new_source_whose_worker_id_is_held_refuses_the_reload() {
    let machine = Machine::new();
    let holder = machine.beside("worker_ids = 5").start();
    let kept = source("kept", 1);
    let daemon = machine.start(&kept);
    let with = format!("{kept}{}{}", source("new", 5), source("fine", 6));
    assert_refused(&daemon, &with, &["worker ID 5", "is held by another daemon", &holder.id().to_string()]);
    assert_eq!(names(&daemon), ["kept"]);
    let mut runs = draw(&daemon, "kept", 100);
    daemon.connect().next(Ask::of(1).source("fine")).assert_error(0, UNKNOWN_SOURCE);
    runs.extend(holder.connect().next(Ask::of(100)).runs());
    holder.stop();
    assert_reloaded(&daemon, &with, &["source \"new\": added", "source \"fine\": added"]);
    for name in ["kept", "new", "fine"] {
        runs.extend(draw(&daemon, name, 100));
    }
    assert_distinct(runs);
    daemon.stop();
}

#[test]
fn a_reload_moves_no_worker_id_from_source_to_source() {
    let machine = Machine::new();
    let [a, b] = [source("a", 1), source("b", 2)];
    let daemon = machine.start(&format!("{a}{b}"));
    let mut runs = draw(&daemon, "a", 100);
    let swapped = format!("{}{}", source("b", 1), source("a", 2));
    let differs =
        "sources[0].worker_ids: found \"1\", the daemon runs with \"2\": a running source keeps its layout";
    assert_refused(&daemon, &swapped, &[differs, "or remove each such source, reload, and add it again"]);
    let moved = format!("{a}{}burst_window = \"5ms\"\n", source("c", 2));
    assert_refused(&daemon, &moved, &["source \"c\"", "of source \"b\"", "then add the other"]);
    runs.extend(draw(&daemon, "b", 100));
    assert_reloaded(&daemon, &a, &["source \"b\": removed"]);
    assert_reloaded(&daemon, &moved, &["source \"c\": added"]);
    runs.extend(draw(&daemon, "c", 100));
    runs.extend(draw(&daemon, "a", 100));
    assert_distinct(runs);
    daemon.stop();
}

#[test]
fn a_counter_that_comes_back_continues_without_a_gap() {
    let machine = Machine::new();
    let kept = source("kept", 1);
    machine.run(&["ticket", "set", "inv", "100"]).printed();
    let mut daemon = machine.start(&kept);
    let mut last = 100;
    for round in 0..4 {
        assert_reloaded(&daemon, &format!("{kept}{TICKET}"), &["source \"inv\": added"]);
        for count in [1, 30] {
            let drawn = daemon.connect().next(Ask::of(count).source("inv").wait_ms(9_000)).ids();
            assert_eq!(drawn, (last + 1..=last + u64::from(count)).collect::<Vec<_>>(), "round {round}");
            last += u64::from(count);
        }
        assert_reloaded(&daemon, &kept, &["source \"inv\": removed"]);
        if round % 2 == 1 {
            daemon.stop();
            daemon = machine.start(&kept);
        }
    }
    // The name of a ticket source is its counter's, and nothing is stored of this one.
    let other = format!("{kept}{}", TICKET.replace("inv", "invoices"));
    assert_refused(&daemon, &other, &["\"invoices\"", "snowbank ticket set"]);
    draw(&daemon, "kept", 100);
    daemon.stop();
}

/// A name that a reload changes is the name of the next start, too.
#[test]
fn a_renamed_source_keeps_its_line_at_the_next_start() {
    for ends_cleanly in [true, false] {
        let machine = Machine::new();
        let mut daemon = machine.start(&source("a", 1));
        let mut runs = draw(&daemon, "a", 100);
        assert_reloaded(&daemon, &source("b", 1), &["sources[0].name: \"a\" -> \"b\""]);
        runs.extend(draw(&daemon, "b", 100));
        if ends_cleanly {
            daemon.stop();
        } else {
            daemon.kill();
        }
        let daemon = machine.start(&source("b", 1));
        assert!(!daemon.log().contains("starts for the first time"), "{}", daemon.log());
        runs.extend(draw(&daemon, "b", 100));
        assert_distinct(runs);
        daemon.stop();
    }
}

/// Stops and kills a daemon at any moment of a reload that adds and removes sources.
#[test]
fn a_reload_may_be_interrupted_at_any_moment() {
    let machine = Machine::new();
    let kept = format!("shards = 2\n{}", source("kept", 0));
    machine.run(&["ticket", "set", "inv", "0"]).printed();
    let sets = [
        format!("{kept}{}{TICKET}", source("a", 1)),
        format!("{kept}{}{}", source("b", 2), source("c", 3)),
        format!("{kept}{}{}", source("d", 1), source("c", 3)),
    ];
    let mut random = Random::seeded(7);
    let mut runs = Vec::new();
    let mut tickets = Vec::new();
    for life in 0..24 {
        let mut daemon = machine.start(&sets[life % 3]);
        let drawn = |daemon: &Daemon, runs: &mut Vec<Run>, tickets: &mut Vec<Run>| {
            for name in names(daemon) {
                let found = daemon.connect().next(Ask::of(20).source(&name).wait_ms(5_000));
                match (found, &*name) {
                    (Reply::Error { .. }, _) => {}
                    (found, "inv") => tickets.extend(found.runs()),
                    (found, _) => runs.extend(found.runs()),
                }
            }
        };
        drawn(&daemon, &mut runs, &mut tickets);
        let mut wire = daemon.connect();
        daemon.replace("snowbank.toml", &sets[(life + 1) % 3]);
        daemon.signal(Signal::HUP);
        thread::sleep(Duration::from_micros(random.below(12_000)));
        for name in ["a", "b", "c", "d", "kept"] {
            if wire.try_send(&Ask::of(5).source(name).wait_ms(0).bytes()).is_err() {
                break;
            }
            match wire.try_reply() {
                Ok(Some(reply)) if reply.id_count().is_some() => runs.extend(reply.runs()),
                Ok(Some(reply)) => {
                    let (code, _, text) = reply.error();
                    assert!([UNKNOWN_SOURCE, NO_CEILING, SHUTTING_DOWN].contains(&code), "{text}");
                }
                _ => break,
            }
        }
        if life % 2 == 0 {
            daemon.stop();
        } else {
            daemon.kill();
        }
    }
    assert_distinct(runs);
    assert_distinct(tickets);
}
