//! "Did you mean": the known name that is most like an unknown one.

use super::refused::UnknownLayout;
use snowbank_id::layout::{Layout, LayoutError, PRESETS};

/// The least likeness (1 means equal) at which a message suggests a known key for an unknown key.
const LIKENESS_MIN: f64 = 0.65;

/// Words of other programs, and the names for the same here.
const FOREIGN_WORDS: [(&str, &str); 25] = [
    ("address", "listen"),
    ("batch", "count"),
    ("bind", "listen"),
    ("bits", "layout"),
    ("clients", "connections"),
    ("cores", "shards"),
    ("datacenter", "worker"),
    ("epoch", "layout"),
    ("etcd", "coordinator"),
    ("host", "listen"),
    ("hostname", "worker_id_from"),
    ("machine", "worker"),
    ("metrics", "admin"),
    ("node", "worker"),
    ("port", "listen"),
    ("prometheus", "admin"),
    ("redis", "resp"),
    ("server", "worker"),
    // Twitter's was the first, and the others are called after it.
    ("snowflake", "twitter"),
    ("strict", "order"),
    ("threads", "shards"),
    ("tick", "layout"),
    ("token", "token_file"),
    ("type", "kind"),
    ("zookeeper", "coordinator"),
];

/// Returns the layout that a preset's name or a text form describes.
///
/// # Errors
/// The text describes no layout; for a misspelt preset, the error has the preset that was probably
/// meant.
pub fn resolve_layout(text: &str) -> Result<Layout, UnknownLayout> {
    Layout::resolve(text).map_err(|error| {
        let presets = PRESETS.iter().map(|preset| (preset.name, preset.name.to_owned()));
        let is_name = matches!(error, LayoutError::UnknownLayout(_));
        match nearest(text, presets).filter(|_| is_name) {
            Some(meant) => UnknownLayout::Misspelt { text: text.to_owned(), meant },
            None => UnknownLayout::Layout(error),
        }
    })
}

/// Returns the suggestion for the known key that is most like a name: by its letters, as a typing
/// mistake is, or by its words. If several keys are equally similar, it suggests the first of them.
pub(super) fn nearest<K: AsRef<str>>(name: &str, known: impl Iterator<Item = (K, String)>) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let translated = words(&name).map(ours).collect::<Vec<_>>().join("_");
    let mut best = None;
    for (key, meant) in known {
        let key = key.as_ref().to_ascii_lowercase();
        for name in [&name, &translated] {
            let by_letters = strsim::normalized_damerau_levenshtein(name, &key);
            let by_words = likeness_of_words(name, &key);
            let likeness = by_letters + by_words;
            if by_letters.max(by_words) >= LIKENESS_MIN
                && best.as_ref().is_none_or(|(most, _)| likeness > *most)
            {
                best = Some((likeness, meant.clone()));
            }
        }
    }
    best.map(|(_, meant)| meant)
}

/// Returns the word that this program has for a word of others.
fn ours(word: &str) -> &str {
    FOREIGN_WORDS.iter().find(|(foreign, _)| *foreign == word).map_or(word, |(_, ours)| *ours)
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', '-', '.', ' '])
}

/// Returns how alike the words of a name and of a key are, from 0 to 1. Returns 0 unless every word of
/// the name is in the key. A word may be cut short.
fn likeness_of_words(name: &str, key: &str) -> f64 {
    let is_same = |one: &str, other: &str| {
        let is_cut = one.starts_with(other) || other.starts_with(one);
        one == other || is_cut && one.len().min(other.len()) >= WORD_LENGTH_MIN
    };
    if !words(name).all(|one| words(key).any(|other| is_same(one, other))) {
        return 0.0;
    }
    let (of_name, of_key) = (words(name).count(), words(key).count());
    2.0 * of_name.min(of_key) as f64 / (of_name + of_key) as f64
}

/// The fewest letters of a word that is cut short.
const WORD_LENGTH_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::super::reader::suggestion_at_the_top;

    #[test]
    fn the_likeliest_key_is_suggested() {
        for (name, meant) in [
            ("worker", "worker_ids"),
            ("worker_id", "worker_ids"),
            ("machine_id", "worker_ids"),
            ("port", "listen"),
            ("max_conn", "max_connections"),
            ("log_level", "level"),
            ("tls_key", "key"),
            ("wait", "max_wait"),
            ("max_batch", "max_count"),
            ("cert", "certificate"),
            ("shrads", "shards"),
            ("redis", "[resp]"),
            ("source", "[[sources]]"),
        ] {
            let found = suggestion_at_the_top(name).unwrap_or_default();
            let found = found.split(',').next().unwrap_or_default();
            assert_eq!(found.trim_matches('`'), meant, "{name}");
        }
        assert_eq!(suggestion_at_the_top("http_port").as_deref(), Some("`listen`, in [http]"));
        assert_eq!(suggestion_at_the_top("verbose"), None);
        assert_eq!(suggestion_at_the_top("max_foo"), None);
    }
}
