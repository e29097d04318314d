//! The binary protocol: packets of a 24-byte header and a body. Numbers are big-endian.

use super::{Form, KEY_BYTES_MAX, MEMCACHED_VERSION, Memcached};
use crate::config::Protocol;
use crate::frontends::words::{STOPPING, Words};
use crate::frontends::{Conditions, MESSAGE_BYTES_MAX, Step, statistics};
use snowbank_wire::ErrorCode;

/// The first byte of a request.
pub(super) const REQUEST: u8 = 0x80;
const REPLY: u8 = 0x81;
const HEADER_SIZE: usize = 24;

const GET: u8 = 0x00;
const QUIT: u8 = 0x07;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
const STAT: u8 = 0x10;
const QUITQ: u8 = 0x17;

/// The status of a reply.
const DONE: u16 = 0x0000;
const TOO_LARGE: u16 = 0x0003;
const BAD_ARGUMENTS: u16 = 0x0004;
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

    /// Returns the key, if the body has a valid key and nothing else.
    fn only_key<'a>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        let is_alone = self.extras_size == 0 && self.key_size == body.len();
        let is_key = (1..=KEY_BYTES_MAX).contains(&body.len()) && !body.iter().any(|&byte| byte <= b' ');
        (is_alone && is_key).then_some(body)
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
            reply(out, header.echo, TOO_LARGE, b"", b"", b"too large");
            return Step::Close { error: Some(ErrorCode::Malformed) };
        }
        let Some(body) = rest.get(..header.body_size) else { return Step::Incomplete };
        let consumed = HEADER_SIZE + header.body_size;
        match header.echo.opcode {
            GET | GETQ | GETK | GETKQ => self.get_one(&header, body, conditions, out),
            _ => answer(&header, consumed, conditions, out),
        }
    }

    fn get_one(
        &mut self,
        header: &Header,
        body: &[u8],
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let echo = header.echo;
        let consumed = HEADER_SIZE + body.len();
        let Some(key) = header.only_key(body) else {
            reply(
                out,
                echo,
                BAD_ARGUMENTS,
                b"",
                b"",
                b"allowed: one key of 1 to 250 bytes without blanks, and nothing else",
            );
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        };
        if conditions.draining {
            reply(out, echo, BUSY, b"", b"", STOPPING.as_bytes());
            return Step::Close { error: Some(ErrorCode::ShuttingDown) };
        }
        self.keys.set(key);
        self.next_ids(consumed, Form::Binary(echo), conditions.facts)
    }
}

/// Answers a packet that draws nothing.
#[cold]
fn answer(header: &Header, consumed: usize, conditions: &Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
    let echo = header.echo;
    match echo.opcode {
        NOOP => reply(out, echo, DONE, b"", b"", b""),
        VERSION => reply(out, echo, DONE, b"", b"", MEMCACHED_VERSION.as_bytes()),
        STAT => {
            for (name, value) in statistics::all(conditions, Protocol::Memcached) {
                reply(out, echo, DONE, b"", name.as_bytes(), statistics::plain(&value).as_bytes());
            }
            // A packet without a name ends the list.
            reply(out, echo, DONE, b"", b"", b"");
        }
        QUIT | QUITQ => {
            if echo.opcode == QUIT {
                reply(out, echo, DONE, b"", b"", b"");
            }
            return Step::Close { error: None };
        }
        _ => {
            reply(out, echo, UNKNOWN_COMMAND, b"", b"", b"Unknown command");
            return Step::Answered { consumed, error: Some(ErrorCode::Unsupported) };
        }
    }
    Step::Answered { consumed, error: None }
}

/// Encodes the value of one key. The reply to GETK and GETKQ repeats the key.
pub(super) fn value(out: &mut Vec<u8>, echo: Echo, key: &[u8], id: u64) {
    let key = if matches!(echo.opcode, GETK | GETKQ) { key } else { b"" };
    // Four bytes of flags, all 0.
    reply(out, echo, DONE, &[0; 4], key, itoa::Buffer::new().format(id).as_bytes());
}

/// Encodes a refusal. Quiet commands get refusals too.
pub(super) fn refusal(out: &mut Vec<u8>, echo: Echo, words: &Words, reason: &str) {
    let status = match words.code {
        ErrorCode::ShuttingDown | ErrorCode::TooBusy => BUSY,
        _ if words.retry_after.is_some() => TRY_LATER,
        _ => INTERNAL,
    };
    reply(out, echo, status, b"", b"", reason.as_bytes());
}

fn reply(out: &mut Vec<u8>, echo: Echo, status: u16, extras: &[u8], key: &[u8], value: &[u8]) {
    let body_size = (extras.len() + key.len() + value.len()) as u32;
    out.extend_from_slice(&[REPLY, echo.opcode]);
    // Keys have at most 250 bytes, and extras four.
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0]);
    out.extend_from_slice(&status.to_be_bytes());
    out.extend_from_slice(&body_size.to_be_bytes());
    out.extend_from_slice(&echo.opaque);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
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
