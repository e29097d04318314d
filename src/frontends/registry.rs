//! The registry of front ends: what the rest of the daemon knows of every protocol.

use super::{About, FrontEnd, http, memcached, native, noeqd, resp};
use crate::config::Protocol;

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
