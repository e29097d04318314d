//! The size of a ticket source's reservations: the numbers between its cursor and its ceiling.
//!
//! A counter has no clock, so demand decides how far ahead its ceiling is. The next reservation is
//! durable before more than half of the present one is used, unless demand surges or storage is
//! slow. A crash skips the rest of a reservation, so an idle counter reserves little. A counter that
//! reserves *nothing ahead* has no numbers between its cursor and its ceiling: the keeper raises the
//! ceiling for each request.

use std::time::Duration;

use crate::clock::{BootMicros, Now};
use snowbank_id::layout::Position;

/// The smallest reservation, unless the source's configuration says otherwise. A start makes a
/// reservation of this size, so a crash of an unused daemon skips at most this many numbers.
/// PostgreSQL's sequences skip as many. A few raises later a busy counter reserves what it needs.
pub const RESERVE: u64 = 32;
/// The largest value that a configuration may choose for the smallest reservation.
pub const RESERVE_MAX: u64 = 1_000_000;
/// The smallest reservation of a counter that reserves nothing ahead. The one number is that of a
/// request.
const NOTHING_AHEAD: u64 = 1;
/// The largest reservation, apart from numbers for requests that wait or were refused. A core
/// uses some 20 million numbers a second at most. Even then, half of a reservation outlasts ten
/// syncs of a good disk. Even if a crash skips a whole reservation each second, the counter lasts
/// for 29,000 years.
pub(super) const RESERVATION_MAX: u64 = 10_000_000;
/// The time for which a reservation lasts at the present rate. In half of this time the keeper
/// is polled at least twice, so a request hardly ever waits for a sync.
pub(super) const LASTS: Duration = Duration::from_secs(4);
/// The shortest time over which a rate is measured. Over a shorter time, a single burst would look
/// like a high rate.
const MEASURED_MIN: Duration = Duration::from_millis(100);
/// The time after which a rate is measured again.
const MEASURED_MAX: Duration = Duration::from_secs(1);

// Half of the largest reservation is never below the smallest, so that sizes can fall and rise.
const _: () = assert!(RESERVE > NOTHING_AHEAD && RESERVATION_MAX / 2 > RESERVE_MAX);

/// Returns how many numbers a counter with this smallest reservation takes before any request.
pub fn reserved_at_start(least: u64) -> u64 {
    if least <= NOTHING_AHEAD { 0 } else { least }
}

/// The size of the next reservation, by the demand so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    /// The smallest size; 0 if nothing is reserved ahead. Then the largest size is 0, too.
    least: u64,
    size: u64,
    /// The time for which a reservation lasts at the present rate.
    lasts: Duration,
    /// The numbers used per second.
    per_second: u64,
    /// The cursor and the time at which the present measurement began.
    from: Position,
    since: BootMicros,
}

impl Reservation {
    /// Creates the smallest reservation, for a counter that starts.
    pub(super) fn new(cursor: Position, now: Now) -> Self {
        let (least, size) = (RESERVE, RESERVE);
        Reservation { least, size, lasts: LASTS, per_second: 0, from: cursor, since: now.boot }
    }

    /// Sets the smallest size. With 1, nothing is reserved ahead.
    pub(super) fn of_at_least(self, least: u64) -> Self {
        let least = reserved_at_start(least);
        Reservation { least, size: least, ..self }
    }

    /// Returns whether nothing is reserved ahead of requests.
    pub(super) fn is_on_request(&self) -> bool {
        self.least == 0
    }

    /// Sets the time for which a reservation lasts, at least [`LASTS`].
    pub(super) fn lasting(self, lasts: Duration) -> Self {
        Reservation { lasts: lasts.max(LASTS), ..self }
    }

