//! Opens a connection to a target: connects, makes the handshake of TLS, and sends the token.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;
use snowbank_client::protocol::reply::{self, Reply};
use snowbank_client::protocol::{ErrorCode, MAX_TOKEN_SIZE, Parsed, request};
use snowbank_client::tls::Connector;

use super::{NoTarget, Stream, code_name};
use crate::frontend::{Row, TokenPlace};
use crate::machine::owner::Owner;
use crate::scenario::Protocol;
use crate::units::printable;

/// The address of a target, its protocol, and the token that it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) endpoint: Endpoint,
    pub(crate) protocol: Protocol,
    /// Used for an address of TLS.
    pub(crate) tls: Option<Connector>,
    /// Sent first on each connection.
    pub(crate) token: Option<Token>,
}

/// The most bytes of an answer before the load: a description of all sources fits.
const MAX_GREETING_SIZE: usize = 4 << 20;

/// The most bytes of an answer that an error repeats.
const MAX_QUOTED_SIZE: usize = 80;

/// A secret of 1 to [`MAX_TOKEN_SIZE`] bytes: never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// Returns the token of a file, as a client sends it; newlines at its end do not count.
    ///
    /// # Errors
    /// One line if the file holds no token; no byte of the file is in it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let unreadable = |reason: io::Error| format!("cannot read the token file {name}: {reason}");
        let mut token = Vec::new();
        // A path that names a device must not fill the memory.
        let limit = 2 * MAX_TOKEN_SIZE as u64;
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let size = file.take(limit).read_to_end(&mut token).map_err(unreadable)?;
        while token.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            token.pop();
        }
        if token.contains(&b'\n') {
            return Err(format!(
                "found several lines in the token file {name}, allowed: one token, as a client sends it"
            ));
        }
        if !(1..=MAX_TOKEN_SIZE).contains(&token.len()) {
            let size = if token.is_empty() { 0 } else { size };
            return Err(format!("found a token of {size} bytes in {name}, allowed: 1 to {MAX_TOKEN_SIZE}"));
        }
        Ok(Self(token.into()))
    }

    /// Returns the secret.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Access {
    /// Opens a connection that requests may be sent on: connected, and the token accepted. Blocks.
    ///
    /// # Errors
    /// [`NoTarget`], also if the target refuses the token.
    pub(crate) fn open(&self, timeout: Duration) -> Result<Stream, NoTarget> {
        Ok(Conversation::begin(self, timeout)?.stream)
    }
}

/// Blocking requests and replies on a new connection, all before one deadline.
pub(crate) struct Conversation {
    pub(super) stream: Stream,
    address: String,
    has_token: bool,
    deadline: Instant,
    /// Bytes received and not parsed yet.
    input: Vec<u8>,
}

impl Conversation {
    /// Connects and sends the token if there is one.
    pub(crate) fn begin(access: &Access, timeout: Duration) -> Result<Self, NoTarget> {
        let address = access.endpoint.to_string();
        let deadline = Instant::now() + timeout;
        let stream = Stream::connect(&access.endpoint, access.tls.as_ref(), timeout)
            .map_err(|reason| NoTarget::Unreachable { address: address.clone(), reason })?;
        let has_token = access.token.is_some();
        let mut conversation = Self { stream, address, has_token, deadline, input: Vec::new() };
        if let Some(token) = &access.token {
            match access.protocol {
                Protocol::Snowbank => conversation.authorize(token)?,
                Protocol::FrontEnd(Row { token: TokenPlace::First(show), .. }) => {
                    show(&mut conversation, token)?;
                }
                Protocol::FrontEnd(_) | Protocol::Echo => {}
            }
        }
        Ok(conversation)
    }

    /// Shows the token in Snowbank's own protocol.
    fn authorize(&mut self, token: &Token) -> Result<(), NoTarget> {
        self.send(|out| {
            let encoded = request::encode_auth(out, 0, token.bytes());
            debug_assert!(encoded.is_ok(), "its size was checked when it was read");
        })?;
        let other = self.other("something else than an answer to AUTH came");
        self.next_reply(|reply| if matches!(reply, Reply::Ok) { Ok(()) } else { Err(other) })
    }

