//! Describes a daemon with these settings, for the output of `check` and the first log messages of
//! `serve`.

use super::conflict::joined;
use super::daemon::rows_of;
use super::fields::keys_of_others;
use super::fleet::FleetSettings;
use super::units::Grouped;
use super::{IdentitySettings, Settings, SourceSettings};

impl SourceSettings {
    /// Returns the IDs per second of all the source's worker IDs together, rounded down. Saturates.
    pub fn ids_per_second(&self) -> u64 {
        let per_tick = u128::from(self.layout.ids_per_tick()) * self.worker_ids.set.len() as u128;
        u64::try_from(per_tick * 1000 / u128::from(self.layout.tick_ms())).unwrap_or(u64::MAX)
    }

    /// Describes the source of this index in one line.
    fn line(&self, index: usize) -> String {
        let SourceSettings { name, layout, increment, offset, worker_id_from, .. } = self;
        if !self.kind.follows_the_clock() {
            let shared = if self.kind.takes_ranges() { ", at the fleet's coordinator" } else { "" };
            return format!(
                "source {index} {name:?}: ticket counter, increment {increment}, offset {offset}{shared}"
            );
        }
        if !self.has_worker_ids() {
            return format!(
                "source {index} {name:?}: {layout}; worker picked at the start ({worker_id_from})"
            );
        }
        let set = &self.worker_ids.set;
        let workers = if set.len() == 1 { "worker" } else { "workers" };
        let rate = Grouped(self.ids_per_second());
        let end = layout.end().date();
        format!("source {index} {name:?}: {layout}; {workers} {set}, {rate} IDs/s until {end}")
    }
}

impl Settings {
    /// Describes the daemon in lines: its listeners, its certificate, its fleet and each source.
    /// [`StatePlace`](super::StatePlace) describes the state.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = vec![format!("listens on {}; {}", joined(&self.listen), self.manner())];
        for (protocol, addresses) in self.listeners().into_iter().skip(1).filter(|(_, at)| !at.is_empty()) {
            lines.push(format!("{} on {}", protocol.name(), joined(addresses)));
        }
        if !self.admin.listen.is_empty() {
            lines.push(format!("admin on {}", joined(&self.admin.listen)));
        }
        lines.extend(self.supplies());
        lines
    }

    /// Describes the daemon as [`summary`](Self::summary) does, without addresses: `serve` writes
    /// addresses to standard output.
    pub fn summary_without_addresses(&self) -> Vec<String> {
        let mut lines = vec![format!("serves with {}", self.manner())];
        lines.extend(self.supplies());
        lines
    }

    fn manner(&self) -> String {
        let shards = if self.shards.get() == 1 { "shard" } else { "shards" };
        let tokens = match &self.auth.token_file {
            Some(file) => format!("tokens of {file}"),
            None => "no token asked for".into(),
        };
        format!("{} {shards}, order {}, {tokens}", self.shards, self.order.name())
    }

    /// Describes the certificate, the fleet and the sources.
    fn supplies(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(certificate) = &self.tls.certificate {
            let clients = match &self.tls.client_ca {
                Some(file) => format!("clients need a certificate of {file}"),
                None => String::from("clients need no certificate"),
            };
            lines.push(format!("TLS with the certificate {certificate}; {clients}"));
        }
        if let Some(kind) = self.fleet.coordinator {
            let FleetSettings { name, horizon, .. } = &self.fleet;
            lines.push(format!(
                "fleet {name:?} at {}, horizon {horizon:?}",
                joined(&self.fleet.members(kind))
            ));
        }
        lines.extend(self.sources.iter().enumerate().map(|(index, source)| source.line(index)));
        lines
    }

    /// Returns a line for each setting with its value, such as `limits.max_wait = "10s"`. The lines
    /// have no secrets: tokens and keys are in files of their own.
    pub fn to_text(&self) -> String {
        let shown = rows_of(self.sources.len()).filter(|(row, source)| {
            let kind = source.map(|index| self.sources[index].kind);
            kind.is_none_or(|kind| !keys_of_others(kind).contains(&row.key))
        });
        let identities = (0..self.identities.len())
            .flat_map(|index| IdentitySettings::ROWS.iter().map(move |row| (row, Some(index))));
        let mut text = String::new();
        for (row, index) in shown.chain(identities) {
            let value = (row.show)(self, index.unwrap_or(0));
            text += &format!("{} = {value}\n", row.full_key(index));
        }
        text
    }
}
