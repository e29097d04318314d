//! Helpers of the TLS tests: an authority that issues certificates at run time, and connections
//! over TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::support::wire::Transport;
use crate::support::{DEADLINE, Setup, Wire, directory};

/// A certificate authority, with a directory for the files of its certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The authority's own certificate.
    pub(crate) file: PathBuf,
    directory: TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

fn limit(params: &mut CertificateParams, years: Range<i32>) {
    params.not_before = date_time_ymd(years.start, 1, 1);
    params.not_after = date_time_ymd(years.end, 1, 1);
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        Authority::with(name, |_| {})
    }

    /// Returns an authority whose own certificate is valid in these years only.
    pub(crate) fn for_years(name: &str, years: Range<i32>) -> Authority {
        Authority::with(name, |params| limit(params, years))
    }

    fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let directory = directory();
        let mut params = params(&[], name);
        change(&mut params);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let file = directory.path().join(format!("{name}.crt"));
        std::fs::write(&file, certificate.pem()).expect("written");
        Authority { issuer: Issuer::new(params, key), file, directory }
    }

    /// Returns a path in the authority's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the setting with which a daemon requires client certificates of this authority.
    pub(crate) fn client_ca(&self) -> String {
        format!("client_ca = {:?}\n", self.file)
    }

    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> Pair {
        self.issue_with(name, hosts, |_| {})
    }

    /// Issues a certificate for `127.0.0.1` and `localhost`.
    pub(crate) fn issue_local(&self, name: &str) -> Pair {
        self.issue(name, &["127.0.0.1", "localhost"])
    }

    /// Issues a certificate that is valid in these years only.
    pub(crate) fn issue_for_years(&self, name: &str, years: Range<i32>) -> Pair {
        self.issue_with(name, &["127.0.0.1", "localhost"], |params| limit(params, years))
    }

    pub(crate) fn issue_for_servers(&self, name: &str) -> Pair {
        let only = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue_with(name, &["127.0.0.1"], |params| params.extended_key_usages = only)
    }

    /// Issues a certificate without a common name.
    pub(crate) fn issue_without_name(&self, name: &str) -> Pair {
        let mut organization = DistinguishedName::new();
        organization.push(DnType::OrganizationName, name);
        self.issue_with(name, &["127.0.0.1"], |params| params.distinguished_name = organization)
    }

    /// Issues a certificate that is marked as an authority's own (CA:TRUE).
    pub(crate) fn issue_authority(&self, name: &str) -> Pair {
        let is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.issue_with(name, &["127.0.0.1"], |params| params.is_ca = is_ca)
    }

    fn issue_with(&self, name: &str, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = params(hosts, name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pair =
            Pair { certificate: self.path(&format!("{name}.crt")), key: self.path(&format!("{name}.key")) };
        std::fs::write(&pair.certificate, certificate.pem()).expect("written");
        write_secret(&pair.key, &key.serialize_pem());
        pair
    }

    /// Returns the TLS settings of a client that trusts this authority.
    pub(crate) fn client(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).expect("PEM")).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions that ring has")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_file(&pair.key).expect("PEM");
                builder.with_client_auth_cert(pair.chain(), key).expect("a key that fits")
            }
        })
    }
}

impl Pair {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(&self.certificate)
            .expect("a file")
            .collect::<Result<_, _>>()
            .expect("PEM")
    }

    /// Overwrites the files of this pair with those of another pair.
    pub(crate) fn replace_by(&self, other: &Pair) {
        std::fs::copy(&other.certificate, &self.certificate).expect("copied");
        std::fs::copy(&other.key, &self.key).expect("copied");
    }
}

fn params(hosts: &[&str], name: &str) -> CertificateParams {
    let (uris, hosts): (Vec<&str>, Vec<&str>) = hosts.iter().partition(|host| host.contains("://"));
    let (emails, hosts): (Vec<&str>, Vec<&str>) = hosts.into_iter().partition(|host| host.contains('@'));
    let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(hosts).expect("names");
    let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("ASCII")));
    let emails = emails.into_iter().map(|email| SanType::Rfc822Name(email.try_into().expect("ASCII")));
    params.subject_alt_names.extend(uris.chain(emails));
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Writes a file that only its owner can read.
pub(crate) fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
}

/// Returns a configuration with this certificate. `more` follows in the table `[tls]`.
pub(crate) fn tls_section(pair: &Pair, more: &str) -> String {
    let certificate = pair.certificate.display();
    let key = pair.key.display();
    format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{more}\n")
}

/// Sets up a daemon with a TLS listener and the configuration of [`tls_section`].
pub(crate) fn tls_setup(pair: &Pair, more: &str) -> Setup {
    Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&tls_section(pair, more))
}

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// A TLS connection under a [`Wire`].
#[derive(Debug)]
struct Secure(Secured);

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Transport for Secure {
    fn tcp(&self) -> &TcpStream {
        &self.0.sock
    }

    fn half_close(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()?;
        self.0.sock.shutdown(Shutdown::Write)
    }
}

/// Connects over TLS to a listener on 127.0.0.1.
pub(crate) fn try_secure(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Secured> {
    handshake(TcpStream::connect_timeout(&address, DEADLINE)?, config)
}

/// Does the TLS handshake with a daemon on 127.0.0.1.
pub(crate) fn handshake(mut socket: TcpStream, config: &Arc<ClientConfig>) -> io::Result<Secured> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    let name = "127.0.0.1".try_into().expect("a name");
    let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// Connects over TLS to a listener on 127.0.0.1, and panics if that fails.
pub(crate) fn secure_wire(address: SocketAddr, config: &Arc<ClientConfig>) -> Wire {
    let secured =
        try_secure(address, config).unwrap_or_else(|error| panic!("the TLS handshake failed: {error}"));
    Wire::over(Box::new(Secure(secured)))
}
