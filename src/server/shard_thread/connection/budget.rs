//! The bytes that a connection keeps between turns: replies that its client has not read, and
//! requests that are not decoded yet.
//!
//! All connections together have a budget for these bytes, and each connection may keep a share of
//! the free budget. So the shares shrink as the budget is used up. The connections that keep the
//! most bytes are the first from which the daemon stops reading. These are dynamic thresholds,
//! proposed for switches by A. K. Choudhury and E. L. Hahne in 1998. The connection of a client
//! that reads its replies keeps nothing, and is not delayed.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::Connection;
use super::authorize::SHORT_READ_BYTES_MAX;
use crate::config::Limits;
use crate::frontends::{FrameLimit, FrontEnd};
use crate::os_clock;
use crate::server::health::metrics::CloseReason;
use crate::server::net::tls_stream::UNSENT_BYTES_MAX;
use crate::server::shard_thread::thread_state::ThreadState;
use crate::server::shard_thread::turn_state::READ_BYTES_MAX;
use snowbank_wire::MAX_REPLY_SIZE;

/// One connection's share is the free budget divided by this. Pipelines of libraries for Redis send
/// everything before they read. A lone such client may use a fifth of the budget: with the default,
/// 800,000 replies to INCR. Four such clients use up half. Clients that never read exceed the
/// budget by at most 8 KiB each. That is [`KEPT_FREELY`] of replies, a small frame, and the
/// requests of one short turn. Over TLS, add what TLS keeps unsent.
const SHARE: usize = 4;

/// The number of bytes that each connection may always keep, so that it makes progress. One request
/// of any size in Snowbank's own protocol fits, and some more.
pub(super) const KEPT_FREELY: usize = 4 * 1024;

/// Returns how many bytes one connection may keep now.
fn kept_max(thread: &ThreadState, limits: &Limits) -> usize {
    let used = thread.common.metrics.queued_bytes.load(Ordering::Relaxed);
    (limits.max_queued_bytes.saturating_sub(used) / SHARE).max(KEPT_FREELY)
}

/// The number of bytes of replies above which no turn encodes a further reply: three reply frames, so
/// that a turn is short.
const TURN_REPLY_BYTES_MAX: usize = 3 * MAX_REPLY_SIZE;

/// The number of bytes of replies above which a turn without a permit encodes no further reply.
const SHORT_REPLY_BYTES_MAX: usize = 8 * 1024;

/// The time after which a connection that keeps too many bytes checks the budget again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The connection's share of the budget in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The number of queued bytes of replies above which no further reply is encoded.
    replies_max: usize,
    /// True if the turn must be short, because it has no permit.
    is_short: bool,
}

impl Share {
    /// The largest share.
    pub(super) const WHOLE: Share = Share { replies_max: TURN_REPLY_BYTES_MAX, is_short: false };

    /// Returns how many bytes a turn may read.
    pub(super) fn read_bytes_max(self) -> usize {
        if self.replies_max >= TURN_REPLY_BYTES_MAX { READ_BYTES_MAX } else { SHORT_READ_BYTES_MAX }
    }

    /// Returns the limit of one frame: `limit`, or a smaller one if the share is small.
    #[inline]
    pub(super) fn frame_limit(self, limit: FrameLimit) -> FrameLimit {
        if self.replies_max >= MAX_REPLY_SIZE { limit } else { limit.small() }
    }

    /// Returns the number of encoded bytes from which on the turn encodes no further frame. Another
    /// frame could exceed the share or the length of a short turn.
    pub(super) fn full_at(self, unwritten: usize) -> usize {
        let turn_max = if self.is_short { SHORT_REPLY_BYTES_MAX } else { TURN_REPLY_BYTES_MAX };
        (self.replies_max + 1).saturating_sub(unwritten).min(turn_max + 1)
    }
}

impl<F: FrontEnd> Connection<F> {
    /// Returns the connection's share of the budget for this turn. A client that owes a token may
    /// have only one reply queued.
    pub(super) fn share(&self, thread: &ThreadState, limits: &Limits) -> Share {
        let is_short = !self.account.has_permit();
        let replies_max = match self.pending {
            Some(_) => 0,
            None => kept_max(thread, limits),
        };
        Share { replies_max, is_short }
    }

    /// Returns whether more requests are read or served while the client does not read the earlier
    /// replies. A long reply is encoded only as fast as the client reads it.
    pub(super) fn may_queue_more(&self) -> bool {
        let kept = self.exchange.unwritten.len() + self.kept_requests();
        self.pending.is_none() && !self.exchange.has_backlog() && kept < self.kept_max()
    }

    /// Returns how many bytes of requests the connection keeps. Some are not decoded, others the
    /// front end has put aside, as in a transaction.
    pub(super) fn kept_requests(&self) -> usize {
        self.exchange.unread.len() + self.exchange.front.kept_bytes()
    }

    /// Replaces the share of the last turn. A connection that keeps requests reads little more once
    /// the budget is used up.
    #[cold]
    pub(super) fn renew_share(&mut self, thread: &ThreadState, limits: &Limits) {
        self.exchange.share = self.share(thread, limits);
    }

    fn kept_max(&self) -> usize {
        let thread = &self.member.thread;
        kept_max(thread, &thread.live_config.borrow().limits)
    }

    pub(super) fn record_kept(&mut self) {
        let unsent = if self.stream.has_unsent() { UNSENT_BYTES_MAX } else { 0 };
        let kept = self.exchange.unread.capacity()
            + self.exchange.unwritten.capacity()
            + self.exchange.front.kept_bytes();
        self.member.record_kept(kept + unsent);
    }

    /// Waits while the requests that the connection keeps are longer than the connection's share of
    /// the budget.
    ///
    /// # Errors
    /// The share did not become large enough within `stall_timeout`.
    pub(super) async fn await_share(&self) -> io::Result<()> {
        let thread = &self.member.thread;
        loop {
            let stall_timeout = thread.live_config.borrow().limits.stall_timeout;
            if self.kept_requests() <= self.kept_max() {
                return Ok(());
            }
            if os_clock::boot().since(self.exchange.read_at) >= stall_timeout {
                self.record_closed(CloseReason::Queue);
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}
