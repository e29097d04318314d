//! How long a daemon takes to notice that the coordinator went back, and how long a daemon pauses
//! when it takes a number. One inequality keeps IDs unique after a restore:
//!
//! ```text
//! notice of the holder ≤ period + MESSAGES × answer ≤ noticed_within(answer) = pause of the taker
//! ```
//!
//! - *Notice*: the time from a restore until a holder raises the fleet's floor. The restore has
//!   lost a write of this holder, and the holder gets answers. A poll begins [`POLL_PERIOD`] after
//!   the beginning of the last one, or as soon as the call that is in flight then has ended. The
//!   holder checks before each call whether a poll is due (`Member::poll_if_due`). Nothing else
//!   delays a poll, least of all the state's disk. A poll is one message, because it reads the marker
//!   and all keys of the daemon ([`NUMBERS_MAX`](super::NUMBERS_MAX)). Then the holder raises the
//!   floor.
//! - *Message*: a request and its answer, on one connection. [`MESSAGES`] counts them.
//! - *Pause*: the time from the answer to the taker's write until the taker compares the marker and
//!   its keys. The inequality assumes that the taker's write was done after the restore. A write
//!   before the restore is lost, and the comparison shows the loss.
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
//! anything (`Member::check_taken`). The first check (`Member::check`) follows at once. A daemon
//! that went on without asking polls before each call until a poll has an answer.

use std::time::Duration;

use super::line::ANSWER_MIN;

/// The time from the beginning of a poll to the next poll. Each start with a new number pauses for
/// at least this long. Polls once a second would cost etcd five times as much.
pub const POLL_PERIOD: Duration = Duration::from_secs(5);

/// A holder whose answers take no longer than this notices a restore in time, however fast the
/// taker's answers are. A healthy coordinator answers in a hundredth of this time.
const ANSWER_OF_ALL: Duration = Duration::from_millis(200);

/// The messages of a new connection: TCP, TLS, the cluster's ID, a login, and the marker. A restore
/// ends all connections.
pub const CONNECTING: u32 = 5;

/// The messages of a swap: at ZooKeeper a read and a write, at etcd one.
pub const SWAP: u32 = 2;

/// The messages that a holder waits for, from the time when a poll is due until it has raised the
/// floor. These are a swap that is in flight, a new connection, the poll, and the swap that raises
/// the floor.
pub const MESSAGES: u32 = SWAP + CONNECTING + 1 + SWAP;

// If answers are fast, the time of `MESSAGES` answers has room for a connection that hangs. The
// holder abandons that connection after `ANSWER_MIN`, and has as much time again for the answers on
// a new connection.
const _: () = assert!(MESSAGES as u128 * ANSWER_OF_ALL.as_millis() >= 2 * ANSWER_MIN.as_millis());

/// The shortest horizon that a fleet may have. If answers are fast, the pause of a start takes at
/// most half of the horizon. The rest is left to raise the ceiling.
pub const HORIZON_MIN: Duration = noticed_within(Duration::ZERO).saturating_mul(2);

/// Returns the time within which a holder notices a restore and raises the floor. Each answer takes
/// at most `answer` or `ANSWER_OF_ALL`, whichever is longer.
pub const fn noticed_within(answer: Duration) -> Duration {
    let answer = if answer.as_nanos() > ANSWER_OF_ALL.as_nanos() { answer } else { ANSWER_OF_ALL };
    POLL_PERIOD.saturating_add(answer.saturating_mul(MESSAGES))
}
