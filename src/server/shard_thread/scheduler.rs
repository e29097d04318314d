//! A shard's scheduler: keeps connections that send or receive much, and TLS handshakes, from
//! delaying the others.
//!
//! A connection whose latest turns took more than a few requests is *busy*, and turns of other
//! connections are short. A busy connection needs a permit for each turn, and so does each step of
//! a handshake. Between two polls of the thread's sockets, the turns with permits share a budget of
//! two full turns. So a request of another connection waits for a few long turns at most, however
//! many connections are busy.
//!
//! There is one queue for permits, in the order of cost: a connection's place is the cost of all
//! permits so far, plus its own recent cost. So a cheap turn goes before an expensive one that came
//! a little earlier. None waits for ever, because the cost of all permits only rises.
//!
//! Nobody knows the cost of a turn before it is over. So a permit reserves at least the cost of a
//! full turn, and at the turn's end its own cost counts instead. If a turn costs more than is left,
//! the budgets after the next polls pay for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::turn::READ_BYTES_MAX;
use crate::server::net::counted_socket::TlsRead;

/// The cost of a turn apart from its requests and replies: that of two system calls.
pub(super) const TURN_COST: usize = 1_024;

/// The cost of each byte of small requests of Snowbank's own protocol, their claims and small
/// replies included. Requests of other front ends count as a number of such bytes.
const REQUEST_BYTE_COST: usize = 3;

/// The bytes of replies that add 1 to the cost. IDs of a long reply cost 0.5 ns per byte; small
/// requests that differ cost up to 12 ns per byte, and equal ones 5 ns.
const REPLY_BYTES_OF_COST: usize = 4;

/// The cost of a turn that takes as many bytes of small requests as it can: about 0.1 ms.
const FULL_TURN_COST: usize = TURN_COST + REQUEST_BYTE_COST * READ_BYTES_MAX;

/// The budget for turns with a permit between two polls of the sockets: two full turns. Cheaper
/// turns may leave budget for a third, so a newcomer waits for 0.3 ms at most. A turn of 16
/// requests costs a twenty-sixth of this.
const BUSY_COST: usize = 2 * FULL_TURN_COST;

/// The cost of a step of a handshake: all that permits may cost between two polls of the sockets.
/// The signature of an RSA key of 2,048 bits takes about a millisecond.
pub(super) const HANDSHAKE_COST: usize = BUSY_COST;

/// The least cost of a turn that makes a connection busy: some 16 requests, or a reply of some 3.5
/// KiB. Fewer requests cost less than the turn's system calls. Over TLS, with a record for each
/// request, fewer make it busy.
const BUSY_TURN_COST: usize = turn_cost(16 * 16, 16 * 36);

/// Returns the cost of a turn that took requests of so many bytes, and encoded replies of so many.
pub(super) const fn turn_cost(of_requests: usize, of_replies: usize) -> usize {
    TURN_COST + REQUEST_BYTE_COST * of_requests + of_replies / REPLY_BYTES_OF_COST
}

/// The cost of a TLS record beside that of its bytes: 1 µs. Measured: 0.5 µs with a request, 3.6 µs
/// for a key change.
const RECORD_COST: usize = TURN_COST / 4;

/// Returns the cost of what TLS has read, without that of its plaintext.
pub(super) const fn tls_cost(read: TlsRead) -> usize {
    RECORD_COST * read.records + scan_cost(read.bytes)
}

/// Returns the cost of reading so many bytes of a request that is not whole, or of decrypting them:
/// about that of writing as many.
pub(super) const fn scan_cost(bytes: usize) -> usize {
    bytes / REPLY_BYTES_OF_COST
}

