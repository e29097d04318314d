//! The operator of the fleet, with the shipped commands.

use snowbank_fleet::{Begins, Coordinator, FleetError, FleetLimits, Freeing, Operator, Preparing};
use snowbank_id::layout::{Layout, UnixMicros};

use super::world::World;
use super::{FLEET, SETTINGS, SourceLayout, new_identity};

/// How often the operator tries a command that gets no answer. A failed try may have made some of
/// its writes.
const TRIES: u32 = 4;

impl World {
    /// Replaces the ID space by the other one. An operator stops most daemons, frees the worker IDs
    /// that are still held, and adds the new layouts. The other daemons notice the change later.
    pub(crate) fn change_space(&mut self) {
        if self.link.server().is_away {
            return;
        }
        for at in (0..self.daemons.len()).rev() {
            if self.rng.u8(..4) > 0 {
                self.stop(at);
            }
        }
        let mut link = self.link.clone();
        // A floor that an operator raises does not show that a daemon noticed a loss.
        let mut server = link.server();
        server.is_cut_off = false;
        let lost_writes = server.lost_writes;
        let lost_terms = server.lost_terms.clone();
        drop(server);
        let changed = (0..TRIES).any(|_| self.replace_layouts(&mut link).is_ok());
        let mut server = link.server();
        server.lost_writes = lost_writes;
        server.lost_terms = lost_terms;
        drop(server);
        if changed {
            self.is_turned = !self.is_turned;
        }
    }

    /// Changes the fleet's limits, after most daemons have stopped.
    pub(crate) fn change_limits(&mut self) {
        if self.link.server().is_away {
            return;
        }
        for at in (0..self.daemons.len()).rev() {
            if self.rng.u8(..8) > 0 {
                self.stop(at);
            }
        }
        let (horizon, max_ahead) = SETTINGS[self.rng.usize(..SETTINGS.len())];
        let limits = FleetLimits::new(horizon, max_ahead);
        let now = UnixMicros(self.true_us);
        let begins = Some(Begins::Above(now.max(UnixMicros(self.true_us + max_ahead.as_micros() as i64))));
        let preparing = Preparing { begins, is_growing: false, limits, now };
        let layout = SourceLayout { source: 0, is_turned: self.is_turned }.layout();
        let mut server = self.link.server();
        server.is_cut_off = false;
        let (lost_writes, lost_terms) = (server.lost_writes, server.lost_terms.clone());
        drop(server);
        let mut link = self.link.clone();
        let mut operator = Operator { coordinator: &mut link, name: FLEET };
        let is_changed = (0..TRIES).any(|_| operator.init(&[&layout], preparing, new_identity).is_ok());
        // A floor that an operator raises does not show that a daemon noticed a loss.
        let mut server = self.link.server();
        (server.lost_writes, server.lost_terms) = (lost_writes, lost_terms);
        drop(server);
        if is_changed {
            self.limits = limits;
            for machine in &mut self.machines {
                (machine.horizon, machine.max_ahead) = (horizon, max_ahead);
            }
        }
    }

    fn replace_layouts(&self, coordinator: &mut dyn Coordinator) -> Result<(), FleetError> {
        let now = UnixMicros(self.true_us);
        let mut operator = Operator { coordinator, name: FLEET };
        // All sources have one ID space, so a list for one of them has the worker IDs of all.
        let before = SourceLayout { source: 0, is_turned: self.is_turned }.layout();
        // A coordinator that was restored may not have that space any more.
        let listed = operator.list(&before, now).unwrap_or_default();
        for entry in listed.iter().filter(|entry| entry.state != "released") {
            let write = new_identity();
            let freeing = Freeing { write: &write, now, is_forced: true, is_lowering: false };
            operator.release(&before, entry.number, freeing)?;
        }
        let layouts: Vec<Layout> =
            self.layouts(!self.is_turned).into_iter().map(SourceLayout::layout).collect();
        let preparing = Preparing { begins: None, is_growing: true, limits: self.limits, now };
        operator.init(&layouts.iter().collect::<Vec<_>>(), preparing, new_identity).map(drop)
    }
}
