//! Asks a daemon for its status, for `snowbank status`.

use std::fmt::Display;
use std::io;
use std::time::Duration;

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
    /// Returns the reason why no status was received, in one line.
    pub(crate) async fn fetch(&self) -> Result<Value, String> {
        let Target { address, timeout, .. } = self;
        match tokio::time::timeout(*timeout, self.fetch_patiently()).await {
            Ok(fetched) => fetched,
            Err(_) => Err(format!("{address} does not answer within {timeout:?}")),
        }
    }

    async fn fetch_patiently(&self) -> Result<Value, String> {
        let address = &self.address;
        let (host, port) = match address {
            Address::Tcp { host, port } | Address::Tls { host, port } => (host.as_str(), *port),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| cannot(address, &error))?;
                return ask(stream, address, "localhost").await;
            }
        };
        let stream = TcpStream::connect((host, port)).await.map_err(|error| cannot(address, &error))?;
        let name = address.to_string();
        if !address.is_tls() {
            return ask(stream, address, &name).await;
        }
        // Reads the files again, because they may have been renewed. A read that blocks does no
        // harm, because this thread has no other work.
        let connector = self.tls.read().map_err(|fault| fault.to_string())?;
        let stream = connector.connect(host, stream).await.map_err(|error| cannot(address, &error))?;
        ask(stream, address, name.trim_start_matches("tls:")).await
    }
}

fn cannot(address: &Address, error: &io::Error) -> String {
    match snowbank_tls::explain(error) {
        Some(reason) => format!("cannot ask the daemon at {address}: {reason}"),
        None => format!(
            "cannot ask the daemon at {address}: {error}; does `snowbank serve` run there, with --admin {address}?"
        ),
    }
}

fn no_daemon(address: &Address, reason: &dyn Display) -> String {
    format!("what answers at {address} is not a daemon's admin listener: {reason}")
}

async fn ask<S>(stream: S, address: &Address, host: &str) -> Result<Value, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| no_daemon(address, &error))?;
    // The task ends when `sender` is dropped.
    let connection = tokio::spawn(connection);
    let request = Request::get("/status").header(HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| no_daemon(address, &error))?;
    let response = sender.send_request(request).await;
    // With TLS 1.3, the server reports a missing client certificate only after the handshake.
    let response =
        response.map_err(|error| match fault::io_error(&error).and_then(snowbank_tls::explain) {
            Some(reason) => format!("cannot ask the daemon at {address}: {reason}"),
            None if error.is_parse() && !address.is_tls() => {
                format!("what answers at {address} speaks no HTTP; if it speaks TLS, write tls:{address}")
            }
            None => no_daemon(address, &error),
        })?;
    if response.status() != StatusCode::OK {
        return Err(no_daemon(address, &format_args!("it answers {}", response.status())));
    }
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    let body = body.map_err(|error| no_daemon(address, &error))?.to_bytes();
    drop(sender);
    connection.abort();
    let another = "or the daemon has another version than this program";
    let status: Value = serde_json::from_slice(&body)
        .map_err(|error| no_daemon(address, &format_args!("{error}; {another}")))?;
    if !status["headline"].is_string() {
        return Err(no_daemon(address, &format_args!("it sends no status; {another}")));
    }
    Ok(status)
}
