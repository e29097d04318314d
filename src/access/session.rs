//! The identity of one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustls::pki_types::CertificateDer;

use super::access_rules::{Identity, Rules};
use super::pace::{Permit, TooFast};
use crate::config::{ANONYMOUS, TokenHash, Tokens};
use crate::tls::Authorities;
use snowbank_core::clock::BootMicros;

/// The reason, for the log, why a client that has shown no token is rejected.
pub const NO_TOKEN: &str = "no token, and auth.token_file asks for one; give the client a token of that file";

/// The reason why a connection must be closed. Its text is for the client and for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The token is not one of the daemon's.
    #[error("the token is not one of auth.token_file; give the client a token of that file")]
    UnknownToken,
    /// The token and the certificate have different identities.
    #[error(
        "the token has another identity than the certificate; show a token of the certificate's identity"
    )]
    TwoIdentities,
    /// A reload removed the token or its identity.
    #[error("the daemon no longer accepts this token; give the client another one")]
    TokenRevoked,
    /// A reload removed the certificate's authority or its identity, or began to require a
    /// certificate.
    #[error("the daemon no longer accepts this certificate; give the client another one")]
    CertificateRevoked,
}

/// The certificates that a TLS client has shown in the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'c> {
    /// The client's own certificate, then its intermediate certificates. The list is empty if the
    /// daemon asked for no certificate.
    pub chain: &'c [CertificateDer<'c>],
    /// The [digest](Authorities::digest) of the authorities that the chain was checked against; 0
    /// if there were none.
    pub checked_by: u64,
}

/// The token and certificate that a connection has shown, and the identity that follows from them.
#[derive(Debug)]
pub struct Session {
    /// The version of the configuration that the session follows.
    version: u64,
    identity: Option<Arc<Identity>>,
    /// True if the certificate has an identity.
    has_named_certificate: bool,
    token: Option<Box<TokenHash>>,
    is_authorized: bool,
    /// The reason, if a reload has revoked the token or the certificate. The client then draws
    /// nothing.
    revoked: Option<Denial>,
    /// True if the connection's protocol has no place for a token.
    needs_no_token: bool,
    /// The digest of the authorities that last trusted the client's certificate.
    trusted_by: u64,
    is_unlimited: bool,
}

impl Session {
    /// Begins the session of a connection. `shown` is `None` without TLS. `has_tokens` is false for
    /// a protocol that has no place for a token: clients of that protocol need no token.
    pub fn new(rules: &Rules, version: u64, shown: Option<Shown<'_>>, has_tokens: bool) -> Self {
        let by_certificate = shown.and_then(|shown| rules.by_chain(shown.chain));
        let trusted_by = shown.map_or(0, |shown| shown.checked_by);
        // A handshake may have begun before a reload of the authorities. The client's certificate
        // is then checked again.
        let is_current = shown.is_none() || trusted_by == digest_of(rules);
        let mut session = Session {
            version: if is_current { version } else { OUTDATED },
            has_named_certificate: by_certificate.is_some(),
            identity: None,
            token: None,
            is_authorized: rules.tokens.is_none() || !has_tokens,
            revoked: None,
            needs_no_token: !has_tokens,
            trusted_by,
            is_unlimited: true,
        };
        // A client that still owes a token has no identity, unless its certificate has an identity.
        let anonymous = rules.anonymous().filter(|_| session.is_authorized);
        session.become_identity(by_certificate.or(anonymous));
        session
    }

