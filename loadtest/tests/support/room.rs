//! Room for load tests. Each asks for a rate, so only a few tests have theirs at the same time,
//! however many run.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The most tests that have load tests at the same time.
const TESTS_MAX: usize = 3;
/// The longest wait for room. A test that has none by then goes ahead.
const DEADLINE: Duration = Duration::from_secs(300);

/// The number of load tests of each test that has some, by its thread.
static HOLDERS: Mutex<Option<HashMap<ThreadId, usize>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// A load test's room, until this is dropped.
pub(crate) struct Room(ThreadId);

impl Room {
    /// Waits for room. A test that has a load test gets more at once: it would wait for itself.
    pub(crate) fn take() -> Room {
        let id = thread::current().id();
        let is_full = |holders: &mut Option<HashMap<ThreadId, usize>>| {
            let holders = holders.get_or_insert_default();
            holders.len() >= TESTS_MAX && !holders.contains_key(&id)
        };
        let waited = FREED.wait_timeout_while(lock(), DEADLINE, is_full);
        let mut holders = waited.unwrap_or_else(PoisonError::into_inner).0;
        *holders.get_or_insert_default().entry(id).or_default() += 1;
        Room(id)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut holders = lock();
        let holders = holders.get_or_insert_default();
        if let Some(count) = holders.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                holders.remove(&self.0);
            }
        }
        FREED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<ThreadId, usize>>> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}
