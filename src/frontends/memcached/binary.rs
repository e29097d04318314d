//! The binary protocol: packets of a 24-byte header and a body. Numbers are big-endian.

use super::{Form, KEY_BYTES_MAX, MEMCACHED_VERSION, Memcached};
use crate::frontends::refusals::{STOPPING, Words};
use crate::frontends::{Conditions, MESSAGE_BYTES_MAX, Step, statistics};
use snowbank_wire::ErrorCode;

/// The first byte of a request.
pub(super) const REQUEST: u8 = 0x80;
const REPLY: u8 = 0x81;
const HEADER_SIZE: usize = 24;

const GET: u8 = 0x00;
const INCREMENT: u8 = 0x05;
const QUIT: u8 = 0x07;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const STAT: u8 = 0x10;
const INCREMENTQ: u8 = 0x15;
const QUITQ: u8 = 0x17;
const GAT: u8 = 0x1d;
const GATQ: u8 = 0x1e;
const GATK: u8 = 0x23;
const GATKQ: u8 = 0x24;

/// Returns the refusal of a command that Snowbank does not have: as if the key were not there, where
/// memcached has such a reply. After any other error, libmemcached takes the server for dead.
///
/// Quiet commands are refused aloud, as memcached does.
fn unknown(opcode: u8) -> (u16, &'static str) {
    match opcode {
        // SET, ADD, REPLACE, APPEND, PREPEND, and the same without a reply.
        0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a => (NOT_STORED, "Not stored."),
        // DELETE, DECREMENT, the same without a reply, and TOUCH.
        0x04 | 0x06 | 0x14 | 0x16 | 0x1c => (NOT_FOUND, "Not found"),
        _ => (UNKNOWN_COMMAND, "Unknown command"),
    }
}

/// The size of an increment's extras: the delta, an initial value and an expiration time.
const INCREMENT_EXTRAS: usize = 20;

/// The size of the extras of GAT: an expiration time. No ID expires.
const GAT_EXTRAS: usize = 4;

/// The status of an error.
const NOT_FOUND: u16 = 0x0001;
const TOO_LARGE: u16 = 0x0003;
const BAD_ARGUMENTS: u16 = 0x0004;
const NOT_STORED: u16 = 0x0005;
const UNKNOWN_COMMAND: u16 = 0x0081;
const INTERNAL: u16 = 0x0084;
const BUSY: u16 = 0x0085;
const TRY_LATER: u16 = 0x0086;

/// The parts of a header that every reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub(super) opcode: u8,
    pub(super) opaque: [u8; 4],
}

/// A request's header.
struct Header {
    echo: Echo,
    key_size: usize,
    extras_size: usize,
    body_size: usize,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_SIZE]) -> Header {
        let &[_, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, ..] = bytes;
        Header {
            echo: Echo { opcode, opaque: [o0, o1, o2, o3] },
            key_size: u16::from_be_bytes([k0, k1]).into(),
            extras_size: extras.into(),
            body_size: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
        }
    }

    /// Returns the extras and the key, if the body has extras of this size, a valid key and nothing
    /// else.
    fn extras_and_key<'a>(&self, body: &'a [u8], extras_size: usize) -> Option<(&'a [u8], &'a [u8])> {
        let (extras, key) = body.split_at_checked(extras_size)?;
        let is_alone = self.extras_size == extras_size && self.key_size == key.len();
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && !key.iter().any(|&byte| byte <= b' ');
        (is_alone && is_key).then_some((extras, key))
    }
}

impl Memcached {
    /// Takes the first packet.
    pub(super) fn packet(
        &mut self,
        bytes: &[u8],
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Step::Incomplete };
        let header = Header::parse(header);
        if header.body_size > MESSAGE_BYTES_MAX - HEADER_SIZE {
            error(out, header.echo, TOO_LARGE, "too large");
            self.skip.body(header.body_size);
            return Step::Answered { consumed: HEADER_SIZE, error: Some(ErrorCode::Malformed) };
        }
        let Some(body) = rest.get(..header.body_size) else { return Step::Incomplete };
        match header.echo.opcode {
            GET | GETQ | GETK | GETKQ => self.get_one(&header, body, 0, conditions, out),
            GAT | GATQ | GATK | GATKQ => self.get_one(&header, body, GAT_EXTRAS, conditions, out),
            INCREMENT => self.increment_one(&header, body, conditions, out),
            _ => answer(&header, body, conditions, out),
        }
    }

    fn get_one(
        &mut self,
        header: &Header,
        body: &[u8],
        extras_size: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let echo = header.echo;
        let consumed = HEADER_SIZE + body.len();
        self.gets.commands += 1;
        let Some((_, key)) = header.extras_and_key(body, extras_size) else {
            error(
                out,
                echo,
                BAD_ARGUMENTS,
                "allowed: one key of 1 to 250 bytes without blanks, and nothing else",
            );
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        };
        if conditions.draining {
            return refuse_stopping(out, echo);
        }
        self.draw(key, Form::Binary(echo), consumed, conditions.facts)
    }

    /// Takes an increment.
    fn increment_one(
        &mut self,
        header: &Header,
        body: &[u8],
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let echo = header.echo;
        let consumed = HEADER_SIZE + body.len();
        let parts = header.extras_and_key(body, INCREMENT_EXTRAS);
        let Some((Some((delta, _)), key)) = parts.map(|(extras, key)| (extras.split_first_chunk(), key))
        else {
            error(out, echo, BAD_ARGUMENTS, "allowed: 20 bytes of extras and one key of 1 to 250 bytes");
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        };
        if conditions.draining {
            return refuse_stopping(out, echo);
        }
        let delta = u64::from_be_bytes(*delta);
        self.begin_increment(key, Form::BinaryIncr(echo));
        self.increment(key, delta, consumed, conditions, out)
    }
}

