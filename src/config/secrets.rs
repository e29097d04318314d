//! The files with secrets that settings name, read with the configuration.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::file_ref::Credentials;
use super::fleet::FleetSettings;
use super::identities::{ANONYMOUS, IdentitySettings};
use super::input::Findings;
use super::reader::Reader;
use super::tokens::{Tokens, first_plain, read_tokens};
use super::{Address, Warning};
use crate::os_clock;
use crate::tls::{ServerCertificate, ServerFiles};
use snowbank_fleet::peers::{PeerAccess, is_private};
use snowbank_fleet::{Access, User};
use snowbank_id::layout::UnixMicros;
use snowbank_tls::{ClientFiles, PemFile};
use zeroize::Zeroizing;

/// The contents of the files that a configuration names.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The tokens, if there is a token file.
    pub tokens: Option<Tokens>,
    /// The certificate of TLS listeners and all that belongs to it, if there is one.
    pub tls: Option<ServerCertificate>,
    /// The coordinator's endpoints and the credentials for them, if there is a coordinator.
    pub fleet: Option<Access>,
    /// The addresses of peers and the credentials for them, if there are any.
    pub peers: Option<PeerAccess>,
    /// A hash of each file of `[fleet]`, by the setting that names it. Each connection to the
    /// coordinator reads these files again. A reload compares the hashes, to log whether contents
    /// changed.
    pub fleet_files: BTreeMap<&'static str, u64>,
    /// A line for each probable mistake in a file, and for each unchecked file.
    pub warnings: Vec<Warning>,
}

/// Returns a hash of a file's contents.
fn digest_of(path: &Path) -> u64 {
    let mut digest = DefaultHasher::new();
    super::read_bounded(path).ok().hash(&mut digest);
    digest.finish()
}

/// Reads the files that the configuration names. A file that cannot be used is a mistake of its
/// setting.
pub(super) fn read(reader: &mut Reader, credentials: &Credentials, now: UnixMicros) -> Secrets {
    let Reader { settings, findings } = reader;
    let mut secrets = Secrets::default();
    let mut located = Located::default();
    for (key, file) in settings.files() {
        match file.as_ref().map(|file| file.locate(credentials)) {
            None => {}
            Some(Ok(path)) => located.0.push((key, path)),
            // A missing credential is a mistake only if this process is the service.
            Some(Err(error)) if credentials.may_be_elsewhere => {
                secrets.warnings.push(Warning::Unchecked { key, error });
            }
            Some(Err(error)) => findings.mistake_of(key, error),
        }
    }
    for (what, key) in [
        ("the token file", "auth.token_file"),
        ("the private key", "tls.key"),
        ("the coordinator's password file", "fleet.password_file"),
        ("the private key for the coordinator", "fleet.key"),
    ] {
        secrets.warnings.extend(located.path(key).and_then(|path| open_to_others(what, path)));
    }
    let fleet_files = located.0.iter().filter(|(key, _)| key.starts_with("fleet."));
    secrets.fleet_files = fleet_files.map(|(key, path)| (*key, digest_of(path))).collect();
    if let Err((key, text)) = located.read_fleet(&settings.fleet, &mut secrets) {
        findings.mistake_of(key, text);
    }
    let token_file = located.path("auth.token_file");
    secrets.tokens = token_file.and_then(|path| tokens_of(path, &settings.identities, findings));
    secrets.warnings.extend(secrets.tokens.as_ref().and_then(Tokens::warning));
    // If the token file was not read, any identity may have a token.
    if secrets.tokens.is_some() || settings.auth.token_file.is_none() {
        secrets.warnings.extend(idle_identities(&settings.identities, secrets.tokens.as_ref()));
    }
    let client_ca = located.path("tls.client_ca");
    // Without the authorities that are configured, the daemon would let every client in. So either
    // all configured files are read, or none.
    if let (Some(certificate), Some(key)) = (located.path("tls.certificate"), located.path("tls.key"))
        && client_ca.is_some() == settings.tls.client_ca.is_some()
    {
        let files = ServerFiles { certificate, key, client_ca };
        let now = Timestamp::from_microsecond(now.0).unwrap_or(Timestamp::UNIX_EPOCH);
        match ServerCertificate::read(files, settings.limits.stall_timeout, now) {
            Ok(certificate) => {
                secrets.warnings.extend(certificate.warning(now).map(Warning::Certificate));
                secrets.tls = Some(certificate);
            }
            Err(fault) => {
                let key = match fault.file {
                    PemFile::Certificate => "tls.certificate",
                    PemFile::Key => "tls.key",
                    PemFile::Authorities => "tls.client_ca",
                };
                findings.mistake_of(key, fault);
            }
        }
    }
    secrets
}

