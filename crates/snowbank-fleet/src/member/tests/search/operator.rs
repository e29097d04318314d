//! The operator of the search, who runs the shipped commands.

use super::machine::{FLEET, Space, limits};
use super::wire::{self, Wire};
use super::world::World;
use crate::{Begins, Coordinator, Freeing, NoAnswer, Operator, Preparing, Swap, Swapped};
use snowbank_core::clock::BootMicros;

/// The indices of the last calls of `fleet init --add`: its first write, the second list of the
/// numbers, and the second write.
pub(super) const WRITES: [u8; 3] = [2, 3, 4];

/// A machine that does its next step before the call with this index, during a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meanwhile {
    pub(super) call: u8,
    pub(super) machine: usize,
}

/// The coordinator as a command sees it: a machine may do a step between two calls.
struct Console<'w> {
    world: &'w mut World,
    calls: u8,
    meanwhile: Option<Meanwhile>,
}

impl Console<'_> {
    fn call(&mut self) -> Wire {
        if let Some(Meanwhile { machine, .. }) = self.meanwhile.take_if(|it| it.call == self.calls) {
            self.world.go_on(machine);
        }
        self.calls += 1;
        Wire
    }
}

impl Coordinator for Console<'_> {
    fn now(&self) -> BootMicros {
        Wire.now()
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        self.call().read(keys)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        self.call().list(prefix)
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut wire = self.call();
        // A floor that an operator raises does not mean that a daemon has noticed the loss.
        let lost_writes = wire::with_server(|server| server.lost_writes);
        let swapped = wire.swap(swaps);
        wire::with_server(|server| server.lost_writes = lost_writes);
        swapped
    }
}

/// A command that fails may have done a part of its writes.
impl World {
    pub(super) fn init(&mut self, space: Space, begins: Option<Begins>, meanwhile: Option<Meanwhile>) {
        let preparing = Preparing { begins, is_growing: true, limits: limits(), now: self.time };
        let mut console = Console { world: self, calls: 0, meanwhile };
        let mut operator = Operator { coordinator: &mut console, name: FLEET };
        let _ = operator.init(&[space.layout()], preparing, wire::new_identity);
    }

    pub(super) fn free(&mut self, space: Space, number: usize) {
        let write = wire::new_identity();
        let now = self.time;
        let freeing = Freeing { write: &write, now, is_forced: true, is_lowering: false };
        let mut operator = Operator { coordinator: &mut Wire, name: FLEET };
        let _ = operator.release(space.layout(), number as u64, freeing);
    }
}
