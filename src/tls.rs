//! TLS of the listeners: a server's certificate and key from files, and handshakes.
//!
//! The client's side, and the code that both sides share, are in `snowbank_tls`. One
//! [`Acceptor`] serves all TLS listeners of a daemon. A reload can replace the acceptor's
//! certificate.
//!
//! Sessions are never resumed. Connections live long, so resumption would save little, and a
//! resumed session could outlive its certificate.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};

use snowbank_tls::fault::{self, Side};
use snowbank_tls::files::{self, FileFault, PemFile, Validity};
use snowbank_tls::provider;

/// An accepted connection after its handshake.
pub type ServerStream<IO> = tokio_rustls::server::TlsStream<IO>;

/// The longest time that a handshake may take, even if `stall_timeout` allows more. A handshake
/// takes one or two round trips, so this limit outlasts a few lost packets.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// The remaining life at which a certificate causes a warning.
const ENDS_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The files of a server: its certificate and key, and the authorities that it trusts.
#[derive(Clone, Copy, Debug)]
pub struct ServerFiles<'a> {
    /// The server's certificate, then the intermediate certificates, in PEM.
    pub certificate: &'a Path,
    /// The certificate's private key, in PEM.
    pub key: &'a Path,
    /// The authorities that must have signed a client's certificate, in PEM. `None`: clients need
    /// no certificate.
    pub client_ca: Option<&'a Path>,
}

impl ServerFiles<'_> {
    fn fault(&self, found: String) -> FileFault {
        FileFault::new(PemFile::Certificate, self.certificate, found)
    }
}

/// The contents of [`ServerFiles`], read and checked against each other.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    config: Arc<ServerConfig>,
    stall_timeout: Duration,
    /// The time in which clients trust the certificate.
    pub validity: Validity,
    is_authority: bool,
    /// The authorities of clients' certificates. `None`: clients need no certificate.
    pub authorities: Option<Authorities>,
    /// A hash of the contents. A reload compares it, to log whether anything changed.
    digest: u64,
}

impl ServerCertificate {
    /// Reads the files. `now` decides whether the certificate has expired.
    ///
    /// # Errors
    /// Returns the first fault, in one line.
    pub fn read(files: ServerFiles<'_>, stall_timeout: Duration, now: Timestamp) -> Result<Self, FileFault> {
        let chain = files::read_chain(files.certificate)?;
        let validity = chain
            .first()
            .and_then(files::validity)
            .ok_or_else(|| files.fault("cannot be used: it is no X.509 certificate".into()))?;
        let is_authority = chain.first().is_some_and(files::is_authority);
        let key = files::read_key(files.key)?;
        if validity.not_after < now {
            return Err(files.fault(format!(
                "found one that expired {}, allowed: a valid one; renew it (this machine's clock shows {})",
                seconds(validity.not_after),
                seconds(now)
            )));
        }
        let authorities = files.client_ca.map(Authorities::read).transpose()?;
        let digest = hash_of(&(&chain, key.secret_der(), authorities.as_ref().map(Authorities::digest)));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| files.fault(error.to_string()))?;
        let builder = match &authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => builder.with_client_cert_verifier(Arc::clone(&authorities.verifier)),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| files::pair_fault(&error, files.certificate, files.key))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        Ok(ServerCertificate { config, stall_timeout, validity, is_authority, authorities, digest })
    }

    /// Returns a warning if the certificate is not valid yet, expires soon, has expired, or is the
    /// certificate of an authority itself, or if one of the authorities has expired.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        if self.is_authority {
            return Some(String::from(
                "the TLS certificate is an authority's own (CA:TRUE), which Snowbank's clients and many others refuse: \
                 sign a certificate for this daemon with it, and give clients the authority's as --ca",
            ));
        }
        let Validity { not_before, not_after } = self.validity;
        if now < not_before {
            return Some(format!(
                "the TLS certificate is valid from {} on, and clients refuse it until then; is this machine's clock \
                 behind?",
                seconds(not_before)
            ));
        }
        let left = not_after.duration_since(now);
        if left.is_negative() {
            return Some(format!(
                "the TLS certificate expired {}: clients refuse it; renew it",
                seconds(not_after)
            ));
        }
        if left < ENDS_SOON {
            return Some(format!(
                "the TLS certificate expires {}, in {} days; clients refuse it then: renew it",
                seconds(not_after),
                left.as_hours() / 24
            ));
        }
        let ended = self.authorities.as_ref()?.first_end.filter(|end| *end < now)?;
        Some(format!(
            "a CA certificate in tls.client_ca expired {}, and the clients that it signed are still let in: renew it, or \
             remove it",
            seconds(ended)
        ))
    }
}

