//! A forked child gets none of its parent's IDs. The test runs in a process of its own, so that no
//! other test's threads run when this test forks.

use std::process::Command;

use super::own::{Daemon, runtime};
use crate::{Client, Error, Ids, SharedIds};

/// The exit code of a child whose checks all passed.
const FINE: i32 = 40;

/// Runs the child's checks. Returns the number of the first check that fails, or [`FINE`].
fn in_child(client: &Client, ids: &mut Ids, shared: &SharedIds, daemon: &Daemon) -> i32 {
    if ids.try_next() != Err(Error::Forked) || shared.try_next() != Err(Error::Forked) {
        return 1;
    }
    let fresh = runtime();
    if fresh.block_on(ids.next()) != Err(Error::Forked) || fresh.block_on(shared.next()) != Err(Error::Forked)
    {
        return 2;
    }
    if fresh.block_on(client.batch(1)) != Err(Error::Forked) {
        return 3;
    }
    let outcome = fresh.block_on(async { daemon.client().ids().next().await });
    // The ID is above all IDs that the daemon has handed out to the parent.
    if !outcome.is_ok_and(|id| id > 32) {
        return 4;
    }
    if ids.try_next() != Err(Error::Forked) {
        return 5;
    }
    FINE
}

#[test]
fn a_forked_child_gets_none_of_its_parents_ids() {
    let mut alone = Command::new(std::env::current_exe().expect("a path"));
    let name = "tests::fork::a_fork_empties_the_buffers_of_the_child_alone";
    alone.args(["--exact", name, "--ignored", "--nocapture"]);
    assert!(alone.status().expect("a process").success());
}

#[allow(unsafe_code)]
#[test]
#[ignore = "the test above runs it in a process of its own"]
fn a_fork_empties_the_buffers_of_the_child_alone() {
    let daemon = Daemon::start("many-threads");
    let parents = runtime();
    let client = parents.block_on(async { daemon.client() });
    let mut ids = client.ids();
    assert_eq!(parents.block_on(ids.next()), Ok(1));
    let shared = client.shared_ids();
    assert_eq!(parents.block_on(shared.next()), Ok(17));

    // SAFETY: the child has a copy of this thread only. The child takes no lock that another thread
    // can hold, except those of the C library, which stay usable after a fork. The child touches
    // nothing of the parent's runtime, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            in_child(&client, &mut ids, &shared, &daemon)
        }));
        // SAFETY: `_exit` does not return and runs no destructors, so nothing of the parent's is
        // touched.
        unsafe { libc::_exit(found.unwrap_or(99)) };
    }
    assert!(child > 0, "fork failed");
    let mut status = 0;
    // SAFETY: `status` lives until the call returns.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFEXITED(status), "the child ended by a signal: {status}");
    assert_eq!(
        libc::WEXITSTATUS(status),
        FINE,
        "the exit code is the number of the child's check that failed"
    );

    assert_eq!(parents.block_on(ids.next()), Ok(2), "the parent's buffer continues");
    assert_eq!(parents.block_on(shared.next()), Ok(18));
}
