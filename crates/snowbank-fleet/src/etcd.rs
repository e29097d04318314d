//! etcd, through its JSON gateway with the paths of version 3.4 and later. gRPC would need a
//! protocol compiler.
//!
//! Each call is one request, except a read of more than [`NUMBERS_MAX`] keys and the marker. A new connection first
//! asks for the cluster's ID, and then, if there is a user, for a token. If the token has expired,
//! the connection ends, and the next one gets a new token. Each answer must name the connection's
//! cluster, because a proxy may forward requests to several clusters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::ext::on_informational;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use super::line::{self, ANSWER_BYTES_MAX, Access, explain_hidden, late};
use super::{NUMBERS_MAX, NoAnswer, Swap, Swapped};
use snowbank_wire::one_line;

/// The path of the request for a member's cluster ID. That request needs no user.
const STATUS: &str = "/v3/maintenance/status";
const TRANSACTION: &str = "/v3/kv/txn";

/// The gateway's codes of errors that only an operator can remove: gRPC's `INVALID_ARGUMENT`,
/// `PERMISSION_DENIED` and `FAILED_PRECONDITION`.
const LASTING_CODES: [u64; 3] = [3, 7, 9];
/// A part of the message by which the gateway refuses a client certificate with a common name,
/// while authentication is on. The status is 400 or 401.
const COMMON_NAME: &str = "CommonName of client";
/// A part of etcd's own messages, which its gateway passes on.
const ETCD_PREFIX: &str = "etcdserver:";
/// Parts of the messages of a gateway that cannot connect to its own etcd.
const GATEWAY_ALONE: [&str; 2] = ["connection", "broken pipe"];
/// The message if users or roles have changed since the token was made. The gateway sends it with
/// one of [`LASTING_CODES`], but a new token helps.
const OLD_TOKEN: &str = "revision of auth store is old";

/// The most interim answers (HTTP 1xx) to one request. etcd sends none, and a proxy one or two. An
/// endless row of them would cost a core.
const INTERIM_MAX: usize = 8;

/// The most characters of an answer that a message shows.
const LINE_CHARS_MAX: usize = 200;

/// An open connection to a member: HTTP, over TLS or not.
pub(super) struct Session {
    sender: SendRequest<Full<Bytes>>,
    /// The task that moves the connection's bytes.
    driver: JoinHandle<hyper::Result<()>>,
    /// The endpoint's host and port.
    authority: String,
    /// The token, after a login.
    token: Option<String>,
    /// The cluster's ID.
    cluster_id: String,
    /// The longest wait for an answer.
    patience: Duration,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Makes a request, and checks that the answer names the connection's cluster.
    async fn ask(&mut self, path: &str, body: &Value) -> Result<Value, NoAnswer> {
        let answer = self.post(path, body).await?;
        line::check_cluster(cluster_of(&answer)?, &self.cluster_id, &self.authority)?;
        Ok(answer)
    }

    /// Posts a JSON document, and reads the answer.
    async fn post(&mut self, path: &str, body: &Value) -> Result<Value, NoAnswer> {
        let patience = self.patience;
        let exchanged = timeout(patience, self.exchange(path, body.to_string())).await;
        let (status, text) = exchanged.map_err(|_| late(patience))??;
        if !status.is_success() {
            return Err(fault_of(status, &text));
        }
        serde_json::from_slice(&text).map_err(|error| {
            let line = first_line(&text);
            NoAnswer::passing(format!(
                "found an answer that is not from etcd's JSON gateway: HTTP {status}: {line:?}: {error}"
            ))
        })
    }

    /// Posts a document. Returns the status and the body of the answer.
    async fn exchange(&mut self, path: &str, body: String) -> Result<(StatusCode, Bytes), NoAnswer> {
        let mut request =
            Request::post(path).header(HOST, &self.authority).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let mut request =
            request.body(Full::from(body)).map_err(|error| NoAnswer::passing(error.to_string()))?;
        let too_many = Arc::new(Notify::new());
        let seen = (Arc::clone(&too_many), AtomicUsize::new(0));
        on_informational(&mut request, move |_| {
            if seen.1.fetch_add(1, Ordering::Relaxed) == INTERIM_MAX {
                seen.0.notify_one();
            }
        });
        let sent = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = tokio::select! {
            biased;
            () = too_many.notified() => {
                return Err(NoAnswer::passing(format!(
                    "found more than {INTERIM_MAX} interim answers (HTTP 1xx) to one request"
                )));
            }
            response = sent => response,
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return Err(NoAnswer::passing(self.end_after(error).await)),
        };
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| NoAnswer::passing(explain_hidden(error.as_ref())))?;
        Ok((status, body.to_bytes()))
    }

    /// Returns the reason why an exchange failed. If the connection's end canceled the exchange,
    /// only the driver knows the reason.
    async fn end_after(&mut self, error: hyper::Error) -> String {
        let broken = if error.is_canceled() { (&mut self.driver).await.ok() } else { None };
        match broken {
            Some(Err(reason)) => explain_hidden(&reason),
            _ => explain_hidden(&error),
        }
    }
}

