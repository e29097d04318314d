//! Starts under the number that the state had, before the coordinator answers or while it is away,
//! and starts from copied states.

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::support::copy;

/// The first ID waits for no answer. A stop in an outage releases nothing. None of the daemons that
/// are killed has had an answer.
#[test]
fn a_start_in_an_outage_goes_on_at_once() {
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
        // The daemon's connection may still hang.
        proxy.cut();
        proxy.pass();
        poll("a write of its own", || (at.get(KEY) != before).then_some(()));
        daemon.stop();
        runs.extend(draw(&machine.start(&toml)));
        assert_distinct(runs);
    });
}

/// The backup is of a running daemon, so its ceiling is above the last ID that the daemon handed
/// out.
#[test]
fn a_backup_from_before_a_clean_stop_asks_whose_the_number_is() {
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

/// Returns a peer and the setting that names it. The peer does not answer, which keeps a start busy
/// for two seconds.
fn silent_peer() -> (TcpListener, String) {
    let peer = TcpListener::bind("127.0.0.1:0").expect("a free port");
    peer.set_nonblocking(true).expect("it is a socket");
    let setting = format!("peers = [\"{}\"]\n", peer.local_addr().expect("it listens"));
    (peer, setting)
}

/// Tries another worker ID if the key is deleted too late: when the question to the peer has ended,
/// and the daemon serves.
#[test]
fn a_start_that_loses_its_number_before_its_first_id_waits() {
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
            daemon.log().contains("waits for a worker ID").then_some((machine, daemon))
        });
        daemon.assert_logs("its key is gone from the coordinator");
        daemon.assert_has_numbers();
        daemon.assert_logs("has worker IDs now");
        daemon.connect().assert_open();
    });
}

/// Tries another worker ID if the signal comes after the question to the peer has ended, or if the
/// coordinator answers late.
#[test]
fn a_stop_ends_a_start_that_follows_a_wait() {
    on_one(|at| {
        let (peer, peers) = silent_peer();
        let mut worker = 0;
        poll("a stop before the daemon serves, which gives its worker ID back", || {
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

/// The daemon takes its number and pauses. Then, before its first ID, the coordinator goes away
/// while the start waits for a peer.
#[test]
fn a_start_that_cannot_check_its_number_again_is_no_crash() {
    const AFTER_A_CRASH: &str = "the run before did not end its record";
    on_one(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), LONG);
        let (peer, peers) = silent_peer();
        let machine = Machine::new();
        // The peer does not answer, so the start lasts long after the pause.
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
