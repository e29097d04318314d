//! The mistakes of a configuration: what was found, where, and what is allowed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::setting::Row;

/// The place where a setting was given. Mistakes are printed in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line of the configuration file, counted from 1.
    Line(Arc<Path>, usize),
    /// A command-line option or an environment variable, by its name: `--listen`,
    /// `SNOWBANK_LISTEN`.
    Override(String),
    /// Nowhere: the setting has its default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Line(file, line) => write!(f, "{}:{line}", file.display()),
            Origin::Override(name) => f.write_str(name),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// The place of each setting that was given, by its full key: `listen`, `limits.max_wait`,
/// `sources[1].layout`. Also of each source and identity of the file, as in `sources[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    pub(super) by_key: BTreeMap<String, Origin>,
    /// A line for each value that an option or a variable overrides.
    pub overridden: Vec<String>,
}

impl Origins {
    /// Returns the place where a setting was given.
    pub(super) fn of(&self, key: &str) -> Origin {
        self.by_key.get(key).cloned().unwrap_or(Origin::Default)
    }

    pub(super) fn is_given(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// Returns the full key and the place of a setting of a source. The setting is in the source's
    /// own entry, or at the top of the file for all sources. The place of a default is the source's
    /// entry.
    pub(super) fn in_source(&self, index: usize, key: &str) -> (String, Origin) {
        let entry = format!("sources[{index}]");
        let own = format!("{entry}.{key}");
        if !self.is_given(&own) && self.is_given(key) {
            return (key.to_owned(), self.of(key));
        }
        let place = if self.is_given(&own) { self.of(&own) } else { self.of(&entry) };
        (own, place)
    }

    /// Returns the place of a setting, which may belong to a source or an identity.
    pub(super) fn origin_of(&self, row: &Row, index: Option<usize>) -> Origin {
        match index {
            Some(index) if row.is_of_source() => self.in_source(index, row.key).1,
            _ => self.of(&row.full_key(index)),
        }
    }
}

/// One mistake: `FILE:LINE: key: what was found, what is allowed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place of the mistake.
    pub origin: Origin,
    /// The full key of the setting, as in [`Origins`]; empty if the mistake belongs to no setting.
    pub key: String,
    /// The line that says what was found, what is allowed and what to do.
    pub text: String,
    /// True if the clock may be at fault, and not the setting: the mistake goes away once the clock
    /// is right.
    pub is_clock_behind: bool,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        // The name of an option or a variable names the setting already.
        if !self.key.is_empty() && !matches!(self.origin, Origin::Override(_)) {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.text)
    }
}

/// Mistakes of a configuration, at least one. First come those of the file in its order, then those
/// of options and variables, then those of defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub(super) Vec<Mistake>);

impl Mistakes {
    /// Returns `None` if there is no mistake.
    pub(super) fn new(mut mistakes: Vec<Mistake>) -> Option<Self> {
        mistakes.sort_by(|left, right| {
            (&left.origin, &left.key, &left.text).cmp(&(&right.origin, &right.key, &right.text))
        });
        // A mistake in a setting at the top of the file is found again for each source.
        mistakes.dedup();
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }

    /// Returns the number of mistakes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if all mistakes go away once the clock is right.
    pub fn are_all_of_the_clock(&self) -> bool {
        self.0.iter().all(|mistake| mistake.is_clock_behind)
    }

    /// Returns the first mistake and the number of the others, in one line: the message of `serve`
    /// when it refuses to start.
    pub fn first_line(&self) -> String {
        match &self.0[..] {
            [] => String::new(),
            [only] => only.to_string(),
            [first, others @ ..] => {
                let mistakes = if others.len() == 1 { "mistake" } else { "mistakes" };
                format!("{first} (and {} more {mistakes}; `snowbank check` names them all)", others.len())
            }
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
