//! The tables of settings. Each setting has one row, from which most else about it follows.

use toml::de::DeValue;

use super::Settings;
use super::refused::Refused;
use super::value::Value;

/// When a change of a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// At a reload.
    Reload,
    /// Only at a restart, for this reason. A reload refuses the change.
    Restart(&'static str),
}

/// The reason why the addresses of listeners change only at a restart.
pub(crate) const LISTENERS_OPENED: &str = "listeners are opened at the start";

/// The place of a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// At the top of the file, for the whole daemon.
    Top,
    /// In the table of this name.
    Table(&'static str),
    /// At the top of the file for every source, or in one of `[[sources]]` for that source.
    Source,
    /// Only in each `[[sources]]`.
    SourceAlone,
    /// In each `[[identities]]`.
    Identity,
}

impl Section {
    /// Returns where to put a setting of this section, for an error message.
    pub(crate) fn place(self) -> String {
        match self {
            Section::Table(table) => format!("in [{table}]"),
            Section::SourceAlone => "in [[sources]]".into(),
            Section::Identity => "in [[identities]]".into(),
            Section::Top => "at the top of the file, above the first [section]".into(),
            Section::Source => "at the top of the file, above the first [section], or in [[sources]]".into(),
        }
    }
}

/// One setting. Its functions take an index, which only the settings of sources and identities use.
pub(crate) struct Row {
    pub(crate) section: Section,
    /// The setting's name in its section.
    pub(crate) key: &'static str,
    /// The setting's default, as a file would have it.
    pub(crate) default: &'static str,
    /// The setting's meaning, its unit, and the reason for its default. An empty line ends a
    /// paragraph.
    #[cfg(test)]
    pub(crate) doc: &'static str,
    /// When a change of the setting takes effect.
    pub(crate) change: Change,
    /// Reads a value into its field.
    pub(crate) read: fn(&mut Settings, usize, Value<'_>) -> Result<(), Refused>,
    /// Returns the value of its field, as a file would have it. A reload compares these texts.
    pub(crate) show: fn(&Settings, usize) -> String,
}

impl Row {
    /// Returns true if each source has its own value of this setting.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(self.section, Section::Source | Section::SourceAlone)
    }

    /// Returns the key with its section, or with the index of its source or identity:
    /// `limits.max_wait`, `sources[1].layout`.
    pub(crate) fn full_key(&self, source: Option<usize>) -> String {
        match (source, self.section) {
            (Some(index), Section::Identity) => format!("identities[{index}].{}", self.key),
            (Some(index), _) => format!("sources[{index}].{}", self.key),
            (None, Section::Table(table)) => format!("{table}.{}", self.key),
            (None, _) => self.key.to_owned(),
        }
    }

    /// Returns the name of the setting's environment variable: `SNOWBANK_`, its section and its key
    /// in capitals.
    pub(crate) fn variable(&self) -> String {
        format!("SNOWBANK_{}", self.full_key(None).replace('.', "_").to_uppercase())
    }
}

/// Defines a struct of settings and its table of rows. A row has a field's meaning, type and
/// default, when a change takes effect, and how a value is read within its bounds.
///
/// All rows are in the section after the first `in`, unless a row names its own. The expression
/// after `at` finds the struct in [`Settings`], by the index of its source or identity if it has
/// one. The fields after `and` are not settings.
macro_rules! settings {
    (@section $of_all:expr) => { $of_all };
    (@section $of_all:expr, $own:expr) => { $own };
    (
        $(#[$meta:meta])*
        pub struct $name:ident in $section:expr, at |$settings:ident, $index:ident| ($place:expr) {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:literal $(in $own:expr)?, $change:expr, $read:expr;
            )*
        }
        $(and {
            $( $(#[$other_meta:meta])* $other:ident: $other_type:ty, )*
        })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $type, )*
            $( $( $(#[$other_meta])* pub $other: $other_type, )* )?
        }

        impl $name {
            pub(crate) const ROWS: &'static [$crate::config::setting::Row] = &[$(
                $crate::config::setting::Row {
                    section: settings!(@section $section $(, $own)?),
                    key: stringify!($field),
                    default: $default,
                    #[cfg(test)]
                    doc: concat!($($doc, "\n"),+),
                    change: $change,
                    read: |$settings, $index, value| {
                        $crate::config::setting::read_into(&mut $place.$field, value, $read)
                    },
                    show: |$settings, $index| $crate::config::units::Written::written(&$place.$field),
                },
            )*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $( $field: $crate::config::setting::default_of($default, $read), )*
                    $( $( $other: Default::default(), )* )?
                }
            }
        }
    };
}

/// Reads a value into its field. A field keeps its value if the new one is refused.
pub(crate) fn read_into<T>(
    field: &mut T,
    value: Value<'_>,
    read: impl Fn(Value<'_>) -> Result<T, Refused>,
) -> Result<(), Refused> {
    *field = read(value)?;
    Ok(())
}

/// Reads a default from its row. Tests read every default.
pub(crate) fn default_of<T>(text: &str, read: impl Fn(Value<'_>) -> Result<T, Refused>) -> T {
    let value = DeValue::parse(text).ok();
    let value = value.and_then(|value| read(Value::without_directory(&value)).ok());
    value.unwrap_or_else(|| panic!("{text} is the default of a setting that refuses it"))
}