thread_local! {
    /// The number of times that this thread has polled its sockets after it slept.
    static POLLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts that the thread has polled its sockets. Its runtime calls this after each sleep.
pub(crate) fn record_poll() {
    POLLS.set(POLLS.get().wrapping_add(1));
}

/// A connection that waits for a permit.
#[derive(Debug)]
struct Queued {
    is_permitted: Rc<Cell<bool>>,
    /// The cost that its permit will reserve.
    reserved: usize,
    is_handshake: bool,
    waker: Waker,
}

/// The place of a connection in the queue: its cost, and its number among equal ones.
type Key = (u64, u64);

/// The scheduler of one thread.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// The rest of the budget until the next poll. Below 0 after turns that cost more.
    left: Cell<isize>,
    /// The poll after which `left` was last filled up.
    filled_at: Cell<u64>,
    /// The cost of all turns that had a permit.
    spent: Cell<u64>,
    /// The number of connections that have ever waited.
    queued: Cell<u64>,
    /// The handshakes in the queue.
    handshakes: Cell<u64>,
    queue: RefCell<BTreeMap<Key, Queued>>,
    /// Signalled when a connection waits for a permit.
    wanted: Notify,
}

/// The scheduler's account of one connection.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Set while the connection `is_queued`. Only busy connections allocate it.
    is_permitted: Option<Rc<Cell<bool>>>,
    /// The cost that the permit of its turn has reserved. 0 without a permit.
    reserved: usize,
    /// The cost of the last turn, or of an earlier one halved with each turn since, if that is
    /// more. A connection that alternates long and short turns stays busy.
    recent_cost: usize,
    is_handshake: bool,
}

impl Account {
    /// Returns the account of a handshake, each of whose steps needs a permit.
    pub(super) fn for_handshake() -> Self {
        Account { recent_cost: HANDSHAKE_COST, is_handshake: true, ..Account::default() }
    }

    /// Returns true while the connection waits for a permit, or has not taken the one that is
    /// there.
    pub(super) fn is_queued(&self) -> bool {
        self.is_permitted.is_some()
    }

    /// Returns true if the latest turns took more than a few requests. The next turn then needs a
    /// permit.
    pub(super) fn is_busy(&self) -> bool {
        self.recent_cost >= BUSY_TURN_COST
    }

    /// Returns true in a turn that has a permit. A turn without one must be short, because any
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
        // A handshake's step costs more than a full turn.
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
        // Each handshake in the queue moves the next one back by twice its cost: once for its own
        // step, once for turns of others. A flood of handshakes thus gets half of the thread.
        let is_handshake = account.is_handshake;
        let ahead = if is_handshake { self.handshakes.replace(self.handshakes.get() + 1) } else { 0 };
        let place = self.spent.get() + account.recent_cost as u64 * (1 + 2 * ahead);
        let key = (place, self.queued.get());
        let waker = cx.waker().clone();
        self.queue.borrow_mut().insert(key, Queued { is_permitted, reserved, is_handshake, waker });
        self.wanted.notify_one();
        Poll::Pending
    }

    /// Counts the cost of a turn that is over. If it had a permit, that cost takes the place of the
    /// reserved one.
    pub(super) fn end_turn(&self, account: &mut Account, cost: usize) {
        account.recent_cost = cost.max(account.recent_cost / 2);
        let reserved = std::mem::take(&mut account.reserved);
        if reserved > 0 {
            self.spent.set(self.spent.get() + cost as u64);
            self.left.set(self.left.get() + reserved.cast_signed() - cost.cast_signed());
            self.permit();
        }
    }

    /// Hands out permits whenever the thread has polled its sockets. Never completes.
    pub(super) async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while !self.queue.borrow().is_empty() {
                // Completes after the sockets were polled and the tasks that the poll woke have
                // run.
                tokio::task::yield_now().await;
                self.fill_up();
                self.permit();
            }
        }
    }

    /// Begins another budget. If turns cost more than the last one had, this one pays the rest.
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
            // A connection that closed while it waited has dropped its `is_permitted`.
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

    /// Lets the thread poll its sockets.
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

    /// Lets a thousand connections take turns of this cost, one turn after the other. Returns the
    /// number of turns before each of three polls.
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
        // Connections that wait come first.
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
        assert_eq!(expensive, [1, 0, 0], "one that costs more than all permits uses up later ones");
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
        assert_eq!(permitted.count(), 2, "whatever the turns before cost");
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
        assert!(is_busy_after(&[turn_cost(20, 64 * 1_024)]), "one request with a long reply");
        assert!(is_busy_after(&[long, small, long, small]), "one that alternates");
        assert!(!is_busy_after(&[long, small, small, small, small]));
    }
}
