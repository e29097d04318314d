//! Requests: encoded by the client, parsed by the server.

use std::time::Duration;

use super::frame::{self, Fault, Parsed, RawFrame};
use super::{MAX_PING_SIZE, MAX_REQUEST_LENGTH, MAX_TOKEN_SIZE, Unencodable};

const NEXT: u8 = 0x01;
const INFO: u8 = 0x02;
const PING: u8 = 0x03;
const AUTH: u8 = 0x04;

const EXPLICIT: u8 = 0x01;
const PARTIAL: u8 = 0x02;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Asks for IDs.
    Next(Next),
    /// Asks for the daemon's version, limits and sources.
    Info,
    /// Asks for the same bytes back, at most [`MAX_PING_SIZE`].
    Ping(&'a [u8]),
    /// Sends a token of 1 to [`MAX_TOKEN_SIZE`] bytes.
    Auth(&'a [u8]),
}

/// A request for IDs. The daemon checks that the count is within its limits and that the source
/// exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The number of IDs.
    pub count: u32,
    /// The index of the source in INFO. 0 is the default source.
    pub source: u16,
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
            let &[c0, c1, c2, c3, s0, s1, w0, w1] = frame.body else {
                return Err(frame.body_fault("8 bytes"));
            };
            Ok(Request::Next(Next {
                count: u32::from_le_bytes([c0, c1, c2, c3]),
                source: u16::from_le_bytes([s0, s1]),
                wait: Wait { on_wire_ms: u16::from_le_bytes([w0, w1]) },
                explicit: frame.flags & EXPLICIT != 0,
                partial: frame.flags & PARTIAL != 0,
            }))
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
        AUTH => {
            frame.check_flags(0)?;
            frame.check_body((1..=MAX_TOKEN_SIZE).contains(&size), "1 to 512 bytes")?;
            Ok(Request::Auth(frame.body))
        }
        kind => Err(Fault::Kind { kind }),
    }
}

/// Appends a NEXT frame.
#[inline]
pub fn encode_next(out: &mut Vec<u8>, tag: u16, next: &Next) {
    let flags = if next.explicit { EXPLICIT } else { 0 } | if next.partial { PARTIAL } else { 0 };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&frame::header(NEXT, flags, tag, 8));
    bytes[8..12].copy_from_slice(&next.count.to_le_bytes());
    bytes[12..14].copy_from_slice(&next.source.to_le_bytes());
    bytes[14..].copy_from_slice(&next.wait.on_wire_ms.to_le_bytes());
    out.extend_from_slice(&bytes);
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

/// Appends an AUTH frame.
///
/// # Errors
/// Returns [`Unencodable`] and appends nothing if `token` is empty or has more than
/// [`MAX_TOKEN_SIZE`] bytes.
pub fn encode_auth(out: &mut Vec<u8>, tag: u16, token: &[u8]) -> Result<(), Unencodable> {
    if !(1..=MAX_TOKEN_SIZE).contains(&token.len()) {
        return Err(Unencodable("a token has 1 to 512 bytes"));
    }
    out.extend_from_slice(&frame::header(AUTH, 0, tag, token.len()));
    out.extend_from_slice(token);
    Ok(())
}
