//! The cost of a connection's turn: a poll of the library that serves it.
//!
//! Left alone, the library would answer sixteen requests in a poll, or write a body for as long as its client reads. So each
//! request, and each piece of a body, asks first for room in the turn. The [turnstile](super::super::turnstile) has the
//! units.

use std::cell::Cell;
use std::task::{Context, Poll};

use crate::server::net::counted_socket::TlsRead;
use crate::server::shard_thread::connection::SHORT_READ_BYTES_MAX;
use crate::server::shard_thread::turnstile::{
    FULL_TURN_COST, RECORD_COST, REPLY_BYTES_OF_COST, TURN_COST, tls_cost, turn_cost,
};

/// The cost of a request: 4 µs, nearly all of it for the system call that writes its response. The library makes one for each.
const REQUEST_COST: usize = TURN_COST;

/// The TLS records of a turn after which it reads no more: their cost is that of a full turn.
const RECORDS_MAX: usize = FULL_TURN_COST / RECORD_COST;

/// The cost of the turn under way, and the cost from which it must end.
#[derive(Debug, Default)]
pub(super) struct TurnCost {
    spent: Cell<usize>,
    most: Cell<usize>,
    records: Cell<usize>,
}

impl TurnCost {
    /// Begins a turn. One without a pass must be short.
    pub(super) fn begin(&self, has_pass: bool) {
        self.spent.set(0);
        self.records.set(0);
        self.most.set(if has_pass { FULL_TURN_COST } else { turn_cost(SHORT_READ_BYTES_MAX, 0) });
    }

    /// Returns the cost so far.
    pub(super) fn spent(&self) -> usize {
        self.spent.get().max(TURN_COST)
    }

    /// Notes bytes that were read or written.
    pub(super) fn note_bytes(&self, bytes: usize) {
        self.spent.set(self.spent.get() + bytes / REPLY_BYTES_OF_COST);
    }

    /// Notes what TLS has read.
    pub(super) fn note_tls(&self, read: TlsRead) {
        self.spent.set(self.spent.get() + tls_cost(read));
        self.records.set(self.records.get() + read.records);
    }

    /// Ready if the turn may read more TLS records. The library would read on until a head is whole.
    pub(super) fn poll_read(&self, cx: &Context<'_>) -> Poll<()> {
        poll_if(self.records.get() < RECORDS_MAX, cx)
    }

    /// Ready if the turn has room for a request.
    pub(super) fn poll_request(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_room(cx).map(|()| self.spent.set(self.spent.get() + REQUEST_COST))
    }

    /// Ready if the turn has room for more.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        poll_if(self.spent.get() < self.most.get(), cx)
    }
}

/// Ready if the turn goes on. Otherwise wakes the task for another turn.
fn poll_if(goes_on: bool, cx: &Context<'_>) -> Poll<()> {
    if goes_on {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn requests_of(cost: &TurnCost) -> usize {
        let cx = Context::from_waker(Waker::noop());
        let one = || {
            let is_ready = cost.poll_request(&cx).is_ready();
            cost.note_bytes(250);
            is_ready
        };
        std::iter::repeat_with(one).take_while(|is_ready| *is_ready).count()
    }

    #[test]
    fn a_turn_without_a_pass_has_room_for_a_few_requests_and_one_with_a_pass_for_two_dozen() {
        let cost = TurnCost::default();
        assert_eq!(cost.spent(), TURN_COST, "a poll without requests");
        cost.begin(false);
        assert_eq!(requests_of(&cost), 4);
        cost.begin(true);
        assert_eq!(requests_of(&cost), 24);
    }

    #[test]
    fn tls_records_and_a_body_end_their_turn_too() {
        let (cost, cx) = (TurnCost::default(), Context::from_waker(Waker::noop()));
        cost.begin(true);
        cost.note_tls(TlsRead { records: 1, bytes: 100 });
        assert!(cost.poll_room(&cx).is_ready() && cost.poll_read(&cx).is_ready());
        cost.note_tls(TlsRead { records: RECORDS_MAX, bytes: 5_000 });
        assert!(cost.poll_room(&cx).is_pending() && cost.poll_read(&cx).is_pending());
        cost.begin(true);
        assert!(cost.poll_read(&cx).is_ready());
        cost.begin(true);
        let pieces = std::iter::repeat_with(|| {
            cost.note_bytes(30_000);
            cost.poll_room(&cx).is_ready()
        });
        assert_eq!(pieces.take_while(|has_room| *has_room).count(), 3);
    }
}
