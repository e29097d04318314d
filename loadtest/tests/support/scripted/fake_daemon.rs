//! A daemon that follows a script. The script may break the protocol. Each connection has a thread.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use snowbank_id::layout::Run;
use snowbank_wire::{ErrorCode, ErrorReply, Next, Parsed, Request, Welcome, reply, request};

/// The body of an INFO reply with only the keys that a client needs.
pub(crate) const INFO: &str = r#"{"protocol":1,"max_count":1000000,"sources":[{"name":"default"}]}"#;

/// A request that the daemon has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Next(Next<'static>),
    Info,
    Ping(Vec<u8>),
    Hello(Vec<u8>),
}

/// A listener that runs a script on each connection.
pub(crate) struct FakeDaemon {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl FakeDaemon {
    /// Runs `script` for each connection. The first argument is the connection's number, counted
    /// from 0.
    pub(crate) fn start(script: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let daemon = Self { address, connections: Arc::default() };
        let connections = Arc::clone(&daemon.connections);
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
                stream.set_nodelay(true).expect("no delay");
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                let mut peer = Peer { number, stream, input: Vec::new() };
                std::thread::spawn(move || script(number, &mut peer));
            }
        });
        daemon
    }

    /// Starts a daemon that hands out increasing IDs from `first`, as many as are requested.
    pub(crate) fn honest(first: u64) -> Self {
        let next_id = Arc::new(std::sync::Mutex::new(first));
        Self::start(move |_, peer| {
            peer.greet();
            while let Some((asked, tag)) = peer.read() {
                let mut next_id = next_id.lock().expect("no panic");
                peer.answer(&asked, tag, &mut next_id);
            }
        })
    }

    /// Returns the number of connections. A client with several endpoints opens some connections
    /// only to compare the endpoints.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }
}

/// One client's connection, seen from the daemon.
pub(crate) struct Peer {
    /// The number of the connection, counted from 0.
    pub(crate) number: usize,
    stream: TcpStream,
    input: Vec<u8>,
}

impl Peer {
    /// Returns the next request, or `None` once the client has closed or was silent for 20 s.
    /// Answers the greeting's HELLO.
    pub(crate) fn read(&mut self) -> Option<(Asked, u16)> {
        match self.read_any() {
            Some((Asked::Hello(_), tag)) => {
                self.welcome(tag);
                self.read_any()
            }
            other => other,
        }
    }

    fn welcome(&mut self, tag: u16) -> bool {
        let claims = reply::WireIds::new(&[]);
        let good_for = Duration::from_secs(1);
        let welcome = Welcome { version: 1, good_for, max_count: 1_000_000, instance: 1, claims };
        self.send(|out| reply::encode_welcome(out, tag, &welcome))
    }

    fn read_any(&mut self) -> Option<(Asked, u16)> {
        loop {
            if let Parsed::Frame { content, tag, consumed } = request::parse(&self.input) {
                let asked = match content.expect("the client sends sound requests") {
                    Request::Next(next) => Asked::Next(Next { source: b"", ..next }),
                    Request::Info => Asked::Info,
                    Request::Ping(body) => Asked::Ping(body.to_vec()),
                    Request::Hello(hello) => Asked::Hello(hello.token.to_vec()),
                };
                self.input.drain(..consumed);
                return Some((asked, tag));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(size) if size > 0 => self.input.extend_from_slice(&chunk[..size]),
                // The process was stopped, and continues.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }

    /// Returns the next request, which must be for IDs.
    pub(crate) fn read_next(&mut self) -> (Next<'static>, u16) {
        match self.read() {
            Some((Asked::Next(next), tag)) => (next, tag),
            other => panic!("a request for IDs is due, not {other:?}"),
        }
    }

    /// Answers the client's greeting.
    pub(crate) fn greet(&mut self) {
        match self.read() {
            Some((Asked::Info, tag)) => self.send(|out| reply::encode_info(out, tag, INFO.as_bytes())),
            other => panic!("a greeting is due, not {other:?}"),
        };
    }

    /// Sends the bytes that `encode` appends. Returns false if the client has closed.
    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut out = Vec::new();
        encode(&mut out);
        self.stream.write_all(&out).is_ok()
    }

    pub(crate) fn send_runs(&mut self, tag: u16, runs: &[Run], more: bool) -> bool {
        self.send(|out| reply::encode_runs_frame(out, tag, runs, more).expect("sound runs"))
    }

    /// Sends one run with a stride of 1.
    pub(crate) fn send_run(&mut self, tag: u16, first: u64, count: u32) -> bool {
        self.send_runs(tag, &[Run { first, count, stride: 1 }], false)
    }

    pub(crate) fn refuse(
        &mut self,
        tag: u16,
        code: ErrorCode,
        retry_after: Option<Duration>,
        message: &str,
    ) -> bool {
        let error = match retry_after {
            Some(after) if code == ErrorCode::Exhausted => ErrorReply::stay(code, after, message),
            Some(after) => ErrorReply::leave(code, after, message),
            None => ErrorReply::tell(code, message),
        };
        self.send(|out| reply::encode_error(out, tag, &error))
    }

    /// Answers as a daemon whose next ID is `next_id`.
    pub(crate) fn answer(&mut self, asked: &Asked, tag: u16, next_id: &mut u64) {
        match asked {
            Asked::Next(next) => {
                self.send_run(tag, *next_id, next.count);
                *next_id += u64::from(next.count);
            }
            Asked::Info => {
                self.send(|out| reply::encode_info(out, tag, INFO.as_bytes()));
            }
            Asked::Ping(body) => {
                self.send(|out| reply::encode_pong(out, tag, body));
            }
            Asked::Hello(_) => {
                self.welcome(tag);
            }
        }
    }

    /// Waits until the client closes the connection.
    pub(crate) fn wait_for_close(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
        while self.read().is_some() {}
    }
}
