//! TLS on the listeners: accepted peers, the bytes that pass, and what each mistake looks like to the peer that made it.

mod secure;
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use secure::{Authority, Pair, secure_wire, tls_section, try_secure, write_secret};
use support::wire::{self, EXPLICIT, MALFORMED, SHUTTING_DOWN, UNAUTHORIZED};
use support::{Address, Ask, DEADLINE, Daemon, Reply, Setup, Wire, poll};

/// A daemon with a TLS listener, and the authority that it and its clients believe.
struct House {
    daemon: Daemon,
    authority: Authority,
    _files: tempfile::TempDir,
}

impl House {
    /// With these lines in `[tls]`, and `PATH` in them for the directory of its files.
    fn with(more: &str) -> House {
        House::configured("", more)
    }

    fn configured(top: &str, more: &str) -> House {
        let files = support::directory();
        let authority = Authority::new(files.path(), "authority");
        let pair = authority.issue_local("daemon");
        let more = more.replace("PATH", &files.path().display().to_string());
        let config = format!("{top}\n{}", tls_section(&pair, &more));
        let daemon = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&config).start();
        House { daemon, authority, _files: files }
    }

    fn asking_for_certificates() -> House {
        House::with("client_ca = \"PATH/authority.crt\"")
    }

    fn wire(&self) -> Wire {
        secure_wire(self.daemon.tcp(), &self.authority.client(None))
    }

    /// `snowbank ping` to it, believing its authority.
    fn ping(&self, options: &[&str]) -> Output {
        let address = format!("tls:{}", self.daemon.tcp());
        let ca = self.authority.file.to_str().expect("a path");
        snowbank(&[&["ping", "--address", &address, "--ca", ca], options].concat())
    }

    /// Waits for a line of its log.
    fn says(&self, part: &str) {
        poll(part, || self.daemon.log().contains(part).then_some(()));
    }
}

fn snowbank(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_snowbank")).args(arguments).output().expect("the program runs")
}

#[track_caller]
fn assert_refused(output: &Output, part: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(part) && said.lines().count() == 1, "{part:?}: {said}");
}

