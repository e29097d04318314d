//! The keeper: one thread that raises ceilings, durable first, and watches the wall clock.
//!
//! It wakes once a second, or at once when a request meets a ceiling. It may block on storage; no request does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::worker::Bells;
use crate::ceiling::{CeilingRule, CeilingStore, StoreError};
use crate::clock::{self, BootMicros, Now, Observed, Reading, StepWatch, Wall};
use crate::layout::{Position, Tick};
use crate::source::Source;

/// How often the keeper looks without being asked: the one timer of an idle daemon.
const PERIOD: Duration = Duration::from_secs(1);
/// How long after its last use a source's ceiling is still raised, so that the first request after a pause does not wait.
const KEPT_AFTER_USE: Duration = Duration::from_secs(600);

/// One source as the keeper sees it.
pub(super) struct Kept {
    pub(super) source: Arc<Source>,
    pub(super) rule: CeilingRule,
    /// The highest ceiling that is durable.
    pub(super) durable: Position,
    /// The cursor when the keeper last looked, and when it was last found moved.
    pub(super) seen: Position,
    pub(super) used_at: BootMicros,
}

impl Kept {
    /// The ceiling to make durable now, if there is one to.
    fn look(&mut self, now: Now, uptime: Duration) -> Option<Position> {
        let cursor = self.source.cursor()?;
        if cursor != self.seen {
            self.seen = cursor;
            self.used_at = now.boot;
        }
        let grant = self.source.grant();
        let is_wanted = self.source.line().admitted_ids() > 0 || grant.ceiling() < self.durable;
        if !is_wanted && now.boot.since(self.used_at) > KEPT_AFTER_USE {
            return None;
        }
        let ceiling = self.wanted_ceiling(now, uptime).max(self.durable);
        (ceiling > grant.ceiling()).then_some(ceiling)
    }

    /// The ceiling that the rule wants at a moment.
    pub(super) fn wanted_ceiling(&self, now: Now, uptime: Duration) -> Position {
        let numbering = self.source.numbering();
        let reach = self.rule.reach(now, self.source.id_time(now), uptime);
        numbering.first_of(Tick(numbering.tick_at(reach).0.saturating_add(1)))
    }
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
        if self.wall.has_jumped(reading) {
            // Perhaps a snapshot was restored: what was claimed ahead is dropped, and nothing is claimed until the
            // ceilings are durable anew.
            self.sources.iter().for_each(|kept| kept.source.grant().revoke());
        }
        let observed = self.watch.observe(&self.wall, reading);
        self.wall.note_seen(reading);
        self.report_clock(observed);
        let now = self.wall.believe(reading);
        let uptime = now.boot.since(self.started);
        let mut failure = None;
        for (index, kept) in self.sources.iter_mut().enumerate() {
            let Some(ceiling) = kept.look(now, uptime) else {
                continue;
            };
            match self.store.raise(index, ceiling) {
                Ok(()) => {
                    kept.durable = ceiling;
                    kept.source.grant().raise(ceiling);
                }
                Err(error) => failure = Some((kept.source.name().to_owned(), error)),
            }
        }
        self.report_storage(failure);
        if self.sources.iter().any(|kept| kept.source.line().admitted_ids() > 0) {
            self.bells.ring_all();
        }
    }

    fn report_storage(&mut self, failure: Option<(String, StoreError)>) {
        match failure {
            Some((source, error)) if !self.reported.storage_fails => {
                self.reported.storage_fails = true;
                tracing::error!(source, %error, "cannot raise the ceiling; IDs run out when it is reached");
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
        for (index, kept) in self.sources.iter().enumerate() {
            let Some(cursor) = kept.source.seal() else {
                continue;
            };
            if let Err(error) = self.store.trim(index, cursor) {
                tracing::warn!(source = kept.source.name(), %error, "the ceiling could not be trimmed; the next start rides");
            }
        }
    }
}
