//! How long a daemon takes to notice that its coordinator was restored to an older state, and how
//! long a daemon pauses when it takes a number. One inequality keeps IDs unique after a restore:
//!
//! ```text
//! notice of the holder ≤ period + 5 × answer ≤ noticed_within(period, answer) = pause of the taker
//! ```
//!
//! - *Notice*: from the restore until the fleet's floor is raised, by a holder that lost a write
//!   and whose polls are answered.
//!   - One answer: its last poll may have read its keys just before the restore, and then waited
//!     for the answer.
//!   - `period`: the next poll is due this long after that answer.
//!   - Two answers: whatever the holder does at the coordinator meanwhile, it asks before each step
//!     whether a poll is due (`Member::poll_if_due`). A step has at most two answers. Raises of
//!     many sources, ranges that others take first, pauses, and counts of the pool all consist of
//!     such steps.
//!   - One answer: the next poll reads the keys. One more: it raises the floor.
//! - *Pause*: from the answer to the taker's write until the taker compares the marker and its
//!   keys. The write was done after the restore: otherwise the taker has lost the write itself, and
//!   the comparison shows it.
//! - *Period*: the one in the marker, for holder and taker. It never changes in a marker that keeps
//!   its identity. So a restored marker has the same period, and once a marker is made anew, the
//!   daemons of the earlier one end. The period follows the horizon with which the fleet was
//!   prepared, and not the longest horizon, which a restored marker may have forgotten. A restore
//!   may also bring back a marker that another had replaced. The other marker's daemons may poll
//!   less often. So a taker uses the period of its own horizon if that is longer.
//! - *Answer*: the longer of [`ANSWER_OF_ALL`] and the taker's slowest answer in the pause, from
//!   its first try on. The taker asks all the time, so whatever makes answers slow meanwhile makes
//!   the pause longer. A holder whose answers take longer than both counts as cut off. Such a
//!   holder is not stopped: otherwise a slow coordinator would stop the fleet, although an absent
//!   one does not.
//! - All times are by the boot clock, which counts sleep: a daemon whose machine has slept polls
//!   before anything else.
//!
//! From its write on, a taker is also a holder. The write counts as a poll, so the next poll is due
//! during the pause. A start compares its keys after the pause, and once more right before it hands
//! out anything (`Member::check_taken`). The keeper's first look follows at once.
//!
//! A poll takes one answer for each [`SWAPS_MAX`](super::SWAPS_MAX) keys. The first poll of a
//! daemon that went on without asking also reads the marker. Until that poll is answered, another
//! poll is due before each step.

use std::time::Duration;

use super::line::ANSWER_MIN;

/// The shortest period. A daemon that does not know the marker yet polls at this period.
pub const POLL_PERIOD_MIN: Duration = Duration::from_secs(1);

/// The longest period. Each start with a new number pauses that long. Polls at this period cost
/// etcd a fifth of polls each second.
pub const POLL_PERIOD_MAX: Duration = Duration::from_secs(5);

/// How many periods a horizon has: at 5 minutes, a period is 5 s.
const PERIODS: u32 = 60;

/// Every holder whose answers take no longer than this notices a restore in time, however fast the
/// taker's answers are. A healthy coordinator takes a hundredth of it.
const ANSWER_OF_ALL: Duration = Duration::from_millis(200);

/// The answers of a notice: those of the last poll, of a step that is in flight, of the next poll,
/// and of the floor.
const ANSWERS: u32 = 1 + 2 + 1 + 1;

// If answers are fast, the time of five answers has room for a connection that hangs: it is
// abandoned after `ANSWER_MIN`, and the answers on a new connection have as long.
const _: () = assert!(ANSWERS as u128 * ANSWER_OF_ALL.as_millis() >= 2 * ANSWER_MIN.as_millis());

/// The shortest horizon of all fleets.
pub const HORIZON_MIN: Duration = shortest_horizon(POLL_PERIOD_MIN);

// Daemons are always allowed the horizon with which their fleet was prepared.
const _: () =
    assert!(shortest_horizon(POLL_PERIOD_MAX).as_secs() <= POLL_PERIOD_MAX.as_secs() * PERIODS as u64);

/// Returns the time from the end of a poll to the next poll, in a fleet that is prepared with this
/// horizon. A step at the coordinator that is in flight may delay the poll.
pub fn poll_period(horizon: Duration) -> Duration {
    (horizon / PERIODS).clamp(POLL_PERIOD_MIN, POLL_PERIOD_MAX)
}

/// Returns the time within which a holder notices a restore and raises the floor, if its answers
/// take no longer than `answer`, or than 0.2 s.
pub const fn noticed_within(period: Duration, answer: Duration) -> Duration {
    let answer = if answer.as_nanos() > ANSWER_OF_ALL.as_nanos() { answer } else { ANSWER_OF_ALL };
    period.saturating_add(answer.saturating_mul(ANSWERS))
}

/// Returns the shortest horizon of a fleet with this period. The pause of a start takes at most
/// half of it, so that the rest is left to raise the ceiling.
pub(super) const fn shortest_horizon(period: Duration) -> Duration {
    noticed_within(period, Duration::ZERO).saturating_mul(2)
}
