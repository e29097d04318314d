//! The wire protocol of Snowbank, version 1, for both sides: bytes to requests and replies, and
//! back; and the addresses of daemons. This crate does no I/O.
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
//! - [`code`]: what an ERROR says: its code, and the action that it asks of the client.
//! - [`collect`]: joins the frames of one reply, and checks them against the request.
//! - [`info`]: the JSON of an INFO reply, for tools.
//! - [`address`]: addresses on which a daemon listens, and to which a client connects.
//! - [`one_line`]: makes text of other programs safe to show.
//!
//! Both `parse` functions take the bytes that have arrived, and return a [`Parsed`]. They keep no
//! state, copy nothing and allocate nothing. So a stream parses in the same way however it is
//! split. `docs/protocol.md` describes the protocol for users, with test vectors.

#![forbid(unsafe_code)]

pub mod address;
pub mod code;
pub mod collect;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod info;
pub mod reply;
pub mod request;

mod frame;
mod one_line;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use address::Address;
pub use code::{Action, ErrorCode};
pub use frame::{Fault, Parsed, Unencodable};
pub use info::Info;
pub use one_line::{hide_password, one_line};
pub use reply::{ErrorReply, Reply, Welcome};
pub use request::{Hello, Next, Request, Wait};

/// The highest version of the protocol that this crate speaks, and the only one.
pub const VERSION: u8 = 1;

/// The first bytes of a HELLO: "SNOW" and two ends of lines. Servers of lines, of HTTP and of TLS
/// answer them or close at once. So a client that asks the wrong port notices it without a wait.
pub const MAGIC: [u8; 8] = *b"SNOW\r\n\r\n";

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

/// The most bytes of a token.
pub const MAX_TOKEN_SIZE: usize = 512;

/// The most bytes of a source's name.
pub const MAX_NAME_SIZE: usize = 64;

/// The most claims of a WELCOME, which is always one frame.
pub const MAX_CLAIMS: usize = 8_000;

/// The highest ID. IDs fit a signed 64-bit integer, as databases have them.
pub const MAX_ID: u64 = i64::MAX as u64;