#[track_caller]
fn assert_done(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn ids_come_over_tls_beside_a_plain_listener() {
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let config = tls_section(&authority.issue_local("daemon"), "");
    let setup = Setup::new().option("--listen", "tls:127.0.0.1:0").config(&config);
    let daemon = setup.listeners(2).start();
    let mut plain = daemon.connect();
    let mut secure = secure_wire(daemon.addresses[1].tcp(), &authority.client(None));
    let mut last = 0;
    for count in [1, 1_000, 50_000] {
        for wire in [&mut plain, &mut secure] {
            let ids = wire.next(Ask::of(count)).ids();
            assert_eq!(ids.len() as u32, count);
            assert!(ids.is_sorted());
            last = last.max(ids[0]);
        }
    }
    assert!(last > 0);
    // A client that has sent all its requests still gets its replies, and then close_notify.
    for tag in 0..100 {
        secure.send(&Ask::of(7).tag(tag).bytes());
    }
    secure.half_close();
    for tag in 0..100 {
        assert_eq!(secure.reply().ids().len(), 7, "{tag}");
    }
    secure.assert_closed();
}

#[test]
fn requests_are_answered_however_records_cut_them() {
    let house = House::with("");
    let requests: Vec<u8> = (0..1_000).flat_map(|tag| Ask::of(2).tag(tag).bytes()).collect();
    // More than one record in one piece; records that end within requests; more of them than one read takes.
    for piece in [requests.len(), 16_384, 1_000, 17] {
        let mut wire = house.wire();
        for piece in requests.chunks(piece) {
            wire.send(piece);
        }
        let mut last = 0;
        for tag in 0..1_000 {
            let reply = wire.reply();
            assert_eq!(reply.tag(), tag);
            for id in reply.ids() {
                assert!(id > last, "{id} after {last}");
                last = id;
            }
        }
        wire.assert_open();
    }
    let mut wire = house.wire();
    for byte in requests.iter().take(160) {
        wire.send(&[*byte]);
    }
    for tag in 0..10 {
        assert_eq!(wire.reply().tag(), tag);
    }
}

/// The requests that are pipelined here fill the daemon's buffer several times, and then nothing comes that could wake it.
#[test]
fn decrypted_bytes_that_were_not_read_are_answered() {
    let house = House::with("");
    let mut wire = house.wire();
    let requests: Vec<u8> = (0..20_000_u16).flat_map(|tag| wire::ping(tag, b"")).collect();
    assert!(requests.len() > 2 * 65_536);
    // Its replies fit the sockets' buffers, so that writing all of it first never blocks for ever.
    wire.send(&requests);
    for tag in 0..20_000 {
        assert_eq!(wire.reply(), Reply::Pong(tag, Vec::new()));
    }
    wire.assert_open();
}

#[test]
fn a_long_reply_arrives_whole_at_a_slow_reader() {
    let house = House::configured("worker_ids = \"0-15\"", "");
    let mut wire = house.wire();
    for tag in 0..3 {
        wire.send(&Ask::of(500_000).flags(EXPLICIT).tag(tag).bytes());
    }
    // Meanwhile the sockets' buffers are full, and the daemon has more.
    thread::sleep(Duration::from_millis(300));
    let mut last = 0;
    for _ in 0..3 {
        let ids = wire.reply().ids();
        assert_eq!(ids.len(), 500_000);
        assert!(ids[0] > last && ids.is_sorted());
        last = ids[ids.len() - 1];
    }
    wire.assert_open();
}

/// Bytes that the daemon hands to TLS when the socket is full must leave without another request. The steps are smaller than
/// what TLS holds, because how much fills a socket is not known.
#[test]
fn the_last_reply_arrives_however_full_the_socket_was() {
    const IDS: usize = 7_000;
    let house = House::configured("worker_ids = \"0-15\"", "");
    let client = house.authority.client(None);
    for requests in 8..80 {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        // Small, so that little fills it.
        socket.set_recv_buffer_size(4_096).expect("a buffer");
        socket.connect(&house.daemon.tcp().into()).expect("it listens");
        let mut secured = secure::shake(socket.into(), &client, "127.0.0.1").expect("it shakes hands");
        for _ in 0..requests {
            secured.write_all(&Ask::of(IDS as u32).flags(EXPLICIT).bytes()).expect("room");
            thread::sleep(Duration::from_millis(1));
        }
        let mut replies = vec![0; requests * (8 + 8 * IDS)];
        secured.read_exact(&mut replies).unwrap_or_else(|error| panic!("of {requests} replies: {error}"));
    }
}

#[test]
fn a_client_that_takes_nothing_is_closed_after_the_stall_timeout() {
    let house = House::configured(
        "worker_ids = \"0-15\"\n[limits]\nstall_timeout = \"500ms\"\nidle_timeout = \"1h\"",
        "",
    );
    let files = house.daemon.open_files();
    let mut wire = house.wire();
    wire.send(&Ask::of(1_000_000).flags(EXPLICIT).bytes());
    wire.send(&Ask::of(1_000_000).flags(EXPLICIT).bytes());
    poll("the end of a connection that takes nothing", || (house.daemon.open_files() == files).then_some(()));
    house.wire().assert_open();
}

#[test]
fn certificates_of_clients_are_asked_for_and_judged() {
    let house = House::asking_for_certificates();
    let files = support::directory();
    let stranger = Authority::new(files.path(), "stranger");
    let good = house.authority.issue("good", &["any.name"]);
    let output = house.ping(&["--client-cert", text(&good.certificate), "--client-key", text(&good.key)]);
    assert_done(&output);
    let config = house.authority.client(Some(&good));
    secure_wire(house.daemon.tcp(), &config).next(Ask::of(5)).ids();

    assert_refused(
        &house.ping(&[]),
        "it asks for a client certificate: give one (--client-cert, --client-key)",
    );
    house.says("the peer sent no client certificate, and tls.client_ca asks for one");
    let expired = house.authority.issue_expired("expired", &[]);
    let foreign = stranger.issue("foreign", &[]);
    let server = house.authority.issue_for_servers("server");
    for (pair, client_reads, daemon_says) in [
        (
            expired,
            "says that this client's certificate has expired",
            "the peer's client certificate has expired",
        ),
        (foreign, "does not know the authority of this client's", "is not of an authority in tls.client_ca"),
        (server, "(--client-cert", "was not made for this use"),
    ] {
        let (certificate, key) = (text(&pair.certificate), text(&pair.key));
        let output = house.ping(&["--client-cert", certificate, "--client-key", key]);
        if client_reads.starts_with('(') {
            assert!(!output.status.success());
        } else {
            assert_refused(&output, client_reads);
        }
        house.says(daemon_says);
    }
    let mut secured = try_secure(house.daemon.tcp(), &house.authority.client(None), "127.0.0.1")
        .expect("in version 1.3 a client learns of it afterwards");
    let error = secured.read(&mut [0]).expect_err("refused");
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
}

#[test]
fn tokens_are_asked_for_besides_client_certificates() {
    let files = support::directory();
    let token = files.path().join("token");
    write_secret(&token, "s3cret\n");
    let top = format!("auth.token_file = \"{}\"", token.display());
    let house = House::configured(&top, "client_ca = \"PATH/authority.crt\"");
    let good = house.authority.issue("good", &[]);
    let options = ["--client-cert", text(&good.certificate), "--client-key", text(&good.key)];
    assert_refused(&house.ping(&options), "unauthorized");
    assert_done(&house.ping(&[&options[..], &["--token-file", text(&token)]].concat()));
}

#[test]
fn a_client_refuses_a_daemon_that_it_cannot_believe() {
    let house = House::with("");
    assert_done(&house.ping(&[]));
    assert_done(&house.ping(&["--server-name", "localhost"]));
    let wrong_name = house.ping(&["--server-name", "ids.example"]);
    assert_refused(&wrong_name, "its certificate is for another name");
    let files = support::directory();
    let stranger = Authority::new(files.path(), "stranger");
    let address = format!("tls:{}", house.daemon.tcp());
    let unknown = snowbank(&["ping", "--address", &address, "--ca", text(&stranger.file)]);
    assert_refused(&unknown, "its certificate is not of an authority in the CA certificates given (--ca)");
    house.says("the peer does not know the authority of this daemon's certificate");
}

#[test]
fn a_client_refuses_a_certificate_that_has_expired() {
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let pair = authority.issue_expired("daemon", &["127.0.0.1"]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(pair.chain(), pair.private_key())
        .expect("key and certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tls:{}", listener.local_addr().expect("bound"));
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the client connects");
        let mut session = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
        session.complete_io(&mut socket).expect_err("the client refuses")
    });
    let output = snowbank(&["ping", "--address", &address, "--ca", text(&authority.file)]);
    assert_refused(&output, "its certificate has expired: renew it");
    assert!(server.join().expect("no panic").to_string().contains("CertificateExpired"));
}

