//! Replies that carry no IDs.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;

use crate::frontends::refusals::{Words, ceil_to_ms};
use snowbank_wire::ErrorCode;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A complete reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    /// The error code, if the reply is a refusal.
    pub(crate) error: Option<ErrorCode>,
    /// The time after which the client may ask again.
    pub(crate) retry_after: Option<Duration>,
    /// The methods that are allowed for the path, if the request had another method.
    pub(crate) allow: Option<&'static str>,
}

impl Reply {
    /// Returns a reply with a body of JSON.
    pub(super) fn json(body: &impl Serialize) -> Reply {
        // The bodies have no map with keys other than strings, so none fails to serialize.
        let mut body = serde_json::to_string(body).unwrap_or_default();
        body.push('\n');
        Reply::with_body(JSON, body)
    }

    /// Returns a reply with this body.
    pub(super) fn with_body(content_type: &'static str, body: String) -> Reply {
        Reply { status: 200, content_type, body, error: None, retry_after: None, allow: None }
    }

    /// Returns a refusal.
    pub(super) fn refusal(
        code: ErrorCode,
        status: u16,
        message: impl Display,
        retry_after: Option<Duration>,
    ) -> Reply {
        #[derive(Serialize)]
        struct Problem<'a> {
            error: &'a str,
            message: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u128>,
        }
        let retry_after_ms = retry_after.map(ceil_to_ms);
        let problem =
            Reply::json(&Problem { error: code.name(), message: message.to_string(), retry_after_ms });
        Reply { status, error: Some(code), retry_after, ..problem }
    }

    /// Returns true for errors after which the connection serves nothing more. A mistake in a request
    /// whose end is known ends no connection: a proxy may send the requests of several clients on it.
    pub(super) fn closes(&self) -> bool {
        matches!(self.error, Some(ErrorCode::Unauthorized | ErrorCode::ShuttingDown))
    }

    /// Returns the refusal of a request for IDs. A temporary refusal is a 503. It says after which
    /// time to retry, if that is known. A 409 is a valid request for more IDs than its source can
    /// ever give within the wait. If it is for one ID, it is the daemon that cannot serve.
    pub(super) fn from_words(words: &Words, is_for_one: bool) -> Reply {
        let status = match (words.code, words.retry_after) {
            (ErrorCode::Exhausted, None) if !is_for_one => 409,
            // A source that the client's identity may not draw from.
            (ErrorCode::UnknownSource, _) => 403,
            _ => 503,
        };
        Reply::refusal(words.code, status, &words.message, words.retry_after)
    }
}
