//! Stalls of this machine, found during a run.
//!
//! A host that has other guests stops cores for milliseconds, and other programs take them. Both
//! make answers late, and neither is the target's fault. So a sleeper on each core watches it.
//! One that wakes late has found a stall, which is as wide as the lateness. A thread of the target
//! that was due, and had to wait for a core, has found one too. What the target's processes and the
//! generator themselves used of the cores meanwhile is no stall.
//!
//! - [`stalls`]: the record. [`own`]: the processor time of target and generator. [`waits`]: the
//!   target's waits.
//! - [`owner`]: the process of a local target. [`processor`]: one thread's own time.
//! - [`echo`]: the machine without a target.

pub(crate) mod echo;
pub(crate) mod own;
pub(crate) mod owner;
pub(crate) mod processor;
pub(crate) mod stalls;
mod waits;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use own::{OwnTime, Threads};
use owner::Owner;
use stalls::{MIN_STALL_NS, Stall, Stalls};
use waits::{Look, Waits};

use crate::target::Used;

/// The sleep of a sleeper: short in comparison with any stall that matters. It costs half a per
/// cent of a core.
const NAP_NS: u64 = 1_000_000;

/// The sleep after a stall: a program that has taken a core once takes it again as soon as it may.
const SHORT_NAP_NS: u64 = 100_000;

/// A look at the target takes less, even at hundreds of threads on a busy machine.
const LOOK_NS: u64 = 50_000_000;

/// The machine under watch.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Instant 0 of the run.
    pub(crate) origin: Instant,
    /// The machine's stalls so far.
    pub(crate) stalls: Stalls,
    own: Mutex<OwnTime>,
    /// Those that this process may use.
    cores: Vec<usize>,
    is_over: AtomicBool,
}

/// A sleep of a sleeper, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nap {
    pub(crate) from_ns: u64,
    pub(crate) length_ns: u64,
    pub(crate) woke_ns: u64,
    /// The processor time that target and generator used meanwhile, on all cores.
    pub(crate) own_ns: u64,
    /// The least that the target's threads used of this core meanwhile, as far as that is known.
    pub(crate) own_here_ns: u64,
}

impl Watched {
    /// Returns the machine of a run that starts at `origin` and measures from `warm_up` on.
    pub(crate) fn new(origin: Instant, warm_up: Duration, owners: Vec<Owner>) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Self {
            origin,
            stalls: Stalls::of_measurement(warm_up.as_nanos() as u64),
            own: Mutex::new(OwnTime::of(owners)),
            cores: (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Starts one sleeper on each core, and a thread that looks at the target's waits.
    pub(crate) fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for &core in &self.cores {
            scope.spawn(move || self.sleep_on(core));
        }
        scope.spawn(|| self.watch_target());
    }

    /// Ends the threads.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Records the process that a target has now.
    pub(crate) fn set_owner(&self, target: usize, owner: Owner) {
        self.lock_own().owners[target] = owner;
    }

    fn cores(&self) -> u64 {
        self.cores.len().max(1) as u64
    }

    fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Returns what the target has used of this machine.
    pub(crate) fn target_used(&self) -> Used {
        self.lock_own().target_used()
    }

    fn own_ns(&self, is_stalled: bool) -> u64 {
        self.lock_own().used_ns(is_stalled)
    }

    fn lock_own(&self) -> MutexGuard<'_, OwnTime> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> Look {
        let target_ns = self.lock_own().target_used_ns();
        Look { at_ns: self.now_ns(), target_ns, own_ns: target_ns + own::generator_ns() }
    }

    /// Looks at the waits of the target's threads, again and again.
    fn watch_target(&self) {
        let mut waits = Waits::default();
        for look in 0_u32.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            if look.is_multiple_of(waits::LOOKS_PER_SEARCH) {
                let processes = self.lock_own().processes();
                waits.find_threads(&processes);
            }
            let now = self.look();
            waits.look(now, self.cores()).into_iter().for_each(|stall| self.stalls.add(stall));
            std::thread::sleep(waits::LOOK_PERIOD);
        }
    }

    /// Sleeps on one core, again and again.
    fn sleep_on(&self, core: usize) {
        let mut only = CpuSet::new();
        only.set(core);
        // Where it is refused, another sleeper sees the same core, and none sees this one.
        let _ = sched_setaffinity(None, &only);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut own_ns = self.own_ns(false);
        let mut seen = None;
        let mut nap = Nap::first(self.now_ns());
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_nanos(nap.length_ns));
            nap.woke_ns = self.now_ns();
            let own_before_ns = std::mem::replace(&mut own_ns, self.own_ns(nap.is_late()));
            nap.own_ns = own_ns.saturating_sub(own_before_ns);
            if nap.is_late() {
                let now = Threads { at_ns: nap.woke_ns, used_ns: self.lock_own().threads_on(core) };
                nap.own_here_ns =
                    seen.replace(now.clone()).map_or(0, |before| now.used_since(&before, nap.from_ns));
            }
            nap.stall(self.cores()).into_iter().for_each(|stall| self.stalls.add(stall));
            let mut look = nap.look(self.now_ns());
            if look.is_late() {
                let own_before_ns = std::mem::replace(&mut own_ns, self.own_ns(false));
                look.own_ns = own_ns.saturating_sub(own_before_ns);
                look.stall(self.cores()).into_iter().for_each(|stall| self.stalls.add(stall));
            }
            nap = nap.next(self.now_ns());
        }
    }
}

