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

/// Shared by tests of this program that take a machine's locks, and held alone by tests that start
/// a process: until that process runs its program, it has the locks of this process open.
static LOCKS: RwLock<()> = RwLock::new(());

/// Waits until no test starts a process.
fn with_locks() -> RwLockReadGuard<'static, ()> {
    LOCKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test has locks.
fn alone_with_locks() -> RwLockWriteGuard<'static, ()> {
    LOCKS.write().unwrap_or_else(PoisonError::into_inner)
}
