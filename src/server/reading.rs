//! Reads the health of the running daemon.
//!
//! - `take_samples`: takes the samples of a moment from all counters.
//! - `handle`: gives the status and the heartbeat to the service manager's notifier and to the
//!   admin listener.
//! - `observer`: logs changes of findings and of readiness.

pub(crate) mod handle;
pub(crate) mod observer;
mod take_samples;
