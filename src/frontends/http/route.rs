//! Paths and their parameters.

use super::lookup;
use super::query::{Query, malformed, segment};
use super::reply::Reply;
use super::{Answer, Head, Listing};
use crate::frontends::{Ask, Conditions, Facts};
use snowbank_id::format::{Codec, Context, Format};
use snowbank_wire::ErrorCode;

/// The paths, as a refusal lists them.
const PATHS: &str = "/v1/ids, /v1/sources, /v1/decode/ID, /v1/range, /v1/openapi.json, /id, /ids, /stats, \
                     /api/snowflake/get/KEY, /api/segment/get/KEY and /decodeSnowflakeId";

/// The path of the OpenAPI description. A request for the description needs no token.
pub(super) const OPENAPI_PATH: &str = "/v1/openapi.json";

const OPENAPI: &str = include_str!("openapi.json");

/// Returns the answer to a request, or the IDs that it asks for.
///
/// # Errors
/// The refusal.
pub(super) fn answer(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    let facts = conditions.facts;
    if head.has_body && head.path != OPENAPI_PATH {
        return Err(malformed("found a body, allowed: none; send parameters in the query"));
    }
    let key = ["/api/snowflake/get/", "/api/segment/get/"];
    if let Some(key) = key.iter().find_map(|prefix| head.path.strip_prefix(prefix)) {
        return leaf_get(&segment(key), head, conditions);
    }
    let reply = match head.path {
        "/v1/ids" => return ids(head, conditions),
        "/id" => return katsubushi_id(head),
        "/ids" => return katsubushi_ids(head, conditions),
        OPENAPI_PATH => read_only(head).map(|()| Reply::with_body(super::reply::JSON, OPENAPI.to_owned())),
        "/v1/sources" => read_only(head).map(|()| lookup::sources(conditions)),
        "/stats" => read_only(head).map(|()| lookup::stats(conditions)),
        "/decodeSnowflakeId" => read_only(head).and_then(|()| lookup::leaf_decode(head, facts)),
        "/v1/range" => read_only(head).and_then(|()| lookup::range(head, facts)),
        path => match path.strip_prefix("/v1/decode/") {
            Some(id) => read_only(head).and_then(|()| lookup::decode(&segment(id), head, facts)),
            None => {
                let text = format!("nothing is at {path}; the paths are {PATHS}");
                Err(Reply::refusal(ErrorCode::Unsupported, 404, &text, None))
            }
        },
    };
    reply.map(Answer::Done)
}

/// Refuses all methods but GET and HEAD.
fn read_only(head: &Head<'_>) -> Result<(), Reply> {
    methods(head, &["GET", "HEAD"], "GET, HEAD")
}

/// Refuses all methods but GET and POST. A reply to HEAD has no body, so its IDs would be lost.
fn may_draw(head: &Head<'_>) -> Result<(), Reply> {
    methods(head, &["GET", "POST"], "GET, POST")
}

fn methods(head: &Head<'_>, allowed: &[&str], listed: &'static str) -> Result<(), Reply> {
    if allowed.contains(&head.method) {
        return Ok(());
    }
    let text = format!("found the method {}, allowed: {listed}", head.method);
    let refusal = Reply::refusal(ErrorCode::Unsupported, 405, &text, None);
    Err(Reply { allow: Some(listed), ..refusal })
}

/// Returns the source with this name, or the first source if no name is given. An unknown name is a
/// mistake, even if `any_key` is set.
pub(super) fn source_of(name: Option<&str>, facts: &Facts) -> Result<usize, Reply> {
    let Some(name) = name else { return Ok(0) };
    known(facts.sources.iter().position(|source| source == name), name, facts)
}

/// Returns the source that was `found`, or the refusal of `name`.
fn known(found: Option<usize>, name: &str, facts: &Facts) -> Result<usize, Reply> {
    found.ok_or_else(|| {
        let text = format!("found source {name:?}, allowed: {}", facts.sources.join(", "));
        Reply::refusal(ErrorCode::UnknownSource, 404, &text, None)
    })
}

/// Returns the codec that writes a source's IDs in a format. Decimal digits need no codec.
pub(super) fn codec_of(format: Option<&str>, source: usize, facts: &Facts) -> Result<Option<Codec>, Reply> {
    let Some(format) = format else { return Ok(None) };
    let format: Format = format.parse().map_err(|error| malformed(&format!("format: {error}")))?;
    if format == Format::Decimal {
        return Ok(None);
    }
    let codec = format.codec(Context::new(&facts.sources[source], facts.layout(source)));
    codec.map(Some).map_err(|error| malformed(&format!("format: {error}")))
}

/// Answers GET or POST /v1/ids.
fn ids(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    may_draw(head)?;
    let facts = conditions.facts;
    let query = Query::parse(head.query, &["source", "count", "wait", "partial", "format"])?;
    let source = source_of(query.get("source"), facts)?;
    let wait_ms = query.wait_ms()?;
    let partial = query.flag("partial")?;
    let ask = Ask { source, count: query.count("count", facts.max_count)?, wait_ms, partial };
    let codec = codec_of(query.get("format"), source, facts)?;
    let listing = if wants_text(head) {
        Listing::lines("\n", codec)
    } else {
        Listing::json(&format!("\"source\":\"{}\",", facts.sources[source]), codec)
    };
    Ok(Answer::Ids(ask, Box::new(listing)))
}

/// Returns whether the client asks for plain text, and not for JSON.
fn wants_text(head: &Head<'_>) -> bool {
    head.accept.contains("text/plain") && !wants_json(head)
}

fn wants_json(head: &Head<'_>) -> bool {
    head.accept.contains("application/json")
}

/// Answers katsubushi's /id.
fn katsubushi_id(head: &Head<'_>) -> Result<Answer, Reply> {
    may_draw(head)?;
    Query::parse(head.query, &[])?;
    let listing = if wants_json(head) { Listing::json_of_one() } else { Listing::lines("", None) };
    Ok(Answer::Ids(Ask::new(0, 1), Box::new(listing)))
}

/// Answers katsubushi's /ids.
fn katsubushi_ids(head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    may_draw(head)?;
    let count = Query::parse(head.query, &["n"])?.count("n", conditions.facts.max_count)?;
    let listing = if wants_json(head) { Listing::json("", None) } else { Listing::lines("", None) };
    Ok(Answer::Ids(Ask::new(0, count), Box::new(listing)))
}

/// Answers Leaf's /api/snowflake/get/KEY and /api/segment/get/KEY.
fn leaf_get(key: &str, head: &Head<'_>, conditions: &Conditions<'_>) -> Result<Answer, Reply> {
    may_draw(head)?;
    let facts = conditions.facts;
    let source = known(facts.source_of_key(key.as_bytes()), key, facts)?;
    Ok(Answer::Ids(Ask::new(source, 1), Box::new(Listing::lines("", None))))
}
