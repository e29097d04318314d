//! Checks of a witness's IDs against a clock that steps.

use super::*;

/// Returns the reading of a clock with this offset, in Unix ms.
pub(crate) fn wall(offset_ms: i64, moment: Instant) -> f64 {
    true_unix_ms(moment) + offset_ms as f64
}

pub(crate) fn tick(id: u64) -> f64 {
    twitter_unix_ms(id) as f64
}

/// Checks that the ticks of each reply lie between two bounds. These are `low` at the time of the
/// request, less the burst window, and `high` at the time of the reply. At least one reply must
/// have IDs.
#[track_caller]
pub(crate) fn assert_ticks<'a>(
    what: &str,
    samples: impl Iterator<Item = &'a Sample>,
    low: impl Fn(Instant) -> f64,
    high: impl Fn(Instant) -> f64,
) {
    let mut count = 0;
    for sample in samples {
        let Some((first, last)) = sample.ids() else { continue };
        let low = low(sample.asked) - BURST_WINDOW_MS - TOLERANCE_MS;
        let high = high(sample.answered) + TOLERANCE_MS;
        let first = tick(first);
        let last = tick(last);
        assert!(first >= low, "{what}: tick {first} is {:.1} ms too old: {sample:?}", low - first);
        assert!(last <= high, "{what}: tick {last} is {:.1} ms too far ahead: {sample:?}", last - high);
        count += 1;
    }
    assert!(count > 0, "{what}: no IDs came");
}

/// Checks that IDs follow a clock with this offset.
#[track_caller]
pub(crate) fn assert_follows<'a>(what: &str, samples: impl Iterator<Item = &'a Sample>, offset_ms: i64) {
    assert_ticks(what, samples, |asked| wall(offset_ms, asked), |answered| wall(offset_ms, answered));
}

/// The bounds of the ID clock at the moment when the wall clock stepped back. The lower bound is
/// the highest tick received before the step. The upper bound is the time that the wall clock would
/// show without the step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) low_ms: f64,
    pub(crate) high_ms: f64,
    /// The catch-up began between these two moments.
    pub(crate) earliest: Instant,
    pub(crate) latest: Instant,
}

impl Base {
    pub(crate) fn from_step(testimony: &Testimony, step: Step, offset_before_ms: i64) -> Base {
        let before = testimony.samples().filter(|sample| sample.answered <= step.before);
        let highest = before.filter_map(Sample::ids).map(|(_, last)| tick(last)).fold(0.0, f64::max);
        let after = testimony.samples().filter(|sample| sample.asked >= step.after);
        let latest = after.filter(|sample| sample.ids().is_some()).map(|sample| sample.answered).min();
        Base {
            low_ms: highest,
            high_ms: wall(offset_before_ms, step.after),
            earliest: step.before,
            latest: latest.unwrap_or(step.after),
        }
    }

    /// Returns the lowest reading that the ID clock can have during the catch-up.
    pub(crate) fn low(&self, moment: Instant) -> f64 {
        self.low_ms + ms_between(self.latest, moment).max(0.0) / 2.0
    }

    /// Returns the highest reading that the ID clock can have.
    pub(crate) fn high(&self, moment: Instant) -> f64 {
        self.high_ms + ms_between(self.earliest, moment) / 2.0
    }

    /// Checks that IDs catch up at half speed to a clock with this offset.
    #[track_caller]
    pub(crate) fn assert_catches_up<'a>(
        &self,
        what: &str,
        samples: impl Iterator<Item = &'a Sample>,
        offset_ms: i64,
    ) {
        assert_ticks(
            what,
            samples,
            |asked| self.low(asked).max(wall(offset_ms, asked)),
            |answered| self.high(answered).max(wall(offset_ms, answered)),
        );
    }

    /// Returns whether a refusal is correct for a clock with this offset. IDs would be more than
    /// `max_ahead` ahead, and the refusal gives the time until they are not.
    pub(crate) fn allows(
        &self,
        sample: &Sample,
        code: u16,
        retry_after_ms: u32,
        offset_ms: i64,
        max_ahead_ms: f64,
    ) -> bool {
        let least = self.low_ms - max_ahead_ms - wall(offset_ms, sample.answered) - TOLERANCE_MS;
        let most = self.high_ms - max_ahead_ms - wall(offset_ms, sample.asked) + TOLERANCE_MS;
        let retry_after_ms = f64::from(retry_after_ms);
        code == CLOCK_BEHIND
            && sample.answered >= self.earliest
            && least <= retry_after_ms
            && retry_after_ms <= most + 1.0
    }
}

/// Waits until IDs are no longer ahead of the clock.
pub(crate) fn await_caught_up(witness: &Witness, clock: &FakeClock, since: Instant) {
    let offset_ms = clock.offset_ms();
    witness.await_each("the clock to catch up", since, |sample| {
        sample.ids().is_some_and(|(_, last)| tick(last) <= wall(offset_ms, sample.asked))
    });
    // IDs lag behind the ID clock by up to the burst window. So the ID clock may still be ahead of
    // the wall clock by as much.
    witness.await_time(Duration::from_millis(50));
}
