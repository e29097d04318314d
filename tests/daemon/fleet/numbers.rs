//! A state whose worker ID changes, and the records that it keeps.

use super::{LONG, draw, init, toml, worker_of};
use crate::support::Daemon;
use crate::support::coordinators::{Coordinator, on_one};
use crate::support::ids::{assert_distinct, twitter_unix_ms, unix_ms};
use crate::support::machine::Machine;
use crate::support::program::Said;
use crate::support::wire::{Ask, Run};

/// Returns the configuration of a daemon to which the fleet may assign only this worker ID.
fn assigned(at: &dyn Coordinator, number: u64) -> String {
    format!("worker_ids = {number}\n{}", toml(at, None, LONG))
}

/// Returns the worker IDs of each record in `state show`, and whether the fleet assigned them.
fn shown(machine: &Machine) -> Vec<(String, bool)> {
    let mut shown = Vec::new();
    for source in machine.shown_sources("state") {
        let worker_ids = source["worker_ids"].as_str().expect("worker IDs").to_owned();
        shown.push((worker_ids, source["assigned"] == true));
    }
    shown
}

fn one(number: u64) -> Vec<(String, bool)> {
    vec![(number.to_string(), true)]
}

/// Draws IDs, and checks that they have this worker ID and lie above the earlier IDs.
#[track_caller]
fn draw_above(daemon: &Daemon, number: u64, runs: &mut Vec<Run>) {
    let drawn = draw(daemon);
    assert_eq!(worker_of(&drawn), number);
    let last = runs.iter().map(Run::last).max();
    assert!(last < Some(drawn[0].first), "{drawn:?} is not above {last:?}");
    runs.extend(drawn);
}

#[test]
fn a_state_keeps_one_record_when_its_worker_id_changes_often() {
    on_one(|at| {
        init(&assigned(at, 0));
        let machine = Machine::new();
        let mut runs = Vec::new();
        for number in [9, 3, 12, 0, 7] {
            let mut daemon = machine.start(&assigned(at, number));
            draw_above(&daemon, number, &mut runs);
            // The daemon starts at the clock, even if its previous ceiling is seconds ahead.
            let ahead_ms = twitter_unix_ms(runs[runs.len() - 1].last()) as i64 - unix_ms() as i64;
            assert!(ahead_ms < 500, "worker ID {number} is {ahead_ms} ms ahead of the clock");
            assert_eq!(shown(&machine), one(number), "while it runs");
            if number % 2 == 0 {
                daemon.stop();
            } else {
                daemon.kill();
            }
            assert_eq!(shown(&machine), one(number));
        }
        // The daemon had this worker ID before, and released it.
        draw_above(&machine.start(&assigned(at, 12)), 12, &mut runs);
        assert_distinct(runs);
    });
}

#[test]
fn an_exported_worker_id_is_assigned_again_and_imported() {
    on_one(|at| {
        init(&assigned(at, 0));
        let machine = Machine::new();
        let mut runs = Vec::new();
        let export = machine.path("export").display().to_string();
        let daemon = machine.start(&assigned(at, 5));
        draw_above(&daemon, 5, &mut runs);
        daemon.stop();
        assert_eq!(machine.run(&["state", "export", "--output", &export]).code, Some(0));
        // Another daemon of the machine gets the worker ID, and is not refused.
        let daemon = machine.beside(&assigned(at, 5)).start();
        runs.extend(draw(&daemon));
        assert_eq!(machine.run(&["state", "export"]).code, Some(0), "an export can be repeated");
        daemon.stop();
        let without_fleet = "worker_ids = 5\nmax_ahead = \"400ms\"\n";
        machine.setup(without_fleet).end().assert_refusal(&["moved worker ID 5", "away"]);
        let daemon = machine.start(&assigned(at, 5));
        draw_above(&daemon, 5, &mut runs);
        daemon.stop();
        let Said { code, out, err: errors } = machine.run(&["state", "import", &export]);
        assert!(code == Some(0) && out.contains("worker ID 5"), "{out}{errors}");
        draw_above(&machine.start(&assigned(at, 5)), 5, &mut runs);
        assert_eq!(shown(&machine), one(5));
        assert_distinct(runs);
    });
}

#[test]
fn a_record_stays_until_the_coordinator_has_its_bound() {
    on_one(|at| {
        init(&assigned(at, 0));
        let machine = Machine::new();
        let mut runs = Vec::new();
        let mut daemon = machine.start(&assigned(at, 5));
        draw_above(&daemon, 5, &mut runs);
        daemon.kill();
        at.delete("/snowbank/default/space-0/5");
        let daemon = machine.start(&assigned(at, 6));
        draw_above(&daemon, 6, &mut runs);
        daemon.stop();
        let both = [("5".to_owned(), true), ("6".to_owned(), true)];
        assert_eq!(shown(&machine), both, "only this state knows the ceiling of worker ID 5");
        let other = Machine::new();
        let _holder = other.start(&assigned(at, 5));
        draw_above(&machine.start(&assigned(at, 7)), 7, &mut runs);
        assert_eq!(shown(&machine), one(7));
    });
}

#[test]
fn a_daemon_may_have_several_worker_ids_of_its_data_center() {
    on_one(|at| {
        let toml = toml(at, None, LONG).replace("from = \"coordinator\"", "from = \"coordinator:4\"");
        let toml = format!("worker_ids = \"datacenter=1\"\n{toml}");
        init(&toml);
        let machines = [Machine::new(), Machine::new()];
        let daemons = machines.each_ref().map(|machine| machine.start(&toml));
        daemons.iter().for_each(Daemon::assert_has_numbers);
        let (_, text) = super::fleet(&toml, &["list"]);
        let held: Vec<&str> =
            text.lines().filter_map(|line| line.split_once(": held by ")).map(|it| it.0).collect();
        assert_eq!(held, ["32", "33", "34", "35", "36", "37", "38", "39"], "{text}");
        let mut runs: Vec<Run> = Vec::new();
        for daemon in &daemons {
            // Requests more IDs than one worker ID has in a tick. A run may have IDs of several
            // worker IDs.
            runs.extend(daemon.connect().next(Ask::of(100_000).wait_ms(9_000)).runs());
        }
        let numbers: std::collections::BTreeSet<u64> =
            runs.iter().flat_map(|run| [run.first, run.last()]).map(super::twitter_worker).collect();
        assert!(numbers.len() > 2 && numbers.iter().all(|number| (32..40).contains(number)), "{numbers:?}");
        assert_distinct(runs);
    });
}
