//! The wire format, version 1, for both sides: bytes to requests and replies, and back. This module
//! does no I/O.
//!
//! A connection carries frames. All integers are little-endian:
//!
//! ```text
//!  0         4      5       6     8
//!  ┌─────────┬──────┬───────┬─────┬──────┐
//!  │ length  │ kind │ flags │ tag │ body │    length counts the bytes behind it: body + 4
//!  └─────────┴──────┴───────┴─────┴──────┘
//! ```
//!
//! - [`request`]: requests, encoded by the client and parsed by the server.
//! - [`reply`]: replies, encoded by the server and parsed by the client.
//! - [`collect`]: joins the frames of one reply, and checks them against the request.
//! - [`info`]: the JSON of an INFO reply.
//! - [`code`]: the error codes.
//! - [`one_line`]: makes text of other programs safe to show.
//!
//! Both `parse` functions take the bytes that have arrived, and return a [`Parsed`]. They keep no
//! state, copy nothing and allocate nothing. So a stream parses in the same way however it is
//! split. `docs/protocol.md` describes the format for users, with test vectors.

pub mod code;
pub mod collect;
pub mod info;
pub mod reply;
pub mod request;

mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod one_line;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use code::ErrorCode;
pub use frame::{Fault, Parsed, Unencodable};
pub use info::Info;
pub use one_line::one_line;
pub use reply::Reply;
pub use request::{Next, Request, Wait};

/// The version of the protocol, as INFO reports it.
pub const VERSION: u32 = 1;

/// The TCP port that a daemon listens on by default.
pub const DEFAULT_PORT: u16 = 7660;

/// The size of a frame's length, kind, flags and tag together, in bytes.
pub const HEADER_SIZE: usize = 8;

/// The smallest value of a frame's length field: kind, flags and tag.
pub const MIN_LENGTH: u32 = 4;

/// The largest value of a request's length field. The client controls that field. So this limit
/// also bounds the bytes that the server buffers of an unfinished frame.
pub const MAX_REQUEST_LENGTH: u32 = 1_024;

/// The largest value of a reply's length field. A larger reply is split into several frames.
pub const MAX_REPLY_LENGTH: u32 = 65_536;

/// The size of the longest request frame in bytes, with its length field.
pub const MAX_REQUEST_SIZE: usize = MAX_REQUEST_LENGTH as usize + 4;

/// The size of the longest reply frame in bytes, with its length field.
pub const MAX_REPLY_SIZE: usize = MAX_REPLY_LENGTH as usize + 4;

/// The most bytes of a PING's body.
pub const MAX_PING_SIZE: usize = 64;

/// The most bytes of a token. A token has at least one byte.
pub const MAX_TOKEN_SIZE: usize = 512;

const _: () = assert!(
    HEADER_SIZE + MAX_TOKEN_SIZE <= MAX_REQUEST_SIZE && HEADER_SIZE + MAX_PING_SIZE <= MAX_REQUEST_SIZE,
    "the longest body of every request fits a request frame"
);