/// Refuses a request for IDs while the daemon stops.
fn refuse_stopping(out: &mut Vec<u8>, echo: Echo) -> Step<Form> {
    error(out, echo, BUSY, STOPPING);
    Step::Close { error: Some(ErrorCode::ShuttingDown) }
}

/// Answers a packet that draws nothing.
#[cold]
fn answer(header: &Header, body: &[u8], conditions: &Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
    let echo = header.echo;
    let consumed = HEADER_SIZE + body.len();
    match echo.opcode {
        NOOP => Reply::default().encode(out, echo),
        VERSION => Reply { value: MEMCACHED_VERSION.as_bytes(), ..Reply::default() }.encode(out, echo),
        STAT => {
            // The sections of memcached's other statistics are empty.
            if header.key_size == 0 {
                for (name, value) in statistics::all(conditions, MEMCACHED_VERSION) {
                    let value = statistics::plain(&value);
                    let stat = Reply { key: name.as_bytes(), value: value.as_bytes(), ..Reply::default() };
                    stat.encode(out, echo);
                }
            }
            // A packet without a name ends the list.
            Reply::default().encode(out, echo);
        }
        QUIT | QUITQ => {
            if echo.opcode == QUIT {
                Reply::default().encode(out, echo);
            }
            return Step::Close { error: None };
        }
        opcode => {
            // The success of INCREMENTQ is silent, so a client awaits no reply.
            if opcode != INCREMENTQ {
                let (status, reason) = unknown(opcode);
                error(out, echo, status, reason);
            }
            return Step::Answered { consumed, error: Some(ErrorCode::Unsupported) };
        }
    }
    Step::Answered { consumed, error: None }
}

/// Encodes the value of one key. The reply to GETK, GATK and their quiet forms repeats the key. These
/// are answered like the others, because every get is a hit.
pub(super) fn value(out: &mut Vec<u8>, echo: Echo, key: &[u8], id: u64) {
    let key = if matches!(echo.opcode, GETK | GETKQ | GATK | GATKQ) { key } else { b"" };
    let mut digits = itoa::Buffer::new();
    // Four bytes of flags, all 0.
    Reply { extras: &[0; 4], key, value: digits.format(id).as_bytes(), cas: id, ..Reply::default() }
        .encode(out, echo);
}

/// Encodes the number that an increment has reached.
pub(super) fn number(out: &mut Vec<u8>, echo: Echo, number: u64) {
    Reply { value: &number.to_be_bytes(), cas: number, ..Reply::default() }.encode(out, echo);
}

/// Encodes a refusal. Quiet commands get refusals too.
pub(super) fn refusal(out: &mut Vec<u8>, echo: Echo, words: &Words, reason: &str) {
    let status = match words.code {
        ErrorCode::ShuttingDown | ErrorCode::TooBusy => BUSY,
        _ if words.retry_after.is_some() => TRY_LATER,
        _ => INTERNAL,
    };
    error(out, echo, status, reason);
}

/// Encodes the refusal of a packet whose arguments are not allowed.
pub(super) fn bad_arguments(out: &mut Vec<u8>, echo: Echo, reason: &str) {
    error(out, echo, BAD_ARGUMENTS, reason);
}

fn error(out: &mut Vec<u8>, echo: Echo, status: u16, reason: &str) {
    Reply { status, value: reason.as_bytes(), ..Reply::default() }.encode(out, echo);
}

/// A reply. By default it is empty and no error.
#[derive(Default)]
struct Reply<'r> {
    status: u16,
    extras: &'r [u8],
    key: &'r [u8],
    value: &'r [u8],
    /// The cas number, which is an ID's own number; 0: none.
    cas: u64,
}

impl Reply<'_> {
    fn encode(&self, out: &mut Vec<u8>, echo: Echo) {
        let Reply { status, extras, key, value, cas } = self;
        let body_size = (extras.len() + key.len() + value.len()) as u32;
        out.extend_from_slice(&[REPLY, echo.opcode]);
        // Keys have at most 250 bytes, and extras four.
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0]);
        out.extend_from_slice(&status.to_be_bytes());
        out.extend_from_slice(&body_size.to_be_bytes());
        out.extend_from_slice(&echo.opaque);
        out.extend_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use snowbank_wire::Action;

    #[test]
    fn only_refusals_with_a_retry_time_say_try_later() {
        let later = Some(Duration::from_millis(5));
        for (code, retry_after, expected) in [
            (ErrorCode::Exhausted, later, 0x86),
            (ErrorCode::Exhausted, None, 0x84),
            (ErrorCode::NoCeiling, None, 0x84),
            (ErrorCode::ShuttingDown, None, 0x85),
        ] {
            let words = Words { code, action: Action::Leave, retry_after, message: String::from("why") };
            let mut out = Vec::new();
            refusal(&mut out, Echo { opcode: GET, opaque: [0; 4] }, &words, "why");
            assert_eq!(out[6..8], [0, expected], "{code:?}");
        }
    }
}
