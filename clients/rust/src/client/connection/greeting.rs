//! The start of a connection: connect, send the token if there is one, and ask for INFO.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Connection, GREETING_TAG, READ_SIZE, bad_length, closed, describe, wrong_tag};
use crate::client::endpoint::connect;
use crate::client::error::Error;
use crate::client::shared::Shared;
use crate::protocol::collect::{BadReply, InfoCollector, Progress};
use crate::protocol::reply::{self, Reply as Frame};
use crate::protocol::{Parsed, request};

impl Connection {
    /// Connects to the endpoint of that index, and greets it.
    pub(in crate::client) async fn open(shared: Arc<Shared>, index: usize) -> Result<Self, Error> {
        let endpoint = shared.names[index].clone();
        let limit = shared.options.connect_timeout;
        let unreachable =
            |reason: String| Error::Unreachable { endpoint: endpoint.clone(), reason: reason.into() };
        let began = Instant::now();
        let streams = connect(&shared.options.endpoints[index], &shared.options.tls, limit)
            .await
            .map_err(|error| unreachable(describe(&error)))?;
        let mut connection = Self {
            endpoint: endpoint.clone(),
            streams,
            input: BytesMut::new(),
            output: BytesMut::new(),
            scratch: Vec::new(),
            in_flight: VecDeque::new(),
            last_tag: GREETING_TAG,
            sources: HashMap::new(),
            stall: Box::pin(sleep_until(began)),
            stall_armed: false,
            has_answered: false,
            shared,
        };
        match timeout(limit.saturating_sub(began.elapsed()), connection.greet()).await {
            Ok(greeted) => greeted.map(|()| connection),
            Err(_) => Err(unreachable(format!("it accepted and said nothing within {limit:?}"))),
        }
    }

    /// Sends AUTH if a token is set, and INFO. The answer proves that a daemon of this protocol is there, and
    /// has the names of its sources.
    async fn greet(&mut self) -> Result<(), Error> {
        let mut hello = Vec::new();
        let mut awaits_ok = self.shared.options.token.is_some();
        if let Some(token) = &self.shared.options.token {
            request::encode_auth(&mut hello, GREETING_TAG, &token.0)
                .map_err(|error| Error::BadOption(error.to_string().into()))?;
        }
        request::encode_info(&mut hello, GREETING_TAG);
        // A daemon that is too busy answers before it reads, and closes. Its answer counts more than the
        // failed write.
        let sent = self.streams.writer.send(&hello).await;
        let mut info = InfoCollector::default();
        loop {
            let (taken, progress) = match reply::parse(&self.input) {
                Parsed::Incomplete => {
                    self.input.reserve(READ_SIZE);
                    match self.streams.reader.read_buf(&mut self.input).await {
                        Ok(0) => return Err(self.lost(&sent.err().map_or_else(closed, |e| describe(&e)))),
                        Ok(_) => continue,
                        Err(error) => return Err(self.lost(&describe(&error))),
                    }
                }
                Parsed::BadLength(length) => return Err(self.broken(&bad_length(length, &self.input))),
                Parsed::Frame { content: Err(fault), .. } => return Err(self.broken(&fault)),
                Parsed::Frame { content: Ok(Frame::Error(error)), .. } => return Err(self.refused(&error)),
                Parsed::Frame { tag, .. } if tag != GREETING_TAG => {
                    return Err(self.broken(&wrong_tag(tag, 0)));
                }
                Parsed::Frame { content: Ok(Frame::Ok), consumed, .. } if awaits_ok => {
                    awaits_ok = false;
                    (consumed, Progress::More)
                }
                Parsed::Frame { content: Ok(_), .. } if awaits_ok => return Err(self.broken(&BadReply::Kind)),
                Parsed::Frame { content: Ok(frame), consumed, .. } => {
                    (consumed, info.add(&frame).map_err(|bad| self.broken(&bad))?)
                }
            };
            self.input.advance(taken);
            if progress == Progress::Done {
                let info = info.finish().map_err(|bad| self.broken(&bad))?;
                self.learn(&info);
                return Ok(());
            }
        }
    }
}
