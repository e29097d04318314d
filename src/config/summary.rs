//! Describes a daemon with these settings, for the output of `check` and the first log messages of
//! `serve`.

use super::daemon::rows_of;
use super::fields::keys_of_others;
use super::fleet::FleetSettings;
use super::settle_source::{apart, label};
use super::units::Grouped;
use super::{Address, IdentitySettings, Replies, Settings, SourceSettings};
use snowbank_id::layout::{Life, UnixMicros};

/// The largest number up to which a double holds every integer.
const EXACT_INTEGERS: u64 = 1 << 53;

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

    /// Returns whether a listener at this address takes clients without a certificate.
    fn needs_no_certificate(&self, address: &Address) -> bool {
        !address.is_tls() || self.tls.client_ca.is_none()
    }

    /// Returns the first address that anyone on another machine can use without a certificate.
    fn open_address<'a>(&self, mut addresses: impl Iterator<Item = &'a Address>) -> Option<&'a Address> {
        addresses.find(|address| !address.is_local() && self.needs_no_certificate(address))
    }

    /// Returns a line for each setting that is allowed but probably a mistake.
    pub fn warnings(&self, now: UnixMicros) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.sources.iter().filter_map(|source| ends_soon(source, now)).collect();
        warnings.extend(self.open_to_everyone());
        warnings.extend(self.exempt_from_tokens());
        warnings.extend(self.inexact_in_javascript());
        warnings.extend(self.other_lock_dir());
        warnings.extend(self.repeated_later());
        warnings
    }

    /// Returns the doubts about layouts that a check and a source's first start show. Later starts
    /// do not repeat them, because a layout in use is not easily replaced.
    pub fn doubts(&self, now: UnixMicros) -> impl Iterator<Item = String> {
        self.sources.iter().flat_map(move |source| source.doubts(now))
    }

    /// Warns of listeners that ask for no token, although the other listeners do.
    fn exempt_from_tokens(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (protocol, addresses) in self.listeners() {
            if self.auth.token_file.is_some()
                && let Some(exemption) = protocol.token_exemption()
                && let Some(address) = addresses.iter().find(|address| self.needs_no_certificate(address))
            {
                warnings.push(format!(
                    "{address} asks for no token ({exemption}): everyone who can connect to it draws IDs"
                ));
            }
        }
        warnings
    }

    /// Warns of listeners that other machines can reach without a token, a certificate or
    /// encryption, and of an unused certificate.
    fn open_to_everyone(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.auth.token_file.is_none()
            && let Some(address) = self.open_address(self.client_addresses())
        {
            warnings.push(format!(
                "{address} can be reached from other machines and asks for no token (auth.token_file): everyone \
                 who reaches it can draw IDs"
            ));
        }
        if self.auth.token_file.is_some()
            && let Some(address) =
                self.client_addresses().find(|address| !address.is_local() && !address.is_tls())
        {
            warnings.push(format!(
                "tokens cross the network to {address} unencrypted: everyone who sees the traffic can read them; use \
                 tls:{address}"
            ));
        }
        if self.tls.certificate.is_some()
            && !self.client_addresses().chain(&self.admin.listen).any(Address::is_tls)
        {
            warnings.push(String::from(
                "a TLS certificate is set, but no listener has tls: in front of its address: nothing is encrypted",
            ));
        }
        if let Some(address) = self.open_address(self.admin.listen.iter()) {
            warnings.push(format!(
                "the admin address {address} can be reached from other machines: everyone who reaches it can read the \
                 daemon's status, but no IDs"
            ));
        }
        warnings
    }

    /// Warns of a lock directory that other daemons of this machine do not use by default.
    fn other_lock_dir(&self) -> Option<String> {
        let usual = Settings::default().lock_dir;
        (self.lock_dir != usual && !self.has_fleet_for_all()).then(|| {
            format!(
                "locks of worker IDs are in {}, not in {}: nothing keeps daemons of this machine with another lock_dir from \
                 using the same worker IDs",
                self.lock_dir.display(),
                usual.display()
            )
        })
    }

    /// Returns true if the coordinator keeps the IDs of every source of this daemon unique. If so,
    /// it does not matter which daemons see the locks of this daemon.
    pub(crate) fn has_fleet_for_all(&self) -> bool {
        self.fleet.is_used() && !self.sources.iter().any(|source| source.kind.counts_by_itself())
    }

    /// Warns of INCR replies that JavaScript's clients read inexactly, so that two IDs become one.
    fn inexact_in_javascript(&self) -> Option<String> {
        let is_asked =
            !self.front_ends.resp.listen.is_empty() && self.front_ends.resp.replies == Replies::Integer;
        let source = self
            .sources
            .iter()
            .filter(|_| is_asked)
            .find(|source| source.own_layout().is_some_and(|layout| layout.last_id() > EXACT_INTEGERS))?;
        Some(format!(
            "IDs of source {:?} are above 2^53, where clients in JavaScript read integers inexactly, so that two IDs become \
             one: for such clients set resp.replies = \"auto\" or \"string\"",
            source.name
        ))
    }

    /// Warns of pairs of sources that make the same IDs at different times, because their epochs
    /// are years apart. If the epochs are nearer, the configuration is refused.
    fn repeated_later(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let sources = self.sources.iter().enumerate().filter(|(_, source)| source.has_worker_ids());
        for (two, right) in sources.clone() {
            let workers = &right.worker_ids.set;
            for (one, left) in sources.clone().take_while(|(one, _)| *one < two) {
                if let Some((worker, other)) =
                    left.layout.collision(&left.worker_ids.set, &right.layout, workers)
                    && let Some(apart) = apart(left, right)
                {
                    warnings.push(format!(
                        "{}, worker {worker}, and {}, worker {other}, make the same IDs {apart} apart, because their \
                         epochs are that far apart: never use both for one table, or give one of them other worker IDs",
                        label(one, left),
                        label(two, right),
                    ));
                }
            }
        }
        warnings
    }
}

fn ends_soon(source: &SourceSettings, now: UnixMicros) -> Option<String> {
    let Life::LastYear { left } = source.own_layout()?.life(now) else { return None };
    Some(format!(
        "the layout of source {:?} ends {}, in {} days: plan for another (more time, or, for a table without its IDs, a later epoch)",
        source.name,
        source.layout.end().date(),
        left.as_secs() / 86_400
    ))
}

fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
