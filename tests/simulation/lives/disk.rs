//! A writer's state file on a disk in memory, written and read by the shipped code.

use std::cell::{Cell, RefCell};
use std::io;

use snowbank_id::layout::Position;
use snowbank_state::store::Record;
use snowbank_state::store::{Disk, Slots};

const SECTOR_BYTES: usize = 512;
/// Two sectors: the record ends in the second.
const SLOT_BYTES: usize = 2 * SECTOR_BYTES;
const SECTORS: usize = 2 * SLOT_BYTES / SECTOR_BYTES;
/// The calls of one write: each copy is written and synced.
const CALLS: usize = 4;

/// A failure of one call on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    call: usize,
    /// True if the call takes effect although it fails.
    lasts: bool,
}

impl Failure {
    pub(crate) fn random(rng: &mut fastrand::Rng) -> Self {
        Failure { call: rng.usize(..CALLS), lasts: rng.bool() }
    }

    pub(crate) fn lasts(self) -> bool {
        self.lasts
    }
}

/// A state file and its writer's knowledge of it.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    disk: Memory,
    slots: Slots,
    /// The ceiling that the writer believes to be stored.
    ceiling: Position,
    /// The ceiling of the last write that succeeded. IDs below it may be used.
    granted: Option<Position>,
    /// True if the last write succeeded.
    is_settled: bool,
}

impl StateFile {
    pub(crate) fn new() -> Self {
        StateFile {
            disk: Memory::default(),
            slots: Slots::blank(SLOT_BYTES),
            ceiling: Position(0),
            granted: None,
            is_settled: false,
        }
    }

    pub(crate) fn granted(&self) -> Option<Position> {
        self.granted
    }

    /// Returns the ceiling to store for a raise, which is never lower than the stored ceiling.
    pub(crate) fn raised(&self, ceiling: Position) -> Position {
        ceiling.max(self.ceiling)
    }

    /// Writes a record. Returns whether that succeeded.
    pub(crate) fn write(&mut self, record: &Record, failure: Option<Failure>) -> bool {
        self.disk.before_last_write.replace(self.disk.durable.borrow().clone());
        self.disk.calls.set(0);
        self.disk.failure.set(failure);
        self.is_settled = self.slots.write_records(&self.disk, std::slice::from_ref(record)).is_ok();
        if self.is_settled {
            (self.ceiling, self.granted) = (record.ceiling(), Some(record.ceiling()));
        }
        self.is_settled
    }

    /// Reads the record as a start does. If the file has no whole copy, returns an error, or `None`
    /// if no write has succeeded yet.
    pub(crate) fn read(&mut self) -> Result<Option<Record>, String> {
        match Slots::read(&self.disk.cached.borrow()) {
            Ok((slots, mut records)) => {
                self.slots = slots;
                let record = records.pop().ok_or("no record")?;
                self.ceiling = record.ceiling();
                Ok(Some(record))
            }
            Err(_) if self.granted.is_none() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Replaces a file that cannot be read because its last write was cut off. `record` has the
    /// granted ceiling, which the operator knows. Returns false if the last write succeeded.
    pub(crate) fn repair(&mut self, record: &Record) -> bool {
        !self.is_settled && {
            *self = StateFile::new();
            self.write(record, None)
        }
    }

    /// Returns a copy of the file, all of it durable.
    pub(crate) fn back_up(&self) -> Self {
        let copy = self.clone();
        let cached = copy.disk.cached.borrow().clone();
        copy.disk.durable.replace(cached);
        copy.disk.dirty.set([false; SECTORS]);
        copy
    }

    /// Cuts the power. Each of the unsynced sectors may have been written.
    pub(crate) fn lose_power(&mut self, rng: &mut fastrand::Rng) {
        self.disk.sync_sectors(|| rng.bool());
        let durable = self.disk.durable.borrow().clone();
        self.disk.cached.replace(durable);
    }

    /// Damages one sector of one copy, or undoes the disk's last write of that copy.
    pub(crate) fn damage(&mut self, rng: &mut fastrand::Rng) {
        let copy = rng.usize(..2) * SLOT_BYTES;
        let (from, length) = if rng.bool() {
            (copy, SLOT_BYTES)
        } else {
            (copy + rng.usize(..SLOT_BYTES / SECTOR_BYTES) * SECTOR_BYTES, SECTOR_BYTES)
        };
        let mut bytes = self.disk.durable.borrow_mut();
        if length == SLOT_BYTES {
            bytes[copy..][..length].copy_from_slice(&self.disk.before_last_write.borrow()[copy..][..length]);
        } else {
            bytes[from..][..length].fill(rng.u8(..));
        }
        self.disk.cached.replace(bytes.clone());
    }
}

/// The bytes of a disk, and of the system's cache above it.
#[derive(Clone, Debug)]
struct Memory {
    durable: RefCell<Vec<u8>>,
    cached: RefCell<Vec<u8>>,
    /// The sectors that the next sync makes durable.
    dirty: Cell<[bool; SECTORS]>,
    before_last_write: RefCell<Vec<u8>>,
    calls: Cell<usize>,
    failure: Cell<Option<Failure>>,
}

impl Default for Memory {
    fn default() -> Self {
        let blank = || RefCell::new(vec![0; SECTORS * SECTOR_BYTES]);
        Memory {
            durable: blank(),
            cached: blank(),
            dirty: Cell::default(),
            before_last_write: blank(),
            calls: Cell::default(),
            failure: Cell::default(),
        }
    }
}

impl Memory {
    /// Returns whether the next call takes effect, and its result.
    fn call(&self) -> (bool, io::Result<()>) {
        let call = self.calls.replace(self.calls.get() + 1);
        match self.failure.get() {
            Some(failure) if failure.call == call => {
                (failure.lasts, Err(io::Error::other("the disk failed")))
            }
            _ => (true, Ok(())),
        }
    }

    /// Makes durable the dirty sectors that reach the disk. Afterwards no sector is dirty.
    fn sync_sectors(&self, mut reaches_disk: impl FnMut() -> bool) {
        let cached = self.cached.borrow();
        let mut durable = self.durable.borrow_mut();
        for (sector, is_dirty) in self.dirty.take().into_iter().enumerate() {
            let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            if is_dirty && reaches_disk() {
                durable[bytes.clone()].copy_from_slice(&cached[bytes]);
            }
        }
    }
}

impl Disk for Memory {
    fn write_at(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        let (works, result) = self.call();
        // A call that fails has still written the first sector.
        let written = if works { bytes } else { &bytes[..SECTOR_BYTES] };
        self.cached.borrow_mut()[at..][..written.len()].copy_from_slice(written);
        let mut dirty = self.dirty.get();
        dirty[at / SECTOR_BYTES..][..written.len() / SECTOR_BYTES].fill(true);
        self.dirty.set(dirty);
        result
    }

    /// Syncs all dirty sectors. Afterwards no sector is dirty, even if the sync failed.
    fn sync(&self) -> io::Result<()> {
        let (works, result) = self.call();
        self.sync_sectors(|| works);
        result
    }
}
