//! Reads the bytes that have arrived, and takes a turn with them.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use super::super::scheduler::{TURN_COST, tls_cost};
use super::super::thread_state::ThreadState;
use super::super::turn::Turn;
use super::super::turn_state::TurnState;
use super::budget::KEPT_FREELY;
use super::{Connection, NEVER_READ, SHORT_READ_BYTES_MAX, TurnEnd};
use crate::frontends::FrontEnd;
use crate::os_clock;
use crate::server::health::metrics::CloseReason;
use crate::server::shared::live_config::LiveConfig;
use snowbank_core::clock::Now;
use zeroize::Zeroize;

impl<F: FrontEnd> Connection<F> {
    /// Waits for bytes, at most for `deadline`, and takes a turn with them.
    pub(super) async fn turn_within(&mut self, version: u64, deadline: Duration) -> io::Result<TurnEnd<F>> {
        match tokio::time::timeout(deadline, poll_fn(|cx| self.poll_turn(cx, version))).await {
            Ok(turn) => turn,
            // Bytes may have arrived while the connection waited for its permit.
            Err(_) if self.account.is_queued() => self.last_turn(version).await,
            Err(_) => {
                self.record_silence();
                Ok(TurnEnd::End)
            }
        }
    }

    /// Takes a turn once the connection has a permit. If no bytes have arrived by then, ends the
    /// connection.
    async fn last_turn(&mut self, version: u64) -> io::Result<TurnEnd<F>> {
        poll_fn(|cx| match self.poll_turn(cx, version) {
            Poll::Pending if !self.account.is_queued() => {
                self.record_silence();
                Poll::Ready(Ok(TurnEnd::End))
            }
            polled => polled,
        })
        .await
    }

    /// Records that the connection closes because the client has sent nothing for too long.
    fn record_silence(&self) {
        self.record_closed(if self.is_amid_request() { CloseReason::HalfRequest } else { CloseReason::Idle });
    }

    /// Returns whether a request has arrived in part. A long transaction of which only a part has
    /// arrived counts as half a request. So does a value that is dropped as it arrives.
    fn is_amid_request(&self) -> bool {
        let front = &self.exchange.front;
        !self.exchange.unread.is_empty() || front.kept_bytes() > KEPT_FREELY || front.unfinished() > 0
    }

    /// Returns how long to wait for bytes, and the version of the configuration from which this
    /// time comes.
    pub(super) fn deadline(&self) -> (u64, Option<Duration>) {
        let config = self.member.thread.live_config.borrow();
        let limits = &config.limits;
        let deadline = if self.is_amid_request() {
            let late = os_clock::boot().since(self.exchange.read_at);
            Some(limits.stall_timeout.saturating_sub(late))
        } else {
            limits.idle_timeout
        };
        (config.version, deadline)
    }

