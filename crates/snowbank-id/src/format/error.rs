//! The errors of formats. Each is one line with what was found, what is allowed, and what to do.

use super::base::BASE_MAX;
use super::{LARGEST_ID, NAMES};
use crate::layout::LayoutError;

/// The most characters of a text that a message repeats. Any text of a format fits.
const EXCERPT_CHARS_MAX: usize = 80;

/// The reason why a format, a text or an ID is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// No format has this name.
    #[error("no format is called {name:?}; the formats are {NAMES}")]
    Unknown {
        /// The name.
        name: String,
    },

    /// A dictionary has a character that is not allowed.
    #[error(
        "the dictionary {dictionary:?} has the character {found:?}; allowed: printable characters of ASCII, \
         without the space"
    )]
    DictionaryCharacter {
        /// The dictionary.
        dictionary: String,
        /// The character.
        found: char,
    },

    /// A dictionary has one character twice.
    #[error(
        "the dictionary {dictionary:?} has {found:?} twice; allowed: 2 to {BASE_MAX} distinct characters"
    )]
    DictionaryTwice {
        /// The dictionary.
        dictionary: String,
        /// The character.
        found: char,
    },

    /// A dictionary has no two characters.
    #[error("the dictionary {dictionary:?} is too short; allowed: 2 to {BASE_MAX} distinct characters")]
    DictionaryTooShort {
        /// The dictionary.
        dictionary: String,
    },

    /// The source has no layout, and the format carries the instant of an ID.
    #[error(
        "{format} carries the time of an ID, and the numbers of {name:?} have none: choose a format without a \
         time, such as uuidv8"
    )]
    NoTime {
        /// The format.
        format: String,
        /// The source's name.
        name: String,
    },

    /// The number is not an ID.
    #[error("{id} is not an ID: IDs end at {LARGEST_ID}")]
    IdTooLarge {
        /// The number.
        id: u64,
    },

    /// The ID is not of the layout.
    #[error(transparent)]
    Layout(LayoutError),

    /// The format cannot hold the instant of the ID.
    #[error("ID {id} is of {instant}, and {format} holds times from {holds}; choose a format without a time")]
    OutsideTime {
        /// The ID.
        id: u64,
        /// Its instant.
        instant: String,
        /// The format.
        format: &'static str,
        /// The times that it can hold.
        holds: &'static str,
    },

    /// There is no text.
    #[error("found no digits; allowed: the text of an ID in {format}")]
    Empty {
        /// The format.
        format: String,
    },

    /// The text has a character that is no digit of the format.
    #[error(
        "{text:?} has the character {found:?}, which {format} does not use; its characters are {allowed}"
    )]
    Character {
        /// The text.
        text: String,
        /// The character.
        found: char,
        /// The format.
        format: String,
        /// The digits of the format.
        allowed: String,
    },

    /// The number of the text is above the largest ID.
    #[error("{text:?} is above the largest ID, {LARGEST_ID}, in {format}; is it of another format?")]
    TextTooLarge {
        /// The text.
        text: String,
        /// The format.
        format: String,
    },

    /// The check symbol does not fit.
    #[error(
        "{text:?} ends with the check symbol {found:?}, and its other symbols need {wanted:?}; compare the text"
    )]
    Check {
        /// The text.
        text: String,
        /// The last symbol.
        found: char,
        /// The check symbol of the others.
        wanted: char,
    },

    /// The text does not have the shape of the format.
    #[error("{text:?} is not of format {format}: allowed is {allowed}")]
    Shape {
        /// The text.
        text: String,
        /// The format.
        format: &'static str,
        /// The shape.
        allowed: &'static str,
    },

    /// The text has the right shape, and was made by another program, or for another source or layout.
    #[error("{text:?} is not an ID in {format}: {found}")]
    OtherMaker {
        /// The text.
        text: String,
        /// The format.
        format: &'static str,
        /// The difference, and what to do.
        found: String,
    },

    /// The format `alias` has no keys.
    #[error(
        "alias needs keys, and none are given; name a file of them: for each version a line with its number, a \
         blank and 64 hexadecimal digits"
    )]
    NoAliasKeys,

    /// A line of the keys is not a version and a key.
    #[error(
        "line {line} has {found}; allowed: a version from 1 to 65535, a blank, and 64 hexadecimal digits"
    )]
    AliasKey {
        /// The line, from 1 on.
        line: usize,
        /// The fault, without a character of the line.
        found: &'static str,
    },

    /// Two keys have one version.
    #[error("line {line} has version {version} again; give each key its own version")]
    AliasKeyTwice {
        /// The line, from 1 on.
        line: usize,
        /// The version.
        version: u16,
    },

    /// There is no key.
    #[error(
        "there is no key; allowed: lines of a version from 1 to 65535, a blank, and 64 hexadecimal digits"
    )]
    NoAliasKey,

    /// The alias was made under another key.
    #[error(
        "{text:?} is under key version {version}, and the keys have {known}; add the key of that version"
    )]
    AliasVersion {
        /// The text.
        text: String,
        /// The version in it.
        version: u16,
        /// The versions of the keys.
        known: String,
    },
}

impl FormatError {
    pub(super) fn unknown(name: &str) -> Self {
        FormatError::Unknown { name: excerpt(name) }
    }

    pub(super) fn character(text: &str, found: char, format: &str, allowed: String) -> Self {
        FormatError::Character { text: excerpt(text), found, format: format.to_owned(), allowed }
    }

    pub(super) fn too_large(text: &str, format: &str) -> Self {
        FormatError::TextTooLarge { text: excerpt(text), format: format.to_owned() }
    }

    pub(super) fn check(text: &str, found: char, wanted: char) -> Self {
        FormatError::Check { text: excerpt(text), found, wanted }
    }

    pub(super) fn shape(text: &str, format: &'static str, allowed: &'static str) -> Self {
        FormatError::Shape { text: excerpt(text), format, allowed }
    }

    #[cfg(feature = "alias")]
    pub(super) fn alias_version(text: &str, version: u16, known: String) -> Self {
        FormatError::AliasVersion { text: excerpt(text), version, known }
    }

    pub(super) fn other_maker(text: &str, format: &'static str, found: impl Into<String>) -> Self {
        FormatError::OtherMaker { text: excerpt(text), format, found: found.into() }
    }
}

/// Returns a text as a message repeats it: all of it, or its start and an ellipsis.
pub(super) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
