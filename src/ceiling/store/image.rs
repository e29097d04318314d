//! Reading a state file without trusting it.
//!
//! The database library takes the header of a file that was closed cleanly at its word, and ends the process where the
//! header does not fit the file. A state file may be torn, truncated or from elsewhere, so it is never opened: its bytes
//! are, with a header that leaves nothing to believe. All pages are then reached through checksums, from the commit that
//! was made durable last; an older commit is not gone back to, for its ceilings are lower. A newer one is taken if it is
//! whole: either a crash came before it was marked as the last, or the mark, which no checksum covers, is damaged.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use super::record::Record;

/// The version of what is stored; raised when an older program would misread it.
pub(super) const FORMAT: u32 = 1;
/// The records by [`Record::key`], as JSON.
pub(super) const RECORDS: TableDefinition<'_, &str, &str> = TableDefinition::new("records");
/// What holds for the whole file.
pub(super) const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
/// The key of [`FORMAT`] in [`META`].
pub(super) const FORMAT_KEY: &str = "format";
/// What the library may keep in memory, in bytes: more than a common file has.
pub(super) const CACHE_BYTES: usize = 256 * 1024;

/// The first bytes of every file of the library.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
const PAGE_BYTES: usize = 4096;
/// The library's file format, the first byte of both commit slots.
const LIBRARY_FORMAT: u8 = 3;
/// One byte of flags after the magic number.
const FLAGS_AT: usize = MAGIC.len();
const SECOND_SLOT_IS_PRIMARY: u8 = 1;
const RECOVERY_REQUIRED: u8 = 2;
const TWO_PHASE_COMMIT: u8 = 4;
/// Where the size of a page, the header pages and the data pages of a region, the number of whole regions and the pages
/// of the last one are, 32 bits each: the geometry, which no checksum covers.
const GEOMETRY_AT: usize = FLAGS_AT + 3;
/// The geometry of every file that this program makes. The recovery takes the length from the file itself; one page is
/// what any file has.
const GEOMETRY: [u32; 5] = [PAGE_BYTES as u32, 0, 1 << 20, 0, 1];
/// The pages that an image has at least: more than those of a file as the library makes it.
const PAGES_MIN: usize = 320;
const SLOT_BYTES: usize = 128;
/// Where the two commit slots are.
const SLOTS_AT: [usize; 2] = [64, 64 + SLOT_BYTES];
/// Where in a slot the number of its commit is, 64 bits, which its checksum covers.
const COMMIT_NUMBER_AT: usize = 104;

/// Why the bytes are no state file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImageError {
    /// Not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// A newer program wrote it.
    #[error(
        "it has format {found}, and this program reads up to {known}: run the newer program that wrote it"
    )]
    Newer {
        /// The format of the file.
        found: String,
        /// The newest format that is known here.
        known: u32,
    },
}

fn corrupt(reason: impl std::fmt::Display) -> ImageError {
    ImageError::Corrupt(reason.to_string())
}

/// All records of a state file.
///
/// # Errors
/// The bytes are not those of a whole state file that this program can read.
pub(super) fn records(bytes: Vec<u8>) -> Result<Vec<Record>, ImageError> {
    let marked = check_header(&bytes)?;
    let other = other_slot(marked);
    let is_other_newer = commit_number(&bytes, other) > commit_number(&bytes, marked);
    let newer = is_other_newer.then(|| records_of(bytes.clone(), other));
    // First of all the one that is marked has to be whole: of a damaged one the number says nothing.
    let records = records_of(bytes, marked)?;
    Ok(newer.and_then(Result::ok).unwrap_or(records))
}

/// The records as of the commit of one slot.
fn records_of(mut bytes: Vec<u8>, slot: usize) -> Result<Vec<Record>, ImageError> {
    distrust_header(&mut bytes, slot)?;
    let len = (2 * bytes.len()).max(PAGES_MIN * PAGE_BYTES) as u64;
    let is_read = Arc::new(AtomicBool::new(false));
    let image = Image { bytes: RwLock::new(bytes), len: AtomicU64::new(len), is_read: Arc::clone(&is_read) };
    let database =
        Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(image).map_err(corrupt)?;
    let read = database.begin_read().map_err(corrupt)?;
    check_format(&read)?;
    let table = read.open_table(RECORDS).map_err(corrupt)?;
    let mut records = Vec::new();
    for entry in table.iter().map_err(corrupt)? {
        let (key, text) = entry.map_err(corrupt)?;
        let record: Record = serde_json::from_str(text.value())
            .map_err(|error| corrupt(format_args!("the record {:?} cannot be read: {error}", key.value())))?;
        record.check().map_err(corrupt)?;
        if record.key() != key.value() {
            return Err(corrupt(format_args!("a record of {:?} is kept as {:?}", record.key(), key.value())));
        }
        records.push(record);
    }
    // What the library would write when it closes the image is of no use, and takes as much memory as an idle daemon.
    is_read.store(true, Ordering::Relaxed);
    Ok(records)
}

