//! The work of the daemon's threads: polls of the keeper, requests, and ticks.

use std::time::Duration;

use snowbank_core::clock::{BootMicros, Now};
use snowbank_core::shard::Order;
use snowbank_core::source::wait_queue::{Finished, WaitRequest};

use super::SHARDS;
use super::checks::count_of;
use super::daemon::Waiting;
use super::world::World;

impl World {
    /// Runs the keeper's thread: polls, starts writes, and takes finished outcomes. Returns the
    /// number of writes, and the time until the keeper's next poll.
    pub(crate) fn keep(&mut self) -> (usize, Duration) {
        let reading = self.machine.read_torn(&mut self.rng);
        let now_us = self.machine.true_us;
        let Some(daemon) = &mut self.daemon else {
            return (0, Duration::ZERO);
        };
        let polled = daemon.keeper.poll(reading);
        let writes = polled.writes.len();
        daemon.renewal.record(daemon.source.grant().generation());
        for write in polled.writes {
            daemon.renewal.last[write.writer] = write.number;
            let mut others = self.storage.in_flight.iter().filter(|other| !other.is_abandoned);
            let is_free = others.all(|other| other.write.writer != write.writer);
            assert!(is_free, "seed {}: two writes of one writer at once", self.seed);
            self.storage.begin(write, now_us, &mut self.rng);
        }
        self.apply_outcomes();
        (writes, polled.next_in)
    }

    /// Returns whether a write has ended.
    pub(crate) fn apply_outcomes(&mut self) -> bool {
        let outcomes = self.storage.advance(self.machine.true_us);
        let reading = self.machine.read();
        let Some(daemon) = &mut self.daemon else {
            return false;
        };
        let now = daemon.wall.believe(reading);
        let some_ended = !outcomes.is_empty();
        for outcome in outcomes {
            let is_later = outcome.number > daemon.renewal.last_before[outcome.writer];
            daemon.renewal.is_done[outcome.writer] |= is_later && outcome.failure.is_none();
            let mark = |_, id_bound| daemon.locks.mark_granted(id_bound).expect("marks can be written");
            daemon.keeper.written(outcome, now, mark);
        }
        some_ended
    }

    /// Makes a shard's thread read the clock and lose the processor. The shard's next wake-up uses
    /// this reading.
    pub(crate) fn pause(&mut self) {
        let reading = self.machine.read();
        let index = self.rng.usize(..SHARDS);
        if let Some(daemon) = &mut self.daemon
            && daemon.paused.is_none()
        {
            daemon.paused = Some((index, daemon.wall.believe(reading)));
        }
    }

    /// Runs one wake-up of one shard: a few requests of its connection, until one must wait.
    pub(crate) fn draw(&mut self) {
        let reading = self.machine.read_torn(&mut self.rng);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let (index, now) =
            daemon.paused.take().unwrap_or_else(|| (self.rng.usize(..SHARDS), daemon.wall.believe(reading)));
        daemon.shards[index].wake(now);
        for _ in 0..self.rng.usize(1..4) {
            self.draw_once(index, now);
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.shards[index].top_up();
        }
    }

    fn draw_once(&mut self, index: usize, now: Now) {
        if self.daemon.as_ref().is_none_or(|daemon| daemon.waiting[index].is_some()) {
            return;
        }
        let count = match self.rng.u8(..10) {
            0..6 => self.rng.u64(1..4),
            6..9 => self.rng.u64(1..500),
            _ => self.rng.u64(1..60_000),
        };
        self.draw_within(index, now, count, None);
    }

    /// Requests one ID from each shard that has no waiting request.
    pub(crate) fn draw_single_ids(&mut self) {
        let reading = self.machine.read();
        for index in 0..SHARDS {
            let daemon = self.daemon.as_mut().filter(|daemon| daemon.waiting[index].is_none());
            let Some(daemon) = daemon else { continue };
            let now = daemon.wall.believe(reading);
            daemon.shards[index].wake(now);
            self.draw_within(index, now, 1, None);
        }
    }

    /// Draws IDs. If there are too few, the request waits: `wait` is its deadline, and whether it
    /// accepts fewer IDs. If `wait` is `None`, both are random.
    fn draw_within(&mut self, index: usize, now: Now, count: u64, wait: Option<(BootMicros, bool)>) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let ahead = self.rng.u64(..3);
        let mut runs = Vec::new();
        let (lane, rng) = daemon.shards[index].lane(0);
        match lane.take(count, || ahead, rng, &mut runs) {
            Ok(()) => {
                assert_eq!(count_of(&runs), count, "seed {}", self.seed);
                if self.order == Order::Strict {
                    let last = daemon.last_of_all;
                    assert!(
                        runs[0].first > last,
                        "seed {}: {runs:?} is not above {last}, in strict order",
                        self.seed
                    );
                }
                self.check_age(&runs, now.wall.0);
                // A thread that was paused has an old reading. Meanwhile other threads may have
                // claimed by newer readings.
                let latest_us = now.wall.0.max(self.machine.wall());
                self.hand_out(index, &runs, latest_us);
            }
            Err(missing) => {
                let rng = &mut self.rng;
                let (due, partial) = wait.unwrap_or_else(|| {
                    (now.boot.after(Duration::from_micros(rng.u64(..200_000))), rng.bool())
                });
                let request =
                    WaitRequest { count: missing, due, wait: due.since(now.boot), partial, shard: index };
                let window = lane.window();
                if let Ok(id) = lane.source().admit(&window, request) {
                    let earliest_us = now.wall.0;
                    let latest_us = now.wall.0;
                    let taken = lane.keep(runs);
                    let above = daemon.last_of_all;
                    let wait = (due, partial);
                    daemon.waiting[index] =
                        Some(Waiting { id, count, wait, taken, above, earliest_us, latest_us });
                }
            }
        }
    }

    /// Runs a tick's wake-up: the wait queue advances, and the requests whose wait is over are
    /// answered.
    pub(crate) fn advance(&mut self) {
        let reading = self.machine.read_torn(&mut self.rng);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let now = daemon.wall.believe(reading);
        // A torn reading may show a step beyond `max_step` that other readings do not show. This
        // thread then believes an earlier time than the other threads.
        for waiting in daemon.waiting.iter_mut().flatten() {
            waiting.earliest_us = waiting.earliest_us.min(now.wall.0);
        }
        daemon.source.advance(now, &mut self.rng);
        for index in 0..SHARDS {
            let finished = self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.source.collect(index));
            for each in finished {
                self.finish(index, now, each);
            }
        }
    }

    fn finish(&mut self, index: usize, now: Now, finished: Finished) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let Some(Waiting { id, count, wait, taken, above, earliest_us, latest_us }) =
            daemon.waiting[index].take()
        else {
            panic!("seed {}: a request that did not wait has finished", self.seed);
        };
        assert_eq!(id, finished.id);
        let (lane, _) = daemon.shards[index].lane(0);
        let mut runs = Vec::new();
        let Ok(refusal) = lane.end_wait(taken, &finished, &mut runs) else {
            daemon.shards[index].wake(now);
            return self.draw_within(index, now, count, Some(wait));
        };
        let ids = count_of(&runs);
        if refusal.is_none() {
            assert!(ids >= 1 && ids <= count, "seed {}: {ids} of {count}", self.seed);
            let is_above = self.order == Order::Relaxed || runs[0].first > above;
            assert!(is_above, "seed {}: {runs:?} is below {above}, which came before the request", self.seed);
            self.check_age(&runs, earliest_us);
            self.hand_out(index, &runs, latest_us);
        }
    }
}
