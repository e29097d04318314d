//! memcached's text protocol. Snowbank and katsubushi answer each key of a `get` with a new ID.

use snowbank_id::layout::Run;

use super::{
    Awaited, Conversation, FrontEnd, Met, Part, Read, Refusal, Row, line, next_line, number, push,
    refusal_in, text, unreadable,
};
use crate::failure::Failure;
use crate::measure::Fault;

pub(super) static ROW: Row =
    Row { name: "memcached", protocol: "memcached's text protocol", authorize: None, meet };

/// The largest `get` that Snowbank accepts, in bytes.
const MAX_GET_SIZE: usize = 64 * 1024;

/// The key if neither the user nor INFO names a source.
const ANY_KEY: &str = "id";

/// The protocol, with the key that all requests name.
#[derive(Debug)]
pub(super) struct Memcached {
    pub(super) key: String,
}

/// Asks for an ID. Only Snowbank and katsubushi have a value for a key that was never set.
fn meet(conversation: &mut Conversation<'_>, source: Option<&str>) -> Result<Met, Failure> {
    let key = source.unwrap_or(ANY_KEY).to_owned();
    let answer = ask(conversation, &format!("get {key}"))?;
    if let Some(refusal) = refusal(&answer) {
        return Err(conversation.refused(&refusal));
    }
    if !answer.starts_with(b"VALUE ") {
        return Err(conversation.answered(&answer));
    }
    // Skips the line of digits and the line `END`.
    for _ in 0..2 {
        next_line(conversation)?;
    }
    let version = ask(conversation, "version")?;
    let version = version.strip_prefix(b"VERSION ").map(text);
    Ok(Met { front_end: Box::new(Memcached { key }), info: None, version })
}

/// Sends a command and returns the first line of its answer.
fn ask(conversation: &mut Conversation<'_>, command: &str) -> Result<Vec<u8>, Failure> {
    conversation.send(|out| out.extend_from_slice(format!("{command}\r\n").as_bytes()))?;
    next_line(conversation)
}

/// Returns the refusal in a line, if the line is a refusal.
fn refusal(line: &[u8]) -> Option<Refusal<'_>> {
    let words = line.strip_prefix(b"SERVER_ERROR ").or_else(|| line.strip_prefix(b"CLIENT_ERROR "));
    words.or_else(|| (line == b"ERROR").then_some(line)).map(refusal_in)
}

impl FrontEnd for Memcached {
    fn ask(&self, out: &mut Vec<u8>, _tag: u16, count: u32) {
        out.extend_from_slice(b"get");
        for _ in 0..count {
            out.push(b' ');
            out.extend_from_slice(self.key.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }

    fn read<'a>(&self, bytes: &'a [u8], _awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a> {
        let Some((first, size)) = line(bytes) else { return Ok(None) };
        if let Some(refusal) = refusal(first) {
            return Ok(Some((Part::Refused(refusal), size)));
        }
        if first == b"END" {
            return Ok(Some((Part::End, size)));
        }
        let Some((id, size)) = value(bytes, &self.key)? else { return Ok(None) };
        push(runs, id);
        Ok(Some((Part::More, size)))
    }

    fn max_count(&self) -> u32 {
        // A `get` consists of the command, a blank and the key for each ID, and the line's end.
        ((MAX_GET_SIZE - "get\r\n".len()) / (self.key.len() + 1)) as u32
    }
}

/// Reads the line `VALUE key flags length` and the ID on the line after it.
fn value(bytes: &[u8], key: &str) -> Result<Option<(u64, usize)>, Fault> {
    let Some((head, start)) = line(bytes) else { return Ok(None) };
    let mut words = head.split(|&byte| byte == b' ');
    let is_value = words.next() == Some(b"VALUE") && words.next() == Some(key.as_bytes());
    let length = words.nth(1).and_then(number);
    let Some(length) = length.filter(|_| is_value) else {
        return Err(unreadable("a line that is not a value of the key asked for"));
    };
    let Some((digits, size)) = line(&bytes[start..]) else { return Ok(None) };
    match number(digits).filter(|_| digits.len() as u64 == length) {
        Some(id) => Ok(Some((id, start + size))),
        None => Err(unreadable("a value that is not a number of the stated length")),
    }
}
