//! A stream that notes what its peer does, so that one that stalls can be closed.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::turn_cost::TurnCost;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shard_thread::budget::TLS_UNSENT_BYTES;
use crate::server::shard_thread::thread_state::ThreadState;

/// The number of bytes that show the protocol of a client.
const FIRST_BYTES: usize = 8;

/// The end of a request's head.
const HEAD_END: [u8; 4] = *b"\r\n\r\n";

/// The state of a connection as its deadlines see it.
#[derive(Debug)]
pub(super) struct Activity {
    /// The cost of the turn under way.
    pub(super) cost: TurnCost,
    has_spoken: Cell<bool>,
    /// The start of its first read, filled up with zeros.
    first_bytes: Cell<[u8; FIRST_BYTES]>,
    /// A request waits for its answer.
    is_answering: Cell<bool>,
    /// A body is being written piece by piece.
    has_body_to_write: Cell<bool>,
    /// An answer is made, and the library has not written all of it.
    is_unflushed: Cell<bool>,
    /// When a head began to arrive that is not whole yet.
    head_since: Cell<Option<Instant>>,
    /// The time since which the peer has read nothing of an answer.
    blocked_since: Cell<Option<Instant>>,
    /// Bytes of answers that the peer has not taken.
    unwritten: Cell<usize>,
    /// Bytes of a head that is not whole yet.
    of_head: Cell<usize>,
    /// The last bytes that were read. They show whether more follows a whole head.
    last_bytes: Cell<[u8; HEAD_END.len()]>,
    /// The peer has closed its sending half.
    has_ended: Cell<bool>,
    /// The next piece of a body waits until the peer has read the written bytes.
    is_held: Cell<bool>,
    /// The connection is closed because the peer took nothing for too long.
    is_given_up: Cell<bool>,
    /// When something was last read, written or answered.
    last: Cell<Instant>,
}

impl Default for Activity {
    fn default() -> Self {
        Activity {
            cost: TurnCost::default(),
            has_spoken: Cell::new(false),
            first_bytes: Cell::default(),
            is_answering: Cell::new(false),
            has_body_to_write: Cell::new(false),
            is_unflushed: Cell::new(false),
            head_since: Cell::new(None),
            blocked_since: Cell::new(None),
            unwritten: Cell::new(0),
            of_head: Cell::new(0),
            last_bytes: Cell::new(HEAD_END),
            has_ended: Cell::new(false),
            is_held: Cell::new(false),
            is_given_up: Cell::new(false),
            last: Cell::new(Instant::now()),
        }
    }
}

