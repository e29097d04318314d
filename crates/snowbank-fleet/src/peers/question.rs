//! One question to one peer: HELLO and INFO on a connection of its own.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::Unanswered;
use snowbank_tls::ClientFiles;
use snowbank_wire::address::Address;
use snowbank_wire::collect::{InfoCollector, Progress};
use snowbank_wire::reply::{self, Reply};
use snowbank_wire::{ErrorCode, ErrorReply, Hello, Info, Parsed, VERSION, one_line, request};

/// The tag of both requests.
const TAG: u16 = 1;

/// A question, with what the peer must see before it answers.
pub(super) struct Question {
    /// An address that names an IP, or a Unix socket.
    pub(super) address: Address,
    /// The token. Empty: none.
    pub(super) token: Vec<u8>,
    pub(super) tls: ClientFiles,
}

impl Question {
    /// Connects and asks, without a time limit.
    pub(super) async fn ask(&self) -> Result<Info, Unanswered> {
        match &self.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                self.converse(stream.map_err(unreachable)?).await
            }
            Address::Tls { host, port } => {
                let connector = self.tls.read()?;
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
                self.converse(connector.connect(host, stream).await.map_err(unreachable)?).await
            }
            Address::Unix(path) => self.converse(UnixStream::connect(path).await.map_err(unreachable)?).await,
        }
    }

    async fn converse(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Info, Unanswered> {
        let mut out = Vec::new();
        let hello = Hello { version: VERSION, token: &self.token };
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
                Parsed::Frame { content, consumed, .. } => {
                    (content.map_err(|fault| foreign(&fault))?, consumed)
                }
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
