//! The side that connects.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};

use super::files::{self, FileFault, What};

/// Whom a client believes, and who it says it is. The default believes the system's authorities and says nothing of itself.
///
/// Files are read for each connection, so that certificates can be renewed under a client that runs for years.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    ca: Option<PathBuf>,
    own: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl ClientFiles {
    /// Believes the system's authorities; has no certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes servers with a certificate of these authorities alone (PEM), and not of the system's.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// The client's own certificate, with those that lead to its authority's, and its private key (both PEM), for servers
    /// that ask for one.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.own = Some((certificate.into(), key.into()));
        self
    }

    /// The name, or IP address, that the server's certificate must have; else it is that of the address connected to.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// The first fault, in one line.
    pub fn read(&self) -> Result<Connector, FileFault> {
        let builder = ClientConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| FileFault::new(What::Authorities, "TLS".as_ref(), error))?;
        let roots = match &self.ca {
            Some(path) => files::read_authorities(path)?,
            None => system_authorities(),
        };
        let builder = builder.with_root_certificates(roots);
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(files::read_chain(certificate)?, files::read_key(key)?)
                .map_err(|error| files::pair_fault(&error, certificate, key))?,
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Connector { config: Arc::new(config), server_name: self.server_name.clone() })
    }
}

/// The authorities that this system believes. None, where it has none: each certificate is then refused by name.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Files that were read and fit each other.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Connector {
    /// Shakes hands with the server at that host. It takes as long as the server does: give it a deadline.
    ///
    /// # Errors
    /// The name cannot be one of a server, or the handshake failed; [`explain`](super::explain) says why.
    pub async fn connect<IO>(&self, host: &str, stream: IO) -> io::Result<tokio_rustls::client::TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.server_name.as_deref().unwrap_or(host);
        // The zone of an IPv6 address is this machine's own name for a link.
        let bare = name.split_once('%').map_or(name, |(address, _)| address);
        let server_name = ServerName::try_from(bare.to_owned()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} cannot be the name of a TLS server"),
            )
        })?;
        tokio_rustls::TlsConnector::from(Arc::clone(&self.config)).connect(server_name, stream).await
    }
}
