//! The daemon: listeners, an acceptor, one thread for each shard, and the keeper of ceilings.
//!
//! ```text
//!  main thread                    shard threads (one per core)
//!  ┌──────────┐  hands over  ┌──────────────────────────────────────┐
//!  │ acceptor ├─────────────▶│ connection tasks ─▶ Shard            │ ◀─ direct claims ─▶ Source
//!  │ signals  │  sockets     │ ticker: waits for ticks, ends waits  │              (cursor, queue)
//!  └──────────┘              └──────────────────────────────────────┘                     ▲
//!                             keeper thread: raises ceilings, watches the wall clock ─────┘
//!  control thread: starts sources, reloads; makes each live configuration
//! ```
//!
//! - `lifecycle`: starts, runs, reloads and stops the daemon.
//! - `net`: opens listeners, reads and writes sockets. `acceptor`: accepts connections, and hands
//!   each to the shard that has the fewest.
//! - `shard_thread`: a shard's thread and the connections that it serves.
//! - `ceilings`: starts sources above their stored ceilings, and raises the ceilings on the
//!   keeper's thread.
//! - `health`: counters, heartbeats, the daemon's status, and log lines with a rate limit. `reading`:
//!   reads them from the running daemon.
//! - `restored`: notices that the machine was restored from a snapshot.
//! - `common`: the state that all threads share. `shared`: other types that several modules use.

mod acceptor;
mod ceilings;
mod common;
pub(crate) mod health;
mod lifecycle;
pub(crate) mod net;
mod reading;
mod restored;
mod shard_thread;
mod shared;

pub use self::ceilings::simulated;
pub use self::ceilings::start_sources::unlocked::check_records;
pub use self::lifecycle::reread::{Reloaded, Reread};
pub use self::lifecycle::start::{Beginning, Server};
pub use self::lifecycle::stop::Signals;
pub use self::net::inherited::Inherited;
pub(crate) use self::net::listen::check_place;
pub use self::reading::handle::Health;
pub use self::restored::{KernelLog, is_kernel_log_standard_input};
pub use self::shared::note::Note;
pub use self::shared::start_error::StartError;
