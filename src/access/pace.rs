//! The rate of one identity over all shards: the generic cell rate algorithm (GCRA), counted in
//! whole IDs.
//!
//! The *line* is the number of IDs that the rate has yielded since the boot: `rate × time`. A draw
//! begins at the *cursor*, or at the line if that is higher. The draw moves the cursor up by the
//! number of IDs, to at most one burst above the line. So a client that was idle draws at most
//! `rate × span + burst` IDs in the next time span. A request that waits reserves its IDs when it
//! arrives, and takes them later. So in a span that begins while requests wait, a client may draw
//! `rate × (span + longest wait) + burst` IDs. Rounding errors do not add up: only a change of the
//! rate loses a part of an ID.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowbank_core::clock::BootMicros;

const SECOND_US: u128 = 1_000_000;

/// A rate, and the IDs that were drawn at this rate. The burst of an idle client is one second's
/// IDs, because a request waits for a second by default. Only requests of clients with a rate take
/// the lock.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    per_second: u32,
    /// The end of the IDs that are drawn or reserved. It is at most a burst above the line, except
    /// while requests wait.
    cursor: u64,
}

/// IDs that a request may draw, and the time from which the client's rate allows them.
#[derive(Clone, Debug)]
pub struct Permit {
    /// `None`: the client has no rate.
    pace: Option<Arc<Pace>>,
    /// The rate at which the IDs were reserved.
    per_second: u32,
    /// The number of IDs. It is lower than the number in the request only if the request accepts
    /// fewer IDs.
    pub count: u64,
    /// The time from which the IDs may be drawn.
    pub at: BootMicros,
    /// The cursor after these IDs were reserved.
    end: u64,
}

/// The refusal of a request whose wait ends before the client's rate allows its IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFast {
    /// The rate, in IDs.
    pub per_second: u32,
    /// The time after which the client may ask again. `None` means that a request with this wait
    /// can never get this many IDs.
    pub retry_after: Option<Duration>,
}

impl Pace {
    /// Creates a rate from which nothing was drawn yet.
    pub(crate) fn new(per_second: u32) -> Self {
        Pace(Mutex::new(State { per_second, cursor: 0 }))
    }

    /// Changes the rate. IDs drawn ahead delay the client for the same time as before, rounded up
    /// to an ID.
    pub(super) fn set(&self, per_second: u32, now: BootMicros) {
        let mut state = self.lock();
        let ahead = state.cursor.saturating_sub(state.line(now));
        // `ahead` is rounded up, because the line to which it is added is rounded down.
        let ahead = (u128::from(ahead) * u128::from(per_second)).div_ceil(u128::from(state.per_second));
        state.per_second = per_second;
        state.cursor = state.line(now).saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX));
    }

    /// Reserves IDs for a request that was read at `now` and must be answered by `due`. A `partial`
    /// request accepts fewer.
    ///
    /// # Errors
    /// The rate does not allow the IDs by `due`. Nothing is reserved.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        now: BootMicros,
        due: BootMicros,
        count: u64,
        partial: bool,
    ) -> Result<Permit, TooFast> {
        let mut state = self.lock();
        let line = state.line(now);
        let per_second = state.per_second;
        let limit = state.line(due).saturating_add(u64::from(per_second));
        let from = state.cursor.max(line);
        let room = limit.saturating_sub(from);
        let count = if partial { count.min(room.max(1)) } else { count };
        let end = from.saturating_add(count);
        if count > room {
            // Even a client that has drawn nothing could not get this many.
            let is_never = count > limit.saturating_sub(line);
            let retry_after = (!is_never).then(|| state.time_of(end).since(due));
            return Err(TooFast { per_second, retry_after });
        }
        state.cursor = end;
        let at = state.time_of(end).max(now);
        Ok(Permit { pace: Some(Arc::clone(self)), per_second, count, at, end })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns how many IDs the rate has yielded from the boot to `at`.
    fn line(&self, at: BootMicros) -> u64 {
        let yielded = u128::from(at.0.max(0).unsigned_abs()) * u128::from(self.per_second) / SECOND_US;
        u64::try_from(yielded).unwrap_or(u64::MAX)
    }

    /// Returns the first time at which IDs up to the cursor `end` may be drawn.
    fn time_of(&self, end: u64) -> BootMicros {
        let on_line = u128::from(end.saturating_sub(u64::from(self.per_second)));
        let us = (on_line * SECOND_US).div_ceil(u128::from(self.per_second));
        BootMicros(i64::try_from(us).unwrap_or(i64::MAX))
    }
}

