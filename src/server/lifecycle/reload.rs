//! Reloads: replace the configuration of a running daemon as a whole, or change nothing.
//!
//! The steps that can fail come first. [`diff`] refuses settings that take a restart. The worker IDs of sources that join
//! are locked, and the keeper's thread makes their first ceilings durable by the rules of a start. Then every shard takes up
//! the new [`LiveConfig`] between two of its turns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fmt, iter};

use tokio::sync::watch;

use super::info::describe;
use super::rules::rules;
use super::worker_ids::{lock, number};
use crate::admin::LastReload;
use crate::ceiling::Owner;
use crate::clock;
use crate::config::{Changed, FileDigest, Machine, Mistakes, Secrets, Settings, diff};
use crate::front::Facts;
use crate::server::ceilings::keeper_thread::JoinRequest;
use crate::server::ceilings::start_sources::{Joined, Joining};
use crate::server::shared::common::Common;
use crate::server::shared::live_config::{LiveConfig, Supply};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;

/// The time for which a reload waits for the shards. A turn takes far less. A thread that is blocked longer takes up the
/// newest configuration when it continues.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

/// The reason why the old configuration stays live. Prints as a line for each reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// A changed setting takes a restart.
    Restart(Mistakes),
    /// The new sources or settings are refused.
    Refused(StartError),
    /// The keeper could not let the new sources join.
    NotJoined(String),
    /// The daemon is stopping.
    Stopping,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Restart(mistakes) => mistakes.fmt(f),
            ReloadError::Refused(reason) => reason.fmt(f),
            ReloadError::NotJoined(reason) => f.write_str(reason),
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

/// The changes that a reload has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that have another value.
    pub changed: Vec<Changed>,
    /// The names of sources that have joined.
    pub joined: Vec<String>,
    /// True if the tokens in the token file have changed.
    pub tokens: bool,
    /// True if the certificate of TLS listeners or the clients that they accept have changed.
    pub certificates: bool,
    /// The settings of files for the fleet's coordinator that have other contents. Its next connection uses them.
    pub fleet_files: Vec<&'static str>,
    /// Notes for the operator, a line each.
    pub notes: Vec<Note>,
}

