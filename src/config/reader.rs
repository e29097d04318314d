//! Walks a TOML document through the tables of settings and collects every mistake on the way.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::daemon::{DAEMON, Daemon, TlsSettings};
use super::findings::{Findings, Input, excerpt};
use super::secrets::FileRef;
use super::setting::{Draft, Section, Setting, full_key};
use super::source::{SOURCE, SOURCES_MAX, SourceDraft};
use super::state_dir::StateDirChoice;
use super::value::Value;
use snowbank_client::address::Address;

/// How alike an unknown key and a known one must be (1: equal) for the one to be taken for the other.
const LIKENESS_MIN: f64 = 0.6;

/// What was read so far; what was refused is at its default.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) daemon: Daemon,
    /// The settings of sources that stand at the top of the file, for all of them.
    common: SourceDraft,
    /// The sources, in the order of their indices. Empty before a document is read.
    pub(super) sources: Vec<SourceDraft>,
    pub(super) findings: Findings,
}

impl Reader {
    /// Reads a whole document.
    pub(super) fn read_document(&mut self, path: &Path, text: &str) {
        let input = Input::file(path, text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            self.findings.not_toml(&input, &error.span().unwrap_or_default(), error.message());
        }
        let mut sources = None;
        for (key, value) in root.get_ref().iter() {
            if key.get_ref() == "sources" {
                sources = Some((key, value));
            } else {
                self.read_root_entry(&input, key, value);
            }
        }
        // After what stands at the top for all sources, which each of them starts from.
        if let Some((key, value)) = sources {
            self.read_sources(&input, key, value);
        }
        self.anchor_paths(path.parent().unwrap_or(Path::new("")));
    }

    /// The sources to read overrides into: with no `[[sources]]`, the default one alone.
    pub(super) fn settle_sources(&mut self) {
        if self.sources.is_empty() {
            self.sources.push(self.common.clone());
        }
    }

    fn read_root_entry(
        &mut self,
        input: &Input<'_>,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let name = key.get_ref().as_ref();
        if let Some(&(_, section)) = Section::TABLES.iter().find(|(table, _)| *table == name) {
            match value.get_ref() {
                DeValue::Table(table) => self.read_section(input, section, table),
                _ => self.findings.mistake(
                    input.origin(&value.span()),
                    name,
                    format!("found a value, allowed: a section, [{name}] on a line of its own"),
                ),
            }
        } else if let Some(setting) = find(DAEMON, name, Section::Top) {
            self.findings.read(setting, None, input, Value(value), &mut self.daemon);
        } else if let Some(setting) = find(SOURCE, name, Section::Source) {
            self.findings.read(setting, None, input, Value(value), &mut self.common);
        } else {
            self.unknown(input, key, str::to_owned, &[Section::Top, Section::Source]);
        }
    }

