//! The error of layouts.

/// The reason for refusing a layout, a worker set, an instant, an ID or a range: one line that says
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

/// The most characters that an [`excerpt`] keeps. No format writes a longer text.
const EXCERPT_CHARS_MAX: usize = 80;

/// Returns the part of a text that a message repeats: the whole text, or its start and an ellipsis.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
