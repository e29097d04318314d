//! The reasons of refusals, in the same words for every protocol.

use std::fmt::Display;
use std::time::Duration;

use crate::access::TooFast;
use snowbank_core::source::wait_queue::Refusal;
use snowbank_wire::{Action, ErrorCode};

/// The reason why a request gets no IDs.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// The source refuses the request.
    Source(Refusal),
    /// The request is above the rate of the client's identity.
    TooFast(TooFast),
    /// The source has no grant yet. [`no_grant`] has the words.
    NoGrant,
    /// The client's identity may not draw from the source.
    Denied,
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        Reason::Source(refusal)
    }
}

/// A refusal in words.
#[derive(Clone, Debug)]
pub struct Words {
    /// The code, by which programs distinguish refusals.
    pub code: ErrorCode,
    /// What the client is to do.
    pub action: Action,
    /// The time after which the client may ask again. `None`: never, or at an unknown time.
    pub retry_after: Option<Duration>,
    /// The reason, for people.
    pub message: String,
}

impl Words {
    /// Returns the refusal as one line: `code`, the time after which to retry, if known, and the
    /// reason.
    pub(super) fn line(&self, code: &str) -> String {
        let retry = self
            .retry_after
            .map_or_else(String::new, |after| format!("retry_after_ms={} ", ceil_to_ms(after)));
        format!("{code} {retry}{}", self.message)
    }
}

/// A client that gets its IDs within this time asks again here. For a longer time, it asks another
/// daemon, which may be idle.
const STAY_FOR: Duration = Duration::from_millis(100);

/// Returns a time in whole milliseconds, rounded up, so that a client that waits that long does not
/// retry too early.
pub(super) fn ceil_to_ms(after: Duration) -> u128 {
    after.as_nanos().div_ceil(1_000_000)
}

/// The time after which a raised ceiling is likely: a raise takes some milliseconds on most disks.
/// If the disk hangs, requests usually wait for longer than this before they are refused.
const RAISE: Duration = Duration::from_millis(100);

/// The answer to a request for IDs while the daemon stops.
pub(super) const STOPPING: &str = "the daemon is stopping; ask another, or this one when it is back";

/// Puts a refusal into words, with the names of the client's identity and of the source.
/// `longer_wait` is the longest wait that the daemon allows, or `None` if the request's own wait
/// was that long. `is_for_one` is true if the request asks for one ID.
pub fn in_words(
    reason: Reason,
    identity: &str,
    source: &str,
    longer_wait: Option<Duration>,
    is_for_one: bool,
) -> Words {
    let longer_or_fewer = match longer_wait {
        Some(most) if is_for_one => format!("wait longer (up to {most:?})"),
        Some(most) => format!("wait longer (up to {most:?}) or ask for fewer"),
        None if is_for_one => String::from("ask another daemon"),
        None => String::from("ask for fewer"),
    };
    match reason {
        Reason::Source(Refusal::CounterEnded) if is_for_one => Words {
            code: ErrorCode::Exhausted,
            action: Action::Tell,
            retry_after: None,
            message: format!(
                "source {source} has no number left, because its counter ends at its maximum; raise `maximum`, if one is set, or \
                 move its table to a source with a layout"
            ),
        },
        Reason::Source(refusal) => source_refusal(refusal, source, &longer_or_fewer),
        Reason::TooFast(too_fast) => rate_refusal(too_fast, identity, &longer_or_fewer),
        Reason::NoGrant => no_grant(source, None),
        Reason::Denied => {
            let message =
                format!("identity {identity} may not draw from source {source}; ask for another source");
            Words { code: ErrorCode::UnknownSource, action: Action::Tell, retry_after: None, message }
        }
    }
}

/// Returns the words for a source without a grant. `waits_for` says why it has no worker ID of its
/// fleet, if that is the cause.
pub fn no_grant(source: &str, waits_for: Option<&str>) -> Words {
    let message = match waits_for {
        Some(reason) => {
            format!("source {source} waits: {reason}; the daemon's status has more")
        }
        None => format!(
            "source {source} has not begun yet: its start waits for the state's disk or for the coordinator; the daemon's \
             status has the cause"
        ),
    };
    let retry_after = Some(Duration::from_secs(1));
    Words { code: ErrorCode::NoCeiling, action: Action::Leave, retry_after, message }
}