impl fmt::Display for Reloaded {
    /// All changes in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changed.iter().map(Changed::to_string);
        let joined = self.joined.iter().map(|name| format!("source {name:?} added"));
        let tokens = self.tokens.then(|| String::from("other tokens"));
        let certificates = self.certificates.then(|| String::from("other certificates"));
        let fleet_files = self.fleet_files.iter().map(|setting| {
            format!("{setting} has other contents, which the next connection to the coordinator uses")
        });
        let all: Vec<String> =
            changed.chain(joined).chain(tokens).chain(certificates).chain(fleet_files).collect();
        f.write_str(if all.is_empty() { "nothing changed" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

/// The handle that reloads a running daemon's configuration. Reloads run one at a time: each starts from the configuration
/// that the last one made live.
pub struct Reloader {
    settings: Settings,
    /// The owner of the daemon's ceilings if they outlast it; `None` if they do not.
    owner: Option<Owner>,
    common: Arc<Common>,
    live_config: watch::Sender<Arc<LiveConfig>>,
    /// The version of each configuration that a shard has taken up.
    adopted: mpsc::Receiver<u64>,
    join_requests: mpsc::SyncSender<JoinRequest>,
    /// The files for the fleet's coordinator, as the last reload found them.
    fleet_files: Vec<FileDigest>,
}

impl Reloader {
    /// Returns the handle, the sender with which shards report the versions that they take up, and the keeper's inbox.
    pub(super) fn new(
        settings: Settings,
        owner: Option<Owner>,
        common: Arc<Common>,
        live_config: watch::Sender<Arc<LiveConfig>>,
        fleet_files: Vec<FileDigest>,
    ) -> (Reloader, mpsc::Sender<u64>, mpsc::Receiver<JoinRequest>) {
        let (send_adopted, adopted) = mpsc::channel();
        let (join_requests, receive_requests) = mpsc::sync_channel(1);
        let reloader = Reloader { settings, owner, common, live_config, adopted, join_requests, fleet_files };
        (reloader, send_adopted, receive_requests)
    }

    /// Notes the result of a reload for the status: the reasons, one per line, if it was refused.
    pub fn note(&self, result: Result<(), &str>) {
        let at_unix_s = clock::os::read().wall.0 as f64 / 1e6;
        let refused = result.err().map(|reasons| reasons.replace('\n', "; "));
        *self.common.metrics.last_reload() = Some(LastReload { at_unix_s, refused });
    }

    /// Makes these settings, tokens and certificates live. Blocks on storage if sources join, and until all shards use the
    /// new configuration.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub fn reload(&mut self, mut settings: Settings, secrets: Secrets) -> Result<Reloaded, ReloadError> {
        keep_picked(&self.settings, &mut settings)?;
        let picked = settings.pick_worker_ids(&Machine::here()).map_err(StartError::from)?;
        let changed = diff(&self.settings, &settings).map_err(ReloadError::Restart)?;
        let info_json = describe(&settings, &self.common.metrics.instance)?;
        let before = Arc::clone(&self.live_config.borrow());
        let access = rules(&settings, &secrets, &self.common.metrics.instance, &before.facts.access)?;
        let joining = self.lock_joining(&settings)?;
        let names: Vec<String> = joining.iter().map(|new| new.settings.name.clone()).collect();
        let unharmed = (before.losses(), self.common.restorations.load(Ordering::Relaxed));
        let Joined { sources, notes } = self.ask_keeper(joining)?;

        let shards = settings.shards.get();
        let new = sources.into_iter().map(|source| Supply::new(source, shards));
        let supplies: Vec<Supply> = before.supplies.iter().cloned().chain(new).collect();
        // Nothing below fails, except when the daemon stops.
        access.supersede(&before.facts.access, clock::os::boot());
        let live_config = |version, info_json| {
            let facts = Facts::new(&settings, info_json, access.clone());
            LiveConfig::new(version, &settings, facts, supplies.clone())
        };
        if !names.is_empty() {
            // A client that learns of a source from INFO may request its IDs from any shard. So all shards have the source
            // before any of them names it.
            let unannounced = live_config(before.version + 1, before.facts.info_json.clone());
            self.publish_joined(&before, unharmed, unannounced)?;
        }
        self.publish(Arc::new(live_config(before.version + 2, info_json)))?;
        let certificates = match (&self.common.tls, secrets.tls) {
            (Some(acceptor), Some(identity)) => acceptor.replace(identity),
            _ => false,
        };
        self.settings = settings;
        let notes = picked.into_iter().map(Note::Info).chain(notes).collect();
        let tokens = secrets.tokens != before.facts.access.tokens;
        let earlier = std::mem::replace(&mut self.fleet_files, secrets.fleet_files);
        let is_renewed = |file: &&FileDigest| !earlier.contains(file);
        let fleet_files = self.fleet_files.iter().filter(is_renewed).map(|file| file.setting).collect();
        Ok(Reloaded { changed, joined: names, tokens, certificates, fleet_files, notes })
    }

    /// Publishes a configuration with sources that have joined.
    fn publish_joined(
        &self,
        before: &LiveConfig,
        (losses, restorations): (u64, u64),
        live_config: LiveConfig,
    ) -> Result<(), ReloadError> {
        let live_config = Arc::new(live_config);
        self.live_config.send_replace(Arc::clone(&live_config));
        // If the machine was restored or the clocks jumped meanwhile, all live sources lost their grants. Those that were
        // joining were not live.
        let is_restored = self.common.restorations.load(Ordering::Relaxed) != restorations;
        if is_restored || before.losses() != losses {
            for Supply { source, .. } in &live_config.supplies[before.supplies.len()..] {
                if is_restored { source.note_restored() } else { source.grant().revoke() }
            }
            self.common.wake_ups.wake_keeper();
        }
        self.wait_for_shards(live_config.version)
    }

    /// Makes a configuration live, and waits until all shards use it.
    fn publish(&self, live_config: Arc<LiveConfig>) -> Result<(), ReloadError> {
        let version = live_config.version;
        self.live_config.send_replace(live_config);
        self.wait_for_shards(version)
    }

    /// Returns the new sources, with their worker IDs locked.
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

    /// Sends the keeper a request and waits for its reply. Does nothing if no source joins.
    fn ask_keeper(&self, joining: Vec<Joining>) -> Result<Joined, ReloadError> {
        if joining.is_empty() {
            return Ok(Joined::default());
        }
        let (reply, joined) = mpsc::channel();
        let request = JoinRequest { joining, reply };
        self.join_requests.send(request).map_err(|_| ReloadError::Stopping)?;
        self.common.wake_ups.wake_keeper();
        let joined = joined.recv().map_err(|_| ReloadError::Stopping)?;
        joined.map_err(ReloadError::NotJoined)
    }

    /// Waits until all shards use the configuration of this version.
    fn wait_for_shards(&self, version: u64) -> Result<(), ReloadError> {
        let shards = self.common.wake_ups.shard_count();
        let deadline = Instant::now() + ADOPTED_WITHIN;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut answers = iter::repeat_with(|| self.adopted.recv_timeout(left()));
        // A shard that was blocked may report an earlier version first.
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

/// Gives each running source the worker IDs that were picked for it at the start.
///
/// # Errors
/// A source would join a daemon in a fleet. Only a start takes worker numbers.
fn keep_picked(running: &Settings, wanted: &mut Settings) -> Result<(), StartError> {
    for (source, wanted) in running.sources.iter().zip(&mut wanted.sources) {
        if source.name == wanted.name {
            wanted.keep_picked(source);
        }
    }
    match wanted.sources.get(running.sources.len()) {
        Some(new) if running.fleet.is_used() => Err(StartError::WrongSetting(format!(
            "source {:?} is new, and a daemon of a fleet takes its worker IDs at its start; restart it",
            new.name
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
