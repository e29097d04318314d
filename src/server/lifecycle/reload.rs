//! Reloads the configuration of a running daemon. A reload replaces the whole configuration, or
//! changes nothing.
//!
//! The steps that can fail come first: [`diff`] refuses settings that need a restart, and new
//! sources take what they need. Then every shard adopts the new [`LiveConfig`] between two of its
//! turns, and removed sources end.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::control::Control;
use super::reread::Reloaded;
use crate::config::{
    Changed, Difference, Machine, Mistakes, SOURCES_MAX, Secrets, Settings, SourceSettings, Unread, diff,
};
use crate::os_clock;
use crate::server::ceilings::keeper_thread::Change;
use crate::server::ceilings::start_sources::awaiting;
use crate::server::health::figures::Figure::MinuteSourceRequests;
use crate::server::health::metrics::LastReload;
use crate::server::shared::live_config::{LiveConfig, Stage, Supply, order_of};
use crate::server::shared::start_error::StartError;
use crate::service;
use snowbank_core::keeper::ManagedSource;

/// The longest time that a reload waits for the shards. A turn takes far less time. If a shard's
/// thread is blocked for longer, it adopts the newest configuration when it continues.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);

/// The reason why a reload changes nothing. `Display` has one reason on each line.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Unread(#[from] Unread),
    /// Settings that need a restart have changed.
    #[error(transparent)]
    NeedsRestart(#[from] Mistakes),
    /// A new source cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "source {to:?} has a worker ID of source {from:?}, which this reload removes: a worker ID does not move from one \
         source to another in one reload; remove the one, reload, then add the other"
    )]
    MovedWorkerId { from: String, to: String },
    #[error(
        "found {0} sources since the daemon's start, allowed: {SOURCES_MAX}, those that reloads have removed \
         included; restart the daemon"
    )]
    TooManySources(usize),
    #[error("the daemon is stopping")]
    Stopping,
}

impl Control {
    /// Reads the configuration again and applies it. Reports the result to the log, to the status,
    /// to the service manager, and to those who asked for it. Serves the first request, and all that
    /// came after it.
    pub(super) fn reload(&mut self, first: Option<Socket>) {
        let askers: Vec<Socket> = first.into_iter().chain(self.requests.try_iter().flatten()).collect();
        self.log_choices();
        self.notifier.reloading();
        let outcome = self.read_and_apply();
        let refused = outcome.as_ref().err().map(Refusal::to_string);
        let result = refused.as_deref().map_or(Ok(()), Err);
        self.record(result);
        askers.into_iter().for_each(|asker| service::answer_reload(asker, result));
        match outcome {
            Ok((changes, warnings)) => {
                tracing::info!("{changes}");
                for warning in warnings.iter().filter(|warning| !self.warned.contains(warning)) {
                    tracing::warn!("{warning}");
                }
                self.warned = warnings;
            }
            Err(refusal) => {
                for reason in refusal.to_string().lines() {
                    tracing::error!("reload refused: {reason}");
                }
                tracing::error!("nothing was reloaded: the daemon keeps its configuration");
            }
        }
        self.logs.settle_level();
        self.notifier.reloaded();
    }

    /// Returns the changes and the warnings of the new settings.
    fn read_and_apply(&mut self) -> Result<(String, Vec<String>), Refusal> {
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
        let at_unix_s = os_clock::read().wall.0 as f64 / 1e6;
        let refused = result.err().map(|reasons| reasons.replace('\n', "; "));
        *self.common.metrics.last_reload() = Some(LastReload { at_unix_s, refused });
    }

