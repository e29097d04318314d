//! What a reload would change: pure, before anything is done.

use std::fmt;

use super::Settings;
use super::daemon::DAEMON;
use super::mistake::{Mistake, Mistakes, Origin, Origins};
use super::setting::{Change, full_key};
use super::source::{PLACE, SOURCE};

/// A setting that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its full key, as in [`Origins`].
    pub key: String,
    /// The value that the daemon runs with, as it would be written in a file.
    pub from: String,
    /// The value that it is to run with.
    pub to: String,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.from, self.to)
    }
}

/// What a daemon that runs with `running` has to change to run with `wanted`; its sources beyond those of `running` are
/// new.
///
/// # Errors
/// Every setting that takes a restart, with its place in `wanted`, both values and the reason.
pub fn diff(running: &Settings, wanted: &Settings) -> Result<Vec<Changed>, Mistakes> {
    let mut found = Found { origins: &wanted.origins, changed: Vec::new(), refused: Vec::new() };
    for setting in DAEMON {
        let (from, to) = ((setting.show)(running), (setting.show)(wanted));
        found.compare(&setting.full_key(None), setting.key, setting.change, None, from, to);
    }
    for (index, source) in running.sources.iter().enumerate() {
        let Some(other) = wanted.sources.get(index) else {
            found.gone(index, &source.name, wanted.sources.len());
            continue;
        };
        for setting in SOURCE {
            let (from, to) = ((setting.show)(source), (setting.show)(other));
            // One source in another's place: what else is different says nothing.
            if source.name == other.name || setting.key == "name" {
                let key = setting.full_key(Some(index));
                found.compare(&key, setting.key, setting.change, Some(index), from, to);
            }
        }
    }
    let Found { changed, refused, .. } = found;
    match Mistakes::new(refused) {
        Some(refused) => Err(refused),
        None => Ok(changed),
    }
}

struct Found<'a> {
    /// Where the wanted settings were given.
    origins: &'a Origins,
    changed: Vec<Changed>,
    refused: Vec<Mistake>,
}

impl Found<'_> {
    fn compare(
        &mut self,
        full: &str,
        key: &str,
        change: Change,
        source: Option<usize>,
        from: String,
        to: String,
    ) {
        if from == to {
            return;
        }
        match change {
            Change::Reload => self.changed.push(Changed { key: full.to_owned(), from, to }),
            Change::Restart(reason) => {
                let text = format!("found {to}, the daemon runs with {from}: {reason}; {WHAT_TO_DO}");
                self.refuse(self.place_of(full, key, source), full, text);
            }
        }
    }

    /// A running source that is not wanted any more, where `left` are.
    fn gone(&mut self, index: usize, name: &str, left: usize) {
        let key = format!("sources[{index}]");
        let last = self.origins.of(&format!("sources[{}]", left.saturating_sub(1)));
        let origin = last.cloned().unwrap_or(Origin::Default);
        let text = format!("found no source {name:?}, the daemon runs with it: {PLACE}; {WHAT_TO_DO}");
        self.refuse(origin, &key, text);
    }

    fn refuse(&mut self, origin: Origin, key: &str, text: String) {
        self.refused.push(Mistake { origin, key: key.to_owned(), text, is_clock_behind: false });
    }

    /// Where a setting was given: a source's own, or at the top of the file for all; else the source's entry.
    fn place_of(&self, full: &str, key: &str, source: Option<usize>) -> Origin {
        let entry = source.map(|index| format!("sources[{index}]"));
        let common = source.map(|_| full_key("", key, None));
        let places = [Some(full), common.as_deref(), entry.as_deref()];
        let origin = places.into_iter().flatten().find_map(|place| self.origins.of(place));
        origin.cloned().unwrap_or(Origin::Default)
    }
}

const WHAT_TO_DO: &str = "restart the daemon, or put it back";
