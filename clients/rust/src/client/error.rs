//! The errors of calls. An error says who is at fault, and whether another attempt may help.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::BadEndpoint;
use snowbank_wire::reply::ErrorReply;
use snowbank_wire::{Action, ErrorCode, one_line, reply};

/// The reason why a call failed. `Debug` prints the same line as `Display`, because Rust uses
/// `Debug` to print an error that `main` returns.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(Arc<Refusal>),
    /// The call's deadline passed.
    #[error("no answer{} within {allowed:?}{}", from_endpoint(endpoint), last_error(last))]
    Deadline {
        /// The time that the call had.
        allowed: Duration,
        /// The daemon that the client was connected to. `None` if there was no connection.
        endpoint: Option<Arc<str>>,
        /// The error of the last attempt, if an attempt has failed. If there was no connection, the
        /// errors of all endpoints.
        last: Option<Arc<Error>>,
    },
    /// No endpoint serves. There are at least two errors, in the order of the endpoints.
    #[error("{}", joined(.0))]
    EveryEndpoint(Arc<[Error]>),
    /// The client cannot resolve the endpoint, cannot connect to it, or gets no greeting from it in
    /// time.
    #[error("cannot reach {endpoint}: {reason}")]
    Unreachable {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The reason of the operating system or TLS, or what the client waited for in vain.
        reason: Arc<str>,
    },
    /// The connection ended before the reply was complete. The IDs of that reply are skipped.
    #[error("lost the connection to {endpoint}: {reason}")]
    Lost {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The reason why the connection ended.
        reason: Arc<str>,
    },
    /// The other side does not speak this protocol: it is no Snowbank daemon, or has a defect.
    #[error("{endpoint} does not speak Snowbank's protocol: {reason}")]
    Protocol {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The protocol that the other side speaks, or the rule of this protocol that it broke.
        reason: Arc<str>,
    },
    /// The IDs of an endpoint went back, and stayed below those that an [`Ids`](super::Ids) had
    /// fetched. The next call of that `Ids` continues from the lower IDs.
    #[error(
        "the IDs of {endpoint} went back: {found} came after {highest}, from another daemon or layout at the same \
         address; the next call goes on from there"
    )]
    WentBack {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The highest ID of the earlier replies.
        highest: u64,
        /// The highest ID of the last reply.
        found: u64,
    },
    /// Two endpoints are daemons that hand out the same IDs. Calls fail until one of them stops, or
    /// their worker IDs differ.
    #[error(
        "{one} and {other} are two daemons with worker ID {worker_id} of the layout {layout}: both hand out the same \
         IDs; stop one of them, and start it with worker IDs that no other daemon has"
    )]
    SameWorkerIds {
        /// The first endpoint.
        one: Arc<str>,
        /// The other endpoint.
        other: Arc<str>,
        /// The shared worker ID, in the first daemon's layout.
        worker_id: u64,
        /// The first daemon's layout.
        layout: Arc<str>,
    },
    /// The ID is above [`i64::MAX`].
    #[error("the ID {id} does not fit a signed integer: use a layout of 63 bits, or keep IDs as u64 or text")]
    AboveSigned {
        /// The ID.
        id: u64,
    },
    /// An option has a value that is not allowed, or the client cannot be set up.
    #[error("{0}")]
    BadOption(Arc<str>),
    /// The client was created before a fork, and this process is the child.
    #[error("this client belongs to the parent process: create a new client after fork")]
    Forked,
    /// [`Client::new`](super::Client::new) was called outside a tokio runtime.
    #[error(
        "no tokio runtime is running here, and a client needs one: call Client::new in async code, or after \
         Runtime::enter"
    )]
    NoRuntime,
    /// The client's tokio runtime has shut down, or was built without time and I/O.
    #[error("the runtime that this client was made on has shut down, or was built without time and I/O")]
    Closed,
}

/// A daemon's ERROR reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} refused: {}{}{}", code_name(*code), separated(message), retry_hint(*retry_after))]
pub struct Refusal {
    /// The daemon that refused.
    pub endpoint: Arc<str>,
    /// The code's number. A later version of the protocol may have further codes. [`Error::code`]
    /// returns the codes of version 1.
    pub code: u16,
    /// The time after which the same call may succeed, if the daemon named one. If the code is
    /// `exhausted`, `None` means that the same call cannot succeed: ask for fewer IDs, or allow a
    /// longer wait.
    pub retry_after: Option<Duration>,
    /// A line for a person, without control characters.
    pub message: String,
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<BadEndpoint> for Error {
    fn from(bad: BadEndpoint) -> Self {
        Self::bad_option(bad)
    }
}

/// Returns the ID as a signed integer.
pub(super) fn signed(id: u64) -> Result<i64, Error> {
    i64::try_from(id).map_err(|_| Error::AboveSigned { id })
}

impl Refusal {
    pub(super) fn new(endpoint: &Arc<str>, error: &ErrorReply<'_>) -> Self {
        let shown = &error.message[..error.message.len().min(reply::MAX_MESSAGE_SIZE)];
        let message = one_line(&String::from_utf8_lossy(shown));
        let may_succeed = error.action != Action::Tell && !error.retry_after.is_zero();
        let retry_after = may_succeed.then_some(error.retry_after);
        Self { endpoint: endpoint.clone(), code: error.code, retry_after, message }
    }
}

impl Error {
    pub(super) fn bad_option(reason: impl fmt::Display) -> Self {
        Self::BadOption(reason.to_string().into())
    }

