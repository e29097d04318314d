//! Starts of the shipped daemon: over older copies, under clocks that were wrong, with changed
//! worker IDs, and without a state.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use crate::support::ids::{twitter_unix_ms, unix_ms};
use crate::support::machine::Machine;
use crate::support::wire::{CLOCK_BEHIND, NO_CEILING};
use crate::support::{Ask, Daemon, Reply, Wire, copy, http, lock_files, poll};

/// Draws this many IDs, all of which must be new.
fn draw(wire: &mut Wire, count: u32, ids: &mut BTreeSet<u64>) {
    for id in wire.next(Ask::of(count).wait_ms(10_000)).ids() {
        assert!(ids.insert(id), "{id} came twice");
    }
}

/// After the tick of the last ID an older copy repeats none, however far `burst_window` reaches
/// back.
#[test]
fn an_older_copy_repeats_nothing_past_the_last_id() {
    const TOML: &str = "burst_window = \"5s\"";
    let machine = Machine::new();
    machine.start(TOML).stop();
    copy(&machine.path("state"), &machine.path("older"));
    let mut ids = BTreeSet::new();
    let daemon = machine.start(TOML);
    let mut wire = daemon.connect();
    (0..20).for_each(|_| draw(&mut wire, 20_000, &mut ids));
    daemon.stop();

    let last_ms = twitter_unix_ms(*ids.last().expect("IDs"));
    poll("the clock is past the last ID", || (unix_ms() > last_ms).then_some(()));
    // After a boot nothing is left of the marks.
    fs::remove_dir_all(machine.path("locks")).expect("the marks are there");
    let older = machine.setup(TOML).env("SNOWBANK_STATE_DIR", machine.path("older")).start();
    let mut wire = older.connect();
    (0..20).for_each(|_| draw(&mut wire, 20_000, &mut ids));
    older.stop();
}

/// Starts a daemon whose lock is held, and frees the lock a moment later. Returns the time at which
/// it was freed, in Unix ms; `None` if a busy machine freed it too late: a start tries a held lock
/// for 40 ms only.
fn start_behind_a_lock(state: &str) -> Option<(Machine, u64, Daemon)> {
    const TOML: &str = "burst_window = \"5s\"";
    let machine = Machine::new();
    let setup = |state: &str| machine.setup(TOML).option("--state-dir", state);
    setup("none").start().kill();
    let lock = lock_files(&machine.path("locks")).remove(0);
    let lock = File::options().append(true).open(lock).expect("opened");
    lock.lock().expect("nobody has it");
    let fresh = machine.path("fresh");
    let state = if state == "none" { state } else { fresh.to_str().expect("text") };
    let (released_ms, started) = thread::scope(|scope| {
        let release = scope.spawn(|| {
            thread::sleep(Duration::from_millis(25));
            let released_ms = unix_ms();
            drop(lock);
            released_ms
        });
        let started = setup(state).try_start();
        (release.join().expect("it ends"), started)
    });
    match started {
        Ok(daemon) => Some((machine, released_ms, daemon)),
        Err(mut refused) => {
            assert_eq!(refused.wait(), Some(3), "{}", refused.log());
            assert!(refused.log().contains("is held by another daemon"), "{}", refused.log());
            None
        }
    }
}

/// An earlier process may hand out IDs until it frees its lock. Without a state it leaves no mark,
/// and `burst_window` reaches back to those IDs.
#[test]
fn a_start_that_waits_for_a_lock_begins_after_its_holder() {
    for state in ["none", "fresh"] {
        let (_machine, released_ms, daemon) =
            poll("a start that meets a held lock and gets it", || start_behind_a_lock(state));
        let first = daemon.connect().next(Ask::of(1).wait_ms(10_000)).ids()[0];
        assert!(
            twitter_unix_ms(first) > released_ms,
            "{state}: {} ms before",
            released_ms - twitter_unix_ms(first)
        );
    }
}

/// A daemon without a state, under a clock that can be set.
fn without_state(machine: &Machine, toml: &str) -> Daemon {
    machine.setup(toml).option("--state-dir", "none").admin().start()
}

