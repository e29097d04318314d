//! The keeper: one thread that raises ceilings, durable first, and watches the wall clock.
//!
//! It wakes once a second, or at once when a request meets a ceiling. It may block on storage; no request does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::worker::Bells;
use crate::ceiling::{CeilingRule, CeilingStore};
use crate::clock::{self, BootMicros, Now, Observed, Reading, StepWatch, Wall};
use crate::layout::{Position, Tick, UnixMicros};
use crate::source::Source;

/// How often the keeper looks without being asked: the one timer of an idle daemon.
const PERIOD: Duration = Duration::from_secs(1);
/// How long after its last use a source's ceiling is still raised, so that the first request after a pause does not wait.
const KEPT_AFTER_USE: Duration = Duration::from_secs(600);

/// One source as the keeper sees it.
pub(super) struct Kept {
    pub(super) source: Arc<Source>,
    pub(super) rule: CeilingRule,
    /// The cursor when the keeper last looked, and when it was last found moved.
    pub(super) seen: Position,
    pub(super) used_at: BootMicros,
}

/// The ceiling that `rule` wants at a moment, as a position.
pub(super) fn wanted_ceiling(kept: &Kept, now: Now, id_time: UnixMicros, uptime: Duration) -> Position {
    let numbering = kept.source.numbering();
    let reach = kept.rule.reach(now, id_time, uptime);
    numbering.first_of(Tick(numbering.tick_at(reach).0.saturating_add(1)))
}

/// All that the keeper's thread owns.
pub(super) struct Keeper {
    pub(super) sources: Vec<Kept>,
    pub(super) store: Box<dyn CeilingStore>,
    pub(super) wall: Arc<Wall>,
    pub(super) watch: StepWatch,
    pub(super) bells: Arc<Bells>,
    pub(super) started: BootMicros,
    pub(super) stopping: Arc<AtomicBool>,
    /// What was last said of the clock and of storage: said again only when it changes.
    pub(super) reported: Reported,
}

#[derive(Debug, Default)]
pub(super) struct Reported {
    clock_is_odd: bool,
    storage_fails: bool,
}

impl Keeper {
    /// Runs until told to stop, then gives back what the end of the daemon needs.
    pub(super) fn run(mut self) -> Keeper {
        while !self.stopping.load(Ordering::Acquire) {
            self.look(clock::os::read());
            thread::park_timeout(PERIOD);
        }
        self
    }

    fn look(&mut self, reading: Reading) {
        let observed = self.watch.observe(&self.wall, reading);
        self.report_clock(observed);
        let now = self.wall.believe(reading);
        let uptime = now.boot.since(self.started);
        let mut raises = Vec::new();
        let mut is_waited_for = false;
        for (index, kept) in self.sources.iter_mut().enumerate() {
            let Some(cursor) = kept.source.cursor() else {
                continue;
            };
            if cursor != kept.seen {
                kept.seen = cursor;
                kept.used_at = now.boot;
            }
            let waits = kept.source.line().admitted_ids() > 0;
            if !waits && now.boot.since(kept.used_at) > KEPT_AFTER_USE {
                continue;
            }
            let ceiling = wanted_ceiling(kept, now, kept.source.window(now).id_time, uptime);
            if ceiling > kept.source.grant().ceiling() {
                raises.push((index, ceiling));
                is_waited_for |= waits;
            }
        }
        self.raise(&raises, now);
        if is_waited_for {
            self.bells.ring_all();
        }
    }

    /// Raises ceilings, all in one sync. A failure is said once, and tried again with the next look.
    fn raise(&mut self, raises: &[(usize, Position)], now: Now) {
        if raises.is_empty() {
            return;
        }
        let failed = match self.store.raise(raises, now.wall.0.saturating_sub(now.boot.0)) {
            Ok(()) => {
                for &(index, ceiling) in raises {
                    self.sources[index].source.grant().raise(ceiling);
                }
                None
            }
            Err(error) => Some(error),
        };
        match failed {
            Some(error) if !self.reported.storage_fails => {
                self.reported.storage_fails = true;
                tracing::error!(%error, "cannot raise the ceilings; IDs run out when they are reached");
            }
            None if self.reported.storage_fails => {
                self.reported.storage_fails = false;
                tracing::info!("ceilings are raised again");
            }
            _ => {}
        }
    }

    fn report_clock(&mut self, observed: Observed) {
        let odd = !matches!(observed, Observed::Steady);
        if odd == self.reported.clock_is_odd && !matches!(observed, Observed::Believed(_)) {
            return;
        }
        self.reported.clock_is_odd = odd && !matches!(observed, Observed::Believed(_));
        match observed {
            Observed::Steady => tracing::info!("the wall clock runs as expected again"),
            Observed::Behind(by) => tracing::warn!(?by, "the wall clock is behind IDs already handed out"),
            Observed::Held(by) => {
                tracing::warn!(?by, "the wall clock stepped forward; not followed until it has lasted")
            }
            Observed::Believed(by) => {
                tracing::warn!(?by, "the step of the wall clock has lasted and is followed")
            }
        }
    }

    /// The end: no more claims, and the ceilings come down to what was claimed. Nothing is claimed after this began.
    pub(super) fn seal_and_trim(&mut self) {
        let sealed = self.sources.iter().enumerate();
        let trims: Vec<_> = sealed.filter_map(|(index, kept)| Some((index, kept.source.seal()?))).collect();
        if let Err(error) = self.store.trim(&trims) {
            tracing::warn!(%error, "the ceilings could not be trimmed; the next start rides");
        }
    }
}
