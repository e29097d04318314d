//! Answers to requests about sources and IDs. These requests draw no IDs.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::Head;
use super::query::{Query, codec_of, malformed, source_of, unfit};
use super::reply::{JSON, Reply};
use crate::frontends::{Conditions, Facts, statistics};
use snowbank_id::layout::{Layout, LayoutError};
use snowbank_wire::ErrorCode;

/// Answers /v1/sources with the JSON of an INFO reply.
pub(super) fn sources(conditions: &Conditions<'_>) -> Reply {
    Reply::with_body(JSON, String::from_utf8_lossy(&conditions.info_json()).into_owned() + "\n")
}

/// Returns the layout of a source, or a refusal if it is a ticket source, which has no layout.
fn layout_of(source: usize, facts: &Facts) -> Result<&Layout, Reply> {
    facts.layout(source).ok_or_else(|| {
        let name = &facts.sources[source];
        unfit(format_args!(
            "source {name} has tickets, which have no fields and no time; name a source with a layout"
        ))
    })
}

/// Answers /v1/decode/ID.
pub(super) fn decode(text: &str, head: &Head<'_>, facts: &Facts) -> Result<Reply, Reply> {
    let query = Query::parse(head.query, &["source", "format"])?;
    let source = source_of(query.get("source"), facts)?;
    let layout = layout_of(source, facts)?;
    let id = match codec_of(query.get("format"), source, facts)? {
        Some(codec) => codec.read(text).map_err(malformed)?,
        None if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(malformed(format_args!("{text:?} is not an ID: IDs are decimal numbers from 0")));
        }
        None => layout.parse_id(text).map_err(no_such_id)?,
    };
    let decoded = layout.decode(id).map_err(no_such_id)?;
    #[derive(Serialize)]
    struct Body<'a> {
        id: String,
        source: &'a str,
        layout: String,
        time: String,
        unix_ms: i64,
        worker_id: u64,
        fields: Members<'a, u64>,
    }
    Ok(Reply::json(&Body {
        id: id.to_string(),
        source: &facts.sources[source],
        layout: layout.to_string(),
        time: layout.rfc3339(decoded.instant),
        unix_ms: decoded.instant.unix_ms(),
        worker_id: decoded.worker,
        fields: Members(decoded.fields),
    }))
}

/// Refuses a number that is no ID of the layout.
fn no_such_id(error: LayoutError) -> Reply {
    Reply::refusal(ErrorCode::Unsupported, 404, error, None)
}

/// A JSON object whose members keep their order.
struct Members<'a, V>(Vec<(&'a str, V)>);

impl<V: Serialize> Serialize for Members<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Answers /v1/range with the first and the last ID of a time span.
pub(super) fn range(head: &Head<'_>, facts: &Facts) -> Result<Reply, Reply> {
    let query = Query::parse(head.query, &["from", "to", "source"])?;
    let source = source_of(query.get("source"), facts)?;
    let layout = layout_of(source, facts)?;
    let from = query.instant("from")?;
    let to = query.instant("to")?;
    // The instants are valid, but no ID lies between them.
    let bounds = layout.range(from, to);
    let (first, last) = bounds.map_err(|error| Reply::refusal(ErrorCode::Malformed, 404, error, None))?;
    #[derive(Serialize)]
    struct Body<'a> {
        source: &'a str,
        layout: String,
        from: String,
        to: String,
        first: String,
        last: String,
    }
    Ok(Reply::json(&Body {
        source: &facts.sources[source],
        layout: layout.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        first: first.to_string(),
        last: last.to_string(),
    }))
}

/// Answers katsubushi's /stats.
pub(super) fn stats(conditions: &Conditions<'_>) -> Reply {
    Reply::json(&Members(statistics::all(conditions, env!("CARGO_PKG_VERSION")).into()))
}

/// Answers Leaf's /decodeSnowflakeId, for the first source.
pub(super) fn leaf_decode(head: &Head<'_>, facts: &Facts) -> Result<Reply, Reply> {
    let query = Query::lenient(head.query);
    let layout = layout_of(source_of(None, facts)?, facts)?;
    let id = layout.parse_id(query.require("snowflakeId")?).map_err(malformed)?;
    let decoded = layout.decode(id).map_err(malformed)?;
    let time = decoded.instant.rfc3339(3).replace('T', " ").replace('Z', "");
    let body = BTreeMap::from([
        ("timestamp", format!("{}({time})", decoded.instant.unix_ms())),
        ("workerId", decoded.worker.to_string()),
        ("sequenceId", decoded.sequence.to_string()),
    ]);
    Ok(Reply::json(&body))
}
