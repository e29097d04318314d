//! A shard's thread: its runtime, its shard, and the connections that it serves.
//!
//! - `worker`: the thread and what its tasks share.
//! - `connection`: one connection, from bytes read to bytes written. The only place that sees both a front-end and a shard.
//! - `backlog`: the rest of a reply that is longer than a frame.
//! - `ticker`: ends waits for IDs.

mod backlog;
mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod ticker;
pub(crate) mod worker;