/// A certificate of the wrong kind: both sides log what it is and what to make instead.
#[test]
fn certificates_of_the_wrong_kind_are_named_with_what_to_make_instead() {
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let shown = |pair: &Pair, listener: &str| {
        let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&tls_section(pair, listener));
        let daemon = setup.start();
        let address = format!("tls:{}", daemon.tcp());
        (daemon, snowbank(&["ping", "--address", &address, "--ca", text(&authority.file)]))
    };
    let (daemon, refused) = shown(&authority.issue_authority("ca"), "");
    assert_refused(
        &refused,
        "its certificate is an authority's own (CA:TRUE), allowed: one that an authority signed",
    );
    for part in ["WARN the TLS certificate is an authority's own (CA:TRUE)", "its own message says which"] {
        poll(part, || daemon.log().contains(part).then_some(()));
    }
    let (_daemon, refused) = shown(&authority.issue("nameless", &[]), "");
    assert_refused(&refused, "its certificate names no host: make one with a subjectAltName");

    let house = House::asking_for_certificates();
    let ca = house.authority.issue_authority("ca");
    let refused = house.ping(&["--client-cert", text(&ca.certificate), "--client-key", text(&ca.key)]);
    assert_refused(&refused, "it does not believe this client's certificate");
    house.says("the peer's client certificate is an authority's own (CA:TRUE), allowed:");
}

