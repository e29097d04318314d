//! The HTTP of the admin listener: serves one connection with `/metrics`, `/healthz`, `/readyz`,
//! `/status`, `/history`, `/config` and the page.
//!
//! Everything is read-only. /metrics, /readyz and /status are each made from one list of samples. A
//! whole answer is made in memory, and no lock is held while it is sent. Clients that send or read
//! slowly have a deadline.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{exposition, words};
use crate::server::Health;
use crate::server::health::figures::Figure::Headline;
use crate::server::health::metrics::CloseReason;
use crate::web::{
    AcceptedType, HEAD_BYTES_MAX, HEADERS_MAX, MISDIRECTED, SiteHeaders, decoded, head_too_long,
    is_local_name,
};

/// The time within which the head of a request must arrive, counted from the connection's start or
/// from the end of the last answer. A head takes one round trip. The connection of the page stays
/// open, because the page asks once a second.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// The longest life of a connection. After this time, a client that never reads its answer loses
/// its place.
const LIFE: Duration = Duration::from_secs(60);
/// The extra time for an answer that is being sent when the connection's life ends.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// The time within which the shards and the keeper must answer the heartbeat for `/healthz`. Even
/// on a busy machine, a turn takes far less time.
const PROGRESS_WITHIN: Duration = Duration::from_secs(3);

/// The page loads nothing from other sites, and cannot be embedded in another page.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// The schemes of an absolute target.
const WEB: [&str; 2] = ["http", "https"];

const PATHS: &str = "/ /metrics /healthz /readyz /status /history /config";

/// The admin site of a daemon. All admin connections share it.
#[derive(Clone)]
pub(super) struct Site(pub(super) Health);

