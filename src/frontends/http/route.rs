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

/// Returns the fault of a request with a body, which is not read. A wrong path or method is refused
/// before it.
pub(super) fn body_fault(head: &Head<'_>) -> Option<String> {
    let found = head.body?;
    let path = decoded(head.path);
    let route = Route::of(&path).filter(|route| *route != Route::OpenApi)?;
    let refused = format!("found {found}, allowed: no body; send parameters in the query");
    route.allows(head.method).then_some(refused)
}

/// Returns whether a request is for IDs, as katsubushi counts: also if it has a mistake.
pub(super) fn is_get(head: &Head<'_>) -> bool {
    matches!(head.method, "GET" | "POST") && Route::of(&decoded(head.path)).is_some_and(Route::draws_ids)
}

/// The resource at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route<'p> {
    Ids,
    /// katsubushi's paths for one ID and for several.
    KatsubushiId,
    KatsubushiIds,
    /// A key of Leaf's.
    LeafKey(LeafMode, &'p str),
    Health,
    OpenApi,
    Sources,
    Stats,
    LeafDecode,
    Range,
    /// The text of an ID.
    Decode(&'p str),
}

impl<'p> Route<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let key = |(prefix, mode)| path.strip_prefix(prefix).map(|key| Route::LeafKey(mode, key));
        match path {
            "/v1/ids" => Some(Route::Ids),
            "/id" => Some(Route::KatsubushiId),
            "/ids" => Some(Route::KatsubushiIds),
            path if HEALTH_PATHS.contains(&path) => Some(Route::Health),
            OPENAPI_PATH => Some(Route::OpenApi),
            "/v1/sources" => Some(Route::Sources),
            "/stats" => Some(Route::Stats),
            "/decodeSnowflakeId" => Some(Route::LeafDecode),
            "/v1/range" => Some(Route::Range),
            path => LEAF_PREFIXES
                .into_iter()
                .find_map(key)
                .or_else(|| path.strip_prefix("/v1/decode/").map(Route::Decode)),
        }
    }

    fn draws_ids(self) -> bool {
        matches!(self, Route::Ids | Route::KatsubushiId | Route::KatsubushiIds | Route::LeafKey(..))
    }

    /// Returns the methods that are allowed.
    fn methods(self) -> &'static str {
        if self.draws_ids() { "GET, POST, HEAD, OPTIONS" } else { "GET, HEAD, OPTIONS" }
    }

    fn allows(self, method: &str) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method)
    }
}

/// A mode of Leaf's, which the path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeafMode {
    /// IDs of a layout.
    Snowflake,
    /// Numbers of a counter.
    Segment,
}

const LEAF_PREFIXES: [(&str, LeafMode); 2] =
    [("/api/snowflake/get/", LeafMode::Snowflake), ("/api/segment/get/", LeafMode::Segment)];

/// Returns the answer to a request, or the IDs that it asks for.
///
/// # Errors
/// The refusal.
pub(super) fn answer(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    let facts = conditions.facts;
    let path = &*decoded(head.path);
    if (head.method, path) == ("OPTIONS", "*") {
        return health(conditions).map(Answer::Done);
    }
    let route = Route::of(path).ok_or_else(|| {
        let text = format!("nothing is at {path}; the paths are {PATHS}");
        Reply::refusal(ErrorCode::Unsupported, 404, &text, None)
    })?;
    check_method(head, route)?;
    if [Route::Sources, Route::OpenApi].contains(&route) {
        Query::parse(head.query, &[])?;
    }
    if head.method == "OPTIONS" {
        let alive = health(conditions)?;
        return Ok(Answer::Done(Reply { allow: Some(route.methods()), ..alive }));
    }
    let reply = match route {
        Route::Ids => return ids(head, conditions),
        Route::KatsubushiId => return Ok(katsubushi_id(head, facts)),
        Route::KatsubushiIds => return katsubushi_ids(head, conditions),
        Route::LeafKey(mode, key) => return leaf_get(mode, key, facts),
        Route::Health => health(conditions),
        Route::OpenApi => Ok(Reply::with_body(JSON, openapi(conditions))),
        Route::Sources => Ok(lookup::sources(conditions)),
        Route::Stats => Ok(lookup::stats(conditions)),
        Route::LeafDecode => lookup::leaf_decode(head, facts),
        Route::Range => lookup::range(head, facts),
        Route::Decode(id) => lookup::decode(id, head, facts),
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

/// Refuses a method that the path does not allow.
fn check_method(head: &Head<'_>, route: Route<'_>) -> Result<(), Reply> {
    if route.allows(head.method) {
        return Ok(());
    }
    let allowed = route.methods();
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
