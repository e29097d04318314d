//! Numbers that JavaScript reads exactly, and the replies that have others.
//!
//! JavaScript and Lua read a number as a floating-point number. Above 2^53, they read two IDs as the
//! same number, and nobody notices. Redis' INCR can reply with a string instead. The increments of
//! memcached cannot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The greatest number up to which JavaScript reads every number exactly.
pub(super) const EXACT_MAX: u64 = 1 << 53;

/// The most libraries that the log names. Clients choose the names, so they are not without number.
const LIBRARIES_MAX: usize = 16;

/// The form of an ID in a reply to an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdForm {
    /// An integer, as Redis replies.
    Integer,
    /// A bulk string.
    String,
    /// An integer up to `EXACT_MAX`, else a bulk string.
    IntegerIfExact,
}

/// The connections that drew IDs by increments from a source that has IDs above `EXACT_MAX`. They
/// are counted by the form of these IDs at the first increment.
#[derive(Debug, Default)]
pub struct IncrConnections {
    integers: AtomicU64,
    strings: AtomicU64,
    /// The libraries of which the log says that they get strings. An empty name is that of all
    /// clients that announce none.
    told_strings: Mutex<Vec<String>>,
    /// True once the log says that a client may read integers inexactly.
    has_told_integers: AtomicBool,
}

impl IncrConnections {
    /// Returns the number of connections with integers.
    pub fn integers(&self) -> u64 {
        self.integers.load(Ordering::Relaxed)
    }

    /// Returns the number of connections with strings.
    pub fn strings(&self) -> u64 {
        self.strings.load(Ordering::Relaxed)
    }

    /// Counts a connection that gets integers. `is_unknown` is true if its client may read them
    /// inexactly.
    #[cold]
    pub(super) fn record_integers(&self, is_unknown: bool) {
        self.integers.fetch_add(1, Ordering::Relaxed);
        if is_unknown && !self.has_told_integers.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a client that is not known to read all 64 bits draws IDs above 2^53 as integers; JavaScript and Lua read two \
                 of them as one number: with such clients use get or mg instead of memcached's incr and ma, and for Redis \
                 let resp.replies be \"auto\""
            );
        }
    }

    /// Counts a connection that gets strings. `by_default` has the library that its client
    /// announced, or an empty name, if the default decided that.
    #[cold]
    pub(super) fn record_strings(&self, by_default: Option<&str>) {
        self.strings.fetch_add(1, Ordering::Relaxed);
        let Some(library) = by_default else { return };
        let mut told = self.told_strings.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() == LIBRARIES_MAX || told.iter().any(|told| told == library) {
            return;
        }
        told.push(library.to_owned());
        let announces = match library {
            "" => String::from("announce no library"),
            _ => format!("announce \"{library}\", which is not known to read all 64 bits"),
        };
        tracing::info!(
            "INCR replies with strings to clients that {announces}, because JavaScript and Lua would read two \
             integers as one; only if no client is written in these, set resp.replies = \"integer\""
        );
    }
}
