//! Finds the changes that a reload would make, before the reload makes any.

use std::collections::BTreeSet;
use std::fmt;

use super::Settings;
use super::daemon::rows_of;
use super::identities::IdentitySettings;
use super::mistake::{Mistake, Mistakes};
use super::setting::Change;

/// A setting that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The setting's full key, as in [`Origins`](super::Origins), but with an identity's name.
    pub key: String,
    /// The value that the daemon runs with, as a file would have it.
    pub from: String,
    /// The value after the change.
    pub to: String,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.from, self.to)
    }
}

const WHAT_TO_DO: &str = "restart the daemon, or put the setting back";

/// Returns the changes of identities, which are compared by name. All these changes take effect at
/// a reload.
fn changed_identities(running: &Settings, wanted: &Settings) -> Vec<Changed> {
    let both = running.identities.iter().chain(&wanted.identities);
    let names: BTreeSet<&str> = both.map(|identity| identity.name.as_str()).collect();
    let mut changed = Vec::new();
    for name in names {
        let before = index_of_identity(running, name);
        let after = index_of_identity(wanted, name);
        let has_both = before.is_some() && after.is_some();
        for row in IdentitySettings::ROWS {
            let from = before.map_or_else(|| "none".to_owned(), |index| (row.show)(running, index));
            let to = after.map_or_else(|| "none".to_owned(), |index| (row.show)(wanted, index));
            // An identity that is added or removed is reported by its name alone.
            if from != to && (has_both || row.key == "name") {
                changed.push(Changed { key: format!("identity {name:?}: {}", row.key), from, to });
            }
        }
    }
    changed
}

fn index_of_identity(settings: &Settings, name: &str) -> Option<usize> {
    settings.identities.iter().position(|identity| identity.name == name)
}

/// Returns the changes from `running` to `wanted`.
///
/// # Errors
/// Every setting whose change needs a restart, with its place in `wanted`, both values and the
/// reason.
pub fn diff(running: &Settings, wanted: &Settings) -> Result<Vec<Changed>, Mistakes> {
    let mut changed = Vec::new();
    let mut refused = Vec::new();
    for (row, source) in rows_of(running.sources.len().min(wanted.sources.len())) {
        let index = source.unwrap_or(0);
        // If the index now belongs to another source, only the changed name is reported.
        let is_same = source.is_none() || running.sources[index].name == wanted.sources[index].name;
        if !is_same && row.key != "name" {
            continue;
        }
        let from = (row.show)(running, index);
        let to = (row.show)(wanted, index);
        let key = row.full_key(source);
        match row.change {
            _ if from == to => {}
            Change::Reload => changed.push(Changed { key, from, to }),
            Change::Restart(reason) => {
                let text = format!("found {to}, the daemon runs with {from}: {reason}; {WHAT_TO_DO}");
                let origin = wanted.origins.origin_of(row, source);
                refused.push(Mistake { origin, key, text, is_clock_behind: false });
            }
        }
    }
    changed.extend(changed_identities(running, wanted));
    refused.extend(other_count(running, wanted));
    Mistakes::new(refused).map_or(Ok(changed), Err)
}

/// Returns a refusal if the number of sources changes.
fn other_count(running: &Settings, wanted: &Settings) -> Option<Mistake> {
    if running.sources.len() == wanted.sources.len() {
        return None;
    }
    let text = format!(
        "found {}, the daemon runs with {}: sources start and stop with the daemon; {WHAT_TO_DO}",
        names(wanted),
        names(running)
    );
    let origin = wanted.origins.of(&format!("sources[{}]", wanted.sources.len() - 1));
    Some(Mistake { origin, key: String::from("sources"), text, is_clock_behind: false })
}

/// Returns the names of the sources, in their order.
fn names(settings: &Settings) -> String {
    let names: Vec<&str> = settings.sources.iter().map(|source| &*source.name).collect();
    names.join(", ")
}