    /// Returns the code of a refusal, if version 1 of the protocol defines it.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => ErrorCode::from_u16(refusal.code),
            _ => None,
        }
    }

    /// Returns the time after which the same call may succeed, if a daemon named one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            Self::Deadline { last: Some(last), .. } => last.retry_after(),
            Self::EveryEndpoint(errors) => errors.iter().filter_map(Self::retry_after).min(),
            _ => None,
        }
    }

    /// Returns whether the client retries a call after this error. The retry happens within the
    /// call's deadline, and on another endpoint if there is one.
    ///
    /// The client retries if it cannot connect or loses the connection, and if the daemon is
    /// draining, too busy, or has no usable clock or ceiling. It does not retry after other
    /// refusals, because every daemon would refuse in the same way. The result is false for
    /// `exhausted` too. But if that refusal's time to wait exceeds the deadline, the client asks
    /// every other endpoint once.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Unreachable { .. } => true,
            Self::Refused(_) => self.code().is_some_and(moves_on),
            _ => false,
        }
    }

    /// Returns whether an error while connecting would repeat for every waiting call, on any
    /// endpoint.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Refused(_) => !self.is_retried(),
            Self::BadOption(_) => true,
            _ => false,
        }
    }

    /// Joins the errors of all endpoints. There is at least one error.
    pub(super) fn join(errors: Vec<Error>) -> Error {
        match &errors[..] {
            [only] => only.clone(),
            _ => Self::EveryEndpoint(errors.into()),
        }
    }
}

/// Returns whether a refusal is about the state of one daemon, so that another daemon may serve the
/// request.
pub(super) fn moves_on(code: ErrorCode) -> bool {
    match code {
        ErrorCode::ClockBehind | ErrorCode::NoCeiling | ErrorCode::ShuttingDown | ErrorCode::TooBusy => true,
        ErrorCode::Malformed
        | ErrorCode::Unsupported
        | ErrorCode::BadCount
        | ErrorCode::UnknownSource
        | ErrorCode::Unauthorized
        | ErrorCode::Exhausted => false,
    }
}

/// Returns whether the daemon closes the connection after this code.
pub(super) fn closes(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::ShuttingDown | ErrorCode::TooBusy)
}

fn from_endpoint(endpoint: &Option<Arc<str>>) -> String {
    endpoint.as_ref().map_or_else(String::new, |endpoint| format!(" from {endpoint}"))
}

/// The hint for a server that stays silent, such as a Redis server at a wrong port.
pub(super) const IS_IT_OURS: &str = ": does another program listen there, such as a Redis?";

fn joined(errors: &[Error]) -> String {
    errors.iter().map(Error::to_string).collect::<Vec<_>>().join("; ")
}

fn last_error(last: &Option<Arc<Error>>) -> String {
    last.as_ref().map_or_else(String::new, |last| format!("; last: {last}"))
}

fn code_name(code: u16) -> String {
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}

fn separated(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// Returns a hint on when to try again. The time is rounded up, so that a caller that waits this
/// long is not early.
fn retry_hint(retry_after: Option<Duration>) -> String {
    let Some(wait) = retry_after else { return String::new() };
    match wait.as_millis().div_ceil(1_000) {
        0..=10 => format!(" (try again in {wait:?})"),
        seconds @ 11..120 => format!(" (try again in {seconds} s)"),
        seconds => format!(" (try again in {} min)", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &[u8]) -> Error {
        let retry_after = Duration::from_millis(1200);
        let error = ErrorReply { code, action: Action::Leave, retry_after, message };
        Error::Refused(Arc::new(Refusal::new(&"ids-1:7660".into(), &error)))
    }

    #[test]
    fn refusals_read_as_one_line() {
        let text = refusal(6, b"40000 IDs\nare\x1b[31m too many \xff").to_string();
        assert_eq!(
            text,
            "ids-1:7660 refused: exhausted: 40000 IDs are [31m too many \u{fffd} (try again in 1.2s)"
        );
        assert_eq!(refusal(99, b"").to_string(), "ids-1:7660 refused: code 99 (try again in 1.2s)");
        assert_eq!(retry_hint(Some(Duration::from_millis(7_185_758))), " (try again in 120 min)");
    }

    #[test]
    fn refusals_about_the_daemon_are_retried() {
        let retried: Vec<u16> = (0..20).filter(|code| refusal(*code, b"").is_retried()).collect();
        assert_eq!(retried, [7, 8, 9, 10]);
        assert!(!Error::Forked.is_retried());
        assert!(Error::Lost { endpoint: "a".into(), reason: "b".into() }.is_retried());
    }

    #[test]
    fn the_error_of_a_deadline_shows_the_last_failure() {
        let allowed = Duration::from_secs(5);
        let last = Some(Arc::new(refusal(10, b"full")));
        let error = Error::Deadline { allowed, endpoint: None, last };
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1200)));
        assert!(error.to_string().starts_with("no answer within 5s; last: ids-1:7660 refused: too_busy"));
        let error = Error::Deadline { allowed, endpoint: Some("ids-1:7660".into()), last: None };
        assert_eq!(error.to_string(), "no answer from ids-1:7660 within 5s");
    }
}
