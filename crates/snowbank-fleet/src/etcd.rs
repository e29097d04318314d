//! etcd, through its JSON gateway (since version 3.4), because gRPC would need a protocol compiler.
//!
//! Each call is one request, first on the connection that is open, then on new ones to all
//! endpoints. A new connection first asks for the cluster, because a write must not reach another
//! cluster.

mod connection;

use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::StatusCode;
use serde_json::{Value, json};

use self::connection::Connection;
use super::endpoint::Endpoint;
use super::line::{self, ANSWER_TIMEOUT, Access, COMPARE_TIMEOUT, Fault, Patience};
use super::{Cluster, Coordinator, CoordinatorKind, NoAnswer, SWAPS_MAX, Swap, Swapped};
use snowbank_client::protocol::one_line;
use snowbank_core::clock::BootMicros;
use tokio::runtime::Runtime;

/// etcd, as a configuration names it.
pub(super) const KIND: CoordinatorKind = CoordinatorKind {
    name: "etcd",
    port: 2379,
    schemes: ["http", "https"],
    open: |access| Ok(Box::new(Etcd::new(access)?)),
};

/// The request that every member answers with its cluster, without a user's permission.
const STATUS: &str = "/v3/maintenance/status";

/// The codes by which etcd's gateway reports what only an operator can change: gRPC's
/// `INVALID_ARGUMENT`, `PERMISSION_DENIED` and `FAILED_PRECONDITION`.
const LASTING_CODES: [u64; 3] = [3, 7, 9];
/// gRPC's `UNAUTHENTICATED`: the token has expired.
const UNAUTHENTICATED: u64 = 16;
/// A part of the refusal of a client certificate with a common name, while authentication is on.
/// Its status is 400 or 401.
const COMMON_NAME: &str = "CommonName of client";
/// Parts of the messages of a gateway that cannot connect to its own etcd: the connection was
/// closed, refused, or used when it was closed. Messages of etcd itself do not speak of
/// connections.
const GATEWAY_ALONE: [&str; 2] = ["connection", "broken pipe"];
/// The message that comes with another code if users or roles were changed since the token was
/// given.
const OLD_TOKEN: &str = "revision of auth store is old";

/// The longest line of an answer that a message shows.
const LINE_CHARS_MAX: usize = 200;

/// A client of etcd. Its calls block.
struct Etcd {
    access: Access,
    runtime: Runtime,
    /// The endpoint that answered last.
    current: usize,
    connection: Option<Connection>,
    /// The connections that were opened so far.
    opened: u64,
    token: Option<String>,
    /// The cluster's identity, and the endpoint that reported it first. The identity is a hash of
    /// the members' addresses.
    cluster_id: Option<(String, usize)>,
    /// The cluster that each new connection must belong to. Two clusters that were set up alike
    /// have the same identity.
    cluster: Option<Cluster>,
    /// The value of `opened` when a connection last proved that it leads to that cluster. If
    /// `opened` still has it, the open connection has proved it.
    shown_on: u64,
    patience: Patience,
}

