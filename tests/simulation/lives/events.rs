//! The events of a life, chosen at random.

use std::time::Duration;

use snowbank_state::lock_workers_at_once;

use snowbank_id::layout::Position;

use super::world::World;
use super::{MS, SECOND, STEP_RULE};

/// The time after the last use within which all writes must end: ten minutes, and the time of a
/// write in flight.
const WRITTEN_AFTER_USE: Duration = Duration::from_secs(605);

impl World {
    pub(crate) fn sleep(&mut self) {
        self.machine.true_us += match self.rng.u8(..10) {
            0..5 => self.rng.i64(0..200),
            5..8 => self.rng.i64(0..3 * MS),
            8 => self.rng.i64(0..2 * SECOND),
            _ => self.rng.i64(0..2 * self.tick_us().max(SECOND)),
        };
        self.record_wall();
    }

    /// Records the wall clock, for the checks of requests that wait.
    pub(crate) fn record_wall(&mut self) {
        let wall_us = self.machine.wall();
        self.highest_wall_us = self.highest_wall_us.max(wall_us);
        let reading = self.machine.read();
        let Some(daemon) = &mut self.daemon else { return };
        let believed_us = daemon.wall.believe(reading).wall.0;
        for waiting in daemon.waiting.iter_mut().flatten() {
            waiting.latest_us = waiting.latest_us.max(wall_us);
            waiting.earliest_us = waiting.earliest_us.min(believed_us);
        }
    }

    /// Passes time without a request, while the keeper is polled once a second. Checks that a
    /// forward step that lasts is believed, and that nothing is written after
    /// [`WRITTEN_AFTER_USE`].
    pub(crate) fn idle(&mut self, lasting: Duration) {
        let until_us = self.machine.true_us + lasting.as_micros() as i64;
        let quiet_from_us = self.machine.true_us + WRITTEN_AFTER_USE.as_micros() as i64;
        while self.machine.true_us < until_us {
            self.machine.true_us += SECOND;
            self.record_wall();
            self.advance();
            let (writes, _) = self.keep();
            let is_quiet = self.machine.true_us > quiet_from_us && self.is_well();
            assert!(!is_quiet || writes == 0, "seed {}: a write, long after the last request", self.seed);
        }
        if let Some(daemon) = &self.daemon
            && lasting > STEP_RULE.step_hold
        {
            let reading = self.machine.read();
            let believed = daemon.wall.believe(reading).wall;
            assert_eq!(believed, reading.wall, "seed {}: not believed after step_hold", self.seed);
            if self.is_well() {
                let stored_us = self.storage.state.wall_minus_boot_us.expect("a stored ceiling");
                let forgotten_us = reading.offset_us() - stored_us;
                assert!(
                    forgotten_us <= SECOND,
                    "seed {}: the stored difference of the clocks is {forgotten_us} us too low",
                    self.seed
                );
            }
        }
    }

    /// Makes no request until ceilings are no longer raised. Then steps the clock forward for good,
    /// and kills the process. The next process believes the clock at once.
    pub(crate) fn idle_over_a_forward_step(&mut self) {
        self.end_the_faults();
        self.idle(WRITTEN_AFTER_USE + Duration::from_secs(60));
        self.machine.wall_offset_us += 61 * SECOND + self.rng.i64(0..3_600 * SECOND);
        self.idle(STEP_RULE.step_hold + Duration::from_secs(3));
        self.kill();
        self.start();
        let reading = self.machine.read();
        if let Some(daemon) = &self.daemon {
            let believed = daemon.wall.believe(reading).wall;
            assert_eq!(believed, reading.wall, "seed {}: the clock is not believed", self.seed);
        }
    }

    /// Returns true if storage works and has no write in flight, the source has a grant, and no
    /// request waits.
    fn is_well(&self) -> bool {
        let Some(daemon) = &self.daemon else { return false };
        let storage_works = (self.storage.fails_one_in, self.storage.is_slow_one_in) == (0, 0);
        storage_works
            && self.storage.in_flight.is_empty()
            && daemon.source.grant().ceiling() > Position(0)
            && daemon.waiting.iter().all(Option::is_none)
    }

    /// Starts a second daemon with the same worker IDs while the first runs. The second start must
    /// be refused.
    fn start_beside(&self) {
        if self.daemon.is_some() {
            let second = lock_workers_at_once(self.locks.path(), &self.numbering);
            assert!(second.is_err(), "seed {}: two daemons have the worker IDs", self.seed);
        }
    }

    /// Changes the wall clock.
    pub(crate) fn disturb_the_clock(&mut self) {
        let max_ahead_us = self.max_ahead_us();
        let sizes =
            [5 * MS, SECOND, 59 * SECOND, 3_600 * SECOND, max_ahead_us / 2, max_ahead_us, 2 * max_ahead_us];
        let size = sizes[self.rng.usize(..sizes.len())];
        match self.rng.u8(..8) {
            0..3 => self.machine.wall_offset_us -= size,
            3..5 => self.machine.wall_offset_us += size,
            5 => self.machine.wall_offset_us = 0,
            6 => self.machine.frozen = Some(self.machine.wall()),
            _ => {
                // The clock continues from where it stood, or as if it had not stood still.
                if let Some(stood) = self.machine.frozen.take()
                    && self.rng.bool()
                {
                    self.machine.wall_offset_us = stood - self.machine.true_us;
                }
            }
        }
        self.record_wall();
    }

    pub(crate) fn step(&mut self) {
        self.sleep();
        if self.daemon.is_none() {
            self.start();
            return;
        }
        match self.rng.u8(..100) {
            0..60 => self.draw(),
            60..72 => self.advance(),
            72..78 => _ = self.apply_outcomes(),
            78..88 => _ = self.keep(),
            88..92 => self.pause(),
            92..95 => self.disturb_the_clock(),
            95 => self.kill(),
            96 => self.stop(),
            98 => match self.rng.u8(..24) {
                0 => self.idle(STEP_RULE.step_hold + Duration::from_secs(2)),
                1 => self.start_beside(),
                _ => self.back_up_or_restore(),
            },
            97 => match self.rng.u8(..6) {
                0 => self.reboot(),
                1 => self.take_over(),
                2 => self.stop(),
                3..5 => self.restore(),
                _ => self.kill(),
            },
            _ => {
                let rates = [0, 20, 3];
                self.storage.fails_one_in = rates[self.rng.usize(..3)];
                self.storage.is_slow_one_in = rates[self.rng.usize(..3)];
            }
        }
    }
}
