//! The JSON of an INFO reply.

use serde::{Deserialize, Deserializer, Serialize};

/// The most bytes of JSON that a client accepts, over all frames of the reply: some hundred thousand worker IDs.
pub const MAX_INFO_SIZE: usize = 4 << 20;

/// What a daemon says of itself. Readers need `protocol`, `max_count` and `sources`; every other key may be missing,
/// be of an unexpected form (it reads as missing then), or be joined by further ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The protocol version that the daemon speaks: [`VERSION`](super::VERSION).
    pub protocol: u32,
    /// The daemon's own version.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which daemon this is, among a fleet.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The most IDs that one request may ask for.
    pub max_count: u32,
    /// How the IDs of different connections compare.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// How far, in ms, an ID's tick may lie behind the daemon's clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub burst_window_ms: Option<u64>,
    /// How far, in ms, an ID's tick may lie ahead of the daemon's clock.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub max_ahead_ms: Option<u64>,
    /// The sources, each keeping its index for the daemon's life.
    pub sources: Vec<Source>,
}

/// How the IDs of different connections of one daemon compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Sorted by tick, within the burst window.
    Relaxed,
    /// A request sent after a reply was received gets larger IDs.
    Strict,
}

/// A named, independent supply of IDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What a NEXT request names it by; 0 is the default source.
    pub index: u16,
    /// Its name in the daemon's configuration.
    pub name: String,
    /// What makes its IDs.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub kind: Option<SourceKind>,
    /// Its layout in full text form, never a preset's name; none for tickets.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Its worker IDs, one number each; none for tickets.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub worker_ids: Option<Vec<u64>>,
    /// How many IDs a second it can hand out, all its worker IDs together.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u64>,
}

/// What makes a source's IDs.
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
    /// Not JSON, or a needed key is missing or of the wrong form.
    #[error("the INFO reply cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The daemon speaks another version of the protocol.
    #[error("the daemon speaks protocol version {found}; this client speaks version {}", super::VERSION)]
    Protocol {
        /// The daemon's version.
        found: u32,
    },
}

impl Info {
    /// Reads the JSON of a whole INFO reply.
    ///
    /// # Errors
    /// [`BadInfo`] if it is not JSON, lacks a needed key, or is of another protocol version.
    pub fn from_json(json: &[u8]) -> Result<Self, BadInfo> {
        let info: Self = serde_json::from_slice(json)?;
        if info.protocol != super::VERSION {
            return Err(BadInfo::Protocol { found: info.protocol });
        }
        Ok(info)
    }

    /// The JSON as it goes into [`encode_info`](super::reply::encode_info).
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The source of that name.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == name)
    }
}

/// Reads a value that nobody needs: one of an unexpected form, as a later daemon may send it, is none.
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
    fn the_needed_keys_suffice() {
        let info = Info::from_json(br#"{"protocol":1,"max_count":5,"sources":[{"index":0,"name":"a"}]}"#);
        let info = info.expect("the needed keys are there");
        assert_eq!((info.max_count, info.sources.len(), info.order), (5, 1, None));
        assert_eq!(info.source("a").map(|source| source.index), Some(0));
        assert_eq!(info.source("b"), None);
    }

    #[test]
    fn further_and_odd_keys_are_ignored() {
        let json =
            br#"{"protocol":1,"max_count":5,"sources":[{"index":1,"name":"a","kind":"quantum","new":[]}],
            "order":"sideways","burst_window_ms":0.5,"version":7,"colour":{"of":"the sky"}}"#;
        let info = Info::from_json(json).expect("odd keys are not needed");
        assert_eq!((info.order, info.burst_window_ms, info.version), (None, None, None));
        assert_eq!(info.sources[0].kind, None);
    }

    #[test]
    fn a_needed_key_is_needed() {
        for json in [
            &br#"{"max_count":5,"sources":[]}"#[..],
            br#"{"protocol":1,"sources":[]}"#,
            br#"{"protocol":1,"max_count":5}"#,
            br#"{"protocol":1,"max_count":-5,"sources":[]}"#,
            br#"{"protocol":1,"max_count":5,"sources":[{"index":0}]}"#,
            b"[]",
            b"",
        ] {
            assert!(matches!(Info::from_json(json), Err(BadInfo::Json(_))));
        }
        let other = br#"{"protocol":2,"max_count":5,"sources":[]}"#;
        assert!(matches!(Info::from_json(other), Err(BadInfo::Protocol { found: 2 })));
    }

    #[test]
    fn what_is_written_is_read() {
        let info = Info {
            protocol: 1,
            version: Some("0.1.0".into()),
            instance: None,
            max_count: 1_000_000,
            order: Some(Order::Strict),
            burst_window_ms: Some(10),
            max_ahead_ms: Some(10_000),
            sources: vec![Source {
                index: 0,
                name: "orders".into(),
                kind: Some(SourceKind::Snowflake),
                layout: None,
                worker_ids: Some(vec![1, 2]),
                per_second: Some(8_192_000),
            }],
        };
        assert_eq!(Info::from_json(&info.to_json()).expect("our own JSON"), info);
    }
}
