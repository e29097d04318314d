//! A blocking client of protocol version 1, written from docs/protocol.md alone. It checks every
//! frame that it reads against that page. Each read has a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::address::Address;
pub use super::reply::{Reply, Run};
use super::{DEADLINE, poll};
pub use codes::*;

/// The flag that asks for IDs one by one.
pub const EXPLICIT: u8 = 0x01;
/// The flag that allows fewer IDs.
pub const PARTIAL: u8 = 0x02;

/// The codes of errors.
#[allow(missing_docs, reason = "docs/protocol.md says what each means")]
mod codes {
    pub const MALFORMED: u16 = 1;
    pub const UNSUPPORTED: u16 = 2;
    pub const BAD_COUNT: u16 = 3;
    pub const UNKNOWN_SOURCE: u16 = 4;
    pub const UNAUTHORIZED: u16 = 5;
    pub const EXHAUSTED: u16 = 6;
    pub const CLOCK_BEHIND: u16 = 7;
    pub const NO_CEILING: u16 = 8;
    pub const SHUTTING_DOWN: u16 = 9;
    pub const TOO_BUSY: u16 = 10;
}

/// The largest `length` of a reply's frame.
const REPLY_LENGTH_MAX: usize = 65_536;
/// The size of kind, flags and tag, which `length` includes.
const HEAD: usize = 4;

/// Returns a frame, which need not be valid.
pub fn frame(kind: u8, flags: u8, tag: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + body.len());
    bytes.extend_from_slice(&((HEAD + body.len()) as u32).to_le_bytes());
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the bytes of a test vector, which has hexadecimal digits and spaces. `61*513` means the
/// byte 0x61, repeated 513 times.
pub fn bytes_of_hex(vector: &str) -> Vec<u8> {
    let hex = |digits: &str| u8::from_str_radix(digits, 16).expect("two digits");
    let word = |word: &str| match word.split_once('*') {
        Some((byte, times)) => vec![hex(byte); times.parse().expect("a number")],
        None => (0..word.len()).step_by(2).map(|at| hex(&word[at..at + 2])).collect(),
    };
    vector.split(' ').flat_map(word).collect()
}

/// Returns a request for INFO.
pub fn info(tag: u16) -> Vec<u8> {
    frame(0x02, 0, tag, &[])
}

/// Returns a PING.
pub fn ping(tag: u16, body: &[u8]) -> Vec<u8> {
    frame(0x03, 0, tag, body)
}

/// The first bytes of a HELLO.
pub const MAGIC: &[u8; 8] = b"SNOW\r\n\r\n";

/// Returns a HELLO of version 1 with a token, which may be empty.
pub fn hello(tag: u16, token: &[u8]) -> Vec<u8> {
    frame(0x04, 0, tag, &[&MAGIC[..], &[1, 0], token].concat())
}

/// A request for IDs.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The tag, which the reply repeats.
    pub tag: u16,
    /// The number of IDs.
    pub count: u32,
    /// The name of the source. Empty: the first.
    pub source: &'a str,
    /// The longest wait. 65535 asks for the server's default.
    pub max_wait_ms: u16,
    /// [`EXPLICIT`], [`PARTIAL`], or both.
    pub flags: u8,
}

impl<'a> Ask<'a> {
    /// Returns a request for `count` IDs of the first source. The wait is long, because on a busy machine a
    /// raise of the ceiling can be late.
    pub fn of(count: u32) -> Ask<'a> {
        Ask { tag: 0, count, source: "", max_wait_ms: 9_000, flags: 0 }
    }

    /// Returns the same request with the server's default wait.
    pub fn default_wait(self) -> Ask<'a> {
        Ask { max_wait_ms: 65_535, ..self }
    }

    /// Returns the same request with this tag.
    pub fn tag(self, tag: u16) -> Ask<'a> {
        Ask { tag, ..self }
    }

    /// Returns the same request to this source.
    pub fn source(self, source: &'a str) -> Ask<'a> {
        Ask { source, ..self }
    }

    /// Returns the same request with this wait.
    pub fn wait_ms(self, max_wait_ms: u16) -> Ask<'a> {
        Ask { max_wait_ms, ..self }
    }

    /// Returns the same request with these flags.
    pub fn flags(self, flags: u8) -> Ask<'a> {
        Ask { flags, ..self }
    }

    /// Returns the request's frame.
    pub fn bytes(self) -> Vec<u8> {
        let mut body = self.count.to_le_bytes().to_vec();
        body.extend_from_slice(&self.max_wait_ms.to_le_bytes());
        body.extend_from_slice(self.source.as_bytes());
        frame(0x01, self.flags, self.tag, &body)
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    tag: u16,
    body: Vec<u8>,
}

/// A stream that a connection can use in place of a socket, such as TLS.
pub trait Transport: Read + Write + std::fmt::Debug + Send {
    /// Returns the TCP connection that carries the stream.
    fn tcp(&self) -> &TcpStream;

    /// Shuts down the writing side.
    fn half_close(&mut self) -> io::Result<()>;
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Other(Box<dyn Transport>),
}

/// A client's connection.
#[derive(Debug)]
pub struct Wire {
    stream: Stream,
    unread: Vec<u8>,
}

