//! The steps of docs/fleet.md and the cures in the messages of a fleet, followed to the letter: no
//! ID comes twice.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use snowbank_testkit::skip;

use super::*;
use crate::support::coordinators::ZooKeeper;
use crate::support::ids::unix_ms;
use snowbank_id::layout::UnixMicros;

/// The IDs that were handed out in a test.
#[derive(Default)]
struct Seen(HashSet<u64>);

impl Seen {
    fn draw(&mut self, daemon: &Daemon) {
        daemon.assert_has_numbers();
        let mut wire = daemon.connect();
        // A daemon that starts above a floor refuses until its clock is near.
        let runs = poll("IDs", || match wire.next(Ask::of(2_000).wait_ms(200)) {
            Reply::Runs(_, runs) => Some(runs),
            Reply::Error { code, .. } => {
                assert!([CLOCK_BEHIND, NO_CEILING].contains(&code), "refused with code {code}");
                None
            }
            other => panic!("{other:?}"),
        });
        for id in runs.into_iter().flat_map(Run::ids) {
            assert!(self.0.insert(id), "{id} came twice");
        }
    }

    /// Starts daemons that are killed, so that the last IDs are ahead of the clock.
    fn crash(&mut self, machine: &Machine, toml: &str) {
        for _ in 0..5 {
            let mut daemon = machine.start(toml);
            self.draw(&daemon);
            daemon.kill();
        }
    }
}

/// Returns the ID that `snowbank state show` prints: all IDs of this machine are below it.
fn bound(machine: &Machine) -> u64 {
    let shown = machine.run(&["state", "show"]).printed();
    let bounds = shown.lines().filter_map(|line| line.split_once("every ID handed out is below "));
    bounds.map(|(_, bound)| bound.parse().expect("an ID")).max().expect("a bound")
}

/// The coordinator loses its data, or somebody damages the marker.
#[test]
fn a_fleet_without_a_marker_is_prepared_again() {
    each(|at| {
        for marker in [None, Some("?")] {
            let toml = prepared(at, None, LONG);
            let mut seen = Seen::default();
            let [crashed, running] = [(); 2].map(|()| Machine::new());
            let mut daemon = running.start(&toml);
            seen.draw(&daemon);
            seen.crash(&crashed, &toml);
            match marker {
                None => {
                    at.kill();
                    at.lose_data();
                    at.run();
                    assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
                }
                Some(text) => {
                    at.put("/snowbank/default/marker", text);
                    daemon.kill();
                    at.delete("/snowbank/default/marker");
                    for number in 0..2 {
                        at.delete(&format!("/snowbank/default/space-0/{number}"));
                    }
                }
            }
            for machine in [&crashed, &running] {
                fs::remove_file(machine.path("state/fleet")).expect("the notes are removed");
            }
            let latest = [&crashed, &running].map(bound).into_iter().max().expect("bounds").to_string();
            fleet_says(&toml, &["init", "--above", &latest], 0, &["starts above"]);
            // The worker IDs change hands.
            let daemons = [&crashed, &running].map(|machine| machine.start(&toml));
            let newcomer = Machine::new();
            let newcomer = newcomer.start(&toml);
            daemons.iter().chain([&newcomer]).for_each(|daemon| seen.draw(daemon));
            drop(daemons);
            drop(newcomer);
            at.kill();
            at.lose_data();
            at.run();
        }
    });
}

/// The daemons use worker IDs that the fleet never assigned, or, after one horizon, those that it
/// assigned to others.
#[test]
fn daemons_leave_a_fleet() {
    on_one(|at| {
        let toml = prepared(at, None, SHORT);
        let mut seen = Seen::default();
        let [one, two] = [(); 2].map(|()| Machine::new());
        let alone = |worker: u64| format!("max_ahead = \"400ms\"\nworker_ids = {worker}\n");
        seen.crash(&one, &toml);
        let daemons = [&one, &two].map(|machine| machine.start(&toml));
        daemons.iter().for_each(|daemon| seen.draw(daemon));
        let [first, second] = daemons;
        first.stop();
        let first = one.start(&alone(900));
        seen.draw(&first);
        // The fleet assigns the worker ID of the one that left.
        let newcomer = Machine::new();
        let daemon = newcomer.start(&toml);
        seen.draw(&daemon);
        for daemon in [first, second, daemon] {
            daemon.stop();
        }
        std::thread::sleep(Duration::from_secs(16));
        for (machine, worker) in [(&one, 1), (&two, 0)] {
            let daemon = machine.start(&alone(worker));
            daemon.assert_logs("IDs");
            seen.draw(&daemon);
        }
    });
}

