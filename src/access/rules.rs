//! The identities, tokens and authorities of one configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{ANONYMOUS, IdentitySettings, SourceSettings, TokenHash, Tokens};
use crate::tls::Authorities;
use snowbank_client::tls::names::CertificateName;

/// A client that has a name of its own, and its limits.
#[derive(Debug)]
pub struct Identity {
    /// Its name in logs and metrics.
    pub name: String,
    /// A bit for each source that it may draw from, by index.
    sources: u64,
    /// The JSON of its INFO reply, if that differs from everyone else's.
    pub info_json: Option<Vec<u8>>,
}

const _: () = assert!(crate::config::SOURCES_MAX <= u64::BITS as usize);

impl Identity {
    /// Creates an identity of these sources.
    pub fn new(settings: &IdentitySettings, sources: &[SourceSettings]) -> Self {
        let bit = |(index, source): (usize, &SourceSettings)| match &settings.sources {
            Some(names) if !names.contains(&source.name) => 0,
            _ => 1 << index,
        };
        let sources = sources.iter().enumerate().map(bit).fold(0, |sources, bit| sources | bit);
        Identity { name: settings.name.clone(), sources, info_json: None }
    }

    /// Returns whether it may draw from the source of this index.
    #[inline]
    pub fn may_draw(&self, source: usize) -> bool {
        self.sources >> source & 1 == 1
    }
}

/// Everything that decides who a client is. By default every client is accepted, and none has an identity.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The tokens, one of which a client must send first. `None`: no token is required.
    pub tokens: Option<Tokens>,
    /// The identities by name.
    identities: BTreeMap<String, Arc<Identity>>,
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

    /// Returns the identity of clients that have no other, if it has one.
    pub(super) fn anonymous(&self) -> Option<&Arc<Identity>> {
        self.identities.get(ANONYMOUS)
    }

    /// Returns whether any certificate has an identity.
    pub(super) fn knows_certificates(&self) -> bool {
        !self.by_certificate.is_empty()
    }

    /// Returns the identity of a certificate with these names: that of the first that has one.
    pub(super) fn of_certificate(&self, names: &[CertificateName]) -> Option<&Arc<Identity>> {
        names.iter().find_map(|name| self.by_certificate.get(name))
    }

    /// Returns the identity of a token; `None` if it is not one of the tokens.
    pub(super) fn of_token(&self, hash: &TokenHash) -> Option<Option<&Arc<Identity>>> {
        let name = self.tokens.as_ref()?.identity_of(hash)?;
        // A name without an identity is refused when the file is read.
        Some(name.and_then(|name| self.identities.get(name)))
    }
}
