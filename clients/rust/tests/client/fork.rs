//! A forked child gets none of its parent's IDs. The test runs in a process of its own, so that no
//! other test's threads run when this test forks.

use std::process::Command;
use std::time::Duration;

use snowbank_client::{Client, Error, Ids, IdsOptions, SharedIds};

use crate::client;
use crate::fake_daemon::FakeDaemon;

const PARENTS_IDS: u64 = 1_000_000;

/// The exit code of a child whose checks all passed.
const FINE: i32 = 40;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs the child's checks. Returns the number of the first check that fails, or [`FINE`].
fn in_child(client: &Client, ids: &mut Ids, shared: &SharedIds, daemon: &FakeDaemon) -> i32 {
    if ids.try_next() != Err(Error::Forked) || shared.try_next() != Err(Error::Forked) {
        return 1;
    }
    let fresh = runtime();
    if fresh.block_on(ids.next()) != Err(Error::Forked) || fresh.block_on(shared.next()) != Err(Error::Forked)
    {
        return 2;
    }
    if fresh.block_on(client.batch(1).into_future()) != Err(Error::Forked) {
        return 3;
    }
    let outcome: Result<u64, Error> = fresh.block_on(async {
        let client = crate::client(&[daemon]);
        let mut ids = client.ids(IdsOptions::default())?;
        ids.next().await
    });
    // The ID is above all IDs that the daemon has handed out to the parent.
    if !outcome.is_ok_and(|id| id >= PARENTS_IDS + 32) {
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
    alone.args([
        "--exact",
        "fork::a_fork_empties_the_buffers_of_the_child_alone",
        "--ignored",
        "--nocapture",
    ]);
    assert!(alone.status().expect("a process").success());
}

#[allow(unsafe_code)]
#[test]
#[ignore = "the test above runs it in a process of its own"]
fn a_fork_empties_the_buffers_of_the_child_alone() {
    let daemon = FakeDaemon::honest(PARENTS_IDS);
    let parents = runtime();
    let client = parents.block_on(async { client(&[&daemon]) });
    let options = IdsOptions::default().max_age(Duration::from_secs(3_600));
    let mut ids = client.ids(options.clone()).expect("IDs");
    assert_eq!(parents.block_on(ids.next()), Ok(PARENTS_IDS));
    let shared = client.shared_ids(options).expect("IDs");
    assert_eq!(parents.block_on(shared.next()), Ok(PARENTS_IDS + 16));

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

    assert_eq!(parents.block_on(ids.next()), Ok(PARENTS_IDS + 1), "the parent's buffer continues");
    assert_eq!(parents.block_on(shared.next()), Ok(PARENTS_IDS + 17));
}
