//! The names of lock files. The name for a worker ID consists of a hash of the ID space and the
//! number of the worker ID. The name for a ticket counter consists of a hash of the counter's name,
//! its increment and its offset.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::source_kind::kind_of;
use snowbank_id::numbering::Numbering;

/// Returns the worker IDs of a numbering, each with the path of its lock.
pub(super) fn lock_paths(directory: &Path, numbering: &Numbering) -> Vec<(u64, PathBuf)> {
    let names = kind_of(numbering).lock_names().into_iter();
    names.map(|(worker, name)| (worker, directory.join(name))).collect()
}

pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the lock files of all counters of this name that can hand out the same numbers,
/// including this counter's own. The marks in these files bind this counter, even if they were
/// written under another increment or offset.
pub(super) fn kin_paths(directory: &Path, numbering: &Numbering) -> io::Result<Vec<PathBuf>> {
    let mut kin = Vec::new();
    let kind = kind_of(numbering);
    let prefix = kind.lock_prefix();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if name_of(&path).starts_with(&prefix) && kind.is_kin_of(name_of(&path)) {
            kin.push(path);
        }
    }
    Ok(kin)
}
