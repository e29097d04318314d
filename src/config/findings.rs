//! The findings of reading a configuration: where each setting was given, and its mistakes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Settings;
use super::mistake::{Mistake, Origin, Origins};
use super::setting::Row;
use super::value::{Value, excerpt};
use snowbank_client::protocol::one_line;

/// The origin of values, for the place of a mistake.
pub(super) enum Input<'i> {
    /// A configuration file.
    File(File<'i>),
    /// An option or an environment variable, by its name.
    Override(&'i str),
}

/// A configuration file: its path, and its text by lines.
pub(super) struct File<'i> {
    path: Arc<Path>,
    text: &'i str,
    /// The byte after each line feed, ascending.
    line_starts: Vec<usize>,
}

impl<'i> Input<'i> {
    pub(super) fn file(path: &Path, text: &'i str) -> Self {
        let line_starts = text.match_indices('\n').map(|(index, _)| index + 1).collect();
        Input::File(File { path: path.into(), text, line_starts })
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        match self {
            Input::Override(name) => Origin::Override((*name).to_owned()),
            Input::File(file) => Origin::Line(Arc::clone(&file.path), 1 + file.line_index(span)),
        }
    }

    /// Returns the directory where relative paths start; empty for an override.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Input::File(file) => file.path.parent().unwrap_or(Path::new("")),
            Input::Override(_) => Path::new(""),
        }
    }

    /// Returns the start of the line on which this begins.
    fn excerpt(&self, span: &Range<usize>) -> String {
        let Input::File(file) = self else { return String::new() };
        let starts = &file.line_starts;
        let index = file.line_index(span);
        let start = if index == 0 { 0 } else { starts[index - 1] };
        let end = starts.get(index).copied().unwrap_or(file.text.len());
        excerpt(file.text.get(start..end).unwrap_or_default().trim())
    }
}

impl File<'_> {
    /// Returns the line on which this begins, counted from 0.
    fn line_index(&self, span: &Range<usize>) -> usize {
        self.line_starts.partition_point(|&start| start <= span.start)
    }
}

/// The mistakes so far, and the place of each setting that was given.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) origins: Origins,
    pub(super) mistakes: Vec<Mistake>,
    /// Full keys of settings that were given and refused. They have their defaults, so comparing
    /// them with other settings would report false mistakes.
    refused: BTreeSet<String>,
    /// Lines that are not TOML. The parser guesses their meaning, so mistakes found in them are not
    /// reported.
    broken: BTreeSet<Origin>,
}

impl Findings {
    /// Creates findings without a mistake, for settings that were read before.
    pub(super) fn at(origins: Origins) -> Self {
        Findings { origins, ..Findings::default() }
    }

    pub(super) fn mistake(&mut self, origin: Origin, key: impl Into<String>, text: impl Into<String>) {
        let mistake = Mistake { origin, key: key.into(), text: text.into(), is_clock_behind: false };
        self.push(mistake);
    }

    /// Reports a mistake that passes once the clock is right.
    pub(super) fn clock_behind(&mut self, origin: Origin, key: String, text: String) {
        self.push(Mistake { origin, key, text, is_clock_behind: true });
    }

    fn push(&mut self, mut mistake: Mistake) {
        // A message is one line, even if a library's text or a value has several.
        mistake.text = one_line(&mistake.text);
        if !self.broken.contains(&mistake.origin) {
            self.mistakes.push(mistake);
        }
    }

    /// Reports a mistake at the place where this setting was given.
    pub(super) fn mistake_of(&mut self, key: &str, text: impl Into<String>) {
        let origin = self.origins.of(key).cloned().unwrap_or(Origin::Default);
        self.mistake(origin, key, text);
    }

    /// Reports a line that is not TOML, once: further errors of the line mostly follow from the
    /// first.
    pub(super) fn not_toml(&mut self, input: &Input<'_>, span: &Range<usize>, reason: &str) {
        let origin = input.origin(span);
        let found = input.excerpt(span);
        let text =
            format!("found `{found}`, which is not TOML: {reason}; write KEY = VALUE, and texts in quotes");
        self.mistake(origin.clone(), "", text);
        self.broken.insert(origin);
    }

    /// Reads one value into its setting.
    pub(super) fn read(
        &mut self,
        row: &Row,
        source: Option<usize>,
        input: &Input<'_>,
        value: Value<'_>,
        settings: &mut Settings,
    ) {
        let key = row.full_key(source);
        let origin = input.origin(&value.toml.span());
        // A later value (an option) overrides an earlier one that was refused.
        self.refused.remove(&key);
        let of_file = self.origins.place_of(row, source).1;
        let before = (row.show)(settings, source.unwrap_or(0));
        if let Err(refusal) = (row.read)(settings, source.unwrap_or(0), value) {
            for problem in refusal.0 {
                let origin = problem.span.map_or(origin.clone(), |span| input.origin(&span));
                self.mistake(origin, &*key, problem.text);
            }
            self.refused.insert(key.clone());
        } else if self.broken.contains(&origin) {
            self.refused.insert(key.clone());
        }
        let value = (row.show)(settings, source.unwrap_or(0));
        if let (Origin::Override(name), Origin::Line(..)) = (&origin, &of_file)
            && before != value
        {
            let line = format!("{of_file}: {key} = {before} is not in force: {name} sets it to {value}");
            self.origins.overridden.push(line);
        }
        self.origins.by_key.insert(key, origin);
    }

    /// Returns whether this setting was given and refused.
    pub(super) fn is_refused(&self, key: &str) -> bool {
        self.refused.contains(key)
    }
}