/// An operator takes the worker ID of a daemon that still runs, and gives it to another machine.
#[test]
fn a_worker_id_is_freed_and_goes_to_another_machine() {
    on_one(|at| {
        let toml = prepared(at, Some(5), SHORT);
        let mut seen = Seen::default();
        let [holder, next] = [(); 2].map(|()| Machine::new());
        seen.crash(&holder, &toml);
        let mut daemon = holder.start(&toml);
        seen.draw(&daemon);
        let mut wire = daemon.connect();
        fleet_says(&toml, &["release", "5", "--force"], 0, &[]);
        let next = next.start(&toml);
        // The holder hands out IDs until it notices.
        while let Ok(()) = wire.try_send(&Ask::of(100).wait_ms(0).bytes()) {
            let Ok(Some(Reply::Runs(_, runs))) = wire.try_reply() else { break };
            assert!(runs.into_iter().flat_map(Run::ids).all(|id| seen.0.insert(id)));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        seen.draw(&next);
    });
}

/// Somebody has written a ceiling, or prepared a floor, that no clock has reached.
#[test]
fn bounds_that_are_too_far_ahead_are_lowered() {
    on_one(|at| {
        let toml = prepared(at, Some(5), SHORT);
        let mut seen = Seen::default();
        let [machine, next] = [(); 2].map(|()| Machine::new());
        let daemon = machine.start(&toml);
        seen.draw(&daemon);
        daemon.stop();
        // A daemon whose clock is wrong gets the worker ID, and hands out nothing.
        let Some(ahead) = Machine::with_clock() else { return };
        ahead.clock().set(86_400_000);
        let mut daemon = ahead.start(&toml);
        daemon.assert_has_numbers();
        daemon.kill();
        next.setup(&toml).end().assert_refusal_for_now(&["snowbank fleet release NUMBER --force --lower"]);
        fleet_says(&toml, &["release", "5", "--force", "--lower"], 0, &[]);
        let daemon = next.start(&toml);
        seen.draw(&daemon);
        daemon.stop();

        let newcomer = Machine::new();
        let other = toml.replace("worker_ids = 5", "worker_ids = 6");
        let instant_in = |ms| UnixMicros::from_unix_ms((unix_ms() + ms) as i64).rfc3339(3);
        fleet_says(&toml, &["init", "--above", &instant_in(80_000_000)], 0, &["starts above"]);
        fleet_says(&toml, &["init", "--above", &instant_in(2_000), "--lower"], 0, &[]);
        // A number is an ID, and one of years ago is no floor.
        let as_id = (unix_ms() + 2_000).to_string();
        fleet_says(
            &toml,
            &["init", "--above", &as_id, "--lower"],
            2,
            &["as an ID was made 2010", "RFC 3339"],
        );
        for (machine, toml) in [(&newcomer, &other), (&machine, &toml)] {
            let daemon = machine.start(toml);
            seen.draw(&daemon);
            daemon.stop();
        }
    });
}

/// The fleet gets another horizon. One of its daemons was killed.
#[test]
fn another_horizon_is_set_while_no_daemon_runs() {
    on_one(|at| {
        let toml = prepared(at, None, SHORT);
        let mut seen = Seen::default();
        let [killed, stopped] = [(); 2].map(|()| Machine::new());
        let daemon = stopped.start(&toml);
        seen.draw(&daemon);
        seen.crash(&killed, &toml);
        daemon.stop();
        let changed = toml.replace(SHORT, "20s");
        stopped.setup(&changed).end().assert_refusal(&["correct the configuration", "--above now"]);
        poll("a ceiling that has passed", || {
            let (_, listed) = fleet(&toml, &["list"]);
            (!listed.contains(": held by")).then_some(())
        });
        fleet_says(&changed, &["init", "--above", "now"], 0, &["starts above"]);
        stopped.setup(&toml).end().assert_refusal(&["correct the configuration"]);
        let daemons = [&stopped, &killed].map(|machine| machine.start(&changed));
        daemons.iter().for_each(|daemon| seen.draw(daemon));
    });
}

/// The counters of a coordinator that is restored are set while no daemon counts.
#[test]
fn shared_counters_are_set_after_a_restore() {
    each(|at| {
        let toml = at.table(&[&at.url()]) + "[[sources]]\nname = \"orders\"\nkind = \"fleet-ticket\"\n";
        let set = |value: u64| {
            let (code, text) = run_configured(&toml, &["ticket", "set", "orders", &value.to_string()]);
            assert_eq!(code, Some(0), "{text}");
        };
        set(0);
        let mut seen = Seen::default();
        let [early, late] = [(); 2].map(|()| Machine::new());
        let draw = |daemon: &Daemon, seen: &mut Seen| {
            let runs = daemon.connect().next_once_granted(Ask::of(20)).runs();
            runs.into_iter().flat_map(Run::ids).for_each(|id| assert!(seen.0.insert(id), "{id} came twice"));
        };
        let first = early.start(&toml);
        draw(&first, &mut seen);
        at.back_up();
        let second = late.start(&toml);
        draw(&second, &mut seen);
        first.stop();
        second.stop();
        at.restore();
        set(*seen.0.iter().max().expect("numbers"));
        let daemons = [&early, &late].map(|machine| machine.start(&toml));
        for _ in 0..3 {
            daemons.iter().for_each(|daemon| draw(daemon, &mut seen));
        }
    });
}

/// The command of docs/fleet.md lets fleets of different users share a ZooKeeper.
#[test]
fn fleets_of_two_users_share_a_zookeeper() {
    const CLIENT: &str = "/usr/share/zookeeper/bin/zkCli.sh";
    if !Path::new(CLIENT).exists() {
        return skip("zkCli.sh is missing: install the package zookeeper (tests/run does it)");
    }
    let Some(mut zookeeper) = ZooKeeper::start() else { return };
    let passwords = Machine::new();
    let [first, second] = ["first", "second"].map(|user| {
        let file = passwords.path(user);
        fs::write(&file, user).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        let user = format!("name = \"{user}\"\nuser = \"{user}\"\npassword_file = {file:?}\n");
        toml(&zookeeper, Some(5), LONG) + &user
    });
    init(&first);
    fleet_says(&second, &["init", "--new"], 2, &["NoAuth"]);
    zookeeper.kill();
    zookeeper.lose_data();
    zookeeper.run();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fleet.md")).expect("the page");
    let (_, command) = page.split_once("`zkCli.sh ").expect("the command");
    let (command, _) = command.split_once('`').expect("its end");
    let here = format!("{CLIENT} -server {} {command}", zookeeper.address());
    let made = Command::new("sh").args(["-c", &here]).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    for toml in [&first, &second] {
        init(toml);
        serving(toml);
    }
}
