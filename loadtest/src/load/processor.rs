//! The thread's own share of the machine: its priority, and what it used and waited for.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id, thread_schedule_policy,
};

/// What a thread had of the processors until now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Use {
    /// It ran for so long.
    pub(super) ran: Duration,
    /// It could have run, and something else did, or a quota was used up.
    pub(super) waited: Duration,
}

impl Use {
    /// The calling thread's. Waiting is 0 where the kernel does not tell it.
    pub(super) fn now() -> Self {
        let ran = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = told.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0);
        Self { ran, waited: Duration::from_nanos(waited_ns) }
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran.saturating_sub(earlier.ran), waited: self.waited.saturating_sub(earlier.waited) }
    }
}

/// Lets the calling thread run before all ordinary ones, if that is permitted; tells whether it does.
///
/// An ordinary thread that wakes up while another runs has to wait for the kernel's next tick, which is milliseconds away.
/// With the lowest real-time priority it does not wait for ordinary ones; measured beside two busy compilers that brought
/// p99 of the slip from 3.4 ms to 0.04 ms.
pub(super) fn raise_priority() -> bool {
    use RealtimeThreadSchedulePolicy::{Fifo, RoundRobin};
    if let Ok(ThreadSchedulePolicy::Realtime(Fifo | RoundRobin)) = thread_schedule_policy() {
        // Whoever started us has chosen, and maybe a higher one.
        return true;
    }
    let fifo = ThreadSchedulePolicy::Realtime(Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, fifo).is_ok()
}
