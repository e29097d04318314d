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
//! - [`layout`]: how an ID is divided into fields; positions to IDs and back.
//! - `clock`: the ID clock, a pure function of what the system's clocks show.
//! - `ceiling`: how far a source may claim, and where that is kept.
//! - `source`: the cursor, the only place where uniqueness is decided, and the line of requests that wait.
//! - `shard`: one core's blocks and rings.
//! - `keeper`: raises ceilings and watches the wall clock.
//! - [`protocol`]: the wire, both sides. `front`: a protocol as the server sees it.
//! - `service`: what the service manager and the journal are told.
//! - `server`: listeners, threads, connections. `config`: its settings. `cli`: the commands.
//! - `admin`: what an operator sees: status, metrics, the page.
//! - [`address`]: where a daemon listens and a client finds it. `tls`: certificates and handshakes, for both.
//! - [`client`]: what an application links; buildable with `layout`, `protocol`, `address` and, if wanted, `tls` alone.
//!
//! One request's walk: `server/connection.rs` reads bytes; `front/native.rs` understands them; `shard/lane.rs` takes IDs from
//! the current block, the ring, or by a claim of `source/mod.rs`; `front/native.rs` encodes them; `connection.rs` writes once
//! for all requests of the turn. What has to wait goes by `source/line.rs` and `server/ticker.rs`.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod address;
pub mod layout;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod protocol;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "daemon")]
mod admin;
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
#[cfg(all(feature = "daemon", any(test, fuzzing)))]
pub mod fuzzing;
#[cfg(feature = "daemon")]
pub mod keeper;
#[cfg(feature = "daemon")]
pub mod server;
#[cfg(feature = "daemon")]
pub mod service;
#[cfg(feature = "daemon")]
pub mod shard;
#[cfg(feature = "daemon")]
pub mod source;
#[cfg(feature = "daemon")]
mod sync;
