//! Connections that send no token, guess tokens, or never finish their TLS handshake. Clients with
//! a token are still accepted.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::secure::{Authority, secure_wire, tls_section};
use crate::support::http::{sample, scrape};
use crate::support::wire::{self, UNAUTHORIZED};
use crate::support::{Ask, Daemon, Reply, Setup, Wire, poll};

const TOKEN: &str = "a-token-of-the-file";

/// Sets up a daemon that requires tokens and allows this many connections.
fn with_tokens(max_connections: usize) -> Setup {
    let limits = format!("limits.max_connections = {max_connections}\nauth.token_file = \"tokens\"\n");
    let setup = Setup::configured(&limits);
    std::fs::write(setup.path("tokens"), TOKEN).expect("the tokens are written");
    setup
}

/// Returns a client that has sent a token and drawn an ID.
fn client(daemon: &Daemon) -> Wire {
    let mut wire = daemon.connect_as(TOKEN);
    assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1));
    wire
}

/// Connects from this loopback address.
fn connect_from(address: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("an address of this machine");
    socket.connect(&to.into()).expect("connected");
    socket.into()
}

/// Opens far more connections than the daemon allows, and sends nothing.
fn connect_silent(to: SocketAddr) -> Vec<TcpStream> {
    (0..300).map(|_| TcpStream::connect(to).expect("connected")).collect()
}

#[test]
fn silent_connections_give_way_to_clients_with_a_token() {
    let daemon = with_tokens(100).admin().start();
    let mut first = client(&daemon);
    let silent = connect_silent(daemon.tcp());
    // Clients connect one after the other, while there are as many silent connections as the daemon
    // allows.
    let mut clients: Vec<Wire> = (0..30).map(|_| client(&daemon)).collect();
    clients.iter_mut().chain([&mut first]).for_each(Wire::assert_open);
    let samples = scrape(&daemon);
    assert!(sample(&samples, "snowbank_connections_evicted_total") >= 300.0 - 64.0, "{samples:#?}");
    assert!(sample(&samples, "snowbank_connections_unauthorized") <= 64.0, "{samples:#?}");
    assert_eq!(sample(&samples, "snowbank_connections_refused_total"), 0.0);
    drop(silent);
}

#[test]
fn a_silent_connection_is_closed_if_all_places_are_in_use() {
    let daemon = with_tokens(4).start();
    let mut clients: Vec<Wire> = (0..3).map(|_| client(&daemon)).collect();
    let mut silent = daemon.connect();
    clients.push(client(&daemon));
    silent.assert_closed();
    // Checks the reason, because a timeout would also close a silent connection.
    daemon.assert_logs("a newcomer needed its place");
    // Now all open connections have sent a token, so the daemon closes none of them for a newcomer.
    daemon.connect().reply().assert_error(0, wire::TOO_BUSY);
    clients.iter_mut().for_each(Wire::assert_open);
}

#[test]
fn ping_does_not_extend_the_time_to_send_a_token() {
    let daemon = with_tokens(100).admin().start();
    let mut served = client(&daemon);
    let mut wire = daemon.connect();
    // If PING kept the connection open, this poll would reach its deadline.
    poll("the end of a connection that only sends PING", || {
        let is_open = wire.try_send(&wire::ping(1, b"")).is_ok();
        let is_answered = is_open && matches!(wire.try_reply(), Ok(Some(Reply::Pong(..))));
        (!is_answered).then_some(())
    });
    daemon.assert_logs("it sent no token within five seconds");
    assert_eq!(sample(&scrape(&daemon), "snowbank_unauthorized_timeouts_total"), 1.0);
    served.assert_open();
}

/// The clients send PING, which needs no token.
#[test]
fn few_replies_are_queued_for_a_client_without_a_token() {
    const CLIENTS: usize = 50;
    let daemon = with_tokens(100).admin().start();
    let pings = wire::ping(1, &[7; 64]).repeat(1_000);
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let stream = TcpStream::connect(daemon.tcp()).expect("connected");
            stream.set_nonblocking(true).expect("a socket option");
            stream
        })
        .collect();
    let mut written = [0; CLIENTS];
    let mut highest = 0.0_f64;
    for _ in 0..50 {
        for (mut stream, written) in clients.iter().zip(&mut written) {
            while let Ok(size) = std::io::Write::write(&mut stream, &pings[*written % pings.len()..]) {
                *written += size;
            }
        }
        highest = highest.max(sample(&scrape(&daemon), "snowbank_queued_bytes"));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The daemon counts the bytes of a connection in units of 4 KiB. It does not count less than a
    // unit.
    assert_eq!(highest, 0.0, "bytes queued");
    // Each client that was served has sent more bytes than fit the kernel's buffers. A busy machine
    // may not serve all clients in their five seconds.
    assert!(written.iter().filter(|&&size| size > 100_000).count() >= CLIENTS / 2, "{written:?}");
}

#[test]
fn wrong_tokens_are_answered_slowly_and_logged_per_address() {
    let daemon = with_tokens(100).admin().start();
    let mut served = client(&daemon);
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
    let began = Instant::now();
    let guesses: Vec<TcpStream> = (0..10)
        .map(|index| {
            let mut stream = connect_from(addresses[index % 2], daemon.tcp());
            std::io::Write::write_all(&mut stream, &wire::hello(1, b"a-guess")).expect("sent");
            stream
        })
        .collect();
    for guess in guesses {
        let mut wire = Wire::over_tcp(guess).expect("the connection is open");
        wire.reply().assert_error(1, UNAUTHORIZED);
        // A slow machine can only make the wait longer.
        assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
        wire.assert_closed();
    }
    let peers = addresses.map(|address| format!("peer={address}"));
    peers.iter().for_each(|peer| daemon.assert_logs(peer));
    let log = daemon.log();
    peers.iter().for_each(|peer| assert_eq!(log.matches(peer).count(), 1, "{log}"));
    assert_eq!(sample(&scrape(&daemon), "snowbank_unauthorized_addresses"), 2.0);
    daemon.assert_logs("finding authorization: ");
    served.assert_open();
}

#[test]
fn connections_without_a_tls_handshake_make_way_for_clients() {
    let authority = Authority::new("authority");
    let toml = format!("limits.max_connections = 100\n{}", tls_section(&authority.issue_local("ids"), ""));
    let daemon = Setup::configured(&toml).option("--listen", "tls:127.0.0.1:0").listeners(2).admin().start();
    let mut plain = daemon.connect();
    let address = daemon.addresses[1].tcp();
    let silent = connect_silent(address);
    for _ in 0..20 {
        let mut wire = secure_wire(address, &authority.client(None));
        assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1));
        assert_eq!(plain.next(Ask::of(1)).id_count(), Some(1));
    }
    assert!(sample(&scrape(&daemon), "snowbank_connections_unauthorized") <= 64.0);
    drop(silent);
}
