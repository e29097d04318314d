//! The TLS options of commands: trusted authorities, and the client's own certificate.

use std::path::PathBuf;

use super::Failure;
use crate::config::{Address, Credentials, FileRef};
use snowbank_tls::ClientFiles;

/// Options of the commands that connect to a daemon.
#[derive(Debug, clap::Args)]
pub(super) struct TlsOptions {
    /// With tls: trust these CAs (PEM), not the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<FileRef>,

    /// With tls: the client's own certificate (PEM), for a daemon that asks for one.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<FileRef>,

    /// With tls: the private key of --client-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<FileRef>,

    /// With tls: the name that the daemon's certificate must have, if it is not that of the
    /// address.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

impl TlsOptions {
    /// Returns true if an option was given. A key is given with its certificate alone.
    pub(super) fn is_given(&self) -> bool {
        self.ca.is_some() || self.client_cert.is_some() || self.server_name.is_some()
    }

    /// Returns the files and names for TLS connections to these addresses; `None` if no option was
    /// given.
    pub(super) fn files(&self, addresses: &[Address]) -> Result<Option<ClientFiles>, Failure> {
        let TlsOptions { ca, client_cert, client_key, server_name } = self;
        if !self.is_given() {
            return Ok(None);
        }
        if let Some(address) = addresses.iter().find(|address| !address.is_tls()) {
            return Err(Failure::usage(format_args!(
                "found a TLS option (--ca, --client-cert or --server-name) and an address without TLS ({address}), allowed: \
                 an address as in tls:host:port"
            )));
        }
        let mut files = ClientFiles::new();
        if let Some(ca) = ca {
            files = files.ca(locate(ca)?);
        }
        if let (Some(certificate), Some(key)) = (client_cert, client_key) {
            files = files.certificate(locate(certificate)?, locate(key)?);
        }
        if let Some(name) = server_name {
            files = files.server_name(name);
        }
        Ok(Some(files))
    }
}

/// Returns the path of a file that an option names.
pub(super) fn locate(file: &FileRef) -> Result<PathBuf, Failure> {
    file.locate(&Credentials::of(|name| std::env::var_os(name))).map_err(Failure::usage)
}
