//! The state file: made whole under another name, then raised in place.
//!
//! It is made anew by each start and after each failure. A sync that failed may have left pages that the system takes for
//! written (and shows to whoever reads them) but that never reached the disk, and a later sync says nothing of them: only a
//! file whose every page was written after the failure can be trusted again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use redb::{Database, StorageBackend};

use super::image::{self, FORMAT, FORMAT_KEY, META, RECORDS};
use super::record::Record;
use crate::ceiling::StoreError;

/// The state file within its directory.
pub(super) const FILE_NAME: &str = "ceilings.redb";
/// Its name until it is whole.
const UNFINISHED_NAME: &str = "ceilings.redb.new";
/// For the daemon's user alone: who can write it can make the daemon repeat itself.
const FILE_MODE: u32 = 0o600;
/// The largest file that is read, in bytes: hundreds of times what the most sources need, and proof that the path does not
/// name a disk.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// How much of the file's start is looked at for the traces of others: the header with both commit slots.
const START_BYTES: usize = 320;

/// Which file it is, whatever it is called.
pub(in crate::ceiling) type FileId = (u64, u64);

/// Device and inode.
pub(in crate::ceiling) fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Gives a file that root has just made to the owner of its directory: what an export or an import leaves is then the
/// daemon's, which runs as another user. Where the system does not let it, the file stays root's.
pub(in crate::ceiling) fn give_to_owner_of(directory: &Path, file: &File) {
    if let (Ok(directory), Ok(made)) = (fs::metadata(directory), file.metadata())
        && made.uid() == 0
        && directory.uid() != 0
    {
        let _ = fchown(file, Some(directory.uid()), Some(directory.gid()));
    }
}

/// The file that was last given the name. Kept open, whatever became of it, so that its number is nobody else's.
#[derive(Debug)]
pub(super) struct NamedFile {
    pub(super) id: FileId,
    _open: Arc<Backend>,
}

/// A state file that is there under its name, all of it durable.
#[derive(Debug)]
pub(super) struct StateFile {
    database: Database,
    backend: Arc<Backend>,
}

impl StateFile {
    /// Makes the file of these records, in place of the one that may be there. When this returns it is durable, name and
    /// all. `renamed` is told which file has the name as soon as it has it.
    pub(super) fn create(
        directory: &Path,
        records: &[&Record],
        renamed: &mut dyn FnMut(NamedFile),
    ) -> Result<StateFile, StoreError> {
        let unfinished = directory.join(UNFINISHED_NAME);
        let whole = directory.join(FILE_NAME);
        let failed = |what: &str, path: &Path, error: io::Error| {
            StoreError(format!("cannot {what} {}: {error}", path.display()))
        };
        // What a crash left; never opened, for nobody knows what is in it.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &unfinished, error));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(&unfinished);
        let file = file.map_err(|error| failed("create", &unfinished, error))?;
        give_to_owner_of(directory, &file);
        let id = file.metadata().map(|metadata| file_id(&metadata));
        let id = id.map_err(|error| failed("look at", &unfinished, error))?;

        let phase = AtomicU8::new(Phase::Making as u8);
        let backend = Arc::new(Backend { file, phase, start: Mutex::new(Vec::new()) });
        let file = Self::fill(Arc::clone(&backend), records)
            .map_err(|error| StoreError(format!("cannot write {}: {error}", unfinished.display())))?;
        backend.file.sync_all().map_err(|error| failed("sync", &unfinished, error))?;
        backend.enter(Phase::Kept);
        let outcome = fs::rename(&unfinished, &whole);
        // Asked, not inferred: a rename may fail after it was done.
        if fs::symlink_metadata(&whole).is_ok_and(|metadata| file_id(&metadata) == id) {
            renamed(NamedFile { id, _open: Arc::clone(&backend) });
        }
        outcome.map_err(|error| failed("rename", &unfinished, error))?;
        sync_directory(directory).map_err(|error| failed("sync", directory, error))?;
        Ok(file)
    }

    fn fill(backend: Arc<Backend>, records: &[&Record]) -> Result<StateFile, redb::Error> {
        let database = make_database(SharedBackend(Arc::clone(&backend)))?;
        let file = StateFile { database, backend };
        commit(&file.database, records)?;
        Ok(file)
    }

    /// Replaces these records, all or none of them, durably.
    ///
    /// # Errors
    /// Nobody can say what the file holds now; it must be made anew.
    pub(super) fn replace(&self, records: &[&Record]) -> Result<(), StoreError> {
        commit(&self.database, records).map_err(|error| StoreError(error.to_string()))
    }
}

impl StateFile {
    /// Whether the file starts with what this process wrote there last. Every commit of anybody changes that. Where the
    /// system does not say, nothing was touched.
    pub(super) fn is_untouched(&self) -> bool {
        let Ok(written) = self.backend.start.lock() else { return true };
        let mut found = [0; START_BYTES];
        let found = &mut found[..written.len()];
        self.backend.file.read_exact_at(found, 0).map_or(true, |()| *found == **written)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        // The library would make another commit, for a faster start that is not used here. All is durable already.
        self.backend.enter(Phase::Left);
    }
}

/// An empty state file behind a backend, but for its format.
pub(super) fn make_database(backend: impl StorageBackend) -> Result<Database, redb::Error> {
    let database = Database::builder().set_cache_size(image::CACHE_BYTES).create_with_backend(backend)?;
    let write = begin(&database)?;
    write.open_table(META)?.insert(FORMAT_KEY, FORMAT.to_string().as_str())?;
    write.commit()?;
    Ok(database)
}

/// Replaces these records, all or none of them.
pub(super) fn commit(database: &Database, records: &[&Record]) -> Result<(), redb::Error> {
    let write = begin(database)?;
    let mut table = write.open_table(RECORDS)?;
    for record in records {
        let text = serde_json::to_string(record).map_err(io::Error::from)?;
        table.insert(record.key().as_str(), text.as_str())?;
    }
    drop(table);
    Ok(write.commit()?)
}

fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut write = database.begin_write()?;
    // Two phases, two syncs: what the file marks as its last commit is whole, always, so that damage to it is not taken
    // for a commit that a crash cut short.
    write.set_two_phase_commit(true);
    Ok(write)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The bytes of the state file; `None` if there is none.
pub(super) fn read(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;

    let file = match File::open(directory.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes =
        Vec::with_capacity(usize::try_from(file.metadata()?.len().min(FILE_BYTES_MAX)).unwrap_or(0));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(bytes))
}

/// The state file's path.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// What the library may do to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is being made: one sync at the end is enough, for nobody reads it before.
    Making = 0,
    /// Every sync is one.
    Kept = 1,
    /// Nothing more.
    Left = 2,
}

/// The file as the library sees it.
#[derive(Debug)]
struct Backend {
    file: File,
    phase: AtomicU8,
    /// What was last written to the start, where the library marks the last commit.
    start: Mutex<Vec<u8>>,
}

impl Backend {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    fn check(&self) -> io::Result<()> {
        if self.is_in(Phase::Left) { Err(io::Error::other("the file was left")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct SharedBackend(Arc<Backend>);

impl StorageBackend for SharedBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.check()?;
        self.0.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.check()?;
        if self.0.is_in(Phase::Making) { Ok(()) } else { self.0.file.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.check()?;
        if offset == 0
            && let Ok(mut start) = self.0.start.lock()
        {
            data[..data.len().min(START_BYTES)].clone_into(&mut start);
        }
        self.0.file.write_all_at(data, offset)
    }
}
