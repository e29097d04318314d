//! The state over restarts: failing disks, changed configurations, crashes, and moves between
//! machines.

mod copies;
mod files;
mod starts;
mod storage;

use crate::support::program::Said;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::daemon::{Ended, mode};
use crate::support::failing_disk::{EIO, ENOSPC, FailingDisk};
use crate::support::ids::{twitter_unix_ms, unix_ms};
use crate::support::machine::Machine;
use crate::support::wire::{CLOCK_BEHIND, NO_CEILING};
use crate::support::{Ask, Wire, copy, each_case, http, lock_files, poll};

/// Draws until the daemon refuses with `no_ceiling`. Returns the message of the refusal.
fn draw_until_no_ceiling(wire: &mut Wire, ids: &mut BTreeSet<u64>) -> String {
    poll("a refusal at the ceiling", || {
        let reply = wire.next(Ask::of(1).wait_ms(100));
        if reply.id_count().is_none() {
            return Some(reply.assert_error(0, NO_CEILING));
        }
        assert!(ids.insert(reply.ids()[0]), "an ID came twice");
        None
    })
}

/// Repeats a request until the daemon grants IDs again.
fn draw_until_served(wire: &mut Wire, ids: &mut BTreeSet<u64>) {
    poll("IDs after the failure", || {
        let reply = wire.next(Ask::of(1).wait_ms(100));
        reply.id_count()?;
        assert!(ids.insert(reply.ids()[0]), "an ID came twice");
        Some(())
    });
}

/// Returns a machine on which a daemon has run, and the last ID that the daemon handed out.
fn used() -> (Machine, u64) {
    let machine = Machine::new();
    let daemon = machine.start("");
    let last = daemon.draw_one();
    daemon.stop();
    (machine, last)
}

#[test]
fn files_and_directories_are_private() {
    let machine = Machine::new();
    let daemon = machine.start("");
    assert_eq!(mode(&machine.state()), 0o700);
    for name in ["ceilings", "lock"] {
        assert_eq!(mode(&machine.state().join(name)), 0o600, "{name}");
    }
    daemon.stop();
    let names: BTreeSet<_> = fs::read_dir(machine.state())
        .expect("it exists")
        .map(|entry| entry.expect("read").file_name())
        .collect();
    assert_eq!(names.len(), 2, "the directory has other files: {names:?}");
    // The daemon does not change the mode of an existing directory.
    fs::set_permissions(machine.state(), fs::Permissions::from_mode(0o750)).expect("chmod");
    machine.start("").stop();
    assert_eq!(mode(&machine.state()), 0o750);
}

#[test]
fn two_daemons_do_not_share_a_state_directory() {
    let machine = Machine::new();
    let daemon = machine.start("");
    let state = machine.state();
    let ended = machine.setup("").args(["--worker-id", "1"]).end();
    ended.assert_refusal_for_now(&[state.to_str().unwrap(), "is in use (process ", "--state-dir"]);
    let refused = machine.run(&["state", "export"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("is in use (process "), "{refused:?}");
    daemon.stop();
    machine.setup("").args(["--worker-id", "1"]).start().draw_and_stop();
}

/// Every client of the admin listener may check the daemon's health, so checks must not cause
/// writes.
#[test]
fn health_checks_write_nothing() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup("").admin()).start();
    daemon.draw_one();
    let syncs = || disk.calls().iter().filter(|call| call.starts_with("sync ")).count();
    let before = syncs();
    let began = Instant::now();
    for _ in 0..300 {
        // On a busy machine a thread of the daemon may answer the check late.
        poll("a healthy daemon", || (http::get(&daemon, "/healthz").code == 200).then_some(()));
    }
    let made = syncs() - before;
    // Each second has a raise with two syncs. If a claim reached the first ceiling, there are some
    // more syncs.
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few");
    assert!(made <= 2 * (seconds + 4), "the daemon made {made} syncs in {seconds} s");
}
