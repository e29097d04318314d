//! A shard's scheduler: prevents connections that send or receive much, and TLS handshakes, from
//! delaying other connections.
//!
//! A connection is *busy* if its latest turns cost more than a few requests. A busy connection
//! needs a permit for each turn, and a handshake needs one for each step. All other turns are
//! short. Between two polls of the thread's sockets, the turns with permits share a budget of two
//! full turns. So a request of another connection waits for a few long turns at most, even if many
//! connections are busy.
//!
//! Connections wait for permits in one queue, which is ordered by cost. A connection's place in the
//! queue is the cost of all turns with permits so far, plus the connection's own recent cost. So a
//! cheap turn goes before an expensive turn that came a little earlier. No connection waits for
//! ever, because the cost of all turns only rises, so later connections get later places.
//!
//! The cost of a turn is known only at its end. Until then, its permit reserves at least the cost
//! of a full turn. If a turn costs more than what is left of the budget, the next budgets are
//! smaller by the difference.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::turn_state::READ_BYTES_MAX;
use crate::server::net::counted_socket::TlsRead;

/// The cost of a turn without its requests and replies: the cost of two system calls. One unit of
/// cost stands for about 4 ns.
pub(super) const TURN_COST: usize = 1_024;

/// The cost of each byte of small requests in Snowbank's own protocol. It includes the claims and
/// the small replies of these requests. Small requests take up to 12 ns per byte if they differ,
/// and 5 ns if they are equal. Other front ends convert their requests to such bytes: see
/// `BYTES_OF_COST` and `extra_cost_bytes` of `FrontEnd`.
const REQUEST_BYTE_COST: usize = 3;

/// The number of bytes of replies that add 1 to the cost. The IDs of a long reply take 0.5 ns per
/// byte.
const REPLY_BYTES_OF_COST: usize = 4;

/// The cost of a turn that reads as many bytes of small requests as a turn can. Such a turn takes
/// about 0.1 ms.
const FULL_TURN_COST: usize = TURN_COST + REQUEST_BYTE_COST * READ_BYTES_MAX;

/// The budget for turns with a permit between two polls of the sockets: the cost of two full turns.
/// If the first two turns cost less, a third may begin, so a request of another connection waits
/// for 0.3 ms at most. A turn of 16 requests costs a twenty-sixth of the budget.
const BUSY_COST: usize = 2 * FULL_TURN_COST;

/// The cost of a step of a handshake: the whole budget. The signature of an RSA key of 2,048 bits
/// takes about a millisecond.
pub(super) const HANDSHAKE_COST: usize = BUSY_COST;

/// The least cost of a turn that makes a connection busy: some 16 requests, or a reply of some 3.5
/// KiB. Fewer requests cost less than the system calls of the turn. Over TLS, fewer than 16
/// requests make a connection busy if each request has a record of its own.
const BUSY_TURN_COST: usize = turn_cost(16 * 16, 16 * 36);

/// Returns the cost of a turn with `request_bytes` bytes of requests and `reply_bytes` bytes of
/// replies.
pub(super) const fn turn_cost(request_bytes: usize, reply_bytes: usize) -> usize {
    TURN_COST + REQUEST_BYTE_COST * request_bytes + reply_bytes / REPLY_BYTES_OF_COST
}

/// The cost of a TLS record without its bytes. It stands for 1 µs. A record with a request took 0.5
/// µs when measured, and a key change 3.6 µs.
const RECORD_COST: usize = TURN_COST / 4;

/// Returns the cost of decrypting the records that TLS has read.
pub(super) const fn tls_cost(read: TlsRead) -> usize {
    RECORD_COST * read.records + scan_cost(read.bytes)
}

/// Returns the cost of reading this many bytes of half a request, or of decrypting this many bytes.
/// A byte costs as much as a byte of a reply.
pub(super) const fn scan_cost(bytes: usize) -> usize {
    bytes / REPLY_BYTES_OF_COST
}

