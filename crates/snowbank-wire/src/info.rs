//! The JSON of an INFO reply.

use serde::{Deserialize, Deserializer, Serialize};

use crate::one_line;
use snowbank_id::layout::{Layout, WorkerSet};

/// The most bytes of JSON that a client accepts over all frames of a reply. Several hundred
/// thousand worker IDs fit.
pub const MAX_INFO_SIZE: usize = 4 << 20;

/// A daemon's version, limits and sources.
///
/// `protocol`, `max_count` and `sources` are required, and each source's `name`. Every
/// other key may be missing. A key with a value of an unexpected form counts as missing, and
/// unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The protocol version of the daemon: [`VERSION`](super::VERSION).
    pub protocol: u8,
    /// The daemon's own version.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of this start of the daemon. Each start has a different name.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The most IDs that one request may ask for.
    pub max_count: u32,
    /// The order of IDs on different connections.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The most ms by which an ID's tick may be behind the daemon's ID clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub burst_window_ms: Option<u64>,
    /// The most ms by which an ID's tick may be ahead of the daemon's clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub max_ahead_ms: Option<u64>,
    /// The daemon's wall clock when it answered, in ms of Unix time.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub clock_unix_ms: Option<i64>,
    /// The sources. A NEXT that names none means the first.
    pub sources: Vec<Source>,
}

/// The order of IDs on different connections of one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// An ID's tick may be older than the daemon's clock by up to the burst window. So a later
    /// request on another connection may get lower IDs.
    Relaxed,
    /// A request that is sent after a reply was received gets larger IDs than those in the reply,
    /// if both are of one source.
    Strict,
}

/// A named, independent supply of IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name in the daemon's configuration, as NEXT has it.
    pub name: String,
    /// The generator of the source's IDs.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub kind: Option<SourceKind>,
    /// The distance between two numbers of a ticket source. `None` for other sources.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub increment: Option<u64>,
    /// The first number of a ticket source's sequence. `None` for other sources.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The fleet whose coordinator has the counter of a ticket source. The fleet's daemons take
    /// disjoint ranges of the counter. `None` without such a fleet.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// The layout in full text form, never a preset's name. `None` for tickets.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// The worker IDs, one number each. `None` for tickets.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub worker_ids: Option<Vec<u64>>,
    /// The most IDs per second over all worker IDs. `None` for tickets.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u64>,
}

/// The generator of a source's IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A clock, a worker ID and a sequence.
    Snowflake,
    /// A counter.
    Ticket,
}

/// An INFO reply that is not the JSON that the protocol promises.
#[derive(Debug, thiserror::Error)]
pub enum BadInfo {
    /// The reply is not JSON, or a required key is missing or of the wrong form.
    #[error("the INFO reply cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The daemon speaks another version of the protocol.
    #[error("the daemon speaks protocol version {found}; this client speaks version {}", super::VERSION)]
    Protocol {
        /// The daemon's version.
        found: u8,
    },
}

impl Info {
    /// Reads the JSON of a whole INFO reply.
    ///
    /// # Errors
    /// Returns [`BadInfo`] if the reply is not JSON, lacks a required key, or has another protocol
    /// version.
    pub fn from_json(json: &[u8]) -> Result<Self, BadInfo> {
        let mut info: Self = serde_json::from_slice(json)?;
        if info.protocol != super::VERSION {
            return Err(BadInfo::Protocol { found: info.protocol });
        }
        info.version = info.version.as_deref().map(one_line);
        info.instance = info.instance.as_deref().map(one_line);
        Ok(info)
    }

    /// Returns the JSON for [`encode_info`](super::reply::encode_info).
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns a worker ID of this daemon whose IDs the other daemon can hand out at the same time,
    /// after the name of its source. Returns `None` if there is no such worker ID, or if the two are
    /// one daemon. Also if one of them does not name its instance.
    #[must_use]
    pub fn shared_worker_id(&self, other: &Self) -> Option<(&str, u64)> {
        let instances = [self.instance.as_ref()?, other.instance.as_ref()?];
        if instances[0] == instances[1] {
            return None;
        }
        let others = other.generators();
        self.generators().into_iter().find_map(|(source, layout, workers)| {
            let (worker_id, _) = others
                .iter()
                .find_map(|(_, other, its)| layout.concurrent_collision(&workers, other, its))?;
            Some((source, worker_id))
        })
    }

    /// Returns the name, the layout and the worker IDs of each source whose layout and worker IDs
    /// can be read.
    fn generators(&self) -> Vec<(&str, Layout, WorkerSet)> {
        self.sources.iter().filter_map(Source::generator).collect()
    }

    /// Returns the source of that name.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == name)
    }
}

impl Source {
    /// Returns the name, the layout and the worker IDs. Returns `None` if the layout or the worker
    /// IDs are missing or wrong. Such a source is not compared.
    fn generator(&self) -> Option<(&str, Layout, WorkerSet)> {
        let layout: Layout = self.layout.as_ref()?.parse().ok()?;
        let workers = WorkerSet::from_list(self.worker_ids.clone()?).ok()?;
        (workers.highest() < layout.workers()).then_some((&self.name, layout, workers))
    }
}

/// Reads an optional value. A value of an unexpected form, as a later daemon may send it, counts as
/// `None`.
fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_keys_suffice() {
        let info = Info::from_json(br#"{"protocol":1,"max_count":5,"sources":[{"name":"a"}]}"#);
        let info = info.expect("the required keys are there");
        assert_eq!((info.max_count, info.sources.len(), info.order), (5, 1, None));
        assert_eq!(info.source("a").map(|source| source.kind), Some(None));
        assert_eq!(info.source("b"), None);
    }

    #[test]
    fn unknown_keys_and_odd_values_are_ignored() {
        let json = br#"{"protocol":1,"max_count":5,"sources":[{"name":"a","kind":"quantum","new":[]}],
            "order":"sideways","burst_window_ms":0.5,"version":7,"colour":{"of":"the sky"}}"#;
        let info = Info::from_json(json).expect("none of the odd keys is required");
        assert_eq!((info.order, info.burst_window_ms, info.version), (None, None, None));
        assert_eq!(info.sources[0].kind, None);
    }

    #[test]
    fn info_without_a_required_key_is_refused() {
        for json in [
            &br#"{"max_count":5,"sources":[]}"#[..],
            br#"{"protocol":1,"sources":[]}"#,
            br#"{"protocol":1,"max_count":5}"#,
            br#"{"protocol":1,"max_count":-5,"sources":[]}"#,
            br#"{"protocol":1,"max_count":5,"sources":[{}]}"#,
            b"[]",
            b"",
        ] {
            assert!(matches!(Info::from_json(json), Err(BadInfo::Json(_))));
        }
        let other = br#"{"protocol":2,"max_count":5,"sources":[]}"#;
        assert!(matches!(Info::from_json(other), Err(BadInfo::Protocol { found: 2 })));
    }
}
