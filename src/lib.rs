//! Snowbank hands out batches of unique, time-sortable 64-bit IDs over TCP.
//!
//! Two one-way streets meet at the shard. A room imports only rooms upstream of it, and `layout`, which all may know.
//!
//! ```text
//!  MAKE    clock ─▶ ceiling ─▶ source (cursor) ─▶ ┌───────────────┐
//!          "when"   "how far"   "which positions"  │ shard: ring,  │   one per core
//!  SERVE   client ◀─ connection ◀─ front ◀──────── │ current block │
//!                                                 └───────────────┘
//! ```
//!
//! - `snowbank_client::layout`: how an ID is divided into fields; positions to IDs and back.
//! - `clock`: the ID clock, a pure function of what the system's clocks show.
//! - `ceiling`: how far a source may claim, and where that is kept.
//! - `source`: the cursor, the only place where uniqueness is decided, and the line of requests that wait.
//! - `shard`: one core's blocks and rings.
//! - `keeper`: raises ceilings and watches the wall clock.
//! - `snowbank_client::protocol`: the wire, both sides. `front`: a protocol as the server sees it.
//! - `service`: what the service manager and the journal are told.
//! - `server`: listeners, threads, connections. `config`: its settings. `cli`: the commands.
//! - `admin`: what an operator sees: status, metrics, the page.
//! - `tls`: certificates and handshakes of the listeners.
//! - `snowbank_client`, a crate of its own in clients/rust: what an application links.
//!
//! One request's walk: `server/connection.rs` reads bytes; `front/native.rs` understands them; `shard/lane.rs` takes IDs from
//! the current block, the ring, or by a claim of `source/mod.rs`; `front/native.rs` encodes them; `connection.rs` writes once
//! for all requests of the turn. What has to wait goes by `source/wait_queue/mod.rs` and `server/ticker.rs`.
#![forbid(unsafe_code)]

mod admin;
pub mod ceiling;
pub mod cli;
pub mod clock;
pub mod config;
pub mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod keeper;
pub mod server;
pub mod service;
pub mod shard;
pub mod source;
mod sync;
pub mod tls;
