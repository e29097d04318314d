//! Restarts while the coordinator does not answer, starts from copied states, and interrupted
//! starts.

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::support::copy;

/// The first ID does not wait for the coordinator. A stop during the outage releases no worker ID.
/// The coordinator never answers the daemons that are killed.
#[test]
fn a_restart_during_an_outage_serves_at_once() {
    each(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), LONG);
        let (machine, mut daemon, mut runs) = serving(&toml);
        for life in 0..5 {
            if life == 0 {
                proxy.cut();
            } else {
                proxy.swallow_answers();
            }
            if life < 2 {
                daemon.stop();
            } else {
                daemon.kill();
            }
            daemon = machine.start(&toml);
            assert!(!daemon.log().contains("without its coordinator"), "{}", daemon.log());
            runs.extend(draw(&daemon));
        }
        let before = at.get(KEY);
        // Cuts the daemon's connection, because the connection may still hang.
        proxy.cut();
        proxy.pass();
        poll("a write of the daemon", || (at.get(KEY) != before).then_some(()));
        daemon.stop();
        runs.extend(draw(&machine.start(&toml)));
        assert_distinct(runs);
    });
}

/// The backup was made while the daemon ran, so the ceiling in the backup is above the last ID
/// handed out.
#[test]
fn a_state_from_before_a_clean_stop_waits_for_the_holder() {
    on_one(|at| {
        let toml = prepared(at, Some(5), LONG);
        let machine = Machine::new();
        let other = Machine::new();
        let state = machine.path("state");
        let daemon = machine.start(&toml);
        let mut runs = draw(&daemon);
        copy(&state, &machine.path("backup"));
        daemon.stop();
        let taker = other.start(&toml);
        runs.extend(draw(&taker));
        copy(&machine.path("backup/."), &state);
        machine.setup(&toml).assert_waits(&["holds worker ID 5", "free from"]);
        taker.stop();
        runs.extend(draw(&machine.start(&toml)));
        assert_distinct(runs);
    });
}

#[test]
fn a_restart_in_an_outage_after_a_clock_step_waits_and_logs_it() {
    on_one(|at| {
        let Some(machine) = Machine::with_clock() else { return };
        let toml = prepared(at, Some(5), SHORT);
        let state = machine.path(at.name());
        let setup = || machine.setup(&toml).env("SNOWBANK_STATE_DIR", &state);
        let mut daemon = setup().start();
        draw(&daemon);
        at.kill();
        daemon.kill();
        machine.clock().step(-20_000);
        let daemon = setup().start();
        daemon.assert_logs("the wall clock was set or stood still, or the machine was restored");
        at.run();
        daemon.stop();
    });
}

/// Returns a peer that does not answer, and the setting that names it. A start waits two seconds
/// for the peer's answer.
fn silent_peer() -> (TcpListener, String) {
    let peer = TcpListener::bind("127.0.0.1:0").expect("a free port");
    peer.set_nonblocking(true).expect("it is a socket");
    let setting = format!("peers = [\"{}\"]\n", peer.local_addr().expect("bound"));
    (peer, setting)
}

/// If this test deletes the key too late, the daemon already serves. Then the test tries again with
/// another worker ID.
#[test]
fn a_start_that_loses_its_worker_id_before_its_first_id_waits() {
    on_one(|at| {
        let (peer, peers) = silent_peer();
        let mut worker = 0;
        let (_machine, daemon) = poll("a start that waits", || {
            worker += 1;
            let toml = prepared(at, Some(worker), LONG);
            let machine = Machine::new();
            let setup = machine.setup(&format!("{toml}{peers}"));
            let daemon = thread::scope(|scope| {
                let starting = scope.spawn(|| setup.start());
                let _asked = poll("a question to the peer", || peer.accept().ok());
                at.delete(&format!("/snowbank/default/space-0/{worker}"));
                starting.join().expect("a daemon")
            });
            let decided = poll("a start or a wait", || {
                let log = daemon.log();
                let waits = log.contains("waits, and hands out nothing");
                (waits || log.contains("peers gave no answer")).then_some(waits)
            });
            decided.then_some((machine, daemon))
        });
        daemon.assert_logs("its key is gone from the coordinator");
        daemon.assert_has_numbers();
        daemon.assert_logs("waits no longer");
        daemon.connect().assert_open();
    });
}

/// The test tries again with another worker ID if the coordinator answers late, or if the signal
/// comes when the daemon already serves.
#[test]
fn sigterm_ends_a_start_that_waited_for_its_worker_id() {
    on_one(|at| {
        let (peer, peers) = silent_peer();
        let mut worker = 0;
        poll("a stop that gives back the worker ID before the daemon serves", || {
            worker += 1;
            let toml = prepared(at, Some(worker), SHORT);
            let [holder, taker] = [(); 2].map(|()| Machine::new());
            let mut before = holder.start(&toml);
            draw(&before);
            before.kill();
            let mut daemon = taker.setup(&format!("{toml}{peers}")).start();
            let _asked = poll("a question to the peer", || peer.accept().ok());
            daemon.signal(Signal::TERM);
            assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
            let is_given_back = fleet(&toml, &["list"]).1.contains(&format!("{worker}: free, released by"));
            (is_given_back && daemon.log().contains("returns the worker IDs that it has just taken"))
                .then_some(())
        });
    });
}

/// The daemon takes its worker ID. While its start waits for a peer, before the first ID, the
/// coordinator stops answering.
#[test]
fn a_start_that_cannot_recheck_its_worker_id_is_no_crash() {
    const AFTER_A_CRASH: &str = "the previous run did not end its record";
    on_one(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), LONG);
        let (peer, peers) = silent_peer();
        let machine = Machine::new();
        // The peer does not answer, so the start takes longer than the pause after it has taken its
        // worker ID.
        let mut daemon = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let asked = poll("a question to the peer", || peer.accept().ok());
                proxy.cut();
                asked
            });
            let daemon = machine.start(&format!("{toml}{peers}"));
            drop(asked.join().expect("a question"));
            daemon
        });
        proxy.pass();
        draw(&daemon);
        assert!(!daemon.log().contains(AFTER_A_CRASH), "{}", daemon.log());
        daemon.kill();
        let daemon = machine.setup(&toml).admin().start();
        draw(&daemon);
        daemon.assert_logs(AFTER_A_CRASH);
        assert_eq!(sample(&scrape(&daemon), "snowbank_previous_run_unclean"), 1.0);
    });
}
