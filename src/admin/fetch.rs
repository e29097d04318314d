//! Asks a daemon for its status, as `snowbank status` does.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::status::Status;
use crate::config::Address;

/// Far above the status of a daemon with as many sources as can be, and proof that something else answers.
const STATUS_BYTES_MAX: usize = 1 << 20;

/// The status of the daemon whose admin listener is at `address`.
///
/// # Errors
/// In one line, why it cannot be had.
pub(crate) async fn fetch(address: &Address, timeout: Duration) -> Result<Status, String> {
    let fetched = async {
        match address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                ask(stream.map_err(|error| cannot(address, &error))?, address, &address.to_string()).await
            }
            Address::Tls { .. } => {
                Err(format!("{address}: the admin listener does not speak TLS; leave out tls:"))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                ask(stream.map_err(|error| cannot(address, &error))?, address, "localhost").await
            }
        }
    };
    match tokio::time::timeout(timeout, fetched).await {
        Ok(fetched) => fetched,
        Err(_) => Err(format!("{address} does not answer within {timeout:?}")),
    }
}

fn cannot(address: &Address, error: &std::io::Error) -> String {
    format!(
        "cannot ask the daemon at {address}: {error}; does `snowbank serve` run there, with --admin {address}?"
    )
}

async fn ask<S>(stream: S, address: &Address, host: &str) -> Result<Status, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let no_daemon = |reason: &dyn std::fmt::Display| {
        format!("what answers at {address} is not a daemon's admin listener: {reason}")
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| no_daemon(&error))?;
    // Ends with the sender.
    let connection = tokio::spawn(connection);
    let request = Request::get("/status").header(HOST, host).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| no_daemon(&error))?;
    let response = sender.send_request(request).await.map_err(|error| no_daemon(&error))?;
    if response.status() != StatusCode::OK {
        return Err(no_daemon(&format_args!("it answers {}", response.status())));
    }
    let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
    let body = body.map_err(|error| no_daemon(&error))?.to_bytes();
    drop(sender);
    connection.abort();
    serde_json::from_slice(&body)
        .map_err(|error| no_daemon(&format_args!("{error}; or it is of another version than this program")))
}
