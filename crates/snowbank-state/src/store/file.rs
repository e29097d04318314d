//! The state file: overwritten in place, one copy after the other, and replaced by a new file after
//! a failure.
//!
//! A write overwrites disk blocks that the file has had since it was made. So a write needs no free
//! space if the file system overwrites in place. A new file is made in two cases only: no suitable
//! file with room exists, or a write or sync has failed. After a failed sync, the system may treat
//! pages as written that never reached the disk. A later sync does not report these pages.
//! Therefore every write replaces whole slots, and a failed sync is never simply repeated.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::copies;
use super::record::Record;
use crate::locked_file::{FileId, file_id, give_to_owner_of, same_file};
use crate::writers::open_file;
use crate::{Cause, StateError};
use snowbank_core::grant::TakenOver;

/// The name of the state file in its directory.
pub(super) const FILE_NAME: &str = "ceilings";
/// The name of a new state file until the file is complete.
const UNFINISHED_NAME: &str = "ceilings.new";
/// Only the daemon's user has access: a process that can write the file can make IDs repeat.
const FILE_MODE: u32 = 0o600;
/// The size of the largest file that is read: hundreds of times the size that a daemon's sources
/// need.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The size of the smallest slot. A slot consists of whole memory pages, so that the two copies
/// share no page. If a page is larger than this size, the smallest slot has the size of a page.
const SLOT_BYTES_MIN: usize = 16 * 1024;

/// The state file of a locked directory. The first write opens or makes the file.
#[derive(Debug)]
pub(super) struct StateFile {
    directory: PathBuf,
    /// The file with the name `ceilings`; `None` before the first write. The file stays open, so
    /// that no other file gets its inode number.
    slots: Option<SlotFile>,
    /// True if the last write of the file and its syncs have succeeded and its name is durable.
    is_sound: bool,
    /// True if the file's name is durable. After a failed sync of the directory, this stays false
    /// until a new file is made. A repeated sync would not report the earlier failure.
    is_named: bool,
}

impl StateFile {
    pub(super) fn of(directory: &Path) -> Self {
        StateFile { directory: directory.to_owned(), slots: None, is_sound: false, is_named: false }
    }

    /// Replaces all records, durably: in place if the file is sound and has room, otherwise with a
    /// new file.
    ///
    /// # Errors
    /// After an error, the file may contain the earlier records or the new records.
    pub(super) fn write<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<(), StateError> {
        let document = copies::document(records).map_err(|error| StateError::storage(error.to_string()))?;
        self.still_ours().map_err(|taken_over| StateError::storage(taken_over.to_string()))?;
        if self.slots.is_none() {
            self.slots = SlotFile::open(&self.directory);
            self.is_sound = self.slots.is_some();
            self.is_named = self.is_sound;
        }
        if self.is_sound && self.overwrite(&document) {
            return Ok(());
        }
        let Err(error) = self.replace(&document) else { return Ok(()) };
        // There is no room for a new file, so the old file is overwritten. This writes every page
        // of the old file again, so the earlier failed syncs of the file no longer matter.
        if error.cause() == Cause::Full && self.is_named && self.overwrite(&document) {
            return Ok(());
        }
        Err(error)
    }

    /// Makes the file count as unsound, as after a failed write.
    #[cfg(test)]
    pub(super) fn fail(&mut self) {
        self.is_sound = false;
    }

    /// Overwrites both copies. Returns false if that failed or the document does not fit.
    fn overwrite(&mut self, document: &str) -> bool {
        let Some(written) = self.slots.as_mut().and_then(|slots| slots.write(document)) else { return false };
        self.is_sound = written.is_ok();
        self.is_sound
    }

