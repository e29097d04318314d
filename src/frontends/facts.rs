//! The facts about the daemon that front-ends use.

use super::{PROTOCOLS, Protocol, Replies, SourceNames, resp};
use crate::access::Rules;
use crate::config::{Settings, SourceKind, SourceSettings};
use snowbank_client::layout::Layout;

/// The facts about the daemon that front-ends send to clients and check requests against. A reload replaces them.
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
    /// Decides who a client is.
    pub access: Rules,
    /// The form of INCR's replies.
    pub replies: Replies,
    /// By source: true for a ticket counter with increment 1, so that several IDs of a request are consecutive.
    consecutive: Vec<bool>,
    /// The layouts of the sources. A ticket source has none.
    layouts: Vec<Option<Layout>>,
    /// The sources that each protocol's clients draw from if they name none, or an unknown one.
    of_protocol: [SourcesOf; PROTOCOLS],
}

/// The sources of one protocol.
#[derive(Clone, Copy, Debug, Default)]
struct SourcesOf {
    /// The source of a request that names none.
    source: usize,
    /// The source of a request that names an unknown one.
    any_key: Option<usize>,
}

impl Facts {
    /// Returns the facts of a daemon with these settings.
    pub fn new(settings: &Settings, info_json: Vec<u8>, access: Rules) -> Self {
        let sources: Vec<String> = settings.sources.iter().map(|source| source.name.clone()).collect();
        let index_of = |name: &str| sources.iter().position(|source| source == name);
        let mut of_protocol = [SourcesOf::default(); PROTOCOLS];
        for SourceNames { protocol, source, any_key } in settings.source_names() {
            of_protocol[protocol as usize] = SourcesOf {
                source: source.and_then(index_of).unwrap_or_default(),
                any_key: any_key.and_then(index_of),
            };
        }
        let counts_by_1 =
            |source: &SourceSettings| source.kind == SourceKind::Ticket && source.increment == 1;
        let consecutive = settings.sources.iter().map(counts_by_1).collect();
        let layout_of = |source: &SourceSettings| match source.kind {
            SourceKind::Snowflake => Some(source.layout.clone()),
            SourceKind::Ticket => None,
        };
        let layouts = settings.sources.iter().map(layout_of).collect();
        let (max_count, replies) = (settings.limits.max_count.get(), settings.front_ends.resp.replies);
        let redis_info = resp::info(&info_json);
        Facts {
            info_json,
            redis_info,
            max_count,
            sources,
            access,
            replies,
            consecutive,
            layouts,
            of_protocol,
        }
    }

    /// Returns the source of a request that names none.
    pub fn default_source(&self, protocol: Protocol) -> usize {
        self.of_protocol[protocol as usize].source
    }

    /// Returns true if several IDs of one request for this source are consecutive numbers.
    pub fn is_consecutive(&self, source: usize) -> bool {
        self.consecutive[source]
    }

    /// Returns the layout of a source, unless it counts tickets.
    pub fn layout(&self, source: usize) -> Option<&Layout> {
        self.layouts[source].as_ref()
    }

    /// Returns the source of this name; if there is none, the source of any other key.
    pub fn source_of_key(&self, protocol: Protocol, key: &[u8]) -> Option<usize> {
        let named = self.sources.iter().position(|name| name.as_bytes() == key);
        named.or(self.of_protocol[protocol as usize].any_key)
    }
}
