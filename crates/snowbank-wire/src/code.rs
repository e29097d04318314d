//! The codes of an ERROR reply, and the actions that it asks for.

use std::fmt;

/// The reason for a refusal. A later version may have further codes; see [`ErrorCode::from_u16`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorCode {
    /// The length, body or flags of the request are not allowed.
    Malformed = 1,
    /// The kind of the request is unknown.
    Unsupported = 2,
    /// The count is 0 or above the daemon's `max_count`.
    BadCount = 3,
    /// No source has that name, or this client may not draw from it.
    UnknownSource = 4,
    /// The token is missing or wrong, or a reload removed the token or certificate.
    Unauthorized = 5,
    /// The IDs are not available within the wait, or the client's rate does not allow them.
    Exhausted = 6,
    /// The daemon's clock is too far behind the source's IDs, or has not reached the first tick of
    /// a source that keeps no state.
    ClockBehind = 7,
    /// The daemon could not make the ceiling durable, or has lost its worker ID.
    NoCeiling = 8,
    /// The daemon is draining.
    ShuttingDown = 9,
    /// The daemon's limit of connections is reached.
    TooBusy = 10,
}

impl ErrorCode {
    /// Every code, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Malformed,
        Self::Unsupported,
        Self::BadCount,
        Self::UnknownSource,
        Self::Unauthorized,
        Self::Exhausted,
        Self::ClockBehind,
        Self::NoCeiling,
        Self::ShuttingDown,
        Self::TooBusy,
    ];

    /// Returns the code with that number, or `None` if version 1 does not define it.
    #[must_use]
    pub fn from_u16(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the number on the wire.
    #[must_use]
    pub fn to_u16(self) -> u16 {
        self as u16
    }

    /// Returns the name in the protocol's table, for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
            Self::BadCount => "bad_count",
            Self::UnknownSource => "unknown_source",
            Self::Unauthorized => "unauthorized",
            Self::Exhausted => "exhausted",
            Self::ClockBehind => "clock_behind",
            Self::NoCeiling => "no_ceiling",
            Self::ShuttingDown => "shutting_down",
            Self::TooBusy => "too_busy",
        }
    }
}

/// What an ERROR asks of the client. A client looks at the action alone: codes are for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Action {
    /// Tell the caller: another attempt would get the same answer.
    Tell = 0,
    /// Ask again on this connection, but not before `retry_after`.
    Stay = 1,
    /// Leave this connection, and ask elsewhere; or here again, but not before `retry_after`.
    Leave = 2,
}

impl Action {
    /// Returns the action of that number. A number of a later version means [`Action::Tell`].
    #[must_use]
    pub fn from_u8(number: u8) -> Self {
        match number {
            1 => Self::Stay,
            2 => Self::Leave,
            _ => Self::Tell,
        }
    }

    /// Returns the number on the wire.
    #[must_use]
    pub fn to_u8(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, ErrorCode};

    #[test]
    fn codes_have_the_numbers_of_the_protocol() {
        let numbers: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.to_u16()).collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<u16>>());
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_u16(code.to_u16()), Some(code));
        }
        assert_eq!(ErrorCode::from_u16(0), None);
        assert_eq!(ErrorCode::from_u16(11), None);
        assert_eq!(ErrorCode::from_u16(u16::MAX), None);
    }

    #[test]
    fn unknown_actions_mean_tell() {
        for action in [Action::Tell, Action::Stay, Action::Leave] {
            assert_eq!(Action::from_u8(action.to_u8()), action);
        }
        assert_eq!([3, 255].map(Action::from_u8), [Action::Tell; 2]);
    }
}
