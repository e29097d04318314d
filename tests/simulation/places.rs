//! The places of a site's daemons: what each keeps, and copies of that.

use std::collections::HashMap;
use std::fs;

use snowbank::config::{Settings, SourceSettings};
use tempfile::TempDir;

use crate::site::Process;
use crate::world::locks;

/// The place of one daemon.
pub(crate) struct Place {
    /// `None`: the daemon keeps nothing.
    pub(crate) state: Option<TempDir>,
    pub(crate) process: Option<Process>,
    pub(crate) known: Known,
    /// Backups of the state, made in this boot.
    pub(crate) backups: Vec<TempDir>,
    /// The state that one of them has taken the place of, and that nobody has used since.
    pub(crate) newest: Option<Replaced>,
    /// True while the state is an older copy for some worker IDs, as the marks of this boot tell.
    pub(crate) is_older: bool,
}

/// A state that another has taken the place of.
pub(crate) struct Replaced {
    state: TempDir,
    known: Known,
    /// True if it was itself an older copy that had been adopted.
    pub(crate) is_older: bool,
}

/// The promises that a state makes.
#[derive(Default)]
pub(crate) struct Known {
    /// The last configuration that started.
    pub(crate) started: Option<Settings>,
    /// By the sources' names, the last life's settings, and the highest ID of all.
    pub(crate) highest: HashMap<String, (SourceSettings, u64)>,
}

impl Place {
    pub(crate) fn new(is_kept: bool) -> Self {
        let (state, backups) = (is_kept.then(locks), Vec::new());
        Place { state, process: None, known: Known::default(), backups, newest: None, is_older: false }
    }

    /// A source that has all worker IDs of another name continues it, as after a renaming. That name begins with nothing then.
    pub(crate) fn forget_renamed(&mut self) {
        let Some(process) = &self.process else { return };
        for source in &process.settings.sources {
            let has_all = |before: &SourceSettings| {
                let numbers = |of: &SourceSettings| of.layout.numbers_in_space(&of.worker_ids.set);
                let ours = numbers(source);
                before.layout.space() == source.layout.space()
                    && numbers(before).iter().all(|number| ours.contains(number))
            };
            self.known.highest.retain(|name, (before, _)| *name == source.name || !has_all(before));
        }
    }

    pub(crate) fn back_up(&mut self) {
        self.backups.extend(self.state.as_ref().map(copy_of));
    }

    /// Puts another state, of which nothing is known, in place of the one that the daemon kept.
    fn replace(&mut self, state: TempDir) {
        let known = std::mem::take(&mut self.known);
        if let Some(replaced) = self.state.replace(state) {
            let is_older = self.is_older;
            self.newest.get_or_insert(Replaced { state: replaced, known, is_older });
        }
    }

    /// A backup takes the place of the state. No process runs.
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

    /// The state is gone, and the next one is another. No process runs.
    pub(crate) fn lose(&mut self) {
        if self.state.is_some() {
            self.replace(locks());
            (self.newest, self.is_older) = (None, false);
        }
    }
}

/// Returns a copy of a state directory.
fn copy_of(state: &TempDir) -> TempDir {
    let copy = locks();
    for entry in fs::read_dir(state).expect("a directory") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("room");
    }
    copy
}