    /// Makes these settings, tokens, certificates and sources live. Blocks until all shards use
    /// them, or for 10 s at most. Returns all changes in one line.
    ///
    /// Sources that need no coordinator start before anything changes, so the reload is refused if
    /// one of them cannot. Sources of the fleet start afterwards, or wait, as at a start.
    ///
    /// # Errors
    /// Nothing was changed, or the daemon is stopping.
    fn apply(&mut self, mut settings: Settings, secrets: Secrets) -> Result<String, Refusal> {
        let Difference { changed, continues } = diff(&self.settings, &mut settings)?;
        let picked = settings.pick_worker_ids(&Machine::here()).map_err(StartError::from)?;
        let Sources { supplies, added, removed, renamed } = self.sources_of(&settings, &continues)?;
        let before = Arc::clone(&self.live_config.borrow());
        let instance = self.common.metrics.instance;
        LiveConfig::of(Some(&*before), &settings, &secrets, supplies.clone(), instance)?;
        let first_added = self.supplies.len();
        let own: Vec<usize> = (first_added..supplies.len())
            .filter(|&index| !self.is_of_fleet(&supplies[index].settings))
            .collect();
        let in_use = self.in_use(&removed);
        let old_settings = std::mem::replace(&mut self.settings, Arc::new(settings));
        let old_secrets = std::mem::replace(&mut self.secrets, secrets);
        let served: Vec<usize> = self.granted().map(|(index, _)| index).collect();
        let old_supplies = std::mem::replace(&mut self.supplies, supplies);
        let started = if own.is_empty() { Ok(None) } else { self.prepare(&own) };
        let started = match started {
            Ok(None) if !own.is_empty() => Err(Refusal::Stopping),
            started => started.map_err(Refusal::Start),
        };
        let started = match started {
            Ok(started) => started,
            Err(refusal) => {
                (self.settings, self.secrets, self.supplies) = (old_settings, old_secrets, old_supplies);
                return Err(refusal);
            }
        };
        // From here on, a reload fails only if the daemon stops.
        self.tell_keeper(Change::Added(added));
        match started {
            Some((granted, notes)) => self.grant(granted, notes)?,
            None => {
                let version = self.publish()?;
                self.wait_for_shards(version)?;
            }
        }
        picked.iter().for_each(|line| tracing::info!("{line}"));
        self.rename(renamed);
        self.end_removed(&removed, &served);
        in_use.iter().for_each(|line| tracing::warn!("{line}"));
        let mut changes: Vec<String> = changed.iter().map(Changed::to_string).collect();
        if self.secrets.tokens != before.facts.access.tokens {
            changes.push(String::from("other tokens"));
        }
        if let (Some(acceptor), Some(identity)) = (&self.common.tls, self.secrets.tls.clone())
            && acceptor.replace(identity)
        {
            changes.push(String::from("other certificates"));
        }
        for (setting, digest) in &self.secrets.fleet_files {
            if old_secrets.fleet_files.get(setting) != Some(digest) {
                changes.push(format!(
                    "{setting} has other contents, which the next connection to the coordinator uses"
                ));
            }
        }
        Ok(if changes.is_empty() { String::from("nothing changed") } else { changes.join(", ") })
    }

    /// Returns the sources of a reload. `continues` has for each of its sources the index, in the
    /// present settings, of the source that it continues.
    ///
    /// # Errors
    /// A worker ID would move from one source to another, or the daemon has had too many sources.
    fn sources_of(&self, settings: &Settings, continues: &[Option<usize>]) -> Result<Sources, Refusal> {
        let mut supplies = self.supplies.clone();
        let present = order_of(&self.settings, &self.supplies);
        let gone = (0..present.len()).filter(|at| !continues.contains(&Some(*at)));
        let removed: Vec<usize> = gone.map(|at| present[at]).collect();
        let mut added = Vec::new();
        let mut renamed = Vec::new();
        let now = self.common.wall.believe(os_clock::read());
        for (source, before) in settings.sources.iter().zip(continues) {
            let source = Arc::new(source.clone());
            if let Some(before) = before {
                let index = present[*before];
                if supplies[index].name() != source.name && supplies[index].stage == Stage::Granted {
                    renamed.push((index, source.name.clone()));
                }
                supplies[index].settings = source;
                continue;
            }
            self.refuse_moved(&source, &removed)?;
            let awaited = awaiting(&source, settings.fleet.horizon, now)?;
            let placeholder = Arc::clone(awaited.source());
            supplies.push(Supply::new(source, placeholder, Stage::UnderWay, settings.shards.get()));
            added.push(awaited);
        }
        if supplies.len() > SOURCES_MAX {
            return Err(Refusal::TooManySources(supplies.len()));
        }
        removed.iter().for_each(|&index| supplies[index].stage = Stage::Removed);
        Ok(Sources { supplies, added, removed, renamed })
    }

