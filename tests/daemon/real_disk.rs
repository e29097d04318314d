//! The state on real file systems that are full. The test mounts them, which needs root. Without
//! root it is skipped, unless `CI` is set.

use std::time::{Duration, Instant};

use crate::support::file_system::FileSystem;
use crate::support::program::{Said, program};
use crate::support::{Ask, Daemon, Setup, each_case};

/// A source of IDs, and a counter. Draws from the counter need new reservations.
const SOURCES: &str = "[[sources]]\nname = \"ids\"\n[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";

/// Draws a batch, checks that all its IDs are above `highest`, and returns the last ID.
fn draw(daemon: &Daemon, source: &str, highest: u64) -> u64 {
    let runs = daemon.connect().next(Ask::of(1_000).source(source).wait_ms(9_000)).runs();
    assert!(runs[0].first > highest, "{} is not above {highest}", runs[0].first);
    runs[runs.len() - 1].last()
}

/// Returns how long daemons serve on a full disk. `tests/long` sets a longer time.
fn full_disk_time() -> Duration {
    let seconds = std::env::var("SNOWBANK_FULL_DISK_S").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Runs daemons whose state and locks are on a file system that is full to the last byte.
fn serves_and_starts_on_a_full_disk(kind: &str) {
    let Some(disk) = FileSystem::mount_as(kind) else { return };
    let state = disk.point().join("state");
    let locks = disk.point().join("locks");
    let mut set = program();
    set.args(["ticket", "set", "orders", "0"]).env("SNOWBANK_STATE_DIR", &state);
    Said::by(set.env("SNOWBANK_LOCK_DIR", &locks)).printed();
    let setup =
        || Setup::configured(SOURCES).env("SNOWBANK_STATE_DIR", &state).env("SNOWBANK_LOCK_DIR", &locks);
    let daemon = setup().start();
    draw(&daemon, "ids", 0);
    // The first start has already reserved the space for the next start.
    drop(daemon);
    disk.fill();
    let mut highest = [0; 2];
    for life in 0..4 {
        let mut daemon = setup().start();
        let before = highest;
        let until = Instant::now() + full_disk_time() / 4;
        while Instant::now() < until {
            // In relaxed order a connection on another shard may get lower IDs. So IDs are compared
            // only with those of earlier lives.
            for (source, name) in ["ids", "orders"].into_iter().enumerate() {
                let last = draw(&daemon, name, before[source]);
                highest[source] = highest[source].max(last);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!daemon.log().contains("No space"), "{kind}, life {life}: {}", daemon.log());
        match life % 2 {
            0 => daemon.kill(),
            _ => drop(daemon.stop()),
        }
    }
    // Checks that the disk is still full.
    let more = std::fs::write(disk.point().join("more"), vec![7; 8_192]);
    assert_eq!(more.unwrap_err().kind(), std::io::ErrorKind::StorageFull, "{kind}");
}

#[test]
fn a_full_disk_stops_nothing() {
    each_case(&["tmpfs", "ext4", "xfs"], |kind| serves_and_starts_on_a_full_disk(kind));
}