#[test]
fn plain_text_on_a_tls_listener_is_closed_and_logged_once() {
    let house = House::with("");
    for _ in 0..20 {
        let mut plain = TcpStream::connect(house.daemon.tcp()).expect("it listens");
        plain.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        plain.write_all(&Ask::of(1).bytes()).expect("room");
        let mut answer = Vec::new();
        plain.read_to_end(&mut answer).expect("an orderly end");
        assert_eq!(answer[..2], [0x15, 0x03], "an alert: {answer:?}");
    }
    house.says("the peer does not speak TLS");
    assert_eq!(house.daemon.log().matches("does not speak TLS").count(), 1, "{}", house.daemon.log());
    let address = house.daemon.tcp().to_string();
    assert_refused(&snowbank(&["ping", "--address", &address]), "it speaks TLS: write tls:host:port");
    house.wire().assert_open();
}

#[test]
fn a_client_names_a_server_that_does_not_shake_hands() {
    // The kernel accepts, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tls:{}", silent.local_addr().expect("an address"));
    let output = snowbank(&["ping", "--address", &address, "--timeout", "1s"]);
    assert_refused(&output, &format!("cannot reach {address}: it "));
    assert_refused(&output, "the TLS handshake");
}

#[test]
fn tls_on_a_plain_listener_is_answered_and_logged() {
    let daemon = Setup::new().start();
    let address = format!("tls:{}", daemon.tcp());
    assert_refused(&snowbank(&["ping", "--address", &address]), "if it is a plain listener, leave out tls:");
    poll("a line on it", || daemon.log().contains("a TLS client on a listener without TLS").then_some(()));
    let mut wire = daemon.connect();
    wire.send(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01]);
    let (code, _, message) = wire.reply().error();
    assert_eq!(code, MALFORMED);
    assert!(message.contains("a TLS client on a listener without TLS"), "{message}");
    wire.assert_closed();
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let house = House::configured("limits.stall_timeout = \"200ms\"", "");
    for sent in [&b""[..], b"\x16\x03\x01\x02\x00"] {
        let mut slow = TcpStream::connect(house.daemon.tcp()).expect("it listens");
        slow.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        slow.write_all(sent).expect("room");
        assert_eq!(slow.read(&mut [0]).expect("an end, and no reset"), 0);
    }
    house.says("the handshake was not over within 200ms");
    house.wire().assert_open();
}

#[test]
fn peers_that_leave_early_are_nobodys_business() {
    let house = House::with("");
    for _ in 0..5 {
        drop(TcpStream::connect(house.daemon.tcp()).expect("it listens"));
    }
    // Without a word of the end: half a request is under way.
    let secured = try_secure(house.daemon.tcp(), &house.authority.client(None), "127.0.0.1");
    let mut secured = secured.expect("it shakes hands");
    secured.write_all(&Ask::of(1).bytes()[..7]).expect("room");
    drop(secured);
    house.wire().assert_open();
    assert!(!house.daemon.log().contains("closed a connection"), "{}", house.daemon.log());
}

#[test]
fn a_stop_answers_arrived_requests_and_sends_close_notify() {
    let top = "[[sources]]\nname = \"slow\"\nworker_ids = 1\n\
               layout = \"time:38,worker:10,sequence:4;tick=100ms;epoch=2025-01-01T00:00:00Z\"";
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let config = format!("{}{top}", tls_section(&authority.issue_local("daemon"), ""));
    let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&config);
    let mut daemon = setup.start();
    let client = authority.client(None);
    let (mut busy, mut idle) = (secure_wire(daemon.tcp(), &client), secure_wire(daemon.tcp(), &client));
    // One that has not begun to shake hands does not keep the daemon.
    let silent = TcpStream::connect(daemon.tcp()).expect("it listens");
    idle.assert_open();
    busy.send(&Ask::of(64).wait_ms(5_000).bytes());
    busy.assert_waits_a_moment();
    daemon.signal(Signal::TERM);
    match busy.reply() {
        Reply::Error { code, .. } => assert_eq!(code, SHUTTING_DOWN),
        reply => assert_eq!(reply.ids().len(), 64),
    }
    busy.assert_closed();
    idle.assert_closed();
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    assert!(!daemon.log().contains("closed anyway"), "the stop waited for nothing: {}", daemon.log());
    drop(silent);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let house = House::configured("limits.max_connections = 2", "");
    let mut open = [house.wire(), house.wire()];
    let refused = try_secure(house.daemon.tcp(), &house.authority.client(None), "127.0.0.1");
    assert!(refused.is_err());
    open[1].assert_open();
    drop(open);
    poll("room for another", || {
        try_secure(house.daemon.tcp(), &house.authority.client(None), "127.0.0.1").ok()
    });
}

