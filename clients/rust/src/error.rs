//! The errors of calls. An error says what was found and what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use snowbank_wire::address::AddressError;
use snowbank_wire::reply::{ErrorReply, MAX_MESSAGE_SIZE};
use snowbank_wire::{Action, ErrorCode, one_line};

/// The reason why a call failed. `Debug` prints the same line as `Display`, because Rust uses
/// `Debug` to print an error that `main` returns.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(Arc<Refusal>),
    /// The call's deadline passed.
    #[error("no IDs within {allowed:?}: {}", endpoints.join("; "))]
    Timeout {
        /// The time that the call had.
        allowed: Duration,
        /// Each endpoint with its last reason.
        endpoints: Arc<[String]>,
    },
    /// No endpoint serves, and [`ClientOptions::fail_fast`](crate::ClientOptions::fail_fast) is set.
    #[error("{}", endpoints.join("; "))]
    Unreachable {
        /// Each endpoint with its last reason.
        endpoints: Arc<[String]>,
    },
    /// Two endpoints are daemons that hand out the same IDs. Calls fail until one of them stops, or
    /// gets another worker ID.
    #[error(transparent)]
    Collision(Arc<Collision>),
    /// An option or argument has a value that is not allowed, or the client cannot be set up.
    #[error("{0}")]
    BadOption(Arc<str>),
    /// The client was created before a fork, and this process is the child.
    #[error("this client belongs to the parent process: create a new client after fork")]
    Forked,
    /// [`Client::new`](crate::Client::new) was called outside a tokio runtime.
    #[error(
        "no tokio runtime is running here, and a client needs one: call Client::new in async code, or after \
         Runtime::enter"
    )]
    NoRuntime,
    /// The client is closed, or its tokio runtime has shut down.
    #[error("this client is closed")]
    Closed,
}

/// A daemon's ERROR reply.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} refused: {}{}{}", self.name(), separated(message), retry_hint(*retry_after))]
pub struct Refusal {
    /// The daemon that refused.
    pub endpoint: Arc<str>,
    /// The code's number. A later version of the protocol may have further codes. [`Error::code`]
    /// returns the codes of version 1.
    pub code: u16,
    /// What the client did: told the caller, asked again, or asked elsewhere.
    pub action: Action,
    /// The time before which the same call cannot succeed there. Zero if the daemon names none.
    pub retry_after: Duration,
    /// A line for a person, without control characters.
    pub message: String,
}

/// Two daemons with one claim: they hand out the same IDs.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} and {} are two daemons with the same worker ID: both hand out the same IDs; stop one of them, and start it \
     with worker IDs that no other daemon has{}",
    endpoints[0], endpoints[1], said(self)
)]
pub struct Collision {
    /// The two endpoints.
    pub endpoints: [Arc<str>; 2],
    /// The claim that both daemons made.
    pub claim: u64,
    /// What INFO says of each, once they were asked.
    pub infos: [String; 2],
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<AddressError> for Error {
    fn from(bad: AddressError) -> Self {
        Self::bad_option(bad)
    }
}

impl Error {
    pub(crate) fn bad_option(reason: impl fmt::Display) -> Self {
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
            Self::Refused(refusal) if !refusal.retry_after.is_zero() => Some(refusal.retry_after),
            _ => None,
        }
    }
}

impl Refusal {
    pub(crate) fn new(endpoint: &Arc<str>, error: &ErrorReply<'_>) -> Self {
        let shown = &error.message[..error.message.len().min(MAX_MESSAGE_SIZE)];
        let message = one_line(&String::from_utf8_lossy(shown));
        let &ErrorReply { code, action, retry_after, .. } = error;
        Self { endpoint: endpoint.clone(), code, action, retry_after, message }
    }

    fn name(&self) -> String {
        ErrorCode::from_u16(self.code)
            .map_or_else(|| format!("code {}", self.code), |code| code.name().to_owned())
    }
}

fn said(collision: &Collision) -> String {
    let both = collision.endpoints.iter().zip(&collision.infos);
    both.filter(|(_, info)| !info.is_empty())
        .map(|(endpoint, info)| format!("; {endpoint} says {info}"))
        .collect()
}

fn separated(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// Returns a hint on when to try again. The time is rounded up, so that a caller that waits this
/// long is not early.
fn retry_hint(retry_after: Duration) -> String {
    match retry_after.as_millis().div_ceil(1_000) {
        0 => String::new(),
        1..=10 => format!(" (try again in {retry_after:?})"),
        seconds @ 11..120 => format!(" (try again in {seconds} s)"),
        seconds => format!(" (try again in {} min)", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn refusals_read_as_one_line() {
        let text = |code, message, retry_after| {
            Refusal::new(
                &"ids-1:7660".into(),
                &ErrorReply { code, action: Action::Tell, retry_after, message },
            )
            .to_string()
        };
        let wait = Duration::from_millis(1_200);
        assert_eq!(
            text(6, b"40000 IDs\nare\x1b[31m too many \xff", wait),
            "ids-1:7660 refused: exhausted: 40000 IDs are [31m too many \u{fffd} (try again in 1.2s)"
        );
        assert_eq!(text(99, b"", Duration::ZERO), "ids-1:7660 refused: code 99");
        assert_eq!(retry_hint(Duration::from_millis(7_185_758)), " (try again in 120 min)");
    }
}