thread_local! {
    /// The number of times that this thread has polled its sockets after it slept.
    static POLLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a poll of the thread's sockets. The runtime calls this after each sleep.
pub(crate) fn record_poll() {
    POLLS.set(POLLS.get().wrapping_add(1));
}

/// A connection that waits for a permit.
#[derive(Debug)]
struct Queued {
    is_permitted: Rc<Cell<bool>>,
    /// The cost that the permit will reserve.
    reserved: usize,
    is_handshake: bool,
    waker: Waker,
}

/// The scheduler of one thread.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// The part of the budget that is left until the next poll. Negative if turns have cost or
    /// reserved more than the budget.
    left: Cell<isize>,
    /// The value that `POLLS` had when `left` was last filled up.
    filled_at: Cell<u64>,
    /// The cost of all turns with a permit so far.
    spent: Cell<u64>,
    /// The number of times that a connection has begun to wait for a permit.
    queued: Cell<u64>,
    /// The number of handshakes in the queue.
    handshakes: Cell<u64>,
    /// The queue, by the place of each connection: a cost, and a number that orders equal costs.
    queue: RefCell<BTreeMap<(u64, u64), Queued>>,
    /// Signalled when a connection begins to wait for a permit.
    wanted: Notify,
}

/// The scheduler's account of one connection.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Set while the connection waits for a permit, or has a permit that it has not used yet.
    is_permitted: Option<Rc<Cell<bool>>>,
    /// The cost that the permit of the current turn has reserved. 0 without a permit.
    reserved: usize,
    /// The cost of the last turn or, if it is higher, the cost of an earlier turn, halved once for
    /// each turn since then. So a connection that alternates long and short turns stays busy.
    recent_cost: usize,
    is_handshake: bool,
}

impl Account {
    /// Returns the account of a handshake, whose every step needs a permit.
    pub(super) fn for_handshake() -> Self {
        Account { recent_cost: HANDSHAKE_COST, is_handshake: true, ..Account::default() }
    }

    /// Returns true while the connection waits for a permit, or has a permit that it has not used
    /// yet.
    pub(super) fn is_queued(&self) -> bool {
        self.is_permitted.is_some()
    }

    /// Returns true if the latest turns cost more than a few requests. The next turn then needs a
    /// permit.
    pub(super) fn is_busy(&self) -> bool {
        self.recent_cost >= BUSY_TURN_COST
    }

    /// Returns true in a turn that has a permit. A turn without a permit must be short, because any
    /// number of connections can take such turns.
    pub(super) fn has_permit(&self) -> bool {
        self.reserved > 0
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Scheduler {
            left: Cell::new(BUSY_COST.cast_signed()),
            filled_at: Cell::new(POLLS.get()),
            spent: Cell::new(0),
            queued: Cell::new(0),
            handshakes: Cell::new(0),
            queue: RefCell::default(),
            wanted: Notify::new(),
        }
    }
}

impl Scheduler {
    /// Completes when the connection has a permit for one turn.
    pub(super) fn poll_permit(&self, account: &mut Account, cx: &Context<'_>) -> Poll<()> {
        // A turn reserves at least the cost of a full turn. A step of a handshake reserves the cost
        // of a step.
        let reserved = account.recent_cost.clamp(FULL_TURN_COST, HANDSHAKE_COST);
        if let Some(is_permitted) = &account.is_permitted {
            if !is_permitted.get() {
                return Poll::Pending;
            }
            account.is_permitted = None;
            account.reserved = reserved;
            return Poll::Ready(());
        }
        if self.filled_at.get() != POLLS.get() && self.queue.borrow().is_empty() {
            self.fill_up();
        }
        if self.left.get() > 0 && self.queue.borrow().is_empty() {
            self.reserve(reserved);
            account.reserved = reserved;
            return Poll::Ready(());
        }
        let is_permitted = Rc::new(Cell::new(false));
        account.is_permitted = Some(Rc::clone(&is_permitted));
        self.queued.set(self.queued.get() + 1);
        // Each handshake in the queue moves the next handshake back by twice the cost of a step.
        // One is for its own step, one for turns of other connections. So a flood of handshakes
        // gets half of the thread's time.
        let is_handshake = account.is_handshake;
        let ahead = if is_handshake { self.handshakes.replace(self.handshakes.get() + 1) } else { 0 };
        let place = self.spent.get() + account.recent_cost as u64 * (1 + 2 * ahead);
        let key = (place, self.queued.get());
        let waker = cx.waker().clone();
        self.queue.borrow_mut().insert(key, Queued { is_permitted, reserved, is_handshake, waker });
        self.wanted.notify_one();
        Poll::Pending
    }