/// Each mistake with certificates is found at the start, and by `check`, in one line with the file.
#[test]
fn certificates_that_cannot_be_used_are_refused_with_what_to_do() {
    let files = support::directory();
    let at = |name: &str| files.path().join(name);
    let authority = Authority::new(files.path(), "authority");
    let good = authority.issue_local("good");
    let expired = authority.issue_expired("expired", &["localhost"]);
    let pem = std::fs::read_to_string(&good.key).expect("readable");
    write_secret(&at("empty"), "");
    write_secret(&at("prose"), "not a certificate\n");
    write_secret(&at("cut"), &pem[..pem.len() / 2]);
    write_secret(&at("encrypted"), &pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    write_secret(&at("hollow"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    std::fs::write(at("der"), good.chain()[0].as_ref()).expect("written");
    let other = authority.issue_local("other");
    let with = |certificate: &Path, key: &Path| Pair { certificate: certificate.into(), key: key.into() };
    let missing = at("missing");
    for (pair, client_ca, parts) in [
        (with(&missing, &good.key), None, ["tls.certificate", "missing: cannot be read"]),
        (with(&good.certificate, &missing), None, ["tls.key", "missing: cannot be read"]),
        (with(&at("empty"), &good.key), None, ["tls.certificate", "found an empty file"]),
        (with(&at("prose"), &good.key), None, ["tls.certificate", "found no certificate, allowed: PEM"]),
        (with(&at("der"), &good.key), None, ["tls.certificate", "found DER, allowed: PEM"]),
        (with(&at("hollow"), &good.key), None, ["tls.certificate", "it is no X.509 certificate"]),
        (with(&good.key, &good.key), None, ["tls.certificate", "were the two files taken for each other?"]),
        (
            with(&good.certificate, &good.certificate),
            None,
            ["tls.key", "were the two files taken for each other?"],
        ),
        (with(&good.certificate, &at("cut")), None, ["tls.key", "was the file copied whole?"]),
        (with(&good.certificate, &at("encrypted")), None, ["tls.key", "found an encrypted key"]),
        (with(&good.certificate, &other.key), None, ["tls.key", "is not that of the certificate"]),
        (expired, None, ["tls.certificate", "found one that expired 2001-01-01T00:00:00Z"]),
        (good.clone(), Some("empty"), ["tls.client_ca", "found an empty file"]),
        (good.clone(), Some("good.key"), ["tls.client_ca", "found a private key and no certificate"]),
        (good.clone(), Some("hollow"), ["tls.client_ca", "its certificate 1 is none of an authority"]),
    ] {
        let more = client_ca.map_or(String::new(), |name| format!("client_ca = \"{}\"", at(name).display()));
        let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&tls_section(&pair, &more));
        let config = setup.path("snowbank.toml");
        let check = snowbank(&["check", "--config", text(&config), "--listen", "tls:127.0.0.1:0"]);
        let found = String::from_utf8_lossy(&check.stdout).into_owned();
        let ended = setup.end();
        ended.assert_refusal(&parts);
        assert!(!ended.stderr.contains(&pem[60..80]), "a key is not shown: {}", ended.stderr);
        assert!(!check.status.success() && parts.iter().all(|part| found.contains(part)), "{found}");
    }
    let no_certificate = Setup::bare().option("--listen", "tls:127.0.0.1:0");
    no_certificate.end().assert_refusal(&["tls:127.0.0.1:0 has no certificate to show", "[tls]"]);
    let alone = format!("[tls]\ncertificate = \"{}\"", good.certificate.display());
    Setup::configured(&alone).end().assert_refusal(&["tls.key is missing"]);
}

#[test]
fn a_certificate_that_ends_soon_or_has_not_begun_and_an_open_key_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let later = authority.issue_from("later", &["127.0.0.1"], 2_200);
    std::fs::set_permissions(&later.key, std::fs::Permissions::from_mode(0o644)).expect("one's own file");
    let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&tls_section(&later, ""));
    let daemon = setup.start();
    for part in [
        "valid from 2200-01-01T00:00:00Z on, and clients refuse it until then",
        "can be read by every user of this machine (mode 0644): chmod o-rwx",
    ] {
        poll(part, || daemon.log().contains(part).then_some(()));
    }
}