/// Returns the words for a source that a reload has removed.
pub fn removed(source: &str) -> Words {
    let message = format!("a reload of the daemon has removed source {source}; ask for another source");
    Words { code: ErrorCode::UnknownSource, action: Action::Tell, retry_after: None, message }
}

/// Puts a source's refusal into words.
fn source_refusal(refusal: Refusal, source: &str, longer_or_fewer: &str) -> Words {
    let (code, retry_after, message) = match refusal {
        Refusal::Exhausted(Some(retry_after)) => (
            ErrorCode::Exhausted,
            Some(retry_after),
            format!(
                "source {source} cannot give that many within the wait; ask again later, or {longer_or_fewer}"
            ),
        ),
        Refusal::Exhausted(None) => (
            ErrorCode::Exhausted,
            None,
            format!("source {source} can never give that many within that wait; {longer_or_fewer}"),
        ),
        Refusal::ClockBehind(retry_after) => (
            ErrorCode::ClockBehind,
            Some(retry_after),
            format!(
                "the wall clock is too far behind the next ID of source {source}; set the machine's clock right, or give \
                 the source a worker ID that was never used"
            ),
        ),
        Refusal::YetToBegin(retry_after) => (
            ErrorCode::ClockBehind,
            Some(retry_after),
            format!(
                "source {source} keeps no state, so its first IDs are of the tick after its start; ask again then, or \
                 set state_dir"
            ),
        ),
        Refusal::NoCeiling => (
            ErrorCode::NoCeiling,
            Some(RAISE),
            format!(
                "the ceiling of source {source} was not raised within the wait; ask again, and if that does not help, the \
                 daemon's status has the cause"
            ),
        ),
        Refusal::Lost => (ErrorCode::NoCeiling, None, lost(source)),
        Refusal::Ended => (
            ErrorCode::NoCeiling,
            None,
            format!("the layout of source {source} has come to the end of its life; change it"),
        ),
        Refusal::CounterEnded => (
            ErrorCode::Exhausted,
            None,
            format!(
                "source {source} has fewer numbers left than the request wants, because its counter ends at its maximum; ask for fewer, \
                 if any are left, raise `maximum`, if one is set, or move its table to a source with a layout"
            ),
        ),
        Refusal::Sealed => (ErrorCode::ShuttingDown, None, String::from(STOPPING)),
    };
    let action = match (code, retry_after) {
        (ErrorCode::Exhausted, None) => Action::Tell,
        (ErrorCode::Exhausted, Some(after)) if after <= STAY_FOR => Action::Stay,
        _ => Action::Leave,
    };
    Words { code, action, retry_after, message }
}

fn lost(source: &str) -> String {
    format!(
        "source {source} hands out nothing more: another process, or another copy of its machine, may hand out the \
         same IDs; see the daemon's status"
    )
}

/// Describes a source whose counter can only be incremented by 1.
pub(super) fn only_by_one(source: &str) -> String {
    format!("of source {source} can only add 1, because its IDs are not consecutive")
}

/// Describes an increment that is out of range.
pub(super) fn increment_out_of_range(by: impl Display, most: u32) -> String {
    format!("found count {by}, allowed 0 to {most}")
}

/// Puts the refusal by an identity's rate into words.
fn rate_refusal(too_fast: TooFast, identity: &str, longer_or_fewer: &str) -> Words {
    let TooFast { per_second, retry_after } = too_fast;
    let rate = format!("the {per_second} IDs per second of identity {identity}");
    let message = match retry_after {
        Some(_) => format!("{rate} are used up; ask again later, or {longer_or_fewer}"),
        None => format!("{rate} never yield that many within that wait; {longer_or_fewer}"),
    };
    // Another daemon would give the client no more, because the rate is the client's own.
    let action = if retry_after.is_some() { Action::Stay } else { Action::Tell };
    Words { code: ErrorCode::Exhausted, action, retry_after, message }
}
