//! The reference configuration, written from the tables that read configurations.

use super::daemon::DAEMON;
use super::setting::{Change, Draft, Section, Setting};
use super::source::SOURCE;

/// The widest line, in characters.
const LINE_CHARS_MAX: usize = 100;

const HEAD: &str = "\
Every setting of Snowbank, with its default: what holds without a file, and where a file is silent.
Durations carry a unit: \"10ms\", \"1s\", \"5m\", \"1h\", or \"0\". Sizes are bytes, or texts as \"64KiB\".
Options of `snowbank serve` beat environment variables (SNOWBANK_...), and these beat this file.
`snowbank check --config FILE` names every mistake of a file, each with its line.
A reload (SIGHUP, `systemctl reload`) reads this file and the token file again. If a setting is changed that takes a \
restart, it is refused as a whole and the log names each of them. Sources can be added after the last.
This file is written from the code: change it there.";

const SOURCE_HEAD: &str = "\
The settings of a source, a supply of IDs. Here, above the first [section], they hold for all sources that do not set \
them for themselves in [[sources]] below.";

const SOURCES_HEAD: &str = "\
Several sources in one daemon: one [[sources]] for each, with its name and any of the source settings above. The first \
is the one that clients get who name none. Two with the same layout must have different worker_ids. Up to 64 sources.";

/// The reference configuration: every setting once, commented out with its default, its meaning and the reason of the
/// default. docs/snowbank.toml is this text.
pub fn reference() -> String {
    let mut out = String::new();
    comment(&mut out, HEAD);
    rows(&mut out, DAEMON, Section::Top);
    out.push('\n');
    comment(&mut out, SOURCE_HEAD);
    rows(&mut out, SOURCE, Section::Source);
    for (table, section) in Section::TABLES {
        // Not commented out: a setting below it takes effect when its own line does.
        out.push_str(&format!("\n[{table}]\n"));
        rows(&mut out, DAEMON, section);
    }
    out.push('\n');
    comment(&mut out, SOURCES_HEAD);
    out.push_str("#[[sources]]\n");
    rows(&mut out, SOURCE, Section::SourceAlone);
    out
}

fn rows<T: Draft>(out: &mut String, table: &[Setting<T>], section: Section) {
    for setting in table.iter().filter(|setting| setting.section == section) {
        out.push('\n');
        comment(out, setting.doc);
        comment(
            out,
            match setting.change {
                Change::Reload => "A change takes effect at a reload.",
                Change::Restart(_) => "A change takes effect at a restart.",
            },
        );
        out.push_str(&format!("#{} = {}\n", setting.key, setting.default));
    }
}

/// Writes prose as comments (`# ` with a blank; a setting that is commented out has none), each paragraph wrapped.
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