impl Wire {
    /// Connects to a listener.
    pub fn connect(address: &Address) -> Wire {
        Wire::try_connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects to a listener. Returns an error if nothing listens.
    pub fn try_connect(address: &Address) -> io::Result<Wire> {
        let stream = match address {
            Address::Tcp(address) => return Wire::over_tcp(TcpStream::connect_timeout(address, DEADLINE)?),
            Address::Tls(address) => panic!("tls:{address} needs a client with TLS: use Wire::over"),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(DEADLINE))?;
                Stream::Unix(stream)
            }
        };
        Wire::of(stream)
    }

    /// Returns a client on a TCP connection that is open already.
    pub fn over_tcp(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Wire::of(Stream::Tcp(stream))
    }

    /// Returns a client on another kind of stream.
    pub fn over(transport: Box<dyn Transport>) -> Wire {
        transport.tcp().set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
        Wire::of(Stream::Other(transport)).expect("a timeout can be set")
    }

    fn of(stream: Stream) -> io::Result<Wire> {
        let wire = Wire { stream, unread: Vec::new() };
        wire.set_read_timeout(DEADLINE)?;
        Ok(wire)
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Other(stream) => stream.tcp().set_read_timeout(Some(timeout)),
        }
    }

    /// Returns the TCP connection.
    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Tcp(stream) => stream,
            Stream::Unix(_) => panic!("not a TCP connection"),
            Stream::Other(stream) => stream.tcp(),
        }
    }

    /// Returns a second handle of the same connection, to write while the first reads.
    pub fn writer(&self) -> Wire {
        let stream = match &self.stream {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Other(_) => panic!("a TLS stream has only one handle"),
        };
        Wire { stream: stream.expect("a socket can be cloned"), unread: Vec::new() }
    }

    /// Sends bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot write: {error}"));
    }

    /// Sends bytes. Returns an error if the server has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Other(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Shuts down the writing side.
    pub fn half_close(&mut self) {
        let done = match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Other(stream) => stream.half_close(),
        };
        done.unwrap_or_else(|error| panic!("cannot half-close: {error}"));
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = [0; 65_536];
        let size = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut piece),
            Stream::Unix(stream) => stream.read(&mut piece),
            Stream::Other(stream) => stream.read(&mut piece),
        }?;
        self.unread.extend_from_slice(&piece[..size]);
        Ok(size)
    }

    /// Returns the next frame, or `None` once the server has closed the connection.
    fn frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some((head, rest)) = self.unread.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*head) as usize;
                assert!(
                    (HEAD..=REPLY_LENGTH_MAX).contains(&length),
                    "a reply's frame has the wrong length {length}"
                );
                if rest.len() >= length {
                    let kind = rest[0];
                    let flags = rest[1];
                    let tag = u16::from_le_bytes([rest[2], rest[3]]);
                    let body = rest[HEAD..length].to_vec();
                    self.unread.drain(..4 + length);
                    return Ok(Some(Frame { kind, flags, tag, body }));
                }
            }
            if self.read()? == 0 {
                assert!(
                    self.unread.is_empty(),
                    "the server closed the connection within a frame: {:?}",
                    self.unread
                );
                return Ok(None);
            }
        }
    }

    /// Returns the next reply, or `None` once the server has closed the connection.
    pub fn try_reply(&mut self) -> io::Result<Option<Reply>> {
        let Some(Frame { kind, mut flags, tag, mut body }) = self.frame()? else {
            return Ok(None);
        };
        let may_be_split = matches!(kind, 0x81..=0x83);
        while flags != 0 {
            assert!(
                flags == 0x01 && may_be_split,
                "a reply of kind {kind:#x} has the wrong flags {flags:#x}"
            );
            let next = self.frame()?.expect("a frame follows MORE");
            assert_eq!((next.kind, next.tag), (kind, tag), "a frame of another kind or tag follows MORE");
            assert!(!next.body.is_empty(), "an empty frame follows MORE");
            flags = next.flags;
            body.extend_from_slice(&next.body);
        }
        Ok(Some(Reply::of(kind, tag, body)))
    }

    /// Returns the next reply.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        match self.try_reply() {
            Ok(Some(reply)) => reply,
            Ok(None) => panic!("the server closed the connection"),
            Err(error) => panic!("cannot read: {error}"),
        }
    }

    /// Sends a request and returns the next reply.
    #[track_caller]
    pub fn call(&mut self, request: &[u8]) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Returns the JSON of an INFO reply.
    #[track_caller]
    pub fn info(&mut self) -> serde_json::Value {
        let Reply::Info(_, text) = self.call(&info(1)) else { panic!("expected INFO") };
        serde_json::from_str(&text).expect("JSON")
    }

    /// Requests IDs. Checks that a reply has this request's tag, and as many IDs as the request
    /// allows.
    #[track_caller]
    pub fn next(&mut self, ask: Ask<'_>) -> Reply {
        let reply = self.call(&ask.bytes());
        assert_eq!(reply.tag(), ask.tag);
        if let Some(count) = reply.id_count() {
            let enough =
                count == u64::from(ask.count) || ask.flags & PARTIAL != 0 && count < u64::from(ask.count);
            assert!(enough, "{count} IDs came for {ask:?}");
        }
        reply
    }

    /// Requests IDs. Repeats the request if the daemon raised no ceiling within the request's wait.
    /// A busy machine can cause that.
    pub fn next_once_granted(&mut self, ask: Ask<'_>) -> Reply {
        poll("a ceiling", || {
            let asked = Instant::now();
            let reply = self.next(ask);
            let has_waited = asked.elapsed() >= Duration::from_millis(ask.max_wait_ms.into());
            let is_late = has_waited && matches!(reply, Reply::Error { code: NO_CEILING, .. });
            (!is_late).then_some(reply)
        })
    }

    /// Checks that the connection still answers.
    #[track_caller]
    pub fn assert_open(&mut self) {
        assert_eq!(self.call(&ping(0xBEEF, b"still there?")), Reply::Pong(0xBEEF, b"still there?".to_vec()));
    }

    /// Checks that the server closes the connection cleanly, without further bytes.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        match self.try_reply() {
            Ok(None) => {}
            Ok(Some(reply)) => panic!("expected a closed connection, found {reply:?}"),
            Err(error) => panic!("expected a closed connection, found {error}"),
        }
    }
}
