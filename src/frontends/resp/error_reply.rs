//! Refusals in the words of Redis.

use super::parse::Arguments;
use super::{Reply, encode};
use snowbank_wire::ErrorCode;

pub(super) const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// The most bytes of an argument that an error repeats.
const SHOWN_BYTES_MAX: usize = 64;

/// The refusal of a request: its code, and the error that the client gets.
pub(super) struct Refused {
    code: ErrorCode,
    text: String,
    /// True if a token was wrong: the connection closes soon.
    is_denied: bool,
}

impl Refused {
    pub(super) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Refused { code, text: text.into(), is_denied: false }
    }

    /// Refuses a wrong token.
    pub(super) fn denied(text: impl Into<String>) -> Self {
        Refused { is_denied: true, ..Refused::new(ErrorCode::Unauthorized, text) }
    }

    pub(super) fn malformed(text: impl Into<String>) -> Self {
        Refused::new(ErrorCode::Malformed, text)
    }

    /// Refuses a command as Redis does. A client that has yet to authorize itself does not see the
    /// operands again: behind a misspelt AUTH they are its token.
    pub(super) fn unknown_command(arguments: &Arguments<'_>, is_authorized: bool) -> Self {
        let name = arguments.get().first().copied().unwrap_or_default();
        let operands = arguments.get().iter().skip(1).filter(|_| is_authorized);
        let operands: String = operands.map(|operand| format!("'{}' ", shown(operand))).collect();
        let text = format!("ERR unknown command '{}', with args beginning with: {operands}", shown(name));
        Refused::new(ErrorCode::Unsupported, text)
    }

    pub(super) fn unknown_subcommand(found: &[u8]) -> Self {
        Refused::new(ErrorCode::Unsupported, format!("ERR unknown subcommand '{}'", shown(found)))
    }

    #[cold]
    pub(super) fn encode(self, out: &mut Vec<u8>) -> Reply {
        encode::error(out, &self.text);
        if self.is_denied { Reply::Denied } else { Reply::Encoded(Some(self.code)) }
    }
}

/// Returns a client's text as an error repeats it.
pub(super) fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]).into_owned()
}
