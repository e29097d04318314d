//! A file that `--json` wrote, read back.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::json::FORMAT;

/// Why a file is not one of ours: one line.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The system's reason.
    #[error("cannot read {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// It is no JSON, or a key is missing or of the wrong kind.
    #[error("{path} is not what snowbank-loadtest --json writes: {reason}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// Where it is wrong.
        reason: serde_json::Error,
    },
    /// It says of itself that it is something else.
    #[error("{path} has {key} {found}; this version of snowbank-loadtest reads {wanted}")]
    Other {
        /// The file.
        path: PathBuf,
        /// Which key says so.
        key: &'static str,
        /// What it has.
        found: String,
        /// What can be read.
        wanted: String,
    },
}

/// Which of these kinds of figures a file says that it has.
///
/// # Errors
/// [`Unreadable`], also for a kind that is not among `kinds`.
pub fn kind<'k>(path: &Path, kinds: &[&'k str]) -> Result<&'k str, Unreadable> {
    kind_and_value(path, kinds).map(|(kind, _)| kind)
}

/// Figures of one kind.
///
/// # Errors
/// [`Unreadable`].
pub fn read<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<T, Unreadable> {
    let (_, value) = kind_and_value(path, &[kind])?;
    serde_json::from_value(value).map_err(|reason| Unreadable::Shape { path: path.to_owned(), reason })
}

fn kind_and_value<'k>(path: &Path, kinds: &[&'k str]) -> Result<(&'k str, serde_json::Value), Unreadable> {
    let file = |reason| Unreadable::File { path: path.to_owned(), reason };
    let shape = |reason| Unreadable::Shape { path: path.to_owned(), reason };
    let bytes = std::fs::read(path).map_err(file)?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(shape)?;
    let other = |key, wanted: String| {
        let found = value.get(key).map_or_else(|| "missing".to_owned(), ToString::to_string);
        Unreadable::Other { path: path.to_owned(), key, found, wanted }
    };
    if value.get("format").and_then(serde_json::Value::as_u64) != Some(FORMAT.into()) {
        return Err(other("format", FORMAT.to_string()));
    }
    let found = value.get("kind").and_then(serde_json::Value::as_str);
    match kinds.iter().find(|&&kind| Some(kind) == found) {
        Some(kind) => Ok((kind, value)),
        None => Err(other("kind", format!("\"{}\"", kinds.join("\" or \"")))),
    }
}
