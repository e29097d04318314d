//! How long a daemon takes to notice that the coordinator went back, and how long a daemon pauses
//! when it takes a number. One inequality keeps IDs unique after a restore:
//!
//! ```text
//! notice of the holder ≤ period + 5 × answer ≤ noticed_within(period, answer) = pause of the taker
//! ```
//!
//! - *Notice*: the time from a restore until a holder raises the fleet's floor. The restore has
//!   lost a write of this holder, and the holder gets answers to its polls. The time has these
//!   parts:
//!   - One answer: the holder's last poll may have read its keys just before the restore, and then
//!     waited for the answer.
//!   - One `period`: the next poll is due this long after that answer.
//!   - Two answers: a step may be in flight when the poll becomes due, and a step waits for at most
//!     two answers. All long jobs consist of steps: raises of many sources, tries to take a range
//!     of a counter while other daemons are faster, pauses, and counts of the pool. Before each
//!     step the holder checks whether a poll is due (`Member::poll_if_due`).
//!   - One answer: the next poll reads the keys. One answer: the holder raises the floor.
//! - *Pause*: the time from the answer to the taker's write until the taker compares the marker and
//!   its keys. The inequality assumes that the taker's write was done after the restore. A write
//!   before the restore is lost, and the comparison shows the loss.
//! - *Period*: the poll period in the marker, which the holder and the taker both use. It never
//!   changes in a marker that keeps its identity, so a restored marker has the same period. If a
//!   new marker replaces that marker, the daemons of the earlier marker end. The period follows the
//!   horizon with which the fleet was prepared, and not the longest horizon, which a restored
//!   marker may have lost. A restore may also replace the marker by an earlier marker with another
//!   identity. The daemons of the lost marker may poll less often. So a taker uses the period of
//!   its own horizon if that period is longer.
//! - *Answer*: the longer of [`ANSWER_OF_ALL`] and the taker's slowest answer in the pause. The
//!   time of retries is part of an answer's time. The taker asks all the time, so slow answers make
//!   the pause longer. A holder whose answers take longer than both of these times counts as cut
//!   off. Such a holder is not stopped. Otherwise a slow coordinator would stop the fleet, although
//!   an absent coordinator does not.
//! - All times are by the boot clock, which includes sleep. So a daemon whose machine has slept
//!   polls before anything else.
//!
//! After its write, a taker is also a holder. The write counts as a poll, so the next poll is due
//! during the pause. A start compares its keys after the pause, and again right before it hands out
//! anything (`Member::check_taken`). The first check (`Member::check`) follows at once.
//!
//! A poll takes one answer for each [`SWAPS_MAX`](super::SWAPS_MAX) keys. Each poll reads the
//! marker together with the keys. If a daemon went on without asking, its first poll also reads the
//! marker alone before the keys, which takes one more answer. Until that poll has an answer, a poll
//! is due before each step.

use std::time::Duration;

use super::line::ANSWER_MIN;

/// The shortest period. A daemon with worker IDs polls at this period until it reads the marker.
pub const POLL_PERIOD_MIN: Duration = Duration::from_secs(1);

/// The longest period. Each start with a new number pauses for at least a period. Polls at this
/// period cost etcd a fifth of what polls at the shortest period cost.
pub const POLL_PERIOD_MAX: Duration = Duration::from_secs(5);

/// How many periods a horizon has: with a horizon of 5 minutes, the period is 5 s.
const PERIODS: u32 = 60;

/// A holder whose answers take no longer than this notices a restore in time, however fast the
/// taker's answers are. A healthy coordinator answers in a hundredth of this time.
const ANSWER_OF_ALL: Duration = Duration::from_millis(200);

/// The answers that a holder waits for until it has raised the floor: one to its last poll, two to
/// a step in flight, one to the next poll, and one to the write of the floor.
const ANSWERS: u32 = 1 + 2 + 1 + 1;

// If answers are fast, the time of `ANSWERS` answers has room for a connection that hangs: the
// holder abandons that connection after `ANSWER_MIN`, and has as much time again for the answers on
// a new connection.
const _: () = assert!(ANSWERS as u128 * ANSWER_OF_ALL.as_millis() >= 2 * ANSWER_MIN.as_millis());

/// The shortest horizon that a fleet may have.
pub const HORIZON_MIN: Duration = shortest_horizon(POLL_PERIOD_MIN);

// A fleet always allows the horizon with which it was prepared.
const _: () =
    assert!(shortest_horizon(POLL_PERIOD_MAX).as_secs() <= POLL_PERIOD_MAX.as_secs() * PERIODS as u64);

/// Returns the time from the end of a poll to the next poll, in a fleet that was prepared with this
/// horizon. A step in flight may delay the poll.
pub fn poll_period(horizon: Duration) -> Duration {
    (horizon / PERIODS).clamp(POLL_PERIOD_MIN, POLL_PERIOD_MAX)
}

/// Returns the time within which a holder notices a restore and raises the floor, if each answer
/// takes at most `answer` or `ANSWER_OF_ALL`, whichever is longer.
pub const fn noticed_within(period: Duration, answer: Duration) -> Duration {
    let answer = if answer.as_nanos() > ANSWER_OF_ALL.as_nanos() { answer } else { ANSWER_OF_ALL };
    period.saturating_add(answer.saturating_mul(ANSWERS))
}

/// Returns the shortest horizon of a fleet with this period. If answers are fast, the pause of a
/// start takes at most half of the horizon. The rest is left to raise the ceiling.
pub(super) const fn shortest_horizon(period: Duration) -> Duration {
    noticed_within(period, Duration::ZERO).saturating_mul(2)
}