    fn read_section(&mut self, input: &Input<'_>, section: Section, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            match find(DAEMON, name, section) {
                Some(setting) => {
                    self.findings.read(setting, None, input, Value(value), &mut self.daemon);
                }
                None => {
                    self.unknown(input, key, |name| full_key(section.prefix(), name, None), &[section]);
                }
            }
        }
    }

    fn read_sources(&mut self, input: &Input<'_>, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let entries: Option<Vec<_>> = value.get_ref().as_array().and_then(|entries| {
            entries.iter().map(|entry| Some((entry.span(), entry.get_ref().as_table()?))).collect()
        });
        let Some(entries) = entries else {
            let text =
                "found no list of sources, allowed: [[sources]], in two brackets, above each one's settings";
            return self.findings.mistake(input.origin(&key.span()), "sources", text);
        };
        if entries.is_empty() || entries.len() > SOURCES_MAX {
            let text = format!("found {} sources, allowed: 1 to {SOURCES_MAX}", entries.len());
            self.findings.mistake(input.origin(&key.span()), "sources", text);
        }
        for (index, (span, table)) in entries.into_iter().take(SOURCES_MAX).enumerate() {
            self.read_source(input, index, &span, table);
        }
    }

    fn read_source(&mut self, input: &Input<'_>, index: usize, span: &Range<usize>, table: &DeTable<'_>) {
        self.findings.origins.set(format!("sources[{index}]"), input.origin(span));
        // No name until one is read: two sources that lack one, or have a wrong one, are not called alike.
        let mut source = SourceDraft { name: String::new(), ..self.common.clone() };
        for (key, value) in table.iter() {
            let name = key.get_ref().as_ref();
            match SOURCE.iter().find(|setting| setting.key == name) {
                Some(setting) => {
                    self.findings.read(setting, Some(index), input, Value(value), &mut source);
                }
                None => {
                    let here = [Section::Source, Section::SourceAlone];
                    self.unknown(input, key, |name| full_key("", name, Some(index)), &here);
                }
            }
        }
        if !table.contains_key("name") {
            let text = "missing; each of [[sources]] has a name of its own, as in name = \"orders\"";
            self.findings.mistake(input.origin(span), full_key("", "name", Some(index)), text);
        }
        self.sources.push(source);
    }

    /// Relative paths of a file are taken from its directory, so that they name the same place whatever directory the
    /// daemon starts in.
    fn anchor_paths(&mut self, directory: &Path) {
        let anchor = |path: &mut PathBuf| *path = directory.join(&*path);
        let daemon = &mut self.daemon;
        if let StateDirChoice::At(path) = &mut daemon.state_dir {
            anchor(path);
        }
        let TlsSettings { certificate, key, client_ca, .. } = &mut daemon.tls;
        for file in [&mut daemon.token_file, certificate, key, client_ca] {
            if let Some(FileRef::Path(path)) = file.as_mut() {
                anchor(path);
            }
        }
        anchor(&mut daemon.lock_dir);
        for address in daemon.listen.iter_mut().chain(&mut daemon.admin) {
            if let Address::Unix(path) = address {
                anchor(path);
            }
        }
    }

    fn unknown(
        &mut self,
        input: &Input<'_>,
        key: &Spanned<DeString<'_>>,
        full: impl FnOnce(&str) -> String,
        here: &[Section],
    ) {
        let name = key.get_ref().as_ref();
        let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let shown =
            if is_bare && !name.is_empty() { name.to_owned() } else { format!("{:?}", excerpt(name)) };
        self.findings.mistake(input.origin(&key.span()), full(&shown), explain_unknown(name, here));
    }
}

fn find<T: Draft>(table: &'static [Setting<T>], name: &str, section: Section) -> Option<&'static Setting<T>> {
    table.iter().find(|setting| setting.key == name && setting.section == section)
}

/// Every key that may stand somewhere in a file, and where.
fn known_keys() -> impl Iterator<Item = (&'static str, Section)> {
    let daemon = DAEMON.iter().map(|setting| (setting.key, setting.section));
    daemon.chain(SOURCE.iter().map(|setting| (setting.key, setting.section)))
}

/// What was probably meant by a key that is not known in these sections.
fn explain_unknown(name: &str, here: &[Section]) -> String {
    if let Some((_, section)) = known_keys().find(|&(known, _)| known == name) {
        return format!("not known here; it belongs {}", section.place());
    }
    // Of two keys that are equally alike, the one that is known here.
    let alike = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let mut nearest: Option<(f64, &str, Section)> = None;
    for (known, section) in known_keys() {
        let likeness = alike(known) + if here.contains(&section) { 0.01 } else { 0.0 };
        if likeness >= nearest.map_or(LIKENESS_MIN, |(best, ..)| best) {
            nearest = Some((likeness, known, section));
        }
    }
    let at_top = here.contains(&Section::Top);
    let tables = Section::TABLES.iter().map(|&(table, _)| format!("[{table}]"));
    let mut tables = tables.chain([String::from("[[sources]]")]);
    let best = nearest.map_or(LIKENESS_MIN, |(best, ..)| best);
    if at_top && let Some(table) = tables.find(|table| alike(table.trim_matches(['[', ']'])) >= best) {
        return format!("not known; did you mean {table}?");
    }
    match nearest {
        Some((_, known, section)) if here.contains(&section) => {
            format!("not known; did you mean `{known}`?")
        }
        Some((_, known, section)) => format!("not known; did you mean `{known}`, {}?", section.place()),
        None => {
            let known = known_keys().filter(|(_, section)| here.contains(section)).map(|(known, _)| known);
            format!("not known, allowed here: {}", known.collect::<Vec<_>>().join(", "))
        }
    }
}