    /// Returns the time for which a whole reservation lasts.
    pub(super) fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Returns the time for which this many numbers last at the present rate, but no longer than a
    /// whole reservation lasts.
    pub(super) fn time_for(&self, numbers: u64) -> Duration {
        if numbers == 0 {
            return Duration::ZERO;
        }
        let seconds = numbers as f64 / self.per_second.max(1) as f64;
        self.lasts.min(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Returns the size of the next reservation.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Follows the demand. The size rises to what the last measured rate needs, and falls by half
    /// at most.
    pub(super) fn poll(&mut self, cursor: Position, now: Now) {
        let used = cursor.0.saturating_sub(self.from.0);
        let elapsed = now.boot.since(self.since);
        if elapsed < MEASURED_MAX && used < self.size / 2 {
            return;
        }
        let elapsed = elapsed.max(MEASURED_MIN);
        self.per_second = used_in(Duration::from_secs(1), used, elapsed);
        // One measurement can raise the size to what `LASTS` needs. Beyond that need, one
        // measurement can at most double the size.
        let lasting = used_in(self.lasts, used, elapsed).min(self.size.saturating_mul(2));
        let needed = used_in(LASTS, used, elapsed).max(lasting);
        let most = if self.is_on_request() { 0 } else { RESERVATION_MAX };
        self.size = needed.max(self.size / 2).clamp(self.least, most);
        (self.from, self.since) = (cursor, now.boot);
    }

    /// Returns true if so few numbers are left that the next reservation begins. That is half of
    /// the reservation, and an eighth more for the requests that come while the keeper sleeps. If
    /// the next one began at exactly half, the keeper's pauses would become ever shorter as the
    /// cursor nears the half.
    pub(super) fn is_due_with(&self, left: u64) -> bool {
        !self.is_on_request() && left <= self.size / 2 + self.size / 8
    }

    /// Returns how many numbers a request adds that found only `left` and did not wait. Later ones
    /// find twice as many, so a few refusals are enough for a request of any size.
    pub(super) fn for_one_refused(&self, left: u64) -> u64 {
        left.max(self.size / 2).max(1)
    }

    /// Returns the next ceiling, for a counter at `cursor` below `ceiling`. Requests wait for
    /// `waiting` numbers. The ceiling stays until five eighths of the reservation are left, unless
    /// a request waits or has met the ceiling.
    ///
    /// Requests that wait get their numbers even if other requests use up the present reservation
    /// before the next one is durable. A request that met the ceiling and went away also raises it,
    /// so that the next request finds more.
    pub(super) fn next_ceiling(
        &self,
        cursor: Position,
        ceiling: Position,
        waiting: u64,
        is_met: bool,
    ) -> Position {
        let left = ceiling.0.saturating_sub(cursor.0);
        if waiting == 0 && !is_met && !self.is_due_with(left) {
            return ceiling;
        }
        if waiting > 0 && self.is_on_request() {
            // Later requests join the queue, so nobody else uses what is reserved here.
            return Position(cursor.0.saturating_add(waiting)).max(ceiling);
        }
        let above = ceiling.0.saturating_add(if is_met { self.for_one_refused(left) } else { 0 });
        Position(cursor.0.saturating_add(self.size).max(above).saturating_add(waiting))
    }

    /// Returns the pause until half of the reservation up to this ceiling is used at the measured
    /// rate. The pause is at least an eighth of [`LASTS`] while no reservation is due.
    pub(super) fn half_used_in(&self, cursor: Position, ceiling: Position) -> Duration {
        if self.is_on_request() {
            return self.lasts;
        }
        let left = ceiling.0.saturating_sub(cursor.0).saturating_sub(self.size / 2);
        // The size is the rate times `lasts` or more, unless `RESERVATION_MAX` or the doubling in
        // `poll` keeps it lower.
        self.lasts.mul_f64(left as f64 / self.size as f64)
    }
}

/// Returns how many numbers are used in `time`, if `used` numbers are used in `elapsed`.
fn used_in(time: Duration, used: u64, elapsed: Duration) -> u64 {
    u64::try_from(u128::from(used) * time.as_micros() / elapsed.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowbank_id::layout::UnixMicros;

    fn at(ms: i64) -> Now {
        Now { wall: UnixMicros(0), boot: BootMicros(ms * 1_000), jumped: false }
    }

    #[test]
    fn a_reservation_follows_demand_between_its_bounds() {
        let mut reservation = Reservation::new(Position(0), at(0));
        assert_eq!(reservation.next_ceiling(Position(0), Position(0), 0, false), Position(RESERVE));
        reservation.poll(Position(10_000), at(1_000));
        assert_eq!(reservation.size, 40_000, "four seconds of 10,000 a second");
        let lasting = [0, 5_000, u64::MAX].map(|numbers| reservation.time_for(numbers));
        assert_eq!(lasting, [Duration::ZERO, Duration::from_millis(500), LASTS]);
        assert_eq!([1, 5].map(|times| reservation.lasting(times * LASTS).lasts()), [LASTS, 5 * LASTS]);
        reservation.poll(Position(29_999), at(1_050));
        assert_eq!(reservation.size, 40_000, "less than half, and less than a second later");
        reservation.poll(Position(30_000), at(1_050));
        assert_eq!(reservation.size, 800_000, "half was used in 50 ms, which counts as 100 ms");
        reservation.poll(Position(1_010_000), at(1_100));
        assert_eq!(reservation.size, RESERVATION_MAX, "a surge is seen at once");
        reservation.poll(Position(1_010_000), at(2_100));
        assert_eq!(reservation.size, RESERVATION_MAX / 2, "the size falls by half at most");
        for second in 3..30 {
            reservation.poll(Position(1_010_000), at(second * 1_000 + 100));
        }
        assert_eq!(reservation.size, RESERVE, "an idle counter reserves little again");
    }

    /// A daemon that has just started serves a hundred requests a second, and is asked for a million.
    #[test]
    fn the_smallest_reservation_grows_to_any_demand_within_a_few_raises() {
        for least in [2, RESERVE] {
            let mut reservation = Reservation::new(Position(0), at(0)).of_at_least(least);
            let (mut cursor, mut raises) = (0, 0);
            while reservation.size < 4_000_000 {
                cursor += reservation.size;
                raises += 1;
                reservation.poll(Position(cursor), at(100 * raises));
            }
            assert!(raises <= 5, "{least}: {raises} raises");
        }
    }

    #[test]
    fn with_a_reserve_of_one_nothing_is_reserved_ahead() {
        let mut reservation = Reservation::new(Position(7), at(0)).of_at_least(1);
        reservation.poll(Position(900_007), at(1_000));
        let next = |cursor, ceiling, waiting, is_met| {
            reservation.next_ceiling(Position(cursor), Position(ceiling), waiting, is_met).0
        };
        assert_eq!(next(7, 7, 0, false), 7, "nobody asks, however much was used before");
        assert_eq!((next(7, 7, 3, true), next(7, 9, 3, true), next(7, 12, 3, true)), (10, 10, 12));
        assert_eq!(next(7, 7, 0, true), 8, "a request that does not wait finds a number later");
        assert!(reservation.half_used_in(Position(7), Position(7)) >= LASTS, "the keeper need not wake up");
    }

    #[test]
    fn a_reservation_is_due_early_and_covers_waiting_requests() {
        let reservation = Reservation::new(Position(0), at(0)).of_at_least(1_000);
        let next = |cursor, ceiling| reservation.next_ceiling(Position(cursor), Position(ceiling), 0, false);
        assert_eq!((next(374, 1_000), next(375, 1_000)), (Position(1_000), Position(1_375)));
        let waiting = 1_000_000;
        let covering = reservation.next_ceiling(Position(900), Position(2_000), waiting, false);
        assert!(
            covering >= Position(2_000 + waiting),
            "even if other requests use up the present reservation first"
        );
        let met = reservation.next_ceiling(Position(0), Position(1_000), 0, true);
        assert_eq!(met, Position(2_000), "the request was refused, and the next one finds more");
        assert_eq!(reservation.half_used_in(Position(0), Position(1_000)), LASTS / 2);
        assert_eq!(reservation.half_used_in(Position(600), Position(1_000)), Duration::ZERO);
        assert!(reservation.half_used_in(Position(374), Position(1_000)) > LASTS / 8, "not due yet");
    }
}
