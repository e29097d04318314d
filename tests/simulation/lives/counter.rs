//! The life of a ticket source: the same faults of storage, clocks and processes, but no clock
//! protects the source.

use snowbank_core::shard::Order;
use snowbank_core::source::Rules;
use snowbank_id::layout::Position;
use snowbank_id::numbering::{Numbering, TicketCounter};

use super::world::{SHORT_TICKS, World};
use super::{SECOND, STEPS};

/// Runs a life with kills, stops, boots, older copies, and failing and slow writes. The clock also
/// steps, which must make no difference.
pub(crate) fn live(seed: u64) {
    let mut world = World::counting(seed);
    world.start();
    for _ in 0..STEPS {
        world.step();
    }
    world.end_the_faults();
    world.expect_ids(10 * SECOND);
}

impl World {
    /// Makes a world with a ticket source.
    fn counting(seed: u64) -> Self {
        let mut world = World::with(seed, &SHORT_TICKS);
        let increment = world.rng.u64(1..4);
        let offset = world.rng.u64(1..=increment);
        let counter = TicketCounter::new("simulated", increment, offset).expect("a counter");
        world.numbering = Numbering::Ticket(counter);
        world.storage.numbering = world.numbering.clone();
        (world.rules, world.order) = (Rules::TICKETS, Order::Strict);
        world
    }

    /// Returns the position to which an operator sets a counter without a record: above all numbers
    /// handed out.
    pub(crate) fn set_counter(&self) -> Position {
        self.handed_out.last_key_value().map_or(Position(0), |(_, &end)| Position(end))
    }

    /// Lets the kernel report that the machine was restored from a snapshot. The process hands out
    /// no number from then on.
    pub(crate) fn restore_counter(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        daemon.source.record_restored();
        for _ in 0..3 {
            let reading = self.machine.read();
            let polled = daemon.keeper.poll(reading);
            for write in polled.writes {
                assert_eq!(
                    write.restored,
                    [0],
                    "seed {}: the write does not mark the counter as restored",
                    self.seed
                );
                self.storage.begin(write, self.machine.true_us, &mut self.rng);
            }
            self.machine.true_us += SECOND;
            for outcome in self.storage.advance(self.machine.true_us) {
                let now = daemon.wall.believe(reading);
                let mark = |_, id_bound| daemon.locks.mark_granted(id_bound).expect("marks can be written");
                daemon.keeper.written(outcome, now, mark);
            }
            self.expect_silence(&mut daemon);
        }
        drop(daemon);
        self.kill();
    }
}
