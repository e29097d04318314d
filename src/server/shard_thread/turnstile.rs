//! A turnstile of a shard's thread: keeps connections that send much, and TLS handshakes, from delaying the others.
//!
//! A connection whose last turn took more than a few requests is *busy*, and turns of others are short. A busy connection
//! needs a pass for each turn, and there are only a few passes until the thread has looked at its sockets again. So a request
//! of another connection waits for a few long turns at most, however many connections are busy. Busy connections take their
//! turns in rotation. Each step of a handshake needs a pass of another turnstile, which has one at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::turn_state::READ_BYTES_MAX;

/// The cost of a turn apart from the bytes that it reads and writes: two system calls take as long as this many bytes of
/// small requests and their replies.
pub(super) const TURN_COST: usize = 1_024;

/// The cost of busy connections' turns between two looks at the sockets: four turns that read and write as much as a turn
/// can of small requests. Such a turn takes up to 0.1 ms, so a newcomer waits for less than half a millisecond. A turn
/// of 16 requests costs a fiftieth of this. With a look after every fourth turn they would need an eighth more system calls.
pub(super) const BUSY_COST: usize = 4 * (TURN_COST + 3 * READ_BYTES_MAX);

/// The handshakes between two looks at the sockets. The signature of an RSA key of 2,048 bits takes about a millisecond.
pub(super) const HANDSHAKES: usize = 1;

/// A busy connection in the rotation.
#[derive(Debug)]
struct Queued {
    has_pass: Rc<Cell<bool>>,
    waker: Waker,
    /// The expected cost of its next turn.
    cost: usize,
}

/// A turnstile of one thread.
#[derive(Debug)]
pub(super) struct Turnstile {
    /// The cost of the turns between two looks at the sockets. The last of them may exceed it.
    budget: usize,
    /// The rest of it until the next look.
    left: Cell<usize>,
    queue: RefCell<VecDeque<Queued>>,
    /// Signalled when a connection waits for a pass.
    wanted: Notify,
}

/// One connection's place at the turnstile.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Set while the connection waits for a pass, or has one. Only busy connections have this memory.
    pass: Option<Rc<Cell<bool>>>,
}

impl Place {
    /// Returns true while the connection waits for a pass, or has one that it has not taken.
    pub(super) fn is_queued(&self) -> bool {
        self.pass.is_some()
    }
}

impl Turnstile {
    /// Makes a turnstile for turns of this cost between two looks at the sockets.
    pub(super) fn new(budget: usize) -> Self {
        Turnstile { budget, left: Cell::new(budget), queue: RefCell::default(), wanted: Notify::new() }
    }

    /// Completes when the connection has a pass for one turn, which is expected to have this cost.
    pub(super) fn poll_pass(&self, place: &mut Place, cost: usize, cx: &Context<'_>) -> Poll<()> {
        if let Some(has_pass) = &place.pass {
            if has_pass.get() {
                place.pass = None;
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
        if self.left.get() > 0 && self.queue.borrow().is_empty() {
            self.left.set(self.left.get().saturating_sub(cost));
            return Poll::Ready(());
        }
        let has_pass = Rc::new(Cell::new(false));
        place.pass = Some(Rc::clone(&has_pass));
        self.queue.borrow_mut().push_back(Queued { has_pass, waker: cx.waker().clone(), cost });
        self.wanted.notify_one();
        Poll::Pending
    }

    /// Hands out passes whenever the thread has looked at its sockets. Never completes.
    pub(super) async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while !self.queue.borrow().is_empty() {
                // Completes after the sockets were checked, and after the tasks that this woke.
                tokio::task::yield_now().await;
                self.hand_out();
            }
        }
    }

    fn hand_out(&self) {
        let mut queue = self.queue.borrow_mut();
        let mut left = self.budget;
        while left > 0
            && let Some(next) = queue.pop_front()
        {
            // A connection that closed while it waited has dropped its end.
            if Rc::strong_count(&next.has_pass) > 1 {
                next.has_pass.set(true);
                next.waker.wake();
                left = left.saturating_sub(next.cost);
            }
        }
        self.left.set(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: usize = 4;

    fn polls(turnstile: &Turnstile, places: &mut [Place]) -> Vec<bool> {
        polls_at(turnstile, 1, places)
    }

    fn polls_at(turnstile: &Turnstile, cost: usize, places: &mut [Place]) -> Vec<bool> {
        let cx = Context::from_waker(Waker::noop());
        places.iter_mut().map(|place| turnstile.poll_pass(place, cost, &cx).is_ready()).collect()
    }

    #[test]
    fn busy_connections_pass_in_rotation() {
        let turnstile = Turnstile::new(PASSES);
        let mut places: Vec<Place> = (0..10).map(|_| Place::default()).collect();
        let mut passed = [0; 10];
        for _ in 0..25 {
            for (passed, passes) in passed.iter_mut().zip(polls(&turnstile, &mut places)) {
                *passed += u32::from(passes);
            }
            turnstile.hand_out();
        }
        assert_eq!(passed.iter().sum::<u32>(), 100);
        assert!(passed.iter().all(|&passed| passed >= 8), "{passed:?}");
    }

    #[test]
    fn connections_that_closed_use_no_pass() {
        let turnstile = Turnstile::new(PASSES);
        let mut places: Vec<Place> = (0..20).map(|_| Place::default()).collect();
        assert_eq!(polls(&turnstile, &mut places).iter().filter(|passes| **passes).count(), PASSES);
        places.drain(PASSES..16);
        turnstile.hand_out();
        assert_eq!(polls(&turnstile, &mut places[PASSES..]), [true; 4]);
    }

    #[test]
    fn between_two_looks_pass_a_few_long_turns_or_many_short_ones() {
        let passes_of = |cost: usize| {
            let turnstile = Turnstile::new(BUSY_COST);
            let mut places: Vec<Place> = (0..1_000).map(|_| Place::default()).collect();
            let at_once =
                polls_at(&turnstile, cost, &mut places).into_iter().filter(|passes| *passes).count();
            turnstile.hand_out();
            let after_a_look = polls_at(&turnstile, cost, &mut places[at_once..]);
            assert_eq!(
                after_a_look.into_iter().filter(|passes| *passes).count(),
                at_once,
                "by the same budget"
            );
            at_once
        };
        assert_eq!(passes_of(TURN_COST + 3 * READ_BYTES_MAX), 4);
        assert_eq!(passes_of(BUSY_COST + 1), 1, "a turn that costs more than all passes too");
        assert!((30..100).contains(&passes_of(TURN_COST + 16 * 64)));
    }
}
