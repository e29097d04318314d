//! A proxy in front of a coordinator.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const PASS: u8 = 0;
const REFUSE: u8 = 1;
const SWALLOW: u8 = 2;
/// Passes everything on until the next write. That write changes the mode to [`SWALLOW`].
const SWALLOW_FROM_WRITE: u8 = 3;
const HALVE: u8 = 4;
/// Answers each request itself.
const ANSWER: u8 = 5;
/// As [`ANSWER`], and repeats the answer without end.
const ANSWER_ENDLESSLY: u8 = 6;

/// The proxy recognizes write requests by these texts. No other request to etcd or ZooKeeper
/// contains one of them.
const WRITES: [&[u8]; 3] = [b"request_put", b"\"id_bound\"", b"\"next\""];

/// A proxy on a free loopback port.
pub struct Proxy {
    address: SocketAddr,
    scheme: &'static str,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    mode: AtomicU8,
    delay_ms: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    /// The number of connections so far. The first `hanging` of them hang.
    accepted: AtomicU64,
    hanging: AtomicU64,
    /// The number of pieces of requests that the proxy has passed on.
    passed: AtomicU64,
    /// The proxy's own answer to a request.
    answer: Mutex<&'static [u8]>,
}

impl State {
    /// Connects a client with the server, and copies in both directions.
    fn connect(self: &Arc<Self>, client: TcpStream, to: SocketAddr) -> io::Result<()> {
        let index = self.accepted.fetch_add(1, Ordering::SeqCst);
        if self.is_in(REFUSE) {
            return Ok(());
        }
        let server = TcpStream::connect(to)?;
        self.open.lock().expect("no panic").extend([client.try_clone()?, server.try_clone()?]);
        let [to_client, to_server] = [client.try_clone()?, server.try_clone()?];
        let state = Arc::clone(self);
        let answers = client.try_clone()?;
        thread::spawn(move || {
            copy(client, to_server, |piece| {
                state.answer(&answers);
                state.passes_request(index, piece)
            });
        });
        let state = Arc::clone(self);
        thread::spawn(move || copy(server, to_client, |piece| state.passes_answer(index, piece)));
        Ok(())
    }

    fn is_in(&self, mode: u8) -> bool {
        self.mode.load(Ordering::SeqCst) == mode
    }

    /// Answers a request in place of the server, if the proxy is to do so.
    fn answer(&self, mut client: &TcpStream) {
        let is_answering = || self.is_in(ANSWER) || self.is_in(ANSWER_ENDLESSLY);
        while is_answering() {
            let answer = *self.answer.lock().expect("no panic");
            if client.write_all(answer).is_err() || self.is_in(ANSWER) {
                break;
            }
        }
    }

    fn hangs(&self, index: u64) -> bool {
        index < self.hanging.load(Ordering::SeqCst)
    }

    fn passes_request(&self, index: u64, piece: &[u8]) -> usize {
        if self.hangs(index) || self.is_in(ANSWER) || self.is_in(ANSWER_ENDLESSLY) {
            return 0;
        }
        self.passed.fetch_add(1, Ordering::SeqCst);
        if self.is_in(SWALLOW_FROM_WRITE) && is_write(piece) {
            self.mode.store(SWALLOW, Ordering::SeqCst);
        }
        piece.len()
    }

    fn passes_answer(&self, index: u64, piece: &[u8]) -> usize {
        thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst)));
        match self.mode.load(Ordering::SeqCst) {
            SWALLOW => 0,
            _ if self.hangs(index) => 0,
            HALVE => piece.len() / 2,
            _ => piece.len(),
        }
    }
}

impl Proxy {
    /// Starts a proxy in front of a server whose endpoints have this scheme.
    pub fn before(to: SocketAddr, scheme: &'static str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let proxy = Proxy { address, scheme, state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // If there is no server, the client's connection ends.
                let _ = state.connect(client, to);
            }
        });
        proxy
    }

    /// Returns the proxy's endpoint for a configuration.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Passes everything on.
    pub fn pass(&self) {
        self.state.mode.store(PASS, Ordering::SeqCst);
    }

    /// Cuts all connections, and closes new ones at once.
    pub fn cut(&self) {
        self.state.mode.store(REFUSE, Ordering::SeqCst);
        for stream in self.state.open.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Keeps the connections that are open now, but passes nothing more on them. New connections
    /// work.
    pub fn hang(&self) {
        self.state.hanging.store(self.state.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Passes nothing on, and answers each request with this text.
    pub fn answer(&self, text: &'static str) {
        *self.state.answer.lock().expect("no panic") = text.as_bytes();
        self.state.mode.store(ANSWER, Ordering::SeqCst);
    }

    /// Passes nothing on, and answers each request with an endless repetition of this text.
    pub fn answer_endlessly(&self, text: &'static str) {
        self.answer(text);
        self.state.mode.store(ANSWER_ENDLESSLY, Ordering::SeqCst);
    }

    /// Passes requests on, and drops answers.
    pub fn swallow_answers(&self) {
        self.state.mode.store(SWALLOW, Ordering::SeqCst);
    }

    /// Passes on requests, but only the first half of each answer.
    pub fn halve_answers(&self) {
        self.state.mode.store(HALVE, Ordering::SeqCst);
    }

    /// Passes everything on up to the next write. Drops the answer to that write, and all later
    /// answers.
    pub fn swallow_answers_from_write(&self) {
        self.state.mode.store(SWALLOW_FROM_WRITE, Ordering::SeqCst);
    }

    /// Returns whether the proxy drops answers. After [`Proxy::swallow_answers_from_write`], the
    /// proxy begins to drop them at the next write.
    pub fn is_swallowing(&self) -> bool {
        self.state.is_in(SWALLOW)
    }

    /// Delays each answer.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of pieces of requests that the proxy has passed on.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }
}

fn is_write(piece: &[u8]) -> bool {
    WRITES.iter().any(|part| piece.windows(part.len()).any(|window| window == *part))
}

/// Copies a stream piece by piece. `passes` returns how many bytes of a piece are copied.
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
