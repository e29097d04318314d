//! Tests that need all cores, or a machine that nothing else disturbs. They run one at a time.

#[path = "../support/lib.rs"]
mod support;

mod evidence;
mod generator;
mod machine;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
