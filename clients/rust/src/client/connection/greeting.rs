//! The start of a connection. The client connects, checks that a daemon is there, sends the token
//! if there is one, and asks for INFO.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::foreign::bad_length;
use super::{Connection, GREETING_TAG, NO_TAG, READ_SIZE, describe, wrong_tag};
use crate::client::endpoint::connect;
use crate::client::error::{Error, IS_IT_OURS};
use crate::client::shared::Shared;
use snowbank_wire::collect::{BadReply, InfoCollector, Progress};
use snowbank_wire::reply::{self, Reply as Frame};
use snowbank_wire::{Hello, Info, Parsed, VERSION, request};

const CLOSED_EARLY: &str = "it closed the connection before its greeting";

impl Connection {
    /// Connects to the endpoint with this index.
    pub(in crate::client) async fn connect(shared: Arc<Shared>, index: usize) -> Result<Self, Error> {
        let endpoint = shared.names[index].clone();
        let limit = shared.options.connect_timeout;
        let began = Instant::now();
        let address = &shared.options.endpoints[index];
        let number = shared.address_number(index);
        let (streams, chosen) =
            connect(address, &shared.options.tls, limit, number).await.map_err(|error| {
                Error::Unreachable { endpoint: endpoint.clone(), reason: describe(&error).into() }
            })?;
        // Each IP address of a name may lead to a different daemon, whose IDs follow a different
        // clock.
        let endpoint = chosen.ip.map_or_else(|| endpoint.clone(), |ip| format!("{endpoint} ({ip})").into());
        Ok(Self {
            endpoint,
            address_number: chosen.number,
            streams,
            input: BytesMut::new(),
            output: BytesMut::new(),
            scratch: Vec::new(),
            in_flight: VecDeque::new(),
            last_tag: NO_TAG,
            stall_timer: Box::pin(sleep_until(began)),
            has_answered: false,
            is_finishing: false,
            began,
            shared,
        })
    }

    /// Greets the daemon and returns its INFO. `connect_timeout` covers the connecting and the
    /// greeting.
    pub(in crate::client) async fn greet(&mut self) -> Result<Info, Error> {
        let limit = self.shared.options.connect_timeout;
        match timeout_at(self.began + limit, self.greet_patiently()).await {
            Ok(greeted) => greeted,
            Err(_) => {
                let reason =
                    format!("it accepted the connection and sent no greeting within {limit:?}{IS_IT_OURS}");
                Err(Error::Unreachable { endpoint: self.endpoint.clone(), reason: reason.into() })
            }
        }
    }

    async fn greet_patiently(&mut self) -> Result<Info, Error> {
        let hello = self.hello()?;
        // A daemon that is too busy sends its answer before it reads anything, and closes. That
        // answer says more than the error of the failed write, so read even after such an error.
        let sent = self.streams.writer.send(&hello).await;
        let closed = sent.err().map_or_else(|| CLOSED_EARLY.to_owned(), |error| describe(&error));
        self.read_greeting(&closed, |frame| done_if(matches!(frame, Frame::Welcome(_)))).await?;
        let mut info = InfoCollector::default();
        self.read_greeting(&closed, |frame| info.add(frame)).await?;
        let info = info.finish().map_err(|bad| self.broken(&bad))?;
        Ok(info)
    }

    /// Returns the client's first requests.
    fn hello(&self) -> Result<Vec<u8>, Error> {
        let mut hello = Vec::new();
        let token = self.shared.options.token.as_ref().map_or(&[][..], |token| &token.0);
        let greeting = Hello { version: VERSION, token };
        request::encode_hello(&mut hello, GREETING_TAG, &greeting).map_err(Error::bad_option)?;
        request::encode_info(&mut hello, GREETING_TAG);
        Ok(hello)
    }

    /// Waits for one reply of the greeting. `closed` is the reason in the error if the daemon
    /// closes the connection instead.
    async fn read_greeting(
        &mut self,
        closed: &str,
        mut add: impl FnMut(&Frame<'_>) -> Result<Progress, BadReply>,
    ) -> Result<(), Error> {
        loop {
            let (added, consumed) = match reply::parse(&self.input) {
                Parsed::Incomplete => {
                    self.input.reserve(READ_SIZE);
                    match self.streams.reader.read_buf(&mut self.input).await {
                        Ok(0) => return Err(self.lost(closed)),
                        Ok(_) => continue,
                        Err(error) => return Err(self.lost(&describe(&error))),
                    }
                }
                Parsed::BadLength(length) => return Err(self.broken(&bad_length(length, &self.input))),
                Parsed::Frame { content: Err(fault), .. } => return Err(self.broken(&fault)),
                Parsed::Frame { content: Ok(Frame::Error(error)), .. } => return Err(self.refused(&error)),
                Parsed::Frame { tag, .. } if tag != GREETING_TAG => {
                    return Err(self.broken(&wrong_tag(tag, GREETING_TAG)));
                }
                Parsed::Frame { content: Ok(frame), consumed, .. } => (add(&frame), consumed),
            };
            self.input.advance(consumed);
            if added.map_err(|bad| self.broken(&bad))? == Progress::Done {
                return Ok(());
            }
        }
    }
}

fn done_if(is_due: bool) -> Result<Progress, BadReply> {
    if is_due { Ok(Progress::Done) } else { Err(BadReply::Kind) }
}