    /// Counts the cost of a turn. If the turn had a permit, this cost replaces the cost that the
    /// permit reserved.
    pub(super) fn end_turn(&self, account: &mut Account, cost: usize) {
        account.recent_cost = cost.max(account.recent_cost / 2);
        let reserved = std::mem::take(&mut account.reserved);
        if reserved > 0 {
            self.spent.set(self.spent.get() + cost as u64);
            self.left.set(self.left.get() + reserved.cast_signed() - cost.cast_signed());
            self.permit();
        }
    }

    /// Grants permits after each poll of the thread's sockets. Never completes.
    pub(super) async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while !self.queue.borrow().is_empty() {
                // This completes after a poll of the sockets, once the tasks that the poll woke
                // have run.
                tokio::task::yield_now().await;
                self.fill_up();
                self.permit();
            }
        }
    }

    /// Begins the next budget. If turns have cost more than the last budget, this budget is smaller
    /// by the difference.
    fn fill_up(&self) {
        let busy_cost = BUSY_COST.cast_signed();
        self.filled_at.set(POLLS.get());
        self.left.set(busy_cost.min(self.left.get() + busy_cost));
    }

    fn reserve(&self, cost: usize) {
        self.left.set(self.left.get() - cost.cast_signed());
    }

    fn permit(&self) {
        let mut queue = self.queue.borrow_mut();
        while self.left.get() > 0
            && let Some((_, next)) = queue.pop_first()
        {
            if next.is_handshake {
                self.handshakes.set(self.handshakes.get() - 1);
            }
            // If the connection has closed, it has dropped its `is_permitted`.
            if Rc::strong_count(&next.is_permitted) > 1 {
                next.is_permitted.set(true);
                next.waker.wake();
                self.reserve(next.reserved);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls for a permit. Returns true if the connection has one.
    fn poll(scheduler: &Scheduler, account: &mut Account) -> bool {
        scheduler.poll_permit(account, &Context::from_waker(Waker::noop())).is_ready()
    }

    fn polls(scheduler: &Scheduler, accounts: &mut [Account]) -> Vec<bool> {
        accounts.iter_mut().map(|account| poll(scheduler, account)).collect()
    }

    fn accounts(count: usize) -> Vec<Account> {
        (0..count).map(|_| Account::default()).collect()
    }

    /// Does what the thread and the scheduler do at a poll of the sockets.
    fn poll_sockets(scheduler: &Scheduler) {
        record_poll();
        scheduler.fill_up();
        scheduler.permit();
    }

    #[test]
    fn connections_of_equal_cost_take_turns_in_rotation() {
        let scheduler = Scheduler::default();
        let mut accounts = accounts(10);
        let mut turns = [0; 10];
        for _ in 0..25 {
            for (turns, account) in turns.iter_mut().zip(&mut accounts) {
                if poll(&scheduler, account) {
                    *turns += 1;
                    scheduler.end_turn(account, FULL_TURN_COST);
                }
            }
            poll_sockets(&scheduler);
        }
        assert!((48..=52).contains(&turns.iter().sum::<u32>()), "{turns:?}");
        assert!(turns.iter().all(|turns| (4..=6).contains(turns)), "{turns:?}");
    }

    #[test]
    fn cheap_turns_go_first_but_expensive_ones_get_a_permit() {
        let scheduler = Scheduler::default();
        let mut accounts = accounts(3);
        scheduler.end_turn(&mut accounts[0], BUSY_COST);
        scheduler.end_turn(&mut accounts[1], BUSY_TURN_COST);
        scheduler.left.set(0);
        assert_eq!(polls(&scheduler, &mut accounts), [false; 3]);
        let mut waited = 0;
        for turn in 0..100 {
            poll_sockets(&scheduler);
            if poll(&scheduler, &mut accounts[0]) {
                waited = turn;
                break;
            }
            for account in &mut accounts[1..] {
                if poll(&scheduler, account) {
                    scheduler.end_turn(account, FULL_TURN_COST);
                    assert!(!poll(&scheduler, account));
                }
            }
        }
        assert!((1..4).contains(&waited), "{waited}");
    }

    #[test]
    fn handshakes_and_busy_connections_share_the_permits() {
        for (busy, handshakes, polls_count, turns_min, steps_min) in
            [(1, 600, 300, 75, 0), (20, 20, 60, 30, 15)]
        {
            let scheduler = Scheduler::default();
            let mut busy = accounts(busy);
            let mut handshakes: Vec<_> = (0..handshakes).map(|_| Account::for_handshake()).collect();
            let mut turns = 0;
            let mut steps = 0;
            for _ in 0..polls_count {
                for account in &mut busy {
                    if poll(&scheduler, account) {
                        turns += 1;
                        scheduler.end_turn(account, FULL_TURN_COST);
                    }
                }
                for account in &mut handshakes {
                    if poll(&scheduler, account) {
                        steps += 1;
                        scheduler.end_turn(account, HANDSHAKE_COST);
                    }
                }
                poll_sockets(&scheduler);
            }
            assert!(steps >= steps_min && turns >= turns_min, "{steps} steps and {turns} turns");
        }
    }

    #[test]
    fn closed_connections_use_no_permit() {
        let scheduler = Scheduler::default();
        let mut accounts = accounts(20);
        assert_eq!(polls(&scheduler, &mut accounts).iter().filter(|is_permitted| **is_permitted).count(), 2);
        accounts.drain(2..16);
        scheduler.left.set(0);
        poll_sockets(&scheduler);
        assert_eq!(polls(&scheduler, &mut accounts[2..]), [true, true, false, false]);
    }

    /// Lets a thousand connections take turns of this cost, one after the other. Returns how many
    /// turns are taken before the first poll, and how many between the first and the second. The
    /// last number is that between the second and the third.
    fn turns_between_polls(cost: usize) -> [usize; 3] {
        let scheduler = Scheduler::default();
        let mut accounts = accounts(1_000);
        [(); 3].map(|()| {
            let mut turns = 0;
            while let Some(account) =
                accounts.iter_mut().find_map(|account| poll(&scheduler, account).then_some(account))
            {
                turns += 1;
                scheduler.end_turn(account, cost);
            }
            poll_sockets(&scheduler);
            turns
        })
    }

    #[test]
    fn the_first_busy_turns_after_a_poll_need_no_queue() {
        let scheduler = Scheduler::default();
        for _ in 0..3 {
            let mut two = accounts(2);
            assert_eq!(polls(&scheduler, &mut two), [true; 2]);
            two.iter_mut().for_each(|account| scheduler.end_turn(account, FULL_TURN_COST));
            record_poll();
        }
        // Connections in the queue come first.
        let mut waiting = accounts(6);
        polls(&scheduler, &mut waiting);
        record_poll();
        assert_eq!(polls(&scheduler, &mut accounts(1)), [false]);
    }

    #[test]
    fn a_poll_is_followed_by_few_long_turns_or_many_short_ones() {
        assert_eq!(turns_between_polls(turn_cost(READ_BYTES_MAX, 0)), [2; 3]);
        assert!((15..50).contains(&turns_between_polls(turn_cost(16 * 16, 16 * 36))[1]));
        let expensive = turns_between_polls(4 * BUSY_COST);
        assert_eq!(expensive, [1, 0, 0], "a turn that costs more than the budget uses up the next budgets");
    }

    #[test]
    fn cheap_turns_do_not_raise_the_number_of_permits() {
        let scheduler = Scheduler::default();
        let mut accounts = accounts(1_000);
        polls(&scheduler, &mut accounts);
        for account in accounts.iter_mut().filter(|account| account.has_permit()) {
            scheduler.end_turn(account, TURN_COST);
        }
        let permitted = polls(&scheduler, &mut accounts).into_iter().filter(|is_permitted| *is_permitted);
        assert_eq!(permitted.count(), 2, "however little the earlier turns cost");
    }

    #[test]
    fn costly_requests_or_replies_make_a_connection_busy() {
        let is_busy_after = |turns: &[usize]| {
            let scheduler = Scheduler::default();
            let mut account = Account::default();
            turns.iter().for_each(|cost| scheduler.end_turn(&mut account, *cost));
            account.is_busy()
        };
        let small = turn_cost(16, 36);
        let long = turn_cost(READ_BYTES_MAX, 18 * 1_024);
        assert!(
            !is_busy_after(&[turn_cost(15 * 16, 15 * 36)]) && is_busy_after(&[turn_cost(16 * 16, 16 * 36)])
        );
        assert!(is_busy_after(&[turn_cost(20, 64 * 1_024)]), "a request with a long reply");
        assert!(is_busy_after(&[long, small, long, small]), "long and short turns");
        assert!(!is_busy_after(&[long, small, small, small, small]));
    }
}
