//! Reloads the configuration of a running daemon. A reload replaces the whole configuration, or
//! changes nothing.
//!
//! The steps that can fail come first: [`diff`] refuses settings that need a restart. Then every
//! shard adopts the new [`LiveConfig`] between two of its turns.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::control::Control;
use super::start::Reloaded;
use crate::admin::LastReload;
use crate::clock;
use crate::config::{Changed, Secrets, Settings, diff};
use crate::server::shared::live_config::LiveConfig;
use crate::service;

/// The longest time that a reload waits for the shards. A turn takes far less time. If a shard's
/// thread is blocked for longer, it adopts the newest configuration when it continues.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

impl Control {
    /// Reads the configuration again and applies it. Reports the result to the log, to the status,
    /// and to the service manager.
    pub(super) fn reload(&mut self) {
        self.log_choices();
        self.notifier.reloading();
        service::reload_begins();
        let outcome = self.read_and_apply();
        let result = outcome.as_ref().map(drop).map_err(String::as_str);
        self.record(result);
        service::reload_ended(result);
        match outcome {
            Ok((changes, warnings)) => {
                tracing::info!("{changes}");
                for warning in warnings.iter().filter(|warning| !self.warned.contains(warning)) {
                    tracing::warn!("{warning}");
                }
                self.warned = warnings;
            }
            Err(reasons) => {
                for reason in reasons.lines() {
                    tracing::error!("reload refused: {reason}");
                }
                tracing::error!("nothing was reloaded: the daemon keeps its configuration");
            }
        }
        self.logs.settle_level();
        self.notifier.reloaded();
    }

    /// Returns the changes and the warnings of the new settings, or the reasons for a refusal, one
    /// on each line.
    fn read_and_apply(&mut self) -> Result<(String, Vec<String>), String> {
        let Reloaded { settings, secrets, warnings, level, has_file } = (self.reread)()?;
        let changes = self.apply(settings, secrets)?;
        self.logs.set_level(level);
        let without =
            if has_file { "" } else { " without a configuration file, because none was given (--config)" };
        Ok((format!("reloaded{without}: {changes}"), warnings))
    }

    /// Stores the result of a reload for the status. An error has one reason for the refusal on
    /// each line.
    fn record(&self, result: Result<(), &str>) {
        let at_unix_s = clock::os::read().wall.0 as f64 / 1e6;
        let refused = result.err().map(|reasons| reasons.replace('\n', "; "));
        *self.common.metrics.last_reload() = Some(LastReload { at_unix_s, refused });
    }

    /// Makes these settings, tokens and certificates live. Blocks until all shards use them, or for
    /// 10 s at most. Returns all changes in one line.
    ///
    /// # Errors
    /// Nothing was changed, or the daemon is stopping. Returns the reasons, one on each line.
    fn apply(&mut self, mut settings: Settings, secrets: Secrets) -> Result<String, String> {
        keep_picked(&self.settings, &mut settings);
        let changed = diff(&self.settings, &settings).map_err(|mistakes| mistakes.to_string())?;
        let before = Arc::clone(&self.live_config.borrow());
        let instance = self.common.metrics.instance;
        let supplies = before.supplies.clone();
        let next = LiveConfig::after(&before, &settings, &secrets, supplies, instance);
        let next = next.map_err(|error| error.to_string())?;
        // From here on, a reload fails only if the daemon stops.
        next.facts.access.apply_rates(clock::os::boot());
        let version = next.version;
        self.live_config.send_replace(Arc::new(next));
        self.wait_for_shards(version)?;
        let mut changes: Vec<String> = changed.iter().map(Changed::to_string).collect();
        if secrets.tokens != before.facts.access.tokens {
            changes.push(String::from("other tokens"));
        }
        if let (Some(acceptor), Some(identity)) = (&self.common.tls, secrets.tls.clone())
            && acceptor.replace(identity)
        {
            changes.push(String::from("other certificates"));
        }
        for file in secrets.fleet_files.iter().filter(|file| !self.secrets.fleet_files.contains(file)) {
            let setting = file.setting;
            changes.push(format!(
                "{setting} has other contents, which the next connection to the coordinator uses"
            ));
        }
        self.settings = Arc::new(settings);
        self.secrets = secrets;
        Ok(if changes.is_empty() { String::from("nothing changed") } else { changes.join(", ") })
    }

    /// Waits until all shards use the configuration with this version, or for [`ADOPTED_WITHIN`] at
    /// most.
    pub(super) fn wait_for_shards(&self, version: u64) -> Result<(), String> {
        let deadline = Instant::now() + ADOPTED_WITHIN;
        let mut awaited = self.common.metrics.shards.len();
        while awaited > 0 {
            match self.adopted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                // A late report of an earlier version, for which nobody waits any longer.
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
