//! The IDs that clients of the front ends draw. For a client that prints none, a relay between it
//! and the daemon keeps the replies of each connection.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::poll;

/// The number of digits of every ID of Twitter's layout since 2018. No other number in a reply has
/// as many.
const DIGITS: usize = 19;

/// A relay on a port of its own, which connects to the daemon once for each connection of the
/// client.
pub struct Relay {
    port: u16,
    kept: Arc<Mutex<Kept>>,
    /// The bytes of all replies so far.
    bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Kept {
    open: usize,
    /// The IDs of each connection that has ended, in the order of the replies.
    ended: Vec<Vec<u64>>,
}

impl Relay {
    /// Starts a relay to a daemon.
    pub fn to(daemon: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let bytes = Arc::new(AtomicUsize::new(0));
        let keeps = Arc::clone(&kept);
        let counts = Arc::clone(&bytes);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                keeps.lock().unwrap_or_else(PoisonError::into_inner).open += 1;
                let keeps = Arc::clone(&keeps);
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    let mut replies = Vec::new();
                    // The client or the daemon has closed. The test checks the replies.
                    let _ = relay(&client, daemon, &mut replies, &counts);
                    let mut kept = keeps.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.open -= 1;
                    kept.ended.push(ids_of(&replies));
                });
            }
        });
        Relay { port, kept, bytes }
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has a client draw IDs while `act` runs. Returns the result, and the IDs of each connection.
    pub fn under_load<T>(&self, client: &mut Command, act: impl FnOnce() -> T) -> (T, Vec<Vec<u64>>) {
        let before = self.bytes.load(Ordering::Relaxed);
        let client = client.stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = client.spawn().expect("the client's program runs");
        let draws = || self.bytes.load(Ordering::Relaxed) - before >= 100_000;
        poll("the client's replies", || draws().then_some(()));
        let done = act();
        // The client may have ended already, because its connections were closed.
        let _ = client.kill();
        client.wait().expect("it ends");
        (done, self.take_ids())
    }

    /// Waits until all connections have ended, and takes the IDs of each.
    pub fn take_ids(&self) -> Vec<Vec<u64>> {
        poll("the end of the client's connections", || {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            (kept.open == 0).then(|| std::mem::take(&mut kept.ended))
        })
    }
}

/// The IDs that a client has drawn.
#[derive(Default)]
pub struct Drawn {
    /// All IDs so far.
    pub all: HashSet<u64>,
    last: HashMap<String, u64>,
}

impl Drawn {
    /// Adds the ID of a line, which must be above the last one of its source and new.
    pub fn add(&mut self, line: &str) {
        let mut words = line.split(' ').skip(1);
        let (Some(source), Some(Ok(id))) = (words.next(), words.next().map(str::parse)) else {
            panic!("{line:?} is no ID");
        };
        let last = self.last.insert(source.to_owned(), id);
        assert!(last.is_none_or(|last| last < id), "{id} after {last:?} of {source}");
        assert!(self.all.insert(id), "{id} twice");
    }

    /// Adds the IDs of connections to one source. Those of each must increase, and all be new.
    /// Returns their number.
    pub fn add_connections(&mut self, connections: &[Vec<u64>]) -> usize {
        for ids in connections {
            assert!(ids.is_sorted_by(|left, right| left < right), "a connection's IDs increase: {ids:?}");
            ids.iter().for_each(|&id| assert!(self.all.insert(id), "{id} twice"));
        }
        connections.iter().map(Vec::len).sum()
    }
}

/// Relays a connection. Adds the daemon's bytes to `replies`, and counts them, before the client
/// reads them.
fn relay(
    mut client: &TcpStream,
    daemon: SocketAddr,
    replies: &mut Vec<u8>,
    bytes: &AtomicUsize,
) -> io::Result<()> {
    let mut server = TcpStream::connect(daemon)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut requests = client.try_clone()?;
    let mut to_server = server.try_clone()?;
    let asks = thread::spawn(move || {
        let _ = io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 1 << 16];
    let relayed = loop {
        match server.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(size) => {
                replies.extend_from_slice(&buffer[..size]);
                bytes.fetch_add(size, Ordering::Relaxed);
                if let Err(gone) = client.write_all(&buffer[..size]) {
                    break Err(gone);
                }
            }
            Err(gone) => break Err(gone),
        }
    };
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = asks.join();
    relayed
}

/// Returns the IDs in replies that are texts.
pub fn ids_of(replies: &[u8]) -> Vec<u64> {
    let texts = replies.split(|byte| !byte.is_ascii_digit()).filter(|text| text.len() == DIGITS);
    texts.filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok()).collect()
}
