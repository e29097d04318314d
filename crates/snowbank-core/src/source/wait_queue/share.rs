//! Shares out positions among requests that wait: first the positions that deadlines demand, then
//! the rest in even shares.
//!
//! Even means *max-min fair*. No request gets more than another request that still wants positions.
//! Positions that a small request does not need go to the other requests. A position cannot be
//! split, so some requests get one position more than others. Requests take turns to get this extra
//! position, as in deficit round robin (M. Shreedhar and G. Varghese, 1996), with a quantum of one
//! position.

/// The demand of one request, and its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The number of positions that it still wants.
    pub(super) wanted: u64,
    /// The part of `wanted` that is promised: the request gets it by its deadline.
    pub(super) promised: u64,
    /// Its place in the rotation: the request with the lowest turn gets the next leftover position.
    pub(super) turn: u64,
    /// The number of positions that it gets.
    pub(super) given: u64,
}

/// Shares out `positions`, of which `due` go to promises in order of deadlines. No request gets
/// more than it wants.
///
/// `next_turn` is higher than every turn. A request that gets a leftover position takes `next_turn`
/// as its new turn, and `next_turn` rises by one.
pub(super) fn share_out(shares: &mut [Share], positions: u64, due: u64, next_turn: &mut u64) {
    let mut due = due.min(positions);
    let mut left = positions;
    for share in shares.iter_mut() {
        share.given = share.promised.min(due);
        due -= share.given;
        left -= share.given;
    }
    let level = level(shares, left);
    for share in shares.iter_mut() {
        let given = level.min(share.wanted - share.given);
        share.given += given;
        left -= given;
    }
    give_odd_ones(shares, left, next_turn);
}

/// Returns the largest number of positions that every request can get, if a request that wants
/// fewer gets only as many as it wants.
fn level(shares: &[Share], positions: u64) -> u64 {
    let mut level = 0;
    loop {
        let mut satisfied = 0_u64;
        let mut unsatisfied = 0_u64;
        for missing in shares.iter().map(|share| share.wanted - share.given) {
            if missing <= level {
                satisfied += missing;
            } else {
                unsatisfied += 1;
            }
        }
        let Some(next) = positions.saturating_sub(satisfied).checked_div(unsatisfied) else { return level };
        if next <= level {
            return level;
        }
        level = next;
    }
}

/// Gives the leftover positions to the requests whose turn it is, one each.
fn give_odd_ones(shares: &mut [Share], mut left: u64, next_turn: &mut u64) {
    while left > 0 {
        let waiting = shares.iter_mut().filter(|share| share.given < share.wanted);
        let mut turns: Vec<&mut Share> = waiting.collect();
        if turns.is_empty() {
            return;
        }
        let served = usize::try_from(left).unwrap_or(usize::MAX).min(turns.len());
        turns.select_nth_unstable_by_key(served - 1, |share| share.turn);
        turns.truncate(served);
        // The requests that get a position in this round keep their order.
        turns.sort_unstable_by_key(|share| share.turn);
        for share in turns {
            share.given += 1;
            share.turn = *next_turn;
            *next_turn += 1;
            left -= 1;
        }
    }
}
