//! The form of the IDs in INCR's replies. With `resp.replies = "auto"`, the client decides it.
//!
//! A library may read integers as floating-point numbers, as those for JavaScript and Lua do. Then
//! it reads two IDs as the same number, and nobody notices. A library that expects an integer and
//! gets a string fails at the first call. So integers are for clients that are known to read them,
//! and for numbers that all clients read exactly.

use crate::config::Replies;
use crate::frontends::{Conditions, IdForm};

/// The libraries that read all 64 bits of an integer, by the name that they announce.
const EXACT: [&str; 15] = [
    "redis-py",
    "valkey-py",
    "jedis",
    "lettuce",
    "go-redis",
    "rueidis",
    "valkey",
    "redis-rs",
    "se.redis",
    "predis",
    "redis-client",
    "coredis",
    "glidepy",
    "glidejava",
    "glidego",
];

/// The most bytes of a library's name that are kept, and written to the log.
const NAME_BYTES_MAX: usize = 32;

/// What a connection's client has shown of itself.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// True if the client announced a library that reads integers exactly.
    is_exact: bool,
    /// The name of any other library that the client announced.
    other: Option<Box<str>>,
    /// True if the last command, which may be an EXEC, was inline. No library sends INCR so. A person or a script
    /// reads the digits as a text.
    is_inline: bool,
    /// True once the connection is counted.
    is_counted: bool,
}

impl Announced {
    /// Sets the name of the client's library: a name, or `name(suffix)`.
    pub(super) fn set_library(&mut self, name: &[u8]) {
        let name = name.split(|&byte| byte == b'(').next().unwrap_or_default();
        self.is_exact = EXACT.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        let kept = &name[..name.len().min(NAME_BYTES_MAX)];
        self.other = (!self.is_exact && !name.is_empty()).then(|| kept.escape_ascii().to_string().into());
    }

    /// Records whether the command that follows is inline. A health check may be, on the same
    /// connection as a library's requests.
    pub(super) fn set_inline(&mut self, is_inline: bool) {
        self.is_inline = is_inline;
    }

    /// Returns the form of the IDs of a source for the client. Counts the client's connection once,
    /// when it draws from a source that may have IDs that are not exact.
    #[inline]
    pub(super) fn form(&mut self, source: usize, conditions: &Conditions<'_>) -> IdForm {
        let is_string = match conditions.facts.replies {
            Replies::String => true,
            Replies::Auto => !self.is_exact && (self.other.is_some() || !self.is_inline),
            Replies::Integer => false,
        };
        if !self.is_counted {
            self.count(is_string, source, conditions);
        }
        match is_string {
            true if conditions.facts.replies == Replies::Auto && conditions.facts.has_exact_ids(source) => {
                IdForm::IntegerIfExact
            }
            true => IdForm::String,
            false => IdForm::Integer,
        }
    }

    #[cold]
    fn count(&mut self, is_string: bool, source: usize, conditions: &Conditions<'_>) {
        if conditions.is_exact(source) {
            return;
        }
        self.is_counted = true;
        let connections = conditions.incr_connections;
        if is_string {
            let library = self.other.as_deref().unwrap_or_default();
            let is_by_default = conditions.facts.replies == Replies::Auto;
            connections.record_strings(is_by_default.then_some(library));
        } else {
            connections.record_integers(self.other.is_some());
        }
    }
}
