//! Asks a daemon for its status.

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
use snowbank_tls::{ClientFiles, explain, fault};

/// The largest answer that is read. The status of a daemon with as many sources and identities as
/// possible, all with the longest names, has a third of this size.
const STATUS_BYTES_MAX: usize = 4 << 20;

/// A daemon to ask for its status.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The address of the daemon's admin listener.
    pub(super) address: Address,
    /// The certificates to trust and to send, if the address uses TLS.
    pub(super) tls: ClientFiles,
    /// The longest time for the whole exchange.
    pub(super) timeout: Duration,
}

impl Target {
    /// Fetches the daemon's status, as JSON.
    ///
    /// # Errors
    /// No status was received. Returns the reason in one line for the operator.
    pub(super) async fn fetch(&self) -> Result<Value, String> {
        let Target { address, timeout, .. } = self;
        let fetched = tokio::time::timeout(*timeout, self.fetch_patiently()).await;
        fetched.unwrap_or_else(|_| Err(format!("{address} does not answer within {timeout:?}")))
    }

    async fn fetch_patiently(&self) -> Result<Value, String> {
        let cannot = |error| self.cannot(&error);
        let (host, port) = match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port } => (host.as_str(), *port),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(cannot)?;
                return self.ask(stream, "localhost").await;
            }
        };
        let stream = TcpStream::connect((host, port)).await.map_err(cannot)?;
        let name = self.address.to_string();
        if !self.address.is_tls() {
            // The daemon takes no name but a local one at a loopback address, which 0.0.0.0 reaches.
            let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
            return self.ask(stream, if is_local { "localhost" } else { &name }).await;
        }
        // Reads the files again, because they may have been renewed. A read that blocks does no
        // harm, because this thread has no other work.
        let connector = self.tls.read().map_err(|fault| fault.to_string())?;
        let stream = connector.connect(host, stream).await.map_err(cannot)?;
        self.ask(stream, name.trim_start_matches("tls:")).await
    }

    async fn ask<S>(&self, stream: S, host: &str) -> Result<Value, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = &self.address;
        let no_daemon = |what: &dyn Display| {
            format!("what answers at {address} is not a daemon's admin listener: {what}")
        };
        let another = "or the daemon has another version than this program";
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| no_daemon(&error))?;
        // The task ends when `sender` is dropped.
        let connection = tokio::spawn(connection);
        let request = Request::get("/status").header(HOST, host).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| no_daemon(&error))?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| match fault::io_error(&error) {
            // With TLS 1.3, the server reports a missing client certificate only after the handshake.
            Some(cause) if explain(cause).is_some() => self.cannot(cause),
            _ if error.is_parse() && !address.is_tls() => format!(
                "what answers at {address} speaks no HTTP: give the address of [admin]; if that speaks TLS, write tls:{address}"
            ),
            _ => no_daemon(&error),
        })?;
        if response.status() != StatusCode::OK {
            return Err(no_daemon(&format_args!("it answers {}", response.status())));
        }
        let body = Limited::new(response.into_body(), STATUS_BYTES_MAX).collect().await;
        let body = body.map_err(|error| no_daemon(&error))?.to_bytes();
        drop(sender);
        connection.abort();
        let status: Value =
            serde_json::from_slice(&body).map_err(|error| no_daemon(&format_args!("{error}; {another}")))?;
        if status["headline"].is_string() {
            Ok(status)
        } else {
            Err(no_daemon(&format_args!("it sends no status; {another}")))
        }
    }

    fn cannot(&self, error: &io::Error) -> String {
        let address = &self.address;
        match explain(error) {
            Some(reason) => format!("cannot ask the daemon at {address}: {reason}"),
            None => format!(
                "cannot ask the daemon at {address}: {error}; does `snowbank serve` run there, with --admin {address}?"
            ),
        }
    }
}
