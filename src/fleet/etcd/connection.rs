//! A connection to one of etcd's endpoints: HTTP, over TLS or not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use snowbank_client::tls::{self, ClientFiles};

/// The time to connect, TLS included: an endpoint whose machine is gone must not use up the time of the others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest answer: the keys of 30,000 numbers.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The default port of etcd.
const DEFAULT_PORT: u16 = 2379;

/// The place of one member of a coordinator: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    is_tls: bool,
    host: String,
    port: u16,
}

/// A text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}, allowed: \"http://HOST:PORT\" or \"https://HOST:PORT\"")]
pub struct WrongEndpoint(String);

impl FromStr for Endpoint {
    type Err = WrongEndpoint;

    fn from_str(text: &str) -> Result<Self, WrongEndpoint> {
        let wrong = || WrongEndpoint(text.to_owned());
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (rest, DEFAULT_PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:-_%".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err(wrong());
        }
        Ok(Endpoint { is_tls, host: host.to_owned(), port })
    }
}

impl Endpoint {
    /// Returns the host and the port, as in a URL.
    fn authority(&self) -> String {
        let Endpoint { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns true if it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}", if self.is_tls { "s" } else { "" }, self.authority())
    }
}

/// An open connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(endpoint: &Endpoint, tls: &ClientFiles) -> Result<Self, String> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, Self::connect(endpoint, tls)).await;
        opened.unwrap_or_else(|_| Err(format!("not connected within {CONNECT_TIMEOUT:?}")))
    }

    async fn connect(endpoint: &Endpoint, tls: &ClientFiles) -> Result<Self, String> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        if !endpoint.is_tls {
            return Self::over(stream).await;
        }
        // Read for each connection, because files may be renewed.
        let connector = tls.read().map_err(|fault| fault.to_string())?;
        let stream = connector.connect(&endpoint.host, stream).await;
        Self::over(stream.map_err(|error| tls::explain(&error).unwrap_or_else(|| error.to_string()))?).await
    }

    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<Self, String> {
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(async move { _ = driver.await });
        Ok(Connection { sender, driver })
    }

    /// Posts a JSON document. Returns whether the status is a success, and the answer.
    pub(super) async fn post(
        &mut self,
        endpoint: &Endpoint,
        path: &str,
        body: String,
        token: Option<&str>,
    ) -> Result<(bool, Bytes), String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        let mut request =
            Request::post(path).header(HOST, endpoint.authority()).header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::from(body)).map_err(|error| text(&error))?;
        self.sender.ready().await.map_err(|error| text(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| text(&error))?;
        let is_ok = response.status().is_success();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((is_ok, body.map_err(|error| text(&error))?.to_bytes()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_a_host() {
        for (text, written) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("https://etcd-1.example/", "https://etcd-1.example:2379"),
            ("http://[::1]:79", "http://[::1]:79"),
            ("http://[::1]", "http://[::1]:2379"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).as_deref(), Ok(written));
        }
        for wrong in ["", "127.0.0.1:2379", "http://", "http://a b", "http://a:x", "ftp://a", "http://a/b"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
