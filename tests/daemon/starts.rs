//! Starts from an older copy of the state, without a state, and while another process holds the
//! lock.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use crate::support::ids::{twitter_unix_ms, unix_ms};
use crate::support::machine::Machine;
use crate::support::program::snowbank;
use crate::support::wire::CLOCK_BEHIND;
use crate::support::{Ask, Daemon, Wire, copy, http, lock_files, poll};

/// Draws this many IDs, and checks that none is in `ids` already.
fn draw(wire: &mut Wire, count: u32, ids: &mut BTreeSet<u64>) {
    for id in wire.next(Ask::of(count).wait_ms(10_000)).ids() {
        assert!(ids.insert(id), "{id} came twice");
    }
}

/// Once the clock is past the last ID, a start from an older copy repeats no ID, even with a long
/// `burst_window`.
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
    poll("a clock that is past the last ID", || (unix_ms() > last_ms).then_some(()));
    // The marks are gone, as after a boot.
    fs::remove_dir_all(machine.path("locks")).expect("the marks are there");
    let older = machine.setup(TOML).env("SNOWBANK_STATE_DIR", machine.path("older")).start();
    let mut wire = older.connect();
    (0..20).for_each(|_| draw(&mut wire, 20_000, &mut ids));
    older.stop();
}

/// Starts a daemon while the test holds the daemon's lock, and frees the lock a moment later.
/// Returns the machine, the time of that moment in Unix ms, and the daemon. A start gives up after
/// it has tried for 40 ms. So the result is `None` if a busy machine frees the lock too late.
fn start_behind_a_lock(state: &str) -> Option<(Machine, u64, Daemon)> {
    const TOML: &str = "burst_window = \"5s\"";
    let machine = Machine::new();
    let setup = |state: &str| machine.setup(TOML).option("--state-dir", state);
    setup("none").start().kill();
    let lock = lock_files(&machine.path("locks")).remove(0);
    let lock = File::options().append(true).open(lock).expect("opened");
    lock.lock().expect("a free lock");
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
        (release.join().expect("no panic"), started)
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

/// An earlier process may hand out IDs until it frees its lock, and without a state it leaves no
/// mark. A long `burst_window` must not reach back to those IDs.
#[test]
fn a_start_that_waits_for_a_lock_begins_after_its_holder() {
    for state in ["none", "fresh"] {
        let (_machine, released_ms, daemon) =
            poll("a start that waits for the lock and gets it", || start_behind_a_lock(state));
        let first = daemon.connect().next(Ask::of(1).wait_ms(10_000)).ids()[0];
        assert!(
            twitter_unix_ms(first) > released_ms,
            "state {state}: the first ID is {} ms older than the release of the lock",
            released_ms - twitter_unix_ms(first)
        );
    }
}

/// A daemon without a state begins with the tick after its start. Until then it is not ready, and
/// its refusals say when to retry.
#[test]
fn ids_begin_at_the_next_tick_without_a_state() {
    const MINUTES: &str = "layout = \"time:32,worker:10,sequence:12;tick=60s\"";
    let Some(machine) = Machine::with_clock() else { return };
    // Sets the clock to the middle of a minute, far from the next tick.
    machine.clock().set(30_000 - (unix_ms() % 60_000) as i64);
    let daemon = machine.setup(MINUTES).option("--state-dir", "none").admin().start();
    let mut wire = daemon.connect();
    for wait_ms in [0, 1_000] {
        let (code, retry_after_ms, message) = wire.next(Ask::of(1).wait_ms(wait_ms)).error();
        assert_eq!(code, CLOCK_BEHIND, "{message}");
        assert!((1..=30_000).contains(&retry_after_ms), "{retry_after_ms} ms: {message}");
        assert!(message.contains("keeps no state"), "{message}");
    }
    let probe = http::get(&daemon, "/readyz");
    assert!(probe.code == 503 && probe.body.contains("clock_behind"), "{}", probe.body);
    let page = snowbank(["status", "--admin", &daemon.addresses[1].to_string()]).out;
    assert!(page.contains("clock: stands, and hands out nothing for another "), "{page}");
    assert!(!page.contains("half speed"), "{page}");
    machine.clock().step(40_000);
    poll("IDs of the next tick", || wire.next(Ask::of(1).wait_ms(10_000)).id_count());
    poll("a ready daemon", || (http::get(&daemon, "/readyz").code == 200).then_some(()));
    daemon.stop();
}

/// The layout of the second source has the same numbers two seconds later.
#[test]
fn a_worker_id_that_reloads_move_repeats_nothing_without_a_state() {
    let of = |name: &str, epoch: u64| {
        format!(
            "[[sources]]\nname = {name:?}\nworker_ids = 4\n\
             layout = \"time:41,worker:10,sequence:12;tick=1ms;epoch={epoch}\"\n"
        )
    };
    let (kept, a) = ("[[sources]]\nname = \"kept\"\nworker_ids = 5\n", of("a", 1_600_000_000_000));
    let machine = Machine::new();
    let daemon = machine.setup(&format!("{kept}{a}")).option("--state-dir", "none").start();
    let drawn = |name: &str| {
        let ids = || {
            let reply = daemon.connect().next(Ask::of(1_000).source(name).wait_ms(9_000));
            reply.id_count().map(|_| reply.ids())
        };
        (0..3).flat_map(|_| poll("IDs of a source", ids)).collect::<BTreeSet<u64>>()
    };
    let before = drawn("a");
    for toml in [kept.to_owned(), format!("{kept}{}", of("b", 1_600_000_002_000))] {
        daemon.replace("snowbank.toml", &toml);
        assert!(daemon.reload().contains("reloaded: "));
    }
    assert!(drawn("b").first() > before.last());
    daemon.stop();
}
