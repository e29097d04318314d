//! An idle daemon sleeps, and so does a daemon whose requests wait. The tests count the daemon's
//! own sleeps, which a busy machine does not increase.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Ask, Daemon, Setup, Wire, wire};

/// The time for which the daemon is watched, long enough to show a timer that runs too fast.
const WATCHED: Duration = Duration::from_secs(3);

/// Returns the wake-ups of all threads while the daemon is watched, and those that a timer of one
/// second would have.
fn wakes(daemon: &Daemon) -> (u64, u64) {
    let before = daemon.voluntary_switches();
    let began = Instant::now();
    thread::sleep(WATCHED);
    let wakes = daemon.voluntary_switches() - before;
    (wakes, began.elapsed().as_secs() + 1)
}

#[test]
fn an_idle_daemon_wakes_once_a_second() {
    // No state directory: for ten minutes after its last use a daemon raises its ceilings each
    // second, and a sync sleeps an unknown number of times.
    let daemon = Setup::new().args(["--shards", "4", "--state-dir", "none"]).start();
    // A daemon that was busy is idle again although its connections stay open.
    let mut wires: Vec<Wire> = (0..50).map(|_| daemon.connect()).collect();
    for _ in 0..20 {
        for wire in &mut wires {
            assert_eq!(wire.next(Ask::of(10_000).wait_ms(10_000)).id_count(), Some(10_000));
        }
    }
    let (wakes, of_keeper) = wakes(&daemon);
    // Twice the keeper's wake-ups, for what the end of the load leaves behind.
    assert!(wakes <= 2 * of_keeper, "{wakes} wake-ups where the keeper has {of_keeper}");
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
    let (wakes, of_keeper) = wakes(&daemon);
    // Each tick wakes both shards, each may wake the other, and some connections are answered.
    assert!(wakes <= 20 * of_keeper, "{wakes} wake-ups where the keeper has {of_keeper}");
    for wire in &mut wires {
        assert_eq!(wire.reply().id_count(), Some(20));
    }
}
