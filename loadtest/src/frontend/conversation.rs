//! Opens a connection to a target: connects, makes the TLS handshake, and sends the token.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use snowbank_tls::Connector;
use snowbank_wire::Address as Endpoint;
use snowbank_wire::ErrorCode;

use super::{Refusal, Row, Unreadable, text};
use crate::failure::Failure;
use crate::target::{Stream, Token, code_name, unreachable};

/// The address of a target, its protocol, and the token that it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) endpoint: Endpoint,
    pub(crate) protocol: &'static Row,
    /// Used for a TLS address.
    pub(crate) tls: Option<Connector>,
    /// Sent first on each connection; with HTTP, sent in each request.
    pub(crate) token: Option<Token>,
}

/// The longest answer that is read before the load, in bytes. It is long enough for an INFO that
/// describes all sources.
const MAX_GREETING_SIZE: usize = 4 << 20;

/// The most bytes of an answer that an error quotes.
const MAX_QUOTED_SIZE: usize = 80;

impl Access {
    /// Opens a connection for requests: connects, sends the token, and waits until the target has
    /// accepted the token, if the protocol confirms tokens. Blocks.
    ///
    /// # Errors
    /// [`Failure`], also if the target refuses the token.
    pub(crate) fn open(&self, timeout: Duration) -> Result<Stream, Failure> {
        Ok(Conversation::begin(self, timeout)?.stream)
    }
}

/// Blocking requests and replies on a new connection, all before one deadline.
pub(crate) struct Conversation<'a> {
    pub(crate) stream: Stream,
    pub(crate) access: &'a Access,
    timeout: Duration,
    deadline: Instant,
    /// Bytes received and not parsed yet.
    input: Vec<u8>,
}

impl<'a> Conversation<'a> {
    /// Connects and sends the token if there is one.
    pub(crate) fn begin(access: &'a Access, timeout: Duration) -> Result<Self, Failure> {
        let deadline = Instant::now() + timeout;
        let stream = Stream::connect(&access.endpoint, access.tls.as_ref(), timeout);
        let stream = stream.map_err(|reason| unreachable(&access.endpoint, &reason))?;
        let mut conversation = Self { stream, access, timeout, deadline, input: Vec::new() };
        if let (Some(token), Some(authorize)) = (&access.token, access.protocol.authorize) {
            authorize(&mut conversation, token)?;
        }
        Ok(conversation)
    }

    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.limit_wait()?;
        self.stream.write_all(&bytes).map_err(|error| self.no_answer(&error))
    }

    /// Reads until `take` returns a value and the number of bytes that encode it. Then removes
    /// these bytes from the input.
    pub(crate) fn next<T>(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, Unreadable>,
    ) -> Result<T, Failure> {
        loop {
            match take(&self.input) {
                Ok(Some((taken, size))) => {
                    self.input.drain(..size);
                    return Ok(taken);
                }
                Ok(None) if self.input.len() > MAX_GREETING_SIZE => {
                    return Err(self.other("its answer is too long"));
                }
                Ok(None) => self.read_more()?,
                Err(Unreadable(reason)) => return Err(self.other(&format!("it answered with {reason}"))),
            }
        }
    }

    fn read_more(&mut self) -> Result<(), Failure> {
        let mut chunk = [0; 4_096];
        self.limit_wait()?;
        match self.stream.read(&mut chunk) {
            Ok(0) if self.input.is_empty() => Err(self.no_answer(&ErrorKind::UnexpectedEof.into())),
            Ok(0) => Err(self.other("it closed the connection within an answer")),
            Ok(size) => {
                self.input.extend_from_slice(&chunk[..size]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.no_answer(&error)),
        }
    }

    /// Limits the next wait to the time that is left until the deadline. So a target that sends
    /// single bytes cannot make the whole conversation last longer.
    fn limit_wait(&self) -> Result<(), Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limited =
            if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { self.stream.set_timeout(left) };
        limited.map_err(|error| self.no_answer(&error))
    }

    fn no_answer(&self, error: &io::Error) -> Failure {
        if let Some(reason) = snowbank_tls::explain(error) {
            return self.cannot(&reason);
        }
        let address = &self.access.endpoint;
        Failure::usage(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "{address} did not answer within {:?}: it speaks another protocol, or it hangs",
                    self.timeout
                )
            }
            _ => format!(
                "{address} closed the connection without an answer: it speaks another protocol, asks for a token, or is at \
                 its connection limit"
            ),
        })
    }

    /// Returns the error of a target that cannot be put under load.
    pub(crate) fn cannot(&self, reason: &str) -> Failure {
        Failure::usage(format_args!("{}: {reason}", self.access.endpoint))
    }

    /// Returns the error of a target that speaks another protocol.
    pub(crate) fn other(&self, reason: &str) -> Failure {
        let protocol = self.access.protocol.protocol;
        Failure::usage(format_args!("{} does not speak {protocol}: {reason}", self.access.endpoint))
    }

    /// Returns the error of a target that speaks another protocol, with the start of its answer.
    pub(crate) fn answered(&self, answer: &[u8]) -> Failure {
        let line = answer.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let begin = text(&line[..line.len().min(MAX_QUOTED_SIZE)]);
        self.other(&format!("it answered {begin:?}"))
    }

    /// Returns the error of a refusal, with advice if the token is the reason.
    pub(crate) fn refused(&self, refusal: &Refusal<'_>) -> Failure {
        let address = &self.access.endpoint;
        let words = text(&refusal.words);
        if refusal.code != ErrorCode::Unauthorized.to_u16() {
            return Failure::usage(format_args!("{address} refused: {}: {words}", code_name(refusal.code)));
        }
        let advice = if self.access.token.is_some() {
            "check the token in the file of --token-file"
        } else {
            "give its token with --token-file"
        };
        Failure::usage(format_args!("{address} refused: {words}; {advice}"))
    }
}
