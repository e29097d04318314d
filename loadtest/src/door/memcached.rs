//! memcached's text protocol, by which katsubushi and Snowbank give each key of a `get` a new ID.

use std::sync::Arc;

use snowbank_client::layout::Run;

use super::{
    At, Door, Met, Part, Read, counted_up_to, key_of_our_own, line, number, push, refused, unreadable,
};
use crate::measure::Fault;
use crate::target::{Conversation, NoTarget};
use crate::units::printable;

/// The largest `get` of Snowbank.
const MAX_GET_SIZE: usize = 64 * 1024;

/// The key for a target that ignores keys.
const ANY_KEY: &str = "id";

const PROTOCOL: &str = "memcached's text protocol";

/// A server that makes IDs, or a counter of memcached itself.
#[derive(Debug)]
pub(super) enum Memcached {
    /// Each get of the key is a new ID.
    Ids { key: String },
    /// Numbers from a key.
    Counter { key: String },
}

/// Finds out whether a key that was never set has a value. In memcached it has none, and then a key
/// of our own is made a counter.
pub(super) fn meet(conversation: &mut Conversation, source: Option<&str>) -> Result<Met, NoTarget> {
    let key = source.unwrap_or(ANY_KEY).to_owned();
    let door = match ask(conversation, &format!("get {key}"))?.as_slice() {
        b"END" => {
            let key = key_of_our_own();
            match ask(conversation, &format!("add {key} 0 0 1\r\n0"))?.as_slice() {
                b"STORED" => Memcached::Counter { key },
                other => return Err(conversation.not_that(PROTOCOL, other)),
            }
        }
        value if value.starts_with(b"VALUE ") => {
            // Its digits, and END.
            conversation.next(|bytes| Ok(line(bytes).map(|(_, size)| ((), size))))?;
            conversation.next(|bytes| Ok(line(bytes).map(|(_, size)| ((), size))))?;
            Memcached::Ids { key }
        }
        other => match refusal(other) {
            Some(Part::Refused { code, words }) => return Err(conversation.refused(code, &words)),
            _ => return Err(conversation.not_that(PROTOCOL, other)),
        },
    };
    let version = ask(conversation, "version")?;
    let version = version.strip_prefix(b"VERSION ").map(|name| printable(&String::from_utf8_lossy(name)));
    let version = match door {
        Memcached::Ids { .. } => version,
        Memcached::Counter { .. } => version.map(|version| format!("memcached {version}, incr")),
    };
    Ok(Met { door: Arc::new(door), info: None, version })
}

/// Sends a command and returns the first line of its answer.
fn ask(conversation: &mut Conversation, command: &str) -> Result<Vec<u8>, NoTarget> {
    conversation.send(|out| out.extend_from_slice(format!("{command}\r\n").as_bytes()))?;
    conversation.next(|bytes| Ok(line(bytes).map(|(line, size)| (line.to_vec(), size))))
}

/// Returns the refusal in a line, if it is one.
fn refusal(line: &[u8]) -> Option<Part<'_>> {
    let words = line.strip_prefix(b"SERVER_ERROR ").or_else(|| line.strip_prefix(b"CLIENT_ERROR "));
    words.or_else(|| matches!(line, b"ERROR" | b"NOT_FOUND").then_some(line)).map(refused)
}

impl Door for Memcached {
    fn ask(&self, out: &mut Vec<u8>, count: u32) {
        match self {
            Self::Counter { key } => out.extend_from_slice(format!("incr {key} {count}").as_bytes()),
            Self::Ids { key } => {
                out.extend_from_slice(b"get");
                for _ in 0..count {
                    out.push(b' ');
                    out.extend_from_slice(key.as_bytes());
                }
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn read<'a>(&self, bytes: &'a [u8], at: At, runs: &mut Vec<Run>) -> Read<'a> {
        let Some((first, size)) = line(bytes) else {
            return Ok(None);
        };
        if let Some(refused) = refusal(first) {
            return Ok(Some((refused, size)));
        }
        match self {
            Self::Counter { .. } => {
                let last = number(first).ok_or_else(|| unreadable("a reply that is no number"))?;
                runs.push(counted_up_to(last, at.asked)?);
                Ok(Some((Part::End, size)))
            }
            Self::Ids { .. } if first == b"END" => Ok(Some((Part::End, size))),
            Self::Ids { key } => Ok(value(bytes, key)?.map(|(id, size)| {
                push(runs, id);
                (Part::More, size)
            })),
        }
    }

    fn max_count(&self) -> u32 {
        match self {
            // One blank before each key, the command and the end of the line.
            Self::Ids { key } => ((MAX_GET_SIZE - "get\r\n".len()) / (key.len() + 1)) as u32,
            Self::Counter { .. } => u32::MAX,
        }
    }

    fn clean_up(&self) -> Option<String> {
        match self {
            Self::Counter { key } => Some(format!("delete {key}\r\n")),
            Self::Ids { .. } => None,
        }
    }
}

/// Reads `VALUE key flags length` and the ID below it.
fn value(bytes: &[u8], key: &str) -> Result<Option<(u64, usize)>, Fault> {
    let Some((head, start)) = line(bytes) else { return Ok(None) };
    let mut words = head.split(|&byte| byte == b' ');
    let is_value = words.next() == Some(b"VALUE") && words.next() == Some(key.as_bytes());
    let length = words.nth(1).and_then(number);
    let Some(length) = length.filter(|_| is_value) else {
        return Err(unreadable("a line that is no value of the key asked for"));
    };
    let Some((digits, size)) = line(&bytes[start..]) else { return Ok(None) };
    match number(digits).filter(|_| digits.len() as u64 == length) {
        Some(id) => Ok(Some((id, start + size))),
        None => Err(unreadable("a value that is no number of its length")),
    }
}