impl Etcd {
    /// Makes a client. It connects at its first call.
    ///
    /// # Errors
    /// The system has no reactor left.
    fn new(access: Access) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Etcd {
            access,
            runtime,
            current: 0,
            connection: None,
            opened: 0,
            token: None,
            cluster_id: None,
            cluster: None,
            shown_on: 0,
            patience: Patience::long(),
        })
    }

    /// Makes one request, at one endpoint after the other until one answers.
    fn call(&mut self, path: &str, body: &Value) -> Result<Value, NoAnswer> {
        if self.cluster_id.is_none() {
            self.compare_clusters()?;
        }
        let endpoints = self.access.endpoints.len();
        let mut faults = Vec::new();
        for opens_within in line::tries(endpoints, self.connection.is_some()) {
            let mut tried = self.try_call(path, body, opens_within);
            if matches!(tried, Err(Fault::Token)) {
                self.token = None;
                tried = self.try_call(path, body, opens_within);
            }
            match tried {
                Ok(answer) => return Ok(answer),
                // A daemon that knows its cluster does not let one endpoint speak for the others.
                Err(Fault::Lasting(reason)) if self.cluster.is_none() => {
                    return Err(NoAnswer::lasting(format!("{}: {reason}", self.endpoint())));
                }
                Err(fault) => faults.push((self.endpoint().to_string(), fault)),
            }
            self.connection = None;
            self.current = (self.current + 1) % endpoints;
        }
        Err(line::no_answer(faults.split_off(faults.len() - endpoints)))
    }

    /// Asks all endpoints at the same time for their clusters. Of those that answer, the first of
    /// the list stays connected. If two differ, the next call compares them again.
    fn compare_clusters(&mut self) -> Result<(), NoAnswer> {
        let Etcd { access, runtime, .. } = self;
        let ask = async |endpoint| {
            let mut connection = Connection::open(endpoint, &access.tls).await?;
            let (status, text) = connection.post(endpoint, STATUS, String::from("{}"), None).await?;
            Ok::<_, String>(status.is_success().then_some((connection, text)))
        };
        let answers = runtime.block_on(line::together(COMPARE_TIMEOUT, access.endpoints.iter().map(ask)));
        let mut first = None;
        for (at, answer) in answers.into_iter().enumerate() {
            let Some(Ok(Some((connection, text)))) = answer else { continue };
            let Ok(answer) = serde_json::from_slice::<Value>(&text) else { continue };
            self.current = at;
            if let Err(Fault::Foreign(reason)) = self.check_cluster(&answer) {
                (self.cluster_id, self.connection) = (None, None);
                return Err(NoAnswer::lasting(format!("{}: {reason}", self.endpoint())));
            }
            first = first.or(Some((at, connection)));
        }
        if let Some((at, connection)) = first {
            (self.current, self.connection) = (at, Some(connection));
            self.opened += 1;
        }
        Ok(())
    }

    /// Asks the current endpoint for its cluster, which needs no permission.
    fn verify(&mut self, within: Duration) -> Result<(), Fault> {
        let answer = self.post_once(STATUS, &json!({}), within)?;
        self.check_cluster(&answer)
    }

    fn check_cluster(&mut self, answer: &Value) -> Result<(), Fault> {
        let found = answer["header"]["cluster_id"].as_str().unwrap_or_default();
        let (known, endpoint) = self.cluster_id.get_or_insert_with(|| (found.to_owned(), self.current));
        if known == found {
            return Ok(());
        }
        let other = &self.access.endpoints[*endpoint];
        Err(Fault::Foreign(format!(
            "found cluster {found}, and {other} is, or was, of cluster {known}, allowed: members of one cluster; correct \
             fleet.endpoints"
        )))
    }

    fn endpoint(&self) -> &Endpoint {
        &self.access.endpoints[self.current]
    }

    fn try_call(&mut self, path: &str, body: &Value, opens_within: Option<Duration>) -> Result<Value, Fault> {
        if self.connection.is_none() {
            self.verify(opens_within.unwrap_or(self.patience.opening()))?;
        }
        if let (None, Some(user)) = (&self.token, &self.access.user) {
            let password = user.password().map_err(Fault::Endpoint)?;
            let body = json!({ "name": user.name, "password": password });
            let answer = self.post_once("/v3/auth/authenticate", &body, ANSWER_TIMEOUT)?;
            let token = answer["token"].as_str().map(str::to_owned);
            self.token = Some(token.ok_or_else(|| Fault::Endpoint(String::from("gave no token")))?);
        }
        self.show_cluster()?;
        let answer = self.post_once(path, body, self.patience.answer())?;
        self.check_cluster(&answer)?;
        Ok(answer)
    }

    /// Checks that the open connection leads to the daemon's cluster, before its first use.
    fn show_cluster(&mut self) -> Result<(), Fault> {
        let Some(cluster) = self.cluster.as_ref().filter(|_| self.shown_on != self.opened).cloned() else {
            return Ok(());
        };
        let body = json!({ "success": [range(&cluster.key)] });
        let answer = self.post_once("/v3/kv/txn", &body, self.patience.answer())?;
        let found = values(&answer, 1).map_err(|answer| Fault::Endpoint(answer.reason))?;
        let text = found.iter().flatten().next().map(String::as_str);
        cluster.check(text).map_err(Fault::Foreign)?;
        self.shown_on = self.opened;
        Ok(())
    }

    /// Posts to the current endpoint, which has this long for its answer.
    fn post_once(&mut self, path: &str, body: &Value, within: Duration) -> Result<Value, Fault> {
        let Etcd { access, runtime, current, connection, opened, token, patience, .. } = self;
        let endpoint = &access.endpoints[*current];
        let exchange = async {
            if connection.is_none() {
                *connection = Some(Connection::open(endpoint, &access.tls).await?);
                *opened += 1;
            }
            let Some(open) = connection else { return Err(String::from("not connected")) };
            open.post(endpoint, path, body.to_string(), token.as_deref()).await
        };
        let began = Instant::now();
        let timed = runtime.block_on(async { tokio::time::timeout(within, exchange).await });
        let took = began.elapsed();
        patience.note(took);
        let Ok(answered) = timed else {
            *connection = None;
            return Err(Fault::Endpoint(format!("no answer within {within:?}")));
        };
        let (status, text) = answered.map_err(Fault::Endpoint)?;
        if !status.is_success() {
            return Err(fault_of(status, &text));
        }
        serde_json::from_slice(&text).map_err(|error| {
            let line = first_line(&text);
            Fault::Endpoint(format!(
                "what answers is no etcd's JSON gateway: HTTP {status}: {line:?}: {error}"
            ))
        })
    }
}

