//! Reads any text as a configuration, and as the values of options that override it.

use std::num::NonZeroUsize;
use std::path::Path;

use super::overrides::options;
use super::{Mistakes, Origin, Override, Overrides, SHARDS_MAX, SOURCES_MAX, Settings, Tokens, load};
use snowbank_id::layout::UnixMicros;

/// 2027-01-15T08:00:00Z
const NOW: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);

/// Loads the text before the first zero byte as a configuration file. The text after each zero byte
/// is one option: listen, layout, worker IDs, shards, order, state directory, directory of locks,
/// and so on.
///
/// Every mistake is one line. If its place is a line, the file has that line. Accepted settings are
/// within the main bounds.
pub fn config(data: &[u8]) {
    let Ok(data) = std::str::from_utf8(data) else {
        return;
    };
    let mut texts = data.split('\0');
    let file = texts.next().unwrap_or_default();
    let given = options().map(|(key, ..)| key).zip(texts).filter(|(_, text)| !text.is_empty());
    let overrides = given.map(|(key, text)| Override {
        key: key.to_owned(),
        texts: text.split(',').map(str::to_owned).collect(),
        origin: format!("--{key}"),
    });
    let overrides = Overrides(overrides.collect());
    // A refused value counts as not given.
    let _ = overrides.log();
    match load(Some((Path::new("/etc/snowbank.toml"), file)), &overrides, NonZeroUsize::MIN, NOW) {
        Ok(settings) => check_settings(&settings),
        Err(mistakes) => check_mistakes(&mistakes, 1 + file.matches('\n').count()),
    }
    // A token file may have any bytes.
    let _ = Tokens::parse(Path::new("tokens"), data.as_bytes(), &[]);
}

fn check_mistakes(mistakes: &Mistakes, lines: usize) {
    assert!(mistakes.len() >= 1 && !mistakes.first_line().is_empty());
    for mistake in &mistakes.0 {
        let text = mistake.to_string();
        assert!(!mistake.text.is_empty() && !text.contains(char::is_control), "{text:?}");
        if let Origin::Line(_, line) = mistake.origin {
            assert!((1..=lines).contains(&line), "{text}: the file has {lines} lines");
        }
    }
}

fn check_settings(settings: &Settings) {
    assert!(!settings.listen.is_empty() && (1..=SHARDS_MAX).contains(&settings.shards.get()));
    assert!((1..=SOURCES_MAX).contains(&settings.sources.len()));
    for (index, source) in settings.sources.iter().enumerate() {
        assert!(source.worker_ids.set.highest() < source.layout.workers());
        assert!(source.burst_window <= source.max_ahead && source.horizon() < source.max_ahead);
        for other in &settings.sources[..index] {
            assert_ne!(source.name, other.name);
            if [source, other].into_iter().any(|it| it.is_assigned() || it.is_unpicked()) {
                continue;
            }
            let workers = &source.worker_ids.set;
            let found = source.layout.concurrent_collision(workers, &other.layout, &other.worker_ids.set);
            assert_eq!(found, None, "two sources can make the same IDs");
        }
    }
    let warnings = settings.warnings(NOW).into_iter().map(|warning| warning.to_string());
    let words = settings.summary().into_iter().chain(warnings);
    for line in words {
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}
