//! The state on real file systems, full and read-only. Mounting them needs root. Without it these tests report that
//! and pass, unless `CI` is set.

use std::time::{Duration, Instant};

use crate::support::file_system::FileSystem;
use crate::support::{Ask, Daemon, Setup};

/// Starts a daemon whose state is on this file system.
fn on(disk: &FileSystem) -> Setup {
    Setup::new().env("SNOWBANK_STATE_DIR", disk.point().join("state"))
}

/// Draws a batch, all of which must lie above `highest`, and returns its last ID. A raise may be late on a busy
/// machine.
fn draw(daemon: &Daemon, highest: u64) -> u64 {
    let runs = daemon.connect().next(Ask::of(1_000).wait_ms(9_000)).runs();
    assert!(runs[0].first > highest, "{} after {highest}", runs[0].first);
    runs[runs.len() - 1].last()
}

/// The time for which a daemon serves on a full disk: ten minutes in `tests/long`.
fn full_disk_time() -> Duration {
    let seconds = std::env::var("SNOWBANK_FULL_DISK_S").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// A counter continues over kills and stops, although its state and locks are on a file system that is full to the
/// last byte.
#[test]
fn a_full_tmpfs_stops_no_counter() {
    let Some(disk) = FileSystem::mount_as("tmpfs") else { return };
    let (state, locks) = (disk.point().join("state"), disk.point().join("locks"));
    let mut set = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank"));
    set.args(["ticket", "set", "orders", "0"]);
    let done = set.env("SNOWBANK_STATE_DIR", &state).env("SNOWBANK_LOCK_DIR", &locks).output();
    assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
    let counter = "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n";
    let setup =
        || Setup::configured(counter).env("SNOWBANK_STATE_DIR", &state).env("SNOWBANK_LOCK_DIR", &locks);
    // The first start reserves the space for the next ones.
    drop(setup().start());
    disk.fill();
    let mut highest = 0;
    for life in 0..4 {
        let mut daemon = setup().start();
        // Each draw needs a reservation, and so a raise.
        for _ in 0..20 {
            highest = draw(&daemon, highest);
        }
        assert!(!daemon.log().contains("No space"), "life {life}: {}", daemon.log());
        match life % 2 {
            0 => daemon.kill(),
            _ => drop(daemon.stop()),
        }
    }
}

/// State and locks on a file system that is full to the last byte.
fn serves_and_starts_on_a_full_disk(kind: &str) {
    let Some(disk) = FileSystem::mount_as(kind) else { return };
    let setup = || on(&disk).env("SNOWBANK_LOCK_DIR", disk.point().join("locks"));
    let daemon = setup().start();
    draw(&daemon, 0);
    // Killed soon after its first start, which has already reserved the space for the next one.
    drop(daemon);
    disk.fill();
    let mut highest = 0;
    for life in 0..4 {
        let mut daemon = setup().start();
        let before = highest;
        let until = Instant::now() + full_disk_time() / 4;
        while Instant::now() < until {
            // In relaxed order only a whole life lies above the one before it: connections have different shards.
            highest = highest.max(draw(&daemon, before));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!daemon.log().contains("No space"), "{kind}, life {life}: {}", daemon.log());
        match life % 2 {
            0 => daemon.kill(),
            _ => drop(daemon.stop()),
        }
    }
    // The disk was full all the time.
    let more = std::fs::write(disk.point().join("more"), vec![7; 8_192]);
    assert_eq!(more.unwrap_err().kind(), std::io::ErrorKind::StorageFull, "{kind}");
}

#[test]
fn a_full_tmpfs_stops_nothing() {
    serves_and_starts_on_a_full_disk("tmpfs");
}

#[test]
fn a_full_ext4_stops_nothing() {
    serves_and_starts_on_a_full_disk("ext4");
}

#[test]
fn a_full_xfs_stops_nothing() {
    serves_and_starts_on_a_full_disk("xfs");
}

#[test]
fn a_full_disk_stops_a_first_start() {
    let Some(disk) = FileSystem::mount() else { return };
    std::fs::create_dir(disk.point().join("state")).expect("made");
    std::fs::write(disk.point().join("state/lock"), [b' '; 256]).expect("written");
    let ballast = disk.fill();
    on(&disk).end().assert_refusal_for_now(&["No space left on device"]);
    assert!(!disk.point().join("state/ceilings.new").exists());
    // In a new state directory there is no space for the lock file either.
    let other = || Setup::new().env("SNOWBANK_STATE_DIR", disk.point().join("other"));
    other().end().assert_refusal_for_now(&[
        "cannot lock the state directory",
        "No space left on device",
        "make room if it is full",
    ]);
    std::fs::remove_file(ballast).expect("it is there");
    let daemon = on(&disk).start();
    draw(&daemon, 0);
}

#[test]
fn a_read_only_disk_stops_a_start() {
    let Some(disk) = FileSystem::mount() else { return };
    let daemon = on(&disk).start();
    let highest = draw(&daemon, 0);
    daemon.stop();

    assert!(disk.remount("ro"));
    on(&disk).end().assert_refusal(&["Read-only file system"]);
    assert!(disk.remount("rw"));
    let daemon = on(&disk).start();
    draw(&daemon, highest);
}