impl line::Session for Session {
    async fn open(access: &Access, endpoint: &Endpoint, within: Duration) -> Result<Self, NoAnswer> {
        let stream = TokioIo::new(line::connect(endpoint, &access.tls, within).await?);
        let opened = http1::handshake(stream).await;
        let (sender, driver) = opened.map_err(|error| NoAnswer::passing(explain_hidden(&error)))?;
        let mut session = Session {
            sender,
            driver: tokio::spawn(driver),
            authority: endpoint.authority(),
            token: None,
            cluster_id: String::new(),
            patience: within,
        };
        let status = session.post(STATUS, &json!({})).await?;
        session.cluster_id = cluster_of(&status)?.to_owned();
        Ok(session)
    }

    async fn log_in(&mut self, access: &Access) -> Result<(), NoAnswer> {
        let Some(user) = &access.user else { return Ok(()) };
        let password = user.password(self.patience).await?;
        let login = json!({ "name": user.name, "password": password });
        let answer = self.post("/v3/auth/authenticate", &login).await?;
        let token = answer["token"].as_str().ok_or_else(|| garbled("token"))?;
        self.token = Some(token.to_owned());
        Ok(())
    }

    fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    async fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(NUMBERS_MAX + 1) {
            let ranges: Vec<Value> = keys.iter().map(|key| range(key)).collect();
            let answer = self.ask(TRANSACTION, &json!({ "success": ranges })).await?;
            all.extend(values(&answer, keys.len())?);
        }
        Ok(all)
    }

    async fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let key = BASE64_STANDARD.encode(prefix.as_bytes());
        let end = BASE64_STANDARD.encode(end_of(prefix));
        let answer = self.ask("/v3/kv/range", &json!({ "key": key, "range_end": end })).await?;
        let found = answer["kvs"].as_array().into_iter().flatten();
        Ok(found.map(|found| (decoded(&found["key"]), decoded(&found["value"]))).collect())
    }

    async fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let answer = self.ask(TRANSACTION, &transaction(swaps)).await?;
        // etcd leaves the field out if it is false.
        if answer["succeeded"].as_bool() == Some(true) {
            return Ok(Swapped::Done);
        }
        Ok(Swapped::Refused(values(&answer, swaps.len())?))
    }
}

/// Returns the ID of the cluster that gave an answer.
///
/// # Errors
/// The answer names no cluster, so it is not etcd's: it may be the page of a proxy.
fn cluster_of(answer: &Value) -> Result<&str, NoAnswer> {
    let named = answer["header"]["cluster_id"].as_str().filter(|id| !id.is_empty());
    named.ok_or_else(|| {
        NoAnswer::passing("found an answer without the ID of a cluster, allowed: answers of etcd; is there a proxy between?")
    })
}

/// Returns the fault for an answer with an error status.
fn fault_of(status: StatusCode, text: &[u8]) -> NoAnswer {
    let answer: Value = serde_json::from_slice(text).unwrap_or_default();
    let message = answer["message"].as_str().or(answer["error"].as_str());
    let line = message.map_or_else(|| first_line(text), |message| first_line(message.as_bytes()));
    let reason = format!("HTTP {status}: {line}");
    if line.contains(COMMON_NAME) {
        return NoAnswer::lasting(format!(
            "{reason}; with authentication, etcd's gateway refuses client certificates that have a common name: give \
             fleet.certificate a certificate without one (its subject may have an organisation), and set fleet.user"
        ));
    }
    match answer["code"].as_u64() {
        _ if line.contains(OLD_TOKEN) => NoAnswer::passing(reason),
        Some(code) if LASTING_CODES.contains(&code) => NoAnswer::lasting(reason),
        _ if line.contains(ETCD_PREFIX) => NoAnswer::passing(reason),
        _ if GATEWAY_ALONE.iter().any(|part| line.contains(part)) => NoAnswer::passing(format!(
            "{reason}; with --client-cert-auth, etcd's gateway connects to its own etcd with the certificate of --cert-file: \
             that certificate must allow the usage of clients too (extendedKeyUsage = serverAuth, clientAuth)"
        )),
        _ => NoAnswer::passing(reason),
    }
}

/// Returns the first line of an answer, cut to [`LINE_CHARS_MAX`].
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().next().unwrap_or_default();
    one_line(line).chars().take(LINE_CHARS_MAX).collect()
}

/// Returns the end of the range of keys with a prefix: the prefix, with its last byte one higher.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn range(key: &str) -> Value {
    json!({ "request_range": { "key": BASE64_STANDARD.encode(key.as_bytes()) } })
}

fn garbled(what: &str) -> NoAnswer {
    NoAnswer::passing(format!("etcd's answer has no {what}"))
}

