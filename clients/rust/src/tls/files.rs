//! Certificates and keys as they stand in files: PEM, read whole, and refused in one line that never repeats a byte of a key.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::BasicConstraints;

use super::fault;

/// The largest file that is read, in bytes: far above any bundle of authorities, and proof that the path does not name a
/// disk.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One's own certificate, and those that lead from it to an authority.
    Certificate,
    /// The private key of that certificate.
    Key,
    /// The authorities whose certificates are believed.
    Authorities,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Certificate => "the certificate",
            What::Key => "the private key",
            What::Authorities => "the CA certificates",
        }
    }
}

/// Why a file cannot be used, in one line: which file, what was found, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct FileFault {
    /// Which of the files it is.
    pub what: What,
    text: String,
}

impl FileFault {
    pub fn new(what: What, path: &Path, found: impl std::fmt::Display) -> Self {
        FileFault { what, text: format!("{} {}: {found}", what.name(), path.display()) }
    }
}

/// From when to when a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// A certificate's validity, of its first certificate in a chain.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    let validity = parsed.tbs_certificate.validity;
    let instant = |time: x509_cert::time::Time| {
        Timestamp::from_second(i64::try_from(time.to_unix_duration().as_secs()).ok()?).ok()
    };
    Some(Validity { not_before: instant(validity.not_before)?, not_after: instant(validity.not_after)? })
}

/// Whether a certificate is one of an authority, which is to sign others and not to be shown by a server.
pub fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate).ok();
    let constraints =
        parsed.and_then(|parsed| parsed.tbs_certificate.get::<BasicConstraints>().ok().flatten());
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

/// A file's PEM sections.
struct Sections {
    what: What,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Sections {
    fn read(what: What, path: &Path) -> Result<Self, FileFault> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| FileFault::new(what, path, format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(FileFault::new(
                what,
                path,
                format!("found more than {FILE_BYTES_MAX} bytes, allowed: a PEM file"),
            ));
        }
        Ok(Sections { what, path: path.to_owned(), bytes })
    }

    fn fault(&self, found: impl std::fmt::Display) -> FileFault {
        FileFault::new(self.what, &self.path, found)
    }

    /// All sections of kinds that mean something here.
    fn all(&self) -> Result<Vec<(SectionKind, Vec<u8>)>, FileFault> {
        <(SectionKind, Vec<u8>) as PemObject>::pem_slice_iter(&self.bytes)
            .collect::<Result<_, _>>()
            .map_err(|error| self.fault(describe(&error)))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileFault> {
        let sections = self.all()?;
        let has_key = sections.iter().any(|(kind, _)| is_key(*kind));
        let certificates: Vec<_> = sections
            .into_iter()
            .filter(|(kind, _)| *kind == SectionKind::Certificate)
            .map(|(_, der)| CertificateDer::from(der))
            .collect();
        if !certificates.is_empty() {
            return Ok(certificates);
        }
        Err(self.fault(match self.bytes.first() {
            None => "found an empty file, allowed: certificates in PEM",
            Some(_) if has_key => {
                "found a private key and no certificate; were the two files taken for each other?"
            }
            Some(0x30) => "found DER, allowed: PEM; `openssl x509 -inform der -in FILE` prints it as PEM",
            Some(_) => "found no certificate, allowed: PEM (-----BEGIN CERTIFICATE-----)",
        }))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, FileFault> {
        let sections = self.all()?;
        let has_certificate = sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
        let contains = |needle: &[u8]| self.bytes.windows(needle.len()).any(|window| window == needle);
        if contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED") {
            return Err(self.fault(
                "found an encrypted key, allowed: one without a passphrase, in a file that only its user can read; \
                 `openssl pkey -in FILE` prints it decrypted",
            ));
        }
        let key = sections
            .into_iter()
            .find(|(kind, _)| is_key(*kind))
            .and_then(|(kind, der)| PrivateKeyDer::from_pem(kind, der));
        key.ok_or_else(|| {
            self.fault(match self.bytes.first() {
                None => "found an empty file, allowed: a private key in PEM",
                Some(_) if has_certificate => {
                    "found a certificate and no private key; were the two files taken for each other?"
                }
                Some(0x30) => "found DER, allowed: PEM; `openssl pkey -inform der -in FILE` prints it as PEM",
                Some(_) => "found no private key, allowed: PEM (-----BEGIN PRIVATE KEY-----)",
            })
        })
    }
}

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

/// The fault without the bytes that the library would repeat: they may be a key's.
fn describe(error: &pem::Error) -> String {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => "a section without its END line",
        pem::Error::IllegalSectionStart { .. } => "a broken BEGIN line",
        pem::Error::Base64Decode(_) => "a section that is not base64",
        pem::Error::SectionTooLarge => "a section far too large",
        _ => "something that cannot be read",
    };
    format!("found {reason}, allowed: PEM; was the file copied whole?")
}

/// The certificate of a file and those that follow it there.
pub fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    Sections::read(What::Certificate, path)?.certificates()
}

pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    Sections::read(What::Key, path)?.key()
}

/// The authorities of a file, at least one.
pub fn read_authorities(path: &Path) -> Result<RootCertStore, FileFault> {
    let sections = Sections::read(What::Authorities, path)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in sections.certificates()?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            sections.fault(format!("its certificate {} is none of an authority: {error}", index + 1))
        })?;
    }
    Ok(roots)
}

/// What is wrong with a certificate and a key that were read: they are not of each other, or cannot be used at all.
pub fn pair_fault(error: &rustls::Error, certificate: &Path, key: &Path) -> FileFault {
    match error {
        rustls::Error::InconsistentKeys(_) => FileFault::new(
            What::Key,
            key,
            format!(
                "found a key that is not that of the certificate {}; give the two that were made together, the \
                 key's own certificate first in its file",
                certificate.display()
            ),
        ),
        rustls::Error::InvalidCertificate(reason) => {
            let found =
                fault::unnamed(reason).map_or_else(|| format!("cannot be used: {reason}"), str::to_owned);
            FileFault::new(What::Certificate, certificate, found)
        }
        _ => FileFault::new(
            What::Key,
            key,
            "found a key of a kind or size that cannot be used, allowed: ECDSA P-256 or P-384, Ed25519, RSA from \
             2048 to 8192 bits",
        ),
    }
}