/// Returns the fault that an answer without success reports.
fn fault_of(status: StatusCode, text: &[u8]) -> Fault {
    let answer: Value = serde_json::from_slice(text).unwrap_or_default();
    let message = answer["message"].as_str().or(answer["error"].as_str());
    let line = message.map_or_else(|| first_line(text), |message| first_line(message.as_bytes()));
    let reason = format!("HTTP {status}: {line}");
    if line.contains(COMMON_NAME) {
        return Fault::Lasting(format!(
            "{reason}; with authentication, etcd's gateway refuses client certificates that have a common name: give \
             fleet.certificate one without (its subject may have an organisation), and set fleet.user"
        ));
    }
    match answer["code"].as_u64() {
        Some(UNAUTHENTICATED) => Fault::Token,
        _ if line.contains(OLD_TOKEN) => Fault::Token,
        Some(code) if LASTING_CODES.contains(&code) => Fault::Lasting(reason),
        _ if GATEWAY_ALONE.iter().any(|part| line.contains(part)) => Fault::Endpoint(format!(
            "{reason}; with --client-cert-auth, etcd's gateway connects to its own etcd with the certificate of --cert-file: \
             that one must allow the usage of clients too (extendedKeyUsage = serverAuth, clientAuth)"
        )),
        _ => Fault::Endpoint(reason),
    }
}

/// Returns the first line of an answer, cut to what a log line has room for.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().next().unwrap_or_default();
    one_line(line).chars().take(LINE_CHARS_MAX).collect()
}

/// Returns the end of all keys with a prefix: the prefix with its last byte one higher.
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

/// Reads the answers to ranges of one key each.
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

/// Returns the transaction that writes keys if all have the expected values, and else reads them.
///
/// Values are compared, and not revisions: after a restore from a backup, other writes bring old
/// revisions back.
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

impl Coordinator for Etcd {
    fn hurry(&mut self) {
        self.patience.hurry();
    }

    fn connections(&self) -> u64 {
        self.opened
    }

    fn stay_in(&mut self, cluster: Cluster) {
        if self.cluster.is_none() {
            (self.cluster, self.shown_on) = (Some(cluster), self.opened);
        }
    }

    fn now(&self) -> BootMicros {
        (self.access.boot_clock)()
    }

    fn leave_cluster(&mut self) {
        (self.cluster, self.cluster_id) = (None, None);
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let mut all = Vec::with_capacity(keys.len());
        for keys in keys.chunks(SWAPS_MAX) {
            let ranges: Vec<Value> = keys.iter().map(|key| range(key)).collect();
            let answer = self.call("/v3/kv/txn", &json!({ "success": ranges }))?;
            all.extend(values(&answer, keys.len())?);
        }
        Ok(all)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let key = BASE64_STANDARD.encode(prefix.as_bytes());
        let end = BASE64_STANDARD.encode(end_of(prefix));
        let answer = self.call("/v3/kv/range", &json!({ "key": key, "range_end": end }))?;
        let found = answer["kvs"].as_array().into_iter().flatten();
        Ok(found.map(|found| (decoded(&found["key"]), decoded(&found["value"]))).collect())
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let answer = self.call("/v3/kv/txn", &transaction(swaps))?;
        // etcd leaves the field out if it is false.
        if answer["succeeded"].as_bool() == Some(true) {
            return Ok(Swapped::Done);
        }
        Ok(Swapped::Refused(values(&answer, swaps.len())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_the_gateway_writes_them() {
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
    fn keys_are_written_only_at_their_expected_values() {
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
    fn an_operators_mistakes_differ_from_what_passes() {
        let fault_of = |answer: Value| fault_of(StatusCode::BAD_REQUEST, answer.to_string().as_bytes());
        let fault = |code: u64| fault_of(json!({ "code": code, "message": "m" }));
        assert!(matches!(fault(3), Fault::Lasting(reason) if reason == "HTTP 400 Bad Request: m"));
        assert!(matches!(fault(14), Fault::Endpoint(_)));
        assert!(matches!(fault(16), Fault::Token));
        let old = json!({ "code": 3, "message": "etcdserver: revision of auth store is old" });
        assert!(matches!(fault_of(old), Fault::Token), "users were changed: a new token helps");
        assert!(matches!(fault_of(json!({})), Fault::Endpoint(_)));
    }

    #[test]
    fn an_answer_that_is_no_json_is_shown_with_its_status() {
        let page = b"Moved\x1b[2J\nsecond line";
        let Fault::Endpoint(reason) = fault_of(StatusCode::BAD_GATEWAY, page) else { panic!("may pass") };
        assert_eq!(reason, "HTTP 502 Bad Gateway: Moved [2J");
    }
}
