//! The daemon: listeners, an acceptor, one thread for each shard, and the keeper of ceilings.
//!
//! ```text
//!  main thread                    shard threads (one per core)
//!  ┌──────────┐  hands over  ┌──────────────────────────────────────┐
//!  │ acceptor ├─────────────▶│ connection tasks ─▶ Shard            │ ◀─ direct claims ─▶ Source
//!  │ signals  │  sockets     │ ticker: waits for ticks, ends waits  │                     (cursor, line)
//!  └──────────┘              └──────────────────────────────────────┘                        ▲
//!                             keeper thread: raises ceilings, watches the wall clock ────────┘
//! ```
//!
//! - `listen`: opens sockets.
//! - `accept`: takes connections and hands each to the shard with the fewest.
//! - `admin`: accepts on the admin listener.
//! - `grants`: where sources start over what is stored.
//! - `worker`: a shard's thread; `ticker` ends waits on it.
//! - `handshake`: the start of a TLS connection; `secure`: a TLS connection as a shard uses it.
//! - `connection`: one connection, from bytes read to bytes written. The only place that sees both a front-end and a shard.
//! - `complaints`: what peers do wrong, said once in a while.
//! - `in_force`: what a reload can change, as shards see it; `reload` changes it.
//! - `backlog`: the rest of a reply longer than a frame.
//! - `restored`: the thread that notices a restored snapshot, where the kernel says so: in its log, or by an event.
//! - `inherited`: sockets that a service manager hands over.
//! - `pulse`: whether every thread makes progress; `vitals`: how the daemon is, for whoever watches over it.
//! - `seldom`: what can repeat is not said each time.
//! - `keeper`: the thread that raises ceilings and watches the wall clock. `view`: what it last saw.
//! - `metrics`: what is counted, by each shard for itself. `status`: all of it summed up, for the operator.

mod accept;
mod admin;
mod backlog;
mod complaints;
mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod grants;
mod handshake;
mod in_force;
mod inherited;
mod keeper;
mod listen;
mod lookout;
mod metrics;
mod pulse;
mod reload;
mod restored;
mod secure;
mod seldom;
mod start;
mod status;
mod stream;
mod ticker;
mod view;
mod vitals;
mod worker;

pub use admin::ADMIN_CONNECTIONS_MAX;
pub use grants::State;
pub use inherited::{Inherited, Protocol};
pub use reload::{ReloadError, Reloaded, Reloader};
pub use restored::is_kernel_log_standard_input;
pub use start::{Server, StartError};
pub use vitals::Vitals;
