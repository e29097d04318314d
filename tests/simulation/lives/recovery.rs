//! The end of a life: the faults end, and IDs must flow again.

use snowbank_core::source::OnStepBack;
use snowbank_id::layout::Position;

use super::world::World;
use super::{MS, SECOND, SHARDS};

/// A step of a watched recovery lasts for at most `max_ahead` divided by this number.
const STEPS_PER_MAX_AHEAD: i64 = 25;

impl World {
    /// Ends the faults. The wall clock then shows the highest time that it ever showed, or a time
    /// at most `max_ahead` behind the highest tick used. Checks that IDs flow again.
    pub(crate) fn recover(&mut self) {
        self.end_the_faults();
        if self.is_ended() {
            return;
        }
        let stays_wrong = self.rules.on_step_back == OnStepBack::Ride && self.rng.bool();
        let used_us = self.highest_used_us().filter(|_| stays_wrong);
        if let Some(used_us) = self.highest_used_us() {
            // A ceiling may be more than `max_ahead` ahead, by a reserve of half the horizon. The
            // reserves of several crashes must not add up.
            let reserve_us = self.horizon().as_micros() as i64 / 2 + 2 * self.tick_us();
            let beyond_us = used_us - self.highest_wall_us - self.max_ahead_us();
            assert!(beyond_us <= reserve_us, "seed {}: a start {beyond_us} us above max_ahead", self.seed);
        }
        if let Some(used_us) = used_us {
            // Sets the clock at most `max_ahead` behind the highest tick used.
            let behind_us = self.rng.i64(0..=self.max_ahead_us());
            self.machine.wall_offset_us =
                (used_us - behind_us).min(self.highest_wall_us) - self.machine.true_us;
        }
        if used_us.is_some_and(|used_us| self.is_bridged(used_us)) {
            self.expect_ids(2 * self.tick_us().max(1_500 * MS))
        } else {
            self.expect_ids(8 * self.max_ahead_us())
        }
        if self.tick_us() <= 10 * MS {
            self.rest();
            self.burst();
        }
    }

    /// Makes storage work, and ends its writes. Sets the wall clock to the highest time that it
    /// ever showed. Starts a daemon if none runs. Lets a paused thread continue.
    pub(crate) fn end_the_faults(&mut self) {
        (self.storage.fails_one_in, self.storage.is_slow_one_in) = (0, 0);
        let now_us = self.machine.true_us;
        self.storage.in_flight.iter_mut().for_each(|in_flight| in_flight.ends_us = now_us);
        self.machine.frozen = None;
        self.machine.wall_offset_us = self.highest_wall_us - self.machine.true_us;
        if self.daemon.is_none() {
            self.put_newest_back();
            self.start();
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.paused = None;
        }
    }

    /// Returns true once the layout's life has ended, or will end too soon to watch a recovery.
    fn is_ended(&self) -> bool {
        let numbering = &self.numbering;
        let end = numbering.start_of(numbering.tick_of(numbering.end()));
        self.highest_wall_us + 16 * self.max_ahead_us() > end.0
    }

    /// Returns the start of the highest tick with a claimed position.
    fn highest_used_us(&self) -> Option<i64> {
        let cursor = self.daemon.as_ref()?.source.cursor()?;
        Some(self.instant(Position(cursor.0.saturating_sub(1))).0)
    }

    /// Returns whether the believed wall clock is at most `max_ahead` behind the highest tick used.
    /// After a crash while the clock stood still, the clock is further behind. The next process
    /// starts at a ceiling that is more than `max_ahead` ahead.
    fn is_bridged(&self, used_us: i64) -> bool {
        let reading = self.machine.read();
        self.daemon
            .as_ref()
            .is_some_and(|daemon| used_us - daemon.wall.believe(reading).wall.0 <= self.max_ahead_us())
    }

    /// Returns whether a forward step of the wall clock is not believed yet.
    fn is_held(&self) -> bool {
        let reading = self.machine.read();
        self.daemon.as_ref().is_some_and(|daemon| daemon.wall.believe(reading).wall != reading.wall)
    }

    fn pass(&mut self, passes_us: i64) {
        self.machine.true_us += passes_us;
        self.record_wall();
        self.keep();
        self.advance();
    }

    /// Checks that IDs flow again within this time.
    pub(crate) fn expect_ids(&mut self, within_us: i64) {
        let before = self.granted;
        // The ID clock goes on once the keeper has seen the wall clock, which takes a second at
        // most. Requests that come just before a tick are answered only after the tick, in the next
        // step of the loop below.
        let until_us = self.machine.true_us + within_us + 3 * SECOND;
        self.pass(SECOND);
        while self.granted == before {
            let seed = self.seed;
            assert!(
                self.machine.true_us < until_us,
                "seed {seed}: no ID within {within_us} us after the end of the faults"
            );
            // The last steps take at most a second.
            let step_us = (within_us / 8).min(self.max_ahead_us() / STEPS_PER_MAX_AHEAD);
            self.pass(step_us.min((until_us - self.machine.true_us - 2 * SECOND).max(SECOND)));
            // This is long enough for the keeper's new write to end. The ID clock stays below the
            // ceiling meanwhile.
            self.machine.true_us += 3 * MS;
            self.apply_outcomes();
            self.draw();
            // A tick may have fewer IDs than the requests wanted.
            if self.granted == before {
                self.draw_single_ids();
            }
        }
    }

    /// Passes time until the wall clock has caught up, all waiting requests have their replies, and
    /// a held forward step and the raise after it have ended.
    fn rest(&mut self) {
        for _ in 0..3 * STEPS_PER_MAX_AHEAD {
            self.pass(self.max_ahead_us() / STEPS_PER_MAX_AHEAD);
        }
        while self.is_held() {
            self.pass(SECOND);
        }
        (0..2).for_each(|_| self.pass(SECOND));
        self.machine.true_us += 3 * MS;
        self.apply_outcomes();
    }

    /// Checks that after a rest any shard has the IDs of seven eighths of the burst window at once.
    fn burst(&mut self) {
        let reading = self.machine.read();
        let window_us = self.rules.burst_window.as_micros() as u64;
        let count = self.numbering.ids_per_tick() * window_us / self.tick_us() as u64 * 7 / 8;
        let index = self.rng.usize(..SHARDS);
        let Some(daemon) = self.daemon.as_mut().filter(|_| count > 0) else {
            return;
        };
        daemon.paused = None;
        let now = daemon.wall.believe(reading);
        let mut runs = Vec::new();
        daemon.shards[index].wake(now);
        let (lane, rng) = daemon.shards[index].lane(0);
        let taken = lane.take(count, || 0, rng, &mut runs);
        assert_eq!(taken, Ok(()), "seed {}: a burst of {count} IDs is refused after a rest", self.seed);
        self.hand_out(index, &runs, now.wall.0);
    }
}
