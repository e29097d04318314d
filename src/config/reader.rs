//! Reads a TOML document by the tables of settings, and collects every mistake in the document.

use std::ops::{Range, RangeInclusive};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::Settings;
use super::daemon::{rows_of_file, tables};
use super::identities::{IDENTITIES_MAX, IdentitySettings};
use super::input::{Findings, Input};
use super::mistake::Origin;
use super::refused::WrongEntry;
use super::setting::{Row, Section};
use super::source::{SOURCES_MAX, SourceSettings};
use super::suggest::nearest;
use super::value::{Value, excerpt};
use snowbank_wire::hide_password;

/// The words of the TOML library for a key that a section has already.
const DUPLICATE: &str = "duplicate key";

/// Returns true for a line that begins with the name of a setting or of a section.
fn is_of_configuration(line: &str) -> bool {
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || b"_.".contains(&byte));
    let line = line.trim();
    match line.trim_start_matches('[') {
        section if section.len() < line.len() => is_name(section.trim_end_matches(']')),
        _ => {
            let key = line.split('=').next().unwrap_or_default().trim();
            rows_of_file().any(|row| row.key == key)
        }
    }
}

/// The settings that were read so far. A refused value leaves its setting as it was. There is at
/// least one source.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) settings: Settings,
    pub(super) findings: Findings,
}

impl Reader {
    pub(super) fn new() -> Self {
        let sources = vec![SourceSettings::default()];
        Reader { settings: Settings { sources, ..Settings::default() }, findings: Findings::default() }
    }

    /// Reads a whole document.
    pub(super) fn read_document(&mut self, path: &Path, text: &str) {
        let input = Input::file(path, text);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            self.not_toml(&input, &error.span().unwrap_or_default(), error.message());
        }
        if !errors.is_empty() {
            return;
        }
        let mut sources = None;
        for (key, value) in root.get_ref().iter() {
            let entry = Entry { key, value };
            match key.get_ref().as_ref() {
                "sources" => sources = Some(entry),
                "identities" => self.read_identities(&input, entry),
                _ => self.read_root_entry(&input, entry),
            }
        }
        // Sources are read last: each starts from the settings at the top.
        if let Some(entry) = sources {
            self.read_sources(&input, entry);
        }
    }

    /// Reports a line that is not TOML. Reports each line once, because further errors of a line
    /// mostly follow from the first.
    fn not_toml(&mut self, input: &Input<'_>, span: &Range<usize>, reason: &str) {
        let origin = input.origin(span);
        if self.findings.mistakes.iter().any(|mistake| mistake.origin == origin) {
            return;
        }
        let line = match (input, &origin) {
            (Input::File { text, .. }, Origin::Line(_, line)) => {
                text.lines().nth(line - 1).unwrap_or_default()
            }
            _ => "",
        };
        let found = if is_of_configuration(line) {
            format!("`{}`", excerpt(&hide_password(line.trim())))
        } else {
            // The file may be one of secrets, given as a configuration by mistake.
            "a line".to_owned()
        };
        let wrong = if reason.contains(DUPLICATE) {
            WrongEntry::Twice(found)
        } else {
            WrongEntry::NotToml { found, reason: reason.to_owned() }
        };
        self.findings.mistake(origin, "", wrong);
    }

    fn read_root_entry(&mut self, input: &Input<'_>, entry: Entry<'_>) {
        let Entry { key, value } = entry;
        let name = key.get_ref().as_ref();
        let Some(&table) = tables().iter().find(|table| **table == name) else {
            let place = Place { prefix: "", index: None, here: &[Section::Top, Section::Source] };
            return self.read_entry(input, &place, entry);
        };
        match value.get_ref() {
            DeValue::Table(entries) => {
                let prefix = &format!("{table}.");
                let here = &[Section::Table(table)];
                for (key, value) in entries.iter() {
                    self.read_entry(input, &Place { prefix, index: None, here }, Entry { key, value });
                }
            }
            _ => {
                let wrong = WrongEntry::NoSection(name.to_owned());
                self.findings.mistake(input.origin(&value.span()), name, wrong);
            }
        }
    }

    /// Reads one setting. Reports a mistake if its key is not known in this place.
    fn read_entry(&mut self, input: &Input<'_>, place: &Place<'_>, entry: Entry<'_>) {
        let Place { prefix, index, here } = *place;
        let Entry { key, value } = entry;
        let name = key.get_ref().as_ref();
        match rows_of_file().find(|row| row.key == name && here.contains(&row.section)) {
            Some(row) => {
                let value = Value { toml: value, directory: input.directory() };
                self.findings.read(row, index, input, value, &mut self.settings);
            }
            None => {
                let shown = format!("{prefix}{}", excerpt(name).escape_debug());
                let wrong = explain_unknown(name, value.get_ref(), here);
                self.findings.mistake(input.origin(&key.span()), shown, wrong);
            }
        }
    }

    fn read_sources(&mut self, input: &Input<'_>, entry: Entry<'_>) {
        let tables = self.tables_of("sources", 1..=SOURCES_MAX, input, entry);
        if tables.is_empty() {
            return;
        }
        let common = self.settings.sources.remove(0);
        for (index, table) in tables.into_iter().enumerate() {
            self.settings.sources.push(common.clone());
            self.read_table("sources", index, input, table, &[Section::Source, Section::SourceAlone]);
        }
    }

    fn read_identities(&mut self, input: &Input<'_>, entry: Entry<'_>) {
        let tables = self.tables_of("identities", 0..=IDENTITIES_MAX, input, entry);
        for (index, table) in tables.into_iter().enumerate() {
            self.settings.identities.push(IdentitySettings::default());
            self.read_table("identities", index, input, table, &[Section::Identity]);
        }
    }

    /// Returns the tables of a list, with their places. Returns none if there are too many or too
    /// few, or no list.
    fn tables_of<'v>(
        &mut self,
        list: &'static str,
        allowed: RangeInclusive<usize>,
        input: &Input<'_>,
        entry: Entry<'v>,
    ) -> Vec<Listed<'v>> {
        let place = input.origin(&entry.key.span());
        let items = entry.value.get_ref().as_array();
        let tables: Option<Vec<Listed<'v>>> = items.and_then(|items| {
            items.iter().map(|item| Some((item.span(), item.get_ref().as_table()?))).collect()
        });
        let wrong = match tables {
            Some(tables) if allowed.contains(&tables.len()) => return tables,
            Some(tables) => WrongEntry::WrongCount { list, found: tables.len(), allowed },
            None => WrongEntry::NoList(list),
        };
        self.findings.mistake(place, list, wrong);
        Vec::new()
    }

    /// Reads one table of a list.
    fn read_table(
        &mut self,
        list: &'static str,
        index: usize,
        input: &Input<'_>,
        listed: Listed<'_>,
        here: &[Section],
    ) {
        let (span, table) = listed;
        let entry = format!("{list}[{index}]");
        self.findings.origins.by_key.insert(entry.clone(), input.origin(&span));
        let place = Place { prefix: &format!("{entry}."), index: Some(index), here };
        for (key, value) in table.iter() {
            self.read_entry(input, &place, Entry { key, value });
        }
        if !table.contains_key("name") {
            self.findings.mistake(input.origin(&span), format!("{entry}.name"), WrongEntry::NoName(list));
        }
    }
}

