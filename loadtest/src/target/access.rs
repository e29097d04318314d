//! How a connection to a target is opened: connect, and show the token. TLS will go between the two.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snowbank_client::Endpoint;
use snowbank_client::protocol::reply::{self, Reply};
use snowbank_client::protocol::{MAX_TOKEN_SIZE, Parsed, request};

use super::{Stream, code_name};

/// Where a target listens, and what it asks of those that come.
#[derive(Debug, Clone)]
pub struct Access {
    /// Where.
    pub endpoint: Endpoint,
    /// What is shown first on each connection.
    pub token: Option<Token>,
}

/// A secret of 1 to [`MAX_TOKEN_SIZE`] bytes: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

/// Why a file holds no token.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    /// It cannot be read.
    #[error("cannot read the token file {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// It has more than one line.
    #[error("found several lines in the token file {}, allowed: one token, as a client sends it", .0.display())]
    SeveralLines(PathBuf),
    /// What it holds fits no AUTH.
    #[error("found a token of {size} bytes in {}, allowed: 1 to {MAX_TOKEN_SIZE}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The length found.
        size: u64,
    },
}

impl Token {
    /// The token of a file, as a client sends it; newlines at its end do not count.
    ///
    /// # Errors
    /// [`NoToken`]; no byte of the file is in it.
    pub fn read(path: &Path) -> Result<Self, NoToken> {
        let unreadable = |reason| NoToken::Unreadable { path: path.to_owned(), reason };
        let mut token = Vec::new();
        // A path that names a device must not fill the memory.
        let limit = 2 * MAX_TOKEN_SIZE as u64;
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let size = file.take(limit).read_to_end(&mut token).map_err(unreadable)? as u64;
        while token.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            token.pop();
        }
        if token.contains(&b'\n') {
            return Err(NoToken::SeveralLines(path.to_owned()));
        }
        if !(1..=MAX_TOKEN_SIZE).contains(&token.len()) {
            return Err(NoToken::Size {
                path: path.to_owned(),
                size: if token.is_empty() { 0 } else { size },
            });
        }
        Ok(Self(token.into()))
    }

    /// Appends the AUTH that shows it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let encoded = request::encode_auth(out, 0, &self.0);
        debug_assert!(encoded.is_ok(), "its size was checked when it was read");
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
    /// The last address's, the target's refusal of the token, or what it said instead of an answer.
    pub fn open(&self, timeout: Duration) -> io::Result<Stream> {
        let mut stream = Stream::connect(&self.endpoint, timeout)?;
        if let Some(token) = &self.token {
            let mut hello = Vec::new();
            token.encode(&mut hello);
            stream.set_timeout(timeout)?;
            stream.write_all(&hello)?;
            await_ok(&mut stream, Instant::now() + timeout)?;
        }
        Ok(stream)
    }
}

/// Reads the answer to AUTH and not a byte more.
fn await_ok(stream: &mut Stream, deadline: Instant) -> io::Result<()> {
    let mut input = Vec::new();
    loop {
        match reply::parse(&input) {
            Parsed::Incomplete => {}
            Parsed::Frame { content: Ok(Reply::Ok), .. } => return Ok(()),
            Parsed::Frame { content: Ok(Reply::Error(error)), .. } => {
                let (name, message) = (code_name(error.code), String::from_utf8_lossy(error.message));
                return Err(io::Error::other(format!("{name}: {message}")));
            }
            Parsed::Frame { .. } | Parsed::BadLength(_) => {
                return Err(io::Error::other("something else than an answer to AUTH came"));
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_timeout(left)?;
        // Nothing was asked for yet, so nothing but the answer can come: reading on cannot take a later reply's bytes.
        let mut chunk = [0; 512];
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(size) => input.extend_from_slice(&chunk[..size]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Token, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        Token::read(file.path()).map_err(|error| error.to_string())
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
