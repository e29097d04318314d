//! What reading a configuration brings to light: where each setting was given, and what is wrong.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::mistake::{Mistake, Origin, Origins};
use super::setting::Setting;
use super::value::Value;

/// Where values come from, to say where a mistake is.
pub(super) enum Input<'i> {
    /// A configuration file: its path, and its text.
    File(Arc<Path>, &'i str),
    /// An option or an environment variable, by its name.
    Override(&'static str),
}

impl Input<'_> {
    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        match self {
            Input::Override(name) => Origin::Override(name),
            Input::File(path, text) => {
                let before = &text.as_bytes()[..span.start.min(text.len())];
                let newlines = before.iter().filter(|&&byte| byte == b'\n').count();
                Origin::Line(Arc::clone(path), newlines + 1)
            }
        }
    }
}

/// The mistakes so far, and where each setting was given.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) origins: Origins,
    pub(super) mistakes: Vec<Mistake>,
    /// Full keys of settings that were given and refused. They are at their defaults then, so that a comparison with
    /// another setting says nothing.
    refused: BTreeSet<String>,
    /// Lines that are not TOML. What the parser makes of them is a guess, and so would be a mistake found in it.
    broken: Vec<Origin>,
}

impl Findings {
    pub(super) fn mistake(&mut self, origin: Origin, key: impl Into<String>, text: impl Into<String>) {
        let mistake = Mistake { origin, key: key.into(), text: text.into() };
        // Sources repeat what is wrong with a setting that they share.
        if !self.broken.contains(&mistake.origin) && !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    /// A mistake at the place where this setting was given.
    pub(super) fn mistake_of(&mut self, key: &str, text: String) {
        let origin = self.origins.of(key).cloned().unwrap_or(Origin::Default);
        self.mistake(origin, key, text);
    }

    /// A line that is not TOML; one mistake is enough for it, for what follows is mostly the first one's echo.
    pub(super) fn not_toml(&mut self, origin: Origin, text: String) {
        self.mistake(origin.clone(), "", text);
        self.broken.push(origin);
    }

    /// Reads one value into its setting.
    pub(super) fn read<T>(
        &mut self,
        setting: &Setting<T>,
        source: Option<usize>,
        input: &Input<'_>,
        value: Value<'_>,
        target: &mut T,
    ) {
        let key = setting.full_key(source);
        let origin = input.origin(&value.0.span());
        // A later value (an option) takes the place of an earlier one, and of what was wrong with it.
        self.refused.remove(&key);
        if let Err(refusal) = (setting.read)(target, value) {
            let origin = refusal.span.map_or(origin.clone(), |span| input.origin(&span));
            self.mistake(origin, &*key, refusal.text);
            self.refused.insert(key.clone());
        } else if self.broken.contains(&origin) {
            self.refused.insert(key.clone());
        }
        self.origins.set(key, origin);
    }

    /// Where a setting of a source was given: in its own entry, or at the top of the file for all. `None`: at its
    /// default.
    pub(super) fn given(&self, key: &str, source: usize) -> Option<(String, &Origin)> {
        [format!("sources[{source}].{key}"), key.to_owned()]
            .into_iter()
            .find_map(|key| self.origins.of(&key).map(|origin| (key, origin)))
    }

    /// Whether this setting was given and refused.
    pub(super) fn is_refused(&self, key: &str) -> bool {
        self.refused.contains(key)
    }
}