/// Reads a key, or a value.
fn decoded(value: &Value) -> String {
    let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Reads the values from the answer to a transaction in which each operation reads one key.
fn values(answer: &Value, count: usize) -> Result<Vec<Option<String>>, NoAnswer> {
    let responses = answer["responses"].as_array().filter(|responses| responses.len() == count);
    let responses = responses.ok_or_else(|| garbled("responses"))?;
    let mut values = Vec::new();
    for response in responses {
        let found = response["response_range"]["kvs"].get(0);
        values.push(found.map(|found| decoded(&found["value"])));
    }
    Ok(values)
}

/// Returns the transaction that writes the keys if all of them have the expected values, and
/// otherwise reads the keys.
///
/// Values are compared, and not revisions: after a restore from a backup, other writes get the same
/// revisions again.
fn transaction(swaps: &[Swap]) -> Value {
    let mut compare = Vec::new();
    let mut success = Vec::new();
    for swap in swaps {
        let key = BASE64_STANDARD.encode(swap.key.as_bytes());
        compare.push(match &swap.expected {
            Some(text) => {
                let value = BASE64_STANDARD.encode(text.as_bytes());
                json!({ "key": key, "target": "VALUE", "result": "EQUAL", "value": value })
            }
            None => json!({ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }),
        });
        if let Some(text) = &swap.text {
            let value = BASE64_STANDARD.encode(text.as_bytes());
            success.push(json!({ "request_put": { "key": key, "value": value } }));
        }
    }
    let failure: Vec<Value> = swaps.iter().map(|swap| range(&swap.key)).collect();
    json!({ "compare": compare, "success": success, "failure": failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_answers_are_decoded() {
        let value = json!({ "key": "L2E=", "value": "eA==", "mod_revision": "12" });
        assert_eq!([decoded(&value["key"]), decoded(&value["value"])], ["/a", "x"]);
        let answer = json!({ "responses": [
            { "response_range": { "kvs": [value] } }, { "response_range": { "header": {} } }
        ] });
        assert_eq!(values(&answer, 2), Ok(vec![Some(String::from("x")), None]));
        assert!(values(&answer, 3).is_err() && values(&json!({}), 1).is_err());
        assert_eq!(end_of("/a/"), b"/a0");
    }

    #[test]
    fn keys_are_written_only_if_all_have_their_expected_values() {
        let [a, b, c, x, y] = ["/a", "/b", "/c", "x", "y"].map(String::from);
        let transaction = transaction(&[
            Swap::write(a, Some(x.clone()), y.clone()),
            Swap::write(b, None, y),
            Swap::compare(c, Some(x)),
        ]);
        let [a, b, c] = ["/a", "/b", "/c"].map(|key| BASE64_STANDARD.encode(key.as_bytes()));
        assert_eq!(
            transaction["compare"],
            json!([
                { "key": a, "target": "VALUE", "result": "EQUAL", "value": "eA==" },
                { "key": b, "target": "CREATE", "result": "EQUAL", "create_revision": "0" },
                { "key": c, "target": "VALUE", "result": "EQUAL", "value": "eA==" },
            ])
        );
        let put = |key: &str| json!({ "request_put": { "key": key, "value": "eQ==" } });
        assert_eq!(transaction["success"], json!([put(&a), put(&b)]));
        assert_eq!(transaction["failure"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn lasting_faults_are_told_apart_from_passing_ones() {
        let fault_of = |answer: Value| fault_of(StatusCode::BAD_REQUEST, answer.to_string().as_bytes());
        let fault = |code: u64| fault_of(json!({ "code": code, "message": "m" }));
        assert_eq!(fault(3), NoAnswer::lasting("HTTP 400 Bad Request: m"));
        assert!(!fault(14).is_lasting);
        assert!(!fault(16).is_lasting, "the token has expired, and a new one helps");
        let old = json!({ "code": 3, "message": "etcdserver: revision of auth store is old" });
        assert!(!fault_of(old).is_lasting, "users have changed, and a new token helps");
        assert!(!fault_of(json!({})).is_lasting);
    }

    #[test]
    fn certificates_are_not_blamed_for_a_fault_between_members() {
        for (message, is_blamed) in [
            ("etcdserver: request timed out, possibly due to connection lost", false),
            ("connection error: desc = \"transport: authentication handshake failed\"", true),
        ] {
            let answer = json!({ "code": 14, "message": message }).to_string();
            let fault = fault_of(StatusCode::SERVICE_UNAVAILABLE, answer.as_bytes());
            assert_eq!(fault.reason.contains("--client-cert-auth"), is_blamed, "{message}");
        }
    }

    #[test]
    fn an_answer_without_json_is_shown_with_its_status() {
        let page = b"Moved\x1b[2J\nsecond line";
        let expected = NoAnswer::passing("HTTP 502 Bad Gateway: Moved [2J");
        assert_eq!(fault_of(StatusCode::BAD_GATEWAY, page), expected);
    }
}
