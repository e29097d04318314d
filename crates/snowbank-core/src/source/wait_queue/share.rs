//! Shares out positions among requests that wait: first what deadlines demand, then evenly.
//!
//! Even means *max-min fair*: no request gets more than another that still wants some, and
//! positions that a small request does not need go to the others. Positions are whole, so some
//! requests get one more than others. They take turns, as in deficit round robin (M. Shreedhar and
//! G. Varghese, 1996), with a quantum of one position.

/// The demand of one request, and its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The number of positions that it still wants.
    pub(super) wanted: u64,
    /// The part of `wanted` that was promised by its deadline.
    pub(super) promised: u64,
    /// Its place in the rotation: the least turn gets the next leftover position.
    pub(super) turn: u64,
    /// The number of positions that it gets.
    pub(super) given: u64,
}

/// Shares out `positions`, of which `due` go to promises in order of deadlines. No request gets
/// more than it wants.
///
/// `next_turn` is the turn after all others; those that get a leftover position go behind it.
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

/// Returns the largest number of positions that every request can get, or as many as it wants if
/// these are fewer.
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

/// Gives one position each to those whose turn it is.
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
        // Requests of this round keep their order.
        turns.sort_unstable_by_key(|share| share.turn);
        for share in turns {
            share.given += 1;
            share.turn = *next_turn;
            *next_turn += 1;
            left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::summary::{Summary, Want};
    use super::*;
    use crate::clock::BootMicros;

    fn share(wanted: u64, turn: u64) -> Share {
        Share { wanted, promised: 0, turn, given: 0 }
    }

    fn given(shares: &[Share]) -> Vec<u64> {
        shares.iter().map(|share| share.given).collect()
    }

    #[test]
    fn more_requests_than_positions_are_served_in_turn() {
        let mut shares: Vec<Share> = (0..100).map(|turn| share(5, turn)).collect();
        let mut next_turn = 100;
        share_out(&mut shares, 60, 0, &mut next_turn);
        let first = given(&shares);
        assert_eq!(first, [vec![1; 60], vec![0; 40]].concat());
        share_out(&mut shares, 60, 0, &mut next_turn);
        assert_eq!(given(&shares), [vec![1; 20], vec![0; 40], vec![1; 40]].concat());
    }

    #[test]
    fn what_is_due_now_goes_before_even_shares() {
        let mut shares = [Share { promised: 60, ..share(60, 0) }, Share { promised: 1, ..share(500, 1) }];
        share_out(&mut shares, 20, 10, &mut 2);
        assert_eq!(given(&shares), [15, 5]);
        share_out(&mut shares, 10, 10, &mut 2);
        assert_eq!(given(&shares), [10, 0]);
    }

    proptest! {
        /// All positions are given away if they are wanted, and no request gets more than it wants.
        /// No request has over one position more than another that still wants some.
        #[test]
        fn shares_are_max_min_fair(
            wanted in prop::collection::vec(prop_oneof![1_u64..5, 1_u64..5_000, 1_u64..2_000_000], 1..80),
            positions in 0_u64..20_000,
        ) {
            let mut shares: Vec<Share> = (0..).zip(&wanted).map(|(turn, &wanted)| share(wanted, turn)).collect();
            let mut next_turn = wanted.len() as u64;
            share_out(&mut shares, positions, 0, &mut next_turn);
            let total: u64 = shares.iter().map(|share| share.given).sum();
            prop_assert_eq!(total, positions.min(wanted.iter().sum()));
            let most = shares.iter().map(|share| share.given).max().unwrap_or(0);
            for share in &shares {
                prop_assert!(share.given <= share.wanted);
                prop_assert!(share.given == share.wanted || share.given + 1 >= most, "{:?}", shares);
            }
        }

        /// Requests whose promises fit the positions to come keep them, whatever is shared out
        /// evenly meanwhile.
        #[test]
        fn promises_that_fit_are_kept(
            requests in prop::collection::vec((1_u64..400, 1_u64..40), 1..30),
            per_tick in 1_u64..50,
        ) {
            // Each with the position of its deadline.
            let mut promises: Vec<(u64, Share)> = Vec::new();
            for (turn, &(count, ticks)) in (0..).zip(&requests) {
                let mut with = promises.clone();
                with.push((ticks * per_tick, Share { promised: count, ..share(count, turn) }));
                with.sort_by_key(|&(limit, _)| limit);
                let mut promised = 0;
                let is_kept = |&(limit, share): &(u64, Share)| {
                    promised += share.promised;
                    promised <= limit
                };
                if with.iter().all(is_kept) {
                    promises = with;
                }
            }
            let (limits, mut shares): (Vec<u64>, Vec<Share>) = promises.into_iter().unzip();
            let mut next_turn = requests.len() as u64;
            for tick in 0..40 {
                let next = (tick + 1) * per_tick;
                let want = |(share, &limit_by_due): (&Share, &u64)| {
                    let due = BootMicros(limit_by_due.cast_signed());
                    Want { due, wanted: share.wanted, promised: share.promised, limit_by_due }
                };
                let mut summary = Summary::default();
                summary.renew(shares.iter().zip(&limits).map(want));
                let due = summary.due_now(next).min(per_tick);
                share_out(&mut shares, per_tick, due, &mut next_turn);
                for (share, &limit) in shares.iter_mut().zip(&limits) {
                    share.wanted -= share.given;
                    share.promised = share.promised.saturating_sub(share.given);
                    prop_assert!(limit > next || share.promised == 0);
                }
            }
        }
    }
}
