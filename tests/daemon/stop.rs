//! Stops: the daemon answers requests that have arrived, refuses later ones, and ends in time.

use crate::support::http::get;
use crate::support::machine::Machine;
use crate::support::wire::{self, SHUTTING_DOWN};
use crate::support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

/// Repeats a request until the daemon has noticed the signal and refuses it.
fn ask_until_refused(wire: &mut Wire, ask: Ask) -> Reply {
    poll("a refusal by a daemon that stops", || {
        let reply = wire.call(&ask.bytes());
        reply.id_count().is_none().then_some(reply)
    })
}

#[test]
fn a_stop_answers_waiting_requests_and_refuses_new_ones() {
    for (signal, shards) in [(Signal::TERM, 1), (Signal::INT, 2)] {
        let toml = format!("shards = {shards}\n[limits]\ndrain_timeout = \"60s\"\n{TWO_SOURCES}");
        let mut daemon = Setup::configured(&toml).start();
        let mut waiting = daemon.connect();
        let mut idle = daemon.connect();
        let mut silent = daemon.connect();
        idle.assert_open();
        silent.assert_open();
        // This request waits, because it is for more IDs than the source has before the signal.
        waiting
            .send(&[wire::ping(1, b""), Ask::of(64).tag(2).source("slow").wait_ms(10_000).bytes()].concat());
        assert_eq!(waiting.reply(), Reply::Pong(1, vec![]));
        daemon.signal(signal);
        let refusal = ask_until_refused(&mut idle, Ask::of(1).tag(3));
        refusal.assert_error(3, SHUTTING_DOWN);
        idle.assert_closed();
        assert!(Wire::try_connect(&daemon.addresses[0]).is_err(), "a stopping daemon accepts");
        let reply = waiting.reply();
        assert_eq!((reply.tag(), reply.id_count()), (2, Some(64)));
        waiting.assert_closed();
        silent.assert_closed();
        assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
        assert!(daemon.log().trim_end().ends_with(" INFO stopped"), "{}", daemon.log());
    }
}

#[test]
fn requests_that_arrived_before_the_stop_are_answered() {
    for _ in 0..5 {
        let mut daemon = Setup::new().args(["--shards", "2"]).start();
        let mut wires: Vec<Wire> = (0..40).map(|_| daemon.connect()).collect();
        wires.iter_mut().for_each(Wire::assert_open);
        let requests: Vec<u8> =
            (0..20).flat_map(|tag| Ask::of(100).tag(tag).wait_ms(10_000).bytes()).collect();
        wires.iter_mut().for_each(|wire| wire.send(&requests));
        daemon.signal(Signal::TERM);
        for wire in &mut wires {
            for tag in 0..20 {
                let reply = wire.reply();
                assert_eq!((reply.tag(), reply.id_count()), (tag, Some(100)));
            }
            wire.assert_closed();
        }
        assert_eq!(daemon.wait(), Some(0));
    }
}

#[test]
fn a_stop_ends_within_its_timeout_whatever_waits() {
    let toml = format!("[limits]\ndrain_timeout = \"2s\"\nmax_wait = \"1h\"\n{TWO_SOURCES}");
    let mut daemon = Setup::configured(&toml).start();
    let mut waiting = daemon.connect();
    // The source needs a minute for these IDs. If the stop took as long, there would be no refusal.
    let ask = Ask::of(16 * 60).source("slow").wait_ms(65_534);
    waiting.send(&[wire::ping(1, b""), ask.bytes()].concat());
    let mut half = daemon.connect();
    half.send(&[&wire::ping(1, b"")[..], &Ask::of(64).tag(2).bytes()[..5]].concat());
    for wire in [&mut waiting, &mut half] {
        assert_eq!(wire.reply(), Reply::Pong(1, vec![]));
    }
    daemon.signal(Signal::TERM);
    // The waiting client gets an answer before its connection closes.
    waiting.reply().assert_error(0, SHUTTING_DOWN);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    daemon.assert_logs("had a request half sent");
}

