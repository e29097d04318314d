//! The protocols of a target: how a connection begins, how a request is written, and how a
//! reply is read.
//!
//! Each protocol is one file with a [`Row`]. [`ALL`] lists the protocols that have an option. A
//! protocol turns bytes into runs of IDs. The checks and the figures of these IDs are the same for
//! all protocols.

mod conversation;
mod echo;
mod http;
mod memcached;
mod native;
mod noeqd;
mod resp;

use std::borrow::Cow;
use std::fmt;

use snowbank_id::layout::{Run, append_run};
use snowbank_wire::{ErrorCode, Info, one_line};

use crate::failure::Failure;
use crate::measure::Fault;
use crate::target::{OTHER_ERROR, Token};
pub(crate) use conversation::{Access, Conversation};
pub(crate) use echo::ROW as ECHO;
pub(crate) use native::ROW as NATIVE;

/// The largest size of an incomplete reply in bytes, without the [`MAX_ID_SIZE`] bytes that each ID
/// asked for may add.
const MAX_REPLY_SIZE: usize = 64 * 1024;
const MAX_ID_SIZE: usize = 512;

/// All front ends besides Snowbank's own protocol, in the order of their options.
pub(crate) const ALL: [&Row; 4] = [&resp::ROW, &memcached::ROW, &http::ROW, &noeqd::ROW];

/// A protocol of a target.
#[derive(Debug)]
pub(crate) struct Row {
    /// The protocol's name in reports. For the protocols in [`ALL`], the options of the load test
    /// and of the daemon have this name, too.
    pub(crate) name: &'static str,
    /// The protocol's name in the error about a target that does not speak it.
    pub(crate) protocol: &'static str,
    /// Sends the token at the start of a connection. `None` for HTTP, which has the token in each
    /// request, and for protocols without a token.
    pub(crate) authorize: Option<Authorize>,
    /// Asks a target what it is. The `&str` names the source to draw from.
    pub(crate) meet: fn(&mut Conversation<'_>, Option<&str>) -> Result<Met, Failure>,
}

type Authorize = fn(&mut Conversation<'_>, &Token) -> Result<(), Failure>;

/// The oldest request in flight on a connection, which the next reply answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Awaited {
    /// The number of IDs that the request asked for.
    pub(crate) count: u32,
    /// The request's tag. Only Snowbank's own protocol has tags.
    pub(crate) tag: u16,
    /// The number of requests in flight, including this request.
    pub(crate) unanswered: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Some of the reply's IDs. More may follow.
    More,
    /// The end of the reply.
    End,
    Refused(Refusal<'a>),
}

/// A refusal: the error code, and the target's words. The words are converted to [`text`] only for
/// a report. A target may refuse every request of a flood, and each conversion costs time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal<'a> {
    pub(crate) code: u16,
    pub(crate) words: Cow<'a, [u8]>,
}

/// A part and its size in bytes; `None` while the part is incomplete.
type Read<'a> = Result<Option<(Part<'a>, usize)>, Fault>;

/// A protocol, with the key or source that its requests name.
pub(crate) trait FrontEnd: fmt::Debug + Send + Sync {
    /// Appends a request for this many IDs.
    fn ask(&self, out: &mut Vec<u8>, tag: u16, count: u32);

    /// Reads the next part of the awaited reply and appends its IDs to `runs`.
    ///
    /// # Errors
    /// The [`Fault`] of the target if the bytes are not a reply.
    fn read<'a>(&self, bytes: &'a [u8], awaited: Awaited, runs: &mut Vec<Run>) -> Read<'a>;

    /// Reports bytes that answer no request. Returns `Ok` if more bytes have to arrive first.
    /// `_unanswered` is the number of requests in flight.
    ///
    /// # Errors
    /// The [`Fault`] of the target.
    fn unasked(&self, _bytes: &[u8], _unanswered: usize) -> Result<(), Fault> {
        Err(unreadable("a reply without a request"))
    }

    /// Returns the most IDs that one request can ask for.
    fn max_count(&self) -> u32 {
        u32::MAX
    }

    /// Returns true if the IDs are the numbers of a plain counter, which only this process uses.
    fn is_counter(&self) -> bool {
        false
    }
}

/// The answers that a target gave before the load.
pub(crate) struct Met {
    pub(crate) front_end: Box<dyn FrontEnd>,
    /// The description of the target's sources, if the protocol has one.
    pub(crate) info: Option<Info>,
    pub(crate) version: Option<String>,
}

/// Refuses an incomplete reply that is already longer than any reply can be.
///
/// # Errors
/// [`Fault::Unreadable`].
pub(crate) fn check_size(size: usize, awaited: Awaited) -> Result<(), Fault> {
    let most = MAX_REPLY_SIZE + MAX_ID_SIZE * awaited.count as usize;
    if size > most { Err(unreadable("a reply that is too long")) } else { Ok(()) }
}

/// The bytes of a target are no reply of its protocol, for this reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl From<Unreadable> for Fault {
    fn from(Unreadable(reason): Unreadable) -> Self {
        Fault::Unreadable(reason)
    }
}

fn unreadable(reason: &str) -> Fault {
    Fault::Unreadable(reason.to_owned())
}

/// Appends an ID. An ID that continues the last run becomes part of that run.
fn push(runs: &mut Vec<Run>, id: u64) {
    append_run(runs, Run { first: id, count: 1, stride: 1 });
}

/// Returns the first line without its line end, and the size of the line with the line end.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn next_line(conversation: &mut Conversation<'_>) -> Result<Vec<u8>, Failure> {
    conversation.next(|bytes| Ok(line(bytes).map(|(line, size)| (line.to_vec(), size))))
}

/// Returns a target's words as one line without control characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(bytes))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.first().is_some_and(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Returns a refusal with these words. The first word may be the name of an error code of Snowbank.
fn refusal_in(words: &[u8]) -> Refusal<'_> {
    let first = words.split(|&byte| byte == b' ').next().unwrap_or_default();
    Refusal { code: code_of(&String::from_utf8_lossy(first)), words: Cow::Borrowed(words) }
}

/// Returns the number of an error code by its name, in upper or lower case.
fn code_of(name: &str) -> u16 {
    let name = match name {
        "NOAUTH" | "WRONGPASS" => "unauthorized",
        name => name,
    };
    let known = ErrorCode::ALL.into_iter().find(|code| code.name().eq_ignore_ascii_case(name));
    known.map_or(OTHER_ERROR, ErrorCode::to_u16)
}

#[cfg(test)]
mod tests;
