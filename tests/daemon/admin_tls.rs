//! The admin listener over TLS: the peers that it accepts, and the error that each kind of mistake
//! causes.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use crate::secure::{Authority, tls_section, try_secure};
use crate::support::http::{Answer, get, parse, sample, scrape};
use crate::support::program::{Said, snowbank};
use crate::support::{Address, Ask, Daemon, Setup, poll};
use rustls::ClientConfig;

/// A daemon whose admin listener alone speaks TLS, and the authority that both sides trust.
struct House {
    daemon: Daemon,
    authority: Authority,
    _files: tempfile::TempDir,
}

impl House {
    /// Starts it with these lines in `[tls]`. `PATH` in them stands for the directory of its files.
    fn with(more: &str) -> House {
        let files = crate::support::directory();
        let authority = Authority::new(files.path(), "authority");
        let more = more.replace("PATH", &files.path().display().to_string());
        let config = tls_section(&authority.issue_local("daemon"), &more);
        let setup = Setup::new().option("--admin", "tls:127.0.0.1:0").listeners(2).config(&config);
        House { daemon: setup.start(), authority, _files: files }
    }

    fn admin(&self) -> &Address {
        &self.daemon.addresses[1]
    }

    fn get(&self, path: &str, client: &Arc<ClientConfig>) -> Answer {
        get_over(self.admin(), path, client)
    }

    /// Runs `snowbank status` against it, with its authority.
    fn status(&self, options: &[&str]) -> Said {
        let admin = self.admin().to_string();
        let ca = self.authority.file.display().to_string();
        status(&[&["--admin", &admin, "--ca", &ca], options].concat())
    }
}

fn get_over(admin: &Address, path: &str, client: &Arc<ClientConfig>) -> Answer {
    let mut stream = try_secure(admin.tcp(), client, "127.0.0.1").expect("TLS");
    // Another host name: the handshake has already checked the certificate.
    let request = format!("GET {path} HTTP/1.1\r\nHost: ids.example.com\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the request leaves");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer and a clean end");
    parse(&answer)
}

fn status(options: &[&str]) -> Said {
    snowbank([&["status"], options].concat())
}

/// Asserts that the command could not ask: exit code 2, and one line that contains the reason.
#[track_caller]
fn assert_unasked(said: Said, part: &str) {
    let line = said.refusal(2);
    assert!(line.contains(part), "{part:?}: {line}");
}

#[test]
fn the_status_is_served_over_tls() {
    let house = House::with("");
    house.daemon.connect().next(Ask::of(7)).ids();
    let said = house.status(&[]);
    assert!(said.code == Some(0), "{said:?}");
    assert!(said.out.starts_with("Serving"), "{said:?}");
    let client = house.authority.client(None);
    for path in ["/", "/metrics", "/healthz", "/readyz", "/status"] {
        assert_eq!(house.get(path, &client).code, 200, "{path}");
    }
    let facts = house.get("/status", &client).json()["facts"].to_string();
    assert!(facts.contains("\"certificate\""), "{facts}");
}

#[test]
fn a_key_that_all_can_read_and_a_future_certificate_only_warn() {
    let files = crate::support::directory();
    let authority = Authority::new(files.path(), "authority");
    let later = authority.issue_from("daemon", &["127.0.0.1"], 2990);
    std::fs::set_permissions(&later.key, Permissions::from_mode(0o644)).expect("one's own file");
    let daemon = Setup::configured(&tls_section(&later, "")).admin().start();
    daemon.assert_logs("valid from 2990-01-01T00:00:00Z on, and clients refuse it until then");
    daemon.assert_logs("can be read by every user of this machine (mode 0644): chmod o-rwx");
    let ready = get(&daemon, "/readyz");
    assert_eq!(ready.code, 200);
    let findings = ready.json()["findings"].clone();
    assert_eq!(findings[0]["name"], "certificate", "{findings}");
    // The certificate is renewed; a reload takes it.
    authority.issue_local("daemon");
    daemon.signal(rustix::process::Signal::HUP);
    poll("no finding", || {
        get(&daemon, "/readyz").json()["findings"].eq(&serde_json::json!([])).then_some(())
    });
    assert!(sample(&scrape(&daemon), "snowbank_certificate_expiry_timestamp_seconds") > 1e9);
}

#[test]
fn a_client_certificate_is_required_if_clients_need_one() {
    let house = House::with("client_ca = \"PATH/authority.crt\"");
    assert_unasked(
        house.status(&[]),
        "asks for a client certificate: give one (--client-cert, --client-key)",
    );
    house.daemon.assert_logs("the peer sent no client certificate");
    let own = house.authority.issue("operator", &[]);
    let certificate = own.certificate.display().to_string();
    let key = own.key.display().to_string();
    let said = house.status(&["--client-cert", &certificate, "--client-key", &key]);
    assert!(said.code == Some(0), "{said:?}");
    assert_eq!(house.get("/metrics", &house.authority.client(Some(&own))).code, 200);
    let strange = Authority::new(house._files.path(), "strange").issue("stranger", &[]);
    let certificate = strange.certificate.display().to_string();
    let key = strange.key.display().to_string();
    assert_unasked(house.status(&["--client-cert", &certificate, "--client-key", &key]), "authority");
}

#[test]
fn admin_tls_without_a_certificate_is_refused() {
    let end = Setup::new().option("--admin", "tls:127.0.0.1:0").end();
    end.assert_refusal(&["tls:127.0.0.1:0", "has no certificate to show", "[tls]"]);
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let copy = || socket.try_clone().expect("a copy");
    Setup::new().inheriting(copy(), "admin-tls").end().assert_refusal(&["has no certificate to show"]);
    let files = crate::support::directory();
    let authority = Authority::new(files.path(), "authority");
    let setup = Setup::new().config(&tls_section(&authority.issue_local("daemon"), ""));
    let daemon = setup.inheriting(copy(), "admin-tls").listeners(2).start();
    assert_eq!(get_over(&daemon.addresses[1], "/healthz", &authority.client(None)).code, 200);
}
