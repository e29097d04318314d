//! The reasons why an entry of a file is refused, in words for whoever writes the file.

use std::ops::RangeInclusive;

use snowbank_fleet::WrongEndpoint;
use snowbank_id::layout::LayoutError;
use snowbank_wire::address::{Address, AddressError, UNIX_PATH_BYTES_MAX};

/// The reason why an entry is refused before its value is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongEntry {
    /// The key stands twice in one section.
    #[error(
        "found {0} a second time, allowed: once in each section; remove one, or move it: a line belongs to the section \
         above it, and what stands before the first section is the daemon's"
    )]
    Twice(String),
    /// The line is not TOML.
    #[error("found {found}, which is not TOML: {reason}; write KEY = VALUE, and texts in quotes")]
    NotToml {
        /// The line, unless it may be a secret.
        found: String,
        /// The words of the TOML library.
        reason: String,
    },
    /// The key is that of a section.
    #[error("found a value, allowed: a section, which begins with the line [{0}]")]
    NoSection(String),
    /// The key is that of a list of tables.
    #[error("found no list of {0}, allowed: [[{0}]], in double brackets, above the settings of each")]
    NoList(&'static str),
    /// A list has too many or too few tables.
    #[error("found {found} {list}, allowed: {} to {}", .allowed.start(), .allowed.end())]
    WrongCount {
        /// The key of the list.
        list: &'static str,
        /// The number of its tables.
        found: usize,
        /// How many tables the list may have.
        allowed: RangeInclusive<usize>,
    },
    /// A table of this list has no name.
    #[error("missing; each of [[{0}]] has a name of its own, as in name = \"orders\"")]
    NoName(&'static str),
    /// The key belongs to these other places.
    #[error("not known here; it belongs {}", .0.join(" or "))]
    Elsewhere(Vec<String>),
    /// The key is like this one.
    #[error("not known; did you mean {0}?")]
    Misspelt(String),
    /// The key is none of these.
    #[error("not known, allowed here: {}", .0.join(", "))]
    Unknown(Vec<String>),
}

/// The reason why a setting refuses a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The setting allows other values.
    #[error("found {found}, allowed: {allowed}")]
    Value {
        /// The value, as a message repeats it.
        found: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// The value is refused, and is not the word that is allowed besides.
    #[error("{refused}, or {word:?}")]
    OrWord {
        /// The reason without the word.
        refused: Box<Refused>,
        /// The word.
        word: &'static str,
    },
    /// A Redis coordinates no fleet.
    #[error(
        "{0}; a Redis can lose what it has acknowledged, and two daemons then have one worker ID; \
         docs/coming-from.md (katsubushi) says what to use instead"
    )]
    Redis(Box<Refused>),
    /// The path of a socket is too long once it begins at the file's directory.
    #[error("{address} is a path of {bytes} bytes, allowed: at most {UNIX_PATH_BYTES_MAX}")]
    LongPath {
        /// The socket.
        address: Address,
        /// The length of its path.
        bytes: usize,
    },
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The text is no endpoint of a coordinator.
    #[error(transparent)]
    Endpoint(#[from] WrongEndpoint),
    /// The text names no layout.
    #[error(transparent)]
    LayoutText(#[from] UnknownLayout),
    /// The layout or the worker IDs do not exist.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The table has other keys or types than a layout.
    #[error(
        "{0}; a layout's table is as {{ fields = [{{ name = \"time\", bits = 41 }}, …], epoch = \"2026-01-01\" }}"
    )]
    LayoutTable(String),
    /// Items of a list are refused.
    #[error("{}", .0.iter().map(Refused::to_string).collect::<Vec<_>>().join("; "))]
    Items(Vec<Refused>),
}

/// The reason why a text is not a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownLayout {
    /// The text is like the name of a preset.
    #[error("no layout is called {text:?}; did you mean {meant}? `snowbank layout` lists all")]
    Misspelt {
        /// The text.
        text: String,
        /// The preset that was probably meant.
        meant: String,
    },
    /// The text describes no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}
