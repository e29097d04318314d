//! The error of formats.

use crate::layout::{LayoutError, excerpt};

/// The reason for refusing a format, a text or an ID: one line that says what was found, what is
/// allowed, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(String);

impl FormatError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        FormatError(reason.into())
    }

    /// Returns the error of a text that does not have the shape of the format.
    pub(super) fn shape(text: &str, format: &str, allowed: &str) -> Self {
        FormatError(format!("{:?} is not of format {format}: allowed is {allowed}", excerpt(text)))
    }

    /// Returns the error of a text of the right shape that another program, source or layout made.
    pub(super) fn other_maker(text: &str, format: &str, found: &str) -> Self {
        FormatError(format!("{:?} is not an ID in {format}: {found}", excerpt(text)))
    }

    /// Returns the error of an ID whose instant the format cannot hold.
    pub(super) fn outside_time(id: u64, instant: &str, format: &str, holds: &str) -> Self {
        FormatError(format!(
            "ID {id} is of {instant}, and {format} holds times from {holds}; choose a format without a time"
        ))
    }
}

impl From<LayoutError> for FormatError {
    fn from(error: LayoutError) -> Self {
        FormatError(error.to_string())
    }
}
