//! Paths and their parameters.

use super::lookup;
use super::query::{Query, codec_of, source_of};
use super::reply::{JSON, Reply, TEXT};
use super::{Answer, Head, Listing};
use crate::frontends::refusals::STOPPING;
use crate::frontends::{Ask, Conditions, Facts};
use crate::web::decoded;
use snowbank_wire::ErrorCode;

/// The paths, as a refusal lists them.
const PATHS: &str = "/v1/ids, /v1/sources, /v1/decode/ID, /v1/range, /v1/openapi.json, /healthz, /id, /ids, /stats, \
                     /api/snowflake/get/KEY, /api/segment/get/KEY and /decodeSnowflakeId";

/// The path of the OpenAPI description.
const OPENAPI_PATH: &str = "/v1/openapi.json";

/// The path where load balancers ask whether the daemon takes requests.
const HEALTH_PATH: &str = "/healthz";
/// The paths that load balancers ask. Many ask the root by default. A target without a path is the
/// root.
const HEALTH_PATHS: [&str; 3] = [HEALTH_PATH, "/", ""];

/// The methods of paths that draw IDs, and of all others.
const DRAWING: &str = "GET, POST, HEAD, OPTIONS";
const READING: &str = "GET, HEAD, OPTIONS";

const OPENAPI: &str = include_str!("openapi.json");

/// Returns whether a request needs no token: those of load balancers, and those for the OpenAPI
/// description.
pub(super) fn is_open(head: &Head<'_>) -> bool {
    is_check(head) || decoded(head.path) == OPENAPI_PATH
}

/// Returns whether a request is one of load balancers. Its answer tells whether the daemon is ready.
pub(super) fn is_check(head: &Head<'_>) -> bool {
    head.method == "OPTIONS" || HEALTH_PATHS.contains(&&*decoded(head.path))
}

/// Returns the fault of a request with a body, which is not read.
pub(super) fn body_fault(head: &Head<'_>) -> Option<String> {
    let found = head.body.filter(|_| decoded(head.path) != OPENAPI_PATH)?;
    Some(format!("found {found}, allowed: no body; send parameters in the query"))
}

/// Returns whether a request is for IDs, as katsubushi counts: also if it has a mistake.
pub(super) fn is_get(head: &Head<'_>) -> bool {
    matches!(head.method, "GET" | "POST") && draws_ids(&decoded(head.path))
}

fn draws_ids(path: &str) -> bool {
    ["/v1/ids", "/id", "/ids"].contains(&path) || leaf_key(path).is_some()
}

/// A mode of Leaf's, which the path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeafMode {
    /// IDs of a layout.
    Snowflake,
    /// Numbers of a counter.
    Segment,
}

/// Returns the mode and the key in a path of Leaf's.
fn leaf_key(path: &str) -> Option<(LeafMode, &str)> {
    let modes = [("/api/snowflake/get/", LeafMode::Snowflake), ("/api/segment/get/", LeafMode::Segment)];
    modes.into_iter().find_map(|(prefix, mode)| Some((mode, path.strip_prefix(prefix)?)))
}

/// Returns the answer to a request, or the IDs that it asks for.
///
/// # Errors
/// The refusal.
pub(super) fn answer(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    let facts = conditions.facts;
    let path = &*decoded(head.path);
    let draws = draws_ids(path);
    check_method(head, if draws { DRAWING } else { READING })?;
    if ["/v1/sources", OPENAPI_PATH].contains(&path) {
        Query::parse(head.query, &[])?;
    }
    if head.method == "OPTIONS" {
        let alive = health(conditions)?;
        return Ok(Answer::Done(Reply { allow: Some(if draws { DRAWING } else { READING }), ..alive }));
    }
    if let Some((mode, key)) = leaf_key(path) {
        return leaf_get(mode, key, facts);
    }
    let reply = match path {
        "/v1/ids" => return ids(head, conditions),
        "/id" => return Ok(katsubushi_id(head, facts)),
        "/ids" => return katsubushi_ids(head, conditions),
        OPENAPI_PATH => Ok(Reply::with_body(JSON, openapi(conditions))),
        path if HEALTH_PATHS.contains(&path) => health(conditions),
        "/v1/sources" => Ok(lookup::sources(conditions)),
        "/stats" => Ok(lookup::stats(conditions)),
        "/decodeSnowflakeId" => lookup::leaf_decode(head, facts),
        "/v1/range" => lookup::range(head, facts),
        path => match path.strip_prefix("/v1/decode/") {
            Some(id) => lookup::decode(id, head, facts),
            None => {
                let text = format!("nothing is at {path}; the paths are {PATHS}");
                Err(Reply::refusal(ErrorCode::Unsupported, 404, &text, None))
            }
        },
    };
    reply.map(Answer::Done)
}

