//! From a configuration file, options and environment variables to [`Settings`]: plain, typed, checked.
//!
//! ```text
//!  file ─▶ reader ─┐   (a row of a table for each setting: [`daemon`], [`source`])
//!                  ├─▶ settle ─▶ Settings, or every mistake with its line
//!  overrides ──────┘   (what must hold between settings)
//! ```
//!
//! Nothing here opens a socket, resolves a name or reads a clock; [`read_tokens`] alone reads a file.

mod address;
mod daemon;
mod findings;
mod mistake;
mod overrides;
mod reader;
mod reference;
mod setting;
mod settle;
mod source;
mod tokens;
mod units;
mod value;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use address::{Address, AddressError, UNIX_PATH_BYTES_MAX};
pub use daemon::{ClockSettings, Limits, Order, REPLY_QUEUE_BYTES_MIN, SHARDS_MAX};
pub use mistake::{Mistake, Mistakes, Origin, Origins};
pub use overrides::{Override, Overrides};
pub use reference::reference;
pub use source::{OnStepBack, SOURCES_MAX, SequenceStart, SourceSettings};
pub use tokens::{TOKEN_BYTES_MAX, TokenError, Tokens, read_tokens};
pub(crate) use units::Grouped;

use crate::layout::UnixMicros;

/// Everything that the daemon is told, checked: each value is in its range, and they fit each other.
///
/// docs/snowbank.toml says what each means and why its default is what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where to listen, at least one address.
    pub listen: Vec<Address>,
    /// Threads that serve connections, at most [`SHARDS_MAX`].
    pub shards: NonZeroUsize,
    /// How IDs are ordered over connections.
    pub order: Order,
    /// Bounds on what clients can make the daemon do.
    pub limits: Limits,
    /// When the wall clock is believed.
    pub clock: ClockSettings,
    /// The sources by their index on the wire, from 1 to [`SOURCES_MAX`] of them. No two with the same layout share a
    /// worker ID.
    pub sources: Vec<SourceSettings>,
    /// Where to keep what must outlast a restart; `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// Where the machine's locks of worker IDs are.
    pub lock_dir: PathBuf,
    /// The file of tokens, for [`read_tokens`]; `None`: none is asked for.
    pub token_file: Option<PathBuf>,
    /// Permission bits of Unix socket files.
    pub unix_mode: u32,
    /// Where each setting was given, for what only shows when it is used (a port that is taken).
    pub origins: Origins,
}

impl Settings {
    /// The oldest that an ID of any source is when it is handed out: the `burst_window` of INFO.
    pub fn burst_window(&self) -> Duration {
        self.sources.iter().map(|source| source.burst_window).max().unwrap_or_default()
    }

    /// The furthest that an ID of any source is ahead of the wall clock: the `max_ahead` of INFO.
    pub fn max_ahead(&self) -> Duration {
        self.sources.iter().map(|source| source.max_ahead).max().unwrap_or_default()
    }
}

/// Reads a configuration: a file's path (for messages) and text, if there is one, and what options and environment
/// variables say in its place.
///
/// `cores` is how many shards there are if nothing says otherwise. `now` decides whether layouts have begun and not
/// ended.
///
/// # Errors
/// Every mistake there is, each with its place.
pub fn load(
    file: Option<(&Path, &str)>,
    overrides: &Overrides,
    cores: NonZeroUsize,
    now: UnixMicros,
) -> Result<Settings, Mistakes> {
    let mut reader = reader::Reader::default();
    if let Some((path, text)) = file {
        reader.read_document(path, text);
    }
    reader.settle_sources();
    reader.read_overrides(overrides);
    settle::settle(reader, cores, now)
}

#[cfg(test)]
mod tests;
