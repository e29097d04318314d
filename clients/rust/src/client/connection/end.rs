//! The end of a connection, and its reason in words.

use crate::client::error::Error;

/// The reason why a connection ended.
#[derive(Debug)]
pub(in crate::client) enum End {
    /// The application has dropped every handle.
    Abandoned,
    /// The endpoint failed, or serves no client for now.
    Failed(Error),
    /// The daemon has no IDs in time for one call, which asks another endpoint. Prefer other
    /// endpoints for the time that the daemon named, and let this daemon answer the calls in flight
    /// ([`finish`](super::Connection::finish)).
    Exhausted(Error),
}

pub(super) const CLOSED: &str = "closed by the daemon";

pub(super) fn wrong_tag(found: u16, expected: u16) -> String {
    format!("a reply with tag {found} where {expected} is due")
}

/// Returns the reason that TLS or the operating system gave, without Rust's "(os error 111)".
pub(super) fn describe(error: &std::io::Error) -> String {
    #[cfg(feature = "tls")]
    if let Some(text) = crate::tls::explain(error) {
        return text;
    }
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