impl Activity {
    /// Returns true once the peer has sent a byte.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken.get()
    }

    /// Returns the first bytes that the peer has sent.
    pub(super) fn first_bytes(&self) -> [u8; FIRST_BYTES] {
        self.first_bytes.get()
    }

    /// Returns true while a request waits for its answer.
    pub(super) fn is_answering(&self) -> bool {
        self.is_answering.get()
    }

    /// Returns true while an answer is not written whole.
    pub(super) fn is_amid_answer(&self) -> bool {
        self.is_answering.get() || self.has_body_to_write.get() || self.is_unflushed.get()
    }

    /// Returns true if a head has arrived in part.
    pub(super) fn awaits_rest(&self) -> bool {
        self.head_since.get().is_some() && !self.is_answering.get()
    }

    /// Notes that a request has arrived.
    pub(super) fn begin_answer(&self) {
        self.is_answering.set(true);
        self.head_since.set(None);
        self.of_head.set(0);
    }

    /// Notes that a body begins or ends that is written piece by piece.
    pub(super) fn note_body(&self, is_being_written: bool) {
        self.has_body_to_write.set(is_being_written);
        self.is_unflushed.set(true);
        // The time of a head that has arrived in part starts when reading resumes.
        let restarted = self.head_since.get().map(|_| Instant::now());
        self.head_since.set(restarted);
        self.last.set(Instant::now());
    }

    /// Notes that the response to the request is made. The library may have read a part of the next head meanwhile.
    pub(super) fn end_answer(&self) {
        self.is_answering.set(false);
        self.is_unflushed.set(true);
        let now = Instant::now();
        self.last.set(now);
        let bytes = self.last_bytes.get();
        // A line may end with a line feed alone.
        let is_whole = bytes == HEAD_END || bytes.ends_with(b"\n\n");
        self.head_since.set(Some(now).filter(|_| !is_whole));
    }

    /// Returns true if the peer sends nothing more, and no request of it is unanswered. Asked after a turn, when the
    /// library has taken all that was read.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended.get() && !self.is_amid_answer()
    }

    /// Returns when the connection must be closed if nothing changes; `None`: it may stay.
    pub(super) fn deadline(&self, stall: Duration, idle: Option<Duration>) -> Option<Instant> {
        // While a body is on its way, what arrives of the next request is not read further.
        let head_since = self.head_since.get().filter(|_| !self.has_body_to_write.get());
        let half_done = [head_since, self.blocked_since.get()];
        let half_done = half_done.into_iter().flatten().min().map(|since| since + stall);
        let is_busy = self.is_answering.get() || self.has_body_to_write.get();
        let is_idle = !is_busy && half_done.is_none();
        half_done.or_else(|| idle.filter(|_| is_idle).map(|idle| self.last.get() + idle))
    }

    /// Notes that the connection is closed because it stalled. What its peer has not taken for so long is dropped. A peer that
    /// only took its time with a request may be about to read the answers before it.
    pub(super) fn give_up(&self, stall: Duration) {
        self.is_given_up.set(self.blocked_since.get().is_some_and(|since| since.elapsed() >= stall));
    }

    /// Ready once the peer has read the written bytes. The library would otherwise ask for the next piece of a body.
    pub(super) fn poll_taken(&self) -> Poll<()> {
        let is_blocked = self.blocked_since.get().is_some();
        self.is_held.set(is_blocked);
        if is_blocked { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Returns the bytes that are kept: answers for the peer, and the head that it has sent in part.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unwritten.get() + self.of_head.get()
    }

    fn note_read(&self, bytes: &[u8]) {
        let size = bytes.len();
        self.cost.note_bytes(size);
        let mut last = self.last_bytes.get();
        for &byte in &bytes[size.saturating_sub(last.len())..] {
            last.rotate_left(1);
            last[last.len() - 1] = byte;
        }
        self.last_bytes.set(last);
        if !self.has_spoken.get() {
            let mut first = [0; FIRST_BYTES];
            first.iter_mut().zip(bytes).for_each(|(first, &byte)| *first = byte);
            self.first_bytes.set(first);
        }
        if !self.is_answering.get() {
            self.of_head.set(self.of_head.get() + size);
        }
        let now = Instant::now();
        self.has_spoken.set(true);
        self.last.set(now);
        if !self.is_answering.get() && self.head_since.get().is_none() {
            self.head_since.set(Some(now));
        }
    }

    fn note_written(&self, is_blocked: bool) {
        if !is_blocked {
            self.blocked_since.set(None);
            self.last.set(Instant::now());
        } else if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(Instant::now()));
        }
    }
}

/// A stream with the notes about its peer.
pub(super) struct Watched {
    stream: SocketStream,
    activity: Rc<Activity>,
    thread: Rc<ThreadState>,
}

impl Watched {
    pub(super) fn new(stream: SocketStream, activity: Rc<Activity>, thread: Rc<ThreadState>) -> Self {
        Watched { stream, activity, thread }
    }
}

/// The library owns the stream until its end.
impl Drop for Watched {
    fn drop(&mut self) {
        if self.activity.is_given_up.get() {
            self.stream.drop_unsent_at_close();
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.activity.cost.poll_read(cx));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = self.stream.take_tls_read();
        self.activity.cost.note_tls(read);
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            self.activity.note_read(bytes);
            self.thread.counters.received_bytes.add(bytes.len() as u64);
        } else if matches!(polled, Poll::Ready(Ok(()))) {
            // The peer has closed its sending half, and may still read. While a request waits, the library reads to notice a
            // reset. It would take this end of the stream for one and drop the request, so it is not told: the attendant
            // closes the connection after the answer.
            self.activity.has_ended.set(true);
            return Poll::Pending;
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let activity = &self.activity;
        activity.note_written(polled.is_pending());
        let written = if let Poll::Ready(Ok(written)) = polled { written } else { 0 };
        activity.cost.note_bytes(written);
        self.thread.counters.sent_bytes.add(written as u64);
        let of_tls = if self.stream.has_unsent() { TLS_UNSENT_BYTES } else { 0 };
        // The library passes all that it keeps.
        activity.unwritten.set(bytes.len() - written + of_tls);
        if !polled.is_pending() && activity.is_held.take() {
            cx.waker().wake_by_ref();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        let activity = &self.activity;
        if polled.is_pending() {
            activity.note_written(true);
        } else {
            activity.blocked_since.set(None);
            activity.unwritten.set(0);
            activity.is_unflushed.set(false);
            if activity.is_held.take() {
                cx.waker().wake_by_ref();
            }
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_took_nothing_for_the_timeout_loses_its_answers() {
        let activity = Activity::default();
        let is_reset_after = |stall| {
            activity.give_up(stall);
            activity.is_given_up.get()
        };
        // Half a request has arrived, and the answers before it are written.
        activity.note_read(b"G");
        assert!(!is_reset_after(Duration::ZERO));
        // The socket has just become full.
        activity.note_written(true);
        assert!(!is_reset_after(Duration::from_secs(3_600)));
        assert!(is_reset_after(Duration::ZERO));
    }
}
