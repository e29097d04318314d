//! The files with secrets that settings name, read with the configuration.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::Address;
use super::daemon::{Settings, TlsSettings};
use super::file_ref::{Credentials, FileRef};
use super::findings::Findings;
use super::fleet::FleetSettings;
use super::identities::{ANONYMOUS, IdentitySettings};
use super::reader::Reader;
use super::tokens::{Tokens, first_plain, read_tokens};
use crate::clock;
use crate::fleet::peers::{PeerAccess, is_private};
use crate::fleet::{Access, Endpoint, User};
use crate::tls::{ServerCertificate, ServerFiles};
use snowbank_client::layout::UnixMicros;
use snowbank_client::tls::{ClientFiles, PemFile};

/// The contents of the files that a configuration names.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The tokens, if there is a token file.
    pub tokens: Option<Tokens>,
    /// The certificate of TLS listeners and all that belongs to it, if there is one.
    pub tls: Option<ServerCertificate>,
    /// The coordinator's endpoints and the credentials for them, if there is one.
    pub fleet: Option<Access>,
    /// The addresses of peers and the credentials for them, if there are any.
    pub peers: Option<PeerAccess>,
    /// The files for the coordinator. They are read again at each connection to it.
    pub fleet_files: Vec<FileDigest>,
    /// A line for each file that can be used but is probably a mistake.
    pub warnings: Vec<String>,
}

/// The contents of a file as a hash. A reload compares it, to log whether anything changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// The setting that names the file.
    pub setting: &'static str,
    digest: u64,
}

impl FileDigest {
    fn of(setting: &'static str, path: &Path) -> Self {
        let mut digest = DefaultHasher::new();
        super::read_bounded(path).ok().hash(&mut digest);
        FileDigest { setting, digest: digest.finish() }
    }
}

/// Reads the files that the configuration names. A file that cannot be used is a mistake of its
/// setting.
pub(super) fn read(reader: &mut Reader, credentials: &Credentials, now: UnixMicros) -> Secrets {
    let mut secrets = Secrets::default();
    let mut finder = Finder { credentials, warnings: &mut secrets.warnings, findings: &mut reader.findings };
    let Settings { tls: TlsSettings { certificate, key, client_ca }, auth, limits, fleet, .. } =
        &reader.settings;
    let located = Located {
        token_file: finder.find("auth.token_file", &auth.token_file),
        certificate: finder.find("tls.certificate", certificate),
        key: finder.find("tls.key", key),
        client_ca: finder.find("tls.client_ca", client_ca),
        fleet: FleetFiles {
            password: finder.find("fleet.password_file", &fleet.password_file),
            ca: finder.find("fleet.ca", &fleet.ca),
            certificate: finder.find("fleet.certificate", &fleet.certificate),
            key: finder.find("fleet.key", &fleet.key),
        },
    };
    for (what, path) in [
        ("the token file", &located.token_file),
        ("the private key", &located.key),
        ("the coordinator's password file", &located.fleet.password),
        ("the private key for the coordinator", &located.fleet.key),
    ] {
        secrets.warnings.extend(path.as_deref().and_then(|path| open_to_others(what, path)));
    }
    secrets.fleet_files = located.fleet.digests();
    if let Err((key, text)) = located.read_fleet(fleet, &mut secrets) {
        reader.findings.mistake_of(key, text);
    }
    // A file that is named and was not found may have a line for any identity.
    let are_tokens_known = located.token_file.is_some() == auth.token_file.is_some();
    // Without its authorities a daemon would let everyone in, so all files are read or none.
    let is_complete = located.client_ca.is_some() == client_ca.is_some();
    let stall_timeout = limits.stall_timeout;
    secrets.tokens = located.token_file.as_deref().and_then(|path| tokens_of(path, reader));
    secrets.warnings.extend(secrets.tokens.as_ref().and_then(Tokens::warning));
    if are_tokens_known {
        secrets.warnings.extend(nobodies(&reader.settings.identities, secrets.tokens.as_ref()));
    }
    if let (Some(certificate), Some(key), true) = (&located.certificate, &located.key, is_complete) {
        let files = ServerFiles { certificate, key, client_ca: located.client_ca.as_deref() };
        let now = Timestamp::from_microsecond(now.0).unwrap_or(Timestamp::UNIX_EPOCH);
        secrets.tls = certificate_of(files, stall_timeout, now, reader);
        secrets.warnings.extend(secrets.tls.as_ref().and_then(|certificate| certificate.warning(now)));
    }
    secrets
}

/// Finds the files that settings name.
struct Finder<'f> {
    credentials: &'f Credentials,
    warnings: &'f mut Vec<String>,
    findings: &'f mut Findings,
}

impl Finder<'_> {
    /// Returns the path of a setting's file. A credential that the service manager has is a
    /// mistake here only if this is the service.
    fn find(&mut self, key: &str, file: &Option<FileRef>) -> Option<PathBuf> {
        match file.as_ref()?.locate(self.credentials) {
            Ok(path) => return Some(path),
            Err(error) if self.credentials.may_be_elsewhere => {
                self.warnings.push(format!("{key}: {error}; not checked here"));
            }
            Err(error) => self.findings.mistake_of(key, error.to_string()),
        }
        None
    }
}

/// Reads the token file. Each wrong line, and each identity that no setting knows, is a mistake.
fn tokens_of(path: &Path, reader: &mut Reader) -> Option<Tokens> {
    let tokens = read_tokens(path);
    let errors = match &tokens {
        Ok(tokens) => &tokens.check(path, &reader.settings.identities),
        Err(errors) => errors,
    };
    for error in errors {
        reader.findings.mistake_of("auth.token_file", error.clone());
    }
    tokens.ok()
}

