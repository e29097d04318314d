//! The text protocol: each command is a line that ends with LF or CRLF. Upper and lower case are
//! equal in commands.

use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use super::keys::{is_blank, words};
use super::{Form, KEY_BYTES_MAX, MEMCACHED_VERSION, Memcached};
use crate::config::Protocol;
use crate::frontends::http::is_line_of_head;
use crate::frontends::refusals::STOPPING;
use crate::frontends::{Conditions, LOOK_AHEAD, MESSAGE_BYTES_MAX, Step, foreign, statistics};
use snowbank_wire::ErrorCode;

/// A bound for the bytes of a value without its key. These are `VALUE `, ` 0 19`, the digits and
/// two line ends, the cas number, and the line `END` behind the last value.
pub(super) const VALUE_BYTES_MAX: usize = 68;

/// The last word of a command to which its client wants no reply.
const NOREPLY: &[u8] = b"noreply";

/// The commands that know `noreply`, and how many other words must precede it: in `delete noreply`
/// it is the key.
const NOREPLY_COMMANDS: [(&str, usize); 13] = [
    ("set", 1),
    ("add", 1),
    ("replace", 1),
    ("append", 1),
    ("prepend", 1),
    ("cas", 1),
    ("incr", 1),
    ("decr", 1),
    ("delete", 1),
    ("touch", 1),
    ("flush_all", 0),
    ("verbosity", 0),
    ("cache_memlimit", 0),
];

/// A command behind whose line a value follows.
struct Storage {
    name: &'static str,
    /// The place of the value's size among the words behind the command.
    size_at: usize,
    /// The number of these words without `noreply`. `None`: flags may follow the size.
    words: Option<usize>,
}

const STORAGE_COMMANDS: [Storage; 7] = [
    Storage { name: "set", size_at: 3, words: Some(4) },
    Storage { name: "add", size_at: 3, words: Some(4) },
    Storage { name: "replace", size_at: 3, words: Some(4) },
    Storage { name: "append", size_at: 3, words: Some(4) },
    Storage { name: "prepend", size_at: 3, words: Some(4) },
    Storage { name: "cas", size_at: 3, words: Some(5) },
    Storage { name: "ms", size_at: 1, words: None },
];

const LINE_TOO_LONG: &str =
    "found a line of more than 65536 bytes, allowed: fewer; ask for fewer keys at once";

/// Returns the first line of some bytes without its LF, and its size with the LF. A CR stays.
fn line_of_bytes(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some((&bytes[..end], end + 1))
}

/// Splits a line into its command and the rest.
fn command_of(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    let line = &line[start..];
    line.split_at(line.iter().position(is_blank).unwrap_or(line.len()))
}

fn is_get(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(b"get") || command.eq_ignore_ascii_case(b"gets")
}

impl Memcached {
    /// Takes the first line.
    #[inline]
    pub(super) fn line(
        &mut self,
        bytes: &[u8],
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        if let Some(reason) = rejection(bytes) {
            client_error(out, &reason);
            conditions.rejection = Some(reason);
            return Step::Close { error: Some(ErrorCode::Malformed) };
        }
        let Some((line, consumed)) = line_of_bytes(bytes) else { return Step::Incomplete };
        let (command, rest) = command_of(line);
        if is_get(command) {
            let form = if command.len() == b"gets".len() { Form::Gets } else { Form::Get };
            return self.get(rest, form, consumed, conditions, out);
        }
        self.other(command, rest, consumed, conditions, out)
    }

    fn get(
        &mut self,
        keys: &[u8],
        form: Form,
        consumed: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        self.gets.commands += 1;
        if let Some((code, reason)) = fault_of(keys, conditions.facts.max_count) {
            match reason {
                None => out.extend_from_slice(b"ERROR\r\n"),
                Some(reason) => client_error(out, &reason),
            }
            return Step::Answered { consumed, error: Some(code) };
        }
        if conditions.draining {
            return refuse_stopping(out);
        }
        self.draw(keys, form, consumed, conditions.facts)
    }

    /// Takes a `get` with an expiry time before its keys, which changes nothing: an ID never expires.
    fn get_and_touch(
        &mut self,
        operands: &[u8],
        has_cas: bool,
        consumed: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let (time, keys) = command_of(operands);
        if words(keys).next().is_some() && number_of::<i64>(time).is_none() {
            client_error(out, "invalid exptime argument");
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        }
        self.get(keys, if has_cas { Form::Gets } else { Form::Get }, consumed, conditions, out)
    }