    /// Reads bytes, and takes a turn with them. If no bytes have arrived, but a newer configuration
    /// than `version` was adopted, ends the turn at once. The next turn then has the new deadline.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>, version: u64) -> Poll<io::Result<TurnEnd<F>>> {
        let thread = Rc::clone(&self.member.thread);
        let state = &mut *thread.turn.borrow_mut();
        state.wakers.remember(self.member.slot, cx.waker());
        // A busy connection waits for a permit only if it has bytes to read.
        if self.account.is_busy() && (self.account.is_queued() || self.stream.is_readable(cx)) {
            ready!(self.poll_permit(cx));
        }
        let mut input = std::mem::take(&mut state.input);
        let config = &*thread.live_config.borrow();
        let polled = self.poll_requests(&thread, config, state, &mut input, cx);
        state.input = input;
        if polled.is_pending() {
            self.record_silent();
            let tls = tls_cost(self.stream.take_tls_read());
            if self.account.has_permit() || tls > 0 {
                // No data for the reader has arrived, but TLS may have read.
                thread.scheduler.end_turn(&mut self.account, TURN_COST + tls);
            }
        }
        match polled {
            Poll::Pending if config.version != version => Poll::Ready(Ok(TurnEnd::Done)),
            polled => polled,
        }
    }

    /// Reads into `input`, serves the requests, and writes their replies.
    fn poll_requests(
        &mut self,
        thread: &Rc<ThreadState>,
        config: &LiveConfig,
        state: &mut TurnState,
        input: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<TurnEnd<F>>> {
        self.exchange.turn_cost = TURN_COST;
        if !self.session.is_of(config.version) {
            let mut turn = Turn::begin(thread, config, state, &mut self.session, thread.now());
            if let Some(last) = self.exchange.renew(&mut turn, &self.stream) {
                let written = self.write_now(state, cx);
                self.end_turn(thread, state, written);
                return Poll::Ready(Ok(last));
            }
        }
        let kept = self.exchange.unread.len();
        if self.kept_requests() > 0 {
            self.renew_share(thread, &config.limits);
        }
        let end = ready!(self.poll_input(thread, input, cx))?;
        if end == kept {
            return Poll::Ready(Ok(TurnEnd::End));
        }
        thread.counters.received_bytes.add((end - kept) as u64);
        if let Some(pending) = &mut self.pending {
            pending.record_heard();
        }
        let now = thread.now();
        let half_began = std::mem::replace(&mut self.exchange.read_at, now.boot);
        let dropped = self.exchange.front.unfinished();
        let ended = self.serve_turn(thread, config, state, &input[..end], now);
        if config.facts.access.tokens.is_some() {
            // The shard's buffer would keep the token of a client until other bytes cover it.
            input[..end].zeroize();
        }
        let is_still_dropped = dropped > 0 && dropped == self.exchange.front.unfinished();
        if is_still_dropped || kept > 0 && self.exchange.unread.len() == end {
            // The bytes that were read belong to the same half request as earlier bytes, so this
            // request began earlier. If whole requests were served, a half request behind them
            // began with this read.
            self.exchange.read_at = half_began;
        }
        // If a token is refused, the refusal is sent after a delay.
        let is_delayed = matches!(ended, TurnEnd::Unauthorized);
        let written = if is_delayed { 0 } else { self.write_now(state, cx) };
        self.end_turn(thread, state, written);
        let requests = &thread.counters.protocols[F::PROTOCOL as usize].requests;
        state.timing.end_turn(&thread.counters.latency, requests, now.boot);
        Poll::Ready(Ok(ended))
    }

    /// Copies to `input` the bytes that the last turn kept, and reads more bytes behind them.
    /// Returns the number of bytes that are then in `input`.
    #[inline]
    fn poll_input(
        &mut self,
        thread: &ThreadState,
        input: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let unread = &self.exchange.unread;
        let kept = unread.len();
        input[..kept].copy_from_slice(unread);
        let read_bytes_max = if self.account.has_permit() {
            self.exchange.share.read_bytes_max()
        } else {
            SHORT_READ_BYTES_MAX
        };
        let read_to = input.len().min(kept + read_bytes_max);
        let mut buffer = ReadBuf::new(&mut input[..read_to]);
        buffer.advance(kept);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        if polled.is_pending() {
            let awaits_first = self.exchange.read_at == NEVER_READ && thread.awaits_newcomers.get();
            // Half a request that arrived before the stop is answered once its rest arrives.
            let awaits_rest = kept > 0 && self.member.undrained;
            if thread.draining.get() && !awaits_first && !awaits_rest && !self.has_unwritten() {
                self.member.record_drained();
            }
        }
        polled.map_ok(|()| buffer.filled().len())
    }

    /// Serves the requests in `bytes`, in a turn that begins now. If a reload has revoked the
    /// session, the connection ends instead.
    #[inline]
    fn serve_turn(
        &mut self,
        thread: &Rc<ThreadState>,
        config: &LiveConfig,
        state: &mut TurnState,
        bytes: &[u8],
        now: Now,
    ) -> TurnEnd<F> {
        self.exchange.share = self.share(thread, &config.limits);
        let is_outdated = !self.session.is_of(config.version);
        let mut turn = Turn::begin(thread, config, state, &mut self.session, now);
        turn.conditions.draining = self.member.is_refused();
        let last = if is_outdated { self.exchange.renew(&mut turn, &self.stream) } else { None };
        last.unwrap_or_else(|| self.exchange.serve(&mut turn, &self.stream, bytes))
    }

    /// Takes a turn with bytes that were read in an earlier turn.
    pub(super) fn turn_of_unread(&mut self) -> TurnEnd<F> {
        let thread = Rc::clone(&self.member.thread);
        let config = &*thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        let unread = std::mem::take(&mut self.exchange.unread);
        self.exchange.turn_cost = TURN_COST;
        let now = thread.now();
        let ended = self.serve_turn(&thread, config, state, &unread, now);
        let requests = &thread.counters.protocols[F::PROTOCOL as usize].requests;
        let read_at = self.exchange.read_at;
        state.timing.end_late_turn(&thread.counters.latency, requests, read_at, now.boot);
        if matches!(ended, TurnEnd::Done) {
            // The bytes that are left are half a request. The time for the rest of this request
            // starts now, because the daemon did not read during the wait.
            self.exchange.read_at = now.boot;
        }
        self.end_turn(&thread, state, 0);
        ended
    }
}
