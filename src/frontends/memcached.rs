//! The front end for memcached's protocol, as katsubushi speaks it. `get orders` or `get orders:1`
//! draws an ID from the source `orders`. A `get` of any other key draws from the source that
//! `any_key` names or, if that is not set, from the first source.
//!
//! - `text`: commands in lines. `meta`: the meta commands, which are lines too. `binary`: commands in
//!   packets. One connection may mix all of them.
//! - `keys`: the keys of a `get` that are not answered yet. `skip`: values that clients store.
//!
//! The protocol has no field for a token. So the daemon refuses a configuration that requires
//! tokens and has this front end, unless the front end is exempt.

mod binary;
mod keys;
mod meta;
mod skip;
mod text;

use self::keys::Keys;
use self::skip::Skip;
use super::facts::Increment;
use super::refusals::{Words, increment_out_of_range, only_by_one};
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, Gets, Step};
use crate::config::Protocol;
use snowbank_wire::{ErrorCode, MAX_REPLY_SIZE};

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a memcached client",
    listener: "a listener for clients of memcached",
    address: "an address of [memcached], or of the server that it looks for",
    // On a listener for Redis, `get orders` is a command.
    recognises: |bytes, listener| match bytes {
        [b'g', b'e', b't', b' ', ..] => listener != Protocol::Resp,
        _ => matches!(bytes, [b'g', b'e', b't', b's', ..] | [binary::REQUEST, ..]),
    },
    refuse_connection: |out, message| text::server_error(out, format_args!("too_busy {message}")),
};

/// The version of memcached that the daemon reports. libmemcached treats a version that begins with
/// 0 as a failure.
const MEMCACHED_VERSION: &str = "1.6.0";

/// The size of the longest key, as in memcached.
const KEY_BYTES_MAX: usize = 250;

/// The most IDs in one frame of a long reply. Such a frame is no longer than a frame of Snowbank's
/// own protocol. This limit bounds the bytes that wait for a slow reader.
const IDS_PER_FRAME: u64 = (MAX_REPLY_SIZE / (KEY_BYTES_MAX + text::VALUE_BYTES_MAX)) as u64;

/// The form of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Lines: one value for each key of a `get`.
    #[default]
    Get,
    /// The same for each key of a `gets`, with an ID's cas number: the ID itself.
    Gets,
    /// A line with the number that an `incr` has reached.
    Incr,
    /// The line of an `mg`, and perhaps the value.
    Meta,
    /// The same of an `ma`.
    MetaIncr,
    /// A packet with one value.
    Binary(binary::Echo),
    /// A packet with the number that an increment has reached.
    BinaryIncr(binary::Echo),
}

impl Form {
    fn is_increment(self) -> bool {
        matches!(self, Form::Incr | Form::MetaIncr | Form::BinaryIncr(_))
    }
}

/// The state of the protocol on one connection.
#[derive(Debug, Default)]
pub struct Memcached {
    /// The keys that have no IDs yet. Behind the key of a meta command stand its flags.
    keys: Keys,
    /// The form of the reply for these keys.
    form: Form,
    /// The rest of a value that a client wanted to store.
    skip: Skip,
    gets: Gets,
    /// True once the connection is counted, because an increment drew IDs that JavaScript reads
    /// inexactly.
    is_counted: bool,
}

impl Memcached {
    /// Keeps these keys, which are to be answered in this form, and returns the step that draws IDs
    /// for them. `keys` has at least one key, and blanks between keys.
    fn draw(&mut self, keys: &[u8], form: Form, consumed: usize, facts: &Facts) -> Step<Form> {
        self.keys.set(keys);
        self.form = form;
        self.next_ids(consumed, facts)
    }

    /// Keeps what the reply to an increment repeats: the key, and behind it perhaps a meta command's
    /// flags.
    fn begin_increment(&mut self, operands: &[u8], form: Form) {
        self.keys.set(operands);
        self.form = form;
    }

    /// Takes an increment of this key by `delta`, whose reply is begun.
    fn increment(
        &mut self,
        key: &[u8],
        delta: u64,
        consumed: usize,
        conditions: &Conditions<'_>,
        out: &mut Vec<u8>,
    ) -> Step<Form> {
        let facts = conditions.facts;
        let form = self.form;
        let source = source_of(key, facts);
        let by = i64::try_from(delta).unwrap_or(i64::MAX);
        let increment = facts.increment(source, by);
        let draws = matches!(increment, Increment::Draw(_) | Increment::Read);
        if draws && !self.is_counted && !conditions.is_exact(source) {
            self.is_counted = true;
            // No client says which library it is.
            conditions.incr_connections.record_integers(true);
        }
        let reason = match increment {
            Increment::Draw(count) => {
                return Step::Ids { consumed, ask: Ask::new(source, count), form };
            }
            Increment::Read => {
                let error = match conditions.last_number(source) {
                    Ok(last) => {
                        self.reached(out, form, last.number);
                        None
                    }
                    Err(words) => {
                        self.refuse(out, form, &words);
                        Some(words.code)
                    }
                };
                return Step::Answered { consumed, error };
            }
            Increment::OnlyByOne => only_by_one(&facts.sources[source]),
            Increment::OutOfRange => increment_out_of_range(delta, facts.max_count),
        };
        self.keys.clear();
        match form {
            Form::BinaryIncr(echo) => binary::bad_arguments(out, echo, &format!("incr {reason}")),
            Form::MetaIncr => text::client_error(out, format_args!("ma {reason}")),
            _ => text::client_error(out, format_args!("incr {reason}")),
        }
        Step::Answered { consumed, error: Some(ErrorCode::BadCount) }
    }

