//! The registry of front ends: what the rest of the daemon knows of every protocol.

use super::{FrontEnd, http, memcached, native, noeqd, resp};
use crate::config::Protocol;

/// The parts of a front end that the rest of the daemon uses.
pub(crate) struct About {
    /// A client of the protocol, in messages: `a Redis client`.
    pub(crate) client: &'static str,
    /// A listener of the protocol, in messages: `a listener for clients of Redis`.
    pub(crate) listener: &'static str,
    /// The address that a client of the protocol should have, if it came to another listener.
    pub(crate) address: &'static str,
    /// Returns true if a client that sends these first bytes to a listener of the given protocol
    /// speaks this protocol.
    pub(crate) recognises: fn(&[u8], Protocol) -> bool,
    /// Encodes the refusal of a connection above the daemon's connection limit. Encodes nothing if
    /// the protocol has no message for refusals.
    pub(crate) refuse_connection: fn(&mut Vec<u8>, &str),
}

/// Work that needs the type of a front end.
pub(crate) trait WithFrontEnd {
    /// Does the work.
    fn call<F: FrontEnd + 'static>(self);
}

impl Protocol {
    /// Returns what the daemon knows of the protocol.
    pub(crate) fn about(self) -> &'static About {
        match self {
            Protocol::Native => &native::ABOUT,
            Protocol::Resp => &resp::ABOUT,
            Protocol::Memcached => &memcached::ABOUT,
            Protocol::Noeqd => &noeqd::ABOUT,
            Protocol::Http => &http::ABOUT,
        }
    }

    /// Does work with the type of the protocol's front end.
    pub(crate) fn with(self, work: impl WithFrontEnd) {
        match self {
            Protocol::Native => work.call::<native::Native>(),
            Protocol::Resp => work.call::<resp::Resp>(),
            Protocol::Memcached => work.call::<memcached::Memcached>(),
            Protocol::Noeqd => work.call::<noeqd::Noeqd>(),
            Protocol::Http => work.call::<http::Http>(),
        }
    }
}
