//! "Did you mean": the known name that is most like an unknown one.

use snowbank_id::layout::{Layout, PRESETS};

/// The least likeness (1 means equal) at which a message suggests a known key for an unknown key.
const LIKENESS_MIN: f64 = 0.6;

/// Returns the layout that a preset's name or a text form describes.
///
/// # Errors
/// One line with the reason; for a misspelt preset, it names the preset that was probably meant.
pub fn resolve_layout(text: &str) -> Result<Layout, String> {
    Layout::resolve(text).map_err(|error| {
        let presets = PRESETS.iter().map(|preset| (preset.name, preset.name.to_owned()));
        let is_spec = text.contains([':', ',', ';', '=']);
        match nearest(&text.to_ascii_lowercase(), presets).filter(|_| !is_spec) {
            Some(meant) => {
                format!("no layout is called {text:?}; did you mean {meant}? `snowbank layout` lists all")
            }
            None => error.to_string(),
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
