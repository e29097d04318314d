//! Putting another configuration in force while the daemon runs: as a whole, or not at all.
//!
//! What can fail comes first, and nothing is changed by it: what takes a restart is refused, the worker IDs of sources that
//! join are locked, and their first ceilings made durable, by the keeper's thread and the rules of a start. Then every shard
//! takes up the new [`LiveConfig`] between two of its turns.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fmt, iter};

use tokio::sync::watch;

use super::live_config::{LiveConfig, Supply};
use super::start::{describe, lock, number};
use crate::ceiling::Owner;
use crate::config::{Changed, Mistakes, Secrets, Settings, diff};
use crate::front::Facts;
use crate::server::StartError;
use crate::server::ceilings::keeper_thread::JoinRequest;
use crate::server::ceilings::start_sources::{Joined, Joining};
use crate::server::shard_thread::worker::WakeUps;
use crate::tls;

/// How long shards are waited for. A turn takes far less; a thread that is held up longer takes up what is in force when it
/// goes on.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

/// Why the configuration of before stays in force. Prints as a line for each reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// What was changed takes a restart.
    Restart(Mistakes),
    /// A source cannot join.
    Refused(StartError),
    /// The daemon stops.
    Stopping,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Restart(mistakes) => mistakes.fmt(f),
            ReloadError::Refused(reason) => reason.fmt(f),
            ReloadError::Stopping => f.write_str("the daemon is stopping"),
        }
    }
}

impl std::error::Error for ReloadError {}

impl From<StartError> for ReloadError {
    fn from(reason: StartError) -> Self {
        ReloadError::Refused(reason)
    }
}

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that have another value.
    pub changed: Vec<Changed>,
    /// The names of sources that have joined.
    pub joined: Vec<String>,
    /// Whether the token file holds other tokens.
    pub tokens: bool,
    /// Whether TLS listeners show another certificate, or judge those of clients otherwise.
    pub certificates: bool,
    /// What the operator should know of it, a line each.
    pub notes: Vec<String>,
}

