//! A connection's row: requests in the order of their replies. Rule 3 of the page.
//!
//! A task owns the socket. A call that is cancelled or late keeps its place in the row, and its
//! reply is read and dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use snowbank_wire::collect::{IdCollector, InfoCollector, Progress};
use snowbank_wire::reply::{self, Reply as Frame};
use snowbank_wire::{Next, Parsed, Wait, request};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::birth::{Birth, TICK};
use crate::dial::{Failure, HELLO_TAG, Opened, READ_SIZE, Streams, Welcome, broken, describe, foreign};
use crate::error::Refusal;

/// The most requests that wait for the connection's task. A call beyond them waits for its turn.
const MAX_QUEUED: usize = 1_024;

/// The most requests in the row: far fewer than there are tags.
const MAX_IN_FLIGHT: usize = 16_384;

/// The time for which a reply that may have come already is looked for before the connection has
/// failed.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// The bytes of a PING. A daemon sends them back.
const PING: &[u8] = b"ping";

/// A request of a call.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Next { count: u32, source: Arc<str>, partial: bool, wait: Duration, is_fetch: bool },
    Ping,
    Info,
}

/// A daemon's answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Ids(Ids),
    Pong,
    Info(String),
    Refused(Arc<Refusal>),
}

/// IDs of one reply.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) ids: Vec<u64>,
    /// The time at which the daemon could read the request. The IDs are younger.
    pub(crate) birth: Birth,
    pub(crate) good_for: Duration,
    pub(crate) max_count: u32,
}

/// The handle of an open connection. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// A number that no other connection of the process has.
    pub(crate) number: u64,
    queue: mpsc::Sender<Queued>,
    pub(crate) task: AbortHandle,
    max_count: u32,
}

#[derive(Debug)]
struct Queued {
    asked: Asked,
    answer: oneshot::Sender<Answer>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Starts the task of a connection. `ended` is called with its number when the connection ends,
    /// before its calls notice that. There is a failure unless the daemon closed it while no call
    /// used it.
    pub(crate) fn start(
        opened: Opened,
        endpoint: Arc<str>,
        answer_limit: Duration,
        ended: impl FnOnce(u64, Option<Failure>) + Send + 'static,
    ) -> Self {
        let Opened { streams, input, welcome, .. } = opened;
        let (queue, mut requests) = mpsc::channel(MAX_QUEUED);
        let max_count = welcome.max_count;
        let mut row = Row {
            endpoint,
            welcome,
            streams,
            input,
            output: BytesMut::new(),
            needs_flush: false,
            in_flight: VecDeque::new(),
            last_tag: HELLO_TAG,
            answer_limit,
        };
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let task = tokio::spawn(async move {
            let failure = row.run(&mut requests).await;
            ended(number, failure);
        });
        Self { number, queue, task: task.abort_handle(), max_count }
    }

