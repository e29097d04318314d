//! What the keeper's thread last saw, kept for whoever asks on another.

use std::time::Duration;

use crate::ceiling::TakenOver;
use crate::clock::{BootMicros, Observed, Reading};
use crate::keeper::Looked;

/// From one look of the keeper to the next, wall − boot changes by far less than this where the wall clock is only slewed.
const STEP_US: i64 = 100_000;

/// Which way the wall clock stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Back,
    Forward,
}

/// What the keeper's thread last saw, and what it has counted.
#[derive(Debug)]
pub(crate) struct LastSeen {
    pub(crate) clock: Observed,
    pub(crate) steps_back: u64,
    pub(crate) steps_forward: u64,
    /// Raises that are durable, and when the last of them was.
    pub(crate) raises: u64,
    pub(crate) raised_at: Option<BootMicros>,
    pub(crate) raising: Duration,
    pub(crate) failures: u64,
    /// Why the last try to raise failed.
    pub(crate) failing: Option<String>,
    /// Why the worker IDs or the state may be another's.
    pub(crate) lost: Option<String>,
    /// Since when the keeper looks, which takes long only where storage does; `None`: it sleeps.
    pub(crate) looking_since: Option<BootMicros>,
    offset_us: i64,
    /// Which way it stepped just before: a clock that stands steps back with each look, and that is one step.
    stepped: Option<Direction>,
}

impl LastSeen {
    pub(crate) fn new(started: Reading) -> Self {
        LastSeen {
            clock: Observed::Steady,
            steps_back: 0,
            steps_forward: 0,
            raises: 0,
            raised_at: None,
            raising: Duration::ZERO,
            failures: 0,
            failing: None,
            lost: None,
            looking_since: None,
            offset_us: started.offset_us(),
            stepped: None,
        }
    }

    /// A look begins with this reading.
    pub(crate) fn begin(&mut self, reading: Reading) {
        self.looking_since = Some(reading.boot);
        let change_us = reading.offset_us().saturating_sub(self.offset_us);
        self.offset_us = reading.offset_us();
        let direction = if change_us > 0 { Direction::Forward } else { Direction::Back };
        let stepped = (change_us.abs() >= STEP_US).then_some(direction);
        if stepped != self.stepped {
            self.steps_back += u64::from(stepped == Some(Direction::Back));
            self.steps_forward += u64::from(stepped == Some(Direction::Forward));
        }
        self.stepped = stepped;
    }

    /// The worker IDs or the state may be another's.
    pub(crate) fn lose(&mut self, reason: &TakenOver) {
        self.lost = Some(reason.to_string());
    }

    /// The look is over.
    pub(crate) fn end(&mut self, looked: &Looked, now: BootMicros) {
        let since = self.looking_since.take().unwrap_or(now);
        self.clock = looked.clock;
        self.lost = looked.taken_over.as_ref().map(ToString::to_string);
        match &looked.failure {
            Some(error) => {
                self.failures += u64::from(looked.tried);
                self.failing = Some(error.to_string());
            }
            None if looked.raised => {
                self.raises += 1;
                self.raised_at = Some(now);
                self.raising += now.since(since);
                self.failing = None;
            }
            // Nothing was to rise, for nobody asks: the next request tries anew, and is not to be kept from it by a
            // failure of long ago.
            None => self.failing = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::StoreError;
    use snowbank_client::layout::UnixMicros;

    fn reading(wall_ms: i64, boot_ms: i64) -> Reading {
        Reading { wall: UnixMicros(wall_ms * 1_000), boot: BootMicros(boot_ms * 1_000) }
    }

    fn looked(raised: bool, failure: Option<&str>) -> Looked {
        Looked {
            clock: Observed::Steady,
            failure: failure.map(|text| StoreError(text.to_owned())),
            tried: true,
            unmarked: None,
            taken_over: None,
            some_wait: false,
            raised,
            is_renewed: false,
            next_in: Duration::from_secs(1),
        }
    }

    fn steps(walls_ms: &[i64]) -> (u64, u64) {
        let mut view = LastSeen::new(reading(walls_ms[0], 0));
        for (second, &wall_ms) in walls_ms.iter().enumerate() {
            view.begin(reading(wall_ms, second as i64 * 1_000));
        }
        (view.steps_back, view.steps_forward)
    }

    #[test]
    fn steps_are_counted_by_direction_and_slewing_is_none() {
        assert_eq!(steps(&[0, 1_000, 2_000]), (0, 0));
        assert_eq!(steps(&[0, 1_000, 2_050, 3_100]), (0, 0), "a fast clock");
        assert_eq!(steps(&[0, 1_000, 7_000, 8_000]), (0, 1));
        assert_eq!(steps(&[9_000, 10_000, 7_000, 8_000, 12_000, 13_000]), (1, 1));
        assert_eq!(steps(&[9_000, 9_000, 9_000, 9_000, 10_000]), (1, 0), "a clock that stands");
    }

    #[test]
    fn a_failure_stands_until_a_raise_is_durable_or_nobody_wants_one() {
        let mut view = LastSeen::new(reading(0, 0));
        view.begin(reading(0, 0));
        view.end(&looked(true, None), BootMicros(2_000));
        assert_eq!((view.raises, view.raising, view.looking_since), (1, Duration::from_millis(2), None));
        view.end(&looked(false, Some("disk full")), BootMicros(3_000));
        view.end(&looked(false, Some("disk full")), BootMicros(4_000));
        assert_eq!((view.failures, view.failing.as_deref()), (2, Some("disk full")));
        view.end(&looked(true, None), BootMicros(5_000));
        assert_eq!((&view.failing, view.raised_at), (&None, Some(BootMicros(5_000))));
        view.end(&looked(false, Some("disk full")), BootMicros(6_000));
        view.end(&looked(false, None), BootMicros(7_000));
        assert_eq!((view.failing, view.raised_at), (None, Some(BootMicros(5_000))), "a ceiling that rests");
    }
}
