//! Asks a daemon for its status, for `snowbank status`.

use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Address;
use snowbank_tls::files::FileFault;
use snowbank_tls::{ClientFiles, fault};

/// The largest answer that is read. The status of a daemon with as many sources and identities as
/// possible, all with the longest names, has a third of this size.
const STATUS_BYTES_MAX: usize = 4 << 20;

/// A daemon to ask for its status.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The address of the daemon's admin listener.
    pub(crate) address: Address,
    /// The certificates to trust and to send, if the address uses TLS.
    pub(crate) tls: ClientFiles,
    /// The longest time for the whole exchange.
    pub(crate) timeout: Duration,
}

impl Target {
    /// Fetches the daemon's status, as JSON.
    ///
    /// # Errors
    /// No status was received.
    pub(crate) async fn fetch(&self) -> Result<Value, NoStatus> {
        let Target { address, timeout, .. } = self;
        let fetched = tokio::time::timeout(*timeout, self.fetch_patiently()).await;
        let fetched = fetched.unwrap_or(Err(Fault::Late(*timeout)));
        fetched.map_err(|fault| NoStatus { address: address.clone(), fault })
    }

    async fn fetch_patiently(&self) -> Result<Value, Fault> {
        let address = &self.address;
        let (host, port) = match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => (host.as_str(), *port),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(cannot)?;
                return ask(stream, address, "localhost").await;
            }
        };
        let stream = TcpStream::connect((host, port)).await.map_err(cannot)?;
        let name = address.to_string();
        if !address.is_tls() {
            // The daemon takes no name but a local one at a loopback address, which 0.0.0.0 reaches.
            let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
            return ask(stream, address, if is_local { "localhost" } else { &name }).await;
        }
        // Reads the files again, because they may have been renewed. A read that blocks does no
        // harm, because this thread has no other work.
        let connector = self.tls.read()?;
        let stream = connector.connect(host, stream).await.map_err(cannot)?;
        ask(stream, address, name.trim_start_matches("tls:")).await
    }
}

/// The reason why a daemon sent no status, in one line for the operator.
#[derive(Debug)]
pub(crate) struct NoStatus {
    address: Address,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Late(Duration),
    /// A file of TLS cannot be used.
    File(FileFault),
    Io(io::Error),
    Tls(String),
    NoHttp,
    Http(hyper::Error),
    Status(StatusCode),
    Body(Box<dyn Error + Send + Sync>),
    Json(serde_json::Error),
    /// The JSON has no headline.
    NoStatus,
}

impl From<FileFault> for Fault {
    fn from(fault: FileFault) -> Self {
        Fault::File(fault)
    }
}

impl From<hyper::Error> for Fault {
    fn from(error: hyper::Error) -> Self {
        Fault::Http(error)
    }
}

fn cannot(error: io::Error) -> Fault {
    snowbank_tls::explain(&error).map_or(Fault::Io(error), Fault::Tls)
}

impl fmt::Display for NoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoStatus { address, fault } = self;
        let no_daemon = format_args!("what answers at {address} is not a daemon's admin listener");
        let another = "or the daemon has another version than this program";
        match fault {
            Fault::Late(limit) => write!(f, "{address} does not answer within {limit:?}"),
            Fault::File(fault) => fault.fmt(f),
            Fault::Io(error) => write!(
                f,
                "cannot ask the daemon at {address}: {error}; does `snowbank serve` run there, with --admin {address}?"
            ),
            Fault::Tls(reason) => write!(f, "cannot ask the daemon at {address}: {reason}"),
            Fault::NoHttp => {
                write!(
                    f,
                    "what answers at {address} speaks no HTTP: give the address of [admin]; if that speaks TLS, write tls:{address}"
                )
            }
            Fault::Http(error) => write!(f, "{no_daemon}: {error}"),
            Fault::Status(status) => write!(f, "{no_daemon}: it answers {status}"),
            Fault::Body(error) => write!(f, "{no_daemon}: {error}"),
            Fault::Json(error) => write!(f, "{no_daemon}: {error}; {another}"),
            Fault::NoStatus => write!(f, "{no_daemon}: it sends no status; {another}"),
        }
    }
}

async fn ask<S>(stream: S, address: &Address, host: &str) -> Result<Value, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task ends when `sender` is dropped.
    let connection = tokio::spawn(connection);
    let request = Request::get("/status").header(HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| Fault::Body(error.into()))?;
    let response = sender.send_request(request).await;
    // With TLS 1.3, the server reports a missing client certificate only after the handshake.
    let response =
        response.map_err(|error| match fault::io_error(&error).and_then(snowbank_tls::explain) {
            Some(reason) => Fault::Tls(reason),
            None if error.is_parse() && !address.is_tls() => Fault::NoHttp,
            None => Fault::Http(error),
        })?;
    if response.status() != StatusCode::OK {
        return Err(Fault::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    let body = body.map_err(Fault::Body)?.to_bytes();
    drop(sender);
    connection.abort();
    let status: Value = serde_json::from_slice(&body).map_err(Fault::Json)?;
    if status["headline"].is_string() { Ok(status) } else { Err(Fault::NoStatus) }
}
