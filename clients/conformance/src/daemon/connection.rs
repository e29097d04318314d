//! A client's connection to a scripted daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep;

use super::frames;
use super::life::LifeState;
use super::request::{self, Next, Request};
use crate::case::{Answer, Then};

/// The most IDs of a LIST frame: 65,536 bytes less the head, and 8 for each.
const IDS_PER_FRAME: usize = 8_191;

/// The place of the flags in a frame.
const FLAGS_AT: usize = 5;

/// Both directions of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) struct Connection {
    life: Arc<LifeState>,
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    output: Vec<u8>,
    greeted: bool,
    /// The unanswered NEXT requests. The daemon answers them once their number reaches `gather`.
    gathered: Vec<(Request, u16)>,
    is_silent: bool,
}

/// Says whether the connection goes on after a request.
#[derive(PartialEq, Eq)]
enum Outcome {
    Goes,
    Ends,
}

impl Connection {
    pub(super) fn new(life: Arc<LifeState>, stream: Box<dyn Stream>) -> Self {
        Self {
            life,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            greeted: false,
            gathered: Vec::new(),
            is_silent: false,
        }
    }

    /// Serves requests until either side ends the connection.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        loop {
            self.wait_while_frozen().await;
            match request::take(&mut self.input) {
                Ok(None) => {
                    self.flush().await?;
                    if self.stream.read_buf(&mut self.input).await? == 0 {
                        return Ok(());
                    }
                }
                Err(fault) => {
                    self.life.fault(&fault);
                    return Ok(());
                }
                Ok(Some((request, tag))) => {
                    if self.handle(request, tag).await? == Outcome::Ends {
                        self.flush().await?;
                        return self.stream.shutdown().await;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, request: Request, tag: u16) -> io::Result<Outcome> {
        if self.is_silent {
            return Ok(Outcome::Goes);
        }
        if !std::mem::replace(&mut self.greeted, true) && !matches!(request, Request::Hello(_)) {
            self.life.fault(&format!("expected HELLO first, found {request:?}"));
        }
        if !matches!(request, Request::Next(_)) {
            return self.answer(&request, tag).await;
        }
        self.gathered.push((request, tag));
        if self.gathered.len() >= self.life.script.gather {
            for (request, tag) in std::mem::take(&mut self.gathered) {
                if self.answer(&request, tag).await? == Outcome::Ends {
                    return Ok(Outcome::Ends);
                }
            }
        }
        Ok(Outcome::Goes)
    }

    async fn answer(&mut self, request: &Request, tag: u16) -> io::Result<Outcome> {
        let Answer { frames, hold, flags, cut, trickle_ms, then, .. } = self.life.answer(request);
        if hold {
            self.flush().await?;
            self.life.held();
            self.life.release.notified().await;
        }
        let mut outcome = if then == Then::Close { Outcome::Ends } else { Outcome::Goes };
        let mut bytes = Vec::new();
        for frame in &frames {
            let ordinary = |tag, spec: &_| self.life.welcome(tag, spec);
            bytes.extend(frames::scripted(frame, tag, &ordinary).map_err(io::Error::other)?);
        }
        let says_nothing = then != Then::GoOn && cut.is_none();
        if frames.is_empty() && !says_nothing {
            bytes = match request {
                Request::Next(next) => self.ids(next, tag),
                Request::Ping(body) => frames::pong(tag, body),
                Request::Info => frames::info(tag, self.life.info().as_bytes()),
                Request::Hello(token) if self.accepts(token) => {
                    self.life.welcome(tag, &self.life.script.welcome)
                }
                Request::Hello(_) => {
                    outcome = Outcome::Ends;
                    frames::error(tag, "unauthorized", "no valid token")
                }
            };
        }
        if let Some(flags) = flags {
            bytes[FLAGS_AT] = flags;
        }
        bytes.truncate(cut.unwrap_or(bytes.len()));
        if let Some(pause_ms) = trickle_ms {
            self.flush().await?;
            for byte in bytes {
                self.stream.write_all(&[byte]).await?;
                self.stream.flush().await?;
                sleep(Duration::from_millis(pause_ms)).await;
            }
        } else {
            self.output.extend(bytes);
        }
        self.is_silent = then == Then::Silence;
        Ok(outcome)
    }

    fn accepts(&self, token: &[u8]) -> bool {
        self.life.script.token.as_ref().is_none_or(|wanted| wanted.as_bytes() == token)
    }

    /// Returns the reply of an ordinary daemon that always has IDs.
    fn ids(&self, next: &Next, tag: u16) -> Vec<u8> {
        let script = &self.life.script;
        let has_source = match &script.sources {
            Some(names) => names.contains(&next.source),
            None => next.source == "default",
        };
        if !next.source.is_empty() && !has_source {
            return frames::error(tag, "unknown_source", &format!("no source {:?}", next.source));
        }
        let max_count = script.welcome.max_count.unwrap_or(1_000_000);
        if next.count == 0 || next.count > max_count {
            let message = format!("count {}; 1 to {max_count} are allowed", next.count);
            return frames::error(tag, "bad_count", &message);
        }
        let (first, count) = (self.life.take(next.count), u64::from(next.count));
        if !next.explicit {
            return frames::runs(tag, false, &[[first, count, 1]]);
        }
        let ids: Vec<u64> = (first..first + count).collect();
        let mut parts = ids.chunks(IDS_PER_FRAME).peekable();
        let mut out = Vec::new();
        while let Some(part) = parts.next() {
            out.extend(frames::list(tag, parts.peek().is_some(), part));
        }
        out
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        self.stream.flush().await
    }

    /// Waits for ever if the daemon is frozen. The next life ends the connection.
    async fn wait_while_frozen(&mut self) {
        if self.life.frozen.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}