/// The authorities, one of which must have signed a client's certificate.
#[derive(Clone, Debug)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
    /// A hash of the authorities' names, keys and name constraints.
    digest: u64,
    /// The first instant at which one of their certificates ends. Handshakes do not look at it.
    first_end: Option<Timestamp>,
}

impl Authorities {
    fn read(path: &Path) -> Result<Self, FileFault> {
        let first_end = files::first_end(path)?;
        let roots = Arc::new(files::read_authorities(path)?);
        let trusted = roots
            .roots
            .iter()
            .map(|root| (&*root.subject, &*root.subject_public_key_info, root.name_constraints.as_deref()));
        let digest = hash_of(&trusted.collect::<Vec<_>>());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| FileFault::new(PemFile::Authorities, path, error.to_string()))?;
        Ok(Authorities { verifier, digest, first_end })
    }

    /// Returns the hash of these authorities' names, keys and name constraints.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns whether a client's certificate, which comes first in its chain, is valid now and
    /// leads to one of these authorities.
    pub fn trust(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((own, others)) = chain.split_first() else { return false };
        self.verifier.verify_client_cert(own, others, UnixTime::now()).is_ok()
    }
}

fn seconds(instant: Timestamp) -> Timestamp {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant)
}

/// A handle that turns accepted streams into TLS streams. Clones share one [`ServerCertificate`].
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<RwLock<ServerCertificate>>);

impl Acceptor {
    /// Creates an acceptor with this certificate.
    pub fn new(identity: ServerCertificate) -> Self {
        Acceptor(Arc::new(RwLock::new(identity)))
    }

    /// Uses another certificate and other authorities for new connections. Open connections stay as
    /// they are.
    ///
    /// Returns whether their digest differs from before.
    pub fn replace(&self, identity: ServerCertificate) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, identity);
        before.digest != current.digest
    }

    /// Returns the certificate that new connections use.
    pub fn identity(&self) -> ServerCertificate {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the TLS handshake, within `stall_timeout` and within `HANDSHAKE_MAX`.
    ///
    /// # Errors
    /// Returns the reason, and the stream, which must be closed. The alert was sent on the stream
    /// already. There is no stream if the handshake took too long.
    pub async fn accept<IO>(&self, stream: IO) -> Result<ServerStream<IO>, (HandshakeFailure, Option<IO>)>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let ServerCertificate { config, stall_timeout, .. } = self.identity();
        let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream).into_fallible();
        let within = stall_timeout.min(HANDSHAKE_MAX);
        match tokio::time::timeout(within, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => Err((HandshakeFailure::of(&error), Some(stream))),
            Err(_) => Err((HandshakeFailure::TooSlow(within), None)),
        }
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// The reason why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFailure {
    /// The peer closed or reset the connection, as health checks do.
    #[error("the peer left before the handshake was over")]
    Left,
    /// The handshake took too long.
    #[error("the handshake was not over within {0:?}")]
    TooSlow(Duration),
    /// One side rejected the other. The text says why, and what to do.
    #[error("{0}")]
    Refused(String),
}

impl HandshakeFailure {
    fn of(error: &io::Error) -> Self {
        match fault::tls_error(error) {
            Some(error) => HandshakeFailure::Refused(fault::describe(error, Side::Server)),
            None => HandshakeFailure::Left,
        }
    }
}