    /// Makes a new file durable, gives it the name of the state file, and makes this name durable.
    fn replace(&mut self, document: &str) -> Result<(), StateError> {
        let unfinished = self.directory.join(UNFINISHED_NAME);
        let number = self.slots.as_ref().map_or(0, |file| file.slots.number).saturating_add(1);
        let failed = |what: &str, path: &Path, error: io::Error| {
            let cure = "make it writable, or make room if the disk is full";
            StateError::from_system(&error, format_args!("cannot {what} {}", path.display()), cure)
        };
        remove(&unfinished).map_err(|error| failed("remove", &unfinished, error))?;
        let made = SlotFile::make(&self.directory, &unfinished, number, document).map_err(|error| {
            // The unfinished file would only take up room.
            let _ = remove(&unfinished);
            failed("make", &unfinished, error)
        })?;
        let renamed = fs::rename(&unfinished, path(&self.directory));
        // After an error, look which file has the name: a rename can succeed and still report an
        // error.
        if renamed.is_ok() || made.has_name(&self.directory) {
            self.slots = Some(made);
            (self.is_sound, self.is_named) = (false, false);
        }
        renamed.map_err(|error| failed("rename", &unfinished, error))?;
        sync_directory(&self.directory).map_err(|error| failed("sync", &self.directory, error))?;
        (self.is_sound, self.is_named) = (true, true);
        Ok(())
    }

    /// Checks that the name still leads to this file, and that both copies have the header that
    /// this process wrote last. If the system cannot tell, the file counts as unchanged.
    pub(super) fn still_ours(&self) -> Result<(), TakenOver> {
        let Some(slots) = &self.slots else { return Ok(()) };
        let path = path(&self.directory);
        same_file(&path, slots.id, "state file")?;
        if self.is_sound && !slots.is_untouched() {
            let what = "was written by another program while this daemon had it";
            return Err(TakenOver(format!("the state file {} {what}", path.display())));
        }
        Ok(())
    }
}

/// An open file of two slots.
#[derive(Debug)]
struct SlotFile {
    file: File,
    id: FileId,
    slots: Slots,
    /// The header that the last write gave both copies; empty before the first write.
    header: String,
}

impl SlotFile {
    /// Opens the state file if it can be written in place. For this, both slots must be there, and
    /// at least one copy must be whole.
    fn open(directory: &Path) -> Option<SlotFile> {
        let file = open_file(&path(directory), OpenOptions::new().read(true).write(true)).ok()?;
        let metadata = file.metadata().ok()?;
        let bytes = read_slots(&file, metadata.len()).ok()?;
        let (slots, _) = Slots::read(&bytes).ok()?;
        let is_fit = slots.slot_bytes >= slot_bytes_min() && slots.slot_bytes.is_power_of_two();
        let opened = SlotFile { file, id: file_id(&metadata), slots, header: String::new() };
        if !is_fit || !bytes.len().is_multiple_of(2) || !opened.has_name(directory) {
            return None;
        }
        opened.file.set_permissions(Permissions::from_mode(FILE_MODE)).ok()?;
        Some(opened)
    }

    /// Makes a file of two copies, and makes all of the file durable except its name.
    fn make(directory: &Path, path: &Path, number: u64, document: &str) -> io::Result<SlotFile> {
        let header = copies::header(number, document);
        // A slot has room for twice the present length, because records grow.
        let slot_bytes = (2 * (header.len() + document.len())).next_power_of_two().max(slot_bytes_min());
        if slot_bytes as u64 > FILE_BYTES_MAX / 2 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let slot = copies::slot(&header, document, slot_bytes).ok_or(ErrorKind::FileTooLarge)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
        give_to_owner_of(directory, &file);
        file.write_all_at(&slot.repeat(2), 0)?;
        file.sync_all()?;
        let id = file_id(&file.metadata()?);
        Ok(SlotFile { file, id, slots: Slots { slot_bytes, number, first: 0 }, header })
    }

    /// Writes both slots. Returns `None` if the document does not fit.
    fn write(&mut self, document: &str) -> Option<io::Result<()>> {
        let written = self.slots.write(&self.file, document)?;
        Some(written.map(|header| self.header = header))
    }

    fn has_name(&self, directory: &Path) -> bool {
        fs::symlink_metadata(path(directory)).is_ok_and(|metadata| file_id(&metadata) == self.id)
    }

