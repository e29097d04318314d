//! Why a call failed, who is at fault, and whether another try may help.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::reply::ErrorReply;
use crate::protocol::{ErrorCode, reply};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon said no.
    #[error(transparent)]
    Refused(Arc<Refusal>),
    /// The call's deadline passed.
    #[error("no answer within {allowed:?}{}", because(last))]
    Deadline {
        /// The time that the call was given.
        allowed: Duration,
        /// What went wrong last while it was tried.
        last: Option<Arc<Error>>,
    },
    /// The endpoint cannot be resolved or connected to.
    #[error("cannot reach {endpoint}: {reason}")]
    Unreachable {
        /// The endpoint.
        endpoint: Arc<str>,
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// The connection ended before the reply was there. The IDs of such a reply, if any were claimed, are skipped.
    #[error("lost the connection to {endpoint}: {reason}")]
    Lost {
        /// The endpoint.
        endpoint: Arc<str>,
        /// How it ended.
        reason: Arc<str>,
    },
    /// The other side answered with something that the protocol does not allow: not a Snowbank daemon, or a defect.
    #[error("{endpoint} does not keep to the protocol: {reason}")]
    Protocol {
        /// The endpoint.
        endpoint: Arc<str>,
        /// What it did.
        reason: Arc<str>,
    },
    /// The daemon has no source of that name.
    #[error("{endpoint} has no source named {name:?}; it has {known}")]
    NoSuchSource {
        /// The endpoint.
        endpoint: Arc<str>,
        /// The name asked for.
        name: Arc<str>,
        /// The names that it has.
        known: Arc<str>,
    },
    /// An option has a value that is not allowed.
    #[error("{0}")]
    BadOption(Arc<str>),
    /// The client was made before a fork, and this is the child.
    #[error("this client belongs to the parent process: create a new client after fork")]
    Forked,
    /// The tokio runtime that the client was made on has shut down.
    #[error("the runtime that this client was made on has shut down")]
    Closed,
}

/// An ERROR reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} refused: {}{}{}", name(*code), separated(message), again(*retry_after))]
pub struct Refusal {
    /// The daemon that refused.
    pub endpoint: Arc<str>,
    /// The code's number, which a later daemon may have of its own; [`Error::code`] gives the known ones.
    pub code: u16,
    /// When the same call may succeed, where the daemon says so. For `exhausted`, `None` means never at this size:
    /// ask for fewer.
    pub retry_after: Option<Duration>,
    /// A line for a person, without control characters.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(endpoint: &Arc<str>, error: &ErrorReply<'_>) -> Self {
        let shown = &error.message[..error.message.len().min(reply::MAX_MESSAGE_SIZE)];
        let message = String::from_utf8_lossy(shown).replace(char::is_control, " ");
        Self { endpoint: endpoint.clone(), code: error.code, retry_after: error.retry_after, message }
    }
}

impl Error {
    /// The code that the daemon refused with, if it did and the code is one of version 1.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => ErrorCode::from_u16(refusal.code),
            _ => None,
        }
    }

    /// When the same call may succeed, where a daemon said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            Self::Deadline { last: Some(last), .. } => last.retry_after(),
            _ => None,
        }
    }

    /// Whether the call is tried again within its deadline, on another endpoint where there is one: the connection was
    /// lost or not to be had, or the daemon is draining, too busy, or without a usable clock or ceiling. Everything
    /// else would be answered alike everywhere, or is a defect that should be seen.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Unreachable { .. } => true,
            Self::Refused(_) => self.code().is_some_and(moves_on),
            _ => false,
        }
    }
}

/// Whether a refusal speaks of this daemon's state and not of the request.
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

fn because(last: &Option<Arc<Error>>) -> String {
    last.as_ref().map_or_else(String::new, |last| format!("; last: {last}"))
}

fn name(code: u16) -> String {
    ErrorCode::from_u16(code).map_or_else(|| format!("code {code}"), |code| code.name().to_owned())
}

fn separated(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

fn again(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!(" (try again in {wait:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &[u8]) -> Error {
        let error = ErrorReply { code, retry_after: Some(Duration::from_millis(1200)), message };
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
    }

    #[test]
    fn the_daemons_state_is_retried_and_the_request_is_not() {
        let retried: Vec<u16> = (0..20).filter(|code| refusal(*code, b"").is_retried()).collect();
        assert_eq!(retried, [7, 8, 9, 10]);
        assert!(!Error::Forked.is_retried());
        assert!(Error::Lost { endpoint: "a".into(), reason: "b".into() }.is_retried());
    }

    #[test]
    fn a_deadline_says_what_went_wrong() {
        let error =
            Error::Deadline { allowed: Duration::from_secs(5), last: Some(Arc::new(refusal(10, b"full"))) };
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1200)));
        assert!(error.to_string().starts_with("no answer within 5s; last: ids-1:7660 refused: too_busy"));
    }
}
