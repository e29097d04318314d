//! HTTP as a front-end: it turns the head of a request into what is asked, and IDs and refusals into a reply. The library
//! that parses the bytes is the server's: `server/shard_thread/http`.
//!
//! - `route`: paths and their parameters, Snowbank's own (`/v1/…`), katsubushi's and Leaf's. `query`: the parameters.
//! - `listing`: IDs as a body. `reply`: every other body, and refusals.
//! - `lookup`: answers about IDs and sources that draw nothing.

mod listing;
mod lookup;
mod query;
mod reply;
mod route;

pub(crate) use listing::Listing;
pub(crate) use reply::Reply;
pub(crate) use route::answer;

use super::{Ask, stranger};
use crate::config::Protocol;
use crate::numbering::Numbering;

/// The parts of a request's head that decide its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The query, still encoded. Empty, if there is none.
    pub(crate) query: &'a str,
    /// The media types that the client accepts. Empty, if it does not say.
    pub(crate) accept: &'a str,
    /// Why the client may not draw: it has sent no token, or a wrong one.
    pub(crate) denial: Option<&'a str>,
    /// The request has a body.
    pub(crate) has_body: bool,
}

/// The numbering of a source, by its index.
pub(crate) type NumberingOf<'a> = &'a dyn Fn(usize) -> &'a Numbering;

/// The answer to a request.
pub(crate) enum Answer {
    /// The request draws IDs.
    Draw(Ask, Box<Listing>),
    /// The reply is complete.
    Done(Reply),
}

/// Returns the bytes that refuse a connection, because its address or the daemon has all it may have.
pub(super) fn refuse_connection(out: &mut Vec<u8>, message: &str) {
    let body = reply::problem("too_busy", message, None);
    let size = body.len();
    out.extend_from_slice(
        format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
             retry-after: 1\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
}

/// Describes for the log a client that sent bytes that are no request. `first` are the first bytes of its connection.
pub(crate) fn describe_stranger(first: &[u8]) -> String {
    let is_known = stranger::is_known(first, Protocol::Http);
    stranger::describe(if is_known { first } else { &[] }, Protocol::Http)
}

#[cfg(test)]
mod tests;
