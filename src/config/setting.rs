//! What the tables of settings are made of: a row for each setting.

use super::value::{Refusal, Value};

/// What the rows of a table read into, and what becomes of it once it is settled.
pub(super) trait Draft {
    /// What the daemon runs with.
    type Settled;
}

/// When a change of a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// At a reload.
    Reload,
    /// At a restart alone, for this reason: a reload is refused.
    Restart(&'static str),
}

/// Where a setting may stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// At the top of the file, for the whole daemon.
    Top,
    /// In `[limits]`.
    Limits,
    /// In `[clock]`.
    Clock,
    /// In `[auth]`.
    Auth,
    /// In `[tls]`.
    Tls,
    /// In `[admin]`.
    Admin,
    /// In `[log]`.
    Log,
    /// At the top of the file, for every source, and in each `[[sources]]`, for that one.
    Source,
    /// In each `[[sources]]` alone.
    SourceAlone,
}

impl Section {
    /// The sections that are a table of the file, by their names there.
    pub(super) const TABLES: [(&'static str, Section); 6] = [
        ("limits", Section::Limits),
        ("clock", Section::Clock),
        ("auth", Section::Auth),
        ("tls", Section::Tls),
        ("admin", Section::Admin),
        ("log", Section::Log),
    ];

    /// What stands before a setting's name in its full key.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Section::Limits => "limits.",
            Section::Clock => "clock.",
            Section::Auth => "auth.",
            Section::Tls => "tls.",
            Section::Admin => "admin.",
            Section::Log => "log.",
            Section::Top | Section::Source | Section::SourceAlone => "",
        }
    }

    /// Where to put a setting of this section, as an error says it.
    pub(super) fn place(self) -> &'static str {
        match self {
            Section::Limits => "in [limits]",
            Section::Clock => "in [clock]",
            Section::Auth => "in [auth]",
            Section::Tls => "in [tls]",
            Section::Admin => "in [admin]",
            Section::Log => "in [log]",
            Section::SourceAlone => "in [[sources]]",
            Section::Top => "at the top of the file, above the first [section]",
            Section::Source => "at the top of the file, above the first [section], or in [[sources]]",
        }
    }
}

/// One setting: a row of the table that reads configurations and prints the reference.
pub(super) struct Setting<T: Draft + 'static> {
    pub(super) section: Section,
    /// Its name in its section.
    pub(super) key: &'static str,
    /// Its default, as it would be written in the file.
    pub(super) default: &'static str,
    /// Its meaning, its unit, and the reason of its default.
    pub(super) doc: &'static str,
    /// When a change of it takes effect. A source that a reload adds takes every setting.
    pub(super) change: Change,
    /// Reads a value into its field.
    pub(super) read: fn(&mut T, Value<'_>) -> Result<(), Refusal>,
    /// The value that the daemon runs with, as it would be written in the file: two are equal if these are.
    pub(super) show: fn(&T::Settled) -> String,
}

impl<T: Draft> Setting<T> {
    /// The full key, as messages and [`Origins`](super::Origins) name it; a source's own settings go by their index.
    pub(super) fn full_key(&self, source: Option<usize>) -> String {
        full_key(self.section.prefix(), self.key, source)
    }
}

/// The full key of a setting of the daemon (its section's prefix and its name) or of one source (by its index).
pub(super) fn full_key(prefix: &str, key: &str, source: Option<usize>) -> String {
    match source {
        Some(index) => format!("sources[{index}].{key}"),
        None => format!("{prefix}{key}"),
    }
}
