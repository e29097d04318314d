//! A connection to one of etcd's endpoints: HTTP, over TLS or not.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use crate::endpoint::Endpoint;
use crate::line::{self, ANSWER_BYTES_MAX, Fault, explain_hidden};
use snowbank_client::tls::ClientFiles;

/// An open connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<hyper::Result<()>>,
    /// The endpoint's host and port.
    pub(super) authority: String,
    /// The token of its login, once it has one.
    pub(super) token: Option<String>,
}

impl Connection {
    /// Connects within this time.
    pub(super) async fn open(
        endpoint: &Endpoint,
        tls: &ClientFiles,
        within: Duration,
    ) -> Result<Self, Fault> {
        let stream = TokioIo::new(line::connect(endpoint, tls, within).await?);
        let opened = http1::handshake(stream).await;
        let (sender, driver) = opened.map_err(|error| Fault::Endpoint(explain_hidden(&error)))?;
        let driver = tokio::spawn(driver);
        Ok(Connection { sender, driver, authority: endpoint.authority(), token: None })
    }

    /// Posts a JSON document. Returns the status and the answer.
    pub(super) async fn post(&mut self, path: &str, body: String) -> Result<(StatusCode, Bytes), String> {
        let mut request =
            Request::post(path).header(HOST, &self.authority).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::from(body)).map_err(|error| error.to_string())?;
        let exchange = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = match exchange.await {
            Ok(response) => response,
            Err(error) => return Err(self.end_after(error).await),
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| explain_hidden(error.as_ref()))?.to_bytes()))
    }

    /// Returns the reason why an exchange failed. A canceled exchange does not know why its
    /// connection ended.
    async fn end_after(&mut self, error: hyper::Error) -> String {
        let of_connection = if error.is_canceled() { (&mut self.driver).await.ok() } else { None };
        match of_connection {
            Some(Err(reason)) => explain_hidden(&reason),
            _ => explain_hidden(&error),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
