//! Finds stalls of this machine during a run.
//!
//! A host with other virtual machines stops this machine's cores for milliseconds, and other
//! programs use the cores, too. Both make answers late, and neither is the target's fault:
//!
//! - A sleeper is a thread that does nothing but sleep for a millisecond again and again. A sleeper
//!   on each core finds the host's stalls: if a sleeper woke late while no program had its core,
//!   the host stalled. The stall's loss is the sleeper's lateness, minus the sleeper's wait for its
//!   core.
//! - The waits of the target's threads for a core show the time that other programs took. Time in
//!   which the target's processes used the cores is no stall. The loss is at most the processor
//!   time, of all cores together, that neither the target nor the generator used.
//!
//! If the target's process cannot be seen, a sleeper's wait for its core counts as a stall, too.
//!
//! After a generator thread has waited for a core, it sends all overdue requests at once. These
//! requests queue at the target, and the queue may delay their answers. The generator's wait
//! excuses this delay, except for the time in which the target ran during the wait.
//!
//! - [`stalls`]: the record of stalls. [`own`]: the processor time of target and generator.
//!   [`waits`]: the target's waits for a core.
//! - [`owner`]: the process of a local target. [`processor`]: the processor time of one thread.
//! - [`quota`]: CPU quotas of the load test itself. [`bare_echo`]: a bare echo, which shows the machine
//!   without a target.

pub(crate) mod bare_echo;
pub(crate) mod own;
pub(crate) mod owner;
pub(crate) mod processor;
pub(crate) mod quota;
pub(crate) mod stalls;
pub(crate) mod waits;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use own::{OwnTime, Used};
use owner::Owner;
use processor::RunDelay;
use stalls::{MIN_STALL_NS, Stall, Stalls};
use waits::{Look, Waits};

/// The length of a sleeper's sleep: short in comparison with any stall that matters. A sleeper
/// costs half a per cent of its core.
pub(crate) const NAP_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Watched {
    /// Instant 0 of the run.
    pub(crate) origin: Instant,
    pub(crate) stalls: Stalls,
    own: Mutex<OwnTime>,
    /// The bunches of requests that the generator sent late since the last look at the target's
    /// waits. Each has the due time of its first request, and its sending time.
    late: Mutex<Vec<(u64, u64)>>,
    /// The cores that this process may use.
    cores: Vec<usize>,
}

impl Watched {
    /// Watches the machine for a run that starts at `origin` and measures after `warm_up`.
    pub(crate) fn new(origin: Instant, warm_up: Duration, owners: Vec<Owner>) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self {
            origin,
            stalls: Stalls::from_measurement(warm_up.as_nanos() as u64),
            own: Mutex::new(OwnTime::of(owners)),
            late: Mutex::default(),
            cores: (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect(),
        }
    }

    /// Starts one sleeper on each core, and a thread that looks at the target's waits. All of them
    /// end when `stop` is set.
    pub(crate) fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, stop: &'scope AtomicBool) {
        for &core in &self.cores {
            scope.spawn(move || self.sleep_on(core, stop));
        }
        scope.spawn(move || self.watch_target(stop));
    }

    /// Records the new process of a target that was started again.
    pub(crate) fn set_owner(&self, target: usize, owner: Owner) {
        self.lock_own().owners[target] = owner;
    }

    /// Records that the generator sends a bunch of late requests. The first of them was due at
    /// `due_ns`. The next look at the target's waits records the queue that the bunch makes there.
    pub(crate) fn add_late(&self, due_ns: u64, sent_ns: u64) {
        self.lock_late().push((due_ns, sent_ns));
    }

    fn lock_late(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Returns the processor time and the memory of the target.
    pub(crate) fn target_used(&self) -> Used {
        self.lock_own().target_used()
    }

    fn lock_own(&self) -> MutexGuard<'_, OwnTime> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the waits of the target's threads, again and again, and once after the end.
    fn watch_target(&self, stop: &AtomicBool) {
        let mut waits = Waits::default();
        let cores = self.cores.len().max(1) as u64;
        for look in 0_u32.. {
            let is_last = stop.load(Ordering::Relaxed);
            if look.is_multiple_of(waits::LOOKS_PER_SEARCH) {
                let mut own = self.lock_own();
                own.find_processes();
                waits.find_threads(own.processes.keys());
            }
            // The look's time and totals are read last, so that they include all processor time
            // that was used during the waits.
            let late = std::mem::take(&mut *self.lock_late());
            waits.read_threads();
            let at_ns = self.now_ns();
            let target_ns = self.lock_own().target_used_ns();
            let generator_ns = own::used_by(std::process::id()).unwrap_or(0);
            let now = Look { at_ns, target_ns, own_ns: target_ns + generator_ns };
            waits.look(now, cores).into_iter().for_each(|stall| self.stalls.add(stall));
            for (due_ns, sent_ns) in late {
                self.stalls.add_bunch(sent_ns, waits.not_of_target_ns(due_ns, sent_ns));
            }
            if is_last {
                break;
            }
            std::thread::sleep(waits::LOOK_PERIOD);
        }
    }

    fn sleep_on(&self, core: usize, stop: &AtomicBool) {
        let mut only = CpuSet::new();
        only.set(core);
        // If the system refuses this, two sleepers may share a core, and another core has none.
        let _ = sched_setaffinity(None, &only);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut run_delay = RunDelay::this_thread();
        let sees_waits = self.lock_own().sees_all();
        let mut slept_ns = self.now_ns();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_nanos(NAP_NS));
            let woke_ns = self.now_ns();
            let waited_ns = if sees_waits { run_delay.since_last().waited_ns } else { 0 };
            stall_of_nap(slept_ns, woke_ns, waited_ns).into_iter().for_each(|stall| self.stalls.add(stall));
            // The next nap counts from the end of this one, so that no time goes unwatched.
            slept_ns = woke_ns;
        }
    }
}

/// Returns the stall that made a sleeper late. The sleeper fell asleep and woke at these instants.
/// For `waited_ns` of this time, a program had the sleeper's core.
pub(crate) fn stall_of_nap(slept_ns: u64, woke_ns: u64, waited_ns: u64) -> Option<Stall> {
    let due_ns = slept_ns + NAP_NS;
    let lost_ns = woke_ns.saturating_sub(due_ns).saturating_sub(waited_ns);
    (lost_ns >= MIN_STALL_NS).then_some(Stall { from_ns: due_ns, until_ns: woke_ns, lost_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stall_is_the_lateness_in_which_no_program_had_the_core() {
        let stall = |lost_ns| Some(Stall { from_ns: 6 * MS, until_ns: 16 * MS, lost_ns });
        assert_eq!(stall_of_nap(5 * MS, 16 * MS, 0), stall(10 * MS));
        assert_eq!(stall_of_nap(5 * MS, 16 * MS, 4 * MS), stall(6 * MS));
        assert_eq!(stall_of_nap(5 * MS, 16 * MS, 10 * MS), None);
        assert_eq!(stall_of_nap(5 * MS, 6 * MS + MIN_STALL_NS - 1, 0), None);
    }
}
