//! Reads a file that `--json` wrote.

use std::fmt::Display;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::json::FORMAT;

/// Reads figures of one kind.
///
/// # Errors
/// One line if the file is not one that this version of `--json` writes.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<T, String> {
    let name = path.display();
    let shape =
        |reason: serde_json::Error| format!("{name} is not what snowbank-loadtest --json writes: {reason}");
    let bytes = std::fs::read(path).map_err(|reason| format!("cannot read {name}: {reason}"))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(shape)?;
    require(&value, "format", &FORMAT.into()).map_err(|wrong| format!("{name} has {wrong}"))?;
    require(&value, "kind", &kind.into()).map_err(|wrong| format!("{name} has {wrong}"))?;
    serde_json::from_value(value).map_err(shape)
}

fn require(file: &Value, key: &str, wanted: &Value) -> Result<(), impl Display> {
    match file.get(key) {
        Some(found) if found == wanted => Ok(()),
        found => {
            let found = found.map_or_else(|| "missing".to_owned(), ToString::to_string);
            Err(format!("{key} {found}; this version of snowbank-loadtest reads {wanted}"))
        }
    }
}