    /// Returns the process at the other end.
    pub(crate) fn owner(&self) -> Owner {
        self.stream.owner()
    }

    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), NoTarget> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.limit_wait()?;
        self.stream.write_all(&bytes).map_err(|error| NoTarget::no_answer(&self.address, &error))
    }

    /// Waits until `take` finds something in the bytes received, and drops as many as it takes.
    pub(crate) fn next<T>(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, String>,
    ) -> Result<T, NoTarget> {
        loop {
            match take(&self.input) {
                Ok(Some((taken, size))) => {
                    self.input.drain(..size);
                    return Ok(taken);
                }
                Ok(None) if self.input.len() > MAX_GREETING_SIZE => {
                    return Err(self.cannot("it answered without end"));
                }
                Ok(None) => self.read_more()?,
                Err(reason) => return Err(self.cannot(&format!("it answered with {reason}"))),
            }
        }
    }

    /// Waits for the next reply; an error reply is an error.
    pub(super) fn next_reply<T>(
        &mut self,
        take: impl FnOnce(Reply<'_>) -> Result<T, NoTarget>,
    ) -> Result<T, NoTarget> {
        loop {
            match reply::parse(&self.input) {
                Parsed::Incomplete => self.read_more()?,
                Parsed::BadLength(length) => {
                    return Err(self.other(&format!("a frame of {length} bytes came")));
                }
                Parsed::Frame { content: Err(fault), .. } => return Err(self.other(&fault.to_string())),
                Parsed::Frame { content: Ok(Reply::Error(error)), .. } => {
                    return Err(self.refused(error.code, error.message));
                }
                Parsed::Frame { content: Ok(reply), consumed, .. } => {
                    let taken = take(reply);
                    self.input.drain(..consumed);
                    return taken;
                }
            }
        }
    }

    fn read_more(&mut self) -> Result<(), NoTarget> {
        let mut chunk = [0; 4_096];
        self.limit_wait()?;
        match self.stream.read(&mut chunk) {
            Ok(0) if self.input.is_empty() => Err(NoTarget::Closed { address: self.address.clone() }),
            Ok(0) => Err(self.other("it closed the connection within a frame")),
            Ok(size) => {
                self.input.extend_from_slice(&chunk[..size]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(NoTarget::no_answer(&self.address, &error)),
        }
    }

    /// Limits the next wait: one byte now and then must not delay the end beyond the deadline.
    fn limit_wait(&self) -> Result<(), NoTarget> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limited =
            if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { self.stream.set_timeout(left) };
        limited.map_err(|error| NoTarget::no_answer(&self.address, &error))
    }

    pub(super) fn other(&self, reason: &str) -> NoTarget {
        NoTarget::OtherProtocol { address: self.address.clone(), reason: reason.to_owned() }
    }

    /// Returns the error of a target that cannot be loaded.
    pub(crate) fn cannot(&self, reason: &str) -> NoTarget {
        NoTarget::Unusable { address: self.address.clone(), reason: reason.to_owned() }
    }

    /// Returns the error of a target that speaks another protocol, with the start of its answer.
    pub(crate) fn not_that(&self, protocol: &str, answer: &[u8]) -> NoTarget {
        let line = answer.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let begin = printable(&String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTED_SIZE)]));
        self.cannot(&format!("it does not speak {protocol}: it answered {begin:?}"))
    }

    /// Returns the error of a refusal, with advice if the token is the reason.
    pub(crate) fn refused(&self, code: u16, words: &[u8]) -> NoTarget {
        let address = self.address.clone();
        let message = printable(&String::from_utf8_lossy(words));
        if code != ErrorCode::Unauthorized.to_u16() {
            return NoTarget::Refused { address, name: code_name(code), message };
        }
        let advice = match self.has_token {
            true => "name the file of another token",
            false => "give its token with --token-file",
        };
        NoTarget::Unauthorized { address, message, advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Token, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        Token::read(file.path())
    }

    #[test]
    fn a_file_holds_one_token() {
        assert_eq!(read(b"s3cret\r\n"), Ok(Token((*b"s3cret").into())));
        assert_eq!(read(&[b'x'; MAX_TOKEN_SIZE]).map(|token| token.0.len()), Ok(MAX_TOKEN_SIZE));
        for (wrong, reason) in [
            (&b"\n"[..], "0 bytes"),
            (b"", "0 bytes"),
            (b"one\ntwo\n", "several lines"),
            (&[b'x'; MAX_TOKEN_SIZE + 1], "513 bytes"),
        ] {
            let refused = read(wrong).expect_err("no token");
            assert!(refused.contains(reason) && !refused.contains("two"), "{refused}");
        }
        assert!(Token::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", Token((*b"s3cret").into())), "(secret)");
    }
}
