//! The ceilings of a running daemon: where sources start, and how their ceilings are raised.
//!
//! ```text
//!  shard threads ──a claim meets a ceiling──▶ keeper thread ──writes──▶ storage thread ──▶ state
//!                ◀──────grants rise──────────               ◀─outcomes─
//!                                                           ──writes──▶ fleet thread ──▶ coordinator
//! ```
//!
//! - `start_sources`: starts sources above the stored bounds.
//! - `start_notes`: lines for the operator about a start.
//! - `keeper_thread`: drives the keeper, which decides what to write and what to grant. Until the
//!   stop, this thread waits for no write.
//! - `join_fleet`: takes worker IDs from the coordinator at the start. `fleet_thread`: raises
//!   their ceilings at the coordinator, and checks that the worker IDs still belong to this daemon.
//! - `ending`: ends sources in all places, in one order.
//! - `storage_thread`: writes the state, and checks that the state still belongs to this daemon.
//!   `job_thread`: the common part of the fleet thread and the storage thread.
//! - `simulated`: ceilings without threads, for the simulation in tests/.

pub(crate) mod ending;
pub(crate) mod fleet_thread;
pub(crate) mod job_thread;
pub(crate) mod join_fleet;
pub(crate) mod keeper_thread;
pub mod simulated;
mod start_notes;
pub(crate) mod start_sources;
pub(crate) mod storage_thread;

#[cfg(test)]
mod tests {
    mod shared_counters;
}
