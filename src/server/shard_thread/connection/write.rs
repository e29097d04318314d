//! Writes replies. Ends the connection if the client reads nothing for too long.
//!
//! Some clients send many requests before they read a reply. While such a client does not read, the
//! daemon goes on to serve its requests. It does so as far as the connection's share of the budget
//! reaches.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;

use super::super::scheduler::tls_cost;
use super::super::thread_state::ThreadState;
use super::super::turn_state::TurnState;
use super::budget::KEPT_FREELY;
use super::{Connection, TurnEnd};
use crate::frontends::FrontEnd;
use crate::server::health::metrics::CloseReason;

/// The size from which on a queue of replies grows to twice its size.
const DOUBLES_FROM: usize = 2 * KEPT_FREELY;

/// Bytes of replies that the socket has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that the socket has taken.
    written: usize,
}

impl Unwritten {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes that the socket has not taken.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Returns the size of the buffer.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        // Moves at most as many bytes as were written since the last move.
        if self.written > self.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        // A small queue takes no more memory than it needs. A long one doubles, so that it is rarely
        // copied.
        if self.bytes.len() < DOUBLES_FROM {
            self.bytes.reserve_exact(bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Records that the socket has taken this many more bytes. A connection without bytes to write
    /// owns no buffer.
    fn record_written(&mut self, size: usize) {
        self.written += size;
        if self.written == self.bytes.len() {
            *self = Unwritten::default();
        }
    }
}

impl<F: FrontEnd> Connection<F> {
    /// Writes the replies that the turn has encoded, unless earlier ones still wait. Returns the
    /// number of bytes that the socket has taken.
    pub(super) fn write_now(&mut self, state: &TurnState, cx: &mut Context<'_>) -> usize {
        if state.output.is_empty() || self.has_unwritten() {
            return 0;
        }
        match Pin::new(&mut self.stream).poll_write(cx, &state.output) {
            Poll::Ready(Ok(written)) => written,
            // After an error, `flush` writes again, and returns the error. The connection must not
            // end here, because dropping a waiting request needs `state`, which is borrowed here.
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        }
    }

    /// Keeps the replies that the socket has not taken, and lets the shard claim IDs ahead.
    pub(super) fn end_turn(&mut self, thread: &ThreadState, state: &mut TurnState, written: usize) {
        thread.counters.sent_bytes.add(written as u64);
        if written < state.output.len() {
            self.exchange.unwritten.extend(&state.output[written..]);
        }
        state.output.clear();
        state.shard.top_up();
        let tls = tls_cost(self.stream.take_tls_read());
        thread.scheduler.end_turn(&mut self.account, self.exchange.turn_cost + tls);
    }

    /// Returns whether replies wait for the socket.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.exchange.unwritten.is_empty() || self.stream.has_unsent()
    }

    /// Writes as many of the queued replies as the socket takes now.
    fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Unwritten { bytes, written } = &self.exchange.unwritten;
        let size = ready!(self.stream.poll_send(cx, &bytes[*written..]))?;
        self.exchange.unwritten.record_written(size);
        self.member.thread.counters.sent_bytes.add(size as u64);
        Poll::Ready(Ok(()))
    }

    /// Writes all replies that are queued.
    ///
    /// # Errors
    /// The connection failed, or the client read nothing for `stall_timeout`.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while self.has_unwritten() {
            let written = tokio::time::timeout(self.stall_timeout(), poll_fn(|cx| self.poll_some(cx))).await;
            written.map_err(|_| self.record_stall())??;
        }
        Ok(())
    }

    /// Writes as many of the queued replies as the socket takes now. Writes all of them if the
    /// connection may queue no more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub(super) async fn write_some(&mut self) -> io::Result<()> {
        if !self.may_queue_more() {
            return self.flush().await;
        }
        while self.has_unwritten() {
            let written = poll_fn(|cx| Poll::Ready(self.poll_some(cx))).await;
            let Poll::Ready(written) = written else { break };
            written?;
        }
        Ok(())
    }

    /// Writes queued replies as the client reads them, and returns when the connection fails. Does
    /// not end a client that reads nothing: the request for which the connection waits has a
    /// deadline.
    pub(super) async fn write_while_waiting(&mut self) -> io::Error {
        while self.has_unwritten() {
            if let Err(error) = poll_fn(|cx| self.poll_some(cx)).await {
                return error;
            }
            self.record_kept();
        }
        self.stream.reset().await
    }

    /// Writes some of the queued replies or, while the client takes none, serves the requests that
    /// follow `turn`. Returns how the last turn ended.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub(super) async fn flush_or_serve(&mut self, turn: TurnEnd<F>) -> io::Result<TurnEnd<F>> {
        let version = self.member.thread.live_config.borrow().version;
        if matches!(turn, TurnEnd::Again) {
            let written = poll_fn(|cx| Poll::Ready(self.poll_some(cx))).await;
            if let Poll::Ready(written) = written {
                return written.map(|()| turn);
            }
            poll_fn(|cx| self.poll_permit(cx)).await;
            return Ok(self.turn_of_unread());
        }
        let stall_timeout = self.stall_timeout();
        let waited = tokio::time::timeout(
            stall_timeout,
            poll_fn(|cx| match self.poll_some(cx) {
                Poll::Ready(written) => Poll::Ready(written.map(|()| TurnEnd::Done)),
                Poll::Pending => self.poll_turn(cx, version),
            }),
        );
        match waited.await {
            Ok(turn) => turn,
            Err(_) => Err(self.record_stall()),
        }
    }

    fn stall_timeout(&self) -> Duration {
        self.member.thread.live_config.borrow().limits.stall_timeout
    }

    /// Records that the client has read nothing for `stall_timeout`.
    fn record_stall(&self) -> io::Error {
        self.record_closed(CloseReason::UnreadReplies);
        self.stream.drop_unsent_at_close();
        io::ErrorKind::TimedOut.into()
    }
}
