//! Helpers of the black-box tests: the real daemon as a child process, an independent client of the
//! protocol, and the arithmetic of Twitter's layout. None of them uses Snowbank's own library,
//! because then a test would not notice a mistake that both sides of the wire share. Waits for a
//! daemon end at [`DEADLINE`], which a working daemon never reaches. A deadline only ends a failed
//! test, and measures nothing.

#![allow(clippy::new_without_default, reason = "`new` makes directories and sockets")]
#![allow(clippy::should_implement_trait, reason = "`Random` is no iterator")]

mod address;
pub mod clients;
pub mod coordinators;
pub mod daemon;
pub mod drawn;
pub mod failing_disk;
pub mod faketime;
pub mod file_system;
pub mod frontend;
pub mod frozen;
pub mod http;
pub mod ids;
pub mod machine;
pub mod manager;
mod output;
mod pauses;
pub mod port;
pub mod postgres;
pub mod program;
pub mod reply;
pub mod resp;
pub mod state;
pub mod wire;
pub mod witness;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use address::Address;
pub use daemon::{Daemon, Setup};
pub use port::Port;
pub use wire::{Ask, Reply, Wire};

/// The longest time for which the tests wait for a server. On a busy machine, the start of a
/// ZooKeeper takes 40 s.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// A source that always has IDs, and a source of 16 IDs a second.
pub const TWO_SOURCES: &str = r#"
[[sources]]
name = "fast"
worker_ids = 1
[[sources]]
name = "slow"
layout = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z"
worker_ids = 1
"#;

/// Makes a directory for a daemon's files, in memory if possible, so that a busy disk delays no
/// test. Tests of slow and failing disks inject the faults.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// Copies a directory with all that is in it.
#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--archive").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {from:?} to {to:?}");
}

/// Returns the lock files of a directory, sorted by name.
pub fn lock_files(locks: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(locks).expect("the lock directory can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

/// Calls `probe` until it returns something.
pub fn poll<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain for: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tries all cases at the same time, because each waits for its own daemon.
pub fn each_case<C: Sync>(cases: &[C], try_case: impl Fn(&C) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| try_case(case));
        }
    });
}

/// Reports that a test cannot run here. The test must then return. Panics if `CI` is set, because a
/// run in CI may skip no test.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    // Written directly to the stream, because the test harness hides the output of a test that
    // passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Returns whether a program is installed. Calls [`skip`] if it is not.
pub fn has_program(name: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    if !is_there {
        skip(&format!("{name} is missing: install the package {package} (tests/run does it)"));
    }
    is_there
}

/// Returns whether this machine has an ID. A daemon without one cannot tell that a state is another
/// machine's. Calls [`skip`] if it has none.
pub fn has_machine_id() -> bool {
    let has = std::fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() == 32);
    if !has {
        skip("/etc/machine-id has no ID: install the package systemd (tests/run does it)");
    }
    has
}

/// A generator of random numbers. Equal seeds give equal numbers.
pub struct Random(fastrand::Rng);

impl Random {
    /// Returns the generator of a seed. Prints the seed, so that the output of a failing test shows
    /// it.
    pub fn seeded(seed: u64) -> Self {
        println!("random numbers of seed {seed}");
        Random(fastrand::Rng::with_seed(seed))
    }

    /// Returns the next number, of 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.usize(..choices.len())]
    }

    /// Returns this many random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.0.u8(..)).collect()
    }
}
