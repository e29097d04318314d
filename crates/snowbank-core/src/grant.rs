//! Grants: how far a source may claim.
//!
//! A grant ends at its ceiling. No position at or above the ceiling is claimed, and a ceiling is
//! durable before anything below it is used. The keeper raises ceilings in the background. A shard
//! that meets a ceiling calls [`Grant::want_more`] to ask for a raise.

use std::fmt;
use std::time::Duration;

use crossbeam::utils::CachePadded;
use snowbank_id::layout::{Position, UnixMicros};

use crate::clock::{Now, micros};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The positions that a source may claim, shared between its keeper and all shards.
#[derive(Debug)]
pub struct Grant {
    /// Nothing at or above this position is claimed. This position rises while the grant is held.
    ceiling: CachePadded<AtomicU64>,
    /// Counts how often the grant was taken away. Each time, threads drop the positions that they
    /// had claimed before.
    generation: AtomicU64,
    /// 1 while a raise is wanted, because a claim has met the ceiling.
    wanted: AtomicU64,
    /// 1 once another process, or another copy of the machine, may hand out the same IDs. From then
    /// on, the ceiling never rises.
    lost: AtomicU64,
    /// Locked while the grant is taken away or given back, so that the two never happen at once.
    /// Claims never take this lock.
    changes: Mutex<()>,
}

impl Grant {
    /// Returns a grant up to `ceiling`, which is durable already.
    pub fn new(ceiling: Position) -> Self {
        Grant {
            ceiling: CachePadded::new(AtomicU64::new(ceiling.0)),
            generation: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            changes: Mutex::new(()),
        }
    }

    /// Returns the present ceiling, which may rise at any moment.
    #[inline]
    pub fn ceiling(&self) -> Position {
        Position(self.ceiling.load(Ordering::Acquire))
    }

    /// Returns whether IDs may be handed out: a ceiling was granted, and the grant was not taken away
    /// since.
    pub fn is_in_force(&self) -> bool {
        self.ceiling() > Position(0)
    }

    /// Returns how often the grant was taken away. A thread that keeps claimed positions must read
    /// this count before the [ceiling](Grant::ceiling). So the thread never pairs a new count with
    /// an old ceiling.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Raises the ceiling, and never lowers it. `ceiling` must be durable already.
    pub fn raise(&self, ceiling: Position) {
        assert!(ceiling.0 < u64::MAX, "a writer that stores no ceiling of the source grants nothing");
        self.ceiling.fetch_max(ceiling.0, Ordering::Release);
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// [Raises](Grant::raise) the ceiling. Returns false, and raises nothing, if the grant was
    /// taken away after this generation or is lost for good. A ceiling that became durable before
    /// the grant was taken away does not count afterwards.
    pub fn raise_if(&self, generation: u64, ceiling: Position) -> bool {
        let _alone = lock(&self.changes);
        if self.is_lost() {
            return false;
        }
        assert!(generation <= self.generation(), "a ceiling was stored before this raise, not after it");
        let holds = self.generation() == generation;
        if holds {
            self.raise(ceiling);
        }
        holds
    }

    /// Takes the grant away until it is raised again: nothing can be claimed, and positions that
    /// shards had claimed ahead are dropped.
    pub fn revoke(&self) {
        let _alone = lock(&self.changes);
        self.ceiling.store(0, Ordering::Release);
        // Written after the ceiling, as a release: no thread reads the new generation and then the
        // old ceiling.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Takes the grant away for good: another process, or another copy of the machine, may hand out
    /// the same IDs.
    pub fn lose(&self) {
        self.lost.store(1, Ordering::Relaxed);
        self.revoke();
    }

    /// Returns whether the grant was taken away for good.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) == 1
    }

    /// Returns whether a raise is wanted, because a claim has met the ceiling.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) == 1
    }

    /// Forgets that a claim met the ceiling. The next claim that meets the ceiling wakes the keeper
    /// again.
    pub fn forget_want(&self) {
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Records that a claim met the ceiling. Returns true unless a raise was wanted already. The
    /// caller must then wake the keeper.
    pub fn want_more(&self) -> bool {
        self.wanted.swap(1, Ordering::Relaxed) == 0
    }
}

/// The rule for how far ahead of the clock a ceiling is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CeilingRule {
    /// The distance of the ceiling above the wall clock. Requests of a source in use wait for a
    /// raise only if raises take longer than about half of this time.
    pub horizon: Duration,
    /// The most that the ID clock may run ahead of the wall clock.
    pub max_ahead: Duration,
    /// The length of one tick.
    pub tick: Duration,
}

