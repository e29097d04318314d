//! One connection: greeting, pipelining, and matching replies to calls.
//!
//! Replies come in the order of the requests, so the calls in flight form a queue. The tag only
//! shows that both sides count the requests alike. If a caller abandons its call, the call stays in
//! that queue: the connection reads the reply and drops it, so that later replies still match. Any
//! frame other than the next reply ends the connection, because later frames could belong to any
//! call.

mod foreign;
mod greeting;
mod in_flight;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use foreign::bad_length;
use in_flight::InFlight;

use super::batch::Batch;
use super::call::{Call, exhausted_beyond};
use super::endpoint::Streams;
use super::error::{Error, Refusal, closes, moves_on};
use super::exchange::Exchange;
use super::queue::Queue;
use super::shared::Shared;
use snowbank_wire::collect::Progress;
use snowbank_wire::reply::{self, ErrorReply, Reply as Frame};
use snowbank_wire::{Parsed, request};

/// The most requests that are sent ahead of their replies. A daemon reads some 500 requests at
/// once, so further requests would only wait in the daemon's socket.
const MAX_IN_FLIGHT: usize = 1_024;

/// The least free space in the input before a read, in bytes.
const READ_SIZE: usize = 16 << 10;

/// The tag of an ERROR that answers no request.
const NO_TAG: u16 = 0;

/// The tag of the greeting. The tags of calls begin at 1 again.
const GREETING_TAG: u16 = 1;

const CLOSED: &str = "closed by the daemon";

/// The reason why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The application has dropped every handle.
    Abandoned,
    /// The endpoint failed, or serves no client for now.
    Failed(Error),
    /// The daemon has no IDs in time for one call, and that call now asks another endpoint. The
    /// driver should prefer other endpoints for the time that the daemon named, and let this daemon
    /// answer the calls in flight ([`finish`](Connection::finish)).
    Exhausted(Error),
}

/// A connection, before or after its greeting.
pub(super) struct Connection {
    shared: Arc<Shared>,
    /// The endpoint as text. If its name has several IP addresses, the daemon's IP address follows.
    pub(super) endpoint: Arc<str>,
    /// The [number](Shared::address_number) of the IP address that accepted the connection.
    pub(super) address_number: usize,
    streams: Streams,
    input: BytesMut,
    output: BytesMut,
    /// The buffer into which requests are encoded.
    scratch: Vec<u8>,
    in_flight: VecDeque<InFlight>,
    last_tag: u16,
    /// A timer that ends when the oldest request in flight counts as stalled, or earlier.
    stall_timer: Pin<Box<Sleep>>,
    /// True once the daemon has answered a call without an error. The greeting does not count.
    pub(super) has_answered: bool,
    /// True once the connection takes no further calls. The connection ends after the reply to the
    /// last call in flight.
    is_finishing: bool,
    /// The time at which connecting began.
    began: Instant,
}

impl Connection {
    /// Serves calls until the connection ends. Then fails all calls in flight, unless the daemon
    /// can still answer them.
    pub(super) async fn serve(&mut self, queue: &mut Queue) -> End {
        let end = self.exchange(queue).await;
        let reason = match &end {
            End::Exhausted(_) => return end,
            End::Abandoned => "the client was dropped".into(),
            End::Failed(Error::Lost { reason, .. }) => reason.clone(),
            End::Failed(error) => error.to_string().into(),
        };
        for call in self.in_flight.drain(..) {
            call.exchange.fail(Error::Lost { endpoint: self.endpoint.clone(), reason: Arc::clone(&reason) });
        }
        end
    }

    /// Takes no further calls, and waits for the replies to the calls in flight. Gives up if the
    /// daemon stalls.
    pub(super) async fn finish(mut self) {
        self.is_finishing = true;
        let (_, no_calls) = mpsc::channel(1);
        let mut queue = Queue::new(no_calls);
        // An `exhausted` refusal ends one call. The other calls stay in flight.
        while let End::Exhausted(_) = self.serve(&mut queue).await {}
    }

    async fn exchange(&mut self, queue: &mut Queue) -> End {
        // The greeting's last read may have brought further frames.
        let mut done = self.deliver_replies();
        while done.is_ok() && !(self.is_finishing && self.in_flight.is_empty()) {
            done = self.step(queue).await;
        }
        // If there is no error, all replies have arrived, and the connection takes no further
        // calls.
        done.err().unwrap_or_else(|| End::Failed(self.lost(CLOSED)))
    }

