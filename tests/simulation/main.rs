//! Simulations, repeatable by seed: the lives of a daemon, and of the daemons of a fleet.

mod fleet;
mod lives;
mod seeds;
mod tickets_restored;

use snowbank_testkit as support;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Keeps worker ID locks out of child processes. A child that has not begun its program yet has all
/// open files of this process, and with them its worker ID locks. So tests that take worker ID
/// locks share this lock, and a test that starts a process holds this lock alone.
static LOCKS: RwLock<()> = RwLock::new(());

/// Waits until no test starts a process. The caller may then take worker ID locks.
fn with_locks() -> RwLockReadGuard<'static, ()> {
    LOCKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test has worker ID locks. The caller may then start a process.
fn alone_with_locks() -> RwLockWriteGuard<'static, ()> {
    LOCKS.write().unwrap_or_else(PoisonError::into_inner)
}
