//! The operator of the fleet, with the shipped commands.

use snowbank::fleet::{Coordinator, FleetError, Freeing, Operator, Preparing};
use snowbank_id::layout::{Layout, UnixMicros};

use super::world::World;
use super::{FLEET, HORIZON, MAX_AHEAD, SourceLayout, new_identity};

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
        let preparing =
            Preparing { begins: None, is_growing: true, horizon: HORIZON, max_ahead: MAX_AHEAD, now };
        operator.init(&layouts.iter().collect::<Vec<_>>(), preparing, new_identity).map(drop)
    }
}