/// Returns the answer to a request, after the daemon has seen a clock that was set.
fn next_after_a_step(wire: &mut Wire, wait_ms: u16) -> Reply {
    let is_answered = |reply: &Reply| !matches!(reply, Reply::Error { code, .. } if *code == NO_CEILING);
    poll("an answer", || Some(wire.next(Ask::of(1).wait_ms(wait_ms))).filter(is_answered))
}

#[track_caller]
fn assert_refused(reply: Reply, at_most_ms: u32) -> String {
    let (code, retry_after_ms, message) = reply.error();
    assert_eq!(code, CLOCK_BEHIND, "{message}");
    assert!((1..=at_most_ms).contains(&retry_after_ms), "{retry_after_ms} ms: {message}");
    message
}

fn await_ready(daemon: &Daemon) {
    poll("it is ready", || (http::get(daemon, "/readyz").code == 200).then_some(()));
}

#[track_caller]
fn assert_not_ready(daemon: &Daemon) {
    let answer = http::get(daemon, "/readyz");
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("clock_behind"), "{}", answer.body);
}

/// Sets the clock to the middle of a minute, far from both edges.
fn set_to_half_past(machine: &Machine) {
    machine.clock().set(30_000 - (unix_ms() % 60_000) as i64);
}

#[test]
fn without_a_state_the_next_long_tick_is_awaited() {
    const MINUTES: &str = "layout = \"time:32,worker:10,sequence:12;tick=60s\"";
    let Some(machine) = Machine::with_clock() else { return };
    set_to_half_past(&machine);
    let daemon = without_state(&machine, MINUTES);
    let mut wire = daemon.connect();
    for wait_ms in [0, 1_000] {
        let message = assert_refused(wire.next(Ask::of(1).wait_ms(wait_ms)), 30_000);
        assert!(message.contains("no state is kept"), "{message}");
    }
    assert_not_ready(&daemon);
    machine.clock().step(40_000);
    assert_eq!(next_after_a_step(&mut wire, 10_000).id_count(), Some(1));
    await_ready(&daemon);
    daemon.stop();
}

/// A machine whose clock ran two hours ahead while IDs were granted, and was then corrected.
fn put_right_after_two_hours_ahead(toml: &str) -> Option<(Machine, BTreeSet<u64>)> {
    let machine = Machine::with_clock()?;
    machine.clock().set(2 * HOUR_MS);
    let daemon = machine.start(toml);
    let mut ids = BTreeSet::new();
    draw(&mut daemon.connect(), 100, &mut ids);
    daemon.stop();
    machine.clock().set(0);
    Some((machine, ids))
}

const HOUR_MS: i64 = 3_600_000;

#[test]
fn an_unused_worker_id_starts_at_once_after_a_fast_clock() {
    let Some((machine, mut ids)) = put_right_after_two_hours_ahead("worker_ids = 1") else { return };
    let daemon = machine.setup("worker_ids = 1").admin().start();
    let message = assert_refused(daemon.connect().next(Ask::of(1).wait_ms(100)), 2 * HOUR_MS as u32);
    assert!(message.contains("a worker ID that was never used"), "{message}");
    assert_not_ready(&daemon);
    daemon.assert_logs("give the source a worker ID that was never used");
    daemon.stop();
    // A set with an unused worker ID and a used one waits, too.
    let daemon = machine.setup("worker_ids = \"1-2\"").admin().start();
    assert_refused(daemon.connect().next(Ask::of(1).wait_ms(100)), 2 * HOUR_MS as u32);
    daemon.stop();

    // Neither of the worker IDs 1 and 2 was used further, but both are in the record of that
    // daemon's clean stop.
    for _ in 0..2 {
        let daemon = machine.setup("worker_ids = 3").admin().start();
        await_ready(&daemon);
        draw(&mut daemon.connect(), 100, &mut ids);
        daemon.assert_logs("new IDs sort below those");
        let status = http::get(&daemon, "/status").json();
        assert_eq!(status["clock"]["state"], "steady", "{status}");
        daemon.stop();
    }
    // The worker IDs of that record are still refused when they come back.
    for used in ["1", "2"] {
        let daemon = machine.setup(&format!("worker_ids = {used}")).admin().start();
        assert_refused(daemon.connect().next(Ask::of(1).wait_ms(100)), 2 * HOUR_MS as u32);
        daemon.stop();
    }
}
