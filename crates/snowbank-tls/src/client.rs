//! The client's side of TLS.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::files::{self, FileFault, PemFile};

/// The authorities that a client trusts, and its own certificate. The default trusts the system's
/// authorities and has no certificate.
///
/// Each connection reads the files again, so certificates can be renewed while the client runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    ca: Option<PathBuf>,
    own: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl ClientFiles {
    /// Returns the default: the system's authorities, and no certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the authorities in this PEM file, instead of the system's.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Sets the files (both PEM) of the client's own certificate and of its private key.
    /// Intermediate certificates follow the client's own in the certificate file.
    #[must_use]
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.own = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name or IP address that the server's certificate must have. The default is the host
    /// of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Returns the first fault, in one line.
    pub fn read(&self) -> Result<Connector, FileFault> {
        let builder = ClientConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| FileFault::new(PemFile::Authorities, "TLS".as_ref(), error))?;
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

/// Returns the authorities that this system trusts. If there are none, every handshake fails with a
/// message about the server's certificate.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The contents of [`ClientFiles`], read and checked against each other.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Connector {
    /// Makes the handshake with the server at that host. The handshake has no time limit.
    ///
    /// # Errors
    /// Returns an error if the name is not valid for a server, or if the handshake failed.
    /// [`explain`](super::explain) says why.
    pub async fn connect<IO>(&self, host: &str, stream: IO) -> io::Result<tokio_rustls::client::TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let server_name = self.name_of(host)?;
        tokio_rustls::TlsConnector::from(Arc::clone(&self.config)).connect(server_name, stream).await
    }

    /// Begins a session with the server at that host, for a caller that moves the bytes itself.
    ///
    /// # Errors
    /// Returns an error if the name is not valid for a server.
    pub fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let server_name = self.name_of(host)?;
        ClientConnection::new(Arc::clone(&self.config), server_name).map_err(io::Error::other)
    }

    /// Returns the name that the certificate of the server at that host must have.
    fn name_of(&self, host: &str) -> io::Result<ServerName<'static>> {
        let name = self.server_name.as_deref().unwrap_or(host);
        // The zone of an IPv6 address means something on this machine only.
        let bare = name.split_once('%').map_or(name, |(address, _)| address);
        ServerName::try_from(bare.to_owned()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} cannot be the name of a TLS server"),
            )
        })
    }
}