    /// Waits for bytes, room to write, a call or a stall, and handles what comes first.
    async fn step(&mut self, queue: &mut Queue) -> Result<(), End> {
        self.input.reserve(READ_SIZE);
        tokio::select! {
            biased;
            read = self.streams.reader.read_buf(&mut self.input) => match read {
                Ok(0) => Err(End::Failed(self.lost(CLOSED))),
                Ok(_) => self.deliver_replies(),
                Err(error) => Err(End::Failed(self.lost(&describe(&error)))),
            },
            written = self.streams.writer.push(&mut self.output), if self.streams.writer.has_work(&self.output) => {
                if written.is_err() {
                    // The daemon may have sent its reason before it closed, so the connection reads
                    // to the end.
                    self.is_finishing = true;
                    self.output.clear();
                    self.streams.writer.needs_flush = false;
                }
                Ok(())
            }
            call = queue.next(), if !self.is_finishing && self.in_flight.len() < MAX_IN_FLIGHT => {
                self.send(call.ok_or(End::Abandoned)?);
                while self.in_flight.len() < MAX_IN_FLIGHT && let Some(call) = queue.try_next() {
                    self.send(call);
                }
                Ok(())
            }
            () = self.stall_timer.as_mut(), if !self.in_flight.is_empty() => self.check_stall(),
        }
    }

    /// Encodes a call and puts it in flight, unless its caller abandoned it.
    fn send(&mut self, call: Call) {
        let Call { exchange, moves_on_by } = call;
        if exchange.is_abandoned() {
            return;
        }
        // Tags count from 1 to 65535 and then begin at 1 again. Far fewer calls are in flight, so
        // their tags differ.
        let tag = self.last_tag.checked_add(1).unwrap_or(1);
        let wait = match self.encode(tag, &exchange) {
            Ok(wait) => wait,
            Err(error) => return exchange.fail(error),
        };
        self.last_tag = tag;
        let now = Instant::now();
        let entry = InFlight {
            tag,
            exchange,
            moves_on_by,
            sent_at: now,
            read_by: now,
            wait,
            progress_at: now,
            begun: false,
        };
        self.in_flight.push_back(entry);
        if self.in_flight.len() == 1 {
            self.arm_stall();
        }
    }

    /// Makes the timer end by the time when the oldest request in flight counts as stalled.
    fn arm_stall(&mut self) {
        let Some(front) = self.in_flight.front() else { return };
        let stalls_at = front.stalls_at(self.shared.options.answer_timeout);
        if stalls_at < self.stall_timer.deadline() {
            self.stall_timer.as_mut().reset(stalls_at);
        }
    }

    /// Encodes a request. Returns the time that the daemon may hold that request.
    fn encode(&mut self, tag: u16, exchange: &Exchange) -> Result<Duration, Error> {
        self.scratch.clear();
        let wait = match exchange {
            Exchange::Ids { source, asked, .. } => {
                let next = asked.on_wire(source);
                request::encode_next(&mut self.scratch, tag, &next).map_err(Error::bad_option)?;
                asked.wait
            }
            Exchange::Info(..) => {
                request::encode_info(&mut self.scratch, tag);
                Duration::ZERO
            }
            Exchange::Ping(_) => {
                // An empty body always fits.
                let _ = request::encode_ping(&mut self.scratch, tag, &[]);
                Duration::ZERO
            }
        };
        self.output.extend_from_slice(&self.scratch);
        Ok(wait)
    }

    /// Hands every complete frame to the call that the frame answers.
    fn deliver_replies(&mut self) -> Result<(), End> {
        loop {
            let (frame, tag, consumed) = match reply::parse(&self.input) {
                Parsed::Incomplete => return Ok(()),
                Parsed::BadLength(length) => {
                    let what = bad_length(length, &self.input);
                    return Err(self.fail_front(&what));
                }
                Parsed::Frame { content: Err(fault), .. } => return Err(self.fail_front(&fault)),
                Parsed::Frame { content: Ok(frame), tag, consumed } => (frame, tag, consumed),
            };
            if let (Frame::Error(error), NO_TAG) = (&frame, tag) {
                return Err(End::Failed(self.refused(error)));
            }
            let Some(front) = self.in_flight.front_mut() else {
                return Err(self.fail_front(&"a frame that answers no request"));
            };
            if tag != front.tag {
                let expected = front.tag;
                return Err(self.fail_front(&wrong_tag(tag, expected)));
            }
            let taken = match &frame {
                Frame::Error(error) if !front.begun => {
                    let error = self.refused(error);
                    self.input.advance(consumed);
                    self.refuse_front(error)?;
                    continue;
                }
                frame => front.add(frame),
            };
            self.input.advance(consumed);
            match taken {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => self.finish_front()?,
                Err(bad) => return Err(self.fail_front(&bad)),
            }
        }
    }

