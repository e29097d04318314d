//! An idle daemon sleeps, and so does one whose requests wait. The tests count the daemon's own sleeps, which a
//! busy machine does not increase.

mod support;

use std::thread;
use std::time::Duration;

use support::{Ask, Daemon, Setup, Wire, wire};

/// The time for which the daemon is watched, long enough to show a timer that runs too fast.
const WATCHED: Duration = Duration::from_secs(3);
/// One timer runs once a second.
const KEEPER_WAKES: u64 = WATCHED.as_secs() + 1;

/// Wake-ups of all threads while it is watched.
fn wakes(daemon: &Daemon) -> u64 {
    let before = daemon.voluntary_switches();
    thread::sleep(WATCHED);
    daemon.voluntary_switches() - before
}

#[test]
fn an_idle_daemon_wakes_once_a_second() {
    // No state directory: for ten minutes after its last use a daemon raises its ceilings each second, and a sync
    // sleeps an unknown number of times.
    let daemon = Setup::new().args(["--shards", "4", "--state-dir", "none"]).start();
    // A daemon that was busy is idle, too, while its connections stay.
    let mut wires: Vec<Wire> = (0..50).map(|_| daemon.connect()).collect();
    for _ in 0..20 {
        for wire in &mut wires {
            assert_eq!(wire.next(Ask::of(10_000).wait_ms(10_000)).id_count(), Some(10_000));
        }
    }
    let wakes = wakes(&daemon);
    // Twice the keeper's wake-ups, to allow for those that end the load.
    assert!(wakes <= 2 * KEEPER_WAKES, "{wakes} wake-ups in {WATCHED:?}");
}

#[test]
fn a_daemon_whose_requests_wait_for_seconds_sleeps() {
    let layout = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z";
    let daemon = Setup::new().args(["--layout", layout, "--shards", "2"]).start();
    let mut wires: Vec<Wire> = (0..4).map(|_| daemon.connect()).collect();
    for wire in &mut wires {
        wire.send(&[wire::ping(1, b""), Ask::of(20).wait_ms(10_000).bytes()].concat());
        wire.reply();
    }
    let wakes = wakes(&daemon);
    // Each tick wakes both shards, each may wake the other, and some connections are answered.
    assert!(wakes <= 20 * KEEPER_WAKES, "{wakes} wake-ups in {WATCHED:?}");
    for wire in &mut wires {
        assert_eq!(wire.reply().id_count(), Some(20));
    }
}
