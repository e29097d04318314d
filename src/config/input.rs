//! The findings of reading a configuration: where each setting was given, and its mistakes.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Settings;
use super::mistake::{Mistake, Origin, Origins};
use super::setting::Row;
use super::value::Value;
use snowbank_wire::one_line;

/// The file, option or variable that values come from. The input gives mistakes their place.
pub(super) enum Input<'i> {
    /// A configuration file: its path, its text, and where its lines end.
    File { path: Arc<Path>, text: &'i str, line_ends: Vec<usize> },
    /// An option or an environment variable, by its name.
    Override(&'i str),
}

impl<'i> Input<'i> {
    pub(super) fn file(path: &Path, text: &'i str) -> Self {
        let line_ends = text.match_indices('\n').map(|(index, _)| index).collect();
        Input::File { path: path.into(), text, line_ends }
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        match self {
            Input::Override(name) => Origin::Override((*name).to_owned()),
            Input::File { path, line_ends, .. } => {
                let lines_before = line_ends.partition_point(|&end| end < span.start);
                Origin::Line(Arc::clone(path), 1 + lines_before)
            }
        }
    }

    /// Returns the directory where relative paths start; empty for an override.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Input::File { path, .. } => path.parent().unwrap_or(Path::new("")),
            Input::Override(_) => Path::new(""),
        }
    }
}

/// The mistakes so far, and the place of each setting that was given.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) origins: Origins,
    pub(super) mistakes: Vec<Mistake>,
}

impl Findings {
    pub(super) fn mistake(&mut self, origin: Origin, key: impl Into<String>, text: impl Display) {
        // A message is one line, even if a library's text or a value has several.
        let text = one_line(&text.to_string());
        self.mistakes.push(Mistake { origin, key: key.into(), text, is_clock_behind: false });
    }

    /// Reports a mistake at the place where this setting was given.
    pub(super) fn mistake_of(&mut self, key: &str, text: impl Display) {
        self.mistake(self.origins.of(key), key, text);
    }

    /// Reports a mistake at the place where this setting of a source was given.
    pub(super) fn mistake_of_source(&mut self, index: usize, key: &str, text: impl Display) {
        let (full, origin) = self.origins.in_source(index, key);
        self.mistake(origin, full, text);
    }

    /// Reports a mistake that goes away once the clock is right.
    pub(super) fn clock_behind(&mut self, index: usize, text: impl Display) {
        let (key, origin) = self.origins.in_source(index, "layout");
        self.mistakes.push(Mistake { origin, key, text: text.to_string(), is_clock_behind: true });
    }

    /// Returns whether a setting of a source was given, for this source alone or for all.
    pub(super) fn is_given_to(&self, index: usize, key: &str) -> bool {
        self.origins.is_given(&self.origins.in_source(index, key).0)
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
        let earlier = self.origins.origin_of(row, source);
        let before = (row.show)(settings, source.unwrap_or(0));
        if let Err(refused) = (row.read)(settings, source.unwrap_or(0), value) {
            self.mistake(origin.clone(), &*key, refused);
        }
        let value = (row.show)(settings, source.unwrap_or(0));
        if let Origin::Override(name) = &origin
            && earlier != Origin::Default
            && before != value
        {
            let line = format!("{earlier}: {key} = {before} is not in force: {name} sets it to {value}");
            self.origins.overridden.push(line);
        }
        self.origins.by_key.insert(key, origin);
    }
}
