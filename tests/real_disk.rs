//! The state on real file systems of their own: full ones and read-only ones. Wants root, to mount them; without, it says so
//! and passes, but not where `CI` is set.

mod support;

use support::file_system::FileSystem;
use support::{Ask, Daemon, Setup};

/// A daemon whose state is on this file system.
fn on(disk: &FileSystem) -> Setup {
    Setup::new().env("SNOWBANK_STATE_DIR", disk.point().join("state"))
}

/// The last ID of a batch, all of which lie above `highest`.
fn draw(daemon: &Daemon, highest: u64) -> u64 {
    let runs = daemon.connect().next(Ask::of(1_000)).runs();
    assert!(runs[0].first > highest, "{} after {highest}", runs[0].first);
    runs[runs.len() - 1].last()
}

#[test]
fn a_full_disk_stops_a_start_and_nothing_that_was_started() {
    let Some(disk) = FileSystem::mount() else { return };
    let daemon = on(&disk).start();
    let highest = draw(&daemon, 0);
    let ballast = disk.fill();
    // Ceilings rise within the file that is there.
    let highest = draw(&daemon, highest);
    daemon.stop();

    on(&disk).end().assert_refusal_for_now(&["No space left on device"]);
    // Without a directory there is no room for its lock either.
    let other = || Setup::new().env("SNOWBANK_STATE_DIR", disk.point().join("other"));
    other().end().assert_refusal(&[
        "cannot lock the state directory",
        "No space left on device",
        "; make room,",
    ]);
    std::fs::remove_file(ballast).expect("it is there");
    let daemon = on(&disk).start();
    draw(&daemon, highest);
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
