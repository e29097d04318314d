//! Finds the changes that a reload would make, before the reload makes any.

use std::collections::BTreeSet;
use std::fmt;

use super::Settings;
use super::daemon::rows;
use super::identities::IdentitySettings;
use super::mistake::{Mistake, Mistakes};
use super::setting::{Change, Row};

/// A change that a reload makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A setting has another value.
    Setting {
        /// The setting's full key, as in [`Origins`](super::Origins), but with an identity's name.
        key: String,
        /// The value that the daemon runs with, as a file would have it.
        from: String,
        /// The value after the change.
        to: String,
    },
    /// A source or an identity, with its name, is new.
    Added(String),
    /// A source or an identity, with its name, is gone.
    Removed(String),
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Changed::Setting { key, from, to } => write!(f, "{key}: {from} -> {to}"),
            Changed::Added(table) => write!(f, "{table}: added"),
            Changed::Removed(table) => write!(f, "{table}: removed"),
        }
    }
}

const WHAT_TO_DO: &str = "restart the daemon, or put the setting back";
/// The way to change a source without a restart. Two sources that swap their names take it, too.
const WITHOUT_RESTART: &str = "; or remove each such source, reload, and add it again";

/// Returns the changes of identities, which are compared by name. All these changes take effect at
/// a reload.
fn changed_identities(running: &Settings, wanted: &Settings) -> Vec<Changed> {
    let both = running.identities.iter().chain(&wanted.identities);
    let names: BTreeSet<&str> = both.map(|identity| identity.name.as_str()).collect();
    let mut changed = Vec::new();
    for name in names {
        let table = format!("identity {name:?}");
        match (index_of_identity(running, name), index_of_identity(wanted, name)) {
            (Some(before), Some(after)) => {
                for row in IdentitySettings::ROWS {
                    let (from, to) = ((row.show)(running, before), (row.show)(wanted, after));
                    if from != to {
                        changed.push(Changed::Setting { key: format!("{table}: {}", row.key), from, to });
                    }
                }
            }
            (None, _) => changed.push(Changed::Added(table)),
            (_, None) => changed.push(Changed::Removed(table)),
        }
    }
    changed
}

fn index_of_identity(settings: &Settings, name: &str) -> Option<usize> {
    settings.identities.iter().position(|identity| identity.name == name)
}

/// The changes that a reload makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Every setting that changes.
    pub changed: Vec<Changed>,
    /// For each wanted source, by index, the index of the running source that it continues. `None`:
    /// the source is new.
    pub continues: Vec<Option<usize>>,
}

/// Returns the changes from `running` to `wanted`. Copies to wanted sources the worker IDs that the
/// running sources picked from the machine.
///
/// # Errors
/// Every setting whose change needs a restart, with its place in `wanted`, both values and the
/// reason.
pub fn diff(running: &Settings, wanted: &mut Settings) -> Result<Difference, Mistakes> {
    let continues = continued(running, wanted);
    let wanted = &*wanted;
    let mut changed = Vec::new();
    let mut refused = Vec::new();
    let mut compare = |row: &Row, before: usize, source: Option<usize>| {
        let from = (row.show)(running, before);
        let to = (row.show)(wanted, source.unwrap_or(0));
        let key = row.full_key(source);
        match row.change {
            _ if from == to => {}
            Change::Reload => changed.push(Changed::Setting { key, from, to }),
            Change::Restart(reason) => {
                let or = if source.is_some() { WITHOUT_RESTART } else { "" };
                let text = format!("found {to}, the daemon runs with {from}: {reason}; {WHAT_TO_DO}{or}");
                let origin = wanted.origins.origin_of(row, source);
                refused.push(Mistake { origin, key, text, is_clock_behind: false });
            }
        }
    };
    rows().filter(|row| !row.is_of_source()).for_each(|row| compare(row, 0, None));
    for (index, before) in continues.iter().enumerate() {
        let Some(before) = *before else { continue };
        rows().filter(|row| row.is_of_source()).for_each(|row| compare(row, before, Some(index)));
    }
    // Requests that name no source draw from the first one.
    if continues.first() != Some(&Some(0)) {
        let first =
            |settings: &Settings| settings.sources.first().map_or_else(String::new, |it| it.name.clone());
        let key = String::from("the first source");
        changed.push(Changed::Setting { key, from: first(running), to: first(wanted) });
    }
    refused.extend(other_max_ahead(running, wanted));
    changed.extend(changed_identities(running, wanted));
    changed.extend(added_and_removed(running, wanted, &continues));
    Mistakes::new(refused).map_or(Ok(Difference { changed, continues }), Err)
}

/// Returns a refusal if sources come or go so that the daemon of a fleet has another `max_ahead` than
/// its fleet. A floor is raised by the fleet's, and the next start would be refused.
fn other_max_ahead(running: &Settings, wanted: &Settings) -> Option<Mistake> {
    wanted.fleet.coordinator?;
    let (index, to) = wanted.longest_max_ahead()?;
    let from = running.longest_max_ahead();
    if from.is_some_and(|(_, from)| from == to) {
        return None;
    }
    let row = rows().find(|row| row.is_of_source() && row.key == "max_ahead")?;
    let from = from.map_or_else(|| String::from("none"), |(index, _)| (row.show)(running, index));
    let text = format!(
        "found {}, the daemon runs with {from}: the longest of all sources with a layout is the fleet's; {WHAT_TO_DO}",
        (row.show)(wanted, index)
    );
    let origin = wanted.origins.origin_of(row, Some(index));
    Some(Mistake { origin, key: row.full_key(Some(index)), text, is_clock_behind: false })
}

/// Returns for each wanted source the running source that it continues. It is the one with its name
/// or, if a name has only changed, the one with the same settings. The name of a ticket source is
/// its counter's, so a ticket source with another name is another source.
fn continued(running: &Settings, wanted: &mut Settings) -> Vec<Option<usize>> {
    let named = |name: &str| running.sources.iter().position(|source| source.name == name);
    let mut continues: Vec<Option<usize>> = wanted.sources.iter().map(|source| named(&source.name)).collect();
    for (index, before) in continues.iter().enumerate() {
        if let Some(before) = *before {
            wanted.sources[index].keep_picked(&running.sources[before]);
        }
    }
    for index in 0..continues.len() {
        if continues[index].is_some() {
            continue;
        }
        let own = wanted.sources[index].worker_ids.clone();
        for (before, source) in running.sources.iter().enumerate() {
            if continues.contains(&Some(before)) || !source.kind.follows_the_clock() {
                continue;
            }
            wanted.sources[index].keep_picked(source);
            let mut others = rows().filter(|row| row.is_of_source() && row.key != "name");
            if others.all(|row| (row.show)(running, before) == (row.show)(wanted, index)) {
                continues[index] = Some(before);
                break;
            }
            wanted.sources[index].worker_ids.clone_from(&own);
        }
    }
    continues
}

/// Returns a change for each source that is added or removed.
fn added_and_removed(running: &Settings, wanted: &Settings, continues: &[Option<usize>]) -> Vec<Changed> {
    let table = |name: &str| format!("source {name:?}");
    let mut changed = Vec::new();
    for (before, source) in running.sources.iter().enumerate() {
        if !continues.contains(&Some(before)) {
            changed.push(Changed::Removed(table(&source.name)));
        }
    }
    for (source, before) in wanted.sources.iter().zip(continues) {
        if before.is_none() {
            changed.push(Changed::Added(table(&source.name)));
        }
    }
    changed
}
