//! The names of lock files. The name for a worker ID consists of a hash of the ID space and the
//! number of the worker ID. The name for a ticket counter consists of a hash of the counter's name,
//! its increment and its offset.

use std::collections::BTreeMap;
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

/// The lock files that a directory had when it was listed.
pub(super) struct Listing {
    /// The paths, by the first part of their names: see [`Kind::lock_prefix`](super::source_kind::Kind).
    by_prefix: BTreeMap<String, Vec<PathBuf>>,
}

impl Listing {
    pub(super) fn of(directory: &Path) -> io::Result<Listing> {
        let mut by_prefix: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if let Some(prefix) = prefix_of_lock(&path) {
                by_prefix.entry(prefix.to_owned()).or_default().push(path);
            }
        }
        Ok(Listing { by_prefix })
    }

    /// Returns the lock files of all counters of this name that can hand out the same numbers,
    /// including this counter's own. The marks in these files bind this counter, even if they were
    /// written under another increment or offset.
    pub(super) fn kin(&self, numbering: &Numbering) -> impl Iterator<Item = &PathBuf> {
        let kind = kind_of(numbering);
        let of_prefix = self.by_prefix.get(&kind.lock_prefix()).into_iter().flatten();
        of_prefix.filter(move |path| kind.is_kin_of(name_of(path)))
    }

    /// Returns the lock files that may protect IDs of this numbering.
    pub(super) fn beside(&self, numbering: &Numbering) -> impl Iterator<Item = &PathBuf> {
        let kind = kind_of(numbering);
        let own = kind.lock_prefix();
        let of_others = self.by_prefix.iter().filter(move |(prefix, _)| !kind.is_apart_from(**prefix == own));
        of_others.flat_map(|(_, paths)| paths)
    }
}

/// Returns the first part of the name of a worker ID's lock, such as `0123456789abcdef-5.lock`, or of
/// a ticket counter's lock, such as `0123456789abcdef-2-1.lock`. The directory may also contain locks
/// of other programs.
fn prefix_of_lock(path: &Path) -> Option<&str> {
    let (prefix, numbers) = name_of(path).strip_suffix(".lock")?.split_once('-')?;
    let is_fingerprint = prefix.len() == 16 && prefix.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut numbers = numbers.splitn(2, '-');
    let are_numbers = numbers.all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    (is_fingerprint && are_numbers).then_some(prefix)
}