/// Warns of identities that no client can have.
fn nobodies(identities: &[IdentitySettings], tokens: Option<&Tokens>) -> Vec<String> {
    let mut warnings = Vec::new();
    for IdentitySettings { name, certificate_names, .. } in identities {
        let has_token = tokens.is_some_and(|tokens| tokens.has_identity(name));
        if name != ANONYMOUS && certificate_names.is_empty() && !has_token {
            warnings.push(format!(
                "no client can be {name:?}: it has neither certificate_names nor a line of auth.token_file, \
                 \"{name}: TOKEN\""
            ));
        }
    }
    warnings
}

/// Reads the certificate of TLS listeners with its key and its authorities.
fn certificate_of(
    files: ServerFiles<'_>,
    stall_timeout: Duration,
    now: Timestamp,
    reader: &mut Reader,
) -> Option<ServerCertificate> {
    let fault = match ServerCertificate::read(files, stall_timeout, now) {
        Ok(certificate) => return Some(certificate),
        Err(fault) => fault,
    };
    let key = match fault.file {
        PemFile::Certificate => "tls.certificate",
        PemFile::Key => "tls.key",
        PemFile::Authorities => "tls.client_ca",
    };
    reader.findings.mistake_of(key, fault.to_string());
    None
}

/// The located files that the configuration names.
struct Located {
    token_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    fleet: FleetFiles,
}

impl Located {
    /// Reads what the coordinator and the peers need.
    ///
    /// # Errors
    /// The setting whose file cannot be used, and why.
    fn read_fleet(&self, fleet: &FleetSettings, secrets: &mut Secrets) -> Result<(), Unusable> {
        secrets.fleet = self.fleet.coordinator(fleet)?;
        if fleet.peers.is_empty() {
            return Ok(());
        }
        let tls = self.fleet.tls(fleet.peers.iter().any(Address::is_tls))?;
        let bytes = self.token_file.as_deref().and_then(|path| super::read_bounded(path).ok());
        let token = bytes.as_deref().and_then(first_plain);
        if bytes.is_some() {
            secrets.warnings.extend(without_token(&fleet.peers, token.is_some()));
        }
        secrets.peers = Some(PeerAccess { addresses: fleet.peers.clone(), token, tls });
        Ok(())
    }
}

/// The located files of `[fleet]`.
struct FleetFiles {
    password: Option<PathBuf>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// The setting whose file cannot be used, and why.
type Unusable = (&'static str, String);

impl FleetFiles {
    fn digests(&self) -> Vec<FileDigest> {
        let files = [
            ("fleet.password_file", &self.password),
            ("fleet.ca", &self.ca),
            ("fleet.certificate", &self.certificate),
            ("fleet.key", &self.key),
        ];
        let files = files.into_iter();
        files.filter_map(|(setting, path)| Some(FileDigest::of(setting, path.as_deref()?))).collect()
    }

    /// Returns the access to the coordinator, if there is one.
    ///
    /// # Errors
    /// The setting whose file cannot be used, and why.
    fn coordinator(&self, fleet: &FleetSettings) -> Result<Option<Access>, Unusable> {
        let Some(kind) = fleet.coordinator else { return Ok(None) };
        let tls = self.tls(fleet.endpoints.iter().any(Endpoint::is_tls))?;
        if let Some(path) = &self.password {
            // Read once here, so that a mistake shows at once.
            super::read_file(path).map_err(|error| ("fleet.password_file", error.to_string()))?;
        }
        let name = fleet.user.clone();
        let user = self.password.clone().map(|password_file| User { name, password_file });
        let endpoints = fleet.members(kind);
        let certificate = self.certificate.clone();
        let boot_clock = clock::os::boot;
        Ok(Some(Access { kind, endpoints, user, tls, certificate, boot_clock }))
    }

    /// Returns the files for TLS. Reads them once if they are needed, so that a mistake shows at
    /// once.
    fn tls(&self, is_needed: bool) -> Result<ClientFiles, Unusable> {
        let mut tls = ClientFiles::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            tls = tls.certificate(certificate, key);
        }
        if is_needed {
            tls.read().map_err(|fault| {
                let key = match fault.file {
                    PemFile::Certificate => "fleet.certificate",
                    PemFile::Key => "fleet.key",
                    PemFile::Authorities => "fleet.ca",
                };
                (key, fault.to_string())
            })?;
        }
        Ok(tls)
    }
}

/// Returns a warning if peers get no token, although there is a token file.
fn without_token(peers: &[Address], has_token: bool) -> Option<String> {
    if !has_token {
        return Some(String::from(
            "fleet.peers: found only hashes in auth.token_file, so peers that ask for a token do not say their worker IDs; \
             write a token itself into one of its lines",
        ));
    }
    let open: Vec<String> = peers.iter().filter(|peer| !is_private(peer)).map(Address::to_string).collect();
    (!open.is_empty()).then(|| {
        format!(
            "fleet.peers: found {} without tls:, so no token is sent there, and a peer that asks for one does not say its \
             worker IDs; let it listen over TLS, and write tls:HOST:PORT",
            open.join(", ")
        )
    })
}

/// Returns a warning if users besides the file's owner and group can read it.
fn open_to_others(what: &str, path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o004 != 0).then(|| {
        let path = path.display();
        format!(
            "{what} {path} can be read by every user of this machine (mode {mode:04o}): chmod o-rwx {path}"
        )
    })
}