impl Permit {
    /// Returns the permit of a client without a rate.
    pub(super) fn unlimited(count: u64, at: BootMicros) -> Self {
        Permit { pace: None, per_second: 0, count, at, end: 0 }
    }

    /// Gives back the IDs after the first `drawn`, except those that the line has already passed.
    /// If the rate has changed since the reservation, all IDs count as drawn.
    pub fn settle(&mut self, drawn: u64, now: BootMicros) {
        let Some(pace) = &self.pace else { return };
        let mut state = pace.lock();
        let unused = self.count.saturating_sub(drawn);
        let from = (self.end - unused).max(state.line(now));
        if state.per_second == self.per_second {
            state.cursor = state.cursor.saturating_sub(self.end.saturating_sub(from));
        }
        self.count -= unused;
        self.end -= unused;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: i64) -> BootMicros {
        BootMicros(ms * 1_000)
    }

    const WAIT_US_MAX: i64 = 2_000_000;
    /// Two days after the boot, in ms.
    const START: i64 = 2 * 86_400_000;

    #[test]
    fn an_idle_client_draws_a_burst_at_once_then_its_rate() {
        let pace = Arc::new(Pace::new(1_000));
        let at = |now: i64, wait: i64, count| {
            pace.reserve(ms(START + now), ms(START + now + wait), count, false)
                .map(|reserved| reserved.at.0 / 1_000 - START)
                .map_err(|too_fast| too_fast.retry_after)
        };
        assert_eq!(at(0, 0, 600), Ok(0));
        assert_eq!(at(0, 0, 400), Ok(0));
        assert_eq!(at(0, 0, 1), Err(Some(Duration::from_millis(1))));
        assert_eq!(at(0, 5, 5), Ok(5), "the request waits for as long as it may");
        assert_eq!(at(2, 5, 5), Err(Some(Duration::from_millis(3))));
        assert_eq!(at(2, 8, 5), Ok(10), "these IDs come after those of the waiting request");
        assert_eq!(at(1_010, 0, 1_000), Ok(1_010), "a second later the burst is there again");
        assert_eq!(at(9_000, 100, 1_101), Err(None), "more than the burst and this wait yield");
        assert_eq!(at(9_000, 101, 1_101), Ok(9_101));
    }

    #[test]
    fn a_partial_request_takes_what_its_wait_yields() {
        let pace = Arc::new(Pace::new(1_000));
        let count = |now: i64, wait: i64, count| {
            let reserved = pace.reserve(ms(START + now), ms(START + now + wait), count, true);
            reserved.map(|reserved| reserved.count).map_err(|too_fast| too_fast.retry_after)
        };
        assert_eq!(count(0, 0, 5_000), Ok(1_000));
        assert_eq!(count(0, 10, 5_000), Ok(10));
        assert_eq!(count(0, 10, 5_000), Err(Some(Duration::from_millis(1))));
    }

    #[test]
    fn a_change_of_the_rate_frees_none_of_a_drawn_burst() {
        for (old, new) in [(3, 2), (402, 68), (7, 500)] {
            let pace = Arc::new(Pace::new(old));
            pace.reserve(ms(START), ms(START), 1, false).expect("within the burst");
            pace.set(new, ms(START));
            let left = (0..1_000).take_while(|_| pace.reserve(ms(START), ms(START), 1, false).is_ok()).count()
                as u32;
            let bursts = 1.0 / f64::from(old) + f64::from(left) / f64::from(new);
            assert!(bursts <= 1.0, "{left} IDs at {new} after one at {old}");
        }
    }

    #[test]
    fn ids_given_back_after_a_change_of_rate_count_as_drawn() {
        let pace = Arc::new(Pace::new(1_000));
        let mut reserved = pace.reserve(ms(START), ms(START), 600, false).expect("within the burst");
        pace.set(2_000, ms(START));
        reserved.settle(0, ms(START));
        assert!(pace.reserve(ms(START), ms(START), 801, false).is_err());
        assert!(pace.reserve(ms(START), ms(START), 800, false).is_ok());
    }

    #[derive(Clone, Debug)]
    struct Try {
        after_us: i64,
        wait_us: i64,
        count: u64,
        partial: bool,
        is_dropped: bool,
    }

