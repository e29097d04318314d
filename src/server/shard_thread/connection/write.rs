//! Writes replies. Ends the connection if the client reads nothing for too long.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use super::super::scheduler::tls_cost;
use super::super::thread_state::ThreadState;
use super::super::turn::TurnState;
use super::Connection;
use crate::frontends::FrontEnd;

impl<F: FrontEnd> Connection<F> {
    /// Writes the replies that the turn has encoded. Returns the number of bytes that the socket
    /// has taken.
    pub(super) fn write_now(&mut self, state: &TurnState, cx: &mut Context<'_>) -> usize {
        if state.output.is_empty() {
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
        thread.counters.traffic.sent_bytes.add(written as u64);
        self.exchange.unwritten.extend_from_slice(&state.output[written..]);
        state.output.clear();
        state.shard.top_up();
        let tls = tls_cost(self.stream.take_tls_read());
        thread.scheduler.end_turn(&mut self.account, self.exchange.turn_cost + tls);
    }

    /// Writes all replies that are queued.
    ///
    /// # Errors
    /// The connection failed, or the client read nothing for `stall_timeout`.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let timeout = self.member.thread.live_config.borrow().limits.stall_timeout;
        let mut written = 0;
        while written < self.exchange.unwritten.len() || self.stream.has_unsent() {
            let stream = &mut self.stream;
            let bytes = &self.exchange.unwritten[written..];
            match tokio::time::timeout(timeout, poll_fn(|cx| stream.poll_send(cx, bytes))).await {
                Ok(Ok(size)) => {
                    written += size;
                    self.member.thread.counters.traffic.sent_bytes.add(size as u64);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    self.stream.drop_unsent_at_close();
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        // An idle connection owns no buffer.
        self.exchange.unwritten = Vec::new();
        Ok(())
    }
}
