//! The form of the IDs in INCR's replies, which a client's library decides.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Replies;

/// The libraries for JavaScript, by the name that they announce. They read integers above 2^53
/// inexactly.
const JAVASCRIPT: [&str; 2] = ["ioredis", "node-redis"];

/// The form of an ID in a reply to INCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdForm {
    /// An integer, as Redis' own.
    Integer,
    /// A bulk string.
    String,
}

/// The library that a connection's client has announced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Announced {
    /// The library for JavaScript that the client announced.
    library: Option<&'static str>,
    /// The connection is in [`IncrConnections`].
    is_counted: bool,
}

impl Announced {
    /// Takes the name of the client's library: a name, or `name(suffix)`.
    pub(super) fn take_library(&mut self, name: &[u8]) {
        let name = name.split(|&byte| byte == b'(').next().unwrap_or_default();
        self.library = JAVASCRIPT.into_iter().find(|known| name == known.as_bytes());
    }

    /// Returns the form of IDs for the client, and counts its connection once.
    #[inline]
    pub(super) fn form(&mut self, replies: Replies, connections: &IncrConnections) -> IdForm {
        let form = match (replies, self.library) {
            (Replies::String, _) | (Replies::Auto, Some(_)) => IdForm::String,
            (Replies::Integer, _) | (Replies::Auto, None) => IdForm::Integer,
        };
        if !self.is_counted {
            self.is_counted = true;
            connections.count(form, replies, self.library);
        }
        form
    }
}

/// The connections that sent INCR, by the form of their first reply.
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

    /// Counts a connection. Logs the first of each form if the library decided it.
    #[cold]
    fn count(&self, form: IdForm, replies: Replies, library: Option<&str>) {
        let is_first = self.of(form).fetch_add(1, Ordering::Relaxed) == 0;
        if !is_first || replies != Replies::Auto {
            return;
        }
        match library {
            Some(library) => tracing::info!(
                "a client of {library} draws by INCR and gets strings, because JavaScript reads integers above 2^53 \
                 inexactly (resp.replies = \"auto\"); later ones are not logged"
            ),
            None => tracing::info!(
                "a client that announced no library for JavaScript draws by INCR and gets integers \
                 (resp.replies = \"auto\"); later ones are not logged"
            ),
        }
    }
}
