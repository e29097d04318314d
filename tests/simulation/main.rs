//! Simulations, repeatable by seed: the lives of a daemon, and of the daemons of a fleet.

mod fleet;
mod lives;
mod seeds;
#[path = "../support/mod.rs"]
mod support;
mod tickets_restored;
mod unused;
mod worker_sets;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Waits until no other test of this program holds a machine's locks. A test that starts a process
/// would pass them on to it until that process runs its program.
fn alone_with_locks() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