    /// Takes a command that is no `get`.
    #[cold]
    fn other(
        &mut self,
        command: &[u8],
        operands: &[u8],
        consumed: usize,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let is = |name: &str| command.eq_ignore_ascii_case(name.as_bytes());
        let answered = out.len();
        let step = if let Some(storage) = STORAGE_COMMANDS.iter().find(|storage| is(storage.name)) {
            self.refuse_value(storage, operands, consumed, conditions, out)
        } else if is("mg") || is("ma") {
            return self.meta(operands, is("ma"), consumed, conditions, out);
        } else if is("gat") || is("gats") {
            return self.get_and_touch(operands, is("gats"), consumed, conditions, out);
        } else if is("incr") {
            self.incr(operands, consumed, conditions, out)
        } else {
            answer(command, operands, consumed, conditions, out)
        };
        // The client reads no reply to such a command, not even a refusal.
        let words_before = words(operands).count().saturating_sub(1);
        if words(operands).last() == Some(NOREPLY)
            && NOREPLY_COMMANDS.iter().any(|(name, fewest)| is(name) && words_before >= *fewest)
        {
            out.truncate(answered);
        }
        step
    }

    /// Refuses to store a value, and skips the value. Closes the connection if the value's size is not
    /// known, because its bytes would be taken for commands.
    fn refuse_value(
        &mut self,
        storage: &Storage,
        operands: &[u8],
        consumed: usize,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let Some(size) = storage.size_of_value(operands) else {
            let reason = "a value was announced, but not how long it is";
            client_error(out, format_args!("bad command line format: {reason}"));
            conditions.rejection = Some(reason.to_owned());
            return Step::Close { error: Some(ErrorCode::Malformed) };
        };
        self.skip.block(size);
        out.extend_from_slice(b"ERROR\r\n");
        Step::Answered { consumed, error: Some(ErrorCode::Unsupported) }
    }

    /// Takes an `incr`. Without a reply it draws nothing.
    fn incr(
        &mut self,
        operands: &[u8],
        consumed: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let mut all = words(operands);
        let (Some(key), Some(delta), noreply, None) = (all.next(), all.next(), all.next(), all.next()) else {
            out.extend_from_slice(b"ERROR\r\n");
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        };
        if noreply.is_some() {
            let error = (noreply != Some(NOREPLY)).then_some(ErrorCode::Malformed);
            out.extend_from_slice(b"ERROR\r\n");
            return Step::Answered { consumed, error };
        }
        if let Some((code, Some(reason))) = fault_of(key, conditions.facts.max_count) {
            client_error(out, &reason);
            return Step::Answered { consumed, error: Some(code) };
        }
        let Some(delta) = number_of(delta) else {
            client_error(out, "invalid numeric delta argument");
            return Step::Answered { consumed, error: Some(ErrorCode::Malformed) };
        };
        if conditions.draining {
            return refuse_stopping(out);
        }
        self.begin_increment(key, Form::Incr);
        self.increment(key, delta, consumed, conditions, out)
    }
}

impl Storage {
    /// Returns the size of the value in bytes, if the command has the words that it must have. A key that
    /// is empty or has blanks moves the others.
    fn size_of_value(&self, operands: &[u8]) -> Option<u32> {
        let given = words(operands).count() - usize::from(words(operands).last() == Some(NOREPLY));
        number_of(words(operands).nth(self.size_at).filter(|_| self.words.is_none_or(|all| all == given))?)
    }
}

pub(super) fn number_of<N: FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Refuses a request for IDs while the daemon stops.
pub(super) fn refuse_stopping(out: &mut Vec<u8>) -> Step<Form> {
    let code = ErrorCode::ShuttingDown;
    server_error(out, format_args!("{} {STOPPING}", code.name()));
    Step::Close { error: Some(code) }
}

/// Returns the error code, and the reason, if these keys get no IDs. If there is no reason, the
/// answer is `ERROR`.
fn fault_of(keys: &[u8], max_count: u32) -> Option<(ErrorCode, Option<String>)> {
    let mut count = 0;
    for key in words(keys) {
        count += 1;
        if key.len() > KEY_BYTES_MAX {
            let reason = format!("found a key of {} bytes, allowed 1 to {KEY_BYTES_MAX}", key.len());
            return Some((ErrorCode::Malformed, Some(reason)));
        }
        if key.iter().any(u8::is_ascii_control) {
            let reason = String::from("found a key with a control character, allowed: none");
            return Some((ErrorCode::Malformed, Some(reason)));
        }
    }
    match count {
        0 => Some((ErrorCode::Malformed, None)),
        _ if count > max_count => {
            let reason = format!("found {count} keys, allowed 1 to {max_count}");
            Some((ErrorCode::BadCount, Some(reason)))
        }
        _ => None,
    }
}

