//! Snowflake sources: a lock for each worker ID of an ID space.

use std::fs::File;
use std::path::PathBuf;

use super::Kind;
use crate::errors::{Cause, StateError};
use crate::holder::holder;
use crate::lock_names::fingerprint;
use crate::neighbours::{Held, HeldIds, Locks};
use snowbank_id::layout::{Layout, Numbering, PRESETS, Space};

impl Kind for Numbering {
    fn lock_names(&self) -> Vec<(u64, String)> {
        let layout = self.layout();
        let space = fingerprint(&self.layout().space().to_string());
        let mut names = Vec::with_capacity(self.workers().len());
        for worker in self.workers().iter() {
            names.push((worker, format!("{space:016x}-{}.lock", layout.number_in_space(worker))));
        }
        names
    }

    /// Other worker IDs of the same ID space share no ID.
    fn is_apart_from(&self, lock_name: &str) -> bool {
        let space = fingerprint(&self.layout().space().to_string());
        lock_name.starts_with(&format!("{space:016x}"))
    }

    fn is_kin_of(&self, _: &str) -> bool {
        false
    }

    fn check_neighbours(&self, locks: Locks) -> Result<Vec<PathBuf>, StateError> {
        check_workers(locks.held, self)?;
        let space = self.layout().space();
        let numbers = self.layout().numbers_in_space(self.workers());
        let mut colliding = Vec::new();
        for (number, other, path) in locks.free {
            if space.runs_beside(&other) && space.collision(&numbers, &other, &[number]).is_some() {
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
            "worker ID {worker} of layout {} is held by another daemon of this machine{holder}; give this one another worker \
             ID, or stop that one",
            self.layout()
        );
        StateError::new(Cause::WorkerIdHeld, reason)
    }

    /// One for each name, layout and set of worker IDs.
    fn record_key(&self, source: &str) -> String {
        format!("{source} {} {}", self.layout(), self.workers())
    }
}

fn check_workers(held: Vec<Held>, own: &Numbering) -> Result<(), StateError> {
    let layout = own.layout();
    let workers = own.workers();
    let space = layout.space();
    let numbers = layout.numbers_in_space(workers);
    for (other, held) in by_space(held) {
        if !space.runs_beside(&other) {
            continue;
        }
        let others: Vec<u64> = held.iter().map(|(number, _)| *number).collect();
        if let Some((mine, theirs)) = space.collision(&numbers, &other, &others) {
            let number = held[theirs].0;
            let holder = holder(&held[theirs].1);
            let worker = workers.iter().nth(mine).unwrap_or_default();
            let reason = format!(
                "worker ID {worker} of layout {layout} can make the same IDs as number {number} of {other}, which is held by \
                 another daemon of this machine{holder}; give this one another worker ID, or stop that one"
            );
            return Err(StateError::new(Cause::WorkerIdHeld, reason));
        }
    }
    Ok(())
}

fn by_space(held: Vec<Held>) -> Vec<(Space, Vec<(u64, File)>)> {
    let mut spaces: Vec<(Space, Vec<(u64, File)>)> = Vec::new();
    for (ids, file) in held {
        let HeldIds::Worker(number, space) = ids else { continue };
        match spaces.iter_mut().find(|(known, _)| *known == space) {
            Some((_, numbers)) => numbers.push((number, file)),
            None => spaces.push((space, vec![(number, file)])),
        }
    }
    spaces
}

/// Returns the name of the preset that a layout is, or else its text form.
pub(crate) fn by_name(layout: &Layout) -> String {
    let text = layout.to_string();
    PRESETS.iter().find(|preset| preset.spec == text).map_or(text, |preset| preset.name.to_owned())
}
