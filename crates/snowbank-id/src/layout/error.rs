//! The error of layouts.

/// The reason why a layout, a worker set, an instant, an ID or a range is refused: one line with
/// what was found, what is allowed, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LayoutError(String);

impl LayoutError {
    /// Creates an error with this line.
    pub fn new(reason: impl Into<String>) -> Self {
        LayoutError(reason.into())
    }
}
