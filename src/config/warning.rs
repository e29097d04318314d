//! Warnings: what a configuration allows, but is probably a mistake. In words for whoever writes the
//! configuration.

use std::path::PathBuf;

use super::conflict::joined;
use super::identities::ANONYMOUS;
use super::settle_source::{apart, label};
use super::state_dir::in_command;
use super::{Address, NoCredentials, Replies, Settings, SourceSettings};
use snowbank_id::layout::{Life, UnixMicros};

/// The largest number up to which a double holds every integer.
const EXACT_INTEGERS: u64 = 1 << 53;

/// A token with fewer bytes can be guessed.
pub(super) const TOKEN_BYTES_SAFE: usize = 16;

/// Something that a configuration, or a file that it names, allows, but that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The layout of a source ends in less than a year.
    #[error(
        "the layout of source {source_name:?} ends {end}, in {days} days: plan for another (more time, or, for a table \
         without its IDs, a later epoch)"
    )]
    LayoutEnds {
        /// The name of the source.
        source_name: String,
        /// The date of the end.
        end: String,
        /// The time until the end.
        days: u64,
    },
    /// Other machines can draw IDs here without a token.
    #[error(
        "{} can be reached from other machines, and no token is asked for (auth.token_file): everyone who gets there can \
         draw IDs",
        joined(.0)
    )]
    OpenToEveryone(Vec<Address>),
    /// Clients send their tokens here without encryption.
    #[error(
        "tokens cross the network to {} unencrypted: everyone who sees the traffic can read them; write tls: in front",
        joined(.0)
    )]
    PlainTokens(Vec<Address>),
    /// No listener speaks TLS.
    #[error(
        "a TLS certificate is set, but no listener has tls: in front of its address: nothing is encrypted"
    )]
    UnusedCertificate,
    /// Other machines can read the daemon's status.
    #[error(
        "the admin address {} can be reached from other machines: everyone who gets there can read the daemon's status, \
         but no IDs",
        joined(.0)
    )]
    OpenAdmin(Vec<Address>),
    /// This listener asks for no token, although the other listeners do.
    #[error("{address} asks for no token ({exemption}): everyone who can connect to it draws IDs")]
    Exempt {
        /// The listener.
        address: Address,
        /// The setting that exempts the listener.
        exemption: &'static str,
    },
    /// Other daemons of this machine do not use this lock directory by default.
    #[error(
        "locks of worker IDs are in {}, not in {}: nothing keeps daemons of this machine with another lock_dir from \
         using the same worker IDs",
        found.display(),
        usual.display()
    )]
    OtherLockDir {
        /// The directory.
        found: PathBuf,
        /// The default.
        usual: PathBuf,
    },
    /// JavaScript's clients read INCR replies of this source inexactly, so that two IDs become one.
    #[error(
        "IDs of source {0:?} are above 2^53, where clients in JavaScript read integers inexactly, so that two IDs \
         become one: for such clients set resp.replies = \"auto\" or \"string\""
    )]
    Inexact(String),
    /// Two sources make the same IDs at different times, because their epochs are years apart.
    #[error(
        "{one}, worker {}, and {two}, worker {}, make the same IDs {apart} apart, because their epochs are that far \
         apart: never use both for one table, or give one of them other worker IDs",
        .workers.0,
        .workers.1
    )]
    RepeatedLater {
        /// The one source.
        one: String,
        /// The other source.
        two: String,
        /// A worker ID of each that make the same IDs.
        workers: (u64, u64),
        /// The time between the same IDs.
        apart: String,
    },
    /// A file of this setting can be read only by the service.
    #[error("{key}: {error}; not checked here")]
    Unchecked {
        /// The setting.
        key: &'static str,
        /// The reason.
        error: NoCredentials,
    },
    /// Users besides the owner and the group of a file with a secret can read it.
    #[error(
        "{what} {path} can be read by every user of this machine (mode {mode:04o}): chmod o-rwx {}",
        in_command(path),
        path = path.display()
    )]
    OpenFile {
        /// The file, in words.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// So many tokens can be guessed.
    #[error(
        "{} fewer than {TOKEN_BYTES_SAFE} bytes and can be guessed; `snowbank token` makes one that cannot",
        if *.0 == 1 { String::from("1 token has") } else { format!("{} tokens have", .0) }
    )]
    ShortTokens(usize),
    /// No client can have this identity.
    #[error(
        "no client can have the identity {0:?}: write \"{0}: TOKEN\" into auth.token_file (the second line of \
         `snowbank token {0}`), or give it certificate_names"
    )]
    NobodysIdentity(String),
    /// No client can draw an ID, whoever it is.
    #[error(
        "no client can draw an ID: each identity that a client can have has `sources = []`; name sources in one of them, or \
         allow \"all\""
    )]
    NobodyDraws,
    /// Peers get no token, because the token file has only hashes.
    #[error(
        "fleet.peers: found only hashes in auth.token_file, so peers that ask for a token do not tell their worker IDs; \
         write a token itself into one of the file's lines"
    )]
    NoTokenForPeers,
    /// These peers get no token, because it would cross the network unencrypted.
    #[error(
        "fleet.peers: found {} without tls:, so the daemon sends no token there, and a peer that asks for one does not \
         tell its worker IDs; let it listen over TLS, and write tls:HOST:PORT",
        joined(.0)
    )]
    PlainPeers(Vec<Address>),
    /// Clients refuse the daemon's certificate, or soon will.
    #[error("{0}")]
    Certificate(String),
}

