//! The directory that holds the certificates and sockets of a case.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

use crate::Outcome;

/// The names of the files in PEM.
pub(crate) const FILES: [&str; 5] = ["ca_file", "cert_file", "key_file", "other_ca_file", "other_cert_file"];

/// The directory of a case, and the authority that signs the certificates of the case.
pub(crate) struct Certificates {
    directory: TempDir,
    authority: Mutex<Authority>,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = params(name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        Ok(Self { certificate: params.self_signed(&key)?, issuer: Issuer::new(params, key) })
    }
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    // Python 3.13 refuses certificates without it, and authorities without a key usage.
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

impl Certificates {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self { directory: TempDir::new()?, authority: Mutex::new(Authority::new("authority")?) })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn authority(&self) -> MutexGuard<'_, Authority> {
        self.authority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of a file of the case.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Replaces the text of a file at once, as programs that renew files do.
    pub(crate) fn replace(&self, name: &str, text: &str) -> Outcome {
        let new = self.path("new");
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(new, self.path(name))?)
    }

    /// Makes another authority, and replaces the files that it signs.
    pub(crate) fn renew(&self) -> Outcome {
        *self.authority() = Authority::new("renewed authority")?;
        self.write()
    }

    /// Writes the [`FILES`] that a client may need: the authority, the client's certificate and
    /// key, an authority that no daemon trusts, and a certificate that this other authority signed.
    pub(crate) fn write(&self) -> Outcome {
        let authority = self.authority();
        let other = Authority::new("another authority")?;
        let client = KeyPair::generate()?;
        let params = params("client")?;
        let certificate = params.signed_by(&client, &authority.issuer)?;
        let other_certificate = params.signed_by(&client, &other.issuer)?;
        let texts = [
            authority.certificate.pem(),
            certificate.pem(),
            client.serialize_pem(),
            other.certificate.pem(),
            other_certificate.pem(),
        ];
        for (name, text) in FILES.iter().zip(texts) {
            self.replace(name, &text)?;
        }
        Ok(())
    }

    /// Returns the configuration of a TLS endpoint.
    pub(crate) fn server(&self, asks_for_certificate: bool) -> Outcome<Arc<ServerConfig>> {
        let authority = self.authority();
        let key = KeyPair::generate()?;
        let certificate = params("daemon")?.signed_by(&key, &authority.issuer)?;
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let builder = ServerConfig::builder();
        let builder = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(authority.certificate.der().clone())?;
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
        } else {
            builder.with_no_client_auth()
        };
        Ok(Arc::new(builder.with_single_cert(chain, key)?))
    }
}
