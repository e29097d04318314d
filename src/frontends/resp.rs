//! The front end for Redis' protocol, versions 2 and 3. `INCR orders` draws an ID from the source
//! `orders`.
//!
//! - `parse`: requests. `encode`: replies.
//! - `commands`: the commands that need no IDs. `ids`: the commands that ask for IDs.
//! - `form`: decides whether IDs are integers or strings. `transaction`: the requests between MULTI
//!   and EXEC.

mod commands;
mod encode;
mod error_reply;
mod form;
mod ids;
mod parse;
mod transaction;

use self::encode::Version;
use self::form::Announced;
use self::parse::{Arguments, Miss};
use self::transaction::Transaction;
use super::refusals::Words;
use super::{
    About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, IdForm, LOOK_AHEAD, Step, foreign,
};
use crate::config::Protocol;
use snowbank_wire::{ErrorCode, MAX_REPLY_SIZE};

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a Redis client",
    listener: "a listener for clients of Redis",
    address: "an address of [resp], or of the Redis server that it looks for",
    recognises: |bytes, _| matches!(bytes, [b'*', b'0'..=b'9', ..]),
    refuse_connection: |out, _| encode::error(out, "ERR max number of clients reached"),
};

/// The most bytes of one ID in a list: 19 digits, their length and two line ends.
const ID_BYTES_MAX: usize = 26;

/// The most IDs in one frame of a list. A frame with its header is no longer than a frame of
/// Snowbank's own protocol. This limit bounds the bytes that wait for a slow reader.
const IDS_PER_FRAME: u64 = ((MAX_REPLY_SIZE - ID_BYTES_MAX) / ID_BYTES_MAX) as u64;

/// The form of IDs in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The only ID, in the reply to INCR or to INCRBY with 1.
    One(IdForm),
    /// The last of several IDs, in the reply to INCRBY.
    Last(IdForm),
    /// An array of all IDs.
    List,
}

/// The state of the protocol on one connection.
#[derive(Debug, Default)]
pub struct Resp {
    version: Version,
    /// The size of the last request in bytes. Most pipelined requests equal the one before them.
    last_size: u32,
    /// The connection's number, once the client has asked for it.
    id: Option<u64>,
    /// The name that the client gave to the connection.
    name: Option<Box<[u8]>>,
    /// The client's library, which decides the form of INCR's replies.
    announced: Announced,
    /// True once the client's token was refused.
    is_denied: bool,
    /// The requests since MULTI.
    transaction: Option<Box<Transaction>>,
    /// The requests of an EXEC, until all of them are answered.
    executing: Option<Box<Transaction>>,
    /// The bytes of all requests that EXECs have answered so far. A repeated request counts each
    /// time.
    executed_bytes: usize,
}

/// The outcome of one request.
enum Reply {
    /// The reply is encoded. Has the error code, if the reply is an error.
    Encoded(Option<ErrorCode>),
    /// The request asks for IDs.
    Ids(Ask, Form),
    /// The refusal of a wrong token is encoded.
    Denied,
    /// The reply is encoded, and the connection closes after it. Has the error code, if the reply
    /// is an error.
    Last(Option<ErrorCode>),
}

impl Resp {
    /// Starts a new connection with this number.
    #[cfg(any(test, fuzzing))]
    pub(super) fn numbered(id: u64) -> Self {
        Resp { id: Some(id), ..Resp::default() }
    }
}

impl FrontEnd for Resp {
    const PROTOCOL: Protocol = Protocol::Resp;

    type Form = Form;

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        if self.executing.is_some() {
            return self.execute(conditions, out);
        }
        if self.is_denied {
            return self.answer_denied(bytes, conditions, out);
        }
        self.take(bytes, conditions, out)
    }

    fn kept_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |queued| queued.kept_bytes());
        queued + self.executing.as_ref().map_or(0, |executing| executing.kept_bytes())
    }

    fn has_kept_requests(&self) -> bool {
        self.executing.is_some()
    }

    /// Returns the number of bytes in the requests that EXECs have answered. Answering them costs
    /// as much as answering others.
    fn extra_cost_bytes(&self) -> usize {
        self.executed_bytes
    }

    fn demand(&self, bytes: &[u8], _source: usize, _facts: &Facts) -> u64 {
        let size = self.last_size as usize;
        if size == 0 || bytes.len() < size {
            return 0;
        }
        1 + count_equal(bytes, size, LOOK_AHEAD - 1) as u64
    }

    #[inline]
    fn alike(&self, bytes: &[u8], size: usize, form: Form, most: impl FnOnce() -> usize) -> usize {
        // A request of an EXEC has the size 0, because it is not in `bytes`.
        if !matches!(form, Form::One(_)) || size == 0 {
            return 0;
        }
        // The replies to `LOOK_AHEAD` requests fit the smallest frame.
        count_equal(bytes, size, most().min(LOOK_AHEAD))
    }

    #[inline]
    fn frame_limit(&self, form: Form, _needs_list: bool) -> FrameLimit {
        let ids = if form == Form::List { IDS_PER_FRAME } else { u64::MAX };
        FrameLimit { runs: usize::MAX, ids }
    }

    #[inline]
    fn encode_ids(&mut self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        match form {
            Form::One(form) => encode::replies(out, form, ids.ids(rng)),
            Form::Last(form) => encode::replies(out, form, ids.ids(rng).last().into_iter()),
            Form::List => {
                if let Some(count) = ids.reply_count {
                    encode::array(out, count);
                }
                encode::bulk_numbers(out, ids.ids(rng));
            }
        }
    }

    fn farewell(&mut self, out: &mut Vec<u8>, words: &Words) {
        ids::refuse(out, words);
    }

    fn refuse(&mut self, out: &mut Vec<u8>, _form: Form, words: &Words) {
        ids::refuse(out, words);
    }
}

