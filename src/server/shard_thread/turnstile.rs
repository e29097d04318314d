//! A turnstile of a shard's thread: keeps connections that send much, and TLS handshakes, from delaying the others.
//!
//! A connection whose last turn took more than a few requests is *busy*. A busy connection needs a pass for each turn, and
//! there are only a few passes until the thread has looked at its sockets again. So a request of another connection waits
//! for a few long turns at most, however many connections are busy. Busy connections take their turns in rotation. Each step
//! of a handshake needs a pass of another turnstile, which has one at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// The passes of busy connections between two looks at the sockets. A turn of a busy connection takes up to 0.1 ms, so a
/// newcomer waits for less than half a millisecond. With fewer, the thread would look at its sockets more often than it
/// serves requests.
pub(super) const BUSY_PASSES: usize = 4;

/// The handshakes between two looks at the sockets. The signature of an RSA key of 2,048 bits takes about a millisecond.
pub(super) const HANDSHAKE_PASSES: usize = 1;

/// A busy connection in the rotation.
#[derive(Debug)]
struct Queued {
    has_pass: Rc<Cell<bool>>,
    waker: Waker,
}

/// A turnstile of one thread.
#[derive(Debug)]
pub(super) struct Turnstile {
    /// The passes between two looks at the sockets.
    passes_max: usize,
    /// The passes that are left until the next look.
    passes: Cell<usize>,
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
    /// Makes a turnstile with this many passes between two looks at the sockets.
    pub(super) fn new(passes: usize) -> Self {
        Turnstile {
            passes_max: passes,
            passes: Cell::new(passes),
            queue: RefCell::default(),
            wanted: Notify::new(),
        }
    }

    /// Completes when the connection has a pass for one turn.
    pub(super) fn poll_pass(&self, place: &mut Place, cx: &Context<'_>) -> Poll<()> {
        if let Some(has_pass) = &place.pass {
            if has_pass.get() {
                place.pass = None;
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
        if self.passes.get() > 0 && self.queue.borrow().is_empty() {
            self.passes.set(self.passes.get() - 1);
            return Poll::Ready(());
        }
        let has_pass = Rc::new(Cell::new(false));
        place.pass = Some(Rc::clone(&has_pass));
        self.queue.borrow_mut().push_back(Queued { has_pass, waker: cx.waker().clone() });
        self.wanted.notify_one();
        Poll::Pending
    }

    /// Takes back a pass that was not used: no bytes had arrived.
    pub(super) fn give_back(&self) {
        self.passes.set((self.passes.get() + 1).min(self.passes_max));
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
        let mut passes = self.passes_max;
        while passes > 0
            && let Some(next) = queue.pop_front()
        {
            // A connection that closed while it waited has dropped its end.
            if Rc::strong_count(&next.has_pass) > 1 {
                next.has_pass.set(true);
                next.waker.wake();
                passes -= 1;
            }
        }
        self.passes.set(passes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: usize = 4;

    fn polls(turnstile: &Turnstile, places: &mut [Place]) -> Vec<bool> {
        let cx = Context::from_waker(Waker::noop());
        places.iter_mut().map(|place| turnstile.poll_pass(place, &cx).is_ready()).collect()
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
    fn a_pass_that_was_not_used_is_there_for_another() {
        let turnstile = Turnstile::new(PASSES);
        let mut places: Vec<Place> = (0..=PASSES).map(|_| Place::default()).collect();
        assert_eq!(polls(&turnstile, &mut places[..PASSES]), [true; PASSES]);
        turnstile.give_back();
        assert_eq!(polls(&turnstile, &mut places[PASSES..]), [true]);
    }
}