/// Answers a command that draws nothing.
fn answer(
    command: &[u8],
    operands: &[u8],
    consumed: usize,
    conditions: &Conditions<'_>,
    out: &mut Vec<u8>,
) -> Step<Form> {
    if command.eq_ignore_ascii_case(b"version") {
        line(out, "VERSION ", MEMCACHED_VERSION);
    } else if command.eq_ignore_ascii_case(b"mn") {
        out.extend_from_slice(b"MN\r\n");
    } else if command.eq_ignore_ascii_case(b"stats") {
        stats(words(operands).next(), conditions, out);
    } else if command.eq_ignore_ascii_case(b"quit") {
        return Step::Close { error: None };
    } else {
        out.extend_from_slice(b"ERROR\r\n");
        return Step::Answered { consumed, error: Some(ErrorCode::Unsupported) };
    }
    Step::Answered { consumed, error: None }
}

/// Encodes the statistics. The sections of memcached's other statistics are empty. A reset changes
/// nothing, because the daemon's metrics count on.
fn stats(section: Option<&[u8]>, conditions: &Conditions<'_>, out: &mut Vec<u8>) {
    match section {
        None => {
            for (name, value) in statistics::all(conditions, MEMCACHED_VERSION) {
                line(out, "STAT ", &format!("{name} {}", statistics::plain(&value)));
            }
            end(out);
        }
        Some(section) if section.eq_ignore_ascii_case(b"reset") => out.extend_from_slice(b"RESET\r\n"),
        Some(_) => end(out),
    }
}

/// Returns the reason to close the connection, if the client speaks another protocol or its line
/// has no end.
///
/// The function looks only at the first four bytes or at a whole line. So the result does not
/// depend on how many bytes have arrived.
fn rejection(bytes: &[u8]) -> Option<String> {
    if let Some(first) = bytes.first_chunk::<4>()
        && (first[0] == 0 || !first[..3].contains(&b'\n'))
        && !first.eq_ignore_ascii_case(b"get ")
        && first[0] != super::binary::REQUEST
        && let Some(reason) = foreign::known(first, Protocol::Memcached)
    {
        return Some(reason);
    }
    match line_of_bytes(bytes) {
        Some((_, size)) if size > MESSAGE_BYTES_MAX => Some(LINE_TOO_LONG.to_owned()),
        Some((line, _)) if is_line_of_head(line) => Some(foreign::describe(line, Protocol::Memcached)),
        None if bytes.len() >= MESSAGE_BYTES_MAX => Some(LINE_TOO_LONG.to_owned()),
        _ => None,
    }
}

/// Estimates how many IDs the lines in `bytes` ask for, as if all lines drew from one source.
pub(super) fn demand(mut bytes: &[u8]) -> u64 {
    let mut demand = 0;
    for _ in 0..LOOK_AHEAD {
        let Some((line, consumed)) = line_of_bytes(bytes) else { break };
        let (command, rest) = command_of(line);
        if !is_get(command) {
            break;
        }
        demand += words(rest).count() as u64;
        bytes = &bytes[consumed..];
    }
    demand
}

/// Encodes the value of one key, perhaps with its cas number.
#[inline]
pub(super) fn value(out: &mut Vec<u8>, key: &[u8], id: u64, has_cas: bool) {
    let mut digits = itoa::Buffer::new();
    let mut size = itoa::Buffer::new();
    let digits = digits.format(id);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" 0 ");
    out.extend_from_slice(size.format(digits.len()).as_bytes());
    if has_cas {
        out.push(b' ');
        out.extend_from_slice(digits.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(digits.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Ends a list.
#[inline]
pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"END\r\n");
}

/// Encodes the number that an `incr` has reached.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    line(out, "", itoa::Buffer::new().format(number));
}

/// Encodes a refusal by the daemon.
pub(super) fn server_error(out: &mut Vec<u8>, reason: impl Display) {
    // Writing into memory does not fail.
    let _ = write!(out, "SERVER_ERROR {reason}\r\n");
}

/// Encodes the refusal of a command in which the client made a mistake.
pub(super) fn client_error(out: &mut Vec<u8>, reason: impl Display) {
    let _ = write!(out, "CLIENT_ERROR {reason}\r\n");
}

fn line(out: &mut Vec<u8>, start: &str, rest: &str) {
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(b"\r\n");
}