    fn tries() -> impl Strategy<Value = Vec<Try>> {
        let try_ = (0..700_000_i64, 0..WAIT_US_MAX, 1..4_000_u64, any::<bool>(), any::<bool>());
        let try_ = try_.prop_map(|(after_us, wait_us, count, partial, is_dropped)| Try {
            after_us,
            wait_us,
            count,
            partial,
            is_dropped,
        });
        proptest::collection::vec(try_, 1..60)
    }

    proptest! {
        /// Since the start, the client has drawn at most what the rate yields, plus a burst. In any
        /// span, it draws at most what the rate yields in the span and one longest wait, plus a
        /// burst. Each permit's time is between its request's arrival and deadline.
        #[test]
        fn draws_stay_within_the_rate_and_a_burst(per_second in 1..3_000_u32, tries in tries()) {
            let pace = Arc::new(Pace::new(per_second));
            let mut now = ms(START);
            let mut drawn: Vec<(i64, u64)> = Vec::new();
            for Try { after_us, wait_us, count, partial, is_dropped } in tries {
                now = BootMicros(now.0 + after_us);
                let due = BootMicros(now.0 + wait_us);
                if let Ok(mut reserved) = pace.reserve(now, due, count, partial) {
                    prop_assert!((now.0..=due.0).contains(&reserved.at.0));
                    prop_assert!((1..=count).contains(&reserved.count) && (partial || reserved.count == count));
                    if is_dropped {
                        reserved.settle(0, now);
                    } else {
                        drawn.push((reserved.at.0, reserved.count));
                    }
                }
            }
            drawn.sort_unstable();
            let most = |from_us: i64, to_us: i64| {
                let span_us = u64::try_from(to_us - from_us).expect("sorted");
                (span_us * u64::from(per_second)).div_ceil(1_000_000) + u64::from(per_second)
            };
            for (first, &(from_us, _)) in drawn.iter().enumerate() {
                let mut sum = 0;
                for &(to_us, count) in &drawn[first..] {
                    sum += count;
                    prop_assert!(sum <= most(from_us - WAIT_US_MAX, to_us), "{sum} IDs from {from_us} to {to_us}");
                    prop_assert!(first > 0 || sum <= most(ms(START).0, to_us), "{sum} IDs until {to_us}");
                }
            }
        }

        /// A drawn burst stays drawn when the rate changes, and when IDs are given back late. The
        /// time that the rates need for the drawn IDs is at most the time since the start, plus the
        /// second of a burst. Each change of the rate may add the time of one ID at the old rate
        /// and of one ID at the new rate.
        #[test]
        fn draws_stay_within_a_rate_that_changes(
            first_rate in 5..500_u32,
            steps in proptest::collection::vec(
                (0..300_000_i64, 0..WAIT_US_MAX, 1..500_u64, 0..8_u8, 5..500_u32),
                1..60,
            ),
        ) {
            const BURST_S: f64 = 1.0;
            const ROUNDED_S: f64 = 1e-6;
            let pace = Arc::new(Pace::new(first_rate));
            let mut rate = first_rate;
            let mut now = ms(START);
            let mut rounded_s = ROUNDED_S;
            let mut waiting: Vec<Permit> = Vec::new();
            let mut drawn: Vec<Permit> = Vec::new();
            for (after_us, wait_us, count, action, new_rate) in steps {
                now = BootMicros(now.0 + after_us);
                match action {
                    0 => {
                        pace.set(new_rate, now);
                        rounded_s += 1.0 / f64::from(rate) + 1.0 / f64::from(new_rate);
                        rate = new_rate;
                    }
                    1 if !waiting.is_empty() => waiting.swap_remove(0).settle(0, now),
                    _ => waiting.extend(pace.reserve(now, BootMicros(now.0 + wait_us), count, action == 2)),
                }
                // Waiting requests draw only after actions above 3. After the other actions,
                // requests whose time has come may still give back their IDs.
                drawn.extend(waiting.extract_if(.., |permit| permit.at <= now && action > 3));
            }
            drawn.append(&mut waiting);
            drawn.sort_by_key(|permit| permit.at.0);
            let mut sum_s = 0.0;
            for permit in drawn {
                sum_s += permit.count as f64 / f64::from(permit.per_second);
                let most_s = BURST_S + permit.at.since(ms(START)).as_secs_f64() + rounded_s;
                prop_assert!(sum_s <= most_s, "{sum_s} s of IDs, {most_s} s are allowed");
            }
        }
    }
}