/// Starts a daemon with an admin listener and this `drain_delay`.
fn probed(drain_delay: &str) -> Daemon {
    Setup::configured(&format!("[limits]\ndrain_delay = \"{drain_delay}\"\n"))
        .option("--admin", "127.0.0.1:0")
        .listeners(2)
        .start()
}

#[test]
fn load_balancers_see_a_stop_while_the_daemon_still_serves() {
    let mut daemon = probed("1h");
    let mut held = daemon.connect();
    assert_eq!(get(&daemon, "/readyz").code, 200);
    daemon.signal(Signal::TERM);
    poll("a probe that fails because of the stop", || {
        let answer = get(&daemon, "/readyz");
        (answer.code == 503 && answer.body.contains("\"stop\"")).then_some(())
    });
    assert_eq!(get(&daemon, "/healthz").code, 200);
    // Until the delay ends, the daemon serves clients on old and new connections.
    for wire in [&mut held, &mut daemon.connect()] {
        assert_eq!(wire.next(Ask::of(3)).id_count(), Some(3));
    }
    daemon.assert_logs("the listeners close after drain_delay, or at once after another SIGTERM or Ctrl-C");
    // A second SIGTERM ends the delay.
    daemon.signal(Signal::TERM);
    held.assert_closed();
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}

#[test]
fn a_stop_that_no_load_balancer_can_see_has_no_delay() {
    // SIGINT comes from Ctrl-C at a terminal, where a person waits for the end.
    let mut daemon = probed("1h");
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    // Without an admin listener there is no /readyz.
    Setup::configured("[limits]\ndrain_delay = \"1h\"\n").start().stop();
    // A short delay ends by itself.
    probed("100ms").stop();
}

#[test]
fn stop_at_stdin_eof_refuses_the_kernels_log() {
    let Ok(log) = std::fs::File::open("/dev/kmsg") else {
        return crate::support::skip("this user may not read the kernel's log");
    };
    let ended = Setup::new().args(["--stop-at-stdin-eof"]).stdin(log.into()).end();
    ended.assert_refusal(&["--stop-at-stdin-eof", "the kernel's log as standard input", "a pipe"]);
}

#[test]
fn stop_at_stdin_eof_stops_when_standard_input_ends() {
    use std::process::Stdio;
    // With the option, the daemon discards bytes before the end. Without the option, it does not
    // read at all.
    for (options, stops) in [(&["--stop-at-stdin-eof"][..], true), (&[], false)] {
        let (end, mut held) = std::io::pipe().expect("a pipe");
        let mut daemon = Setup::new().args(options).stdin(Stdio::from(end)).start();
        daemon.connect().assert_open();
        std::io::Write::write_all(&mut held, &[b'x'; 4_096]).expect("the pipe has room");
        daemon.connect().assert_open();
        drop(held);
        if !stops {
            std::thread::sleep(std::time::Duration::from_millis(300));
            daemon.connect().assert_open();
            daemon.signal(Signal::TERM);
        }
        assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    }
}

/// The next start begins above all IDs handed out.
#[test]
fn a_stop_ends_within_its_timeout_while_storage_hangs() {
    let machine = Machine::new();
    let disk = machine.disk();
    let mut daemon = disk.under(machine.setup("[limits]\ndrain_timeout = \"500ms\"")).start();
    let mut wire = daemon.connect();
    // The stall lasts longer than this test waits for the end of the daemon.
    let mut last = 0;
    disk.stall_syncs(120_000, || last = wire.next(Ask::of(1)).ids()[0]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    let said = daemon.log();
    assert_eq!(
        said.matches("storage or the fleet's coordinator did not answer in time").count(),
        1,
        "{said}"
    );
    disk.works();
    let next = machine.start("");
    let first = next.draw_one();
    assert!(first > last, "{first} is not above {last}");
    next.stop();
}