impl Settings {
    /// Returns whether a listener at this address takes clients without a certificate.
    fn needs_no_certificate(&self, address: &Address) -> bool {
        !address.is_tls() || self.tls.client_ca.is_none()
    }

    /// Returns the addresses that anyone on another machine can use without a certificate.
    fn open_addresses<'a>(&self, addresses: impl Iterator<Item = &'a Address>) -> Vec<Address> {
        addresses
            .filter(|address| !address.is_local() && self.needs_no_certificate(address))
            .cloned()
            .collect()
    }

    /// Returns a line for each setting that is allowed but probably a mistake.
    pub fn warnings(&self, now: UnixMicros) -> Vec<Warning> {
        let mut warnings: Vec<Warning> =
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
    fn exempt_from_tokens(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (protocol, addresses) in self.listeners() {
            if self.auth.token_file.is_some()
                && let Some(exemption) = protocol.token_exemption()
                && let Some(address) = addresses.iter().find(|address| self.needs_no_certificate(address))
            {
                warnings.push(Warning::Exempt { address: address.clone(), exemption });
            }
        }
        warnings
    }

    /// Warns of listeners that other machines can reach without a token, a certificate or
    /// encryption, and of an unused certificate.
    fn open_to_everyone(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let open = self.open_addresses(self.client_addresses());
        let anyone_draws =
            !self.identities.iter().any(|identity| identity.name == ANONYMOUS && identity.draws_nothing());
        if self.auth.token_file.is_none() && anyone_draws && !open.is_empty() {
            warnings.push(Warning::OpenToEveryone(open));
        }
        let plain = self.client_addresses().filter(|address| !address.is_local() && !address.is_tls());
        let plain: Vec<Address> = plain.cloned().collect();
        if self.auth.token_file.is_some() && !plain.is_empty() {
            warnings.push(Warning::PlainTokens(plain));
        }
        if self.tls.certificate.is_some()
            && !self.client_addresses().chain(&self.admin.listen).any(Address::is_tls)
        {
            warnings.push(Warning::UnusedCertificate);
        }
        let open_admin = self.open_addresses(self.admin.listen.iter());
        if !open_admin.is_empty() {
            warnings.push(Warning::OpenAdmin(open_admin));
        }
        warnings
    }

    /// Warns of a lock directory that other daemons of this machine do not use by default.
    fn other_lock_dir(&self) -> Option<Warning> {
        let usual = Settings::default().lock_dir;
        let found = self.lock_dir.clone();
        (found != usual && !self.has_fleet_for_all()).then_some(Warning::OtherLockDir { found, usual })
    }

    /// Returns true if the coordinator keeps the IDs of every source of this daemon unique. If so,
    /// it does not matter which daemons see the locks of this daemon.
    pub(crate) fn has_fleet_for_all(&self) -> bool {
        self.fleet.is_used() && !self.sources.iter().any(|source| source.kind.counts_by_itself())
    }

    /// Warns of INCR replies that JavaScript's clients read inexactly, so that two IDs become one.
    fn inexact_in_javascript(&self) -> Option<Warning> {
        let is_asked =
            !self.front_ends.resp.listen.is_empty() && self.front_ends.resp.replies == Replies::Integer;
        let source = self
            .sources
            .iter()
            .filter(|_| is_asked)
            .find(|source| source.own_layout().is_some_and(|layout| layout.last_id() > EXACT_INTEGERS))?;
        Some(Warning::Inexact(source.name.clone()))
    }

    /// Warns of pairs of sources that make the same IDs at different times, because their epochs
    /// are years apart. If the epochs are nearer, the configuration is refused.
    fn repeated_later(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let sources = self.sources.iter().enumerate().filter(|(_, source)| source.has_worker_ids());
        for (two, right) in sources.clone() {
            let workers = &right.worker_ids.set;
            for (one, left) in sources.clone().take_while(|(one, _)| *one < two) {
                if let Some(workers) = left.layout.collision(&left.worker_ids.set, &right.layout, workers)
                    && let Some(apart) = apart(left, right)
                {
                    let (one, two) = (label(one, left), label(two, right));
                    warnings.push(Warning::RepeatedLater { one, two, workers, apart });
                }
            }
        }
        warnings
    }
}

fn ends_soon(source: &SourceSettings, now: UnixMicros) -> Option<Warning> {
    let Life::LastYear { left } = source.own_layout()?.life(now) else { return None };
    let end = source.layout.end().date();
    Some(Warning::LayoutEnds { source_name: source.name.clone(), end, days: left.as_secs() / 86_400 })
}