    /// Refuses a new source that can make IDs of a source that the same reload removes. The lock of
    /// a worker ID is free only once the removed source has ended.
    fn refuse_moved(&self, source: &SourceSettings, removed: &[usize]) -> Result<(), Refusal> {
        if source.is_assigned() {
            return Ok(());
        }
        let numbering = source
            .numbering()
            .map_err(|error| StartError::WrongSetting(format!("source {:?}: {error}", source.name)))?;
        for supply in removed.iter().map(|&index| &self.supplies[index]) {
            if supply.numbering().is_some_and(|removed| removed.shares_ids_with(&numbering)) {
                let [to, from] = [&*source.name, supply.name()].map(str::to_owned);
                return Err(Refusal::MovedWorkerId { from, to });
            }
        }
        Ok(())
    }

    /// Returns a line for each of these sources that had requests in the last minute.
    fn in_use(&self, removed: &[usize]) -> Vec<String> {
        if removed.is_empty() {
            return Vec::new();
        }
        let mut lines = Vec::new();
        for source in self.common.status().samples.sources() {
            let is_removed = removed.iter().any(|&index| self.supplies[index].name() == source.name);
            let requests = source.count(MinuteSourceRequests);
            if is_removed && requests > 0 {
                lines.push(format!(
                    "source {:?} was in use when it was removed: requests in its last minute: {requests}; its clients now get \
                     unknown_source",
                    source.name
                ));
            }
        }
        lines
    }

    /// Gives running sources other names, in the state and at the coordinator.
    fn rename(&self, renamed: Vec<(usize, String)>) {
        if renamed.is_empty() {
            return;
        }
        if let Some(fleet) = self.fleet() {
            let names = renamed.clone();
            let _ = fleet.question(Duration::MAX, move |work| work.member().rename(&names));
        }
        // If a disk that hangs is late, the state keeps the old names, which bind only the order of IDs.
        if let Some(storage) = self.storage() {
            let _ = storage.question(self.disk_limit(), |store| store.rename(renamed));
        }
    }

    /// Ends sources that a reload has removed. A shard that has not adopted the configuration without
    /// them yet claims nothing more of them, because they are sealed first. `served` are the sources
    /// that had a grant. What others have taken, their own try gives back.
    fn end_removed(&self, removed: &[usize], served: &[usize]) {
        if removed.is_empty() {
            return;
        }
        let (ended, result) = mpsc::channel();
        self.tell_keeper(Change::Removed(removed.to_vec(), ended));
        let Ok(Some(ended)) = result.recv() else { return };
        if let Err(reason) = ended.end(self.writers()) {
            tracing::warn!("a removed source ended as after a kill: {reason}");
        }
        let left: Vec<usize> = removed.iter().copied().filter(|index| served.contains(index)).collect();
        if let Some(fleet) = self.fleet().filter(|_| !left.is_empty()) {
            let _ = fleet.question(Duration::MAX, move |work| work.leave(&left));
        }
        for &index in removed {
            tracing::info!("source {:?} has ended", self.supplies[index].name());
        }
    }

    /// Waits until all shards use the configuration with this version, or for [`ADOPTED_WITHIN`] at
    /// most.
    ///
    /// # Errors
    /// The daemon is stopping.
    pub(super) fn wait_for_shards(&self, version: u64) -> Result<(), Refusal> {
        let deadline = Instant::now() + ADOPTED_WITHIN;
        let mut awaited = self.common.metrics.shards.len();
        while awaited > 0 {
            match self.adopted.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                // A late report of an earlier version, for which nobody waits any longer.
                Ok(adopted) if adopted < version => {}
                Ok(_) => awaited -= 1,
                Err(RecvTimeoutError::Disconnected) => return Err(Refusal::Stopping),
                Err(RecvTimeoutError::Timeout) => {
                    tracing::warn!("a shard's thread is blocked, and adopts the new configuration later");
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The sources of a reload.
struct Sources {
    /// All sources, by index.
    supplies: Vec<Supply>,
    /// The new sources, which get the next indices, for the keeper.
    added: Vec<ManagedSource>,
    /// The indices of the sources that are gone.
    removed: Vec<usize>,
    /// The sources with a grant that have another name now.
    renamed: Vec<(usize, String)>,
}
