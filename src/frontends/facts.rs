//! The facts about the daemon that front ends use.

use super::{Replies, resp};
use crate::access::Rules;
use crate::config::{Settings, SourceSettings};
use snowbank_id::layout::Layout;

/// The facts about the daemon that front ends send to clients and check requests against. A reload
/// replaces them.
#[derive(Debug)]
pub struct Facts {
    /// The JSON of an INFO reply.
    pub info_json: Vec<u8>,
    /// The text of Redis' INFO.
    pub redis_info: String,
    /// The most IDs per request.
    pub max_count: u32,
    /// The names of the sources, by their index.
    pub sources: Vec<String>,
    /// The rules that decide who a client is.
    pub access: Rules,
    /// The form of INCR's replies.
    pub replies: Replies,
    /// The settings of the sources, by their index.
    source_settings: Vec<SourceSettings>,
    /// The source for keys that name no source. `None`: the front ends refuse such keys, but the
    /// front end for memcached draws from the first source.
    any_key: Option<usize>,
}

impl Facts {
    /// Returns the facts of a daemon with these settings.
    pub fn new(settings: &Settings, info_json: Vec<u8>, access: Rules) -> Self {
        let sources: Vec<String> = settings.sources.iter().map(|source| source.name.clone()).collect();
        let any_key =
            settings.sources.iter().position(|source| Some(&source.name) == settings.any_key.as_ref());
        let source_settings = settings.sources.clone();
        let max_count = settings.limits.max_count.get();
        let replies = settings.front_ends.resp.replies;
        let redis_info = resp::info(&info_json);
        Facts { info_json, redis_info, max_count, sources, access, replies, source_settings, any_key }
    }

    /// Returns true if several IDs of one request for this source are consecutive numbers.
    pub fn is_consecutive(&self, source: usize) -> bool {
        self.source_settings[source].is_consecutive()
    }

    /// Returns the layout of a source. `None` if the source counts tickets.
    pub fn layout(&self, source: usize) -> Option<&Layout> {
        self.source_settings[source].own_layout()
    }

    /// Returns the source with this name, or else the source for all other keys, if one is set.
    pub fn source_of_key(&self, key: &[u8]) -> Option<usize> {
        let named = self.sources.iter().position(|name| name.as_bytes() == key);
        named.or(self.any_key)
    }
}
