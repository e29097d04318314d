//! The wire format, version 1, both sides: bytes to requests and replies, and back. Pure: no I/O, no clock, no tokio.
//!
//! A connection carries frames, all integers little-endian:
//!
//! ```text
//!  0         4      5       6     8
//!  ┌─────────┬──────┬───────┬─────┬──────┐
//!  │ length  │ kind │ flags │ tag │ body │    length counts what follows it: body + 4
//!  └─────────┴──────┴───────┴─────┴──────┘
//! ```
//!
//! - [`request`]: what a client asks, parsed by the server and encoded by the client.
//! - [`reply`]: what the server answers, encoded by the server and parsed by the client.
//! - [`collect`]: the frames of one reply, put together and held to what was asked.
//! - [`info`]: the JSON of an INFO reply.
//! - [`code`]: the error codes.
//!
//! Both `parse` functions take the bytes at hand and give one frame or say that it is [`Parsed::Incomplete`]; they
//! keep no state, copy nothing and allocate nothing, so any split of a stream parses as the whole stream does.
//! `docs/protocol.md` says all of this to users, with test vectors.

pub mod code;
pub mod collect;
pub mod info;
pub mod reply;
pub mod request;

mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use code::ErrorCode;
pub use frame::{Fault, Parsed};
pub use info::Info;
pub use reply::Reply;
pub use request::{Next, Request, Wait};

/// The version of the protocol that this room speaks, as INFO reports it.
pub const VERSION: u32 = 1;

/// The TCP port that a daemon listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 7660;

/// Bytes of a frame before its body.
pub const HEADER_SIZE: usize = 8;

/// What a frame's length field may not go below: kind, flags and tag.
pub const MIN_LENGTH: u32 = 4;

/// What a request's length field may not exceed. The client controls it; the server buffers no more than this of an
/// unfinished frame.
pub const MAX_REQUEST_LENGTH: u32 = 1_024;

/// What a reply's length field may not exceed; larger replies are split by MORE.
pub const MAX_REPLY_LENGTH: u32 = 65_536;

/// Bytes of the longest request frame, its length field included.
pub const MAX_REQUEST_SIZE: usize = MAX_REQUEST_LENGTH as usize + 4;

/// Bytes of the longest reply frame, its length field included.
pub const MAX_REPLY_SIZE: usize = MAX_REPLY_LENGTH as usize + 4;

/// The most bytes that a PING may carry.
pub const MAX_PING_SIZE: usize = 64;

/// The most bytes that a token may have; it has at least one.
pub const MAX_TOKEN_SIZE: usize = 512;

const _: () = assert!(
    HEADER_SIZE + MAX_TOKEN_SIZE <= MAX_REQUEST_SIZE && HEADER_SIZE + MAX_PING_SIZE <= MAX_REQUEST_SIZE,
    "the longest body of every request fits a request frame"
);
