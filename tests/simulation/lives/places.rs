//! The storage of a site's daemons, and copies of it.

use std::fs;

use snowbank::config::Settings;
use tempfile::TempDir;

use super::site::Process;
use crate::support::directory;

/// The storage of one daemon.
pub(crate) struct Place {
    /// `None` if the daemon keeps nothing.
    pub(crate) state: Option<TempDir>,
    pub(crate) process: Option<Process>,
    /// The last configuration that started on this state.
    pub(crate) started: Option<Settings>,
    /// Backups of the state, made in this boot.
    pub(crate) backups: Vec<TempDir>,
    /// The state that a backup has replaced, unused since.
    pub(crate) newest: Option<Replaced>,
    /// True while the state is an older copy for some worker IDs by the marks of this boot.
    pub(crate) is_older: bool,
}

/// A state that another has replaced.
pub(crate) struct Replaced {
    state: TempDir,
    started: Option<Settings>,
    /// True if it was itself an older copy that had been adopted.
    pub(crate) is_older: bool,
}

impl Place {
    pub(crate) fn new(is_kept: bool) -> Self {
        let state = is_kept.then(directory);
        let backups = Vec::new();
        Place { state, process: None, started: None, backups, newest: None, is_older: false }
    }

    pub(crate) fn back_up(&mut self) {
        self.backups.extend(self.state.as_ref().map(copy_of));
    }

    /// Replaces the daemon's state by another one, on which nothing has started.
    fn replace(&mut self, state: TempDir) {
        let started = self.started.take();
        if let Some(replaced) = self.state.replace(state) {
            let is_older = self.is_older;
            self.newest.get_or_insert(Replaced { state: replaced, started, is_older });
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
        if let Some(Replaced { state, started, is_older }) = self.newest.take() {
            (self.state, self.started, self.is_older) = (Some(state), started, is_older);
        }
    }

    /// Loses the state, while no process runs. The next one is new.
    pub(crate) fn lose(&mut self) {
        if self.state.is_some() {
            self.replace(directory());
            (self.newest, self.is_older) = (None, false);
        }
    }
}

/// Returns a copy of a state directory.
fn copy_of(state: &TempDir) -> TempDir {
    let copy = directory();
    for entry in fs::read_dir(state).expect("a directory") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("room");
    }
    copy
}
