//! A daemon sleeps while it is idle, or while its requests wait. The tests count how often the
//! daemon's threads go to sleep. Other programs do not increase this number.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Ask, Daemon, Setup, Wire, wire};

/// The time for which a test watches the daemon, long enough to reveal a timer that runs too fast.
const WATCHED: Duration = Duration::from_secs(3);

/// Watches the daemon. Returns the number of wake-ups of all threads, and the number of wake-ups
/// that a timer of one second has in the same time.
fn wakes(daemon: &Daemon) -> (u64, u64) {
    let before = daemon.voluntary_switches();
    let began = Instant::now();
    thread::sleep(WATCHED);
    let wakes = daemon.voluntary_switches() - before;
    (wakes, began.elapsed().as_secs() + 1)
}

#[test]
fn an_idle_daemon_wakes_once_a_second() {
    // The daemon has no state directory. With one, it would raise its ceilings each second until
    // ten minutes after its last use. A sync sleeps an unknown number of times.
    let daemon = Setup::new().args(["--shards", "4", "--state-dir", "none"]).start();
    // Keeps the daemon busy first. The connections stay open afterwards.
    let mut wires: Vec<Wire> = (0..50).map(|_| daemon.connect()).collect();
    for _ in 0..20 {
        for wire in &mut wires {
            assert_eq!(wire.next(Ask::of(10_000).wait_ms(10_000)).id_count(), Some(10_000));
        }
    }
    let (wakes, keeper_wakes) = wakes(&daemon);
    // Allows twice the keeper's wake-ups, because some wake-ups may follow shortly after the end of
    // the load.
    assert!(
        wakes <= 2 * keeper_wakes,
        "the threads woke up {wakes} times, the keeper alone {keeper_wakes} times"
    );
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
    let (wakes, keeper_wakes) = wakes(&daemon);
    // Each tick wakes both shards, which may wake each other and answer some connections.
    assert!(
        wakes <= 20 * keeper_wakes,
        "the threads woke up {wakes} times, the keeper alone {keeper_wakes} times"
    );
    for wire in &mut wires {
        assert_eq!(wire.reply().id_count(), Some(20));
    }
}
