//! The body of a response: whole, or written piece by piece as the client takes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::Full;
use hyper::body::{Bytes, Frame, SizeHint};

use super::watched::Activity;
use crate::front::http::Listing;
use crate::front::{FrameIds, FrameLimit};
use crate::server::shard_thread::backlog::Backlog;
use crate::server::shard_thread::budget::kept_max;
use crate::server::shard_thread::thread_state::ThreadState;
use crate::source::Source;
use snowbank_client::layout::Run;

/// The IDs of one piece: some 30 KB, which a socket takes at once.
const PIECE: FrameLimit = FrameLimit { runs: usize::MAX, ids: 1_000 };

/// The IDs of one piece while the budget of all connections is nearly used up: some 4 KB.
const SMALL_PIECE: FrameLimit = FrameLimit { runs: usize::MAX, ids: 128 };

/// The bytes of one ID in a body, about.
const ID_BYTES: u64 = 30;

/// The body of a response.
pub(super) enum Body {
    /// All of it.
    Whole(Full<Bytes>),
    /// IDs that are drawn and not written yet.
    Listed(Box<Listed>),
}

/// IDs that become text as the client takes them.
pub(super) struct Listed {
    source: Arc<Source>,
    backlog: Backlog<()>,
    listing: Listing,
    runs: Vec<Run>,
    rng: fastrand::Rng,
    is_done: bool,
    thread: Rc<ThreadState>,
    activity: Rc<Activity>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.activity.note_body(false);
    }
}

impl Body {
    /// Returns a body that is complete.
    pub(super) fn whole(text: String) -> Body {
        Body::Whole(Full::new(Bytes::from(text)))
    }

    /// Returns the body of IDs that were drawn from this source.
    pub(super) fn of_ids(
        (index, source): (usize, Arc<Source>),
        runs: &[Run],
        listing: Listing,
        (thread, activity): (&Rc<ThreadState>, &Rc<Activity>),
    ) -> Body {
        let rng = thread.turn.borrow_mut().rng.fork();
        let (thread, activity) = (Rc::clone(thread), Rc::clone(activity));
        // Read only once, because other threads change the budget.
        let limit = piece(&thread);
        let backlog = Backlog::new(index, (), source.numbering(), runs);
        let mut listed =
            Listed { source, backlog, listing, runs: Vec::new(), rng, is_done: false, thread, activity };
        listed.activity.note_body(true);
        if limit.fits(runs) { Body::whole(listed.next_piece(limit)) } else { Body::Listed(Box::new(listed)) }
    }
}

/// Returns the most of one piece.
fn piece(thread: &ThreadState) -> FrameLimit {
    let kept_max = kept_max(thread, &thread.live_config.borrow().limits);
    if kept_max as u64 >= PIECE.ids * ID_BYTES { PIECE } else { SMALL_PIECE }
}

impl Listed {
    fn next_piece(&mut self, limit: FrameLimit) -> String {
        let numbering = self.source.numbering();
        let more = self.backlog.next_frame(numbering, limit, &mut self.runs);
        let (random, needs_list) = (numbering.random_parts(), numbering.needs_list());
        let ids = FrameIds { runs: &self.runs, random, needs_list, of_reply: None, more };
        let mut text = String::new();
        self.listing.write(ids.ids(&mut self.rng), !more, &mut text);
        self.is_done = !more;
        text
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole(full) => Pin::new(full).poll_frame(cx),
            Body::Listed(listed) if listed.is_done => Poll::Ready(None),
            Body::Listed(listed) => {
                ready!(listed.activity.poll_taken());
                ready!(listed.activity.cost.poll_room(cx));
                let limit = piece(&listed.thread);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from(listed.next_piece(limit))))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(full) => full.is_end_stream(),
            Body::Listed(listed) => listed.is_done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(full) => full.size_hint(),
            Body::Listed(_) => SizeHint::default(),
        }
    }
}
