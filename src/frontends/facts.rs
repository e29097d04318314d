//! The facts about the daemon that front ends use.

use super::exact::EXACT_MAX;
use super::redis_info;
use crate::access::Rules;
use crate::config::Replies;
use crate::config::{Settings, SourceSettings};
use snowbank_id::layout::Layout;

/// The most sources that a message names.
const NAMED_MAX: usize = 16;

/// What a counter's increment means for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Increment {
    /// Draw this many IDs. The last one is the counter's new value.
    Draw(u64),
    /// Draw nothing, and tell the last number of a ticket source.
    Read,
    /// Refused: the source's IDs are not consecutive.
    OnlyByOne,
    /// Refused: the number is negative, too large, or 0 for a source with a layout.
    OutOfRange,
}

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
    /// The names of the sources, by their index. The name of a removed source is empty, and no
    /// client can send it.
    pub sources: Vec<String>,
    /// The indices of the configured sources, in the order of their names.
    by_name: Vec<usize>,
    /// The indices of the configured sources, in the order of the file.
    pub order: Vec<usize>,
    /// The index of the first source of the file. Requests that name no source draw from it.
    pub first: usize,
    /// The rules that decide who a client is.
    pub access: Rules,
    /// The form of INCR's replies.
    pub replies: Replies,
    /// The settings of the sources, by their index. Those of removed sources have no meaning.
    source_settings: Vec<SourceSettings>,
    /// True for sources whose layout ends at 2^53 or below, and for ticket sources, by their index.
    has_exact_ids: Vec<bool>,
    /// The source for keys that name no source. `None`: the front ends refuse such keys, but the
    /// front end for memcached draws from the first source.
    any_key: Option<usize>,
}

impl Facts {
    /// Returns the facts of a daemon with these settings, whose sources have the indices 0, 1, ….
    pub fn new(settings: &Settings, info_json: Vec<u8>, access: Rules) -> Self {
        Facts::of(settings, (0..settings.sources.len()).collect(), info_json, access)
    }

    /// Returns the facts of a daemon with these settings. `order` has the index of each source.
    pub fn of(settings: &Settings, order: Vec<usize>, info_json: Vec<u8>, access: Rules) -> Self {
        let indices = order.iter().max().map_or(0, |last| last + 1);
        let mut sources = vec![String::new(); indices];
        let mut source_settings = vec![SourceSettings::default(); indices];
        for (&index, source) in order.iter().zip(&settings.sources) {
            sources[index].clone_from(&source.name);
            source_settings[index] = source.clone();
        }
        let is_exact = |layout: &Layout| layout.last_id() <= EXACT_MAX;
        let has_exact_ids =
            source_settings.iter().map(|source| source.own_layout().is_none_or(is_exact)).collect();
        let mut by_name = order.clone();
        by_name.sort_unstable_by_key(|&index| &sources[index]);
        let named = |name: &String| sources.iter().position(|source| source == name);
        let any_key = settings.any_key.as_ref().and_then(named);
        let first = order.first().copied().unwrap_or_default();
        let max_count = settings.limits.max_count.get();
        let replies = settings.front_ends.resp.replies;
        let redis_info = redis_info::text(&info_json);
        Facts {
            info_json,
            redis_info,
            max_count,
            sources,
            by_name,
            order,
            first,
            access,
            replies,
            source_settings,
            has_exact_ids,
            any_key,
        }
    }

    /// Returns the index of the source with this name.
    pub fn source_named(&self, name: &[u8]) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&index| self.sources[index].as_bytes().cmp(name));
        found.ok().map(|at| self.by_name[at])
    }

    /// Returns the names of the sources, in the order of the file, with `between` between two names.
    pub fn names(&self, between: &str) -> String {
        let names: Vec<&str> = self.order.iter().map(|&index| &*self.sources[index]).collect();
        names.join(between)
    }

    /// Returns the names of the sources, for a message. A daemon may have more than a message can
    /// name.
    pub(super) fn names_in_words(&self) -> String {
        let named = self.order.iter().take(NAMED_MAX).map(|&index| &*self.sources[index]);
        let named: Vec<&str> = named.collect();
        let more = match self.order.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} others"),
        };
        named.join(", ") + &more
    }

    /// Returns true if several IDs of one request for this source are consecutive numbers.
    pub fn is_consecutive(&self, source: usize) -> bool {
        self.source_settings[source].is_consecutive()
    }

    /// Returns the indices of the ticket sources, in the order of the file.
    pub(super) fn tickets(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied().filter(|&source| self.layout(source).is_none())
    }

    /// Returns whether JavaScript reads all IDs of a source exactly. For a ticket source this holds up
    /// to 2^53, which few counters reach.
    #[inline]
    pub(super) fn has_exact_ids(&self, source: usize) -> bool {
        self.has_exact_ids[source]
    }

    /// Returns the layout of a source. `None` if the source counts tickets.
    pub fn layout(&self, source: usize) -> Option<&Layout> {
        self.source_settings[source].own_layout()
    }

    /// Returns the source that a client's key draws from, in every protocol. It is the source with
    /// the name in front of the key's first colon. Else it is the source for all other keys, if one
    /// is set. No source's name has a colon.
    ///
    /// The colon is for clients that need different keys for the IDs of one source. They return a
    /// dictionary, or their keys are made of parts.
    pub fn source_of_key(&self, key: &[u8]) -> Option<usize> {
        self.source_of_key_among(key, |_| true)
    }

    /// Does the same among some of the sources. The others count as unknown.
    pub(super) fn source_of_key_among(&self, key: &[u8], has: impl Fn(&usize) -> bool) -> Option<usize> {
        let name = key.split(|&byte| byte == b':').next().unwrap_or_default();
        self.source_named(name).filter(&has).or(self.any_key.filter(&has))
    }

    /// Returns what a counter's increment by `by` means for a source. Every source can be incremented
    /// by 1, which draws an ID. The last of several consecutive numbers is what a counter would have
    /// reached.
    pub(super) fn increment(&self, source: usize, by: i64) -> Increment {
        match by {
            1 => Increment::Draw(1),
            _ if !self.is_consecutive(source) => Increment::OnlyByOne,
            0 => Increment::Read,
            2.. if by <= i64::from(self.max_count) => Increment::Draw(by.unsigned_abs()),
            _ => Increment::OutOfRange,
        }
    }
}
