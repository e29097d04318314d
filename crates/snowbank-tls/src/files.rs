//! Certificates and keys in PEM files. A fault is one line that never repeats a byte of a key.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::BasicConstraints;

use crate::fault;

/// The largest file that is read, in bytes. Any bundle of authorities is far smaller. Without this
/// limit, reading an endless device would never end.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The purpose of a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemFile {
    /// This side's certificate, and the certificates that lead from it to an authority.
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
    /// The first instant.
    pub not_before: Timestamp,
    /// The last instant.
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

/// Returns whether this is the certificate of an authority itself, which clients do not accept from
/// a server.
pub fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate).ok();
    let constraints =
        parsed.and_then(|parsed| parsed.tbs_certificate.get::<BasicConstraints>().ok().flatten());
    constraints.is_some_and(|(_, constraints)| constraints.ca)
}

/// Opens a small file, such as a certificate or a token, for reading. A pipe with a name is refused,
/// because its other end may never write: a start or a reload would hang. A shell's `<(command)` is
/// a pipe too, which this process already has open, and it is read.
///
/// # Errors
/// The system refuses to open the file, or the file is a pipe with a name.
pub fn open(path: &Path) -> io::Result<File> {
    let is_own = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|own| path.starts_with(own));
    #[cfg(unix)]
    if !is_own && std::os::unix::fs::FileTypeExt::is_fifo(&std::fs::metadata(path)?.file_type()) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, allowed: a regular file"));
    }
    File::open(path)
}

/// Reads the sections that belong in a PEM file of this purpose. There must be at least one.
fn read(file: PemFile, path: &Path) -> Result<Vec<(SectionKind, Vec<u8>)>, FileFault> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    let sections = match read {
        Err(error) => Err(Unusable::Unreadable(error)),
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => Err(Unusable::TooLong),
        Ok(_) => sections(file, &bytes),
    };
    sections.map_err(|unusable| FileFault::new(file, path, unusable))
}

/// What makes the bytes of a PEM file unusable. No variant has bytes of the file.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("found more than {FILE_BYTES_MAX} bytes, allowed: a PEM file of at most that size")]
    TooLong,
    #[error(
        "found an encrypted key, allowed: one without a passphrase, in a file that only its user can read; \
         `openssl pkey -in FILE` prints it decrypted"
    )]
    Encrypted,
    #[error("found a broken section, allowed: PEM; was the file copied whole?")]
    Broken,
    #[error("found an empty file, allowed: a {wanted} in PEM")]
    Empty { wanted: &'static str },
    #[error("found a {found} and no {wanted}; are the two files swapped?")]
    Swapped { found: &'static str, wanted: &'static str },
    #[error("found DER, allowed: PEM; `openssl {command} -inform der -in FILE` prints it as PEM")]
    Der { command: &'static str },
    #[error("found no {wanted}, allowed: PEM (-----BEGIN {}-----)", wanted.to_uppercase())]
    Missing { wanted: &'static str },
}

fn sections(file: PemFile, bytes: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, Unusable> {
    let (wanted, other, command) = match file {
        PemFile::Key => (KEY, CERTIFICATE, "pkey"),
        PemFile::Certificate | PemFile::Authorities => (CERTIFICATE, KEY, "x509"),
    };
    let marks: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    if wanted == KEY && marks.iter().any(|mark| bytes.windows(mark.len()).any(|window| window == *mark)) {
        return Err(Unusable::Encrypted);
    }
    let all: Result<Vec<(SectionKind, Vec<u8>)>, _> = PemObject::pem_slice_iter(bytes).collect();
    // The library's own message would repeat bytes of the file, which may be the bytes of a key.
    let mut sections = all.map_err(|_| Unusable::Broken)?;
    let has_other = sections.iter().any(|(kind, _)| content(*kind) == Some(other));
    sections.retain(|(kind, _)| content(*kind) == Some(wanted));
    if !sections.is_empty() {
        return Ok(sections);
    }
    Err(match bytes.first() {
        None => Unusable::Empty { wanted },
        Some(_) if has_other => Unusable::Swapped { found: other, wanted },
        Some(0x30) => Unusable::Der { command },
        Some(_) => Unusable::Missing { wanted },
    })
}

const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

/// Returns what a section holds, or `None` for a section that belongs in none of the files.
fn content(kind: SectionKind) -> Option<&'static str> {
    match kind {
        SectionKind::Certificate => Some(CERTIFICATE),
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => Some(KEY),
        _ => None,
    }
}

/// Reads the certificates of a file, in their order.
pub fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    read_certificates(PemFile::Certificate, path)
}

fn read_certificates(file: PemFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    Ok(read(file, path)?.into_iter().map(|(_, der)| CertificateDer::from(der)).collect())
}

/// Reads the private key of a file.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    let key =
        read(PemFile::Key, path)?.into_iter().find_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der));
    key.ok_or_else(|| FileFault::new(PemFile::Key, path, "found a key of an unknown kind"))
}

/// Returns whether this certificate can be that of an authority: it says so, or it has signed itself.
fn may_be_authority(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_cert::Certificate::from_der(certificate).ok().map(|parsed| parsed.tbs_certificate);
    is_authority(certificate) || parsed.is_none_or(|parsed| parsed.issuer == parsed.subject)
}

/// Returns the first instant at which one of a file's authorities ends.
pub fn first_end(path: &Path) -> Result<Option<Timestamp>, FileFault> {
    let all = read_certificates(PemFile::Authorities, path)?;
    let authorities = all.iter().filter(|certificate| may_be_authority(certificate));
    Ok(authorities.filter_map(validity).map(|validity| validity.not_after).min())
}

/// Reads the authorities of a file. There must be at least one.
pub fn read_authorities(path: &Path) -> Result<RootCertStore, FileFault> {
    let mut roots = RootCertStore::empty();
    let certificates = read_certificates(PemFile::Authorities, path)?;
    if !certificates.iter().any(may_be_authority) {
        let found =
            "found the certificate of a client or a server, allowed: that of the authority that signed it";
        return Err(FileFault::new(PemFile::Authorities, path, found));
    }
    for (index, certificate) in certificates.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            let found = format!("its certificate {} cannot be an authority's: {error}", index + 1);
            FileFault::new(PemFile::Authorities, path, found)
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_only_if_this_process_has_it_open() {
        let path = std::env::temp_dir().join(format!("snowbank-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let fault = read_chain(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(fault.ends_with("cannot be read: it is a pipe, allowed: a regular file"), "{fault}");

        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"secret").unwrap();
        drop(writer);
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let mut text = String::new();
        open(Path::new(&format!("/dev/fd/{number}"))).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "secret");
    }
}
