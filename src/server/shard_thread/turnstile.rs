//! A turnstile of a shard's thread: keeps connections that send or receive much, and TLS handshakes, from delaying the others.
//!
//! A connection whose latest turns took more than a few requests is *busy*, and turns of others are short. A busy connection
//! needs a pass for each turn, and there are only a few passes until the thread has looked at its sockets again. So a request
//! of another connection waits for a few long turns at most, however many connections are busy. Busy connections take their
//! turns in rotation. Each step of a handshake needs a pass of another turnstile, which has one at a time.
//!
//! Connections of the HTTP door take part: see `http/turn_cost.rs`.
//!
//! Nobody knows the cost of a turn before it is over. So a pass reserves the cost of a full turn, and at the turn's end its own
//! cost counts instead. A turn that cost more than was left is paid for out of the next looks' passes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::turn::READ_BYTES_MAX;
use crate::server::net::counted_socket::TlsRead;

/// The cost of a turn apart from its requests and replies: that of two system calls.
pub(super) const TURN_COST: usize = 1_024;

/// The cost of each byte of requests, with the claim and the small reply that it leads to.
const REQUEST_BYTE_COST: usize = 3;

/// The bytes of replies that add 1 to the cost. IDs of a long reply cost 0.5 ns per byte; small requests that differ cost
/// up to 12 ns per byte, and equal ones 5 ns.
pub(super) const REPLY_BYTES_OF_COST: usize = 4;

/// The cost of a turn that takes as many bytes of small requests as it can: about 0.1 ms.
pub(super) const FULL_TURN_COST: usize = TURN_COST + REQUEST_BYTE_COST * READ_BYTES_MAX;

/// The cost of busy connections' turns between two looks at the sockets: two full turns. Short turns may leave budget for a
/// third, so a newcomer waits for 0.3 ms at most. A turn of 16 requests costs a twenty-sixth of this.
const BUSY_COST: usize = 2 * FULL_TURN_COST;

/// The cost of a turn from which a connection is busy: some 16 requests, or a reply of three KiB. Fewer cost less than the
/// turn's system calls. Over TLS, with a record for each request, fewer suffice.
const BUSY_TURN_COST: usize = turn_cost(16 * 16, 16 * 36);

/// Returns the cost of a turn that took requests of so many bytes, and encoded replies of so many.
pub(super) const fn turn_cost(of_requests: usize, of_replies: usize) -> usize {
    TURN_COST + REQUEST_BYTE_COST * of_requests + of_replies / REPLY_BYTES_OF_COST
}

/// The cost of a TLS record beside that of its bytes: 1 µs. Measured: 0.5 µs with a request, 3.6 µs for a key change.
pub(super) const RECORD_COST: usize = TURN_COST / 4;

/// Returns the cost of what TLS has read, beside that of the bytes within.
pub(super) const fn tls_cost(read: TlsRead) -> usize {
    RECORD_COST * read.records + scan_cost(read.bytes)
}

/// Returns the cost of reading so many bytes of a request that is not whole, or of decrypting them: about that of writing as
/// many.
pub(super) const fn scan_cost(bytes: usize) -> usize {
    bytes / REPLY_BYTES_OF_COST
}

thread_local! {
    /// The number of times that this thread has looked at its sockets after it slept.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// Notes that the thread has looked at its sockets. Its runtime calls this after each sleep.
pub(crate) fn note_look() {
    LOOKS.set(LOOKS.get().wrapping_add(1));
}

/// A busy connection in the rotation.
#[derive(Debug)]
struct Queued {
    is_called: Rc<Cell<bool>>,
    waker: Waker,
}

/// A turnstile of one thread.
#[derive(Debug)]
pub(super) struct Turnstile {
    /// The cost of the turns between two looks at the sockets.
    budget: isize,
    /// The cost that a pass reserves until its turn is over.
    reserved: isize,
    /// The rest of the budget until the next look. Below 0 after turns that cost more.
    left: Cell<isize>,
    /// The look that it was last filled up for.
    filled_at: Cell<u64>,
    queue: RefCell<VecDeque<Queued>>,
    /// Signalled when a connection waits for a pass.
    wanted: Notify,
}

/// One connection's place at the turnstile.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Set while the connection waits for a pass, or has not taken the one that is there. Only busy connections have this
    /// memory.
    is_called: Option<Rc<Cell<bool>>>,
    /// True from the pass to the end of its turn.
    has_pass: bool,
    /// The cost of the last turn, or of an earlier one halved with each turn since, if that is more. A connection that
    /// alternates long and short turns stays busy.
    recent_cost: usize,
}

impl Place {
    /// Returns true while the connection waits for a pass, or has not taken the one that is there.
    pub(super) fn is_queued(&self) -> bool {
        self.is_called.is_some()
    }

    /// Returns true if the latest turns took more than a few requests. The next turn then needs a pass.
    pub(super) fn is_busy(&self) -> bool {
        self.recent_cost >= BUSY_TURN_COST
    }

    /// Returns true in a turn that has a pass. A turn without one must be short, because any number of connections can take
    /// such turns.
    pub(super) fn has_pass(&self) -> bool {
        self.has_pass
    }
}

