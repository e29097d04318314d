//! From a configuration file, options and environment variables to [`Settings`]: plain, typed, checked.
//!
//! ```text
//!  file ─▶ reader ─┐
//!                  ├─▶ settle ─▶ Settings, or every mistake with its line
//!  overrides ──────┘
//! ```
//!
//! The tables of `daemon` and `source` have a row for each setting: its default, its meaning, and how it is read; files,
//! overrides and the [`reference()`] all come from them. `settle` has what must hold between settings, `diff` what of them a
//! reload can change.
//!
//! Nothing here opens a socket, resolves a name or reads a clock; only [`read_file`] and
//! [`load_with_secrets`] read files.

mod daemon;
mod diff;
mod findings;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod log;
mod mistake;
mod overrides;
mod reader;
mod reference;
mod secrets;
mod setting;
mod settle;
mod source;
mod state_dir;
mod summary;
mod tokens;
mod units;
mod value;

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use daemon::{ClockSettings, Limits, REPLY_QUEUE_BYTES_MIN, SHARDS_MAX, TlsSettings};
pub use diff::{Changed, diff};
pub use log::{LogFormat, LogLevel, LogSettings};
pub use mistake::{Mistake, Mistakes, Origin, Origins};
pub use overrides::{Override, Overrides, unknown_variables};
pub use reference::reference;
pub use secrets::{Credentials, FileRef, Secrets, UnknownCredential};
pub use settle::InheritedAddresses;
pub use source::{SOURCES_MAX, SourceSettings};
pub use state_dir::{NoStateDir, StateDirChoice, StatePlace};
pub use tokens::{TOKEN_BYTES_MAX, TokenError, Tokens, read_tokens};
pub(crate) use units::Grouped;

use crate::shard::Order;
pub use snowbank_client::address::{Address, AddressError, UNIX_PATH_BYTES_MAX};
use snowbank_client::layout::UnixMicros;

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
    /// The sources by their index on the wire, from 1 to [`SOURCES_MAX`] of them. No two can make the same
    /// ID ([`concurrent_collision`](snowbank_client::layout::concurrent_collision)).
    pub sources: Vec<SourceSettings>,
    /// Where to keep what must outlast a restart.
    pub state_dir: StateDirChoice,
    /// Where the machine's locks of worker IDs are.
    pub lock_dir: PathBuf,
    /// The file of tokens, for [`read_tokens`]; `None`: none is asked for.
    pub token_file: Option<FileRef>,
    /// What TLS listeners show and ask for.
    pub tls: TlsSettings,
    /// Permission bits of Unix socket files.
    pub unix_mode: u32,
    /// Where to tell how the daemon is; empty: nowhere.
    pub admin: Vec<Address>,
    /// What the daemon says of itself, and how.
    pub log: LogSettings,
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
    settle::settle(read(file, overrides), cores, now)
}

/// As [`load`], and reads the files that it names too, whose mistakes are the configuration's: what `serve` and `check`
/// want.
///
/// # Errors
/// Every mistake there is, each with its place.
pub fn load_with_secrets(
    file: Option<(&Path, &str)>,
    overrides: &Overrides,
    cores: NonZeroUsize,
    now: UnixMicros,
    credentials: &Credentials,
) -> Result<(Settings, Secrets), Mistakes> {
    let mut reader = read(file, overrides);
    let secrets = secrets::read(&mut reader, credentials, now);
    settle::settle(reader, cores, now).map(|settings| (settings, secrets))
}

fn read(file: Option<(&Path, &str)>, overrides: &Overrides) -> reader::Reader {
    let mut reader = reader::Reader::default();
    if let Some((path, text)) = file {
        reader.read_document(path, text);
    }
    reader.settle_sources();
    reader.read_overrides(overrides);
    reader
}

/// The largest configuration file that is read, in bytes: far above any that is meant, and proof that the path does
/// not name a disk.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a configuration file cannot be read as text.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system does not give it.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is larger than any that is meant.
    #[error("cannot read {}: it has more than {FILE_BYTES_MAX} bytes, so it is no configuration", .0.display())]
    TooLarge(PathBuf),
    /// It is not text.
    #[error("{}:{line}: found bytes that are not UTF-8, allowed: UTF-8 text, as TOML is", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line of the first such byte, counted from 1.
        line: usize,
    },
}

/// Reads the text of a configuration file.
///
/// # Errors
/// The file cannot be read, is too large, or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let text = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + text.iter().filter(|&&byte| byte == b'\n').count();
        FileError::NotText { path: path.to_owned(), line }
    })
}

#[cfg(test)]
mod tests;
