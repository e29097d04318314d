//! The identities, tokens and authorities of one configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use super::pace::Pace;
use super::usage::Usage;
use crate::config::{ANONYMOUS, IdentitySettings, TokenHash, Tokens};
use crate::tls::Authorities;
use snowbank_core::clock::BootMicros;
use snowbank_tls::names::{self, CertificateName};

/// A name for one client or several, and the limits of these clients.
#[derive(Debug)]
pub struct Identity {
    /// The identity's name in logs and metrics.
    pub name: String,
    /// For each source, by index, whether the client may draw from it.
    sources: Box<[bool]>,
    has_all_sources: bool,
    /// The IDs per second that the client may draw. `None`: no rate is set.
    pub rate: Option<u32>,
    /// The rate in force, and how far all connections of this identity together have drawn. `None`:
    /// no rate is set.
    pub(super) pace: Option<Arc<Pace>>,
    pub(crate) usage: Arc<Usage>,
    /// The JSON of the INFO reply to clients of this identity.
    pub info_json: Vec<u8>,
}

impl Identity {
    /// Creates an identity. `sources` has the names of the sources by index. `before` is the identity that had this name before a reload. The new
    /// identity takes over the counts of `before`, and the IDs that `before` drew ahead. The rate
    /// changes once [`Rules::apply_rates`] is called.
    pub fn new(
        settings: &IdentitySettings,
        sources: &[String],
        info_json: Vec<u8>,
        shards: usize,
        before: Option<&Identity>,
    ) -> Self {
        let is_allowed = |source: &String| settings.sources.as_ref().is_none_or(|all| all.contains(source));
        let allowed = sources.iter().map(is_allowed).collect();
        let has_all_sources = settings.sources.is_none();
        let rate = settings.rate;
        let old_pace = before.and_then(|before| before.pace.clone());
        let pace = rate.map(|per_second| old_pace.unwrap_or_else(|| Arc::new(Pace::new(per_second))));
        let usage = before.map_or_else(|| Arc::new(Usage::new(shards)), |before| Arc::clone(&before.usage));
        Identity {
            name: settings.name.clone(),
            sources: allowed,
            has_all_sources,
            rate,
            pace,
            usage,
            info_json,
        }
    }

    /// Returns true if the identity has neither a rate nor a list of sources.
    pub(super) fn is_unlimited(&self) -> bool {
        self.pace.is_none() && self.has_all_sources
    }

    /// Returns whether the client may draw from the source of this index.
    #[inline]
    pub fn may_draw(&self, source: usize) -> bool {
        self.sources.get(source).is_some_and(|&allowed| allowed)
    }
}

/// Everything that decides who a client is. By default every client is accepted, and no client has
/// an identity.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The tokens, one of which a client must send first. `None`: no token is required.
    pub tokens: Option<Tokens>,
    /// The identities by name.
    pub identities: BTreeMap<String, Arc<Identity>>,
    by_certificate: BTreeMap<CertificateName, Arc<Identity>>,
    /// The authorities of clients' certificates. `None`: no certificate is required.
    pub(super) authorities: Option<Authorities>,
}

impl Rules {
    /// Creates the rules of a configuration.
    pub fn new(
        identities: impl IntoIterator<Item = (Identity, Vec<CertificateName>)>,
        tokens: Option<Tokens>,
        authorities: Option<Authorities>,
    ) -> Self {
        let mut rules = Rules { tokens, authorities, ..Rules::default() };
        for (identity, names) in identities {
            let identity = Arc::new(identity);
            let certificates = names.into_iter().map(|name| (name, Arc::clone(&identity)));
            rules.by_certificate.extend(certificates);
            rules.identities.insert(identity.name.clone(), identity);
        }
        rules
    }

    /// Puts these rates in force for all connections, also on shards that still use earlier rules.
    pub fn apply_rates(&self, now: BootMicros) {
        for identity in self.identities.values() {
            if let Some((pace, rate)) = identity.pace.as_ref().zip(identity.rate) {
                pace.set(rate, now);
            }
        }
    }

    /// Returns the identity [`ANONYMOUS`], if it is configured. Clients without another identity
    /// have this one.
    pub(super) fn anonymous(&self) -> Option<&Arc<Identity>> {
        self.identities.get(ANONYMOUS)
    }

    /// Returns the identity of the client's own certificate, the first of the chain. The
    /// certificate's first name that has an identity decides.
    pub(super) fn by_chain(&self, chain: &[CertificateDer<'_>]) -> Option<&Arc<Identity>> {
        // Most configurations name no certificates. With such a configuration, no certificate is
        // read.
        let own = chain.first().filter(|_| !self.by_certificate.is_empty())?;
        names::names(own).iter().find_map(|name| self.by_certificate.get(name))
    }

    /// Returns the identity of a token, if it has one. The outer `None` means that the token is not
    /// one of the daemon's.
    pub(super) fn by_token(&self, hash: &TokenHash) -> Option<Option<&Arc<Identity>>> {
        let name = self.tokens.as_ref()?.identity_of(hash)?;
        // The reader of the token file refuses names that no identity has.
        Some(name.and_then(|name| self.identities.get(name)))
    }
}
