//! One connection, from bytes read to bytes written.
//!
//! A connection works in *turns*. A turn reads what is there, takes all requests in it one after the other, and writes
//! their replies at once; it borrows its worker's buffers and gives them back before it sleeps, so that an idle connection
//! owns none. What a turn leaves (half a request, replies that the client does not take yet) the connection keeps.
//!
//! Requests of one connection are served strictly in its order: while one waits for IDs, nothing after it is looked at.

mod wait;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;

use self::wait::Waiting;
use super::backlog::Backlog;
use super::worker::{INPUT_SIZE, Member, State, Worker};
use crate::clock::{self, BootMicros};
use crate::front::{Ask, Front, Granted, Step};
use crate::server::lifecycle::live_config::LiveConfig;
use crate::server::net::rejections;
use crate::server::net::socket_stream::SocketStream;
use crate::source::line::Refusal;
use snowbank_client::protocol::{ErrorCode, MAX_REPLY_SIZE};

/// How long a connection that is being closed is read on, so that its last reply arrives before the reset that unread
/// bytes would cause.
const LINGER: Duration = Duration::from_secs(1);

/// When a connection that has not sent a byte yet was last read from.
const NEVER_READ: BootMicros = BootMicros(0);

/// Serves one connection to its end.
pub(super) async fn serve<F: Front>(stream: SocketStream, front: F, member: Member) {
    let mut connection = Connection {
        stream,
        front,
        member,
        unread: Vec::new(),
        unwritten: Vec::new(),
        read_at: NEVER_READ,
        backlog: None,
    };
    // An error is the peer's doing or its network's: it has no connection any more to be told on, and no operator
    // wants a line for each.
    let _ = connection.run().await;
}

struct Connection<F> {
    stream: SocketStream,
    front: F,
    member: Member,
    /// Bytes read and not yet understood: half a request, or requests behind one that waits.
    unread: Vec<u8>,
    /// Bytes of replies that the socket did not take.
    unwritten: Vec<u8>,
    /// When `unread` was read, its first byte if it is half a request: waits and `frame_timeout` count from there.
    read_at: BootMicros,
    /// The rest of a reply longer than a frame. Boxed, because hardly any connection ever has one.
    backlog: Option<Box<Backlog>>,
}

/// How a turn ended.
enum Turn {
    /// All that was there is answered.
    Done,
    /// All that was read is answered, and there is more to read: it filled the buffer.
    Full,
    /// There is more to do as soon as the replies so far are written.
    Again,
    /// A request waits for IDs.
    Waits(Box<Waiting>),
    /// The last reply is encoded.
    Close,
    /// The peer has sent its last byte.
    End,
}

impl<F: Front> Connection<F> {
    async fn run(&mut self) -> io::Result<()> {
        let mut read = true;
        loop {
            let turn = if read { self.next_turn().await? } else { self.turn_of_unread() };
            // Replies that fit the socket's buffer are out before anything is awaited.
            if !self.unwritten.is_empty() || self.stream.has_unsent() {
                Box::pin(self.flush()).await?;
            }
            match turn {
                Turn::Done => read = true,
                // Others on this shard have their turn before a client that sends faster than it is answered, or has a
                // long reply coming.
                Turn::Full | Turn::Again => {
                    read = matches!(turn, Turn::Full);
                    tokio::task::yield_now().await;
                }
                Turn::Waits(waiting) => {
                    Box::pin(self.wait(waiting)).await?;
                    read = self.unread.is_empty() && self.backlog.is_none() && self.unwritten.is_empty();
                }
                Turn::Close => return Box::pin(self.linger()).await,
                Turn::End => return Ok(()),
            }
        }
    }

    /// Waits for bytes and takes a turn with them; the wait has a deadline where one is due.
    async fn next_turn(&mut self) -> io::Result<Turn> {
        let (version, deadline) = self.deadline();
        let Some(deadline) = deadline else {
            return poll_fn(|cx| self.poll_turn(cx, version)).await;
        };
        // Boxed, so that connections without a deadline have no room for a timer.
        let turn = Box::pin(tokio::time::timeout(deadline, poll_fn(|cx| self.poll_turn(cx, version)))).await;
        turn.unwrap_or(Ok(Turn::End))
    }

    /// How long to wait for bytes, by which version of the configuration.
    fn deadline(&self) -> (u64, Option<Duration>) {
        let live_config = self.member.worker.live_config.borrow();
        let limits = &live_config.limits;
        let deadline = if self.unread.is_empty() {
            limits.idle_timeout
        } else {
            let late = clock::os::boot().since(self.read_at);
            Some(limits.frame_timeout.saturating_sub(late))
        };
        (live_config.version, deadline)
    }

    /// Reads, and takes a turn with what came. Nothing came, and its deadline is of another `version` than is in force: a
    /// turn that did nothing.
    fn poll_turn(&mut self, cx: &mut Context<'_>, version: u64) -> Poll<io::Result<Turn>> {
        let worker = std::rc::Rc::clone(&self.member.worker);
        let state = &mut *worker.state.borrow_mut();
        state.wakers.remember(self.member.slot(), cx.waker());
        let mut input = std::mem::take(&mut state.input);
        let live_config = &worker.live_config.borrow();
        let polled = self.poll_turn_with(&worker, live_config, state, &mut input, cx);
        state.input = input;
        match polled {
            Poll::Pending if live_config.version != version => Poll::Ready(Ok(Turn::Done)),
            polled => polled,
        }
    }

