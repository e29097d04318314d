//! The settings of one identity: a name for one client or several, and how much these clients may
//! draw.

use std::collections::BTreeMap;

use super::Settings;
use super::conflict::Conflict;
use super::input::Findings;
use super::setting::{Change::Reload, Section::Identity};
use snowbank_tls::names::CertificateName;

/// The most identities of a daemon. Each has a counter for each source on each shard.
pub const IDENTITIES_MAX: usize = 256;

/// The identity of every client that has no other.
pub const ANONYMOUS: &str = "anonymous";

settings! {
    /// One identity.
    pub struct IdentitySettings in Identity, at |settings, index| (settings.identities[index]) {
        /// The name of this identity in logs, metrics and the token file. It has the characters of
        /// a source's name. A client has it by its token ("NAME: TOKEN" in auth.token_file) or by
        /// its certificate (certificate_names).
        ///
        /// "anonymous" is the identity of every client without another one. With `sources = []` it
        /// may draw no IDs.
        name: String = r#""anonymous""#, Reload, |value| value.name();

        /// The names of this identity's client certificates, as in their subjectAltName: DNS names,
        /// URIs, email or IP addresses, each compared as a whole. Needs tls.client_ca. Empty: no
        /// certificate has this identity.
        certificate_names: Vec<CertificateName> = "[]", Reload, |value| value.certificate_names();

        /// The names of the sources that it may draw from; "all" allows those that are added later,
        /// too. A request to another source is answered with unknown_source.
        sources: Option<Vec<String>> = r#""all""#, Reload,
            |value| value.or_word("all", |value| value.names());

        /// The most IDs per second that all its connections draw together, 1 to 4,294,967,295, or
        /// "off". After a second without a request, a second's IDs are available at once. A request
        /// beyond the rate waits, or is answered with exhausted at once if it may not wait long
        /// enough.
        rate: Option<u32> = r#""off""#, Reload,
            |value| value.or_word("off", |value| value.count(1..=u64::from(u32::MAX)));
    }
}

impl IdentitySettings {
    /// Returns true if no client of this identity may draw an ID.
    pub(super) fn draws_nothing(&self) -> bool {
        self.sources.as_ref().is_some_and(Vec::is_empty)
    }
}

/// Checks identities against each other and against the sources.
pub(super) fn check(settings: &Settings, findings: &mut Findings) {
    let Settings { identities, sources, tls, .. } = settings;
    check_names("identities", identities.iter().map(|identity| &*identity.name), findings);
    let mut certificates = BTreeMap::new();
    let known: Vec<&str> = sources.iter().map(|source| &*source.name).collect();
    for (index, identity) in identities.iter().enumerate() {
        let name = &identity.name;
        let key = format!("identities[{index}].certificate_names");
        if !identity.certificate_names.is_empty() && name == ANONYMOUS {
            findings.mistake_of(&key, Conflict::NamesOfAnonymous(ANONYMOUS));
        } else if !identity.certificate_names.is_empty() && tls.client_ca.is_none() {
            findings.mistake_of(&key, Conflict::NamesWithoutCa);
        }
        for certificate in &identity.certificate_names {
            if let Some(earlier) = certificates.insert(certificate, index) {
                let name = certificate.to_string();
                findings.mistake_of(&key, Conflict::CertificateTwice { name, earlier });
            }
        }
        for source in identity.sources.iter().flatten() {
            if !known.contains(&source.as_str()) {
                let conflict = Conflict::NoSuchSource { found: source, sources: &known };
                findings.mistake_of(&format!("identities[{index}].sources"), conflict);
            }
        }
    }
}

/// Checks that no two tables of a list have the same name.
pub(super) fn check_names<'n>(list: &str, names: impl Iterator<Item = &'n str>, findings: &mut Findings) {
    let mut indices = BTreeMap::new();
    for (index, name) in names.enumerate() {
        if let Some(earlier) = indices.insert(name, index) {
            let conflict = Conflict::NameTwice { name, list, earlier };
            findings.mistake_of(&format!("{list}[{index}].name"), conflict);
        }
    }
}
