//! The parser of requests: arrays of bulk strings, and inline commands.
//!
//! The parser reads the bytes of a request in order. So the result does not depend on how the
//! stream is cut into reads.

use std::ops::Range;

use super::encode;
use crate::frontends::MESSAGE_BYTES_MAX;
use zeroize::Zeroizing;

/// The most arguments of a request, with the command's name. A client could send any number; the
/// longest useful command has under twenty.
const ARGUMENTS_MAX: usize = 1_024;

/// The number of arguments that commands can read: the longest HELLO has seven. Further arguments
/// are only counted.
pub(super) const ARGUMENTS_READ: usize = 8;

/// The most bytes of a line with a length: a kind, a sign, the digits of a 64-bit number and the
/// line end.
const LENGTH_LINE_BYTES_MAX: usize = 24;

/// The number of bytes that show which protocol a client speaks, if it does not speak Redis'
/// protocol.
pub(super) const FOREIGN_BYTES: usize = 4;

/// The arguments of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arguments<'b> {
    first: [&'b [u8]; ARGUMENTS_READ],
    count: usize,
}

impl<'b> Arguments<'b> {
    pub(super) const NONE: Arguments<'static> = Arguments { first: [&[]; ARGUMENTS_READ], count: 0 };

    #[inline]
    fn push(&mut self, argument: &'b [u8]) {
        if let Some(place) = self.first.get_mut(self.count) {
            *place = argument;
        }
        self.count += 1;
    }

    /// Returns the number of arguments.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the arguments that commands can read.
    #[inline]
    pub(super) fn get(&self) -> &[&'b [u8]] {
        &self.first[..self.count.min(ARGUMENTS_READ)]
    }
}

/// The reason why no request was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The request is not complete yet.
    Incomplete,
    /// An inline command is not text: it has a control character, or begins with 0x80.
    NoText,
    /// An argument begins with this byte instead of `$`, as in an array of arrays.
    NoBulkString(u8),
    /// The bytes break the protocol, for this reason in Redis' words. The stream is lost.
    Fault(&'static str),
}

/// The fault if the count of arguments is no number.
const ARGUMENT_COUNT: &str = "invalid multibulk length";
/// The fault if the size of an argument is no number, or negative.
const ARGUMENT_SIZE: &str = "invalid bulk length";

const TOO_MANY_ARGUMENTS: &str = "invalid multibulk length, allowed are 1024 arguments";
const TOO_LONG_ARGUMENT: &str = "invalid bulk length, allowed are 65536 bytes in a request";
const TOO_LONG_REQUEST: &str = "too big request, allowed are 65536 bytes";
const _: () = assert!(ARGUMENTS_MAX == 1_024 && MESSAGE_BYTES_MAX == 65_536, "the faults name the limits");

/// The first bytes of a stream, in which a request must end.
fn message(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)]
}

/// Refuses a request that has no end in `message`.
fn bounded<T>(message: &[u8], parsed: Result<T, Miss>) -> Result<T, Miss> {
    match parsed {
        Err(Miss::Incomplete) if message.len() == MESSAGE_BYTES_MAX => Err(Miss::Fault(TOO_LONG_REQUEST)),
        parsed => parsed,
    }
}

/// Returns true if the first request of `bytes` is an inline command.
#[inline]
pub(super) fn is_inline(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| *first != b'*')
}

/// Parses the request at the start of `bytes`, which is an array, and adds its arguments to
/// `arguments`. Returns the size of the request in bytes. A request without arguments asks for
/// nothing.
#[inline]
pub(super) fn parse<'b>(bytes: &'b [u8], arguments: &mut Arguments<'b>) -> Result<usize, Miss> {
    let message = message(bytes);
    if message.is_empty() {
        return Err(Miss::Incomplete);
    }
    bounded(message, array(message, arguments))
}

#[inline]
pub(super) fn array<'b>(bytes: &'b [u8], arguments: &mut Arguments<'b>) -> Result<usize, Miss> {
    let (count, mut at) = length(bytes, 0, ARGUMENT_COUNT)?;
    // An array of a negative length is a request without arguments, as in Redis.
    let count = usize::try_from(count).unwrap_or(0);
    if count > ARGUMENTS_MAX {
        return Err(Miss::Fault(TOO_MANY_ARGUMENTS));
    }
    for _ in 0..count {
        match bytes.get(at) {
            Some(b'$') => {}
            Some(&other) => return Err(Miss::NoBulkString(other)),
            None => return Err(Miss::Incomplete),
        }
        let (size, begin) = length(bytes, at, ARGUMENT_SIZE)?;
        let size = usize::try_from(size).map_err(|_| Miss::Fault(ARGUMENT_SIZE))?;
        if size > MESSAGE_BYTES_MAX {
            return Err(Miss::Fault(TOO_LONG_ARGUMENT));
        }
        let end = begin + size;
        match bytes.get(end..) {
            Some([b'\r', b'\n', ..]) => {}
            Some([] | [b'\r']) | None => return Err(Miss::Incomplete),
            Some(_) => return Err(Miss::Fault("expected a line end after the bulk string")),
        }
        arguments.push(&bytes[begin..end]);
        at = end + 2;
    }
    Ok(at)
}

/// Parses a line with a length. The line begins at `at`, with its kind (`*` or `$`). Returns the
/// length and the start of the next line.
#[inline]
fn length(bytes: &[u8], at: usize, fault: &'static str) -> Result<(i64, usize), Miss> {
    let digits = &bytes[at + 1..];
    // Nearly every length has one or two digits.
    match *digits {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => return Ok((i64::from(ones - b'0'), at + 4)),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), at + 5));
        }
        _ => {}
    }
    let line = &digits[..digits.len().min(LENGTH_LINE_BYTES_MAX)];
    let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
        let is_too_long = line.len() == LENGTH_LINE_BYTES_MAX;
        return Err(if is_too_long { Miss::Fault(fault) } else { Miss::Incomplete });
    };
    let number = line[..end].strip_suffix(b"\r").and_then(number);
    Ok((number.ok_or(Miss::Fault(fault))?, at + 1 + end + 1))
}

