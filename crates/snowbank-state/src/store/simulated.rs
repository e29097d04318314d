//! The state file's two copies on a disk that a simulation provides.

use std::io;

pub use super::file::Disk;
use super::record::Record;
use super::{copies, file};

/// The two copies of a state file, without the file.
#[derive(Clone, Debug)]
pub struct Copies {
    slot_bytes: usize,
    number: u64,
    first: usize,
}

impl Copies {
    /// Returns the copies of a disk on which nothing is written yet.
    pub fn blank(slot_bytes: usize) -> Self {
        Copies { slot_bytes, number: 0, first: 0 }
    }

    /// Reads the records from the bytes of a disk, as a start does.
    ///
    /// # Errors
    /// No copy is whole.
    pub fn read(bytes: &[u8]) -> Result<(Self, Vec<Record>), String> {
        let stored = copies::read(bytes).map_err(|error| error.to_string())?;
        let number = stored.number();
        let first = stored.first_to_write();
        Ok((Copies { slot_bytes: bytes.len() / 2, number, first }, stored.records))
    }

    /// Writes the records in place, as the daemon does.
    ///
    /// # Errors
    /// A call on the disk failed, or the records do not fit.
    pub fn write(&mut self, disk: &impl Disk, records: &[Record]) -> io::Result<()> {
        let document = copies::document(records)?;
        self.number += 1;
        let header = copies::header(self.number, &document);
        let slot = copies::slot(&header, &document, self.slot_bytes).ok_or(io::ErrorKind::FileTooLarge)?;
        file::overwrite(disk, &slot, &mut self.first)
    }
}
