//! Turns a configuration file, options and environment variables into [`Settings`], which are
//! plain, typed and checked.
//!
//! ```text
//!  file ─▶ reader ─┐
//!                  ├─▶ settle ─▶ Settings, or mistakes with their lines
//!  overrides ──────┘
//! ```
//!
//! The tables (`settings!`) have a row for each setting: its meaning, type, default and bounds. The
//! fields of [`Settings`], the reader, environment variables, [`diff()`] and docs/snowbank.toml
//! follow from the rows. A new setting needs a row, and code that uses it. `settle_settings` has the rules
//! between settings.
//!
//! Worker IDs that come from the machine, such as from its address, are picked later, when the
//! daemon starts ([`Settings::pick_worker_ids`]).
//!
//! Nothing here connects, resolves a name or reads a clock. Only [`read_file`],
//! [`load_with_secrets`] and that later step read files. Only [`Overrides`] and [`Machine::here`]
//! read the environment.

#[macro_use]
mod setting;

mod conflict;
mod daemon;
mod diff;
mod fields;
mod file_ref;
mod fleet;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod identities;
mod input;
mod listeners;
mod machine;
mod mistake;
mod open_fields;
mod overrides;
mod pick_worker_ids;
mod protocols;
mod reader;
mod refused;
mod secrets;
mod settle_settings;
mod settle_source;
mod source;
mod state_dir;
mod suggest;
mod summary;
mod tokens;
mod units;
mod value;
mod warning;
mod worker_id_from;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub use daemon::{AdminSettings, AuthSettings, ClockSettings, Limits, LogSettings, Settings, TlsSettings};
pub use diff::{Changed, Difference, diff};
pub use fields::{LogFormat, SHARDS_MAX, Shards, WorkerIds};
pub use file_ref::{Credentials, FileRef, NoCredentials};
pub use fleet::FleetSettings;
pub use identities::{ANONYMOUS, IDENTITIES_MAX, IdentitySettings};
pub use listeners::Purpose;
pub use machine::{Interface, Machine};
pub use mistake::{Mistake, Mistakes, Origin, Origins};
pub use overrides::{Override, Overrides, unknown_variables};
pub use pick_worker_ids::Unpicked;
pub use protocols::{FrontEndSettings, PROTOCOLS, Protocol, Replies};
pub use refused::UnknownLayout;
pub use secrets::Secrets;
pub use source::{SOURCES_MAX, SourceSettings};
pub(crate) use state_dir::first_directory;
pub(crate) use state_dir::in_command;
pub use state_dir::{NoStateDir, StateDirChoice, StatePlace, directory_options};
pub use suggest::resolve_layout;
pub use tokens::{TOKEN_BYTES_MAX, TokenHash, Tokens, hashed_line};
pub(crate) use units::{Grouped, parse_duration};
pub(crate) use value::{SOURCE_NAME, is_source_name};
pub use warning::Warning;
pub use worker_id_from::{Ipv4Of, WorkerIdFrom};

use snowbank_id::layout::UnixMicros;
pub use snowbank_wire::address::{Address, AddressError, UNIX_PATH_BYTES_MAX};

/// Reads a configuration: a file, if there is one, and the options and environment variables that
/// override it. The path of the file is for messages and relative paths.
///
/// `cores` is the number of shards if none is given. `now` decides whether layouts have begun or
/// ended.
///
/// # Errors
/// All mistakes that were found, each with its place. The values of a file are checked only if the
/// file is TOML. The rules between settings are checked only if there is no mistake so far.
pub fn load(
    file: Option<(&Path, &str)>,
    overrides: &Overrides,
    cores: NonZeroUsize,
    now: UnixMicros,
) -> Result<Settings, Mistakes> {
    settle_settings::settle(read(file, overrides)?, cores, now)
}

/// Reads a configuration as [`load`] does, and the files that the configuration names. Mistakes in
/// these files count as mistakes of the configuration.
///
/// # Errors
/// As for [`load`].
pub fn load_with_secrets(
    file: Option<(&Path, &str)>,
    overrides: &Overrides,
    cores: NonZeroUsize,
    now: UnixMicros,
    credentials: &Credentials,
) -> Result<(Settings, Secrets), Mistakes> {
    let mut reader = read(file, overrides)?;
    let secrets = secrets::read(&mut reader, credentials, now);
    settle_settings::settle(reader, cores, now).map(|settings| (settings, secrets))
}

/// Reads each value. `settle_settings` checks whether the values fit each other.
fn read(file: Option<(&Path, &str)>, overrides: &Overrides) -> Result<reader::Reader, Mistakes> {
    let mut reader = reader::Reader::new();
    if let Some((path, text)) = file {
        reader.read_document(path, text);
    }
    reader.read_overrides(overrides);
    Mistakes::new(std::mem::take(&mut reader.findings.mistakes)).map_or(Ok(reader), Err)
}

/// The largest file that is read. This limit is far above the size of any real file. A
/// larger file is probably a disk device, named by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why a file cannot be read as text.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {error}", path.display())]
pub struct FileError {
    path: PathBuf,
    /// The error of the system, or of this module.
    pub error: io::Error,
}

/// The reason why a daemon's configuration cannot be used. `Display` names all mistakes, one on each
/// line.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The file cannot be read.
    #[error(transparent)]
    File(FileError),
    /// The settings have mistakes.
    #[error(transparent)]
    Mistakes(Mistakes),
    /// No directory is given for the state.
    #[error(transparent)]
    StateDir(NoStateDir),
}

impl Unread {
    /// Returns the first reason and the number of the others, in one line.
    pub fn first_line(&self) -> String {
        match self {
            Unread::Mistakes(mistakes) => mistakes.first_line(),
            other => other.to_string(),
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, FileError> {
    let text = read_bounded(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| {
            io::Error::new(ErrorKind::InvalidInput, "found bytes that are not UTF-8, allowed: UTF-8 text")
        })
    });
    text.map_err(|error| FileError { path: path.to_owned(), error })
}

/// Reads a file.
///
/// # Errors
/// The system refuses to read the file, or the file has more than [`FILE_BYTES_MAX`] bytes.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    // A buffer that grows would leave copies of a secret.
    let length = file.metadata()?.len().min(FILE_BYTES_MAX);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 2);
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {FILE_BYTES_MAX} bytes"),
        ));
    }
    Ok(bytes)
}

/// Opens a file for reading.
///
/// # Errors
/// The system refuses to open the file, or the file is a pipe, whose other end may never write.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, allowed: a regular file"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests;
