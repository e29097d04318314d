//! The budget of all connections together for the bytes that they keep: replies that clients have not taken, and requests that
//! are not decoded.
//!
//! One connection may keep a share of the free budget. So the share shrinks as the budget fills, and the daemon first
//! stops reading from the connections that keep the most (dynamic thresholds, as A. K. Choudhury and E. L. Hahne proposed
//! for switches, 1998). A client that reads its replies keeps nothing and is not delayed.

use std::sync::atomic::Ordering;

use super::thread_state::ThreadState;
use crate::config::Limits;

/// The part of the free budget, as a divisor, that one connection may keep. So 64 connections that never read fill half of
/// the budget, and ten thousand cannot exceed it by more than [`KEPT_FREELY`] each.
const SHARE: usize = 64;

/// Bytes that a connection may always keep, so that each makes progress: a few requests.
pub(super) const KEPT_FREELY: usize = 4 * 1024;

/// The bytes that TLS may hold, encrypted and not sent: a record.
pub(super) const TLS_UNSENT_BYTES: usize = 16 * 1024;

/// Returns the bytes that one connection may keep.
pub(super) fn kept_max(thread: &ThreadState, limits: &Limits) -> usize {
    let used = thread.common.metrics.queued_bytes.load(Ordering::Relaxed);
    (limits.max_queued_bytes.saturating_sub(used) / SHARE).max(KEPT_FREELY)
}
