//! Certificates and keys in PEM files. A fault is one line that never repeats a byte of a key.

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

/// The largest file that is read, in bytes. It is far above any bundle of authorities, and stops
/// the reading of a disk or an endless device.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The purpose of a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemFile {
    /// This side's certificate, and those that lead from it to an authority.
    Certificate,
    /// The private key of that certificate.
    Key,
    /// The trusted authorities.
    Authorities,
}

impl PemFile {
    fn name(self) -> &'static str {
        match self {
            PemFile::Certificate => "the certificate",
            PemFile::Key => "the private key",
            PemFile::Authorities => "the CA certificates",
        }
    }
}

/// The reason why a file cannot be used, in one line: which file, what was found, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct FileFault {
    /// The purpose of the file.
    pub file: PemFile,
    text: String,
}

impl FileFault {
    /// Creates a fault of that file.
    pub fn new(file: PemFile, path: &Path, found: impl std::fmt::Display) -> Self {
        FileFault { file, text: format!("{} {}: {found}", file.name(), path.display()) }
    }
}

/// The time span in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Returns the validity of a certificate.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    let validity = parsed.tbs_certificate.validity;
    Some(Validity { not_before: instant(validity.not_before)?, not_after: instant(validity.not_after)? })
}

fn instant(time: x509_cert::time::Time) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time.to_unix_duration().as_secs()).ok()?).ok()
}

/// Returns whether a certificate is an authority's own, which clients do not accept from a server.
pub fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate).ok();
    let constraints =
        parsed.and_then(|parsed| parsed.tbs_certificate.get::<BasicConstraints>().ok().flatten());
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

/// The contents of a PEM file.
struct Sections {
    file: PemFile,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Sections {
    fn read(file: PemFile, path: &Path) -> Result<Self, FileFault> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| FileFault::new(file, path, format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(FileFault::new(
                file,
                path,
                format!("found more than {FILE_BYTES_MAX} bytes, allowed: a PEM file"),
            ));
        }
        Ok(Sections { file, path: path.to_owned(), bytes })
    }

    fn fault(&self, found: impl std::fmt::Display) -> FileFault {
        FileFault::new(self.file, &self.path, found)
    }

    /// Returns all sections of known kinds.
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
        let marks: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
        if marks.iter().any(|mark| self.bytes.windows(mark.len()).any(|window| window == *mark)) {
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

/// Describes a fault without the bytes that the library's own message repeats. They may be a key's.
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

/// Reads the certificates of a file, in their order.
pub fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    Sections::read(PemFile::Certificate, path)?.certificates()
}

/// Reads the private key of a file.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    Sections::read(PemFile::Key, path)?.key()
}

/// Reads the authorities of a file, at least one.
pub fn read_authorities(path: &Path) -> Result<RootCertStore, FileFault> {
    let sections = Sections::read(PemFile::Authorities, path)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in sections.certificates()?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            sections.fault(format!("its certificate {} is none of an authority: {error}", index + 1))
        })?;
    }
    Ok(roots)
}

/// Describes the fault of a certificate and a key that do not belong together, or that cannot be
/// used.
pub fn pair_fault(error: &rustls::Error, certificate: &Path, key: &Path) -> FileFault {
    match error {
        rustls::Error::InconsistentKeys(_) => FileFault::new(
            PemFile::Key,
            key,
            format!(
                "found a key that is not that of the certificate {}; give the two that were made together, and \
                 put the key's certificate first in the certificate file",
                certificate.display()
            ),
        ),
        rustls::Error::InvalidCertificate(reason) => {
            let found =
                fault::unnamed(reason).map_or_else(|| format!("cannot be used: {reason}"), str::to_owned);
            FileFault::new(PemFile::Certificate, certificate, found)
        }
        _ => FileFault::new(
            PemFile::Key,
            key,
            "found a key of a kind or size that cannot be used, allowed: ECDSA P-256 or P-384, Ed25519, RSA from \
             2048 to 8192 bits",
        ),
    }
}
