//! The identity of one connection.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use super::rules::{Identity, Rules};
use crate::config::{ANONYMOUS, TokenHash, Tokens};
use crate::tls::Authorities;
use snowbank_client::tls::names;

/// Why a connection is closed that asks for IDs, or that had them until a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The token is none of the daemon's.
    UnknownToken,
    /// The token and the certificate have different identities.
    TwoIdentities,
    /// A reload took the token away.
    TokenRevoked,
    /// A reload took the certificate's authority or its identity away.
    CertificateRevoked,
}

/// The chain of a TLS client's certificates, its own first, as the handshake left it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'c> {
    /// The certificates; none if the daemon asked for none.
    pub chain: &'c [CertificateDer<'c>],
    /// The [digest](Authorities::digest) of the authorities that the chain was checked against; 0 for none.
    pub checked_by: u64,
}

/// What a connection has shown, and the identity that follows from it.
#[derive(Debug)]
pub struct Session {
    /// The version of the configuration that it follows from.
    version: u64,
    identity: Option<Arc<Identity>>,
    /// True if the certificate alone gives it an identity.
    has_named_certificate: bool,
    token: Option<Box<TokenHash>>,
    is_authorized: bool,
    /// The digest of the authorities that last trusted its certificate.
    trusted_by: u64,
}

impl Session {
    /// Begins the session of a connection. `shown` is `None` without TLS.
    pub fn new(rules: &Rules, version: u64, shown: Option<Shown<'_>>) -> Self {
        let of_certificate = shown.and_then(|shown| identity_of(shown.chain, rules));
        let trusted_by = shown.map_or(0, |shown| shown.checked_by);
        // A handshake may have begun before a reload of the authorities. Its certificate is then checked again.
        let is_current = shown.is_none() || trusted_by == digest_of(rules);
        Session {
            version: if is_current { version } else { OUTDATED },
            has_named_certificate: of_certificate.is_some(),
            identity: of_certificate.or(rules.anonymous()).cloned(),
            token: None,
            is_authorized: rules.tokens.is_none(),
            trusted_by,
        }
    }

    /// Returns whether it may ask for IDs.
    #[inline]
    pub fn is_authorized(&self) -> bool {
        self.is_authorized
    }

    /// Returns its identity, if it has one.
    #[inline]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Returns whether it may draw from the source of this index.
    #[inline]
    pub fn may_draw(&self, source: usize) -> bool {
        self.identity.as_ref().is_none_or(|identity| identity.may_draw(source))
    }

    /// Takes a token that the client shows. A daemon that requires none keeps it for the reload that does.
    ///
    /// # Errors
    /// The connection must be closed, for this reason.
    pub fn show_token(&mut self, token: &[u8], rules: &Rules) -> Result<(), Denial> {
        let hash = Tokens::hash(token);
        if rules.tokens.is_some() {
            let of_token = rules.of_token(&hash).ok_or(Denial::UnknownToken)?;
            let of_certificate = self.identity.as_ref().filter(|_| self.has_named_certificate);
            self.identity = one_of(of_certificate, of_token)?.or(rules.anonymous()).cloned();
        }
        self.token = Some(Box::new(hash));
        self.is_authorized = true;
        Ok(())
    }

    /// Returns whether it follows from the configuration of this version.
    #[inline]
    pub fn is_of(&self, version: u64) -> bool {
        self.version == version
    }

    /// Follows another configuration. `shown` is `None` without TLS.
    ///
    /// # Errors
    /// The configuration takes away what the client has shown, so the connection must be closed.
    pub fn renew(&mut self, rules: &Rules, version: u64, shown: Option<Shown<'_>>) -> Result<(), Denial> {
        self.version = version;
        if let Some(shown) = shown {
            self.check_chain(rules, shown.chain)?;
        }
        let of_certificate = shown.and_then(|shown| identity_of(shown.chain, rules));
        let of_token = match &self.token {
            Some(hash) if rules.tokens.is_some() => rules.of_token(hash).ok_or(Denial::TokenRevoked)?,
            _ => None,
        };
        let identity = one_of(of_certificate, of_token)?;
        if self.has_named_certificate && of_certificate.is_none() {
            return Err(Denial::CertificateRevoked);
        }
        let had_name = self.identity.as_ref().is_some_and(|identity| identity.name != ANONYMOUS);
        if had_name && identity.is_none() {
            return Err(Denial::TokenRevoked);
        }
        self.has_named_certificate = of_certificate.is_some();
        self.identity = identity.or(rules.anonymous()).cloned();
        self.is_authorized = rules.tokens.is_none() || self.token.is_some();
        Ok(())
    }

    /// Checks the client's certificate if the authorities are others than those that trusted it.
    fn check_chain(&mut self, rules: &Rules, chain: &[CertificateDer<'_>]) -> Result<(), Denial> {
        let digest = digest_of(rules);
        if digest != self.trusted_by && rules.authorities.as_ref().is_some_and(|by| !by.trust(chain)) {
            return Err(Denial::CertificateRevoked);
        }
        self.trusted_by = digest;
        Ok(())
    }
}

/// The version of no configuration.
const OUTDATED: u64 = u64::MAX;

fn digest_of(rules: &Rules) -> u64 {
    rules.authorities.as_ref().map_or(0, Authorities::digest)
}

/// Returns the identity of a certificate or of a token. Both may have the same one.
fn one_of<'r>(
    of_certificate: Option<&'r Arc<Identity>>,
    of_token: Option<&'r Arc<Identity>>,
) -> Result<Option<&'r Arc<Identity>>, Denial> {
    match (of_certificate, of_token) {
        (Some(one), Some(other)) if one.name != other.name => Err(Denial::TwoIdentities),
        (one, other) => Ok(other.or(one)),
    }
}

fn identity_of<'r>(chain: &[CertificateDer<'_>], rules: &'r Rules) -> Option<&'r Arc<Identity>> {
    // Most daemons know no certificate by its name, so they do not read any.
    chain
        .first()
        .filter(|_| rules.knows_certificates())
        .and_then(|own| rules.of_certificate(&names::names(own)))
}
