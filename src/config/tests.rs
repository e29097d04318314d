//! Tests the whole way from a text to [`Settings`] or [`Mistakes`].

mod diff;
mod mistakes;
mod overrides;
mod pick;
mod reference;
mod settings;

use super::*;

const FILE: &str = "/etc/snowbank.toml";
const CORES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);
/// 2027-01-15T08:00:00Z
const NOW: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);

fn load_text(text: &str, overrides: &Overrides) -> Result<Settings, Mistakes> {
    load(Some((Path::new(FILE), text)), overrides, CORES, NOW)
}

fn settings(text: &str) -> Settings {
    load_text(text, &Overrides::default()).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"))
}

/// Returns the cases of a table, which are separated by blank lines. A case has the lines of a
/// configuration, and the expected lines, which begin with `=> `. Lines that begin with `##` are a
/// heading, and no case.
fn cases(table: &str) -> impl Iterator<Item = (String, Vec<&str>)> {
    table.split("\n\n").filter_map(|block| {
        if block.starts_with("##") {
            assert!(block.lines().all(|line| line.starts_with("##")), "a heading hides a case: {block}");
            return None;
        }
        let (expected, text): (Vec<&str>, Vec<&str>) =
            block.lines().partition(|line| line.starts_with("=> "));
        let expected = expected.iter().map(|line| line.trim_start_matches("=> "));
        Some((text.join("\n"), expected.collect()))
    })
}

/// Returns the mistakes of a text as they are printed, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = load_text(text, &Overrides::default()).expect_err(text);
    assert_eq!(mistakes.len(), mistakes.to_string().lines().count());
    mistakes.to_string().lines().map(|line| line.strip_prefix(FILE).expect(line)[1..].to_owned()).collect()
}

/// Returns the only mistake of a text.
fn mistake(text: &str) -> String {
    let mut mistakes = mistakes(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    mistakes.remove(0)
}
