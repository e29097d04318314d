//! Stalls of this machine, found during a run.
//!
//! A host that has other guests stops all cores for milliseconds, and other programs take single cores. Both
//! make answers late, and neither is the target's fault. So a [`Watch`] looks for such times:
//!
//! - A sleeper on each core notes timers that fire late. A sleeper that woke late although it did not wait for
//!   its core shows that the core itself had stopped.
//! - If a thread of the generator or of the target waited for a core, something else used that core.
//!   What these threads used themselves does not count. See [`threads`].
//!
//! A request counts for the target only while no stall touches it. A target that takes the cores for itself
//! has no such excuse, because its own processor time is subtracted.
//!
//! - [`stalls`]: the record. [`threads`]: processor time and waits. [`cores`]: the work of all programs.
//! - [`owner`]: the process of a local target.
//! - [`processor`]: one thread's own time. [`echo`]: the machine without a target.

mod cores;
pub(crate) mod echo;
pub(crate) mod owner;
pub(crate) mod processor;
pub(crate) mod stalls;
pub(crate) mod threads;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use owner::Owners;
use processor::RunDelay;
use stalls::{MIN_STALL_NS, Stall, Stalls};
use threads::{OwnWaits, Threads};

/// The sleep of a sleeper: short in comparison with any stall that matters. It costs half a per cent of a core.
const PERIOD: Duration = Duration::from_millis(1);

/// The pause between two looks at the threads, which cost some thirty microseconds each.
const LOOK_INTERVAL_NS: u64 = 4_000_000;

/// The longest stop of a core that counts. Hosts stop a machine for up to some ten milliseconds. In a longer
/// one, the generator alone may have been stopped: a signal stops its sleepers too.
const LONGEST_STOP_NS: u64 = 100_000_000;

/// Watches the machine until it is ended.
#[derive(Debug)]
pub(crate) struct Watch {
    watched: Arc<Watched>,
    sleepers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Watched {
    /// Instant 0 of the run.
    origin: Instant,
    stalls: Arc<Stalls>,
    threads: Mutex<Threads>,
    is_over: AtomicBool,
}

impl Watch {
    /// Starts one sleeper on each core that this process may use.
    pub(crate) fn begin(origin: Instant, stalls: Arc<Stalls>, owners: Owners) -> Self {
        let threads = Mutex::new(Threads::new(owners));
        let watched = Arc::new(Watched { origin, stalls, threads, is_over: AtomicBool::new(false) });
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let sleeper = |(number, core)| {
            let watched = Arc::clone(&watched);
            std::thread::spawn(move || watched.sleep_on(core, number == 0))
        };
        let sleepers = cores.enumerate().map(sleeper).collect();
        Self { watched, sleepers }
    }

    /// Ends the sleepers. Returns the generator's waits that do not count as stalls, and the largest share of a
    /// core that one thread of the target used.
    pub(crate) fn end(self) -> (OwnWaits, Option<f64>) {
        self.watched.is_over.store(true, Ordering::Relaxed);
        // A sleeper that panicked has found no more stalls, and the verdict is the stricter one.
        self.sleepers.into_iter().for_each(|sleeper| drop(sleeper.join()));
        let mut threads = self.watched.threads();
        // A wait of the target may have ended since the last look.
        threads.look(self.watched.ns(Instant::now()), &self.watched.stalls);
        (threads.own_waits(), threads.busiest_of_target())
    }
}

impl Watched {
    fn threads(&self) -> std::sync::MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ns(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Sleeps on one core, again and again. One of the sleepers also looks at the threads.
    fn sleep_on(&self, core: usize, looks: bool) {
        let mut only = CpuSet::new();
        only.set(core);
        // Where it is refused, another sleeper sees the same core, and none sees this one.
        let _ = sched_setaffinity(None, &only);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut waits, mut looked_ns) = (RunDelay::of_this_thread(), 0);
        while !self.is_over.load(Ordering::Relaxed) {
            let before = Instant::now();
            std::thread::sleep(PERIOD);
            let now = Instant::now();
            let stop = stop_of_core(self.ns(before), self.ns(now), waits.since_last_ns());
            stop.into_iter().for_each(|stall| self.stalls.add(stall));
            if looks && self.ns(now) >= looked_ns + LOOK_INTERVAL_NS {
                looked_ns = self.ns(now);
                self.threads().look(looked_ns, &self.stalls);
            }
        }
    }
}

/// Returns the stop of a core whose sleeper slept from one instant to another, and waited this long for the core.
pub(crate) fn stop_of_core(from_ns: u64, until_ns: u64, waited_ns: u64) -> Option<Stall> {
    let late_ns = (until_ns - from_ns).saturating_sub(PERIOD.as_nanos() as u64);
    let lost_ns = late_ns.saturating_sub(waited_ns);
    (MIN_STALL_NS..=LONGEST_STOP_NS).contains(&lost_ns).then_some(Stall { from_ns, until_ns, lost_ns })
}