/// A state file in memory, with zeros after its end.
///
/// A file that was being made shorter may name pages that are gone, as free: what they are read as matters to nobody,
/// as long as they are there. A tree that leads to one fails its checksum.
#[derive(Debug)]
struct Image {
    bytes: RwLock<Vec<u8>>,
    /// With the zeros.
    len: AtomicU64,
    /// Nothing more is to be written.
    is_read: Arc<AtomicBool>,
}

fn poisoned<T>(_: T) -> io::Error {
    io::Error::other("another thread panicked")
}

impl StorageBackend for Image {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = self.bytes.read().map_err(poisoned)?;
        let there = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = there.len().min(out.len());
        out[..count].copy_from_slice(&there[..count]);
        out[count..].fill(0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write().map_err(poisoned)?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_read.load(Ordering::Relaxed) {
            return Err(io::Error::other("the image has been read"));
        }
        let within = |end: &u64| *end <= self.len.load(Ordering::Relaxed);
        let end = offset.checked_add(data.len() as u64).filter(within);
        let end = end.and_then(|end| usize::try_from(end).ok()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut bytes = self.bytes.write().map_err(poisoned)?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - data.len()..end].copy_from_slice(data);
        Ok(())
    }
}

fn check_format(read: &redb::ReadTransaction) -> Result<(), ImageError> {
    let meta = read.open_table(META).map_err(corrupt)?;
    let format =
        meta.get(FORMAT_KEY).map_err(corrupt)?.ok_or_else(|| corrupt("it does not say its format"))?;
    match format.value().parse::<u32>() {
        Ok(FORMAT) => Ok(()),
        Ok(found) if found > FORMAT => Err(ImageError::Newer { found: found.to_string(), known: FORMAT }),
        _ => Err(corrupt(format_args!("it says that its format is {:?}", format.value()))),
    }
}

/// Checks what a header can be held to, and gives the slot that it marks as the last commit's.
fn check_header(bytes: &[u8]) -> Result<usize, ImageError> {
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(corrupt(if bytes.is_empty() { "it is empty" } else { "it is not a state file" }));
    }
    let pages = bytes.len() / PAGE_BYTES;
    if pages < 2 {
        return Err(corrupt(format_args!("it has {} bytes: the rest was cut off", bytes.len())));
    }
    // Every commit has two phases, so that what it marks as primary is whole, or the file was damaged.
    let flags = bytes[FLAGS_AT];
    if flags & TWO_PHASE_COMMIT == 0 {
        return Err(corrupt("its last commit was not made by this program"));
    }
    let geometry: [u32; 5] = std::array::from_fn(|index| {
        let at = GEOMETRY_AT + index * size_of::<u32>();
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    });
    // The page of the header, and those of the last region.
    let pages_written = u64::from(geometry[4]) + 1;
    if geometry[..4] != GEOMETRY[..4] {
        return Err(corrupt("its header is damaged"));
    }
    if (pages as u64) < pages_written {
        let (has, had) = (bytes.len(), pages_written * PAGE_BYTES as u64);
        return Err(corrupt(format_args!("it has {has} bytes of {had}: the rest was cut off")));
    }
    Ok(SLOTS_AT[usize::from(flags & SECOND_SLOT_IS_PRIMARY)])
}

fn other_slot(slot: usize) -> usize {
    if slot == SLOTS_AT[0] { SLOTS_AT[1] } else { SLOTS_AT[0] }
}

/// Later commits have higher numbers.
fn commit_number(bytes: &[u8], slot: usize) -> u64 {
    let mut number = [0; size_of::<u64>()];
    number.copy_from_slice(&bytes[slot + COMMIT_NUMBER_AT..][..size_of::<u64>()]);
    u64::from_le_bytes(number)
}