#[test]
fn inherited_sockets_speak_tls_where_their_name_says_so() {
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let copy = || socket.try_clone().expect("a copy");
    let setup = Setup::bare().config(&tls_section(&authority.issue_local("daemon"), ""));
    let daemon = setup.inheriting(copy(), "native-tls").start();
    assert_eq!(daemon.addresses, [Address::Tls(socket.local_addr().expect("bound"))]);
    secure_wire(daemon.tcp(), &authority.client(None)).next(Ask::of(3)).ids();
    daemon.stop();
    let ended = Setup::bare().inheriting(copy(), "native-tls").end();
    ended.assert_refusal(&["tls:127.0.0.1:", "has no certificate to show"]);
    let unix = UnixListener::bind(files.path().join("socket")).expect("a socket");
    Setup::bare()
        .inheriting(unix, "native-tls")
        .end()
        .assert_refusal(&["found a Unix socket, allowed: a TCP"]);
}

/// A renewed certificate, other authorities and a mistake, each taken up or refused under connections that stay, unless their
/// authority is gone.
#[test]
fn a_reload_shows_the_certificate_of_the_file() {
    let files = support::directory();
    let (old, new) = (Authority::new(files.path(), "old"), Authority::new(files.path(), "new"));
    let pair = old.issue_local("daemon");
    let client_ca = files.path().join("clients.crt");
    std::fs::copy(&old.file, &client_ca).expect("copied");
    let config = tls_section(&pair, &format!("client_ca = \"{}\"", client_ca.display()));
    let daemon = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&config).start();
    let reload = |part: &str| {
        let before = daemon.log().matches(part).count();
        daemon.signal(Signal::HUP);
        poll(part, || (daemon.log().matches(part).count() > before).then_some(()));
    };
    let (of_old, of_new) = (old.issue("client", &[]), new.issue("other-client", &[]));
    let mut open = secure_wire(daemon.tcp(), &old.client(Some(&of_old)));
    reload("reloaded: nothing changed");
    old.issue_expired("daemon", &["127.0.0.1"]);
    reload("found one that expired 2001-01-01T00:00:00Z");
    secure_wire(daemon.tcp(), &old.client(Some(&of_old))).assert_open();

    new.issue_local("daemon");
    std::fs::copy(&new.file, &client_ca).expect("copied");
    reload("reloaded: other certificates");
    open.reply().assert_error(0, UNAUTHORIZED);
    open.assert_closed();
    secure_wire(daemon.tcp(), &new.client(Some(&of_new))).next(Ask::of(10)).ids();
    let unknown = try_secure(daemon.tcp(), &old.client(Some(&of_old)), "127.0.0.1").expect_err("another's");
    assert!(unknown.to_string().contains("UnknownIssuer"), "{unknown}");
    let mut refused = try_secure(daemon.tcp(), &new.client(Some(&of_old)), "127.0.0.1").expect("1.3");
    assert!(refused.read(&mut [0]).expect_err("refused").to_string().contains("UnknownCA"));
}

