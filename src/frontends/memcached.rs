//! The front end for memcached's protocol, as katsubushi speaks it. `get orders` or `get orders:1`
//! draws an ID from the source `orders`. A `get` of any other key draws from the source that
//! `any_key` names or, if that is not set, from the first source.
//!
//! - `text`: commands in lines. `binary`: commands in packets. One connection may mix both.
//! - `keys`: the keys of a `get` that are not answered yet.
//!
//! The protocol has no field for a token. So the daemon refuses a configuration that requires
//! tokens and has this front end, unless the front end is exempt.

mod binary;
mod keys;
mod text;

use self::keys::Keys;
use super::words::Words;
use super::{About, Ask, Conditions, Facts, FrameIds, FrameLimit, FrontEnd, Step, TokenExemption};
use crate::config::Protocol;
use crate::config::setting::{Change::Reload, Change::Restart, LISTENERS_OPENED, Section::Table};
use snowbank_wire::MAX_REPLY_SIZE;
use snowbank_wire::address::Address;

/// The facts that the daemon needs about this front end.
pub(super) const ABOUT: About = About {
    client: "a memcached client",
    listener: "a listener for clients of memcached",
    address: "an address of [memcached], or of the server that it looks for",
    option_help: Some(
        "Listen for clients of memcached and katsubushi (addresses as for Redis); by default nowhere",
    ),
    token_exemption: Some(TokenExemption {
        line: "memcached.tokens = false",
        is_set: |settings| !settings.memcached.tokens,
    }),
    recognises: |bytes, _| matches!(bytes, [b'g', b'e', b't', b' ' | b's', ..] | [binary::REQUEST, ..]),
    refuse_connection: |out, message| text::server_error(out, &format!("too_busy {message}")),
};

settings! {
    /// The front end for clients of memcached.
    pub struct MemcachedSettings at |settings, _index| (settings.front_ends.memcached) {
        /// The addresses where clients of memcached and katsubushi connect, as in listen: each key
        /// of a get draws an ID, from the source of that name, or of the name before a colon, or
        /// else from any_key, or the first. Empty: none.
        listen: Vec<Address> = r#""""# in Table("memcached"), Restart(LISTENERS_OPENED), |value| value.front_end_addresses();

        /// Requires tokens here too if auth.token_file is set. The protocol cannot carry a token,
        /// so the daemon then refuses to start with this front end. With false it starts, and
        /// everyone who can connect draws IDs.
        tokens: bool = "true" in Table("memcached"), Reload, |value| value.boolean();
    }
}

/// The version of memcached that the daemon reports. libmemcached treats a version that begins with
/// 0 as a failure.
const MEMCACHED_VERSION: &str = "1.6.0";

/// The size of the longest key, as in memcached.
const KEY_BYTES_MAX: usize = 250;

/// The most IDs in one frame of a long reply. Such a frame is no longer than a frame of Snowbank's
/// own protocol. This limit bounds the bytes that wait for a slow reader.
const IDS_PER_FRAME: u64 = (MAX_REPLY_SIZE / (KEY_BYTES_MAX + text::VALUE_BYTES_MAX)) as u64;

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines: one value for each key of a `get`.
    Text,
    /// A packet with one value.
    Binary(binary::Echo),
}

/// The state of the protocol on one connection.
#[derive(Debug, Default)]
pub struct Memcached {
    /// The keys that have no IDs yet.
    keys: Keys,
}

impl Memcached {
    /// Returns the step that draws IDs for the next keys, as far as they draw from the same source.
    /// The caller makes sure that there is a key.
    fn next_ids(&self, consumed: usize, form: Form, facts: &Facts) -> Step<Form> {
        let mut sources = self.keys.iter().map(|key| source_of(key, facts));
        let Some(source) = sources.next() else { return Step::Answered { consumed, error: None } };
        let count = 1 + sources.take_while(|other| *other == source).count() as u64;
        Step::Ids { consumed, ask: Ask::new(source, count), form }
    }
}

/// Returns the source that the key, or its part before a colon, names. If there is none, returns
/// the source of `any_key` or, if that is not set, the first source. The colon is for clients that
/// return a dictionary: they need a different key for each ID of a source. No source's name has a
/// colon.
fn source_of(key: &[u8], facts: &Facts) -> usize {
    let name = key.split(|&byte| byte == b':').next().unwrap_or_default();
    facts.source_of_key(name).unwrap_or_default()
}

impl FrontEnd for Memcached {
    const PROTOCOL: Protocol = Protocol::Memcached;

    type Form = Form;

    #[inline]
    fn step(&mut self, bytes: &[u8], conditions: &mut Conditions<'_>, out: &mut Vec<u8>) -> Step<Form> {
        if self.has_kept_requests() {
            return self.next_ids(0, Form::Text, conditions.facts);
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

    fn demand(&self, bytes: &[u8], _source: usize, _facts: &Facts) -> u64 {
        text::demand(bytes)
    }

    #[inline]
    fn frame_limit(&self, _form: Form, _needs_list: bool) -> FrameLimit {
        FrameLimit { runs: usize::MAX, ids: IDS_PER_FRAME }
    }

    #[inline]
    fn encode_ids(&mut self, out: &mut Vec<u8>, form: Form, ids: &FrameIds<'_>, rng: &mut fastrand::Rng) {
        for id in ids.ids(rng) {
            let key = self.keys.pop();
            match form {
                Form::Text => text::value(out, key, id),
                Form::Binary(echo) => binary::value(out, echo, key, id),
            }
        }
        if form == Form::Text && self.keys.is_empty() {
            text::end(out);
        }
        self.keys.shrink();
    }

    fn farewell(&mut self, out: &mut Vec<u8>, words: &Words) {
        text::server_error(out, &words.line(words.code.name()));
    }

    fn refuse(&mut self, out: &mut Vec<u8>, form: Form, words: &Words) {
        self.keys.clear();
        self.keys.shrink();
        let line = words.line(words.code.name());
        match form {
            Form::Text => text::server_error(out, &line),
            Form::Binary(echo) => binary::refusal(out, echo, words, &line),
        }
    }
}
