//! Snowbank hands out batches of unique, time-sortable 64-bit IDs over TCP.
//!
//! Two one-way streets meet at the shard. A room imports only rooms upstream of it, and `layout`, which all may know.
//!
//! ```text
//!  MAKE    clock ─▶ ceiling ─▶ source (cursor) ─▶ ┌───────────────┐
//!          "when"   "how far"   "which positions"  │ shard: ring,  │   one per core
//!  SERVE   client ◀─ connection ◀─ front ◀──────── │ current block │
//!                                                  └───────────────┘
//! ```
pub mod layout;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod protocol;

#[cfg(feature = "daemon")]
pub mod ceiling;
#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
pub mod clock;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod front;
#[cfg(feature = "daemon")]
pub mod keeper;
#[cfg(feature = "daemon")]
pub mod server;
#[cfg(feature = "daemon")]
pub mod shard;
#[cfg(feature = "daemon")]
pub mod source;
#[cfg(feature = "daemon")]
mod sync;
