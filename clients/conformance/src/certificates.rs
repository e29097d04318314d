//! The directory that holds the certificates and sockets of a case.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

use crate::Outcome;

/// The directory of a case, and the authority that signs the certificates of the case.
pub(crate) struct Certificates {
    directory: TempDir,
    authority: Authority,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = params(name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        Ok(Self { certificate: params.self_signed(&key)?, issuer: Issuer::new(params, key) })
    }
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

impl Certificates {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self { directory: TempDir::new()?, authority: Authority::new("authority")? })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes the files that a client may need: the authority, the client's certificate and key, an
    /// authority that no daemon trusts, and a certificate that this other authority signed. Returns
    /// the files' names and paths.
    pub(crate) fn write(&self) -> Outcome<Vec<(&'static str, PathBuf)>> {
        let other = Authority::new("another authority")?;
        let client = KeyPair::generate()?;
        let params = params("client")?;
        let certificate = params.signed_by(&client, &self.authority.issuer)?;
        let other_certificate = params.signed_by(&client, &other.issuer)?;
        let files = [
            ("ca_file", self.authority.certificate.pem()),
            ("cert_file", certificate.pem()),
            ("key_file", client.serialize_pem()),
            ("other_ca_file", other.certificate.pem()),
            ("other_cert_file", other_certificate.pem()),
        ];
        let mut paths = Vec::new();
        for (name, text) in files {
            let path = self.directory().join(name).with_extension("pem");
            std::fs::write(&path, text)?;
            paths.push((name, path));
        }
        Ok(paths)
    }

    /// Returns the configuration of a TLS endpoint.
    pub(crate) fn server(&self, asks_for_certificate: bool) -> Outcome<Arc<ServerConfig>> {
        let key = KeyPair::generate()?;
        let certificate = params("daemon")?.signed_by(&key, &self.authority.issuer)?;
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder();
        let builder = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.certificate.der().clone())?;
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
        } else {
            builder.with_no_client_auth()
        };
        Ok(Arc::new(builder.with_single_cert(chain, key)?))
    }
}