    fn is_untouched(&self) -> bool {
        let mut found = vec![0; self.header.len()];
        [0, self.slots.slot_bytes].iter().all(|&at| match self.file.read_exact_at(&mut found, at as u64) {
            Ok(()) => found == self.header.as_bytes(),
            Err(error) => error.kind() != ErrorKind::UnexpectedEof,
        })
    }
}

/// The two slots of a state file: their size, and the slot in which the next write begins. The
/// simulation writes its slots to a simulated disk.
#[derive(Clone, Debug)]
pub struct Slots {
    slot_bytes: usize,
    /// The number of the last write.
    number: u64,
    /// The slot to write first. The copy in the other slot is the last one that is certainly whole.
    first: usize,
}

impl Slots {
    /// Returns the slots of a disk on which nothing is written yet.
    pub fn blank(slot_bytes: usize) -> Self {
        Slots { slot_bytes, number: 0, first: 0 }
    }

    /// Reads the slots and the records from all bytes of a disk.
    ///
    /// # Errors
    /// There are three reasons: no copy is whole, the copy that counts has an invalid record, or a
    /// copy is only for newer programs.
    pub fn read(bytes: &[u8]) -> Result<(Self, Vec<Record>), StateError> {
        let stored =
            copies::read(bytes).map_err(|error| StateError::new(Cause::Damaged, error.to_string()))?;
        let slots =
            Slots { slot_bytes: bytes.len() / 2, number: stored.number(), first: stored.first_to_write() };
        Ok((slots, stored.document.to_read().records))
    }

    /// Writes the records into both slots, as the daemon does.
    ///
    /// # Errors
    /// The disk returned an error, or the records do not fit.
    pub fn write_records(&mut self, disk: &impl Disk, records: &[Record]) -> io::Result<()> {
        let document = copies::document(records)?;
        self.write(disk, &document).ok_or(ErrorKind::FileTooLarge)?.map(drop)
    }

    /// Writes a document into both slots, and returns its header. Returns `None` if the document
    /// does not fit.
    fn write(&mut self, disk: &impl Disk, document: &str) -> Option<io::Result<String>> {
        self.number = self.number.saturating_add(1);
        let header = copies::header(self.number, document);
        let slot = copies::slot(&header, document, self.slot_bytes)?;
        Some(overwrite(disk, &slot, &mut self.first).map(|()| header))
    }
}

/// A file, or a simulated disk, that is overwritten in place.
pub trait Disk {
    /// Writes all of the bytes at this offset.
    ///
    /// # Errors
    /// Any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: usize) -> io::Result<()>;

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// Any part of what was written may be durable. A repeated call does not help.
    fn sync(&self) -> io::Result<()>;
}

impl Disk for File {
    fn write_at(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.write_all_at(bytes, at as u64)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Overwrites the slot `first` and makes it durable, and then does the same with the other slot.
/// After an error, `first` is the slot whose write failed. The copy in the other slot is whole, so
/// the next write must not touch that copy before the failed slot is durable.
pub(super) fn overwrite(disk: &impl Disk, slot: &[u8], first: &mut usize) -> io::Result<()> {
    for index in [*first, 1 - *first] {
        *first = index;
        disk.write_at(slot, index * slot.len())?;
        disk.sync()?;
    }
    Ok(())
}

fn slot_bytes_min() -> usize {
    SLOT_BYTES_MIN.max(rustix::param::page_size())
}

/// Makes the names of the files in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the bytes of the state file; `None` if there is no file.
pub(super) fn read(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    match open_file(&path(directory), OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => {
            let file = opened?;
            let length = file.metadata()?.len();
            read_slots(&file, length).map(Some)
        }
    }
}

/// Reads both halves of a file. A half that cannot be read counts as a lost copy.
fn read_slots(file: &File, length: u64) -> io::Result<Vec<u8>> {
    if length > FILE_BYTES_MAX {
        let text = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    let mut bytes = vec![0; length as usize];
    let (first, second) = bytes.split_at_mut(length as usize / 2);
    let found = file.read_exact_at(first, 0);
    let also_found = file.read_exact_at(second, length / 2);
    found.or(also_found).map(|()| bytes)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

#[cfg(test)]
mod tests;