/// Rewrites the header so that nothing in it is believed: the geometry is this program's, every checksum is checked, and
/// only the commit of this slot is there.
fn distrust_header(bytes: &mut Vec<u8>, slot: usize) -> Result<(), ImageError> {
    let library_format = bytes[slot];
    if library_format > LIBRARY_FORMAT {
        // Damage that looks like this is told apart by nothing; the message is right for the likelier cause.
        return Err(ImageError::Newer { found: format!("redb {library_format}"), known: FORMAT });
    }
    bytes[FLAGS_AT] = RECOVERY_REQUIRED;
    for (index, value) in GEOMETRY.iter().enumerate() {
        let at = GEOMETRY_AT + index * size_of::<u32>();
        bytes[at..at + size_of::<u32>()].copy_from_slice(&value.to_le_bytes());
    }
    // A file of which a piece of a page is left was being made longer; what counts was whole before.
    bytes.truncate(bytes.len() / PAGE_BYTES * PAGE_BYTES);
    bytes.copy_within(slot..slot + SLOT_BYTES, other_slot(slot));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::sync::Mutex;

    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::ceiling::store::file::{self, StateFile};
    use crate::ceiling::{Owner, Place};
    use snowbank_client::layout::{Layout, Numbering, Position, Tick};

    /// The bytes of a state file with records of two sources, raised often enough that pages were used again.
    fn state_file() -> (Vec<u8>, Vec<Record>) {
        let directory = tempfile::tempdir().unwrap();
        let numberings = ["twitter", "clearing"]
            .map(|layout| Numbering::new(Layout::resolve(layout).unwrap(), "1-3".parse().unwrap()).unwrap());
        let at = |tick| -> Vec<Record> {
            let record = |numbering: &Numbering| {
                let ceiling = Position(numbering.first_of(Tick(tick)).0 + 7);
                Record::new("orders", numbering, ceiling, &Owner::new(), &Place::here())
            };
            numberings.iter().map(record).collect()
        };
        let mut records = at(1_000_000);
        let file =
            StateFile::create(directory.path(), &records.iter().collect::<Vec<_>>(), &mut |_| {}).unwrap();
        for tick in 1_000_001..1_000_020 {
            records = at(tick);
            file.replace(&records.iter().collect::<Vec<_>>()).unwrap();
        }
        drop(file);
        records.sort_by_key(Record::key);
        (file::read(directory.path()).unwrap().unwrap(), records)
    }

    /// What a process did to a file.
    #[derive(Clone, Debug)]
    enum Act {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Sync,
    }

    /// A file in memory that notes what is done to it.
    #[derive(Clone, Debug, Default)]
    struct Noted(Arc<InMemoryBackend>, Arc<Mutex<Vec<Act>>>);

    impl StorageBackend for Noted {
        fn len(&self) -> io::Result<u64> {
            StorageBackend::len(&*self.0)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            StorageBackend::read(&*self.0, offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.1.lock().unwrap().push(Act::SetLen(len));
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.1.lock().unwrap().push(Act::Sync);
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.1.lock().unwrap().push(Act::Write(offset, data.to_vec()));
            StorageBackend::write(&*self.0, offset, data)
        }
    }

    /// A disk writes whole sectors, in any order.
    const SECTOR_BYTES: usize = 512;

    fn apply(disk: &mut Vec<u8>, act: &Act, mut reaches_disk: impl FnMut() -> bool) {
        match act {
            Act::SetLen(len) if reaches_disk() => disk.resize(*len as usize, 0),
            Act::SetLen(_) | Act::Sync => {}
            Act::Write(offset, bytes) => {
                for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    let at = *offset as usize + index * SECTOR_BYTES;
                    if reaches_disk() {
                        disk.resize(disk.len().max(at + sector.len()), 0);
                        disk[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
    }

    /// The power fails at any moment, and of what was not synced any part is lost: the file has the last commit that was
    /// acknowledged, or the one under way.
    #[test]
    fn a_power_failure_leaves_the_last_commit_or_the_next() {
        let noted = Noted::default();
        let database = file::make_database(noted.clone()).unwrap();
        let numbering = Numbering::new(Layout::resolve("twitter").unwrap(), "1".parse().unwrap()).unwrap();
        let owner = Owner::new();
        // By commit, how much had been done when it was acknowledged. Enough sources that a commit has several pages.
        let mut acknowledged = Vec::new();
        for commit in 1..12 {
            let sources: Vec<Record> = (0..40)
                .map(|source| {
                    Record::new(
                        &format!("s{source}"),
                        &numbering,
                        Position(commit),
                        &owner,
                        &Place::default(),
                    )
                })
                .collect();
            file::commit(&database, &sources.iter().collect::<Vec<_>>()).unwrap();
            acknowledged.push((noted.1.lock().unwrap().len(), commit));
        }
        let acts = noted.1.lock().unwrap().clone();
        let longest =
            acts.iter().filter_map(|act| if let Act::SetLen(len) = act { Some(*len) } else { None }).max();
        assert!(longest.is_some_and(|len| len <= (PAGES_MIN * PAGE_BYTES) as u64), "{longest:?}");
        let mut rng = fastrand::Rng::with_seed(3);
        let first = acknowledged[0].0;
        for end in (first..acts.len()).flat_map(|end| [end; 8]) {
            let synced = acts[..end].iter().rposition(|act| matches!(act, Act::Sync)).unwrap();
            let mut disk = Vec::new();
            acts[..synced].iter().for_each(|act| apply(&mut disk, act, || true));
            let one_in = rng.u32(1..4);
            acts[synced..end].iter().for_each(|act| apply(&mut disk, act, || rng.u32(..=one_in) != 0));
            let last = acknowledged.iter().rfind(|(at, _)| *at <= end).unwrap().1;
            let found = records(disk).unwrap_or_else(|error| panic!("after {end} acts: {error}"));
            let ceilings: Vec<u64> = found.iter().map(|record| record.ceiling.0).collect();
            assert_eq!(ceilings.len(), 40);
            assert!(
                [last, last + 1].contains(&ceilings[0]),
                "after {end} acts {ceilings:?}, acknowledged {last}"
            );
            assert!(ceilings.iter().all(|ceiling| *ceiling == ceilings[0]), "half a commit: {ceilings:?}");
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, written) = state_file();
        assert_eq!(records(bytes).unwrap(), written);
    }

    /// The one thing that damage must never do is to go unnoticed: not as other records, not as a panic.
    fn check_damaged(damaged: Vec<u8>, written: &[Record], what: &str) -> bool {
        let outcome =
            panic::catch_unwind(|| records(damaged)).unwrap_or_else(|_| panic!("a panic after {what}"));
        match &outcome {
            Ok(read) => assert_eq!(read, written, "after {what}"),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
        outcome.is_err()
    }

    #[test]
    fn damage_of_any_byte_is_noticed_or_without_effect() {
        let (bytes, written) = state_file();
        let mut refused = 0;
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        let anywhere: Vec<usize> = (0..300).map(|_| rng.usize(..=used)).collect();
        for at in (0..330).chain(anywhere) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << rng.u8(..8);
            refused += usize::from(check_damaged(damaged, &written, &format!("a changed bit at {at}")));
        }
        assert!(refused > 100, "{refused} refused");
    }

    /// No checksum covers which of the two commits is the last.
    #[test]
    fn a_damaged_mark_of_the_last_commit_brings_back_none_before_it() {
        let (mut bytes, written) = state_file();
        bytes[FLAGS_AT] ^= SECOND_SLOT_IS_PRIMARY;
        assert_eq!(records(bytes.clone()).unwrap(), written);
        // One that was under way counts only if it is whole.
        let torn = other_slot(check_header(&bytes).unwrap());
        bytes[torn + COMMIT_NUMBER_AT + 7] ^= 1;
        assert_ne!(records(bytes.clone()).unwrap(), written);
        // The number of a damaged one says nothing.
        bytes[other_slot(torn) + COMMIT_NUMBER_AT..][..size_of::<u64>()].fill(0);
        bytes[torn + COMMIT_NUMBER_AT + 7] ^= 1;
        assert!(records(bytes).is_err());
    }

    #[test]
    fn overwritten_pages_and_lost_tails_are_noticed() {
        let (bytes, written) = state_file();
        let mut rng = fastrand::Rng::with_seed(9);
        for page in 0..bytes.len() / PAGE_BYTES {
            for fill in [0, 0xFF, rng.u8(..)] {
                let mut damaged = bytes.clone();
                damaged[page * PAGE_BYTES..][..PAGE_BYTES].fill(fill);
                check_damaged(damaged, &written, &format!("page {page} filled with {fill}"));
            }
            let mut damaged = bytes.clone();
            rng.fill(&mut damaged[page * PAGE_BYTES..][..PAGE_BYTES]);
            check_damaged(damaged, &written, &format!("noise in page {page}"));
            for cut in [0, 1, 100, PAGE_BYTES - 1] {
                let left = bytes[..page * PAGE_BYTES + cut].to_vec();
                check_damaged(left, &written, &format!("a cut at page {page} and {cut}"));
            }
        }
        for text in ["", "x", "not a state file, but longer than a header of one would be"] {
            assert!(check_damaged(text.into(), &written, text));
        }
    }
}