/// Parses a decimal number as Redis does: digits, with a minus in front of a negative number, and
/// without leading zeros.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let is_plain = matches!(digits, b"0" | [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..]);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// Parses the inline command at the start of `bytes`: words up to the end of the line. Returns its
/// size in bytes, and the same request as an array. A token in it is erased with the array.
#[cold]
pub(super) fn inline(bytes: &[u8]) -> Result<(usize, Zeroizing<Vec<u8>>), Miss> {
    let message = message(bytes);
    bounded(message, inline_of(message))
}

fn inline_of(bytes: &[u8]) -> Result<(usize, Zeroizing<Vec<u8>>), Miss> {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len())];
    let line = if end.is_some() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    // The CR of a line end may have arrived without its LF.
    let whole = if end.is_none() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    // Memcached's binary requests begin with this byte, and no text does.
    if line.first() == Some(&0x80) || whole.iter().any(|&byte| byte < 0x20 && byte != b'\t') {
        // Wait for enough bytes to show which protocol the client speaks.
        return Err(if bytes.len() < FOREIGN_BYTES { Miss::Incomplete } else { Miss::NoText });
    }
    let consumed = end.ok_or(Miss::Incomplete)? + 1;
    let (text, words) = words_of(line).ok_or(Miss::Fault("unbalanced quotes in request"))?;
    if words.len() > ARGUMENTS_MAX {
        return Err(Miss::Fault(TOO_MANY_ARGUMENTS));
    }
    // A buffer that grows would leave a copy of a token.
    let size = text.len() + (words.len() + 1) * 2 * LENGTH_LINE_BYTES_MAX;
    let mut array = Zeroizing::new(Vec::with_capacity(size));
    encode::array(&mut array, words.len() as u64);
    words.into_iter().for_each(|word| encode::bulk(&mut array, &text[word]));
    Ok((consumed, array))
}

/// The text of words one behind the other, and the place of each word in it.
type Words = (Zeroizing<Vec<u8>>, Vec<Range<usize>>);

/// Returns the words of a line, as Redis splits it. A word may have parts in quotes. In double
/// quotes, a backslash begins an escape; in single quotes, it does so only before a single quote.
/// Returns `None` if a quote is not closed, or if a word goes on behind a closing quote.
fn words_of(line: &[u8]) -> Option<Words> {
    // A word is no longer than its text in the line, so the buffer does not grow.
    let mut text = Zeroizing::new(Vec::with_capacity(line.len()));
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let begin = text.len();
        while let [first, behind @ ..] = rest
            && !first.is_ascii_whitespace()
        {
            rest = match first {
                b'"' | b'\'' => {
                    let behind = quoted(*first, behind, &mut text)?;
                    if behind.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return None;
                    }
                    behind
                }
                plain => {
                    text.push(*plain);
                    behind
                }
            };
        }
        words.push(begin..text.len());
        rest = rest.trim_ascii_start();
    }
    Some((text, words))
}

/// Appends the text up to the closing quote to `word`. Returns the rest of the line, or `None` if
/// there is no such quote.
fn quoted<'l>(quote: u8, mut rest: &'l [u8], word: &mut Vec<u8>) -> Option<&'l [u8]> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    loop {
        let (byte, behind) = match rest {
            [first, behind @ ..] if *first == quote => return Some(behind),
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => (b'\'', behind),
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"'
                    && let (Some(high), Some(low)) = (digit(*high), digit(*low)) =>
            {
                (high << 4 | low, behind)
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                };
                (byte, behind)
            }
            [first, behind @ ..] => (*first, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_commands_are_split_as_redis_splits_them() {
        let words = |line: &str| {
            let (text, words) = words_of(line.as_bytes())?;
            let text = std::str::from_utf8(&text).expect("UTF-8").to_owned();
            Some(words.into_iter().map(|word| text[word].to_owned()).collect::<Vec<_>>())
        };
        for (line, expected) in [
            ("", vec![]),
            ("  PING\t x ", vec!["PING", "x"]),
            (r#"ECHO "a b" 'c d'"#, vec!["ECHO", "a b", "c d"]),
            (r#"ECHO "\x41\n\t\"\\\q" '\n\'"'"#, vec!["ECHO", "A\n\t\"\\q", "\\n'\""]),
            (r#"ECHO "" ''"#, vec!["ECHO", "", ""]),
            (r#"ECHO a"b c" \x41"#, vec!["ECHO", "ab c", r"\x41"]),
            (r#"ECHO "\xg1""#, vec!["ECHO", "xg1"]),
        ] {
            assert_eq!(words(line), Some(expected.into_iter().map(str::to_owned).collect()), "{line}");
        }
        for line in [r#"ECHO "a"#, r"ECHO 'a", r#"ECHO "a"b"#, r"ECHO 'a'b", r#"ECHO "a\""#, r#"""""#] {
            assert_eq!(words(line), None, "{line}");
        }
    }

    #[test]
    fn numbers_have_no_leading_zeros_and_no_plus() {
        for (digits, expected) in [("0", 0), ("10", 10), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(number(digits.as_bytes()), Some(expected));
        }
        for digits in ["", "00", "01", "-", "-0", "-01", "+1", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(number(digits.as_bytes()), None, "{digits:?}");
        }
    }
}
