//! The daemon of Snowbank, which hands out batches of unique, time-sortable 64-bit IDs over TCP.
//!
//! Applications link the crate `snowbank-client` (clients/rust). This crate is the program `snowbank`. It publishes its
//! modules only for its own tests and benchmarks, and promises nothing about them.
//!
//! Two one-way streets meet at the shard. A module imports only modules upstream of it, and the client's `layout`.
//!
//! ```text
//!  MAKE    clock ─▶ ceiling ─▶ source (cursor) ─▶ ┌───────────────┐
//!          "when"   "how far"   "which positions"  │ shard: ring,  │   one per core
//!  SERVE   client ◀─ connection ◀─ front ◀──────── │ current block │
//!                                                 └───────────────┘
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | `clock` | the ID clock, a pure function of clock readings: what happens when the clock goes back or jumps |
//! | `ceiling` | how far a source may claim: the ceilings that are durable before an ID is used, and the lock files |
//! | `keeper` | decides when to raise ceilings, and watches the wall clock |
//! | `source` | the cursor, the only place where uniqueness is decided, and the requests that wait |
//! | `shard` | one core's blocks and rings |
//! | `front` | protocols as the server sees them: bytes to requests, IDs to bytes |
//! | `server` | `lifecycle`: start, reload, stop. `net`: listeners and TLS. `shard_thread`: connections, and who closes a slow reader's. `ceilings`: storage. `health`: metrics, status |
//! | `config` | the settings, and which of them a reload may change |
//! | `admin` | the admin listener: status, metrics, the page |
//! | `service` | the service manager and the journal |
//! | `tls` | certificates and handshakes of the listeners |
//! | `cli` | the commands |
//! | `snowbank_client::layout` | positions to IDs and back |
//! | `snowbank_client::protocol` | the wire format, both sides |
//!
//! One request's walk: the connection in `server` reads bytes, and `front` parses them. `shard` takes IDs from the
//! current block, from the ring, or by a claim of `source`. `front` encodes them, and the connection writes once for all
//! requests of the turn. A request that must wait joins the wait queue in `source`.

#![forbid(unsafe_code)]

mod admin;
#[doc(hidden)]
pub mod ceiling;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod front;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod keeper;
#[doc(hidden)]
pub mod server;
#[doc(hidden)]
pub mod service;
#[doc(hidden)]
pub mod shard;
#[doc(hidden)]
pub mod source;
mod sync;
#[doc(hidden)]
pub mod tls;
