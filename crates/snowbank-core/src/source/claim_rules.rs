//! The rules by which a source follows the clock.

use std::time::Duration;

/// The ID clock's reaction when the wall clock falls behind IDs already handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStepBack {
    /// Catch up: the ID clock runs at half speed until the wall clock has caught up.
    #[default]
    Ride,
    /// The ID clock stands still, and requests are refused until the wall clock has caught up.
    /// Twitter's Snowflake also refuses.
    Wait,
}

impl OnStepBack {
    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            OnStepBack::Ride => "ride",
            OnStepBack::Wait => "wait",
        }
    }
}

/// The sequence index at which a new tick starts after the source was idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceStart {
    /// A random index low in the tick, so that `id mod n` is uniform at low load.
    #[default]
    Spread,
    /// 0, as in Twitter's Snowflake.
    Zero,
}

impl SequenceStart {
    /// Returns the name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            SequenceStart::Spread => "spread",
            SequenceStart::Zero => "zero",
        }
    }
}

impl Rules {
    /// The rules of a ticket counter, which follows no clock.
    pub const TICKETS: Rules = Rules {
        burst_window: Duration::ZERO,
        max_ahead: Duration::ZERO,
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Zero,
    };
}

/// The rules by which a source follows the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The most that a claim may lag behind the ID clock. This lag is the reserve from which bursts
    /// are answered at once.
    pub burst_window: Duration,
    /// The most that the ID clock may run ahead of the wall clock.
    pub max_ahead: Duration,
    /// The reaction when the wall clock falls behind IDs already handed out.
    pub on_step_back: OnStepBack,
    /// The sequence index at which a new tick starts after the source was idle.
    pub sequence_start: SequenceStart,
}