impl Site {
    /// Serves one connection until it ends. If `is_loopback`, a Host header must have a
    /// [local name](is_local_name). Keeps `answers` true while a request of the connection waits
    /// for its answer. If the client sent no valid request, returns why the connection was closed.
    pub(super) async fn serve<S>(
        &self,
        stream: S,
        is_loopback: bool,
        answers: &AtomicBool,
    ) -> Option<(CloseReason, String)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let has_answered = AtomicBool::new(false);
        let service = service_fn(async |request: Request<Incoming>| {
            answers.store(true, Ordering::Relaxed);
            has_answered.store(true, Ordering::Relaxed);
            let mut answer = self.answer(&request, is_loopback).await;
            if self.0.is_draining() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            answers.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            // Larger heads get an answer without a reason.
            .max_buf_size(2 * HEAD_BYTES_MAX)
            .max_headers(2 * HEADERS_MAX)
            // A client may close its sending half after a request.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        // Only the peer causes errors here. After an error, the connection is over.
        let Ok(ended) = tokio::time::timeout(LIFE, &mut connection).await else {
            Pin::new(&mut connection).graceful_shutdown();
            let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
            return None;
        };
        let error = ended.err()?;
        if error.is_parse() {
            let text = format!("the admin listener found no request of HTTP/1.1: {error}");
            return Some((CloseReason::BadRequest, text));
        }
        let rest = error.is_timeout().then(|| connection.into_parts())?;
        // A client whose requests are all answered closes its connection some time, or never.
        if rest.read_buf.is_empty() && has_answered.load(Ordering::Relaxed) {
            return None;
        }
        let text = format!("no whole request arrived within {HEAD_WITHIN:?}");
        let body = format!("{text}\n");
        let answer = format!(
            "HTTP/1.1 408 Request Timeout\r\nContent-Type: {TEXT}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = rest.io.into_inner();
        let _ = tokio::time::timeout(LAST_ANSWER, stream.write_all(answer.as_bytes())).await;
        Some((CloseReason::HalfRequest, text))
    }

    async fn answer(&self, request: &Request<Incoming>, is_loopback: bool) -> Response<Full<Bytes>> {
        let method = request.method();
        let headers = request.headers();
        let head_bytes = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        if headers.len() > HEADERS_MAX || headers.iter().map(head_bytes).sum::<usize>() > HEAD_BYTES_MAX {
            let text = format!("{}\n", head_too_long());
            return respond(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, TEXT, text);
        }
        let mut site = SiteHeaders::default();
        headers.iter().for_each(|(name, value)| site.read(name.as_str(), value.as_bytes()));
        if let Some(authority) = request.uri().authority() {
            site.read_target(authority.as_str().as_bytes());
        }
        if let Err(bad) = site.check(request.version() < Version::HTTP_11) {
            return respond(StatusCode::BAD_REQUEST, TEXT, format!("{bad}\n"));
        }
        if is_loopback && !site.host.is_none_or(is_local_name) {
            return respond(StatusCode::MISDIRECTED_REQUEST, TEXT, format!("{MISDIRECTED}\n"));
        }
        let mut response = match *method {
            // HAProxy's `option httpchk` asks by OPTIONS whether to send requests.
            Method::OPTIONS if self.0.is_draining() => {
                respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the daemon is stopping\n")
            }
            Method::OPTIONS => respond(StatusCode::OK, TEXT, ""),
            _ => self.resource(request).await,
        };
        let is_read = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if !is_read && response.status() != StatusCode::NOT_FOUND {
            let text = "this listener is read-only, allowed: GET, HEAD and OPTIONS\n";
            response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        }
        if *method == Method::OPTIONS || response.status() == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
        }
        response
    }

    /// Returns what is at the path of a request.
    async fn resource(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let is_web = request.uri().scheme().is_none_or(|scheme| WEB.contains(&scheme.as_str()));
        match &*decoded(request.uri().path()) {
            _ if !is_web => respond(StatusCode::NOT_FOUND, TEXT, "unknown scheme, allowed: http and https\n"),
            "/metrics" => self.metrics(wants_openmetrics(request.headers().get_all(header::ACCEPT))),
            "/healthz" => self.health().await,
            "/readyz" => self.readiness(),
            "/status" => self.status(),
            "/history" => respond(StatusCode::OK, JSON, self.0.history_json()),
            "/config" => respond(StatusCode::OK, TEXT, self.0.config()),
            "/page.css" => respond(StatusCode::OK, "text/css; charset=utf-8", include_str!("page/page.css")),
            "/page.js" => {
                respond(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page/page.js"))
            }
            "/icon.svg" => respond(StatusCode::OK, "image/svg+xml", include_str!("page/icon.svg")),
            "/" => respond(StatusCode::OK, "text/html; charset=utf-8", include_str!("page/page.html")),
            _ => respond(StatusCode::NOT_FOUND, TEXT, format!("unknown path, allowed: {PATHS}\n")),
        }
    }

    fn metrics(&self, is_openmetrics: bool) -> Response<Full<Bytes>> {
        let kind = if is_openmetrics {
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        respond(StatusCode::OK, kind, exposition::text(&self.0.exposed(), is_openmetrics))
    }

    async fn health(&self) -> Response<Full<Bytes>> {
        match tokio::time::timeout(PROGRESS_WITHIN, self.0.all_beat()).await {
            Ok(()) => respond(StatusCode::OK, TEXT, "ok\n"),
            Err(_) => {
                let text = "a thread is blocked: restart the daemon\n";
                respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
            }
        }
    }

    fn status(&self) -> Response<Full<Bytes>> {
        let mut samples = self.0.status().samples;
        words::describe(&mut samples);
        respond_json(StatusCode::OK, &samples.json())
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let status = self.0.status();
        let ready = status.is_ready();
        let headline = status.samples.daemon.text(Headline);
        let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        respond_json(code, &json!({ "ready": ready, "headline": headline, "findings": status.findings }))
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

fn respond_json(code: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    respond(code, JSON, format!("{body}\n"))
}

fn respond(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Returns whether the metrics are OpenMetrics: if the client names that type, and prefers it to plain
/// text. Every other client gets the older text, which all can read and browsers show.
fn wants_openmetrics<'h>(accept: impl IntoIterator<Item = &'h HeaderValue>) -> bool {
    let mut openmetrics = AcceptedType::new("application/openmetrics-text");
    let mut text = AcceptedType::new("text/plain");
    for header in accept {
        openmetrics.read(header.as_bytes());
        text.read(header.as_bytes());
    }
    let openmetrics = openmetrics.preference();
    openmetrics.is_named() && openmetrics.is_at_least(text.preference())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_clients_that_ask_for_it() {
        let wants = |accept: &'static str| wants_openmetrics([&HeaderValue::from_static(accept)]);
        assert!(!wants_openmetrics([]));
        for accept in [
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
             application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            "Application/OpenMetrics-Text",
            "text/plain, application/openmetrics-text",
        ] {
            assert!(wants(accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/*",
            "text/plain",
            "text/plain;version=0.0.4",
            "text/plain;version=0.0.4;q=0.5, */*;q=0.2",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;q=0, */*",
            "application/openmetrics-text;q=0.1, text/plain;q=0.2",
            "text/plain;note=\"application/openmetrics-text\"",
            "x-application/openmetrics-text",
        ] {
            assert!(!wants(accept), "{accept}");
        }
    }
}