    /// Takes the oldest call, whose reply is complete, out of the queue. The daemon may have waited
    /// until now to read the next request.
    fn take_front(&mut self) -> Option<InFlight> {
        let front = self.in_flight.pop_front();
        if let Some(next) = self.in_flight.front_mut() {
            next.read_by = Instant::now();
        }
        self.arm_stall();
        front
    }

    /// Answers the oldest call, whose reply is complete.
    fn finish_front(&mut self) -> Result<(), End> {
        let Some(front) = self.take_front() else {
            return Ok(());
        };
        self.has_answered = true;
        // A caller that abandoned its call needs no answer.
        match front.exchange {
            Exchange::Ids { ids, reply, .. } => {
                drop(reply.send(Ok(Batch { ids: ids.finish(), endpoint: self.endpoint.clone() })));
            }
            Exchange::Ping(reply) => drop(reply.send(Ok(front.sent_at.elapsed()))),
            Exchange::Info(json, reply) => match json.finish() {
                Ok(info) => drop(reply.send(Ok(info))),
                Err(bad) => {
                    let error = self.broken(&bad);
                    drop(reply.send(Err(error.clone())));
                    return Err(End::Failed(error));
                }
            },
        }
        Ok(())
    }

    /// Answers the oldest call with the daemon's refusal, which may also end the connection.
    fn refuse_front(&mut self, error: Error) -> Result<(), End> {
        let Some(front) = self.take_front() else {
            return Ok(());
        };
        let call_moves_on =
            front.moves_on_by.is_some_and(|deadline| exhausted_beyond(&error, deadline).is_some());
        front.exchange.fail(error.clone());
        // If the only daemon has no usable clock or ceiling, keep the connection: no other daemon
        // could serve.
        let has_others = self.shared.options.endpoints.len() > 1;
        if error.code().is_some_and(|code| closes(code) || (moves_on(code) && has_others)) {
            return Err(End::Failed(error));
        }
        if call_moves_on { Err(End::Exhausted(error)) } else { Ok(()) }
    }

    /// Fails the oldest call, because the daemon broke the protocol. Returns the same error as the
    /// reason to end the connection.
    fn fail_front(&mut self, what: &dyn std::fmt::Display) -> End {
        let error = self.broken(what);
        if let Some(front) = self.in_flight.pop_front() {
            front.exchange.fail(error.clone());
        }
        End::Failed(error)
    }

    /// Ends the connection if the daemon has stalled. Replies do not put the timer off, so it can
    /// end too early; then it is set again.
    fn check_stall(&mut self) -> Result<(), End> {
        let limit = self.shared.options.answer_timeout;
        let Some(front) = self.in_flight.front() else { return Ok(()) };
        let stalls_at = front.stalls_at(limit);
        if stalls_at <= Instant::now() {
            let waited = front.wait + limit;
            return Err(End::Failed(self.lost(&format!("it did not answer within {waited:?}"))));
        }
        self.stall_timer.as_mut().reset(stalls_at);
        Ok(())
    }

    fn refused(&self, error: &ErrorReply<'_>) -> Error {
        Error::Refused(Arc::new(Refusal::new(&self.endpoint, error)))
    }

    fn lost(&self, reason: &str) -> Error {
        Error::Lost { endpoint: self.endpoint.clone(), reason: reason.into() }
    }

    fn broken(&self, reason: &dyn std::fmt::Display) -> Error {
        Error::Protocol { endpoint: self.endpoint.clone(), reason: reason.to_string().into() }
    }
}

fn wrong_tag(found: u16, expected: u16) -> String {
    format!("a reply with tag {found} where {expected} is due")
}

/// Returns the reason that TLS or the operating system gave, without Rust's "(os error 111)".
fn describe(error: &std::io::Error) -> String {
    #[cfg(feature = "tls")]
    if let Some(text) = snowbank_tls::explain(error) {
        return text;
    }
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

const _: () = assert!(
    MAX_IN_FLIGHT < u16::MAX as usize,
    "tags in flight must differ, so that a lost or doubled reply shows as a wrong tag"
);
