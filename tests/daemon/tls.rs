//! TLS on the listeners: which peers the daemon accepts, the bytes of the connection, and the
//! message for each kind of mistake.

mod admin;
mod certificates;
mod key_changes;
mod peers;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::secure::{Authority, Pair, secure_wire, tls_section, tls_setup, try_secure, write_secret};
use crate::support::program::{Said, snowbank};
use crate::support::wire::{self, EXPLICIT, UNAUTHORIZED};
use crate::support::{Address, Ask, DEADLINE, Daemon, Setup, Wire, poll};
use rustix::process::Signal;
use snowbank_client::{Client, ClientOptions, TlsFiles};

/// A daemon with a TLS listener, and the authority that the daemon and its clients trust.
struct House {
    daemon: Daemon,
    authority: Authority,
}

impl House {
    /// Starts a daemon with these lines after `[tls]`.
    fn with(more: &str) -> House {
        let authority = Authority::new("authority");
        let daemon = tls_setup(&authority.issue_local("daemon"), more).start();
        House { daemon, authority }
    }

    /// Starts a daemon that requires client certificates.
    fn asking_for_certificates() -> House {
        let authority = Authority::new("authority");
        let daemon = tls_setup(&authority.issue_local("daemon"), &authority.client_ca()).start();
        House { daemon, authority }
    }

    fn wire(&self) -> Wire {
        secure_wire(self.daemon.tcp(), &self.authority.client(None))
    }

    /// Runs `snowbank ping` against the daemon, and trusts the daemon's authority.
    fn ping(&self, options: &[&str]) -> Said {
        let address = format!("tls:{}", self.daemon.tcp());
        let ca = self.authority.file.to_str().expect("a path");
        snowbank([&["ping", "--address", &address, "--ca", ca], options].concat())
    }
}

#[track_caller]
fn assert_refused(said: &Said, part: &str) {
    let Said { code, err, .. } = said;
    assert!(*code != Some(0) && err.contains(part) && err.lines().count() == 1, "{part:?}: {said:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn half_closed_clients_and_clients_at_a_stop_get_close_notify() {
    let mut house = House::with("");
    let mut wire = house.wire();
    for tag in 0..100 {
        wire.send(&Ask::of(700).tag(tag).bytes());
    }
    wire.half_close();
    for tag in 0..100 {
        assert_eq!(wire.reply().ids().len(), 700, "{tag}");
    }
    wire.assert_closed();
    let mut idle = house.wire();
    idle.assert_open();
    // This peer has not started its handshake, and must not delay the stop.
    let _silent = TcpStream::connect(house.daemon.tcp()).expect("connected");
    let daemon = &mut house.daemon;
    daemon.signal(Signal::TERM);
    idle.assert_closed();
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    assert!(
        !daemon.log().contains("a request half sent"),
        "the stop waited for the silent peer: {}",
        daemon.log()
    );
}

#[test]
fn inherited_sockets_named_native_tls_speak_tls() {
    let authority = Authority::new("authority");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let copy = || socket.try_clone().expect("a copy");
    let setup = Setup::bare().config(&tls_section(&authority.issue_local("daemon"), ""));
    let daemon = setup.inheriting(copy(), "native-tls").start();
    assert_eq!(daemon.addresses, [Address::Tls(socket.local_addr().expect("bound"))]);
    secure_wire(daemon.tcp(), &authority.client(None)).next(Ask::of(3)).ids();
    // A reload cannot remove the certificate.
    std::fs::write(daemon.path("snowbank.toml"), "").expect("written");
    daemon.signal(Signal::HUP);
    daemon.assert_logs("without a certificate");
    daemon.stop();
    let ended = Setup::bare().inheriting(copy(), "native-tls").end();
    ended.assert_refusal(&["tls:127.0.0.1:", "without a certificate"]);
    let unix = UnixListener::bind(authority.path("socket")).expect("a socket");
    Setup::bare()
        .inheriting(unix, "native-tls")
        .end()
        .assert_refusal(&["found a Unix socket, allowed: a TCP"]);
}

/// The client is `openssl s_client`.
#[test]
fn openssl_gets_a_reply_and_close_notify() {
    if !crate::support::has_program("openssl", "openssl") {
        return;
    }
    let house = House::asking_for_certificates();
    let House { daemon, authority, .. } = &house;
    let own = authority.issue("client", &[]);
    let client = |version: &str| {
        let mut client = Command::new("openssl");
        client.args(["s_client", version, "-quiet", "-verify_return_error", "-verify_ip", "127.0.0.1"]);
        client.args(["-connect", &daemon.tcp().to_string(), "-CAfile", text(&authority.file)]);
        client.args(["-cert", text(&own.certificate), "-key", text(&own.key)]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        client.spawn().expect("openssl runs")
    };
    let mut newest = client("-tls1_3");
    let mut stdin = newest.stdin.take().expect("piped");
    // The second request is malformed, so the daemon answers with an error and closes the
    // connection.
    stdin.write_all(&wire::ping(7, b"interop")).expect("room");
    stdin.write_all(&[0xFF; 8]).expect("room");
    let mut answer = Vec::new();
    newest.stdout.take().expect("piped").read_to_end(&mut answer).expect("readable");
    assert!(answer.starts_with(b"\x0b\0\0\0\x84\0\x07\0interop"), "{answer:?}");
    assert_eq!(answer[15 + 4], 0xFF, "the answer has no ERROR: {answer:?}");
    assert!(newest.wait().expect("the process ends").success());

    assert!(!client("-tls1_2").wait().expect("the process ends").success(), "the daemon accepted TLS 1.2");
    daemon.assert_logs("no version of TLS");
}

/// The client is the Rust library.
#[tokio::test]
async fn a_client_reads_renewed_certificate_files() {
    let house = House::with("");
    let addresses = [format!("tls:{}", house.daemon.tcp())];
    // At first the file has the certificate of another authority.
    let file = house.authority.path("changing.crt");
    std::fs::copy(&Authority::new("unknown").file, &file).expect("copied");
    let options = ClientOptions::new(&addresses).expect("addresses").tls(TlsFiles::new().ca(&file));
    let client = Client::new(options.timeout(DEADLINE).fail_fast(true)).expect("a client");
    let error = client.ping().await.expect_err("an unknown authority").to_string();
    assert!(error.contains("its certificate is not signed by an authority"), "{error}");
    std::fs::copy(&house.authority.file, &file).expect("copied");
    client.ping().await.expect("a known authority");
}
