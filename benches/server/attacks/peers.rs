//! The hostile peers. All of them are in one thread, but for those that ask and wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use snowbank_client::protocol::Wait;
use socket2::{Domain, Socket, Type};

use super::victim::{Kind, Victim, Wanted};

/// Requests that one write sends.
const AT_ONCE: usize = 500;
const HTTP_REQUEST: &[u8] = b"GET /v1/ids HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// The time after which a peer gives up a connect.
const CONNECTED_WITHIN: Duration = Duration::from_millis(200);
/// The buffers of a peer that never reads, in bytes. With the kernel's own sizes the peers alone
/// would use up all the memory that this machine's kernel has for TCP.
const DEAF_BUFFER_SIZE: usize = 8 * 1024;

/// The longest wait that a daemon allows by default.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The behaviour of the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    None,
    Silent,
    Guesses,
    Flood(usize),
    Malformed,
    /// Requests at the HTTP front end.
    Http,
    Handshakes,
    /// Each asks for a million IDs again and again.
    Giants,
    Deaf,
    DeafWithoutToken,
    Admin,
}

impl Attack {
    pub(crate) const ALL: [Attack; 12] = [
        Attack::None,
        Attack::Silent,
        Attack::Guesses,
        Attack::Flood(200),
        Attack::Flood(9_000),
        Attack::Malformed,
        Attack::Http,
        Attack::Handshakes,
        Attack::Giants,
        Attack::Deaf,
        Attack::DeafWithoutToken,
        Attack::Admin,
    ];

    pub(crate) fn name(self) -> String {
        let name = match self {
            Attack::None => "none",
            Attack::Silent => "10,000 that never send a token, and come again",
            Attack::Guesses => "wrong tokens, as fast as one thread connects",
            Attack::Flood(count) => {
                return format!("{count} that flood requests and read the replies");
            }
            Attack::Malformed => "200 that flood malformed requests",
            Attack::Http => "200 that flood requests over HTTP",
            Attack::Handshakes => "2,000 TLS handshakes at once (RSA 2048), again and again",
            Attack::Giants => "16 that ask for 1,000,000 again and again (one worker ID)",
            Attack::Deaf => "9,000 that pipeline and never read",
            Attack::DeafWithoutToken => "9,000 that do the same without a token, and connect again",
            Attack::Admin => "2,000 silent at the admin listener",
        };
        name.to_owned()
    }

    /// Returns what the well-behaved client asks for, and how often.
    pub(crate) fn modest(self) -> (Wanted, Duration) {
        match self {
            Attack::Giants => (Wanted { count: 1_000, ..Wanted::ONE }, Duration::from_millis(10)),
            _ => (Wanted::ONE, Duration::from_millis(1)),
        }
    }

    /// Returns true if clients must send a token.
    pub(crate) fn needs_token(self) -> bool {
        matches!(self, Attack::Silent | Attack::Guesses | Attack::DeafWithoutToken)
    }

    /// Returns the daemon's options, with a rate that greedy peers can use up.
    pub(crate) fn options(self) -> [&'static str; 4] {
        let worker_ids = match self {
            Attack::Giants => "0",
            _ => "0-15",
        };
        ["--worker-id", worker_ids, "--shards", "1"]
    }

    /// Returns the size of the long reply that Redis has, if peers ask for it.
    pub(crate) fn long_reply(self) -> Option<usize> {
        (self == Attack::Deaf).then_some(1_000)
    }

    /// Plays the peers until `stop`.
    pub(crate) fn run(self, victim: &Victim, stop: &AtomicBool) {
        match self {
            Attack::None => {}
            Attack::Silent => hold(victim.address(), 10_000, &[], stop),
            Attack::Guesses => guess(victim, stop),
            Attack::Flood(count) => {
                flood(victim.address(), count, &victim.request(Wanted::ONE).repeat(AT_ONCE), stop)
            }
            Attack::Malformed => {
                flood(victim.address(), 200, &malformed(victim.kind()).repeat(AT_ONCE), stop)
            }
            Attack::Http => flood(victim.http(), 200, &HTTP_REQUEST.repeat(AT_ONCE), stop),
            Attack::Handshakes => shake_hands(victim, stop),
            Attack::Giants => devour(victim, stop),
            Attack::Deaf => deafen(victim, &victim.long_requests(AT_ONCE), stop),
            Attack::DeafWithoutToken => deafen(victim, &victim.pings(AT_ONCE), stop),
            Attack::Admin => hold(victim.admin(), 2_000, &[], stop),
        }
    }
}

