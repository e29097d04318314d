//! Files of a case: certificates that are made when it starts, and sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

/// The directory of a case, with the authority of its TLS endpoints.
pub(crate) struct Certificates {
    directory: TempDir,
    authority: Authority,
}

struct Authority {
    params: CertificateParams,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = params(name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { issuer: Issuer::new(params.clone(), KeyPair::generate()?), params })
    }

    fn certificate(&self) -> Result<rcgen::Certificate, rcgen::Error> {
        self.params.self_signed(self.issuer.key())
    }
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Returns the words of an error of the library that makes certificates.
#[allow(clippy::needless_pass_by_value)]
fn words(error: rcgen::Error) -> String {
    error.to_string()
}

impl Certificates {
    pub(crate) fn new() -> Result<Self, String> {
        let directory = TempDir::new().map_err(|error| error.to_string())?;
        let authority = Authority::new("authority").map_err(|error| error.to_string())?;
        Ok(Self { directory, authority })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the files that a client may need: the authority, the client's certificate and key, an
    /// authority that no daemon knows, and a client certificate of that one. Returns the files'
    /// names and paths.
    pub(crate) fn write(&self) -> Result<Vec<(&'static str, PathBuf)>, String> {
        let other = Authority::new("another authority").map_err(words)?;
        let client = KeyPair::generate().map_err(words)?;
        let params = params("client").map_err(words)?;
        let certificate = params.signed_by(&client, &self.authority.issuer).map_err(words)?;
        let other_certificate = params.signed_by(&client, &other.issuer).map_err(words)?;
        let files = [
            ("ca_file", self.authority.certificate().map_err(words)?.pem()),
            ("cert_file", certificate.pem()),
            ("key_file", client.serialize_pem()),
            ("other_ca_file", other.certificate().map_err(words)?.pem()),
            ("other_cert_file", other_certificate.pem()),
        ];
        let mut paths = Vec::new();
        for (name, text) in files {
            let path = self.directory().join(name).with_extension("pem");
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            paths.push((name, path));
        }
        Ok(paths)
    }

    /// Returns the configuration of a TLS endpoint.
    pub(crate) fn server(&self, asks_for_certificate: bool) -> Result<Arc<ServerConfig>, String> {
        let key = KeyPair::generate().map_err(words)?;
        let certificate = params("daemon").map_err(words)?.signed_by(&key, &self.authority.issuer);
        let chain = vec![certificate.map_err(words)?.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder();
        let builder = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            let authority = self.authority.certificate().map_err(words)?;
            roots.add(authority.der().clone()).map_err(|error| error.to_string())?;
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| error.to_string())?;
        Ok(Arc::new(config))
    }
}