impl fmt::Display for Reloaded {
    /// All changes in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(Changed::to_string);
        let joined = self.joined.iter().map(|name| format!("source {name:?} added"));
        let tokens = self.tokens.then(|| String::from("other tokens"));
        let certificates = self.certificates.then(|| String::from("other certificates"));
        let all: Vec<String> = changed.chain(joined).chain(tokens).chain(certificates).collect();
        f.write_str(if all.is_empty() { "nothing changed" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

/// A running daemon's handle for reloads. One at a time: each starts from what the last has put in force.
pub struct Reloader {
    pub(crate) settings: Settings,
    /// As whom the daemon keeps ceilings that outlast it; `None`: it keeps none.
    pub(crate) owner: Option<Owner>,
    /// This daemon's name in INFO.
    pub(crate) instance: String,
    /// What listeners shake hands with, if there was a certificate at the start: without one no listener wants it.
    pub(crate) tls: Option<tls::Acceptor>,
    pub(crate) live_config: watch::Sender<Arc<LiveConfig>>,
    /// The version that each shard goes by, when it has taken it up.
    pub(crate) adopted: mpsc::Receiver<u64>,
    pub(crate) join_requests: mpsc::SyncSender<JoinRequest>,
    pub(crate) wake_ups: Arc<WakeUps>,
}

impl Reloader {
    /// Puts these settings, tokens and certificates in force. Blocks: on storage if sources join, and on shards until all go by them.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn reload(&mut self, settings: Settings, secrets: Secrets) -> Result<Reloaded, ReloadError> {
        let tokens = secrets.tokens;
        let changed = diff(&self.settings, &settings).map_err(ReloadError::Restart)?;
        let info_json = describe(&settings, &self.instance)?;
        let joining = self.lock_joining(&settings)?;
        let names: Vec<String> = joining.iter().map(|new| new.settings.name.clone()).collect();
        let horizons: Vec<Duration> = settings.sources.iter().map(|source| source.horizon).collect();
        let before = Arc::clone(&self.live_config.borrow());
        let losses = before.losses();
        let Joined { sources, notes } = self.ask_keeper(joining, horizons)?;

        let shards = settings.shards.get();
        let new = sources.into_iter().map(|source| Supply::new(source, shards));
        let supplies: Vec<Supply> = before.supplies.iter().cloned().chain(new).collect();
        let facts = |info_json| Facts {
            info_json,
            max_count: settings.limits.max_count.get(),
            sources: supplies.len(),
            tokens: tokens.clone(),
        };
        let live_config = |version, facts| LiveConfig {
            version,
            facts,
            limits: settings.limits.clone(),
            supplies: supplies.clone(),
        };
        if !names.is_empty() {
            // Who learns of a source by INFO may ask any shard for it: all have it before one tells of it.
            let version = before.version + 1;
            self.live_config
                .send_replace(Arc::new(live_config(version, facts(before.facts.info_json.clone()))));
            // A restored machine takes the grants of all sources in force away. Those that were joining then were not.
            if before.losses() != losses {
                let joined = &supplies[before.supplies.len()..];
                joined.iter().for_each(|supply| supply.source.grant().revoke());
                self.wake_ups.wake_keeper();
            }
            self.wait_for_shards(version)?;
        }
        let version = before.version + 2;
        self.live_config.send_replace(Arc::new(live_config(version, facts(info_json))));
        self.wait_for_shards(version)?;
        let certificates = match (&self.tls, secrets.tls) {
            (Some(acceptor), Some(identity)) => acceptor.replace(identity),
            _ => false,
        };
        self.settings = settings;
        let tokens = tokens != before.facts.tokens;
        Ok(Reloaded { changed, joined: names, tokens, certificates, notes })
    }

    /// The sources that are to join, with their worker IDs locked.
    fn lock_joining(&self, settings: &Settings) -> Result<Vec<Joining>, StartError> {
        let joining = settings.sources.iter().skip(self.settings.sources.len());
        let join = |source| {
            let numbering = number(source)?;
            let mut locks = lock(settings, &numbering)?;
            if let Some(owner) = &self.owner {
                locks.mark_for(owner);
            }
            Ok(Joining { settings: source.clone(), numbering, locks })
        };
        joining.map(join).collect()
    }

    /// Has the keeper do what is its to do: nothing, if neither a source joins nor a horizon changes.
    fn ask_keeper(&self, joining: Vec<Joining>, horizons: Vec<Duration>) -> Result<Joined, ReloadError> {
        let running = self.settings.sources.iter().map(|source| source.horizon);
        if joining.is_empty() && running.eq(horizons.iter().copied()) {
            return Ok(Joined { sources: Vec::new(), notes: Vec::new() });
        }
        let (reply, joined) = mpsc::channel();
        let request = JoinRequest { joining, is_kept: self.owner.is_some(), horizons, reply };
        self.join_requests.send(request).map_err(|_| ReloadError::Stopping)?;
        self.wake_ups.wake_keeper();
        let joined = joined.recv().map_err(|_| ReloadError::Stopping)?;
        joined.map_err(|reason| ReloadError::Refused(StartError::from(reason)))
    }

    /// Waits until all shards go by the configuration of this version.
    fn wait_for_shards(&self, version: u64) -> Result<(), ReloadError> {
        let shards = self.wake_ups.shards.len();
        let deadline = Instant::now() + ADOPTED_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut answers = iter::repeat_with(|| self.adopted.recv_timeout(left()));
        // A shard that was held up may answer for an earlier version before.
        let all = answers.by_ref().filter(|answer| !matches!(answer, Ok(other) if *other < version));
        match all.take(shards).collect::<Result<Vec<u64>, _>>() {
            Ok(_) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(ReloadError::Stopping),
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(
                    "a shard's thread is held up; it takes up the new configuration when it goes on"
                );
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
