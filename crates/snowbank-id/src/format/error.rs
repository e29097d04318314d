//! The error of formats, and its words.

use std::fmt;

use super::base::BASE_MAX;
use super::{LAST_ID, NAMES};
use crate::layout::{LayoutError, UnixMicros};

/// The reason for refusing a format, a text or an ID. `Display` writes one line that says what was
/// found, what is allowed, and what to do. Long texts are cut.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// No format has this name.
    #[error("no format is called {0:?}; the formats are {NAMES}")]
    UnknownFormat(String),
    /// The format carries the time of an ID, and the source has no layout.
    #[error(
        "{format} carries the time of an ID, and the numbers of {source_name:?} have none: choose a format without \
         a time, such as uuidv8"
    )]
    NeedsLayout {
        /// The name of the format.
        format: String,
        /// The name of the source.
        source_name: String,
    },
    /// The format needs keys.
    #[error(
        "alias needs keys, and none are given; name a file of them: for each version a line with its number, a \
         blank and 64 hexadecimal digits"
    )]
    NeedsKeys,
    /// A character of a dictionary is not printable, or not of ASCII.
    #[error(
        "the dictionary {dictionary:?} has the character {found:?}; allowed: printable characters of ASCII, without \
         the space"
    )]
    DictionaryCharacter {
        /// The characters of the dictionary.
        dictionary: String,
        /// The character.
        found: char,
    },
    /// A dictionary has a character twice.
    #[error(
        "the dictionary {dictionary:?} has {found:?} twice; allowed: 2 to {BASE_MAX} distinct characters"
    )]
    DictionaryTwice {
        /// The characters of the dictionary.
        dictionary: String,
        /// The character.
        found: char,
    },
    /// The dictionary has fewer than two characters.
    #[error("the dictionary {0:?} is too short; allowed: 2 to {BASE_MAX} distinct characters")]
    DictionaryTooShort(String),
    /// The number is too large for an ID.
    #[error("{0} is not an ID: IDs end at {LAST_ID}")]
    NotAnId(u64),
    /// The layout of the source does not have the ID.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The format cannot hold the instant of the ID.
    #[error(
        "ID {id} is of {instant}, and {format} holds times from {holds}; choose a format without a time",
        instant = .instant.rfc3339(*.decimals)
    )]
    OutsideTime {
        /// The ID.
        id: u64,
        /// The instant.
        instant: UnixMicros,
        /// The decimals of a second in the instants of the layout.
        decimals: u8,
        /// The name of the format.
        format: &'static str,
        /// The first and the last date of the format.
        holds: &'static str,
    },
    /// The text has no digits.
    #[error("found no digits; allowed: the text of an ID in {0}")]
    NoDigits(String),
    /// A character of the text is no digit of the format.
    #[error("{text:?} has the character {found:?}, which {format} does not use; its characters are {digits}")]
    WrongCharacter {
        /// The text.
        text: String,
        /// The character.
        found: char,
        /// The name of the format.
        format: String,
        /// The digits of the format.
        digits: String,
    },
    /// The text is of a number above the largest ID.
    #[error("{text:?} is above the largest ID, {LAST_ID}, in {format}; is it of another format?")]
    TooLarge {
        /// The text.
        text: String,
        /// The name of the format.
        format: String,
    },
    /// The check symbol is not that of the symbols before it.
    #[error(
        "{text:?} ends with the check symbol {found:?}, and the symbols before it need {wanted:?}; compare the text \
         with the original"
    )]
    CheckSymbol {
        /// The text.
        text: String,
        /// Its last symbol.
        found: char,
        /// The check symbol of the other symbols.
        wanted: char,
    },
    /// The text does not have the shape of the format.
    #[error("{text:?} is not of format {format}: allowed is {allowed}")]
    Shape {
        /// The text.
        text: String,
        /// The name of the format.
        format: &'static str,
        /// The shape.
        allowed: &'static str,
    },
    /// The text has the right shape, and another program, source or layout made it.
    #[error("{text:?} is not an ID in {format}: {found}")]
    OtherMaker {
        /// The text.
        text: String,
        /// The name of the format.
        format: &'static str,
        /// The part that does not fit.
        found: Mismatch,
    },
    /// The keys do not have the version of the alias.
    #[error(
        "{text:?} is under key version {version}, and the keys have {}; add the key of that version",
        list(.known)
    )]
    UnknownKeyVersion {
        /// The text.
        text: String,
        /// The version in the text.
        version: u16,
        /// The versions of the keys.
        known: Vec<u16>,
    },
    /// A line of a key file has another form. The characters of the line are not shown.
    #[error("line {line} has {found}; allowed: {KEY_LINE}")]
    KeyLine {
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        found: &'static str,
    },
    /// Two lines of a key file have the same version.
    #[error("line {line} has version {version} again; give each key its own version")]
    KeyVersionTwice {
        /// The number of the second line, from 1.
        line: usize,
        /// The version.
        version: u16,
    },
    /// A key file has no key.
    #[error("there is no key; allowed: lines of {KEY_LINE}")]
    NoKeys,
}

const KEY_LINE: &str = "a version from 1 to 65535, a blank, and 64 hexadecimal digits";

/// The part of a text that shows that its maker is another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The seconds of an ObjectId.
    #[error("its first 4 bytes are not the seconds of the ID in the other 8; give the layout of its IDs")]
    Seconds,
    /// The milliseconds of a UUID.
    #[error("its milliseconds are not those of the ID in it; give the layout of its IDs")]
    Milliseconds,
    /// The digest in a UUID.
    #[error("its digest is not that of this source's name; name the source that made it")]
    Digest,
    /// The version of a UUID.
    #[error("it is not a UUID of version {wanted} of RFC 9562")]
    Version {
        /// The version of the format.
        wanted: u8,
    },
}

fn list(versions: &[u16]) -> impl fmt::Display {
    versions.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
