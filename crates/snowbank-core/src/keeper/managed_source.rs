//! A source whose ceiling the keeper raises: which ceiling it needs, and when.

use std::sync::Arc;
use std::time::Duration;

use super::range_demand::Ranges;
use super::reservation::{self, Reservation};
use super::{PERIOD, SHORTEST_PERIOD, far};
use crate::clock::{self, BootMicros, Now};
use crate::grant::{CeilingRule, Left};
use crate::source::{Kind, Source};
use snowbank_id::layout::{Position, Tick, UnixMicros};

/// The time for which a source's ceiling is still raised after its last use. So the first request
/// after a pause does not wait.
const KEPT_AFTER_USE: Duration = Duration::from_secs(600);

/// The time without use after which a source's ceiling rises at most once a [`PERIOD`].
const IN_USE: Duration = Duration::from_secs(3);

/// A margin for what the wall clock gains on the boot clock between two writes. Linux slews both
/// clocks alike, so only steps count.
const SLEW: Duration = Duration::from_millis(100);

/// Returns the highest value, in microseconds, that ID time − boot can have until the keeper's next
/// write. The wall clock gains at most `SLEW` until then. During a catch-up the ID clock is slower
/// than the boot clock, so the value falls.
pub fn id_minus_boot_us<'a>(
    sources: impl IntoIterator<Item = &'a ManagedSource>,
    wall_minus_boot_us: i64,
    now: Now,
) -> i64 {
    let by_clock_us = wall_minus_boot_us.saturating_add(clock::micros(SLEW));
    let sources = sources.into_iter().filter(|managed| managed.source.kind().follows_the_clock());
    let ahead_us = sources.map(|managed| managed.id_time(now).0.saturating_sub(now.boot.0)).max();
    ahead_us.map_or(by_clock_us, |ahead_us| ahead_us.max(by_clock_us))
}

/// The rule for how far ahead a source's ceiling is kept.
#[derive(Debug)]
enum Ahead {
    /// For a source that follows the clock.
    ByClock(CeilingRule),
    /// For a ticket source.
    ByDemand(Reservation),
    /// For a shared counter, whose stored ceiling follows its ranges and does not limit them.
    Ranges(Ranges),
}

/// The distance by which a writer's ceilings are ahead, and the rule for when they rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The state directory. Its ceilings are seconds ahead, by each source's rule, and rise while
    /// the source is in use.
    Local,
    /// The coordinator of a fleet. Its ceilings are this far ahead for all sources, and rise when
    /// half of the distance is used up. The coordinator has the first ceilings before the sources
    /// start.
    Fleet(Duration),
}

/// A source whose ceiling the keeper raises.
#[derive(Debug)]
pub struct ManagedSource {
    source: Arc<Source>,
    ahead: Ahead,
    /// The position where the source starts, until its first ceiling is granted; then that ceiling.
    first: Durable,
    /// The fleet's ceiling at the start. `None` if the source belongs to no fleet.
    fleet: Option<Position>,
    /// The cursor before the first claim.
    untouched: Position,
    /// The bound that a clean stop stores if the cursor is still at `untouched`.
    unclaimed: u64,
    /// True if a clean stop stored the bound from which the source starts.
    follows_a_stop: bool,
    /// The cursor at the keeper's last poll. `used_at` is the time of the last poll that found the
    /// cursor moved.
    seen: Position,
    used_at: BootMicros,
}

/// A ceiling that a writer makes durable, or has made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The position of the ceiling.
    pub ceiling: Position,
    /// The generation of the source's grant when the write was handed out.
    pub generation: u64,
}

impl Durable {
    /// The ceiling of a writer that stores no ceilings of the source. Such a ceiling limits no
    /// grant.
    pub(super) const EXEMPT: Durable = Durable { ceiling: Position(u64::MAX), generation: u64::MAX };

    /// Returns whether the writer stores no ceilings of the source.
    pub(super) fn is_exempt(self) -> bool {
        self.generation == u64::MAX
    }
}

