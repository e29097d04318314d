//! Requests: encoded by the client, parsed by the server.

use std::time::Duration;

use super::frame::{self, Fault, Parsed, RawFrame};
use super::{HEADER_SIZE, MAGIC, MAX_NAME_SIZE, MAX_PING_SIZE, MAX_REQUEST_LENGTH, MAX_REQUEST_SIZE};
use super::{MAX_TOKEN_SIZE, Unencodable};

const NEXT: u8 = 0x01;
const INFO: u8 = 0x02;
const PING: u8 = 0x03;
const HELLO: u8 = 0x04;

const EXPLICIT: u8 = 0x01;
const PARTIAL: u8 = 0x02;

/// The bytes of a NEXT's body before the source's name.
const NEXT_HEAD_SIZE: usize = 6;

/// The bytes of a HELLO's body before the token: the magic, the version, a zero.
const HELLO_HEAD_SIZE: usize = MAGIC.len() + 2;

const _: () = assert!(
    HEADER_SIZE + HELLO_HEAD_SIZE + MAX_TOKEN_SIZE <= MAX_REQUEST_SIZE
        && HEADER_SIZE + NEXT_HEAD_SIZE + MAX_NAME_SIZE <= MAX_REQUEST_SIZE
        && HEADER_SIZE + MAX_PING_SIZE <= MAX_REQUEST_SIZE,
    "the longest body of every request fits a request frame"
);

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Asks for IDs.
    Next(Next<'a>),
    /// Asks for the daemon's version, limits and sources.
    Info,
    /// Asks for the same bytes back, at most [`MAX_PING_SIZE`].
    Ping(&'a [u8]),
    /// Begins a connection.
    Hello(Hello<'a>),
}

/// The beginning of a connection: what the client speaks, and its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The highest version of the protocol that the client speaks.
    pub version: u8,
    /// The token, at most [`MAX_TOKEN_SIZE`] bytes. Empty: the client has none.
    pub token: &'a [u8],
}

/// A request for IDs. The daemon checks that the count is within its limits and that the source
/// exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next<'a> {
    /// The number of IDs.
    pub count: u32,
    /// The name of the source, at most [`MAX_NAME_SIZE`] bytes. Empty: the daemon's first source.
    /// A request that was parsed may have bytes that are not UTF-8.
    pub source: &'a [u8],
    /// The time that the daemon may wait for the IDs.
    pub wait: Wait,
    /// True for a reply that lists every ID, instead of runs.
    pub explicit: bool,
    /// True to accept fewer IDs if the wait ends before all are available.
    pub partial: bool,
}

/// The time that a daemon may wait for IDs that are not available yet. The daemon caps this time at
/// its setting `max_wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    on_wire_ms: u16,
}

impl Wait {
    /// The daemon's own default wait.
    pub const DEFAULT: Self = Self { on_wire_ms: u16::MAX };

    /// No wait: the daemon answers at once.
    pub const NONE: Self = Self { on_wire_ms: 0 };

    /// The longest wait that fits the wire format.
    pub const LONGEST: Duration = Duration::from_millis(u16::MAX as u64 - 1);

    /// Creates a wait of `limit`, rounded up to whole milliseconds, and at most [`Wait::LONGEST`].
    #[must_use]
    pub fn at_most(limit: Duration) -> Self {
        let limit_ms = limit.min(Self::LONGEST).as_nanos().div_ceil(1_000_000);
        Self { on_wire_ms: limit_ms as u16 }
    }

    /// Returns the limit, or `None` for the daemon's default.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        self.limit_ms().map(|limit_ms| Duration::from_millis(limit_ms.into()))
    }

    /// Returns the limit in milliseconds, or `None` for the daemon's default.
    #[inline]
    #[must_use]
    pub fn limit_ms(self) -> Option<u32> {
        (self != Self::DEFAULT).then_some(self.on_wire_ms.into())
    }
}

/// Parses the first request in `bytes`.
#[inline]
pub fn parse(bytes: &[u8]) -> Parsed<Request<'_>> {
    frame::parse(bytes, MAX_REQUEST_LENGTH, understand)
}