impl CeilingRule {
    /// Returns the instant that the next ceiling reaches: `max(wall + horizon, id_time + m)`, at
    /// most `wall + max_ahead`. Horizon and `max_ahead` count as two ticks at least. Here m is a
    /// quarter of the uptime, at least 10 ms and at most the horizon. So a crash loop raises
    /// ceilings more slowly than the wall clock runs. If ticks are long, each crash raises the
    /// ceilings by a tick.
    ///
    /// This formula leaves no reserve while the ID clock is `max_ahead` ahead, or while the ID
    /// clock stands still because it was further ahead. In both states each request would meet the
    /// ceiling and wait for a sync. So a ceiling is also above ID time by at least a reserve: a
    /// quarter of the uptime, at most half the horizon. At half speed the ID clock needs a whole
    /// horizon to use up half a horizon. The reserve is rounded down to whole ticks, so that
    /// repeated starts do not push the ceiling ever further ahead.
    pub fn reach(&self, now: Now, id_time: UnixMicros, uptime: Duration) -> UnixMicros {
        let two_ticks = self.tick.saturating_mul(2);
        let horizon = self.horizon.max(two_ticks);
        let margin = (uptime / 4).max(Duration::from_millis(10)).min(horizon);
        let from_wall = now.after(horizon).wall;
        let from_id_time = UnixMicros(id_time.0.saturating_add(micros(margin)));
        let usual = from_wall.max(from_id_time).min(now.after(self.max_ahead.max(two_ticks)).wall);
        let reserve = micros((uptime / 4).min(horizon / 2));
        // The ceiling is at the end of the tick that contains the returned instant.
        usual.max(UnixMicros(id_time.0.saturating_add(reserve - micros(self.tick))))
    }

    /// Returns how far a ceiling can be ahead of a wall clock that never stepped. A ceiling is
    /// furthest ahead while the ID clock is `max_ahead` ahead. The ceiling is then at the end of
    /// the tick that contains the instant from [`reach`](CeilingRule::reach).
    pub fn furthest(&self) -> Duration {
        let horizon = self.horizon.max(2 * self.tick);
        self.max_ahead.max(2 * self.tick) + self.tick.max(horizon / 2)
    }
}

/// The reason why no more IDs may be handed out: another process may use the worker IDs or the
/// state by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver(pub String);

impl fmt::Display for TakenOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TakenOver {}

/// The ID bound that a clean stop stores for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The source's index.
    pub source: usize,
    /// The bound: the source never claimed this ID or a higher one.
    pub id_bound: u64,
    /// True if the source claimed nothing, and its start did not follow a clean stop. Then nobody
    /// knows how far below the bound the last ID lies.
    pub is_untouched: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::clock::BootMicros;

    const NOW: Now = Now { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(0), jumped: false };
    pub(crate) const RULE: CeilingRule = CeilingRule {
        horizon: Duration::from_secs(3),
        max_ahead: Duration::from_secs(10),
        tick: Duration::from_millis(1),
    };

    /// At `max_ahead` and above, a running source has a reserve of up to half the horizon. A source
    /// that has just started has no reserve.
    #[test]
    fn a_ceiling_reaches_as_far_as_horizon_lead_and_uptime_allow() {
        let seconds = CeilingRule { tick: Duration::from_secs(5), ..RULE };
        let farther = CeilingRule { max_ahead: Duration::from_secs(20), ..seconds };
        let hours = CeilingRule { tick: Duration::from_secs(3_600), ..RULE };
        for (rule, lead_ms, uptime_ms, expected_ms, why) in [
            (RULE, 0, 0, 3_000, "the horizon"),
            (RULE, 0, 3_600_000, 3_000, "the horizon"),
            (RULE, 5_000, 0, 5_010, "at least 10 ms"),
            (RULE, 5_000, 400, 5_100, "a quarter of the uptime"),
            (RULE, 5_000, 60_000, 8_000, "at most the horizon"),
            (RULE, 9_999, 0, 10_000, "at most max_ahead"),
            (RULE, 10_000, 0, 10_000, "a start has no reserve"),
            (RULE, 10_000, 2_000, 10_499, "a reserve of a quarter of the uptime"),
            (RULE, 10_000, 60_000, 11_499, "at most half the horizon"),
            (RULE, 3_600_000, 0, 3_599_999, "a start adds nothing to a lead beyond max_ahead"),
            (hours, 7_200_000, 60_000, 7_200_000, "the reserve adds no whole tick"),
            (seconds, 0, 0, 10_000, "two long ticks"),
            (farther, 15_000, 0, 15_010, "10 ms above ID time, or each crash would skip two ticks"),
        ] {
            let id_time = UnixMicros(NOW.wall.0 + lead_ms * 1_000);
            let reach = rule.reach(NOW, id_time, Duration::from_millis(uptime_ms));
            assert_eq!((reach.0 - NOW.wall.0) / 1_000, expected_ms, "{why}");
        }
    }

    #[test]
    fn a_raise_never_lowers_a_ceiling_and_may_fail_after_a_loss() {
        let grant = Grant::new(Position(10));
        grant.raise(Position(5));
        assert_eq!(grant.ceiling(), Position(10));
        assert!(grant.want_more());
        assert!(!grant.want_more(), "the keeper is woken once");
        grant.raise(Position(20));
        assert_eq!(grant.ceiling(), Position(20));
        assert!(grant.want_more());
        grant.revoke();
        assert_eq!((grant.ceiling(), grant.generation()), (Position(0), 1));
        assert!(!grant.raise_if(0, Position(30)), "durable before the grant was taken away");
        assert_eq!(grant.ceiling(), Position(0));
        assert!(grant.raise_if(1, Position(30)));
        assert_eq!(grant.ceiling(), Position(30));
        grant.lose();
        assert!(!grant.raise_if(grant.generation(), Position(40)), "the grant is lost for good");
        assert_eq!(grant.ceiling(), Position(0));
    }
}
