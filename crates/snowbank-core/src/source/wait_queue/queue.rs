//! The queue itself: requests in order of their deadlines, with a summary of what the requests
//! want.

use super::request::{Finished, Refusal, WaitId, WaitRequest};
use super::share::Share;
use super::summary::{Summary, Want};
use crate::source::Span;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WaitId,
    pub(super) request: WaitRequest,
    pub(super) spans: Vec<Span>,
    /// The limit of the supply by the deadline. `None` while the clock is unknown, and for a ticket
    /// source.
    pub(super) limit_by_due: Option<u64>,
    /// The request's place in the rotation in which requests get leftover positions.
    pub(super) turn: u64,
}

impl Entry {
    /// Returns how many of the positions that the request still wants were promised.
    fn promised(&self) -> u64 {
        let is_kept = self.request.partial && !self.spans.is_empty();
        if is_kept { 0 } else { self.request.promised() }
    }

    pub(super) fn share(&self) -> Share {
        Share { wanted: self.request.count, promised: self.promised(), turn: self.turn, given: 0 }
    }

    fn want(&self) -> Want {
        Want {
            due: self.request.due,
            wanted: self.request.count,
            promised: self.promised(),
            limit_by_due: self.limit_by_due.unwrap_or(u64::MAX),
        }
    }

    /// Adds positions that were claimed for the request.
    pub(super) fn add(&mut self, span: Span) {
        self.request.count -= span.count;
        match self.spans.last_mut() {
            Some(last) if last.end() == span.from => last.count += span.count,
            _ => self.spans.push(span),
        }
    }

    /// Ends the wait. `generation` is the generation of the [`Queue`]. Returns the request's shard,
    /// and the request as finished.
    pub(super) fn finish(self, refusal: Option<Refusal>, generation: u64) -> (usize, Finished) {
        let Entry { id, request, spans, .. } = self;
        (request.shard, Finished { id, spans, refusal, generation })
    }
}

/// All requests that wait, and the finished requests that no shard has collected yet.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "an insertion in the middle moves pointers only")]
pub(super) struct Queue {
    /// The requests that wait, in order of deadlines.
    pub(super) waiting: Vec<Box<Entry>>,
    /// The sums over `waiting`.
    summary: Summary,
    /// True if anything but an admission or a cancellation has changed `waiting` since the summary
    /// was made.
    pub(super) is_summary_stale: bool,
    /// True if some of `waiting` have no `limit_by_due`.
    pub(super) lacks_limits: bool,
    /// The grant's generation under which the spans of `waiting` were claimed.
    pub(super) generation: u64,
    /// The share of each waiting request at this wake-up. It is a field, so that its memory is
    /// reused.
    pub(super) shares: Vec<Share>,
    /// Requests that are finished and not yet collected, each with its shard.
    pub(super) finished: Vec<(usize, Finished)>,
    pub(super) next_id: u64,
    pub(super) next_turn: u64,
}

impl Queue {
    /// Returns the sums over the requests that wait.
    pub(super) fn summary(&mut self) -> &Summary {
        if std::mem::take(&mut self.is_summary_stale) {
            self.summary.renew(self.waiting.iter().map(|entry| entry.want()));
        }
        &self.summary
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let at = self.waiting.partition_point(|other| other.id < entry.id);
        if !self.is_summary_stale {
            self.summary.insert(at, entry.want());
        }
        self.lacks_limits |= entry.limit_by_due.is_none();
        self.waiting.insert(at, Box::new(entry));
    }

    /// Removes a request that waits.
    pub(super) fn remove(&mut self, id: WaitId) -> Option<Box<Entry>> {
        let at = self.waiting.binary_search_by_key(&id, |entry| entry.id).ok()?;
        if !self.is_summary_stale {
            self.summary.remove(at);
        }
        Some(self.waiting.remove(at))
    }
}
