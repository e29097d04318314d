//! Encodes requests and splits a RESP stream into lines.

use snowbank_client::protocol::request::{self, Next, Wait};

/// The longest line of a RESP reply that is waited for; numbers and errors are far shorter.
pub(super) const MAX_LINE_SIZE: usize = 4_096;

/// The protocol of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Snowbank's own protocol.
    Native,
    /// RESP, as Redis does: `INCRBY key count`, whose reply is the last of `count` numbers.
    Resp { key: String },
    /// The same bytes as Snowbank's; each comes back.
    Echo,
}

/// The size of a request, and of its echo.
pub(super) const ECHO_SIZE: usize = 16;

/// A line of RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A number.
    Integer(u64),
    /// An error, in the server's words.
    Error(&'a [u8]),
    /// Not an answer to INCRBY.
    Other,
}

impl Wire {
    /// Appends a request.
    pub(super) fn encode(&self, out: &mut Vec<u8>, tag: u16, source: u16, count: u32) {
        match self {
            Self::Native | Self::Echo => {
                let next = Next { count, source, wait: Wait::DEFAULT, explicit: false, partial: false };
                request::encode_next(out, tag, &next);
            }
            Self::Resp { key } => {
                let count = count.to_string();
                let (key_size, count_size) = (key.len(), count.len());
                out.extend_from_slice(b"*3\r\n$6\r\nINCRBY\r\n");
                out.extend_from_slice(
                    format!("${key_size}\r\n{key}\r\n${count_size}\r\n{count}\r\n").as_bytes(),
                );
            }
        }
    }
}

/// Returns the first line, and the bytes that it takes; `None` if it is not all there.
pub(super) fn parse_line(bytes: &[u8]) -> Option<(Line<'_>, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = match bytes[..end].split_first() {
        Some((b':', digits)) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            number.map_or(Line::Other, Line::Integer)
        }
        Some((b'-', words)) => Line::Error(words),
        _ => Line::Other,
    };
    Some((line, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_asked_for_as_many_as_a_batch_has() {
        let mut out = Vec::new();
        Wire::Resp { key: "k".to_owned() }.encode(&mut out, 7, 0, 100);
        assert_eq!(out, b"*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$3\r\n100\r\n");
    }

    #[test]
    fn lines_are_numbers_errors_or_neither() {
        assert_eq!(parse_line(b":42\r\n:43"), Some((Line::Integer(42), 5)));
        assert_eq!(parse_line(b":42\r"), None);
        assert_eq!(parse_line(b"-ERR no\r\n"), Some((Line::Error(b"ERR no"), 9)));
        for other in [&b":\r\n"[..], b":-1\r\n", b"+OK\r\n", b"\r\n", b":\xff\r\n"] {
            assert_eq!(parse_line(other).map(|(line, _)| line), Some(Line::Other));
        }
    }
}
