//! The reference of all settings, `docs/snowbank.toml`.

use std::fmt::Write;

use super::*;
use crate::config::daemon::{rows_of_file, tables};
use crate::config::setting::{Change, Section};

/// The widest line, in characters.
const LINE_CHARS_MAX: usize = 100;

const HEAD: &str = "\
Every setting of Snowbank, with its default. The default applies where no file, variable or option sets the key.
Durations have a unit: \"10ms\", \"1s\", \"5m\", \"1h\", or \"0\".
Each setting, except those of identities, has an environment variable: SNOWBANK_, its section and its key in capitals, as in SNOWBANK_LISTEN, \
SNOWBANK_LIMITS_MAX_WAIT or SNOWBANK_LOG_LEVEL. An empty variable counts as not set. Several addresses have commas \
between them.
Options of `snowbank serve` override variables, and variables override this file.
`snowbank check --config FILE` lists the mistakes of a file, each with its line.
A reload (SIGHUP, `systemctl reload`) reads this file and the files that it names again, and changes the settings \
that say so. If another setting has changed, the daemon refuses the whole reload and logs each such setting.
This file is generated from the code: change it there.";

const SOURCE_HEAD: &str = "\
The settings of a source, a supply of IDs. Here, above the first [section], they hold for all sources that do not set \
them in [[sources]] below. Their environment variables are refused if there are several sources.";

const SOURCES_HEAD: &str = "\
Several sources in one daemon: one [[sources]] for each, with its name and any of the source settings above. Clients \
that name no source get the first. Two with the same layout must have different worker_ids. Up to 1,024 sources.";

const IDENTITIES_HEAD: &str = "\
Who may have how much: one [[identities]] for each client that has a name of its own, the sources that it may draw \
from, and a rate. Without any, every accepted client may draw from every source. Up to 256 identities, which no variable \
sets.";

/// Returns the reference configuration: every setting once, commented out with its default, its
/// meaning and the reason of the default. docs/snowbank.toml is this text.
fn reference() -> String {
    let mut out = String::new();
    comment(&mut out, HEAD);
    section(&mut out, Section::Top);
    out.push('\n');
    comment(&mut out, SOURCE_HEAD);
    section(&mut out, Section::Source);
    for table in tables() {
        // The section's line is not commented out: to use a setting below it, uncomment only the
        // setting.
        out.push_str(&format!("\n[{table}]\n"));
        section(&mut out, Section::Table(table));
    }
    out.push('\n');
    comment(&mut out, SOURCES_HEAD);
    out.push_str("#[[sources]]\n");
    section(&mut out, Section::SourceAlone);
    out.push('\n');
    comment(&mut out, IDENTITIES_HEAD);
    out.push_str("#[[identities]]\n");
    section(&mut out, Section::Identity);
    out
}

fn section(out: &mut String, section: Section) {
    for row in rows_of_file().filter(|row| row.section == section) {
        out.push('\n');
        for paragraph in row.doc.split("\n\n") {
            comment(out, &paragraph.replace('\n', " "));
        }
        if let Change::Reload = row.change {
            comment(out, "A reload changes it.");
        }
        out.push_str(&format!("#{} = {}\n", row.key, row.default));
    }
}

/// Writes prose as wrapped comments. They begin with `# `; a setting that is commented out begins
/// with `#` alone.
fn comment(out: &mut String, prose: &str) {
    for paragraph in prose.lines() {
        let mut width = 0;
        for word in paragraph.split_whitespace() {
            if width == 0 || width + 1 + word.len() > LINE_CHARS_MAX {
                out.push_str(if width == 0 { "#" } else { "\n#" });
                width = 1;
            }
            out.push(' ');
            out.push_str(word);
            width += 1 + word.len();
        }
        out.push('\n');
    }
}

/// Returns the reference without the `#` in front of its settings.
fn uncommented_reference() -> String {
    reference().lines().fold(String::new(), |mut out, line| {
        let _ = match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => writeln!(out, "{setting}"),
            _ => writeln!(out, "{line}"),
        };
        out
    })
}

#[test]
fn docs_snowbank_toml_is_the_reference() {
    expect_file("docs/snowbank.toml", &reference());
}

/// Compares a file of the repository with its expected text; writes the file first if
/// `SNOWBANK_WRITE_REFERENCE` is set.
fn expect_file(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("SNOWBANK_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    // Two whole texts in a message would hide what to do.
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == expected,
        "{name} differs from the code; write it again: SNOWBANK_WRITE_REFERENCE=1 cargo test --lib snowbank_toml"
    );
}

#[test]
fn the_reference_states_every_setting_with_its_default() {
    let defaults = load(None, &Overrides::default(), CORES, NOW).unwrap();
    assert_eq!(settings(&reference()), defaults);
    let uncommented = uncommented_reference();
    let stated = settings(&uncommented);
    // The reference gives every setting of the tables, and the loader knows of no other.
    let keys = daemon::rows().map(|row| match row.section {
        setting::Section::SourceAlone => row.full_key(Some(0)),
        _ => row.full_key(None),
    });
    let identity_keys = IdentitySettings::ROWS.iter().map(|row| row.full_key(Some(0)));
    for key in keys.chain(identity_keys) {
        assert!(stated.origins.is_given(&key), "{key}");
    }
    let defaults = Settings { identities: vec![IdentitySettings::default()], ..defaults };
    assert_eq!(Settings { origins: Origins::default(), ..stated }, defaults);
}