    /// Replaces the session's identity, and updates the connection counts of the old and the new
    /// one.
    fn become_identity(&mut self, identity: Option<&Arc<Identity>>) {
        // Two values are the same identity if they share their counts. If a reload removes an
        // identity and a later reload adds it again, the counts are new.
        let stays = match (&self.identity, identity) {
            (Some(old), Some(new)) => Arc::ptr_eq(&new.usage, &old.usage),
            _ => false,
        };
        if let Some(identity) = identity.filter(|_| !stays) {
            identity.usage.connections.fetch_add(1, Ordering::Relaxed);
            identity.usage.connected.add_shared();
        }
        let old = std::mem::replace(&mut self.identity, identity.cloned());
        self.record_limits();
        if let Some(old) = old.filter(|_| !stays) {
            old.usage.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if the client has no limits. The requests of such a client need no other check.
    #[inline]
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Reserves IDs for a request that was read at `now` and must be answered by `due`, at the rate
    /// of the client's identity. A `partial` request accepts fewer.
    ///
    /// # Errors
    /// The rate does not allow the IDs by `due`. Nothing is reserved.
    pub fn reserve(
        &self,
        now: BootMicros,
        due: BootMicros,
        count: u64,
        partial: bool,
    ) -> Result<Permit, TooFast> {
        match self.identity.as_ref().and_then(|identity| identity.pace.as_ref()) {
            Some(pace) => pace.reserve(now, due, count, partial),
            None => Ok(Permit::unlimited(count, now)),
        }
    }

    /// Updates the value that [`is_unlimited`](Self::is_unlimited) returns.
    fn record_limits(&mut self) {
        let is_unlimited = self.identity.as_ref().is_none_or(|identity| identity.is_unlimited());
        self.is_unlimited = is_unlimited && self.revoked.is_none();
    }

    /// Returns whether the client may ask for IDs.
    #[inline]
    pub fn is_authorized(&self) -> bool {
        self.is_authorized
    }

    /// Returns the client's identity, if it has one.
    #[inline]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Returns whether the client may draw from the source of this index.
    #[inline]
    pub fn may_draw(&self, source: usize) -> bool {
        self.revoked.is_none() && self.identity.as_ref().is_none_or(|identity| identity.may_draw(source))
    }

    /// Returns the name of the client's identity, or [`ANONYMOUS`] without one.
    pub fn name(&self) -> &str {
        self.identity.as_ref().map_or(ANONYMOUS, |identity| &identity.name)
    }

    /// Takes a token that the client shows. The session keeps the token even if the daemon requires
    /// none, because a reload may require one.
    ///
    /// # Errors
    /// The connection must be closed, for this reason.
    pub fn show_token(&mut self, token: &[u8], rules: &Rules) -> Result<(), Denial> {
        let hash = Tokens::hash(token);
        if rules.tokens.is_some() {
            let by_token = rules.by_token(&hash).ok_or(Denial::UnknownToken)?;
            let by_certificate = self.identity.as_ref().filter(|_| self.has_named_certificate).cloned();
            self.become_identity(one_of(by_certificate.as_ref(), by_token)?.or(rules.anonymous()));
        }
        self.token = Some(Box::new(hash));
        self.is_authorized = true;
        Ok(())
    }

    /// Returns whether this is the token that the client has shown.
    pub fn has_shown(&self, token: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|shown| **shown == Tokens::hash(token))
    }

    /// Forgets the token that the client has shown.
    pub fn forget_token(&mut self, rules: &Rules) {
        self.token = None;
        self.is_authorized = rules.tokens.is_none();
        if !self.has_named_certificate {
            self.become_identity(rules.anonymous().filter(|_| self.is_authorized));
        }
    }

    /// Returns the denial, if a reload has revoked the client's token or certificate.
    pub fn revoked(&self) -> Option<Denial> {
        self.revoked
    }

    /// Returns whether the session follows the configuration of this version.
    #[inline]
    pub fn is_of(&self, version: u64) -> bool {
        self.version == version
    }

    /// Follows another configuration. `shown` is `None` without TLS.
    ///
    /// # Errors
    /// The configuration no longer accepts the client's token or certificate, so the connection
    /// must be closed.
    pub fn renew(&mut self, rules: &Rules, version: u64, shown: Option<Shown<'_>>) -> Result<(), Denial> {
        self.version = version;
        let renewed = self.follow(rules, shown);
        self.revoked = renewed.err();
        self.record_limits();
        renewed
    }

    fn follow(&mut self, rules: &Rules, shown: Option<Shown<'_>>) -> Result<(), Denial> {
        if let Some(shown) = shown {
            self.check_chain(rules, shown.chain)?;
        }
        let by_certificate = shown.and_then(|shown| rules.by_chain(shown.chain));
        let by_token = match &self.token {
            Some(hash) if rules.tokens.is_some() => rules.by_token(hash).ok_or(Denial::TokenRevoked)?,
            _ => None,
        };
        let identity = one_of(by_certificate, by_token)?;
        if self.has_named_certificate && by_certificate.is_none() {
            return Err(Denial::CertificateRevoked);
        }
        let had_name = self.identity.as_ref().is_some_and(|identity| identity.name != ANONYMOUS);
        if had_name && identity.is_none() {
            return Err(Denial::TokenRevoked);
        }
        self.has_named_certificate = by_certificate.is_some();
        self.is_authorized = rules.tokens.is_none() || self.token.is_some() || self.needs_no_token;
        self.become_identity(identity.or(rules.anonymous().filter(|_| self.is_authorized)));
        Ok(())
    }

    /// Checks the client's certificate if the authorities have changed since it was checked.
    fn check_chain(&mut self, rules: &Rules, chain: &[CertificateDer<'_>]) -> Result<(), Denial> {
        let digest = digest_of(rules);
        if digest != self.trusted_by && rules.authorities.as_ref().is_some_and(|by| !by.trust(chain)) {
            return Err(Denial::CertificateRevoked);
        }
        self.trusted_by = digest;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.become_identity(None);
    }
}

/// A version that no configuration has.
const OUTDATED: u64 = u64::MAX;

fn digest_of(rules: &Rules) -> u64 {
    rules.authorities.as_ref().map_or(0, Authorities::digest)
}

/// Returns the identity of a certificate or of a token. If both have an identity, it must be the
/// same identity.
fn one_of<'r>(
    by_certificate: Option<&'r Arc<Identity>>,
    by_token: Option<&'r Arc<Identity>>,
) -> Result<Option<&'r Arc<Identity>>, Denial> {
    match (by_certificate, by_token) {
        (Some(one), Some(other)) if one.name != other.name => Err(Denial::TwoIdentities),
        (one, other) => Ok(other.or(one)),
    }
}
