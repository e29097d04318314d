//! Snowflake sources: a lock for each worker ID of an ID space.

use std::path::PathBuf;

use super::{Kind, fingerprint};
use crate::errors::{Cause, StateError};
use crate::holder::holder;
use crate::neighbours::{HeldIds, Locks};
use snowbank_id::layout::{Layout, LayoutNumbering, PRESETS, Space, WorkerSet};

impl Kind for LayoutNumbering {
    fn lock_names(&self) -> Vec<(u64, String)> {
        let layout = self.layout();
        let prefix = self.lock_prefix();
        let mut names = Vec::with_capacity(self.workers().len());
        for worker in self.workers().iter() {
            names.push((worker, format!("{prefix}-{}.lock", layout.number_in_space(worker))));
        }
        names
    }

    fn lock_prefix(&self) -> String {
        format!("{:016x}", fingerprint(&self.layout().space().to_string()))
    }

    /// Two worker IDs of the same ID space never make the same ID.
    fn is_apart_from(&self, is_of_prefix: bool) -> bool {
        is_of_prefix
    }

    fn is_kin_of(&self, _: &str) -> bool {
        false
    }

    fn check_neighbours(&self, locks: Locks) -> Result<Vec<PathBuf>, StateError> {
        let own = OwnIds::of(self);
        for (ids, file) in locks.held {
            if let HeldIds::Worker(number, other) = ids
                && let Some(worker) = own.colliding_worker(number, &other)
            {
                let layout = self.layout();
                let holder = holder(&file);
                let reason = format!(
                    "worker ID {worker} of layout {layout} can make the same IDs as number {number} of {other}, which is held \
                     by another daemon of this machine{holder}; give this one a worker ID that no daemon uses, or stop \
                     that one"
                );
                return Err(StateError::new(Cause::WorkerIdHeld, reason));
            }
        }
        let mut colliding = Vec::new();
        for (number, other, path) in locks.free {
            if own.colliding_worker(number, &other).is_some() {
                colliding.push(path);
            }
        }
        Ok(colliding)
    }

    fn holders_line(&self, worker: u64) -> String {
        format!("worker ID {}, {}", self.layout().number_in_space(worker), self.layout().space())
    }

    fn held(&self, worker: u64, holder: String) -> StateError {
        let reason = format!(
            "worker ID {worker} of layout {} is held by another daemon of this machine{holder}; give this one a worker ID \
             that no daemon uses, or stop that one",
            self.layout()
        );
        StateError::new(Cause::WorkerIdHeld, reason)
    }

    /// Each combination of name, layout and worker IDs has a key of its own.
    fn record_key(&self, source: &str) -> String {
        format!("{source} {} {}", self.layout(), self.workers())
    }
}

/// The IDs that a source can make, computed once for all neighbours.
struct OwnIds<'a> {
    workers: &'a WorkerSet,
    space: Space,
    /// The numbers of the worker IDs in the ID space, in the order of `workers`.
    numbers: Vec<u64>,
}

impl<'a> OwnIds<'a> {
    fn of(numbering: &'a LayoutNumbering) -> Self {
        let layout = numbering.layout();
        let workers = numbering.workers();
        OwnIds { workers, space: layout.space(), numbers: layout.numbers_in_space(workers) }
    }

    /// Returns a worker ID of the source that can make the same IDs as the worker ID with this
    /// number in the other ID space.
    fn colliding_worker(&self, number: u64, other: &Space) -> Option<u64> {
        if !self.space.runs_beside(other) {
            return None;
        }
        let (mine, _) = self.space.collision(&self.numbers, other, &[number])?;
        self.workers.iter().nth(mine)
    }
}

/// Returns the name of the preset that equals the layout. If there is no such preset, returns the
/// layout's text form.
pub(crate) fn by_name(layout: &Layout) -> String {
    let text = layout.to_string();
    PRESETS.iter().find(|preset| preset.spec == text).map_or(text, |preset| preset.name.to_owned())
}
