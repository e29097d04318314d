//! Limits how many load tests run at the same time, however many tests do, because each load test
//! asks for a rate.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most load tests at the same time. A test has two at most, so no test waits for itself.
const LOAD_TESTS_MAX: usize = 3;

/// The longest wait for room. After it, a load test goes ahead without.
const DEADLINE: Duration = Duration::from_secs(300);

static RUNNING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// A load test's room, until this value is dropped.
pub(crate) struct Room;

impl Room {
    pub(crate) fn take() -> Room {
        let waited = FREED.wait_timeout_while(lock(), DEADLINE, |running| *running >= LOAD_TESTS_MAX);
        *waited.unwrap_or_else(PoisonError::into_inner).0 += 1;
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
