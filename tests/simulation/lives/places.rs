//! The storage of a site's daemons, and copies of it.

use std::collections::HashMap;
use std::fs;

use snowbank::config::{Settings, SourceSettings};
use tempfile::TempDir;

use super::site::Process;
use crate::support::directory;

/// The storage of one daemon.
pub(crate) struct Place {
    /// `None` if the daemon keeps no state.
    pub(crate) state: Option<TempDir>,
    pub(crate) process: Option<Process>,
    pub(crate) known: Known,
    /// Backups of the state, made in this boot.
    pub(crate) backups: Vec<TempDir>,
    /// The state that a backup has replaced. `None` once a process has used the backup.
    pub(crate) newest: Option<Replaced>,
    /// True while the marks of this boot show that the state is an older copy for some worker IDs.
    pub(crate) is_older: bool,
}

/// A state that another state has replaced.
pub(crate) struct Replaced {
    state: TempDir,
    known: Known,
    /// True if this state was itself an older copy that an operator had adopted.
    pub(crate) is_older: bool,
}

/// The facts about a state that its next start must respect.
#[derive(Default)]
pub(crate) struct Known {
    /// The last configuration with which a daemon started.
    pub(crate) started: Option<Settings>,
    /// For each source name, the settings of the source's last life and the highest of all its IDs.
    pub(crate) highest: HashMap<String, (SourceSettings, u64)>,
}

impl Place {
    pub(crate) fn new(is_kept: bool) -> Self {
        let state = is_kept.then(directory);
        let backups = Vec::new();
        Place { state, process: None, known: Known::default(), backups, newest: None, is_older: false }
    }

    /// Forgets each source if a source of another name has all its worker IDs now, as after a
    /// renaming. Under its earlier name, the source would start without a record.
    pub(crate) fn forget_renamed(&mut self) {
        let Some(process) = &self.process else { return };
        for source in &process.settings.sources {
            let ours = source.layout.numbers_in_space(&source.worker_ids.set);
            self.known.highest.retain(|name, (before, _)| {
                let theirs = before.layout.numbers_in_space(&before.worker_ids.set);
                let has_all = before.layout.space() == source.layout.space()
                    && theirs.iter().all(|number| ours.contains(number));
                *name == source.name || !has_all
            });
        }
    }

    pub(crate) fn back_up(&mut self) {
        self.backups.extend(self.state.as_ref().map(copy_of));
    }

    /// Replaces the daemon's state by another state, of which nothing is known.
    fn replace(&mut self, state: TempDir) {
        let known = std::mem::take(&mut self.known);
        if let Some(replaced) = self.state.replace(state) {
            let is_older = self.is_older;
            self.newest.get_or_insert(Replaced { state: replaced, known, is_older });
        }
    }

    /// Replaces the state by a backup, while no process runs.
    pub(crate) fn restore(&mut self, rng: &mut fastrand::Rng) {
        if !self.backups.is_empty() {
            self.replace(copy_of(&self.backups[rng.usize(..self.backups.len())]));
            self.is_older = true;
        }
    }

    pub(crate) fn put_newest_back(&mut self) {
        if let Some(Replaced { state, known, is_older }) = self.newest.take() {
            (self.state, self.known, self.is_older) = (Some(state), known, is_older);
        }
    }

    /// Loses the state, while no process runs. The next state is new.
    pub(crate) fn lose(&mut self) {
        if self.state.is_some() {
            self.replace(directory());
            (self.newest, self.is_older) = (None, false);
        }
    }
}

fn copy_of(state: &TempDir) -> TempDir {
    let copy = directory();
    for entry in fs::read_dir(state).expect("a directory") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("the copy can be written");
    }
    copy
}
