//! A proxy in front of a coordinator.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PASS: u8 = 0;
const REFUSE: u8 = 1;
const SWALLOW: u8 = 2;
/// Passes the next write on; then the mode is [`SWALLOW`].
const SWALLOW_FROM_WRITE: u8 = 3;
const HALVE: u8 = 4;

/// Parts of requests that write: to etcd, and to ZooKeeper.
const WRITES: [&[u8]; 3] = [b"request_put", b"\"id_bound\"", b"\"next\""];

/// A proxy on a free loopback port.
pub struct Proxy {
    address: SocketAddr,
    scheme: &'static str,
    mode: Arc<AtomicU8>,
    delay_ms: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// The number of connections so far, and how many of the first ones hang.
    accepted: Arc<AtomicU64>,
    hanging: Arc<AtomicU64>,
    /// Requests that it passed on.
    passed: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts one in front of a server, whose endpoints have this scheme.
    pub fn before(to: SocketAddr, scheme: &'static str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (mode, delay_ms, open, accepted, hanging, passed) = Default::default();
        let proxy = Proxy { address, scheme, mode, delay_ms, open, accepted, hanging, passed };
        let mode = Arc::clone(&proxy.mode);
        let delay_ms = Arc::clone(&proxy.delay_ms);
        let open = Arc::clone(&proxy.open);
        let passed = Arc::clone(&proxy.passed);
        let accepted = Arc::clone(&proxy.accepted);
        let hanging = Arc::clone(&proxy.hanging);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let index = accepted.fetch_add(1, Ordering::SeqCst);
                if mode.load(Ordering::SeqCst) == REFUSE {
                    continue;
                }
                let Ok(other) = TcpStream::connect(to) else { continue };
                let (Ok(one), Ok(two)) = (stream.try_clone(), other.try_clone()) else { continue };
                let both = [stream.try_clone(), other.try_clone()];
                open.lock().expect("no thread panics").extend(both.into_iter().flatten());
                let count = Arc::clone(&passed);
                let requests = Arc::clone(&mode);
                let first = Arc::clone(&hanging);
                let hangs = move || index < first.load(Ordering::SeqCst);
                let requests_hang = hangs.clone();
                thread::spawn(move || {
                    copy(stream, two, |piece| {
                        if requests_hang() {
                            return 0;
                        }
                        count.fetch_add(1, Ordering::SeqCst);
                        if requests.load(Ordering::SeqCst) == SWALLOW_FROM_WRITE && is_write(piece) {
                            requests.store(SWALLOW, Ordering::SeqCst);
                        }
                        piece.len()
                    });
                });
                let mode = Arc::clone(&mode);
                let delay_ms = Arc::clone(&delay_ms);
                thread::spawn(move || {
                    copy(other, one, |piece| {
                        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
                        match mode.load(Ordering::SeqCst) {
                            SWALLOW => 0,
                            _ if hangs() => 0,
                            HALVE => piece.len() / 2,
                            _ => piece.len(),
                        }
                    });
                });
            }
        });
        proxy
    }

    /// Its endpoint in a configuration.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Passes everything on.
    pub fn pass(&self) {
        self.mode.store(PASS, Ordering::SeqCst);
    }

    /// Cuts all connections, and closes new ones at once.
    pub fn cut(&self) {
        self.mode.store(REFUSE, Ordering::SeqCst);
        for stream in self.open.lock().expect("no thread panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes nothing more on open connections, and keeps them open. New ones pass.
    pub fn hang(&self) {
        self.hanging.store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Passes requests on, and drops answers.
    pub fn swallow_answers(&self) {
        self.mode.store(SWALLOW, Ordering::SeqCst);
    }

    /// Passes requests on, and the first half of each answer.
    pub fn halve_answers(&self) {
        self.mode.store(HALVE, Ordering::SeqCst);
    }

    /// Passes the next write on, and drops all answers from then on.
    pub fn swallow_answers_from_write(&self) {
        self.mode.store(SWALLOW_FROM_WRITE, Ordering::SeqCst);
    }

    /// Returns whether it drops answers. After [`Proxy::swallow_answers_from_write`], it does so
    /// from the next write on.
    pub fn is_swallowing(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == SWALLOW
    }

    /// Delays each answer.
    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of pieces of requests that it passed on.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

fn is_write(piece: &[u8]) -> bool {
    WRITES.iter().any(|part| piece.windows(part.len()).any(|window| window == *part))
}

/// Copies the first bytes of each piece, as many as `passes` allows.
fn copy(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> usize) {
    let mut piece = [0; 65_536];
    while let Ok(size @ 1..) = from.read(&mut piece) {
        let passed = passes(&piece[..size]);
        if to.write_all(&piece[..passed]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
