//! The state on real file systems of their own: full ones and read-only ones. Wants root, to mount them; without, it says so
//! and passes, but not where `CI` is set.

#![cfg(feature = "daemon")]

mod support;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Ask, Daemon, Setup};
use tempfile::TempDir;

/// A file system in memory, mounted for as long as this lives.
struct FileSystem {
    directory: TempDir,
}

impl FileSystem {
    /// `None` where this user may not mount.
    fn mount() -> Option<FileSystem> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let point = directory.path().join("disk");
        std::fs::create_dir(&point).expect("a directory");
        let mounted = run(&["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "snowbank-test"], &point);
        if !mounted {
            assert!(std::env::var_os("CI").is_none(), "mounting a tmpfs has to work where CI is set");
            eprintln!("skipped: this user may not mount a file system");
            return None;
        }
        Some(FileSystem { directory })
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn setup(&self) -> Setup {
        Setup::new().env("SNOWBANK_STATE_DIR", self.point().join("state"))
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> PathBuf {
        let path = self.point().join("ballast");
        let mut ballast = File::create(&path).expect("room for a name");
        for size in [4_096, 1] {
            while ballast.write_all(&vec![7; size]).is_ok() {}
        }
        path
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        run(&["umount", "--lazy"], &self.point());
    }
}

fn run(command: &[&str], point: &Path) -> bool {
    let status = Command::new(command[0]).args(&command[1..]).arg(point).status();
    status.is_ok_and(|status| status.success())
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
    let daemon = disk.setup().start();
    let highest = draw(&daemon, 0);
    let ballast = disk.fill();
    // Ceilings rise within the file that is there.
    let highest = draw(&daemon, highest);
    daemon.stop();

    disk.setup().end().assert_refusal_for_now(&["No space left on device"]);
    std::fs::remove_file(ballast).expect("it is there");
    let daemon = disk.setup().start();
    draw(&daemon, highest);
}

#[test]
fn a_read_only_disk_stops_a_start() {
    let Some(disk) = FileSystem::mount() else { return };
    let daemon = disk.setup().start();
    let highest = draw(&daemon, 0);
    daemon.stop();

    assert!(run(&["mount", "-o", "remount,ro"], &disk.point()));
    disk.setup().end().assert_refusal(&["Read-only file system"]);
    assert!(run(&["mount", "-o", "remount,rw"], &disk.point()));
    let daemon = disk.setup().start();
    draw(&daemon, highest);
}
