//! Reloads the configuration of a running daemon. A reload replaces the whole configuration, or
//! changes nothing.
//!
//! The steps that can fail come first: [`diff`] refuses settings that need a restart. Then every
//! shard adopts the new [`LiveConfig`] between two of its turns.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::info::{describe, rules};
use crate::admin::LastReload;
use crate::clock;
use crate::config::{Changed, FileDigest, Secrets, Settings, diff};
use crate::frontends::Facts;
use crate::server::shared::common::Common;
use crate::server::shared::live_config::LiveConfig;

/// The longest time that a reload waits for the shards. A turn takes far less time. If a shard's
/// thread is blocked for longer, it adopts the newest configuration when it continues.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

/// Reloads a running daemon's configuration, one reload at a time.
pub struct Reloader {
    /// The settings that are live.
    settings: Settings,
    common: Arc<Common>,
    live_config: watch::Sender<Arc<LiveConfig>>,
    /// Receives a version from each shard that has adopted the configuration with this version.
    adopted: mpsc::Receiver<u64>,
    /// The digests of the files for the fleet's coordinator, as they were last read.
    fleet_files: Vec<FileDigest>,
}

impl Reloader {
    /// Returns the reloader, and the sender with which shards report the versions that they adopt.
    pub(super) fn new(
        settings: Settings,
        common: Arc<Common>,
        live_config: watch::Sender<Arc<LiveConfig>>,
        fleet_files: Vec<FileDigest>,
    ) -> (Reloader, mpsc::Sender<u64>) {
        let (send_adopted, adopted) = mpsc::channel();
        (Reloader { settings, common, live_config, adopted, fleet_files }, send_adopted)
    }

    /// Stores the result of a reload for the status. An error has one reason for the refusal on
    /// each line.
    pub fn record(&self, result: Result<(), &str>) {
        let at_unix_s = clock::os::read().wall.0 as f64 / 1e6;
        let refused = result.err().map(|reasons| reasons.replace('\n', "; "));
        *self.common.metrics.last_reload() = Some(LastReload { at_unix_s, refused });
    }

    /// Makes these settings, tokens and certificates live. Blocks until all shards use them, or for
    /// 10 s at most. Returns all changes in one line.
    ///
    /// # Errors
    /// Nothing was changed, or the daemon is stopping. Returns the reasons, one on each line.
    pub fn reload(&mut self, mut settings: Settings, secrets: Secrets) -> Result<String, String> {
        keep_picked(&self.settings, &mut settings);
        let changed = diff(&self.settings, &settings).map_err(|mistakes| mistakes.to_string())?;
        let instance = self.common.metrics.instance;
        let info_json = describe(&settings, instance).map_err(|error| error.to_string())?;
        let before = Arc::clone(&self.live_config.borrow());
        let access = rules(&settings, &secrets, &info_json, &before.facts.access);
        let access = access.map_err(|error| error.to_string())?;
        // From here on, a reload fails only if the daemon stops.
        access.apply_rates(clock::os::boot());
        let facts = Facts::new(&settings, info_json, access);
        let supplies = before.supplies.clone();
        let version = before.version + 1;
        self.live_config.send_replace(Arc::new(LiveConfig::new(version, &settings, facts, supplies)));
        self.wait_for_shards(version)?;
        let mut changes: Vec<String> = changed.iter().map(Changed::to_string).collect();
        if secrets.tokens != before.facts.access.tokens {
            changes.push(String::from("other tokens"));
        }
        if let (Some(acceptor), Some(identity)) = (&self.common.tls, secrets.tls)
            && acceptor.replace(identity)
        {
            changes.push(String::from("other certificates"));
        }
        for file in secrets.fleet_files.iter().filter(|file| !self.fleet_files.contains(file)) {
            let setting = file.setting;
            changes.push(format!(
                "{setting} has other contents, which the next connection to the coordinator uses"
            ));
        }
        self.settings = settings;
        self.fleet_files = secrets.fleet_files;
        Ok(if changes.is_empty() { String::from("nothing changed") } else { changes.join(", ") })
    }

    /// Waits until all shards use the configuration with this version, or for [`ADOPTED_WITHIN`] at
    /// most.
    fn wait_for_shards(&self, version: u64) -> Result<(), String> {
        let deadline = Instant::now() + ADOPTED_WITHIN;
        let mut awaited = self.common.metrics.shards.len();
        while awaited > 0 {
            match self.adopted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                // A late report of an earlier version, whose reload no longer waits.
                Ok(adopted) if adopted < version => {}
                Ok(_) => awaited -= 1,
                Err(RecvTimeoutError::Disconnected) => return Err(String::from("the daemon is stopping")),
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("a shard's thread is blocked, and adopts the new configuration later");
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Copies to the wanted settings the worker IDs that the running daemon picked at its start.
fn keep_picked(running: &Settings, wanted: &mut Settings) {
    for (source, wanted) in running.sources.iter().zip(&mut wanted.sources) {
        if source.name == wanted.name {
            wanted.keep_picked(source);
        }
    }
}