impl ManagedSource {
    /// Manages a source that starts at `start` and has no ceiling yet. `rule` is for a source that
    /// follows the clock. A shared counter uses only the rule's `horizon`.
    pub fn new(source: Arc<Source>, rule: CeilingRule, start: Position, now: Now) -> Self {
        let first = Durable { ceiling: start, generation: source.grant().generation() };
        let untouched = source.cursor().unwrap_or(start);
        let unclaimed = source.numbering().id_bound(start);
        let used_at = now.boot;
        let ahead = match source.kind() {
            Kind::Snowflake => Ahead::ByClock(rule),
            Kind::Ticket => Ahead::ByDemand(Reservation::new(untouched, now)),
            Kind::SharedTicket => Ahead::Ranges(Ranges::new(untouched, rule.horizon, now)),
        };
        ManagedSource {
            source,
            ahead,
            first,
            fleet: None,
            untouched,
            unclaimed,
            follows_a_stop: false,
            seen: untouched,
            used_at,
        }
    }

    /// Sets the stored ID bound from which the start was computed, and whether a clean stop stored
    /// that bound. If nothing is claimed, the next clean stop stores the same bound again. Without
    /// this call, the bound is the ID bound of the start, and counts as not stored by a clean stop.
    pub fn following(self, id_bound: u64, is_stop: bool) -> Self {
        ManagedSource { unclaimed: id_bound, follows_a_stop: is_stop, ..self }
    }

    /// Sets the fleet's ceiling, which the coordinator has stored already.
    pub fn under_fleet(self, fleet: Option<Position>) -> Self {
        ManagedSource { fleet, ..self }
    }

    /// Sets the least numbers that a ticket source reserves, or takes in a range. With 1, it
    /// reserves nothing ahead of requests. Without this call, the least is [`RESERVE`](super::RESERVE).
    pub fn reserving(self, least: u64) -> Self {
        let ahead = match self.ahead {
            Ahead::ByClock(rule) => Ahead::ByClock(rule),
            Ahead::ByDemand(reservation) => Ahead::ByDemand(reservation.of_at_least(least)),
            Ahead::Ranges(ranges) => Ahead::Ranges(ranges.of_at_least(least)),
        };
        ManagedSource { ahead, ..self }
    }

    /// Returns true if the coordinator of a fleet limits the source's grant.
    pub fn is_in_fleet(&self) -> bool {
        self.fleet.is_some() || self.source.kind().takes_ranges()
    }

    /// Ends all claims, and returns the bound that the stop should store for this source, whose
    /// index is `index`. Nothing was claimed at or above that bound.
    pub fn seal(&self, index: usize) -> Option<Left> {
        let cursor = self.source.seal()?;
        let is_unclaimed = cursor == self.untouched;
        let id_bound = if is_unclaimed { self.unclaimed } else { self.source.numbering().id_bound(cursor) };
        Some(Left { source: index, id_bound, is_untouched: is_unclaimed && !self.follows_a_stop })
    }

    /// Returns true if the source was ever granted a ceiling or a range.
    pub(super) fn has_started(&self) -> bool {
        self.is_open() || self.source.grant().ceiling() > Position(0)
    }

    /// Returns false for a sealed source: it has no grant yet, or it claims nothing more.
    pub(super) fn is_open(&self) -> bool {
        self.source.cursor().is_some()
    }

    /// Returns the source.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Returns the ID clock. Before the first claim, it is at least at the start, where a catch-up
    /// begins.
    fn id_time(&self, now: Now) -> UnixMicros {
        let numbering = self.source.numbering();
        let begins = self.source.cursor().filter(|&cursor| cursor == self.untouched);
        let begins = begins.map(|cursor| numbering.start_of(numbering.tick_of(cursor)));
        self.source.id_time(now).max(begins.unwrap_or(now.wall))
    }

    /// Returns the time for which the IDs below the source's ceiling last.
    pub(super) fn horizon(&self) -> Duration {
        match &self.ahead {
            Ahead::ByClock(rule) => rule.horizon,
            Ahead::ByDemand(_) => reservation::LASTS,
            Ahead::Ranges(_) => Duration::MAX,
        }
    }