    fn poll_turn_with(
        &mut self,
        worker: &Worker,
        live_config: &LiveConfig,
        state: &mut State,
        input: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Turn>> {
        let kept = self.unread.len();
        input[..kept].copy_from_slice(&self.unread);
        let mut buffer = ReadBuf::new(input);
        buffer.advance(kept);
        match self.stream.poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                let is_newcomer = self.read_at == NEVER_READ;
                if worker.draining.get() && !(is_newcomer && worker.awaits_newcomers.get()) {
                    self.member.note_drained();
                }
                return Poll::Pending;
            }
        }
        let end = buffer.filled().len();
        if end == kept {
            return Poll::Ready(Ok(Turn::End));
        }
        worker.counters.received_bytes.add((end - kept) as u64);
        let now = worker.now();
        let half_began = std::mem::replace(&mut self.read_at, now.boot);
        state.shard.wake(now);
        let mut turn = self.take(worker, live_config, state, &input[..end]);
        if matches!(turn, Turn::Done) && end == input.len() {
            turn = Turn::Full;
        }
        if kept > 0 && self.unread.len() == end {
            // Still the half request of before. What a whole one leaves behind has begun with this read.
            self.read_at = half_began;
        }
        let ended = self.end_turn(worker, state, turn, Some(cx));
        state.timing.end_turn(&worker.counters.latency, now.boot);
        Poll::Ready(ended)
    }

    /// A turn with what was read before.
    fn turn_of_unread(&mut self) -> Turn {
        let worker = std::rc::Rc::clone(&self.member.worker);
        let state = &mut *worker.state.borrow_mut();
        let unread = std::mem::take(&mut self.unread);
        let now = worker.now();
        state.shard.wake(now);
        let turn = self.take(&worker, &worker.live_config.borrow(), state, &unread);
        state.timing.end_late_turn(&worker.counters.latency, self.read_at, now.boot);
        if matches!(turn, Turn::Done) {
            // What is left is half a request, whose time to arrive starts now: until here nothing more was read.
            self.read_at = now.boot;
        }
        self.end_turn(&worker, state, turn, None).unwrap_or(Turn::End)
    }

    /// Writes what the turn has encoded, keeps what the socket does not take, and lets the shard claim ahead.
    fn end_turn(
        &mut self,
        worker: &Worker,
        state: &mut State,
        turn: Turn,
        cx: Option<&mut Context<'_>>,
    ) -> io::Result<Turn> {
        let written = match cx {
            Some(cx) if !state.output.is_empty() => match self.stream.poll_write(cx, &state.output) {
                Poll::Ready(written) => written,
                Poll::Pending => Ok(0),
            },
            _ => Ok(0),
        };
        if let Ok(written) = written {
            worker.counters.sent_bytes.add(written as u64);
            self.unwritten.extend_from_slice(&state.output[written..]);
        }
        state.output.clear();
        state.shard.top_up();
        written.map(|_| turn)
    }

    /// Takes all requests in `bytes`, and keeps what is left of them.
    fn take(&mut self, worker: &Worker, live_config: &LiveConfig, state: &mut State, bytes: &[u8]) -> Turn {
        let mut at = 0;
        let turn = loop {
            if self.backlog.is_some() && !self.encode_backlog(live_config, state) {
                break Turn::Again;
            }
            if self.is_queue_full(live_config, &state.output) {
                break Turn::Again;
            }
            // What has arrived before the stop is answered; what was read after it was noticed is not.
            let draining = worker.draining.get() && !self.member.is_undrained();
            match self.front.step(&bytes[at..], &live_config.facts, draining, &mut state.output) {
                Step::Incomplete => break Turn::Done,
                Step::Answered { consumed, error } => {
                    at += consumed;
                    note_answer(worker, error);
                }
                Step::Ids { consumed, ask } => {
                    at += consumed;
                    if let Some(waiting) = self.serve_ids(worker, live_config, state, ask, &bytes[at..]) {
                        break Turn::Waits(waiting);
                    }
                    state.timing.note_served();
                }
                Step::Close { error } => {
                    if let Some(complaint) = self.front.complaint(&bytes[at..]) {
                        rejections::log(self.stream.peer(), complaint);
                    }
                    at = bytes.len();
                    note_answer(worker, error);
                    break Turn::Close;
                }
            }
        };
        keep(&mut self.unread, &bytes[at..]);
        turn
    }

    /// Whether as much is queued for the client as may be, one more frame not counted.
    fn is_queue_full(&self, live_config: &LiveConfig, output: &[u8]) -> bool {
        let room = live_config.limits.max_reply_queue_bytes.saturating_sub(MAX_REPLY_SIZE);
        output.len() + self.unwritten.len() > room
    }

    /// Serves a request for IDs: encodes them, or a refusal, or says that it waits. `later` are the bytes behind it.
    #[inline]
    fn serve_ids(
        &mut self,
        worker: &Worker,
        live_config: &LiveConfig,
        state: &mut State,
        ask: Ask,
        later: &[u8],
    ) -> Option<Box<Waiting>> {
        state.runs.clear();
        let (lane, rng) = state.shard.lane(ask.source);
        let ahead = || self.front.demand(later, ask.source, &live_config.facts);
        match lane.take(ask.count, ahead, rng, &mut state.runs) {
            Ok(()) => {
                self.grant(worker, live_config, state, ask);
                None
            }
            Err(missing) => self.line_up(worker, live_config, state, ask, missing),
        }
    }

    /// Encodes the IDs in `state.runs`, or makes them the backlog if they are more than a frame.
    #[inline]
    fn grant(&mut self, worker: &Worker, live_config: &LiveConfig, state: &mut State, ask: Ask) {
        let counters = &worker.counters.sources[ask.source];
        counters.requests.add(1);
        let some_of_it = || state.runs.iter().map(|run| u64::from(run.count)).sum();
        counters.ids.add(if ask.partial { some_of_it() } else { ask.count });
        let numbering = live_config.source(ask.source).numbering();
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        if self.front.frame_limit(ask.form, needs_list).fits(&state.runs) {
            let granted = Granted { runs: &state.runs, random, needs_list, more: false };
            self.front.grant(&mut state.output, ask.form, &granted, &mut state.rng);
        } else {
            self.backlog = Some(Box::new(Backlog::new(ask, numbering, &state.runs)));
            state.shrink();
        }
    }

    /// Encodes a refusal of the source.
    fn refuse(
        &self,
        worker: &Worker,
        live_config: &LiveConfig,
        state: &mut State,
        ask: Ask,
        refusal: Refusal,
    ) {
        let name = live_config.source(ask.source).name();
        let code = self.front.refuse(&mut state.output, ask.form, refusal, name);
        let counters = &worker.counters.sources[ask.source];
        counters.requests.add(1);
        counters.exhausted.add(u64::from(code == ErrorCode::Exhausted));
        worker.counters.errors.add(code);
    }

    /// Encodes more of the backlog while the queue has room. True when nothing of it is left.
    fn encode_backlog(&mut self, live_config: &LiveConfig, state: &mut State) -> bool {
        let Some(mut backlog) = self.backlog.take() else {
            return true;
        };
        let form = backlog.ask.form;
        let numbering = live_config.source(backlog.ask.source).numbering();
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        let limit = self.front.frame_limit(form, needs_list);
        while !self.is_queue_full(live_config, &state.output) {
            let more = backlog.next_frame(numbering, limit, &mut state.runs);
            let granted = Granted { runs: &state.runs, random, needs_list, more };
            self.front.grant(&mut state.output, form, &granted, &mut state.rng);
            if !more {
                return true;
            }
        }
        self.backlog = Some(backlog);
        false
    }

    /// Writes all that is queued. The client has to take some of it within each `write_timeout`.
    async fn flush(&mut self) -> io::Result<()> {
        let timeout = self.member.worker.live_config.borrow().limits.write_timeout;
        let mut written = 0;
        while written < self.unwritten.len() || self.stream.has_unsent() {
            let (stream, bytes) = (&mut self.stream, &self.unwritten[written..]);
            match tokio::time::timeout(timeout, poll_fn(|cx| stream.poll_send(cx, bytes))).await {
                Ok(Ok(size)) => {
                    written += size;
                    self.member.worker.counters.sent_bytes.add(size as u64);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        // An idle connection owns no buffer.
        self.unwritten = Vec::new();
        Ok(())
    }

    /// Says that nothing more comes, and reads on for a moment so that the last reply arrives.
    async fn linger(&mut self) -> io::Result<()> {
        let stream = &mut self.stream;
        match tokio::time::timeout(LINGER, poll_fn(|cx| stream.poll_half_close(cx))).await {
            Ok(closed) => closed?,
            Err(_) => return Ok(()),
        }
        self.member.note_drained();
        let mut discarded = [0; 4_096];
        let stream = &mut self.stream;
        let until_end = async {
            loop {
                let mut buffer = ReadBuf::new(&mut discarded);
                poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await?;
                if buffer.filled().is_empty() {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(LINGER, until_end).await.unwrap_or(Ok(()))
    }
}

/// Counts what needed no IDs.
#[cold]
fn note_answer(worker: &Worker, error: Option<ErrorCode>) {
    match error {
        Some(code) => worker.counters.errors.add(code),
        None => worker.counters.other_requests.add(1),
    }
}

/// Keeps `rest` for the next turn; an idle connection owns no buffer.
fn keep(unread: &mut Vec<u8>, rest: &[u8]) {
    debug_assert!(rest.len() <= INPUT_SIZE);
    if rest.is_empty() {
        *unread = Vec::new();
    } else {
        unread.clear();
        unread.extend_from_slice(rest);
    }
}
