//! The results of the keeper's two steps: a look, and the outcome of a write.

use std::time::Duration;

use super::managed_source::Reach;
use super::ranges::WantedRange;
use super::writer::Write;
use crate::clock::{BootMicros, Observed};
use crate::grant::TakenOver;
use snowbank_id::layout::Position;

/// The result of a look.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// The state of the wall clock.
    pub clock: Observed,
    /// Why the last try to raise the ceilings in the state directory failed. Also `None` if no
    /// client asks: an old failure must not keep the next request from a new try.
    pub failure: Option<String>,
    /// Why the last try to raise the fleet's ceilings failed.
    pub fleet_failure: Option<String>,
    /// By source, the fleet's ceilings that are durable. Empty without a fleet.
    pub fleet_ceilings: Vec<Position>,
    /// Why nothing is handed out any more.
    pub taken_over: Option<TakenOver>,
    /// True if grants that were taken away are back.
    pub is_renewed: bool,
    /// True if some requests wait. It may be possible to serve them now.
    pub some_wait: bool,
    /// True if a source was used so recently that its ceiling is still raised.
    pub is_in_use: bool,
    /// The writes to hand out now.
    pub writes: Vec<Write>,
    /// By source, how long the numbers of a shared counter last without the coordinator.
    pub ranges_last: Vec<Option<Duration>>,
    /// The ranges to ask the coordinator for now.
    pub ranges: Vec<WantedRange>,
    /// When the oldest write in flight began, apart from the coordinator's.
    pub in_flight_since: Option<BootMicros>,
    /// The shortest time for which a source's IDs below its ceiling last.
    pub horizon: Duration,
    /// The time until the next look, unless a claim meets its ceiling or a write ends before.
    pub next_in: Duration,
}

/// The result of a write that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The reach of its writer.
    pub reach: Reach,
    /// When it was handed to the writer.
    pub began: BootMicros,
    /// True if its ceilings are durable.
    pub is_durable: bool,
}
