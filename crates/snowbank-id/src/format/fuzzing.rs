//! The fuzz body that reads any text in any format.

use super::{Context, Format, LAST_ID};
use crate::layout::Layout;

/// Takes a format's name from the first line, and reads the rest as a text in that format.
///
/// Checks that a refusal is one line. If an ID was read, checks that its text in that format reads
/// as the same ID.
pub fn format_text(data: &[u8]) {
    let Some((name, text)) = std::str::from_utf8(data).ok().and_then(|data| data.split_once('\n')) else {
        return;
    };
    let Some(format) = accepted(name.parse::<Format>()) else { return };
    assert_eq!(format.to_string(), name);
    let layout = Layout::resolve("twitter").expect("a preset");
    let Some(codec) = accepted(format.codec(Context::new("default", Some(&layout)))) else { return };
    if let Some(id) = accepted(codec.read(text)) {
        assert!(id <= LAST_ID);
        let written = codec.text(id).expect("an ID that was read can be written");
        assert_eq!(codec.read(&written), Ok(id));
    }
}

fn accepted<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
            assert!(text.len() < 2_000, "{text:?}");
        })
        .ok()
}
