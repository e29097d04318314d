//! "Did you mean": the known name that is most like an unknown one.

use super::refused::UnknownLayout;
use snowbank_id::layout::{Layout, PRESETS};

/// The least likeness (1 means equal) at which a message suggests a known key for an unknown key.
const LIKENESS_MIN: f64 = 0.6;

/// Returns the layout that a preset's name or a text form describes.
///
/// # Errors
/// The text describes no layout; for a misspelt preset, the error has the preset that was probably
/// meant.
pub fn resolve_layout(text: &str) -> Result<Layout, UnknownLayout> {
    Layout::resolve(text).map_err(|error| {
        let presets = PRESETS.iter().map(|preset| (preset.name, preset.name));
        // Twitter's was the first, and the others are called after it.
        let presets = presets.chain([("snowflake", "twitter")]).map(|(key, meant)| (key, meant.to_owned()));
        let is_spec = text.contains([':', ',', ';', '=']);
        match nearest(&text.to_ascii_lowercase(), presets).filter(|_| !is_spec) {
            Some(meant) => UnknownLayout::Misspelt { text: text.to_owned(), meant },
            None => UnknownLayout::Layout(error),
        }
    })
}

/// Returns the suggestion for the known key that is most like a name. If several keys are equally
/// similar, it suggests the last of them.
pub(super) fn nearest<K: AsRef<str>>(name: &str, known: impl Iterator<Item = (K, String)>) -> Option<String> {
    known
        .map(|(key, meant)| (strsim::normalized_damerau_levenshtein(name, key.as_ref()), meant))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, meant)| meant)
}