impl Nap {
    /// Returns a sleeper's first sleep.
    pub(crate) fn first(from_ns: u64) -> Self {
        Self { from_ns, length_ns: NAP_NS, woke_ns: 0, own_ns: 0, own_here_ns: 0 }
    }

    /// Returns the sleep after this one and the look at the target. The look is no stall: a target
    /// may have hundreds of threads.
    pub(crate) fn next(self, looked_ns: u64) -> Self {
        Self { length_ns: if self.is_late() { SHORT_NAP_NS } else { NAP_NS }, ..Self::first(looked_ns) }
    }

    /// Returns the look at the target after this sleep as a sleep of [`LOOK_NS`]: what it lasts
    /// beyond that is a pause of the machine.
    fn look(self, looked_ns: u64) -> Self {
        Self { length_ns: LOOK_NS, woke_ns: looked_ns, ..Self::first(self.woke_ns) }
    }

    fn is_late(self) -> bool {
        self.woke_ns >= self.from_ns + self.length_ns + MIN_STALL_NS
    }

    /// Returns the stall that made the sleeper late: the lost time that the target did not use of
    /// this core, at most what target and generator left of all cores.
    pub(crate) fn stall(self, cores: u64) -> Option<Stall> {
        let due_ns = self.from_ns + self.length_ns;
        let left_ns = (cores * (self.woke_ns - self.from_ns)).saturating_sub(self.own_ns);
        let lost_ns = self.woke_ns.saturating_sub(due_ns).saturating_sub(self.own_here_ns).min(left_ns);
        (lost_ns >= MIN_STALL_NS).then_some(Stall { from_ns: due_ns, until_ns: self.woke_ns, lost_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stall_is_as_wide_as_the_lateness() {
        let nap = Nap { from_ns: 5 * MS, length_ns: MS, woke_ns: 16 * MS, own_ns: 0, own_here_ns: 0 };
        assert_eq!(nap.stall(2), Some(Stall { from_ns: 6 * MS, until_ns: 16 * MS, lost_ns: 10 * MS }));
        assert_eq!(Nap { woke_ns: 6 * MS + MIN_STALL_NS - 1, ..nap }.stall(2), None);
    }

    #[test]
    fn a_long_look_at_the_target_is_no_stall() {
        let mut nap = Nap::first(0);
        for _ in 0..100 {
            nap.woke_ns = nap.from_ns + nap.length_ns;
            assert_eq!((nap.stall(2), nap.look(nap.woke_ns + 3 * MS).stall(2)), (None, None));
            nap = nap.next(nap.woke_ns + 3 * MS);
        }
        let paused = nap.look(1_050 * MS).stall(2);
        assert_eq!(paused.map(|stall| stall.lost_ns / MS), Some(1_000), "the machine paused during the look");
        assert_eq!(nap.from_ns, 400 * MS, "no nap is short, so none was late");
    }

    #[test]
    fn cores_that_target_and_generator_use_themselves_are_no_stall() {
        let lost_ms = |own_ms: u64| {
            let nap =
                Nap { from_ns: 0, length_ns: MS, woke_ns: 11 * MS, own_ns: own_ms * MS, own_here_ns: 0 };
            nap.stall(2).map(|stall| stall.lost_ns / MS)
        };
        // 11 ms of two cores are 22 ms.
        assert_eq!([lost_ms(3), lost_ms(12), lost_ms(18), lost_ms(22)], [Some(10), Some(10), Some(4), None]);
        // One thread of the target had this core, and the other core was idle.
        let burnt =
            Nap { from_ns: 0, length_ns: MS, woke_ns: 11 * MS, own_ns: 11 * MS, own_here_ns: 11 * MS };
        assert_eq!(burnt.stall(2), None);
    }
}
