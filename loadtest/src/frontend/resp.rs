//! RESP, the protocol of Redis.

use snowbank_client::layout::Run;

use super::{
    At, FrontEnd, Met, Part, Read, Row, TokenPlace, line, next_line, number, push, refusal_in, unreadable,
};
use crate::check::Violation;
use crate::measure::Fault;
use crate::target::{Conversation, NoTarget, Token};
use crate::units::printable;

use std::sync::{Arc, LazyLock};

pub(super) static ROW: Row = Row {
    name: "resp",
    protocol: "the RESP of Snowbank or Redis",
    token: TokenPlace::First(authorize),
    meet,
};

/// The key of a Redis that this process counts with, in all its runs. No other client uses it.
static KEY: LazyLock<String> = LazyLock::new(|| format!("snowbank-loadtest:{:016x}", fastrand::u64(..)));

/// The key goes this long after the last run began: longer than a run may take.
const KEY_SECONDS: &[u8] = b"604800";

/// The longest line that is waited for; numbers and errors are far shorter.
const MAX_LINE_SIZE: usize = 4_096;

/// A source of Snowbank, or a counter of a Redis.
#[derive(Debug)]
pub(super) enum Resp {
    /// `None` is the front end's own choice.
    Source(Option<String>),
    /// Numbers from this key.
    Counter(&'static str),
}

fn authorize(conversation: &mut Conversation<'_>, token: &Token) -> Result<(), NoTarget> {
    expect(conversation, &[b"AUTH", token.bytes()], b"+OK")
}

/// Knows Snowbank and Redis by their INFO.
fn meet(conversation: &mut Conversation<'_>, source: Option<&str>) -> Result<Met, NoTarget> {
    let head = ask(conversation, &[b"INFO", b"server"])?;
    let length = head.strip_prefix(b"$").or(head.strip_prefix(b"=")).and_then(number);
    let Some(length) = length else { return Err(conversation.answered(&head)) };
    let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(b"\r\n".len());
    let text = conversation.next(|bytes| Ok(bytes.get(..size).map(|text| (text.to_vec(), size))))?;
    let text = String::from_utf8_lossy(&text);
    let snowbank = value_of("snowbank_version:", &text);
    let redis = value_of("redis_version:", &text);
    let (front_end, version) = match (snowbank, redis) {
        (Some(version), _) => (Resp::Source(source.map(str::to_owned)), printable(version)),
        (None, Some(version)) => (make_counter(conversation)?, format!("Redis {}, INCR", printable(version))),
        (None, None) => return Err(conversation.answered(text.as_bytes())),
    };
    Ok(Met { front_end: Arc::new(front_end), info: None, version: Some(version) })
}

/// Returns the value of a line of INFO.
fn value_of<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Makes the key, or keeps its number, and has Redis remove it later.
fn make_counter(conversation: &mut Conversation<'_>) -> Result<Resp, NoTarget> {
    // Null if it was there.
    ask(conversation, &[b"SET", KEY.as_bytes(), b"0", b"NX"])?;
    expect(conversation, &[b"EXPIRE", KEY.as_bytes(), KEY_SECONDS], b":1")?;
    Ok(Resp::Counter(KEY.as_str()))
}

/// Sends a command, and waits for this line.
fn expect(conversation: &mut Conversation<'_>, words: &[&[u8]], expected: &[u8]) -> Result<(), NoTarget> {
    let found = ask(conversation, words)?;
    if found == expected { Ok(()) } else { Err(conversation.answered(&found)) }
}

/// Sends a command, and returns the first line of its answer. An error is a refusal.
fn ask(conversation: &mut Conversation<'_>, words: &[&[u8]]) -> Result<Vec<u8>, NoTarget> {
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

    fn read<'a>(&self, bytes: &'a [u8], at: At, runs: &mut Vec<Run>) -> Read<'a> {
        let Some((first, size)) = line(bytes) else {
            return if bytes.len() > MAX_LINE_SIZE {
                Err(unreadable("a line without an end"))
            } else {
                Ok(None)
            };
        };
        match first.split_first() {
            Some((b'-', words)) if at.come == 0 => Ok(Some((Part::Refused(refusal_in(words)), size))),
            Some((b':', digits)) if self.is_counter() => {
                runs.push(counted_up_to(id(digits)?, at.asked)?);
                Ok(Some((Part::End, size)))
            }
            Some((b':', digits)) => {
                push(runs, id(digits)?);
                Ok(Some((Part::End, size)))
            }
            Some((b'*', digits)) if at.come == 0 => {
                let found = id(digits)?;
                if found != u64::from(at.asked) {
                    return Err(Fault::Violation(Violation::Count { asked: at.asked, found }));
                }
                elements(bytes, size, at, runs)
            }
            // INCR with `replies = "string"`, and the further elements of an array.
            Some((b'$', _)) if at.come > 0 || at.asked == 1 => elements(bytes, 0, at, runs),
            _ => Err(unreadable("a reply that is no number")),
        }
    }

    fn is_counter(&self) -> bool {
        matches!(self, Self::Counter(_))
    }
}

/// Returns the `count` numbers that end at `last`, as a counter hands them out.
fn counted_up_to(last: u64, count: u32) -> Result<Run, Fault> {
    let before = last.checked_sub(count.into());
    let first = before.ok_or_else(|| unreadable("a number below the count asked for"))? + 1;
    Ok(Run { first, count, stride: 1 })
}

/// Reads the elements of an array from `start` on, as far as they have come.
fn elements<'a>(bytes: &'a [u8], start: usize, at: At, runs: &mut Vec<Run>) -> Read<'a> {
    let mut taken = start;
    let mut come = at.come;
    while come < u64::from(at.asked)
        && let Some((text, size)) = bulk(&bytes[taken..])
    {
        push(runs, id(text)?);
        come += 1;
        taken += size;
    }
    match come {
        // The header is taken with the first ID: nothing else records it.
        _ if come == at.come => {
            let is_other = bytes.get(start).is_some_and(|&kind| kind != b'$');
            let is_endless = is_other || bytes.len() > start + MAX_LINE_SIZE;
            if is_endless { Err(unreadable("an element that is no text")) } else { Ok(None) }
        }
        _ if come == u64::from(at.asked) => Ok(Some((Part::End, taken))),
        _ => Ok(Some((Part::More, taken))),
    }
}

fn id(digits: &[u8]) -> Result<u64, Fault> {
    number(digits).ok_or_else(|| unreadable("a reply that is no number"))
}

/// Returns the text of a bulk string, and its size; `None` if it is not all there, or something
/// else.
fn bulk(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (head, start) = line(bytes)?;
    let length = usize::try_from(number(head.strip_prefix(b"$").or(head.strip_prefix(b"="))?)?).ok()?;
    let end = start.checked_add(length)?;
    let text = bytes.get(start..end)?;
    (bytes.get(end..end.checked_add(2)?)? == b"\r\n").then_some((text, end + 2))
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