/// Returns a warning for each identity that no client can have, and one if none of the others may
/// draw an ID. A client without another identity is anonymous.
fn idle_identities(identities: &[IdentitySettings], tokens: Option<&Tokens>) -> Vec<Warning> {
    let is_anonymous = |identity: &IdentitySettings| identity.name == ANONYMOUS;
    let (clients, nobodys): (Vec<_>, Vec<_>) = identities.iter().partition(|identity| {
        let has_token = tokens.is_some_and(|tokens| tokens.has_identity(&identity.name));
        is_anonymous(identity) || !identity.certificate_names.is_empty() || has_token
    });
    let nobodys = nobodys.into_iter().map(|identity| Warning::NobodysIdentity(identity.name.clone()));
    let mut warnings: Vec<Warning> = nobodys.collect();
    if identities.iter().any(is_anonymous) && clients.into_iter().all(IdentitySettings::draws_nothing) {
        warnings.push(Warning::NobodyDraws);
    }
    warnings
}

/// Reads the token file. Each wrong line, and each identity that is not configured, is a mistake.
fn tokens_of(path: &Path, identities: &[IdentitySettings], findings: &mut Findings) -> Option<Tokens> {
    match read_tokens(path, identities) {
        Ok(tokens) => Some(tokens),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| findings.mistake_of("auth.token_file", mistake));
            None
        }
    }
}

/// The paths of the files that settings name, by their keys.
#[derive(Default)]
struct Located(Vec<(&'static str, PathBuf)>);

impl Located {
    fn path(&self, key: &str) -> Option<&Path> {
        self.0.iter().find(|(of, _)| *of == key).map(|(_, path)| &**path)
    }

    /// Reads what the coordinator and the peers need.
    ///
    /// # Errors
    /// The setting whose file cannot be used, and why.
    fn read_fleet(&self, fleet: &FleetSettings, secrets: &mut Secrets) -> Result<(), (&'static str, String)> {
        let has_tls_endpoints =
            fleet.coordinator.is_some() && fleet.endpoints.iter().any(|endpoint| endpoint.is_tls);
        let tls = self.tls_of_fleet(has_tls_endpoints || fleet.peers.iter().any(Address::is_tls))?;
        if let Some(kind) = fleet.coordinator {
            let password = self.path("fleet.password_file");
            if let Some(path) = password {
                // The file is read once here, so that a mistake shows at the start.
                super::read_file(path).map_err(|error| ("fleet.password_file", error.to_string()))?;
            }
            let user = password.map(|path| User { name: fleet.user.clone(), password_file: path.to_owned() });
            secrets.fleet = Some(Access {
                kind,
                endpoints: fleet.members(kind),
                user,
                tls: tls.clone(),
                certificate: self.path("fleet.certificate").map(Path::to_owned),
                boot_clock: os_clock::boot,
            });
        }
        if fleet.peers.is_empty() {
            return Ok(());
        }
        let bytes = self.path("auth.token_file").and_then(|path| super::read_bounded(path).ok());
        let bytes = bytes.map(Zeroizing::new);
        let token = bytes.as_deref().and_then(|bytes| first_plain(bytes));
        if bytes.is_some() {
            secrets.warnings.extend(without_token(&fleet.peers, token.is_some()));
        }
        secrets.peers = Some(PeerAccess { addresses: fleet.peers.clone(), token, tls });
        Ok(())
    }

    /// Returns the TLS files of `[fleet]`. If they are needed, reads them once, so that a mistake
    /// shows at the start.
    ///
    /// # Errors
    /// The setting whose file cannot be used, and why.
    fn tls_of_fleet(&self, is_needed: bool) -> Result<ClientFiles, (&'static str, String)> {
        let mut tls = ClientFiles::new();
        if let Some(ca) = self.path("fleet.ca") {
            tls = tls.ca(ca);
        }
        if let (Some(certificate), Some(key)) = (self.path("fleet.certificate"), self.path("fleet.key")) {
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
fn without_token(peers: &[Address], has_token: bool) -> Option<Warning> {
    if !has_token {
        return Some(Warning::NoTokenForPeers);
    }
    let open: Vec<Address> = peers.iter().filter(|peer| !is_private(peer)).cloned().collect();
    (!open.is_empty()).then_some(Warning::PlainPeers(open))
}

/// Returns a warning if users besides the owner and the group of the file can read it.
fn open_to_others(what: &'static str, path: &Path) -> Option<Warning> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o004 != 0).then(|| Warning::OpenFile { what, path: path.to_owned(), mode })
}
