//! Ceilings of a running daemon: where sources start, and who raises how far they may claim.
//!
//! - `start_sources`: where sources start above what is stored.
//! - `keeper_thread`: the thread that raises ceilings and watches the wall clock. `last_seen`: its last observations, for
//!   other threads.
//! - `lookout`: checks that worker IDs and state are still ours while the keeper waits for storage.

pub(crate) mod keeper_thread;
pub(crate) mod last_seen;
pub(crate) mod lookout;
pub(crate) mod start_sources;