/// Returns the OpenAPI description, with the daemon's limits. Clients without a token do not see the
/// sources.
fn openapi(conditions: &Conditions<'_>) -> String {
    let facts = conditions.facts;
    let sources = if conditions.session.is_authorized() {
        format!("\"enum\": [\"{}\"]", facts.names("\", \""))
    } else {
        String::from("\"minLength\": 1")
    };
    let openapi = OPENAPI.replace("\"enum\": [\"SOURCES\"]", &sources);
    openapi.replace("\"MAX_COUNT\"", &facts.max_count.to_string())
}

/// Answers load balancers: this front end takes requests until the daemon stops.
fn health(conditions: &Conditions<'_>) -> Result<Reply, Reply> {
    if conditions.is_stopping {
        return Err(Reply::refusal(ErrorCode::ShuttingDown, 503, STOPPING, None));
    }
    Ok(Reply::with_body(TEXT, String::from("ok\n")))
}

/// Refuses a method that is not in `allowed`.
fn check_method(head: &Head<'_>, allowed: &'static str) -> Result<(), Reply> {
    if allowed.split(", ").any(|method| method == head.method) {
        return Ok(());
    }
    let text = format!("found the method {}, allowed: {allowed}", head.method);
    let refusal = Reply::refusal(ErrorCode::Unsupported, 405, &text, None);
    Err(Reply { allow: Some(allowed), ..refusal })
}

/// Answers /v1/ids.
fn ids(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    let facts = conditions.facts;
    let query = Query::parse(head.query, &["source", "count", "wait", "partial", "format"])?;
    let source = source_of(query.get("source"), facts)?;
    let wait_ms = query.wait_ms()?;
    let partial = query.flag("partial")?;
    let ask = Ask { source, count: query.count("count", facts.max_count)?, wait_ms, partial };
    let codec = codec_of(query.get("format"), source, facts)?;
    let listing = if head.text.preference() > head.json.preference() {
        Listing::lines("\n", codec)
    } else {
        Listing::json(&format!("\"source\":\"{}\",", facts.sources[source]), codec)
    };
    Ok(Answer::Ids(ask, Box::new(listing)))
}

/// Returns whether katsubushi would reply with JSON: if the client names it, and does not prefer
/// plain text.
fn wants_json(head: &Head<'_>) -> bool {
    let json = head.json.preference();
    json.is_named() && json.is_at_least(head.text.preference())
}

/// Answers katsubushi's /id.
fn katsubushi_id(head: &Head<'_>, facts: &Facts) -> Answer {
    let listing = if wants_json(head) { Listing::json_of_one() } else { Listing::lines("", None) };
    Answer::Ids(Ask::new(facts.first, 1), Box::new(listing))
}

/// Answers katsubushi's /ids.
fn katsubushi_ids(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    let query = Query::lenient(head.query);
    let count = match query.get("n") {
        Some("") => 1,
        _ => query.count("n", conditions.facts.max_count)?,
    };
    let listing = if wants_json(head) { Listing::json("", None) } else { Listing::lines("", None) };
    Ok(Answer::Ids(Ask::new(conditions.facts.first, count), Box::new(listing)))
}

/// Answers Leaf's /api/snowflake/get/KEY and /api/segment/get/KEY. A table that expects the one kind
/// of number must not get the other.
fn leaf_get(mode: LeafMode, key: &str, facts: &Facts) -> Result<Answer, Reply> {
    let is_ticket = mode == LeafMode::Segment;
    let of_mode = |source: &usize| facts.layout(*source).is_none() == is_ticket;
    let source = facts.source_of_key_among(key.as_bytes(), of_mode).ok_or_else(|| {
        let allowed =
            if is_ticket { "a ticket source (kind = \"ticket\")" } else { "a source with a layout" };
        let text = format!("found key {key:?}, allowed: the name of {allowed}");
        Reply::refusal(ErrorCode::UnknownSource, 404, &text, None)
    })?;
    Ok(Answer::Ids(Ask::new(source, 1), Box::new(Listing::lines("", None))))
}
