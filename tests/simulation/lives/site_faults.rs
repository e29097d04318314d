//! The faults of a site: its clock, its states, and its boots.

use super::site::Site;
use super::{MAX_AHEAD, MS, SECOND};
use crate::support::directory;

impl Site {
    pub(crate) fn disturb_the_clock(&mut self) {
        self.set_at_us = self.machine.true_us;
        let size = [5 * MS, SECOND, 5 * SECOND, 30 * SECOND][self.rng.usize(..4)];
        match self.rng.u8(..3) {
            // Without a state, a daemon does not promise unique IDs after a step back.
            0 if self.keeps_all() => self.machine.wall_offset_us -= size,
            1 => self.machine.wall_offset_us += size,
            _ if self.keeps_all() => self.machine.wall_offset_us = 0,
            _ => {}
        }
        let lowest_us = self.lowest_wall_us - self.machine.true_us;
        self.machine.wall_offset_us = self.machine.wall_offset_us.max(lowest_us);
    }

    /// Either backs up a daemon's state, or ends the daemon and then loses the state or replaces
    /// the state by a backup.
    pub(crate) fn disturb_the_state(&mut self, index: usize) {
        if self.rng.bool() {
            return self.places[index].back_up();
        }
        let is_clean = self.rng.bool();
        self.end(index, is_clean);
        match self.rng.u8(..4) {
            0 => self.places[index].lose(),
            _ => self.places[index].restore(&mut self.rng),
        }
    }

    /// Boots the machine again. Afterwards the clock is past all IDs handed out. The marks are
    /// gone, so only the clock protects a start with an older copy, without a state, or with worker
    /// IDs of another state.
    pub(crate) fn reboot(&mut self) {
        for index in 0..self.places.len() {
            self.end(index, false);
            self.places[index].backups.clear();
            // A boot clears the marks, which reveal an older copy.
            self.places[index].is_older = false;
            self.places[index].newest.iter_mut().for_each(|newest| newest.is_older = false);
        }
        self.boots += 1;
        self.locks = directory();
        let off_us = [0, 30 * SECOND, 3_600 * SECOND][self.rng.usize(..3)];
        self.set_clock_right();
        self.machine.true_us += MAX_AHEAD.as_micros() as i64 + 2 * SECOND + off_us;
        self.machine.boot_at_us = self.machine.true_us;
        self.lowest_wall_us = self.machine.wall();
        self.highest_wall_us = self.lowest_wall_us;
    }

    /// Sets the wall clock to the highest time that it ever showed.
    pub(crate) fn set_clock_right(&mut self) {
        self.set_at_us = self.machine.true_us;
        self.machine.wall_offset_us = self.highest_wall_us - self.machine.true_us;
    }
}
