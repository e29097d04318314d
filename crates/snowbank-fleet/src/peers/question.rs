//! One question to one peer: HELLO and INFO on a connection of its own.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use snowbank_tls::{ClientFiles, FileFault};
use snowbank_wire::address::Address;
use snowbank_wire::collect::{InfoCollector, Progress};
use snowbank_wire::reply::{self, Reply};
use snowbank_wire::{ErrorCode, ErrorReply, Hello, Info, Parsed, VERSION, one_line, request};

/// The tag of both requests.
const TAG: u16 = 1;

/// The reason why a peer gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The name was not resolved within this time.
    #[error("cannot resolve {0:?} within {1:?}")]
    UnresolvedWithin(String, Duration),
    /// The name cannot be resolved, for this reason.
    #[error("cannot resolve {0:?}: {1}")]
    Unresolved(String, String),
    /// No connection could be made.
    #[error("cannot reach it: {0}")]
    Unreachable(String),
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Files(#[from] FileFault),
    /// No answer came within this time.
    #[error("no answer within {0:.1?}")]
    Late(Duration),
    /// The connection broke.
    #[error("lost the connection: {0}")]
    Lost(String),
    /// The peer closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The peer refused to answer.
    #[error("it refused: {code}: {message}")]
    Refused {
        /// The name of the error code.
        code: &'static str,
        /// The peer's reason.
        message: String,
    },
    /// The answer is none of Snowbank's protocol.
    #[error("it does not speak Snowbank's protocol: {0}")]
    Foreign(String),
    /// The token is too long for a request.
    #[error("{0}")]
    Token(String),
    /// The peer's INFO cannot be read.
    #[error("{0}")]
    Info(String),
}

/// Connects to an address that names an IP, or to a Unix socket, and asks, without a time limit. An
/// empty token means none.
pub(super) async fn ask(address: &Address, token: &[u8], tls: &ClientFiles) -> Result<Info, Unanswered> {
    match address {
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            converse(stream.map_err(unreachable)?, token).await
        }
        Address::Tls { host, port } => {
            let connector = tls.read()?;
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
            converse(connector.connect(host, stream).await.map_err(unreachable)?, token).await
        }
        Address::Unix(path) => converse(UnixStream::connect(path).await.map_err(unreachable)?, token).await,
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, token: &[u8]) -> Result<Info, Unanswered> {
    let mut out = Vec::new();
    let hello = Hello { version: VERSION, token };
    request::encode_hello(&mut out, TAG, &hello).map_err(|error| Unanswered::Token(error.to_string()))?;
    request::encode_info(&mut out, TAG);
    stream.write_all(&out).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut input = Vec::new();
    let mut info = InfoCollector::default();
    loop {
        let (frame, consumed) = match reply::parse(&input) {
            Parsed::Incomplete => {
                if stream.read_buf(&mut input).await.map_err(lost)? == 0 {
                    return Err(Unanswered::Closed);
                }
                continue;
            }
            Parsed::BadLength(_) => return Err(foreign(&"its answer is no frame")),
            Parsed::Frame { content, consumed, .. } => (content.map_err(|fault| foreign(&fault))?, consumed),
        };
        let progress = match &frame {
            Reply::Error(error) => return Err(refused(error)),
            Reply::Welcome(_) => Progress::More,
            frame => info.add(frame).map_err(|bad| foreign(&bad))?,
        };
        input.drain(..consumed);
        if progress == Progress::Done {
            return info.finish().map_err(|bad| Unanswered::Info(bad.to_string()));
        }
    }
}

fn refused(error: &ErrorReply<'_>) -> Unanswered {
    let code = ErrorCode::from_u16(error.code).map_or("an unknown code", ErrorCode::name);
    Unanswered::Refused { code, message: one_line(&String::from_utf8_lossy(error.message)) }
}

fn foreign(reason: &dyn std::fmt::Display) -> Unanswered {
    Unanswered::Foreign(reason.to_string())
}

fn unreachable(error: io::Error) -> Unanswered {
    Unanswered::Unreachable(explain(&error))
}

fn lost(error: io::Error) -> Unanswered {
    Unanswered::Lost(explain(&error))
}

/// Returns the reason that TLS or the operating system gave.
fn explain(error: &io::Error) -> String {
    snowbank_tls::explain(error).unwrap_or_else(|| error.to_string())
}
