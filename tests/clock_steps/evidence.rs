//! Evidence of a clock that steps: what a witness's IDs must show.

use super::*;

/// A clock with an offset, in Unix ms.
pub(crate) fn wall(offset_ms: i64, moment: Instant) -> f64 {
    true_unix_ms(moment) + offset_ms as f64
}

pub(crate) fn tick(id: u64) -> f64 {
    twitter_unix_ms(id) as f64
}

/// Checks of each reply with IDs that their ticks lie between `low` when they were asked for, less the burst window, and
/// `high` when they came. Some there must be.
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
        let (low, high) =
            (low(sample.asked) - BURST_WINDOW_MS - TOLERANCE_MS, high(sample.answered) + TOLERANCE_MS);
        let (first, last) = (tick(first), tick(last));
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

/// The bounds of the ID clock when the wall clock fell behind it: between the highest ID received before and the time that
/// the clock showed until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) low_ms: f64,
    pub(crate) high_ms: f64,
    /// Between these two moments the ride began.
    pub(crate) earliest: Instant,
    pub(crate) latest: Instant,
}

impl Base {
    pub(crate) fn of_step(testimony: &Testimony, step: Step, offset_before_ms: i64) -> Base {
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

    /// The least that the ID clock shows while it rides.
    pub(crate) fn low(&self, moment: Instant) -> f64 {
        self.low_ms + ms_between(self.latest, moment).max(0.0) / 2.0
    }

    /// The most.
    pub(crate) fn high(&self, moment: Instant) -> f64 {
        self.high_ms + ms_between(self.earliest, moment) / 2.0
    }

    /// Checks that IDs ride at half speed until a clock with this offset has caught up.
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

    /// Returns whether a refusal is one that a clock with this offset gives because IDs would be further ahead than `max_ahead`,
    /// with a time to wait that is enough and not more.
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
    // IDs lag behind the ID clock, which may itself be ahead yet by as much.
    witness.await_time(Duration::from_millis(50));
}
