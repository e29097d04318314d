//! The file `fleet` in the state directory: a daemon's own writes at the coordinator.
//!
//! A write is noted before it is tried. So after a restart, a key whose last write is noted belongs to this state or to a
//! copy of it. Notes count only in the boot that wrote them, because the machine does not remember for longer which copy
//! is the newest. A missing or damaged file only costs time: the daemon then starts like any other.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::key::id_bound;

const FILE: &str = "fleet";
const FORMAT: u64 = 1;

/// The writes of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The source's name.
    pub source: String,
    /// Its ID space.
    pub space: String,
    /// The place of that space in the fleet's marker.
    pub place: usize,
    /// Its worker IDs, in text form.
    pub worker_ids: String,
    /// The writes that may be the last of its numbers' keys.
    pub writes: Vec<String>,
    /// The lowest bound at which the source may start with them. It is noted with the first write, because the next start
    /// may recognise that write though its answer was lost.
    #[serde(with = "id_bound")]
    pub floor: u64,
    /// The fleet's ceiling that was acknowledged last, as an ID bound. 0: there is none, or the numbers were released.
    #[serde(with = "id_bound")]
    pub covered: u64,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u64,
    boot: Option<String>,
    notes: Vec<Note>,
}

/// The notes of all sources of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
    boot: Option<String>,
    notes: Vec<Note>,
}

impl Notes {
    /// Reads the notes of a state directory. `boot` identifies this boot of the machine, and changes when the machine is
    /// restored from a snapshot. Only the worker IDs of an earlier boot's notes count, because copies of a state are
    /// noticed only within a boot.
    pub fn read(directory: Option<&Path>, boot: Option<&str>) -> Notes {
        let path = directory.map(|directory| directory.join(FILE));
        let text = path.as_deref().and_then(|path| fs::read(path).ok());
        let document = text.and_then(|text| serde_json::from_slice::<Document>(&text).ok());
        let document = document.filter(|document| document.format == FORMAT);
        let (notes, then) = document.map(|it| (it.notes, it.boot)).unwrap_or_default();
        let mut read = Notes { path, boot: boot.map(str::to_owned), notes };
        if boot.is_none() || then.as_deref() != boot {
            read.forget();
        }
        read
    }

    /// Forgets the writes and the ceilings, as a boot does.
    pub fn forget(&mut self) {
        for note in &mut self.notes {
            note.writes.clear();
            note.covered = 0;
        }
    }

    /// Returns the note of a source, if it has this ID space.
    pub fn of(&self, source: &str, space: &str) -> Option<&Note> {
        self.notes.iter().find(|note| note.source == source && note.space == space)
    }

    /// Replaces the note of a source.
    pub fn set(&mut self, note: Note) {
        match self.notes.iter_mut().find(|other| other.source == note.source) {
            Some(other) => *other = note,
            None => self.notes.push(note),
        }
    }

    /// Makes the notes durable.
    ///
    /// # Errors
    /// The old notes may still be there.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let document = Document { format: FORMAT, boot: self.boot.clone(), notes: self.notes.clone() };
        let temporary = path.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(&document)?)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(covered: u64) -> Note {
        let [source, space, worker_ids] = ["orders", "space", "5"].map(String::from);
        Note { source, space, place: 0, worker_ids, writes: vec![String::from("w")], floor: 0, covered }
    }

    #[test]
    fn notes_read_back_and_their_writes_only_in_the_same_boot() {
        let directory = tempfile::tempdir().unwrap();
        let read = |boot| Notes::read(Some(directory.path()), boot);
        let mut notes = read(Some("boot"));
        assert_eq!(notes.of("orders", "space"), None);
        notes.set(note(6));
        notes.set(note(7));
        notes.save().unwrap();
        assert_eq!(read(Some("boot")).of("orders", "space"), Some(&note(7)));
        for other in [Some("other"), None] {
            let forgotten = Note { writes: Vec::new(), ..note(0) };
            assert_eq!(read(other).of("orders", "space"), Some(&forgotten));
        }
        assert_eq!(read(Some("boot")).of("orders", "another"), None);
    }

    #[test]
    fn a_damaged_file_is_none() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "{}", "{\"format\":2,\"boot\":null,\"notes\":[]}", "?"] {
            fs::write(directory.path().join(FILE), text).unwrap();
            assert!(Notes::read(Some(directory.path()), Some("boot")).notes.is_empty(), "{text:?}");
        }
    }
}
