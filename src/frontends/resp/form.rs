//! The form of the IDs in INCR's replies. With `resp.replies = "auto"`, the client decides it.
//!
//! A library that reads integers as floating-point numbers, as those for JavaScript and Lua do, reads
//! two IDs as the same number, and nobody notices. A library that expects an integer and gets a
//! string fails at the first call. So integers are for clients that are known to read them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Replies;

/// The libraries that read all 64 bits of an integer, by the name that they announce.
const EXACT: [&str; 14] = [
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
    "glidepy",
    "glidejava",
    "glidego",
];

/// The form of an ID in a reply to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdForm {
    /// An integer, as Redis replies.
    Integer,
    /// A bulk string.
    String,
}

/// What a connection's client has shown of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Announced {
    /// True if the client announced a library that reads integers exactly.
    is_exact: bool,
    /// True if the client announced any other library.
    is_other: bool,
    /// True if the client has sent an inline command. No library does. A person or a script reads
    /// the digits as a text.
    is_inline: bool,
    /// True once the connection is counted in [`IncrConnections`].
    is_counted: bool,
}

impl Announced {
    /// Sets the name of the client's library: a name, or `name(suffix)`.
    pub(super) fn set_library(&mut self, name: &[u8]) {
        let name = name.split(|&byte| byte == b'(').next().unwrap_or_default();
        self.is_exact = EXACT.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        self.is_other = !self.is_exact && !name.is_empty();
    }

    /// Records that the client has sent an inline command.
    pub(super) fn set_inline(&mut self) {
        self.is_inline = true;
    }

    /// Returns the form of IDs for the client, and counts its connection once.
    #[inline]
    pub(super) fn form(&mut self, replies: Replies, connections: &IncrConnections) -> IdForm {
        let form = match replies {
            Replies::String => IdForm::String,
            Replies::Auto if !self.is_exact && (self.is_other || !self.is_inline) => IdForm::String,
            Replies::Auto | Replies::Integer => IdForm::Integer,
        };
        if !self.is_counted {
            self.is_counted = true;
            connections.record(form, replies == Replies::Auto && !self.is_other);
        }
        form
    }
}

/// The connections that sent INCR or INCRBY, by the form of IDs at the first one.
#[derive(Debug, Default)]
pub struct IncrConnections {
    integers: AtomicU64,
    strings: AtomicU64,
    /// True once the log says that a client without a name gets strings.
    is_told: AtomicBool,
}

impl IncrConnections {
    /// Returns the number of connections with this form.
    pub fn get(&self, form: IdForm) -> u64 {
        self.of(form).load(Ordering::Relaxed)
    }

    fn of(&self, form: IdForm) -> &AtomicU64 {
        match form {
            IdForm::Integer => &self.integers,
            IdForm::String => &self.strings,
        }
    }

    /// Counts a connection. `is_by_default` is true if nothing but the default decided its form.
    #[cold]
    fn record(&self, form: IdForm, is_by_default: bool) {
        self.of(form).fetch_add(1, Ordering::Relaxed);
        if form == IdForm::String && is_by_default && !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "INCR replies with strings to clients that announce no library, because JavaScript would read integers \
                 inexactly; if your clients read 64-bit integers, set resp.replies = \"integer\""
            );
        }
    }
}