    /// Encodes the number that an increment has reached.
    fn reached(&mut self, out: &mut Vec<u8>, form: Form, number: u64) {
        match form {
            Form::BinaryIncr(echo) => binary::number(out, echo, number),
            Form::MetaIncr => meta::value(out, &mut self.keys, number),
            _ => text::number(out, number),
        }
        self.keys.clear();
    }

    /// Returns the step that draws IDs for the next keys, as far as they draw from the same source.
    /// The caller makes sure that there is a key.
    fn next_ids(&self, consumed: usize, facts: &Facts) -> Step<Form> {
        let mut sources = self.keys.iter().map(|key| source_of(key, facts));
        let Some(source) = sources.next() else { return Step::Answered { consumed, error: None } };
        let count = 1 + sources.take_while(|other| *other == source).count() as u64;
        Step::Ids { consumed, ask: Ask::new(source, count), form: self.form }
    }
}

/// Returns the source that the key, or its part before a colon, names. If there is none, returns
/// the source of `any_key` or, if that is not set, the first source.
fn source_of(key: &[u8], facts: &Facts) -> usize {
    facts.source_of_key(key).unwrap_or(facts.first)
}

impl FrontEnd for Memcached {
    const PROTOCOL: Protocol = Protocol::Memcached;

    type Form = Form;

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        self.gets.report(conditions);
        if self.has_kept_requests() {
            return self.next_ids(0, conditions.facts);
        }
        if !self.skip.is_over() && !bytes.is_empty() {
            return Step::Skipped { consumed: self.skip.take(bytes) };
        }
        match bytes.first() {
            None => Step::Incomplete,
            Some(&binary::REQUEST) => self.packet(bytes, conditions, out),
            Some(_) => self.line(bytes, conditions, out),
        }
    }

    fn has_kept_requests(&self) -> bool {
        !self.keys.is_empty()
    }

    fn kept_bytes(&self) -> usize {
        self.keys.kept_bytes()
    }

    fn unfinished(&self) -> u64 {
        self.skip.unfinished()
    }

    fn demand(&self, bytes: &[u8], _source: usize, _facts: &Facts) -> u64 {
        text::demand(bytes)
    }

    #[inline]
    fn frame_limit(&self, form: Form, _needs_list: bool) -> FrameLimit {
        let ids = if form.is_increment() { u64::MAX } else { IDS_PER_FRAME };
        FrameLimit { runs: usize::MAX, ids }
    }

    #[inline]
    fn encode_ids(&mut self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        match form {
            Form::Get | Form::Gets => {
                for id in ids.ids(rng) {
                    text::value(out, self.keys.pop(), id, form == Form::Gets);
                }
                if self.keys.is_empty() {
                    text::end(out);
                }
            }
            Form::Binary(echo) => {
                ids.ids(rng).for_each(|id| binary::value(out, echo, self.keys.pop(), id));
            }
            Form::Meta => ids.ids(rng).for_each(|id| meta::value(out, &mut self.keys, id)),
            // An increment by several claims consecutive numbers, so the last is the counter's value.
            Form::Incr | Form::MetaIncr | Form::BinaryIncr(_) => {
                ids.ids(rng).last().into_iter().for_each(|id| self.reached(out, form, id))
            }
        }
        if !form.is_increment() {
            self.gets.record(ids);
        }
        self.keys.shrink();
    }

    fn farewell(&mut self, out: &mut Vec<u8>, words: &Words) {
        text::server_error(out, words.line(words.code.name()));
    }

    fn refuse(&mut self, out: &mut Vec<u8>, form: Form, words: &Words) {
        self.keys.clear();
        self.keys.shrink();
        self.gets.misses += u64::from(!form.is_increment());
        let line = words.line(words.code.name());
        match form {
            Form::Binary(echo) | Form::BinaryIncr(echo) => binary::refusal(out, echo, words, &line),
            _ => text::server_error(out, &line),
        }
    }
}
