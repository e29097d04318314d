//! A client's connection to a scripted daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use snowbank_client::layout::Run;
use snowbank_client::protocol::reply::{self, IDS_PER_FRAME};
use snowbank_client::protocol::{ErrorCode, Next, Parsed, Request, request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames;
use super::life::LifeState;
use crate::case::{Answer, Then};

/// The body of the PING that a client must send first on a connection.
const GREETING: &[u8] = b"\r\n\r\n";

/// Both directions of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(super) struct Connection {
    life: Arc<LifeState>,
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    output: Vec<u8>,
    greeted: bool,
    authorized: bool,
    knows_sources: bool,
    /// The unanswered requests. The daemon answers them once their number reaches `gather`.
    gathered: Vec<(Next, u16)>,
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
        let authorized = life.script.token.is_none();
        Self {
            life,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            greeted: false,
            authorized,
            knows_sources: false,
            gathered: Vec::new(),
            is_silent: false,
        }
    }

    /// Serves requests until either side ends the connection.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        loop {
            self.wait_while_frozen().await;
            match request::parse(&self.input) {
                Parsed::Incomplete => {
                    self.flush().await?;
                    if self.stream.read_buf(&mut self.input).await? == 0 {
                        return Ok(());
                    }
                }
                Parsed::BadLength(length) => {
                    self.life.fault(&format!("a request with the bad length {length} came"));
                    return Ok(());
                }
                Parsed::Frame { content: Err(fault), .. } => {
                    self.life.fault(&format!("an invalid request came: {fault}"));
                    return Ok(());
                }
                Parsed::Frame { tag, consumed, .. } => {
                    let frame: Vec<u8> = self.input.drain(..consumed).collect();
                    let Parsed::Frame { content: Ok(request), .. } = request::parse(&frame) else {
                        return Ok(());
                    };
                    if self.handle(&request, tag).await? == Outcome::Ends {
                        self.flush().await?;
                        return self.stream.shutdown().await;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, request: &Request<'_>, tag: u16) -> io::Result<Outcome> {
        if self.is_silent {
            return Ok(Outcome::Goes);
        }
        if !std::mem::replace(&mut self.greeted, true) && *request != Request::Ping(GREETING) {
            self.life.fault(&format!("expected a PING with CR LF CR LF first, found {request:?}"));
        }
        match request {
            Request::Ping(body) => reply::encode_pong(&mut self.output, tag, body),
            Request::Auth(token) => {
                self.authorized |=
                    self.life.script.token.as_ref().is_some_and(|wanted| wanted.as_bytes() == *token);
                if !self.authorized {
                    return Ok(self.refuse_for_good(tag));
                }
                reply::encode_ok(&mut self.output, tag);
            }
            _ if !self.authorized => return Ok(self.refuse_for_good(tag)),
            Request::Info => {
                self.knows_sources = true;
                reply::encode_info(&mut self.output, tag, self.life.info.to_string().as_bytes());
            }
            Request::Next(next) => {
                if !self.knows_sources {
                    self.life.fault("expected INFO before the first NEXT of a connection");
                }
                self.gathered.push((*next, tag));
                if self.gathered.len() >= self.life.script.gather {
                    return self.answer_gathered().await;
                }
            }
        }
        Ok(Outcome::Goes)
    }

    fn refuse_for_good(&mut self, tag: u16) -> Outcome {
        reply::encode_error(&mut self.output, tag, ErrorCode::Unauthorized, None, "no valid token");
        Outcome::Ends
    }

    async fn answer_gathered(&mut self) -> io::Result<Outcome> {
        for (next, tag) in std::mem::take(&mut self.gathered) {
            let answer = self.life.answer(&next).unwrap_or_default();
            if self.answer(&next, tag, &answer).await? == Outcome::Ends {
                return Ok(Outcome::Ends);
            }
        }
        Ok(Outcome::Goes)
    }

    async fn answer(&mut self, next: &Next, tag: u16, answer: &Answer) -> io::Result<Outcome> {
        if answer.hold {
            self.flush().await?;
            self.life.held();
            self.life.release.notified().await;
        }
        let mut bytes = Vec::new();
        for frame in &answer.frames {
            bytes.extend(frames::scripted(frame, tag).map_err(io::Error::other)?);
        }
        let says_nothing = answer.then != Then::GoOn && answer.cut.is_none();
        if answer.frames.is_empty() && !says_nothing {
            bytes = self.ordinary_answer(next, tag);
        }
        bytes.truncate(answer.cut.unwrap_or(bytes.len()));
        if answer.trickle {
            self.flush().await?;
            for byte in bytes {
                self.stream.write_all(&[byte]).await?;
                self.stream.flush().await?;
                tokio::task::yield_now().await;
            }
        } else {
            self.output.extend(bytes);
        }
        self.is_silent = answer.then == Then::Silence;
        Ok(if answer.then == Then::Close { Outcome::Ends } else { Outcome::Goes })
    }

    /// Returns the reply of an ordinary daemon that always has IDs.
    fn ordinary_answer(&self, next: &Next, tag: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let info = &self.life.info;
        let max_count = info["max_count"].as_u64().unwrap_or_default();
        let mut sources = info["sources"].as_array().into_iter().flatten();
        if !sources.any(|source| source["index"] == next.source) {
            let message = format!("source {}", next.source);
            reply::encode_error(&mut out, tag, ErrorCode::UnknownSource, None, &message);
            return out;
        }
        if next.count == 0 || u64::from(next.count) > max_count {
            let message = format!("count {}; 1 to {max_count} are allowed", next.count);
            reply::encode_error(&mut out, tag, ErrorCode::BadCount, None, &message);
            return out;
        }
        let run = Run { first: self.life.take(next.count), count: next.count, stride: 1 };
        if !next.explicit {
            reply::encode_runs_frame(&mut out, tag, &[run], false).expect("one run fits");
            return out;
        }
        let ids: Vec<u64> = run.ids().collect();
        let mut parts = ids.chunks(IDS_PER_FRAME).peekable();
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            reply::encode_list_frame(&mut out, tag, part.iter().copied(), more).expect("a part fits");
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
