//! The lead of the ID clock over the wall clock after a step back further than `max_ahead`, while
//! raises take time.

use snowbank_core::source::{Bound, OnStepBack};

use super::world::{SHORT_TICKS, World};
use super::{HORIZON, MS, SECOND, SHARDS};

/// The interval at which shards read their window.
const STEP_US: i64 = 5 * MS;
/// The time for which the lead is watched. The lead shrinks by half of this time.
const WATCHED_US: i64 = 15 * SECOND;

impl World {
    /// Runs the keeper's thread if there is a reason: its time has come, a write has ended, the
    /// clock jumped, or a claim met the ceiling. Returns the number of writes.
    fn wake_keeper(&mut self, polls_at_us: &mut i64) -> usize {
        let has_ended = self.apply_outcomes();
        let reading = self.machine.read();
        let is_wanted = self
            .daemon
            .as_ref()
            .is_some_and(|daemon| daemon.wall.has_jumped(reading) || daemon.source.grant().is_wanted());
        if !has_ended && !is_wanted && self.machine.true_us < *polls_at_us {
            return 0;
        }
        let (writes, next_in) = self.keep();
        *polls_at_us = self.machine.true_us + next_in.as_micros() as i64;
        writes
    }

    /// Lets one shard read its window and serve one request. Returns the window's limit and the
    /// lead.
    fn ask(&mut self) -> (Bound, i64) {
        let reading = self.machine.read();
        let index = self.rng.usize(..SHARDS);
        let daemon = self.daemon.as_mut().expect("the daemon runs");
        let now = daemon.wall.believe(reading);
        daemon.shards[index].wake(now);
        let (lane, rng) = daemon.shards[index].lane(0);
        let window = lane.window();
        let lead_us = window.id_time.0 - now.wall.0;
        let count = lane.source().left(&window).min(20);
        let mut runs = Vec::new();
        if count > 0 && lane.take(count, || 0, rng, &mut runs).is_ok() {
            self.hand_out(index, &runs, now.wall.0);
        }
        (window.bound, lead_us)
    }
}

/// Steps the clock back further than `max_ahead`. IDs come again when the wall clock is at most
/// `max_ahead` behind the ID clock. From then on the lead shrinks at half speed, raises are rare,
/// and no raise that takes less than half the horizon makes a request wait.
pub(crate) fn step_back_far(seed: u64) {
    let mut world = World::with(seed, &SHORT_TICKS);
    world.rules.on_step_back = OnStepBack::Ride;
    (world.storage.fails_one_in, world.storage.is_slow_one_in) = (0, 0);
    world.start();
    let takes_us = [2 * MS, 6 * MS, HORIZON.as_micros() as i64 / 2 - 100 * MS][world.rng.usize(..3)];
    world.storage.usual_us = takes_us - MS..takes_us;
    let mut watched = Watched { world, polls_at_us: 0 };

    let uptime_us = 8 * SECOND + watched.world.rng.i64(0..20 * SECOND);
    watched.ask_for(uptime_us);
    if watched.world.rng.bool() {
        // Begins a catch-up. After the next step back, its ID clock is ahead by more than
        // `max_ahead`.
        watched.world.machine.wall_offset_us = -watched.world.max_ahead_us() / 2;
        watched.ask_for(SECOND);
    }
    let beyond_us = watched.world.rng.i64(3 * SECOND..30 * SECOND);
    watched.world.machine.wall_offset_us = -(watched.world.max_ahead_us() + beyond_us);
    if watched.world.rng.bool() {
        // No request comes before IDs are available again.
        watched.pass(beyond_us - SECOND);
    }
    watched.await_ids(beyond_us + 3 * SECOND);
    watched.watch_the_lead();
}

/// A daemon under constant requests.
struct Watched {
    world: World,
    polls_at_us: i64,
}

impl Watched {
    /// Returns the number of writes that were started.
    fn step(&mut self) -> usize {
        self.world.machine.true_us += STEP_US;
        self.world.record_wall();
        self.world.wake_keeper(&mut self.polls_at_us)
    }

    fn pass(&mut self, lasting_us: i64) {
        (0..lasting_us / STEP_US).for_each(|_| _ = self.step());
    }

    fn ask_for(&mut self, lasting_us: i64) {
        for _ in 0..lasting_us / STEP_US {
            self.step();
            self.world.ask();
        }
    }

    fn await_ids(&mut self, within_us: i64) {
        let seed = self.world.seed;
        let flows = (0..within_us / STEP_US).any(|_| {
            self.step();
            !matches!(self.world.ask().0, Bound::Standing(_))
        });
        assert!(flows, "seed {seed}: no IDs within {within_us} us");
    }

    fn watch_the_lead(&mut self) {
        let seed = self.world.seed;
        let mut raises = 0;
        for since_us in (0..WATCHED_US).step_by(STEP_US as usize) {
            raises += self.step();
            let (bound, lead_us) = self.world.ask();
            assert_eq!(bound, Bound::Clock, "seed {seed}: a request is refused, or waits for a raise");
            let most_us = self.world.max_ahead_us() - since_us / 2 + 2 * self.world.tick_us() + 2 * STEP_US;
            assert!(lead_us <= most_us, "seed {seed}: the lead is still {lead_us} us after {since_us} us");
        }
        let most = (2 * WATCHED_US / SECOND) as usize * self.world.writers;
        assert!(raises <= most, "seed {seed}: the keeper made {raises} raises in {WATCHED_US} us");
    }
}
