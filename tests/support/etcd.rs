//! A real etcd on free loopback ports, and a proxy before it that delays, cuts, and swallows answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::{has_program, poll};

/// A single-member etcd. Dropped, it is killed and its data are removed.
pub(crate) struct Etcd {
    directory: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

/// Returns an address that nobody uses at this moment.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

impl Etcd {
    /// Starts an etcd and waits until it answers; `None` if it is not installed.
    pub(crate) fn start() -> Option<Etcd> {
        if !has_program("etcd", "etcd-server") {
            return None;
        }
        let directory = super::directory();
        let mut etcd = Etcd { directory, client: free_address(), peer: free_address(), child: None };
        etcd.run();
        Some(etcd)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Starts the process.
    pub(crate) fn run(&mut self) {
        let (client, peer) = (self.url(), format!("http://{}", self.peer));
        let child = Command::new("etcd")
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd runs");
        self.child = Some(child);
        poll("etcd answers", || {
            self.post("/v3/kv/range", r#"{"key":"YQ=="}"#).filter(|it| it.contains("header"))
        });
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Removes what it stores, while it does not run.
    pub(crate) fn lose_data(&mut self) {
        assert!(self.child.is_none(), "it runs");
        std::fs::remove_dir_all(self.data()).expect("its data can be removed");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.client
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    /// Posts JSON to its gateway; `None` if it does not answer.
    pub(crate) fn post(&self, path: &str, json: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.client).ok()?;
        stream.set_read_timeout(Some(super::DEADLINE)).ok()?;
        write!(stream, "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{json}", json.len())
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    #[track_caller]
    fn ask(&self, path: &str, json: &str) -> String {
        let answer = self.post(path, json).expect("etcd answers");
        assert!(!answer.contains("\"error\""), "{path} {json}: {answer}");
        answer
    }

    /// Returns a key's answer as it is, with the key's version.
    pub(crate) fn get(&self, key: &str) -> String {
        let answer = self.ask("/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, base64(key)));
        answer.split_once("\"kvs\"").map(|(_, kvs)| kvs.to_owned()).unwrap_or_default()
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        let (key, value) = (base64(key), base64(value));
        self.ask("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#));
    }

    pub(crate) fn delete(&self, key: &str) {
        self.ask("/v3/kv/deleterange", &format!(r#"{{"key":"{}"}}"#, base64(key)));
    }

    /// Has it ask for the password of root.
    pub(crate) fn require_password(&self, password: &str) {
        self.ask("/v3/auth/user/add", &format!(r#"{{"name":"root","password":"{password}"}}"#));
        self.ask("/v3/auth/role/add", r#"{"name":"root"}"#);
        self.ask("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#);
        self.ask("/v3/auth/enable", "{}");
    }
}

/// Encodes a text as etcd's gateway wants it.
fn base64(text: &str) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| -> String {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(*chunk.get(at).unwrap_or(&0)));
        let letter = |at: usize| {
            if at > chunk.len() { '=' } else { char::from(ALPHABET[bits >> (18 - 6 * at) & 63]) }
        };
        (0..4).map(letter).collect()
    };
    text.as_bytes().chunks(3).map(encode).collect()
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

const PASS: u8 = 0;
const REFUSE: u8 = 1;
const SWALLOW: u8 = 2;

/// A proxy on a free loopback port.
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: Arc<AtomicU8>,
    delay_ms: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// Requests that it passed on.
    passed: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) fn before(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (mode, delay_ms, open, passed) = Default::default();
        let proxy = Proxy { address, mode, delay_ms, open, passed };
        let (mode, delay_ms) = (Arc::clone(&proxy.mode), Arc::clone(&proxy.delay_ms));
        let (open, passed) = (Arc::clone(&proxy.open), Arc::clone(&proxy.passed));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if mode.load(Ordering::SeqCst) == REFUSE {
                    continue;
                }
                let Ok(other) = TcpStream::connect(to) else { continue };
                let (Ok(one), Ok(two)) = (stream.try_clone(), other.try_clone()) else { continue };
                let mut all = open.lock().expect("no thread panics");
                all.extend([stream.try_clone(), other.try_clone()].into_iter().flatten());
                drop(all);
                let count = Arc::clone(&passed);
                thread::spawn(move || {
                    copy(stream, two, |_| {
                        count.fetch_add(1, Ordering::SeqCst);
                        true
                    });
                });
                let (mode, delay_ms) = (Arc::clone(&mode), Arc::clone(&delay_ms));
                thread::spawn(move || {
                    copy(other, one, |_| {
                        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
                        mode.load(Ordering::SeqCst) != SWALLOW
                    });
                });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Passes everything on.
    pub(crate) fn pass(&self) {
        self.mode.store(PASS, Ordering::SeqCst);
    }

    /// Cuts all connections, and closes new ones.
    pub(crate) fn cut(&self) {
        self.mode.store(REFUSE, Ordering::SeqCst);
        for stream in self.open.lock().expect("no thread panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes requests on, and no answers.
    pub(crate) fn swallow_answers(&self) {
        self.mode.store(SWALLOW, Ordering::SeqCst);
    }

    /// Delays each answer.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Returns the number of pieces of requests that it passed on.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

/// Copies what comes, as far as `passes` lets each piece through.
fn copy(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut piece = [0; 65_536];
    while let Ok(size @ 1..) = from.read(&mut piece) {
        if passes(&piece[..size]) && to.write_all(&piece[..size]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