/// Returns how many messages, directly behind the first message in `bytes`, equal the first: at
/// most `most`. `size` is the size of the first message, and not 0.
fn count_equal(bytes: &[u8], size: usize, most: usize) -> usize {
    let (message, later) = bytes.split_at(size);
    let most = most.min(later.len() / size);
    // All of them equal the first if each byte equals the byte one message earlier.
    if later[..most * size] == bytes[..most * size] {
        return most;
    }
    later.chunks_exact(size).take_while(|next| *next == message).count()
}

/// Returns the step of a reply to a request of this size.
#[inline]
fn step_of(reply: Reply, consumed: usize) -> Step<Form> {
    match reply {
        Reply::Ids(ask, form) => Step::Ids { consumed, ask, form },
        Reply::Encoded(error) => Step::Answered { consumed, error },
        Reply::Denied => Step::Denied { consumed },
        Reply::Last(error) => Step::Close { error },
    }
}

/// Refuses bytes that are no request, and closes the connection.
#[cold]
fn reject(conditions: &mut Conditions<'_>, out: &mut Vec<u8>, reason: String) -> Step<Form> {
    encode::error(out, &format!("ERR {reason}"));
    conditions.rejection = Some(reason);
    Step::Close { error: Some(ErrorCode::Malformed) }
}

impl Resp {
    /// Takes the request at the start of `bytes`.
    #[inline]
    fn take(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        if parse::is_inline(bytes) {
            return self.inline(bytes, conditions, out);
        }
        let mut arguments = Arguments::NONE;
        match parse::parse(bytes, &mut arguments) {
            Ok(consumed) => {
                self.announced.set_inline(false);
                self.request(&arguments, &bytes[..consumed], consumed, conditions, out)
            }
            Err(miss) => Resp::missed(miss, bytes, conditions, out),
        }
    }

    /// Takes the inline command at the start of `bytes`.
    #[cold]
    fn inline(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        let (consumed, array) = match parse::inline(bytes) {
            Ok(parsed) => parsed,
            Err(miss) => return Resp::missed(miss, bytes, conditions, out),
        };
        if commands::is_foreign(&bytes[..consumed]) {
            return reject(conditions, out, foreign::describe(&bytes[..consumed], Protocol::Resp));
        }
        let mut arguments = Arguments::NONE;
        if parse::array(&array, &mut arguments).is_err() {
            unreachable!("an array of words is a request");
        }
        self.announced.set_inline(true);
        self.request(&arguments, &array, consumed, conditions, out)
    }

    /// Takes a request, which the client sent in `consumed` bytes.
    #[inline]
    fn request(
        &mut self,
        arguments: &Arguments<'_>,
        array: &[u8],
        consumed: usize,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        self.last_size = consumed as u32;
        let reply = match self.transaction {
            None => self.answer(arguments, conditions, out),
            Some(_) => self.queue(arguments, array, conditions, out),
        };
        step_of(reply, consumed)
    }

    /// Returns the step if no whole request is at the start of `bytes`.
    fn missed(miss: Miss, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        let reason = match miss {
            Miss::Incomplete => return Step::Incomplete,
            Miss::NoText => foreign::describe(&bytes[..parse::FOREIGN_BYTES], Protocol::Resp),
            Miss::NoBulkString(found) => {
                format!("Protocol error: expected '$', got '{}'", char::from(found).escape_default())
            }
            Miss::Fault(reason) => format!("Protocol error: {reason}"),
        };
        reject(conditions, out, reason)
    }

    /// Answers a request that is not queued in a transaction.
    #[inline]
    fn answer(
        &mut self,
        arguments: &Arguments<'_>,
        conditions: &mut Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Reply {
        // Nearly all requests are an INCR, so it goes past the table of commands.
        if let [name, key] = arguments.get()
            && conditions.session.is_authorized()
            && name.eq_ignore_ascii_case(b"incr")
            && !conditions.draining
        {
            let reply = ids::incr(key, conditions, &mut self.announced);
            return reply.unwrap_or_else(|refused| refused.encode(out));
        }
        self.answer_any(arguments, conditions, out)
    }
}
