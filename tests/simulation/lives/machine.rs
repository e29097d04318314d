//! A machine's clocks.

use snowbank_core::clock::{BootMicros, Reading};
use snowbank_id::layout::UnixMicros;

use super::{MS, SECOND};

/// The machine's clocks. True time runs, and the wall clock may show anything.
pub(crate) struct Machine {
    pub(crate) true_us: i64,
    pub(crate) boot_at_us: i64,
    pub(crate) wall_offset_us: i64,
    /// The time that the wall clock shows while it stands still.
    pub(crate) frozen: Option<i64>,
}

impl Machine {
    /// Makes a machine whose clock is right, some minutes after its boot.
    pub(crate) fn booted_before(true_us: i64) -> Self {
        Machine { true_us, boot_at_us: true_us - 500 * SECOND, wall_offset_us: 0, frozen: None }
    }

    pub(crate) fn wall(&self) -> i64 {
        self.frozen.unwrap_or(self.true_us + self.wall_offset_us)
    }

    pub(crate) fn read(&self) -> Reading {
        Reading { wall: UnixMicros(self.wall()), boot: BootMicros(self.true_us - self.boot_at_us) }
    }

    /// Reads both clocks. In between, the thread may lose the processor for up to 1 ms.
    pub(crate) fn read_torn(&mut self, rng: &mut fastrand::Rng) -> Reading {
        let boot = self.read().boot;
        if rng.u8(..8) == 0 {
            self.true_us += rng.i64(0..MS);
        }
        Reading { boot, ..self.read() }
    }
}
