//! RESP, the protocol of Redis.

use std::sync::LazyLock;

use snowbank_id::layout::Run;
use snowbank_wire::one_line;

use super::{
    Awaited, Conversation, FrontEnd, Met, Part, Read, Row, line, next_line, number, push, refusal_in,
    unreadable,
};
use crate::check::Violation;
use crate::failure::Failure;
use crate::measure::Fault;
use crate::target::Token;

pub(super) static ROW: Row =
    Row { name: "resp", protocol: "the RESP of Snowbank or Redis", authorize: Some(authorize), meet };

/// The key with which this process counts in a Redis, in all its runs. No other client uses this
/// key.
static KEY: LazyLock<String> = LazyLock::new(|| format!("snowbank-loadtest:{:016x}", fastrand::u64(..)));

/// Redis removes the key this long after the last run began. This is a week, the length of the
/// longest measurement.
const KEY_SECONDS: &[u8] = b"604800";

/// A source of Snowbank, or a counter of a Redis.
#[derive(Debug)]
pub(super) enum Resp {
    /// The name of the source. If it is `None`, the target chooses a source.
    Source(Option<String>),
    /// The key of the counter.
    Counter(&'static str),
}

fn authorize(conversation: &mut Conversation<'_>, token: &Token) -> Result<(), Failure> {
    expect(conversation, &[b"AUTH", token.bytes()], b"+OK")
}

/// Recognizes Snowbank and Redis by their INFO.
fn meet(conversation: &mut Conversation<'_>, source: Option<&str>) -> Result<Met, Failure> {
    let head = ask(conversation, &[b"INFO", b"server"])?;
    let length = head.strip_prefix(b"$").and_then(number);
    let Some(length) = length else { return Err(conversation.answered(&head)) };
    let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(b"\r\n".len());
    let text = conversation.next(|bytes| Ok(bytes.get(..size).map(|text| (text.to_vec(), size))))?;
    let text = String::from_utf8_lossy(&text);
    let snowbank = value_of("snowbank_version:", &text);
    let redis = value_of("redis_version:", &text);
    let (front_end, version) = match (snowbank, redis) {
        (Some(version), _) => (Resp::Source(source.map(str::to_owned)), one_line(version)),
        (None, Some(version)) => (make_counter(conversation)?, format!("Redis {}, INCR", one_line(version))),
        (None, None) => return Err(conversation.answered(text.as_bytes())),
    };
    Ok(Met { front_end: Box::new(front_end), info: None, version: Some(version) })
}

/// Returns the value of a line of INFO.
fn value_of<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Makes the key unless it exists, and tells Redis when to remove it.
fn make_counter(conversation: &mut Conversation<'_>) -> Result<Resp, Failure> {
    // If the key existed before, the answer is null.
    ask(conversation, &[b"SET", KEY.as_bytes(), b"0", b"NX"])?;
    expect(conversation, &[b"EXPIRE", KEY.as_bytes(), KEY_SECONDS], b":1")?;
    Ok(Resp::Counter(KEY.as_str()))
}

/// Sends a command, and fails unless the answer is `expected`.
fn expect(conversation: &mut Conversation<'_>, words: &[&[u8]], expected: &[u8]) -> Result<(), Failure> {
    let found = ask(conversation, words)?;
    if found == expected { Ok(()) } else { Err(conversation.answered(&found)) }
}

/// Sends a command, and returns the first line of its answer. An error reply is returned as a
/// failure.
fn ask(conversation: &mut Conversation<'_>, words: &[&[u8]]) -> Result<Vec<u8>, Failure> {
    conversation.send(|out| command(out, words))?;
    let answer = next_line(conversation)?;
    match answer.strip_prefix(b"-") {
        Some(words) => Err(conversation.refused(&refusal_in(words))),
        None => Ok(answer),
    }
}

impl FrontEnd for Resp {
    fn ask(&self, out: &mut Vec<u8>, _tag: u16, count: u32) {
        let digits = count.to_string();
        match self {
            Self::Counter(key) if count == 1 => command(out, &[b"INCR", key.as_bytes()]),
            Self::Counter(key) => command(out, &[b"INCRBY", key.as_bytes(), digits.as_bytes()]),
            Self::Source(Some(source)) if count == 1 => command(out, &[b"INCR", source.as_bytes()]),
            Self::Source(Some(source)) => {
                command(out, &[b"SNOWBANK.NEXT", source.as_bytes(), digits.as_bytes()]);
            }
            Self::Source(None) => command(out, &[b"SNOWBANK.NEXT", digits.as_bytes()]),
        }
    }

    fn read<'a>(&self, bytes: &'a [u8], awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        let Some((first, size)) = line(bytes) else { return Ok(None) };
        match first.split_first() {
            Some((b'-', words)) => return Ok(Some((Part::Refused(refusal_in(words)), size))),
            Some((b':', digits)) if self.is_counter() => {
                // The reply is the last of the request's numbers.
                let before = id(digits)?.checked_sub(awaited.count.into());
                let first = before.ok_or_else(|| unreadable("a number below the count asked for"))? + 1;
                runs.push(Run { first, count: awaited.count, stride: 1 });
            }
            Some((b':', digits)) => push(runs, id(digits)?),
            Some((b'*', digits)) => {
                let found = id(digits)?;
                if found != u64::from(awaited.count) {
                    return Err(Fault::Violation(Violation::Count { asked: awaited.count, found }));
                }
                return elements(bytes, size, awaited.count, runs);
            }
            // INCR with `replies = "string"`.
            Some((b'$', _)) if awaited.count == 1 => return elements(bytes, 0, 1, runs),
            _ => return Err(unreadable("a reply that is not a number")),
        }
        Ok(Some((Part::End, size)))
    }

    fn is_counter(&self) -> bool {
        matches!(self, Self::Counter(_))
    }
}

/// Reads the bulk strings of a reply from `start` on, once all of them have arrived.
fn elements<'a>(bytes: &'a [u8], start: usize, count: u32, runs: &mut Vec<Run>) -> Read<'a> {
    let mut found = Vec::new();
    let mut taken = start;
    for _ in 0..count {
        let Some((head, head_size)) = line(&bytes[taken..]) else { return Ok(None) };
        let length = head.strip_prefix(b"$").and_then(number);
        let length = length.ok_or_else(|| unreadable("an element that is not text"))?;
        let Some((digits, size)) = line(&bytes[taken + head_size..]) else { return Ok(None) };
        if digits.len() as u64 != length {
            return Err(unreadable("an element that does not have the stated length"));
        }
        push(&mut found, id(digits)?);
        taken += head_size + size;
    }
    runs.extend(found);
    Ok(Some((Part::End, taken)))
}

fn id(digits: &[u8]) -> Result<u64, Fault> {
    number(digits).ok_or_else(|| unreadable("a reply that is not a number"))
}

/// Appends a command as an array of bulk strings.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