#[inline]
fn understand<'a>(frame: &RawFrame<'a>) -> Result<Request<'a>, Fault> {
    let size = frame.body.len();
    match frame.kind {
        NEXT => {
            frame.check_flags(EXPLICIT | PARTIAL)?;
            match frame.body.split_first_chunk::<NEXT_HEAD_SIZE>() {
                Some((&[c0, c1, c2, c3, w0, w1], source)) if source.len() <= MAX_NAME_SIZE => {
                    Ok(Request::Next(Next {
                        count: u32::from_le_bytes([c0, c1, c2, c3]),
                        source,
                        wait: Wait { on_wire_ms: u16::from_le_bytes([w0, w1]) },
                        explicit: frame.flags & EXPLICIT != 0,
                        partial: frame.flags & PARTIAL != 0,
                    }))
                }
                _ => Err(frame.body_fault("6 to 70 bytes")),
            }
        }
        INFO => {
            frame.check_flags(0)?;
            frame.check_body(size == 0, "no bytes")?;
            Ok(Request::Info)
        }
        PING => {
            frame.check_flags(0)?;
            frame.check_body(size <= MAX_PING_SIZE, "at most 64 bytes")?;
            Ok(Request::Ping(frame.body))
        }
        HELLO => {
            frame.check_flags(0)?;
            let Some((magic, &[version, _, ref token @ ..])) = frame.body.split_first_chunk() else {
                return Err(frame.body_fault("10 to 522 bytes"));
            };
            frame.check_body(token.len() <= MAX_TOKEN_SIZE, "10 to 522 bytes")?;
            if *magic != MAGIC {
                return Err(Fault::Magic);
            }
            Ok(Request::Hello(Hello { version, token }))
        }
        kind => Err(Fault::Kind { kind }),
    }
}

/// Appends a NEXT frame.
///
/// # Errors
/// Returns [`Unencodable`] and appends nothing if the source's name has more than
/// [`MAX_NAME_SIZE`] bytes.
#[inline]
pub fn encode_next(out: &mut Vec<u8>, tag: u16, next: &Next<'_>) -> Result<(), Unencodable> {
    if next.source.len() > MAX_NAME_SIZE {
        return Err(Unencodable("a source's name has at most 64 bytes"));
    }
    let flags = if next.explicit { EXPLICIT } else { 0 } | if next.partial { PARTIAL } else { 0 };
    let mut head = [0; HEADER_SIZE + NEXT_HEAD_SIZE];
    head[..8].copy_from_slice(&frame::header(NEXT, flags, tag, NEXT_HEAD_SIZE + next.source.len()));
    head[8..12].copy_from_slice(&next.count.to_le_bytes());
    head[12..].copy_from_slice(&next.wait.on_wire_ms.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(next.source);
    Ok(())
}

/// Appends an INFO frame.
pub fn encode_info(out: &mut Vec<u8>, tag: u16) {
    out.extend_from_slice(&frame::header(INFO, 0, tag, 0));
}

/// Appends a PING frame.
///
/// # Errors
/// Returns [`Unencodable`] and appends nothing if `body` has more than [`MAX_PING_SIZE`] bytes.
pub fn encode_ping(out: &mut Vec<u8>, tag: u16, body: &[u8]) -> Result<(), Unencodable> {
    if body.len() > MAX_PING_SIZE {
        return Err(Unencodable("a PING has at most 64 bytes"));
    }
    out.extend_from_slice(&frame::header(PING, 0, tag, body.len()));
    out.extend_from_slice(body);
    Ok(())
}

/// Appends a HELLO frame.
///
/// # Errors
/// Returns [`Unencodable`] and appends nothing if the token has more than [`MAX_TOKEN_SIZE`] bytes.
pub fn encode_hello(out: &mut Vec<u8>, tag: u16, hello: &Hello<'_>) -> Result<(), Unencodable> {
    if hello.token.len() > MAX_TOKEN_SIZE {
        return Err(Unencodable("a token has at most 512 bytes"));
    }
    out.extend_from_slice(&frame::header(HELLO, 0, tag, HELLO_HEAD_SIZE + hello.token.len()));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[hello.version, 0]);
    out.extend_from_slice(hello.token);
    Ok(())
}
