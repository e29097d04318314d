//! Limits how many load tests run at the same time, because each of them needs cores to reach its
//! rate. The number of tests that run at the same time may be higher.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The most load tests at the same time. A test runs one load test at a time, so no test waits for
/// itself.
const LOAD_TESTS_MAX: usize = 3;

static RUNNING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// The place of one load test among those that run. It is free again when this value is dropped.
pub(crate) struct Room;

impl Room {
    pub(crate) fn take() -> Room {
        let waited = FREED.wait_while(lock(), |running| *running >= LOAD_TESTS_MAX);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Room
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *lock() -= 1;
        FREED.notify_one();
    }
}

fn lock() -> MutexGuard<'static, usize> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