impl Turnstile {
    /// Makes a turnstile for the turns of busy connections.
    pub(super) fn of_turns() -> Rc<Self> {
        Self::new(BUSY_COST, FULL_TURN_COST)
    }

    /// Makes a turnstile for the steps of handshakes: one between two looks at the sockets. The signature of an RSA key of 2,048
    /// bits takes about a millisecond.
    pub(super) fn of_handshakes() -> Rc<Self> {
        Self::new(1, 1)
    }

    fn new(budget: usize, reserved: usize) -> Rc<Self> {
        let (budget, reserved) = (budget.cast_signed(), reserved.cast_signed());
        let (queue, wanted) = (RefCell::default(), Notify::new());
        let (left, filled_at) = (Cell::new(budget), Cell::new(LOOKS.get()));
        Rc::new(Turnstile { budget, reserved, left, filled_at, queue, wanted })
    }

    /// Completes when the connection has a pass for one turn.
    pub(super) fn poll_pass(&self, place: &mut Place, cx: &Context<'_>) -> Poll<()> {
        if let Some(is_called) = &place.is_called {
            if is_called.get() {
                (place.is_called, place.has_pass) = (None, true);
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
        if self.filled_at.get() != LOOKS.get() && self.queue.borrow().is_empty() {
            self.fill_up();
        }
        if self.left.get() > 0 && self.queue.borrow().is_empty() {
            self.left.set(self.left.get() - self.reserved);
            place.has_pass = true;
            return Poll::Ready(());
        }
        let is_called = Rc::new(Cell::new(false));
        place.is_called = Some(Rc::clone(&is_called));
        self.queue.borrow_mut().push_back(Queued { is_called, waker: cx.waker().clone() });
        self.wanted.notify_one();
        Poll::Pending
    }

    /// Notes the cost of a turn that is over. If it had a pass, that cost takes the place of the reserved one.
    pub(super) fn end_turn(&self, place: &mut Place, cost: usize) {
        place.recent_cost = cost.max(place.recent_cost / 2);
        if std::mem::take(&mut place.has_pass) {
            self.left.set(self.left.get() + self.reserved - cost.cast_signed());
            self.hand_out();
        }
    }

    /// Hands out passes whenever the thread has looked at its sockets. Never completes.
    async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while !self.queue.borrow().is_empty() {
                // Completes after the sockets were checked, and after the tasks that this woke.
                tokio::task::yield_now().await;
                self.fill_up();
                self.hand_out();
            }
        }
    }

    /// Begins another look. Turns that cost more than the budget are paid for out of the looks after them.
    fn fill_up(&self) {
        self.filled_at.set(LOOKS.get());
        self.left.set(self.budget.min(self.left.get() + self.budget));
    }

    fn hand_out(&self) {
        let mut queue = self.queue.borrow_mut();
        while self.left.get() > 0
            && let Some(next) = queue.pop_front()
        {
            // A connection that closed while it waited has dropped its end.
            if Rc::strong_count(&next.is_called) > 1 {
                next.is_called.set(true);
                next.waker.wake();
                self.left.set(self.left.get() - self.reserved);
            }
        }
    }
}