/// A key of a file, and its value.
#[derive(Clone, Copy)]
struct Entry<'v> {
    key: &'v Spanned<DeString<'v>>,
    value: &'v Spanned<DeValue<'v>>,
}

/// The place of entries in a file.
struct Place<'p> {
    /// The beginning of the entries' full keys.
    prefix: &'p str,
    /// The index of the entries' table in a list.
    index: Option<usize>,
    /// The sections whose settings are allowed here.
    here: &'p [Section],
}

/// A table in a list of tables, and its place.
type Listed<'v> = (Range<usize>, &'v DeTable<'v>);

/// Explains a key that is not known in these sections: where it belongs, which key was probably
/// meant, or which are allowed. A list of tables never counts as a setting, whatever its key.
fn explain_unknown(name: &str, value: &DeValue<'_>, here: &[Section]) -> WrongEntry {
    let is_section =
        value.as_array().is_some_and(|items| items.iter().any(|item| item.get_ref().as_table().is_some()));
    let places: Vec<String> =
        rows_of_file().filter(|row| row.key == name && !is_section).map(|row| row.section.place()).collect();
    if !places.is_empty() {
        return WrongEntry::Elsewhere(places);
    }
    let sections = tables().into_iter().map(|table| (table, format!("[{table}]")));
    let sections = sections.chain(["sources", "identities"].map(|list| (list, format!("[[{list}]]"))));
    let sections_here: Vec<_> = sections.filter(|_| here.contains(&Section::Top)).collect();
    let rows_here: Vec<&Row> = rows_of_file().filter(|row| here.contains(&row.section)).collect();
    // A section is none of the settings that have a single value.
    let is_section_here = (is_section || value.as_table().is_some()) && !sections_here.is_empty();
    let meant = if is_section_here {
        nearest(name, sections_here.iter().cloned())
    } else {
        let here = rows_here.iter().map(|row| (row.key.to_owned(), format!("`{}`", row.key)));
        let elsewhere = rows_of_file().filter(|row| !is_section || row.key != name).flat_map(|row| {
            let meant = format!("`{}`, {}", row.key, row.section.place());
            let with_section = match row.section {
                Section::Table(table) => format!("{table}_{}", row.key),
                _ => row.key.to_owned(),
            };
            [(row.key.to_owned(), meant.clone()), (with_section, meant)]
        });
        let sections = sections_here.iter().map(|(key, meant)| ((*key).to_owned(), meant.clone()));
        nearest(name, here.chain(sections).chain(elsewhere))
    };
    match meant {
        Some(meant) => WrongEntry::Misspelt(meant),
        None => {
            let known: Vec<String> = if is_section_here {
                sections_here.into_iter().map(|(_, section)| section).collect()
            } else {
                rows_here.iter().map(|row| row.key.to_owned()).collect()
            };
            WrongEntry::Unknown(known)
        }
    }
}

/// Returns the suggestion for a key at the top of a file.
#[cfg(test)]
pub(super) fn suggestion_at_the_top(name: &str) -> Option<String> {
    match explain_unknown(name, &DeValue::Boolean(true), &[Section::Top, Section::Source]) {
        WrongEntry::Misspelt(meant) => Some(meant),
        _ => None,
    }
}