    /// Returns the first ceiling. Once it is durable, [`grant`](ManagedSource::grant) grants it.
    pub fn first_ceiling(&self, now: Now) -> Position {
        self.wanted_ceiling(now, Duration::ZERO, self.first.ceiling).max(self.first.ceiling)
    }

    /// Records the first ceiling, which is durable in the state directory. Grants this ceiling, or
    /// the fleet's ceiling if that is lower. Grants nothing to a shared counter.
    pub fn grant(&mut self, durable: Position) {
        assert!(durable >= self.first.ceiling, "the first ceiling is not below the start");
        self.first.ceiling = durable;
        if self.source.kind().takes_ranges() {
            return;
        }
        let granted = self.fleet.map_or(durable, |fleet| fleet.min(durable));
        self.source.grant().raise_if(self.first.generation, granted);
    }

    /// Returns a writer's first ceiling or, until that is granted, the source's start.
    pub(super) fn first(&self, reach: Reach) -> Durable {
        match reach {
            Reach::Local => self.first,
            Reach::Fleet(_) => {
                self.fleet.map_or(Durable::EXEMPT, |ceiling| Durable { ceiling, ..self.first })
            }
        }
    }

    /// Returns the fleet's ceiling to write now.
    pub(super) fn fleet_ceiling(&self, now: Now, horizon: Duration) -> Position {
        far::ceiling(self.source.numbering(), self.fleet_counts_from(now), horizon)
    }

    /// Returns whether the fleet's ceiling must rise.
    pub(super) fn needs_fleet(&self, now: Now, durable: Durable, horizon: Duration) -> bool {
        let numbering = self.source.numbering();
        let counts_from = self.fleet_counts_from(now);
        self.is_open()
            && !durable.is_exempt()
            && (self.is_stale(durable) || far::is_due(numbering, durable.ceiling, counts_from, horizon))
    }

    /// Returns the instant from which the fleet's horizon counts.
    fn fleet_counts_from(&self, now: Now) -> UnixMicros {
        let max_ahead = match &self.ahead {
            Ahead::ByClock(rule) => rule.max_ahead,
            // A counter has no ceiling in the fleet.
            Ahead::ByDemand(_) | Ahead::Ranges(_) => Duration::ZERO,
        };
        far::counts_from(now, self.source.id_time(now), max_ahead)
    }

    /// Returns whether the source was used so recently that its ceiling is still raised.
    pub(super) fn is_in_use(&self, now: Now) -> bool {
        now.boot.since(self.used_at) <= KEPT_AFTER_USE
    }

    /// Updates the source's catch-up, and records whether the source was used.
    pub(super) fn poll(&mut self, now: Now) {
        self.source.bound_catch_up(now);
        if let Some(cursor) = self.source.cursor()
            && cursor != self.seen
        {
            self.seen = cursor;
            self.used_at = now.boot;
        }
        match &mut self.ahead {
            Ahead::ByClock(_) => {}
            Ahead::ByDemand(reservation) => reservation.poll(self.seen, now),
            Ahead::Ranges(ranges) => ranges.poll(&self.source, self.seen, now),
        }
    }

    /// Returns the demand for ranges, if the source is a shared counter.
    pub(super) fn ranges(&mut self) -> Option<(&Arc<Source>, &mut Ranges)> {
        match &mut self.ahead {
            Ahead::Ranges(ranges) => Some((&self.source, ranges)),
            Ahead::ByClock(_) | Ahead::ByDemand(_) => None,
        }
    }

    /// Returns whether the next write must come before it is due. There are two reasons. The grant
    /// was taken away since the write of `durable`. Or a claim has met the grant's ceiling, and
    /// `durable` keeps the grant from rising.
    pub(super) fn needs(&self, durable: Durable) -> bool {
        if self.source.kind().takes_ranges() || !self.is_open() {
            return false;
        }
        let grant = self.source.grant();
        self.is_stale(durable) || (grant.is_wanted() && durable.ceiling <= grant.ceiling())
    }