/// OpenSSL's own client on the other side gets the reply to a PING, and close_notify.
#[test]
fn openssl_speaks_with_the_daemon() {
    if !support::has_program("openssl", "openssl") {
        return;
    }
    let files = support::directory();
    let authority = Authority::new(files.path(), "authority");
    let more = format!("client_ca = \"{}\"", authority.file.display());
    let config = tls_section(&authority.issue_local("daemon"), &more);
    let daemon = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&config).start();
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
    // The second is malformed: it is answered, and the daemon ends the connection and so the client.
    stdin.write_all(&wire::ping(7, b"interop")).expect("room");
    stdin.write_all(&[0xFF; 8]).expect("room");
    let mut answer = Vec::new();
    newest.stdout.take().expect("piped").read_to_end(&mut answer).expect("readable");
    assert!(answer.starts_with(b"\x0b\0\0\0\x84\0\x07\0interop"), "{answer:?}");
    assert_eq!(answer[15 + 4], 0xFF, "an ERROR: {answer:?}");
    assert!(newest.wait().expect("it ends").success());

    assert!(!client("-tls1_2").wait().expect("it ends").success(), "1.2 is too old");
    poll("the reason", || daemon.log().contains("no version of TLS").then_some(()));
}

mod library {
    //! The client that applications link.

    use snowbank_client::{Client, ClientOptions, TlsFiles};

    use super::*;

    fn options(addresses: &[String], authority: &Authority) -> ClientOptions {
        let options = ClientOptions::new(addresses).expect("addresses");
        options.tls(TlsFiles::new().ca(&authority.file)).timeout(DEADLINE).connect_timeout(DEADLINE)
    }

    fn daemon_of(pair: &Pair) -> Daemon {
        Setup::bare().option("--listen", "tls:127.0.0.1:0").config(&tls_section(pair, "")).start()
    }

    #[tokio::test]
    async fn it_moves_on_to_another_daemon() {
        let files = support::directory();
        let authority = Authority::new(files.path(), "authority");
        let pair = authority.issue_local("daemon");
        let mut daemons = [daemon_of(&pair), daemon_of(&pair)];
        let addresses = daemons.each_ref().map(|daemon| format!("tls:{}", daemon.tcp()));
        let client = Client::new(options(&addresses, &authority)).expect("a client");
        assert_eq!(client.batch(1_000).await.expect("IDs").endpoint(), addresses[0]);
        daemons[0].kill();
        assert_eq!(client.batch(1_000).await.expect("IDs").endpoint(), addresses[1]);
    }

    #[tokio::test]
    async fn much_goes_both_ways_at_once() {
        let files = support::directory();
        let authority = Authority::new(files.path(), "authority");
        let daemon = daemon_of(&authority.issue_local("daemon"));
        let client = Client::new(options(&[format!("tls:{}", daemon.tcp())], &authority)).expect("a client");
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..2_000 {
            let client = client.clone();
            tasks.spawn(async move { client.batch(1).await.expect("an ID").iter().next() });
        }
        let mut ids: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2_000);
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_are_refused_at_once_and_renewed_ones_are_read() {
        let files = support::directory();
        let authority = Authority::new(files.path(), "authority");
        let daemon = daemon_of(&authority.issue_local("daemon"));
        let addresses = [format!("tls:{}", daemon.tcp())];
        let missing = TlsFiles::new().ca(files.path().join("missing"));
        let refused = ClientOptions::new(&addresses).expect("addresses").tls(missing);
        assert!(Client::new(refused).expect_err("refused").to_string().contains("missing: cannot be read"));

        // Another authority stands in the file first; once it is the right one, the same client gets through.
        let stranger = Authority::new(files.path(), "stranger");
        let file = files.path().join("changing.crt");
        std::fs::copy(&stranger.file, &file).expect("copied");
        let options = ClientOptions::new(&addresses).expect("addresses").tls(TlsFiles::new().ca(&file));
        let client = Client::new(options.timeout(DEADLINE).fail_fast(true)).expect("a client");
        let error = client.ping().await.expect_err("not believed").to_string();
        assert!(error.contains("its certificate is not of an authority"), "{error}");
        std::fs::copy(&authority.file, &file).expect("copied");
        client.ping().await.expect("believed");
    }
}