/// Spawns the tasks that hand out passes, one for each turnstile. Each yields until the thread has looked at its sockets.
/// In one task for both, a wake-up for one would seem the end of the other's yield.
pub(super) fn attend(turnstiles: [&Rc<Turnstile>; 2]) {
    for turnstile in turnstiles {
        let turnstile = Rc::clone(turnstile);
        tokio::task::spawn_local(async move { turnstile.run().await });
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    const PASSES: usize = 4;

    fn polls(turnstile: &Turnstile, places: &mut [Place]) -> Vec<bool> {
        let cx = Context::from_waker(Waker::noop());
        places.iter_mut().map(|place| turnstile.poll_pass(place, &cx).is_ready()).collect()
    }

    fn places(count: usize) -> Vec<Place> {
        (0..count).map(|_| Place::default()).collect()
    }

    /// Lets the thread look at its sockets.
    fn look(turnstile: &Turnstile) {
        note_look();
        turnstile.fill_up();
        turnstile.hand_out();
    }

    #[test]
    fn busy_connections_pass_in_rotation() {
        let turnstile = Turnstile::new(PASSES, 1);
        let mut places = places(10);
        let mut passed = [0; 10];
        for _ in 0..25 {
            for (passed, passes) in passed.iter_mut().zip(polls(&turnstile, &mut places)) {
                *passed += u32::from(passes);
            }
            look(&turnstile);
        }
        assert_eq!(passed.iter().sum::<u32>(), 100);
        assert!(passed.iter().all(|&passed| passed >= 8), "{passed:?}");
    }

    #[test]
    fn connections_that_closed_use_no_pass() {
        let turnstile = Turnstile::new(PASSES, 1);
        let mut places = places(20);
        assert_eq!(polls(&turnstile, &mut places).iter().filter(|passes| **passes).count(), PASSES);
        places.drain(PASSES..16);
        look(&turnstile);
        assert_eq!(polls(&turnstile, &mut places[PASSES..]), [true; 4]);
    }

    /// Lets a thousand connections take turns of these costs, one turn after the other. Returns the costs of the turns between
    /// each two looks.
    fn turns_between_looks(looks: usize, mut cost: impl FnMut() -> usize) -> Vec<Vec<usize>> {
        let (turnstile, mut places) = (Turnstile::of_turns(), places(1_000));
        let mut turns_until_look = || {
            let mut turns = Vec::new();
            while let Some(place) = places
                .iter_mut()
                .find_map(|place| polls(&turnstile, std::slice::from_mut(place))[0].then_some(place))
            {
                turns.push(cost());
                turnstile.end_turn(place, turns[turns.len() - 1]);
            }
            look(&turnstile);
            turns
        };
        (0..looks).map(|_| turns_until_look()).collect()
    }

    #[test]
    fn after_a_look_busy_connections_pass_without_a_queue() {
        let turnstile = Turnstile::new(PASSES, 1);
        for _ in 0..3 {
            assert_eq!(polls(&turnstile, &mut places(PASSES)), [true; PASSES]);
            note_look();
        }
        // Those that wait come first.
        let mut waiting = places(3 * PASSES);
        polls(&turnstile, &mut waiting);
        note_look();
        assert_eq!(polls(&turnstile, &mut places(1)), [false]);
        look(&turnstile);
        assert_eq!(
            polls(&turnstile, &mut waiting[PASSES..]).iter().filter(|passes| **passes).count(),
            PASSES
        );
    }

    #[test]
    fn between_two_looks_pass_a_few_long_turns_or_many_short_ones() {
        let passes_of =
            |cost: usize| -> Vec<usize> { turns_between_looks(3, || cost).iter().map(Vec::len).collect() };
        assert_eq!(passes_of(turn_cost(READ_BYTES_MAX, 0)), [2; 3]);
        assert!((15..50).contains(&passes_of(turn_cost(16 * 16, 16 * 36))[1]));
        assert_eq!(
            passes_of(4 * BUSY_COST),
            [1, 0, 0],
            "one that costs more than all passes uses up later ones"
        );
    }

    #[test]
    fn a_turn_counts_by_its_own_cost_and_not_by_the_one_before() {
        let mut number = 0;
        let looks = 40;
        let between = turns_between_looks(looks, || {
            number += 1;
            // All of them take a short turn, then all of them a long one.
            if number % 2_000 < 1_000 { TURN_COST } else { FULL_TURN_COST }
        });
        let most = between.iter().map(|turns| turns.iter().sum::<usize>()).max();
        assert!(number > 1_000 && most <= Some(BUSY_COST + FULL_TURN_COST), "{most:?} of {BUSY_COST}");
    }

    #[test]
    fn no_more_turns_are_under_way_than_the_budget_has_full_ones() {
        let (turnstile, mut places) = (Turnstile::of_turns(), places(1_000));
        polls(&turnstile, &mut places).iter().filter(|passes| **passes).count();
        places
            .iter_mut()
            .filter(|place| place.has_pass())
            .for_each(|place| turnstile.end_turn(place, TURN_COST));
        let called = polls(&turnstile, &mut places).iter().filter(|passes| **passes).count();
        assert_eq!(called, 2, "whatever the turns before cost");
    }

    #[test]
    fn a_connection_is_busy_by_all_that_its_turns_cost() {
        let turnstile = Turnstile::of_turns();
        let is_busy_after = |turns: &[usize]| {
            let mut place = Place::default();
            turns.iter().for_each(|cost| turnstile.end_turn(&mut place, *cost));
            place.is_busy()
        };
        let (small, long) = (turn_cost(16, 36), turn_cost(READ_BYTES_MAX, 18 * 1_024));
        assert!(
            !is_busy_after(&[turn_cost(15 * 16, 15 * 36)]) && is_busy_after(&[turn_cost(16 * 16, 16 * 36)])
        );
        assert!(is_busy_after(&[turn_cost(20, 64 * 1_024)]), "one request with a long reply");
        assert!(is_busy_after(&[long, small, long, small]), "one that alternates");
        assert!(!is_busy_after(&[long, small, small, small, small]));
    }

    #[test]
    fn a_turnstile_hands_out_nothing_because_another_was_wanted() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let turnstiles = [Turnstile::of_turns(), Turnstile::of_handshakes()];
        LocalSet::new().block_on(&runtime, async {
            attend([&turnstiles[0], &turnstiles[1]]);
            let [turns, handshakes] = turnstiles.clone();
            // Other tasks run meanwhile, and the sockets are not looked at: the task wakes itself.
            let others_run = async || {
                let mut is_again = false;
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::replace(&mut is_again, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            };
            let beside = spawn_local(async move {
                turns.left.set(0);
                let (mut busy, mut shaking) = (places(1), places(20));
                assert_eq!(polls(&handshakes, &mut shaking).iter().filter(|passes| **passes).count(), 1);
                others_run().await;
                polls(&turns, &mut busy);
                others_run().await;
                polls(&handshakes, &mut shaking[1..]).contains(&true)
            });
            assert!(!beside.await.expect("it ends"));
        });
    }
}