fn malformed(kind: Kind) -> Vec<u8> {
    match kind {
        // A PING with a flag that it does not define.
        Kind::Snowbank => vec![4, 0, 0, 0, 3, 1, 0, 0],
        Kind::Redis => b"*1\r\n$4\r\nNONE\r\n".to_vec(),
    }
}

fn connect(to: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, CONNECTED_WITHIN).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Returns false if the peer has closed. Drops what has arrived.
fn drain(mut stream: &TcpStream, buffer: &mut [u8]) -> bool {
    loop {
        match stream.read(buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Holds this many connections that send `first` and nothing more, and opens those again that are
/// closed.
fn hold(to: SocketAddr, count: usize, first: &[u8], stop: &AtomicBool) {
    let mut held: Vec<TcpStream> = Vec::new();
    let mut buffer = [0; 4_096];
    while !stop.load(Ordering::Relaxed) {
        held.retain(|stream| drain(stream, &mut buffer));
        let look_again = Instant::now() + Duration::from_millis(100);
        while held.len() < count && Instant::now() < look_again {
            let Some(mut stream) = connect(to) else { break };
            let _ = stream.write_all(first);
            held.push(stream);
        }
    }
}

fn guess(victim: &Victim, stop: &AtomicBool) {
    let guess = victim.authorization(b"a-guess");
    let mut held = std::collections::VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(victim.address()) else { continue };
        let _ = stream.write_all(&guess);
        held.push_back(stream);
        if held.len() > 2_000 {
            held.pop_front();
        }
    }
}

/// Writes requests on all connections in turn, as many as fit, and reads all replies.
fn flood(to: SocketAddr, connections: usize, requests: &[u8], stop: &AtomicBool) {
    let open = || connect(to);
    let mut peers: Vec<(Option<TcpStream>, usize)> = (0..connections).map(|_| (open(), 0)).collect();
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        for (peer, written) in &mut peers {
            let Some(stream) = peer else {
                (*peer, *written) = (open(), 0);
                continue;
            };
            let is_open = match stream.write(&requests[*written..]) {
                Ok(size) => {
                    *written = (*written + size) % requests.len();
                    true
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if !is_open || !drain(stream, &mut buffer) {
                *peer = None;
            }
        }
    }
}

/// Asks for a million IDs again and again on 16 connections. A refused peer asks again after a
/// millisecond.
fn devour(victim: &Victim, stop: &AtomicBool) {
    let million = Wanted { count: 1_000_000, wait: Wait::at_most(LONGEST_WAIT), partial: true };
    let request = victim.request(million);
    let peers: Vec<TcpStream> = (0..16).filter_map(|_| TcpStream::connect(victim.address()).ok()).collect();
    std::thread::scope(|scope| {
        for mut stream in &peers {
            let request = &request;
            scope.spawn(move || {
                while stream.write_all(request).is_ok() {
                    match victim.read_reply(&mut stream) {
                        Ok(()) => {}
                        Err(error) if error.kind() == ErrorKind::Other => {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        Err(_) => break,
                    }
                }
            });
        }
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        for stream in &peers {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
}

fn shake_hands(victim: &Victim, stop: &AtomicBool) {
    let hello = client_hello();
    while !stop.load(Ordering::Relaxed) {
        let mut held = Vec::new();
        for _ in 0..2_000 {
            let Some(mut stream) = connect(victim.tls()) else { break };
            let _ = stream.write_all(&hello);
            held.push(stream);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The first message of a handshake. The server signs its answer also for a peer that goes no
/// further.
fn client_hello() -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let mut hello = Vec::new();
    if let (Ok(config), Ok(name)) = (config, "localhost".try_into())
        && let Ok(mut session) = ClientConnection::new(Arc::new(config), name)
    {
        let _ = session.write_tls(&mut hello);
    }
    hello
}

/// Sends requests on many connections, and reads nothing.
fn deafen(victim: &Victim, requests: &[u8], stop: &AtomicBool) {
    let mut held: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let look_again = Instant::now() + Duration::from_millis(100);
        while held.len() < 9_000 && Instant::now() < look_again {
            let Ok(stream) = connect_deaf(victim.address()) else { break };
            held.push(stream);
        }
        held.retain(|mut stream| {
            let written = stream.write(requests);
            written.is_ok() || written.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
    }
}

fn connect_deaf(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_recv_buffer_size(DEAF_BUFFER_SIZE)?;
    socket.set_send_buffer_size(DEAF_BUFFER_SIZE)?;
    socket.connect_timeout(&to.into(), CONNECTED_WITHIN)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
