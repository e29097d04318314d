//! RESP, the protocol of Redis.

use snowbank_client::layout::Run;

use super::{At, Door, Met, Part, Read, line, number, push, refusal_in, unreadable};
use crate::check::Violation;
use crate::measure::Fault;
use crate::target::{Conversation, NoTarget, Token};
use crate::units::printable;

use std::sync::Arc;

const PROTOCOL: &str = "Snowbank's RESP";

/// The longest line that is waited for; numbers and errors are far shorter.
const MAX_LINE_SIZE: usize = 4_096;

/// The source that is asked; `None` is the front end's own choice.
#[derive(Debug)]
pub(super) struct Resp(pub(super) Option<String>);

pub(super) fn authorize(conversation: &mut Conversation, token: &Token) -> Result<(), NoTarget> {
    conversation.send(|out| command(out, &[b"AUTH", token.bytes()]))?;
    expect_line(conversation, b"+OK")
}

/// Knows Snowbank by its INFO.
pub(super) fn meet(conversation: &mut Conversation, source: Option<&str>) -> Result<Met, NoTarget> {
    conversation.send(|out| command(out, &[b"INFO", b"server"]))?;
    let text = conversation.next(|bytes| match bytes.first() {
        None => Ok(None),
        Some(b'$' | b'=') => Ok(bulk(bytes).map(|(text, size)| (text.to_vec(), size))),
        Some(_) => Ok(line(bytes).map(|(line, size)| (line.to_vec(), size))),
    })?;
    if let Some(words) = text.strip_prefix(b"-") {
        return Err(refusal(conversation, words));
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("snowbank_version:")) else {
        return Err(conversation.not_that(PROTOCOL, text.as_bytes()));
    };
    let version = Some(printable(version.trim()));
    Ok(Met { door: Arc::new(Resp(source.map(str::to_owned))), info: None, version })
}

/// Waits for this line.
fn expect_line(conversation: &mut Conversation, expected: &[u8]) -> Result<(), NoTarget> {
    let found = conversation.next(|bytes| Ok(line(bytes).map(|(line, size)| (line.to_vec(), size))))?;
    match found.strip_prefix(b"-") {
        _ if found == expected => Ok(()),
        Some(words) => Err(refusal(conversation, words)),
        None => Err(conversation.not_that(PROTOCOL, &found)),
    }
}

fn refusal(conversation: &Conversation, words: &[u8]) -> NoTarget {
    let refusal = refusal_in(words);
    conversation.refused(refusal.code, &refusal.words)
}

impl Door for Resp {
    fn ask(&self, out: &mut Vec<u8>, count: u32) {
        let digits = count.to_string();
        match &self.0 {
            Some(source) if count == 1 => command(out, &[b"INCR", source.as_bytes()]),
            Some(source) => command(out, &[b"SNOWBANK.NEXT", source.as_bytes(), digits.as_bytes()]),
            None => command(out, &[b"SNOWBANK.NEXT", digits.as_bytes()]),
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
}

/// Reads the elements of an array from `start` on, as far as they have come.
fn elements<'a>(bytes: &'a [u8], start: usize, at: At, runs: &mut Vec<Run>) -> Read<'a> {
    let (mut taken, mut come) = (start, at.come);
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

/// Returns the text of a bulk string, and its size; `None` if it is not all there, or something else.
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