    /// Returns whether a ceiling no longer counts, because the grant was taken away since its write
    /// was handed out.
    pub(super) fn is_stale(&self, durable: Durable) -> bool {
        self.source.grant().generation() != durable.generation && !durable.is_exempt()
    }

    /// Returns whether the source waits for a ceiling because its grant was taken away. A shared
    /// counter never waits for a ceiling: its ranges raise its grant.
    pub(super) fn is_revoked(&self, durable: Durable) -> bool {
        !self.source.kind().takes_ranges() && self.is_open() && self.is_stale(durable)
    }

    /// Returns the ceiling to write next, if one is due, for a writer whose durable ceiling is
    /// `durable`.
    pub(super) fn next_ceiling(&self, now: Now, uptime: Duration, durable: Durable) -> Option<Position> {
        self.source.cursor()?;
        let is_wanted = self.needs(durable) || self.source.wait_queue().admitted_ids() > 0;
        if !is_wanted && !self.is_in_use(now) {
            return None;
        }
        let ceiling = self.wanted_ceiling(now, uptime, durable.ceiling).max(durable.ceiling);
        (ceiling > durable.ceiling || self.is_stale(durable)).then_some(ceiling)
    }

    /// Returns the pause between two raises while this ceiling is durable.
    pub(super) fn period(&self, now: Now, durable: Durable) -> Duration {
        let reached_in = match (&self.ahead, self.source.cursor()) {
            (Ahead::ByClock(_), _) => self.source.reaches_in(now, durable.ceiling),
            (Ahead::ByDemand(reservation), Some(cursor))
                if now.boot.since(self.used_at) <= IN_USE
                    && durable.ceiling < self.source.numbering().end() =>
            {
                let half_used_in = reservation.half_used_in(cursor, durable.ceiling);
                return half_used_in.clamp(SHORTEST_PERIOD, PERIOD);
            }
            (Ahead::ByDemand(_) | Ahead::Ranges(_), _) => return PERIOD,
        };
        // A ceiling that the ID clock reaches within moments cannot be kept ahead of requests. Each
        // request that meets such a ceiling wakes the keeper.
        if now.boot.since(self.used_at) > IN_USE || reached_in < 2 * SHORTEST_PERIOD {
            return PERIOD;
        }
        (reached_in / 2).min(PERIOD)
    }

    /// Returns the ceiling that the source's rule wants now. `durable` is the writer's present
    /// ceiling.
    fn wanted_ceiling(&self, now: Now, uptime: Duration, durable: Position) -> Position {
        let reservation = match &self.ahead {
            Ahead::ByClock(rule) => return self.ceiling_by_clock(rule, now, uptime),
            Ahead::Ranges(_) => return self.source.grant().ceiling(),
            Ahead::ByDemand(reservation) => reservation,
        };
        let waiting = self.source.wait_queue().admitted_ids();
        let grant = self.source.grant();
        let cursor = self.source.cursor().unwrap_or(durable);
        let is_met = grant.is_wanted() && durable <= grant.ceiling();
        reservation.next_ceiling(cursor, durable, waiting, is_met).min(self.source.numbering().end())
    }

    /// Returns the ceiling that the rule wants now for a source that follows the clock.
    ///
    /// A source that has claimed nothing keeps no reserve above a start that is further ahead than
    /// `max_ahead`. Otherwise each crash while the wall clock stands would move the next start up
    /// by that reserve, without end.
    fn ceiling_by_clock(&self, rule: &CeilingRule, now: Now, uptime: Duration) -> Position {
        let numbering = self.source.numbering();
        let mut id_time = self.source.id_time(now);
        if self.source.cursor() == Some(self.untouched) {
            id_time = id_time.min(now.after(rule.max_ahead).wall);
        }
        let reach = rule.reach(now, id_time, uptime);
        numbering.first_of(Tick(numbering.tick_at(reach).0.saturating_add(1)))
    }
}
