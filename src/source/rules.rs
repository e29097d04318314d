//! How a source follows the clock.

use std::time::Duration;

/// What the ID clock does when the wall clock falls behind IDs already handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStepBack {
    /// Goes on at half speed until the wall clock has caught up.
    #[default]
    Ride,
    /// Stands still, and requests are refused until then, as Twitter's does.
    Wait,
}

impl OnStepBack {
    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            OnStepBack::Ride => "ride",
            OnStepBack::Wait => "wait",
        }
    }
}

/// Where in a new tick the sequence starts after the source was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceStart {
    /// At a random index low in the tick, so that `id mod n` is uniform at low load.
    #[default]
    Spread,
    /// At 0, as Twitter's does.
    Zero,
}

impl SequenceStart {
    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            SequenceStart::Spread => "spread",
            SequenceStart::Zero => "zero",
        }
    }
}

/// How a source follows the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How far the cursor may lag behind the ID clock: the reserve from which bursts are answered at once.
    pub burst_window: Duration,
    /// How far the ID clock may run ahead of the wall clock.
    pub max_ahead: Duration,
    /// What happens when the wall clock falls behind.
    pub on_step_back: OnStepBack,
    /// Where sequences start after idling.
    pub sequence_start: SequenceStart,
}
