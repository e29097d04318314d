//! Waits for blocking work until the user interrupts it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::CannotRun;

/// The longest time until an interrupt is seen.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the result of `work`, or [`CannotRun::Interrupted`] as soon as `interrupt` is set. The work then
/// continues until the process ends, and its result is dropped.
pub(super) fn unless<T: Send + 'static>(
    interrupt: &AtomicBool,
    work: impl FnOnce() -> Result<T, CannotRun> + Send + 'static,
) -> Result<T, CannotRun> {
    let thread = std::thread::spawn(work);
    while !thread.is_finished() {
        if interrupt.load(Ordering::Relaxed) {
            return Err(CannotRun::Interrupted);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_until_an_interrupt() {
        let mut interrupt = AtomicBool::new(false);
        assert!(matches!(unless(&interrupt, || Ok(7)), Ok(7)));
        *interrupt.get_mut() = true;
        let endless = || {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        };
        assert!(matches!(unless(&interrupt, endless), Err(CannotRun::Interrupted)));
    }
}