    /// Asks the daemon. Returns `None` if the connection has ended before the whole reply came.
    pub(crate) async fn ask(&self, mut asked: Asked) -> Option<Answer> {
        if let Asked::Next { count, partial: true, .. } = &mut asked {
            *count = (*count).min(self.max_count);
        }
        let (answer, answered) = oneshot::channel();
        self.queue.send(Queued { asked, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// The state of a connection's task.
struct Row {
    endpoint: Arc<str>,
    welcome: Welcome,
    streams: Streams,
    input: BytesMut,
    output: BytesMut,
    needs_flush: bool,
    in_flight: VecDeque<InFlight>,
    last_tag: u16,
    answer_limit: Duration,
}

/// A request without its whole reply.
struct InFlight {
    tag: u16,
    /// The time at which the daemon could read it: when it was sent, or the reply before it had ended.
    due: Birth,
    /// The time from which the wait counts: the same, or the last progress of the reply.
    due_at: Instant,
    wait: Duration,
    is_fetch: bool,
    /// True once a frame of the reply has come.
    has_begun: bool,
    collected: Collected,
    answer: oneshot::Sender<Answer>,
}

/// The part of a reply that has come.
enum Collected {
    Ids(IdCollector),
    Pong,
    Info(InfoCollector),
}

impl Row {
    /// Serves requests until the connection ends. Returns the reason if that is a failure.
    async fn run(&mut self, requests: &mut mpsc::Receiver<Queued>) -> Option<Failure> {
        let mut last_look = None;
        loop {
            match self.parse() {
                Ok(true) => {
                    last_look = None;
                    continue;
                }
                Ok(false) => {}
                Err(failure) => return Some(failure),
            }
            let late_at = last_look.unwrap_or_else(|| self.late_at());
            let begins = self.input.is_empty();
            let has_room = self.in_flight.len() < MAX_IN_FLIGHT;
            self.input.reserve(READ_SIZE);
            // Bytes that are there come first: a program that was blocked finds them late, and its
            // daemon is not.
            tokio::select! {
                biased;
                read = self.streams.reader.read_buf(&mut self.input) => match read {
                    Ok(0) => return self.lost("it closed the connection".to_owned()),
                    Ok(_) if begins => {
                        self.progressed();
                        last_look = None;
                    }
                    Ok(_) => {}
                    Err(error) => return self.lost(describe(&error)),
                },
                written = push(&mut self.streams.writer, &mut self.output),
                    if self.needs_flush || !self.output.is_empty() =>
                {
                    match written {
                        Ok(needs_flush) => self.needs_flush = needs_flush,
                        Err(error) => return self.lost(describe(&error)),
                    }
                }
                queued = requests.recv(), if has_room => match queued {
                    Some(queued) => self.send(queued),
                    None => return None,
                },
                () = sleep_until(late_at), if !self.in_flight.is_empty() => {
                    if last_look.is_some() {
                        let limit = self.answer_limit;
                        return self.lost(format!("no answer within {limit:?} beyond the wait"));
                    }
                    // A program that was stopped has not read yet what came meanwhile.
                    last_look = Some(Instant::now() + LAST_LOOK);
                }
            }
        }
    }

    /// Returns the failure of a connection that was lost. One that was used, and that no call uses
    /// now, is none.
    fn lost(&self, reason: String) -> Option<Failure> {
        let is_idle = self.in_flight.is_empty() && self.last_tag != HELLO_TAG;
        (!is_idle).then(|| Failure::new(reason))
    }

    /// Returns the time at which the daemon counts as stalled.
    fn late_at(&self) -> Instant {
        let Some(front) = self.in_flight.front() else { return Instant::now() };
        front.due_at + front.wait + self.answer_limit
    }

    /// Gives the daemon the time for an answer again: a frame has begun, or another one follows.
    fn progressed(&mut self) {
        if let Some(front) = self.in_flight.front_mut() {
            (front.due_at, front.wait) = (Instant::now(), Duration::ZERO);
        }
    }

    /// Encodes a request, and adds it to the row.
    fn send(&mut self, Queued { asked, answer }: Queued) {
        if answer.is_closed() {
            return;
        }
        // A client uses no tag 0.
        self.last_tag = self.last_tag.checked_add(1).unwrap_or(HELLO_TAG);
        let (tag, mut wait) = (self.last_tag, Duration::ZERO);
        let mut frame = Vec::new();
        let (encoded, collected) = match &asked {
            Asked::Next { count, source, partial, wait: longest, .. } => {
                wait = *longest;
                let source = source.as_bytes();
                let next = Next {
                    count: *count,
                    source,
                    wait: Wait::at_most(wait),
                    explicit: false,
                    partial: *partial,
                };
                (request::encode_next(&mut frame, tag, &next), Collected::Ids(IdCollector::new(&next)))
            }
            Asked::Ping => (request::encode_ping(&mut frame, tag, PING), Collected::Pong),
            Asked::Info => {
                request::encode_info(&mut frame, tag);
                (Ok(()), Collected::Info(InfoCollector::default()))
            }
        };
        // The options were checked, so each request fits its frame.
        encoded.expect("names and pings are short");
        self.output.extend_from_slice(&frame);
        self.in_flight.push_back(InFlight {
            tag,
            due: Birth::now(),
            due_at: Instant::now(),
            wait,
            is_fetch: matches!(asked, Asked::Next { is_fetch: true, .. }),
            has_begun: false,
            collected,
            answer,
        });
    }

    /// Takes the first frame from the input, and returns whether there was one.
    fn parse(&mut self) -> Result<bool, Failure> {
        let input = self.input.split();
        let (frame, tag, consumed) = match reply::parse(&input) {
            Parsed::Incomplete => {
                self.input = input;
                return Ok(false);
            }
            Parsed::BadLength(length) => return Err(Failure::new(foreign(length, &input))),
            Parsed::Frame { content: Err(fault), .. } => return Err(Failure::new(broken(fault))),
            Parsed::Frame { content: Ok(frame), tag, consumed } => (frame, tag, consumed),
        };
        self.take(&frame, tag)?;
        self.input = input;
        self.input.advance(consumed);
        if !self.input.is_empty() {
            self.progressed();
        }
        Ok(true)
    }

    /// Adds a frame to the reply that the row expects.
    fn take(&mut self, frame: &Frame<'_>, tag: u16) -> Result<(), Failure> {
        let refusal = match frame {
            Frame::Error(error) => Some(Arc::new(Refusal::new(&self.endpoint, error))),
            _ => None,
        };
        if let (0, Some(refusal)) = (tag, &refusal) {
            return Err(Failure::Lost(refusal.clone()));
        }
        let Some(front) = self.in_flight.front_mut().filter(|front| front.tag == tag) else {
            return Err(Failure::new(broken(format!(
                "a frame with tag {tag}, which no request in turn has"
            ))));
        };
        let progress = match (&mut front.collected, frame) {
            (_, Frame::Error(_)) if !front.has_begun => Progress::Done,
            (Collected::Ids(ids), frame) => ids.add(frame).map_err(|bad| Failure::new(broken(bad)))?,
            (Collected::Pong, Frame::Pong(PING)) => Progress::Done,
            (Collected::Info(info), frame) => info.add(frame).map_err(|bad| Failure::new(broken(bad)))?,
            _ => return Err(Failure::new(broken("a frame of another kind than the request asked for"))),
        };
        if progress == Progress::More {
            front.has_begun = true;
            self.progressed();
            return Ok(());
        }
        let (due, good_for) = (front.due, self.welcome.good_for);
        let age = due.age_at(&Birth::now());
        if front.is_fetch && refusal.is_none() && age + TICK > good_for {
            return Err(Failure::new(format!(
                "it answered after {age:?}, and its IDs are good for {good_for:?}"
            )));
        }
        let Some(InFlight { collected, answer, .. }) = self.in_flight.pop_front() else { return Ok(()) };
        if let Some(next) = self.in_flight.front_mut() {
            (next.due_at, next.due) = (Instant::now(), Birth::now());
        }
        let answered = match (refusal, collected) {
            (Some(refusal), _) => Answer::Refused(refusal),
            (None, Collected::Ids(ids)) => Answer::Ids(Ids {
                ids: ids.finish(),
                birth: due,
                good_for,
                max_count: self.welcome.max_count,
            }),
            (None, Collected::Pong) => Answer::Pong,
            (None, Collected::Info(info)) => {
                Answer::Info(String::from_utf8_lossy(&info.into_json()).into_owned())
            }
        };
        // The error means that the call was cancelled or late.
        drop(answer.send(answered));
        Ok(())
    }
}

/// Writes some of the output, or flushes if none is left. Returns whether a flush is due. Dropping
/// the future loses no bytes.
async fn push(writer: &mut (impl AsyncWrite + Unpin), output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(false);
    }
    writer.write_buf(output).await?;
    Ok(true)
}

#[cfg(test)]
mod unit {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_end_of_a_connection_is_noted_before_its_calls_hear_of_it() {
        let streams = Streams { reader: Box::new(tokio::io::empty()), writer: Box::new(tokio::io::sink()) };
        let welcome =
            Welcome { good_for: Duration::from_secs(1), max_count: 1, instance: 1, claims: Vec::new() };
        let opened = Opened { streams, input: BytesMut::new(), welcome };
        let is_noted = Arc::new(AtomicBool::new(false));
        let note = is_noted.clone();
        let connection = Connection::start(opened, "ids".into(), Duration::from_secs(5), move |_, _| {
            std::thread::sleep(Duration::from_millis(200));
            note.store(true, Ordering::SeqCst);
        });
        assert!(connection.ask(Asked::Ping).await.is_none());
        assert!(is_noted.load(Ordering::SeqCst));
    }
}
