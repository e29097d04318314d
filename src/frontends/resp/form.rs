//! The form of the IDs in INCR's replies. With `resp.replies = "auto"`, the client's library
//! decides it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Replies;

/// The libraries for JavaScript, by the name that they announce. They read integers above 2^53
/// inexactly.
const JAVASCRIPT: [&str; 2] = ["ioredis", "node-redis"];

/// The form of an ID in a reply to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdForm {
    /// An integer, as Redis replies.
    Integer,
    /// A bulk string.
    String,
}

/// The library that a connection's client has announced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Announced {
    /// True if the client announced a library for JavaScript.
    is_javascript: bool,
    /// True once the connection is counted in [`IncrConnections`].
    is_counted: bool,
}

impl Announced {
    /// Sets the name of the client's library: a name, or `name(suffix)`.
    pub(super) fn set_library(&mut self, name: &[u8]) {
        let name = name.split(|&byte| byte == b'(').next().unwrap_or_default();
        self.is_javascript = JAVASCRIPT.iter().any(|known| name == known.as_bytes());
    }

    /// Returns the form of IDs for the client, and counts its connection once.
    #[inline]
    pub(super) fn form(&mut self, replies: Replies, connections: &IncrConnections) -> IdForm {
        let form = match replies {
            Replies::String => IdForm::String,
            Replies::Auto if self.is_javascript => IdForm::String,
            Replies::Auto | Replies::Integer => IdForm::Integer,
        };
        if !self.is_counted {
            self.is_counted = true;
            connections.of(form).fetch_add(1, Ordering::Relaxed);
        }
        form
    }
}

/// The connections that sent INCR or INCRBY, by the form of IDs at the first one.
#[derive(Debug, Default)]
pub struct IncrConnections {
    integers: AtomicU64,
    strings: AtomicU64,
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
}
