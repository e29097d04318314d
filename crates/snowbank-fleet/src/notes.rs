//! The file `fleet` in the state directory: the writes of a daemon at the coordinator, and its
//! ceilings.
//!
//! A write is noted before it is tried. So after a restart, a key whose last write is noted belongs
//! to this state or to a copy of it. Writes and ceilings count only in the boot that noted them.
//! The marks in `lock_dir`, which show which copy is the newest, need not outlast the boot. Writes
//! and ceilings also count only in the directory where they were noted, because somebody may copy
//! the state directory together with `lock_dir`. If the file is damaged, the daemon logs that. Then,
//! or if the file is missing, it starts like a new daemon.
//!
//! The file is a header line with a checksum, a JSON document, and blanks.
//!
//! A thread of its own writes the file, so a slow disk delays no poll. A daemon waits for it, and
//! polls meanwhile, only before it writes a key.
//!
//! A ceiling is noted once the coordinator has acknowledged it. Below a noted ceiling, a start may
//! go on without asking. So the ceiling counts only in the same fleet at the same endpoints. And it
//! counts only while the clocks differ as noted with the ceiling. If the difference has jumped, the
//! machine may have been restored from a snapshot, perhaps twice. The difference in the state file
//! is not enough: the daemon replaces it right after a jump, and may be killed then.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::NUMBERS_MAX;
use super::key::{FleetLimits, id_bound};
use snowbank_state::form::{self, Form, FormError};
use snowbank_state::sealed::{self, Sealed};
use snowbank_state::{Cause, StateError};

const FILE: &str = "fleet";
const FORM: Form = Form { format: 3, least_reader: 3 };
/// The first words of the file.
const WHAT: &str = "snowbank notes of a fleet";
/// What a start does without the file.
const WITHOUT: &str = "the daemon starts without it: it asks the coordinator, and may have to wait until the ceiling of its \
                       worker ID has passed";
/// The most notes that are kept. A daemon has at most half as many sources with worker IDs of a
/// fleet; the rest are of sources that were removed.
const NOTES_MAX: usize = 2 * NUMBERS_MAX;
/// Space characters fill the file up to a multiple of this size in bytes, so that notes can grow on
/// a full disk.
const ROOM_BYTES: usize = 4096;

/// The writes and the ceiling of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The fleet's name. In a fleet of another name, the note says nothing.
    pub fleet: String,
    /// The source's name.
    pub source: String,
    /// The source's ID space.
    pub space: String,
    /// The index of that space in the fleet's marker.
    pub place: usize,
    /// The source's worker IDs, in text form.
    pub worker_ids: String,
    /// The worker IDs' numbers in the space.
    pub numbers: Vec<u64>,
    /// The writes of this state that may be the last write of one of the numbers' keys.
    pub writes: Vec<String>,
    /// The last writes that a later one has replaced. If a key has one of them, the coordinator
    /// went back.
    pub replaced: Vec<String>,
    /// The term of the number: [`NumberKey::term`](super::NumberKey).
    pub term: String,
    /// The identity of the marker under which the coordinator acknowledged the bound.
    pub identity: String,
    /// The limits in that marker.
    pub limits: FleetLimits,
    /// The highest bound that the coordinator acknowledged for all numbers. A release lowers it. If
    /// a key has a lower bound, the coordinator went back. This field counts in every boot and
    /// directory, because it is a fact about the coordinator.
    #[serde(with = "id_bound")]
    pub acknowledged: u64,
    /// The lowest bound at which the source may start with these worker IDs. The daemon notes this
    /// bound together with its first write: the next start may recognise that write, although its
    /// answer is lost.
    #[serde(with = "id_bound")]
    pub floor: u64,
    /// The fleet's ceiling that was acknowledged last, as an ID bound. 0 if there is none, or if
    /// the numbers were released.
    #[serde(with = "id_bound")]
    pub covered: u64,
    /// True if no other daemon can take the numbers until `covered` has passed. False during the
    /// pause after the daemon took the numbers, and after the daemon tried a release.
    pub is_held: bool,
    /// The difference of the clocks, wall − boot, before the identity was made of the write that
    /// granted `covered`, in microseconds.
    pub wall_minus_boot_us: i64,
}

impl Note {
    pub(super) fn is_of(&self, fleet: &str, space: &str, numbers: &[u64]) -> bool {
        self.fleet == fleet && self.space == space && self.numbers == numbers
    }
}

/// The file's text.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Document {
    /// The boot and the directory in which the writes count. `None`: they count nowhere.
    life: Option<String>,
    /// The fleet and the endpoints with which the ceilings count.
    fleet: String,
    notes: Vec<Note>,
}

impl Document {
    /// Reads the file. Returns an empty document if there is no file.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be used.
    fn read(path: &Path) -> Result<Document, Unusable> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == NotFound => return Ok(Document::default()),
            read => read.map_err(|error| Unusable::Damaged(format!("cannot be read: {error}")))?,
        };
        let damaged = |reason: &dyn fmt::Display| Unusable::Damaged(format!("is damaged: {reason}"));
        let sealed = Sealed::find(WHAT, &bytes).map_err(|damage| damaged(&damage))?;
        FORM.may_read(sealed.form)?;
        let found = serde_json::from_slice(sealed.document).map_err(|error| damaged(&error))?;
        let document: Document = form::read(&found).map_err(|error| damaged(&error))?.to_write()?;
        if document.notes.iter().any(|note| note.term.is_empty() || note.identity.is_empty()) {
            return Err(damaged(&"a note has no term, or names no marker"));
        }
        Ok(document)
    }

    /// Returns the content of the file.
    fn bytes(&self, number: u64) -> Vec<u8> {
        // The document is made of texts and numbers, so this cannot fail.
        let document = serde_json::to_string(self).unwrap_or_default();
        let mut bytes = [sealed::header(WHAT, FORM, number, &document), document].concat().into_bytes();
        bytes.resize(bytes.len().next_multiple_of(ROOM_BYTES), b' ');
        bytes
    }
}

/// The reason why a file of notes cannot be used.
#[derive(Debug)]
enum Unusable {
    /// The daemon starts without it.
    Damaged(String),
    /// The daemon does not start, because it would replace what a newer release wrote.
    Newer(FormError),
}

impl From<FormError> for Unusable {
    fn from(error: FormError) -> Self {
        Unusable::Newer(error)
    }
}

/// A place where notes become durable.
pub trait NoteStore: fmt::Debug + Send + Sync {
    /// Begins to store notes, in place of those that are not stored yet. Does not wait.
    fn begin(&self, notes: Notes);

    /// Waits until the last notes are durable, at most this long. Returns false if they are not.
    /// Tries again if that has failed before.
    ///
    /// # Errors
    /// They cannot be stored.
    fn wait(&self, limit: Duration) -> Result<bool, StateError>;
}

/// The notes of all sources of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// `None`: nothing is kept.
    store: Option<Arc<dyn NoteStore>>,
    document: Document,
    /// True if the document has changed since it was last handed to the store.
    is_changed: bool,
}

impl Notes {
    /// Reads the notes of a state directory. `boot` identifies this boot of the machine, and has
    /// another value after the machine was restored from a snapshot. `fleet` identifies the fleet
    /// and its coordinator.
    ///
    /// Also returns a line for the operator if there is a file that is damaged.
    ///
    /// # Errors
    /// A newer release wrote the file.
    pub fn read(
        directory: &Path,
        boot: Option<&str>,
        fleet: &str,
    ) -> Result<(Notes, Option<String>), StateError> {
        let path = directory.join(FILE);
        let (found, fault) = match Document::read(&path) {
            Ok(found) => (found, None),
            Err(Unusable::Damaged(fault)) => {
                (Document::default(), Some(format!("{}: {fault}; {WITHOUT}", path.display())))
            }
            Err(Unusable::Newer(error)) => {
                let reason = format!("{}: {error}; or move the file away: {WITHOUT}", path.display());
                return Err(StateError::new(Cause::Damaged, reason));
            }
        };
        let inode = fs::metadata(directory).ok().map(|inode| (inode.dev(), inode.ino()));
        let here = boot.zip(inode).map(|(boot, (device, inode))| format!("{boot}, {device}:{inode}"));
        let is_of_this_life = here.is_some() && here == found.life;
        let is_of_this_fleet = found.fleet == fleet;
        let document = Document { life: here, fleet: fleet.to_owned(), ..found };
        let store = Some(Arc::new(NoteFile::at(path)) as Arc<dyn NoteStore>);
        let mut read = Notes { store, document, is_changed: false };
        if !is_of_this_life {
            read.forget();
        }
        if !is_of_this_fleet {
            read.forget_ceilings();
        }
        Ok((read, fault))
    }

    /// Returns these notes, which become durable in another place.
    pub fn kept_in(self, store: Option<Arc<dyn NoteStore>>) -> Notes {
        Notes { store, ..self }
    }

    /// Forgets the writes and the ceilings, as after a boot.
    pub fn forget(&mut self) {
        for note in &mut self.document.notes {
            note.writes.clear();
            note.replaced.clear();
        }
        self.forget_ceilings();
    }

    /// Forgets the ceilings: the next start asks the coordinator.
    pub(super) fn forget_ceilings(&mut self) {
        self.keep_ceilings(|_| false);
    }

    /// Forgets the ceilings of other notes.
    pub(super) fn keep_ceilings(&mut self, kept: impl Fn(&Note) -> bool) {
        for note in self.document.notes.iter_mut().filter(|note| note.covered > 0 && !kept(note)) {
            note.covered = 0;
            self.is_changed = true;
        }
    }

    /// Returns the note of a source, if it has this ID space and is of the fleet with this name.
    pub fn of(&self, fleet: &str, source: &str, space: &str) -> Option<&Note> {
        let is_it = |note: &&Note| note.source == source && note.space == space && note.fleet == fleet;
        self.document.notes.iter().find(is_it)
    }

    /// Returns the notes of the fleet with this name.
    pub(super) fn of_fleet(&self, fleet: &str) -> impl Iterator<Item = &Note> {
        self.document.notes.iter().filter(move |note| note.fleet == fleet)
    }

    /// Replaces the note of a source, and what another name said of its numbers. If there are too many,
    /// drops those that have not changed for the longest time. Without its note, a source starts like a
    /// new one.
    pub fn set(&mut self, note: Note) {
        let notes = &mut self.document.notes;
        if notes.contains(&note) {
            return;
        }
        notes.retain(|other| {
            other.source != note.source && !other.is_of(&note.fleet, &note.space, &note.numbers)
        });
        notes.push(note);
        let surplus = notes.len().saturating_sub(NOTES_MAX);
        notes.drain(..surplus);
        self.is_changed = true;
    }

    /// Gives the note of these numbers this source's name, which the configuration may have changed
    /// while the daemon was down. A note that had the name gets the other one's.
    pub(super) fn claim(&mut self, fleet: &str, source: &str, space: &str, numbers: &[u64]) {
        let notes = &mut self.document.notes;
        let Some(at) = notes.iter().position(|note| note.is_of(fleet, space, numbers)) else { return };
        let before = notes[at].source.clone();
        let namesakes = notes.iter_mut().filter(|note| note.source == source);
        namesakes.for_each(|other| other.source.clone_from(&before));
        source.clone_into(&mut notes[at].source);
    }

    /// Begins to store the notes if they have changed, and does not wait.
    pub(super) fn begin(&mut self) {
        if std::mem::take(&mut self.is_changed)
            && let Some(store) = &self.store
        {
            store.begin(Notes { document: self.document.clone(), ..Notes::default() });
        }
    }

    /// Waits until the notes are durable: see [`NoteStore::wait`].
    pub(super) fn wait(&self, limit: Duration) -> Result<bool, StateError> {
        self.store.as_ref().map_or(Ok(true), |store| store.wait(limit))
    }
}

/// The file of the notes, with the thread that writes it.
#[derive(Debug)]
struct NoteFile(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    path: PathBuf,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// Notes are counted: each has a number, from 1.
#[derive(Debug, Default)]
struct Progress {
    notes: Notes,
    /// The number of the last notes, of the last notes that were tried to store, and of the last
    /// that are durable.
    begun: u64,
    tried: u64,
    stored: u64,
    fault: String,
    has_thread: bool,
    is_closed: bool,
}

impl NoteFile {
    fn at(path: PathBuf) -> Self {
        NoteFile(Arc::new(Writing { path, progress: Mutex::default(), changed: Condvar::new() }))
    }
}

impl Writing {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the notes again and again, until the file is closed and all are stored.
    fn run(&self) {
        let mut progress = self.progress();
        loop {
            while progress.tried == progress.begun {
                if progress.is_closed {
                    return;
                }
                progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
            }
            let number = progress.begun;
            let text = progress.notes.document.bytes(number);
            drop(progress);
            let stored = store(&self.path, text);
            progress = self.progress();
            progress.tried = number;
            match stored {
                Ok(()) => progress.stored = number,
                Err(error) => progress.fault = format!("cannot write {}: {error}", self.path.display()),
            }
            self.changed.notify_all();
        }
    }
}

impl NoteStore for NoteFile {
    fn begin(&self, notes: Notes) {
        let mut progress = self.0.progress();
        progress.notes = notes;
        progress.begun += 1;
        if !progress.has_thread {
            let writing = Arc::clone(&self.0);
            let thread = thread::Builder::new().name(String::from("notes")).spawn(move || writing.run());
            progress.has_thread = thread.is_ok();
            progress.fault = String::from("the system has no thread left");
        }
        self.0.changed.notify_all();
    }

    fn wait(&self, limit: Duration) -> Result<bool, StateError> {
        let mut progress = self.0.progress();
        if progress.stored < progress.begun && progress.tried == progress.begun {
            progress.begun += 1;
            self.0.changed.notify_all();
        }
        let is_untried = |progress: &mut Progress| progress.has_thread && progress.tried < progress.begun;
        let waited = self.0.changed.wait_timeout_while(progress, limit, is_untried);
        let (progress, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        match progress.stored == progress.begun {
            false if !waited.timed_out() => Err(StateError::storage(progress.fault.clone())),
            is_stored => Ok(is_stored),
        }
    }
}

impl Drop for NoteFile {
    /// Lets the thread end once all notes are stored.
    fn drop(&mut self) {
        self.0.progress().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// Makes a text the content of the file.
fn store(path: &Path, text: Vec<u8>) -> io::Result<()> {
    match replace(path, &text) {
        Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => overwrite(path, text),
        replaced => replaced,
    }
}

/// Puts a new file in the place of the notes.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()
    });
    if written.is_err() {
        // A partial file would only take up room.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Overwrites the notes, which needs no free disk space. If the daemon is killed meanwhile, the
/// checksum is wrong, and the file counts as damaged.
fn overwrite(path: &Path, mut text: Vec<u8>) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if text.len() > length {
        return Err(StorageFull.into());
    }
    text.resize(length, b' ');
    file.write_all_at(&text, 0)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn note(covered: u64) -> Note {
        Note {
            fleet: String::from("f"),
            replaced: vec![String::from("v")],
            limits: FleetLimits::new(Duration::from_secs(300), Duration::from_secs(10)),
            source: String::from("orders"),
            space: String::from("space"),
            place: 0,
            worker_ids: String::from("5"),
            numbers: vec![5],
            writes: vec![String::from("w")],
            term: String::from("t"),
            identity: String::from("1f"),
            acknowledged: 9,
            floor: 0,
            covered,
            is_held: true,
            wall_minus_boot_us: 3,
        }
    }

    fn read(directory: &Path, boot: Option<&str>) -> Notes {
        let (notes, fault) = Notes::read(directory, boot, "fleet").unwrap();
        assert_eq!(fault, None);
        notes
    }

    fn save(notes: &mut Notes) {
        notes.begin();
        assert_eq!(notes.wait(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn the_notes_that_changed_last_are_kept() {
        let of = |source: &str, covered| {
            let numbers =
                source.parse().map_or_else(|_| vec![source.len() as u64], |number: u64| vec![99 + number]);
            Note { source: source.to_owned(), numbers, ..note(covered) }
        };
        let mut notes = Notes::default();
        notes.set(of("removed", 7));
        for number in 0..NOTES_MAX as u64 {
            notes.set(of("serves", number));
            notes.set(of(&number.to_string(), 7));
        }
        assert_eq!(notes.document.notes.len(), NOTES_MAX);
        let is_kept = |source| notes.of("f", source, "space").is_some();
        assert_eq!([is_kept("serves"), is_kept("removed")], [true, false]);
    }

    #[test]
    fn a_note_belongs_to_its_numbers() {
        let of =
            |source: &str, number| Note { source: source.to_owned(), numbers: vec![number], ..note(number) };
        let covered = |notes: &Notes, source| notes.of("f", source, "space").map(|note| note.covered);
        let mut notes = Notes::default();
        notes.set(of("a", 5));
        notes.set(of("b", 6));
        notes.claim("f", "a", "space", &[6]);
        assert_eq!(["a", "b"].map(|source| covered(&notes, source)), [Some(6), Some(5)], "swapped");
        notes.claim("f", "c", "space", &[7]);
        notes.claim("g", "c", "space", &[5]);
        assert_eq!(covered(&notes, "c"), None);
        notes.set(Note { covered: 9, ..of("d", 5) });
        assert_eq!(["a", "b", "d"].map(|source| covered(&notes, source)), [Some(6), None, Some(9)]);
    }

    #[test]
    fn notes_that_cannot_be_stored_are_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut notes = read(directory.path(), Some("boot"));
        assert_eq!(notes.wait(Duration::ZERO), Ok(true), "there is nothing to store");
        let path = directory.path().join(FILE);
        fs::create_dir(&path).unwrap();
        notes.set(note(7));
        notes.begin();
        for _ in 0..2 {
            let refused = notes.wait(Duration::from_secs(60)).unwrap_err();
            assert!(refused.to_string().contains("cannot write"), "{refused}");
        }
        fs::remove_dir(&path).unwrap();
        assert_eq!(notes.wait(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn notes_read_back_but_writes_count_only_in_one_boot() {
        let directory = tempfile::tempdir().unwrap();
        let read = |boot| read(directory.path(), boot);
        let mut notes = read(Some("boot"));
        assert_eq!(notes.of("f", "orders", "space"), None);
        notes.set(note(6));
        notes.set(note(7));
        save(&mut notes);
        assert_eq!(read(Some("boot")).of("f", "orders", "space"), Some(&note(7)));
        for other in [Some("other"), None] {
            let forgotten = Note { writes: Vec::new(), replaced: Vec::new(), ..note(0) };
            assert_eq!(read(other).of("f", "orders", "space"), Some(&forgotten));
        }
        assert_eq!(read(Some("boot")).of("f", "orders", "another"), None);
        assert_eq!(read(Some("boot")).of("g", "orders", "space"), None, "a fleet of another name");
    }

    #[test]
    fn ceilings_count_in_one_fleet_and_writes_in_one_directory() {
        let [directory, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut notes = read(directory.path(), Some("boot"));
        notes.set(note(7));
        save(&mut notes);
        fs::copy(directory.path().join(FILE), copy.path().join(FILE)).unwrap();
        let forgotten = Note { writes: Vec::new(), replaced: Vec::new(), ..note(0) };
        for (directory, fleet, expected) in
            [(&directory, "fleet", note(7)), (&directory, "another", note(0)), (&copy, "fleet", forgotten)]
        {
            let (read, fault) = Notes::read(directory.path(), Some("boot"), fleet).unwrap();
            assert_eq!(fault, None);
            assert_eq!(read.of("f", "orders", "space"), Some(&expected), "{fleet}");
        }
    }

    #[test]
    fn notes_are_overwritten_where_the_disk_has_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let mut notes = read(directory.path(), Some("boot"));
        notes.set(Note { writes: vec![String::from("w"); 100], ..note(7) });
        save(&mut notes);
        let path = directory.path().join(FILE);
        let read = || read(directory.path(), Some("boot"));
        let document = |covered| {
            let document = Document { notes: vec![note(covered)], ..read().document };
            let text = String::from_utf8(document.bytes(1)).unwrap();
            text.trim_end().as_bytes().to_vec()
        };
        overwrite(&path, document(8)).unwrap();
        assert_eq!(read().of("f", "orders", "space"), Some(&note(8)));
        let too_long = vec![b' '; ROOM_BYTES + 1];
        assert_eq!(overwrite(&path, too_long).unwrap_err().kind(), StorageFull);
        assert_eq!(read().of("f", "orders", "space"), Some(&note(8)));
        // The new file is a link to a device that is always full.
        symlink("/dev/full", path.with_extension("new")).unwrap();
        notes.set(note(9));
        save(&mut notes);
        assert_eq!(read().of("f", "orders", "space"), Some(&note(9)));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let fault = || {
            let (notes, fault) = Notes::read(directory.path(), Some("boot"), "fleet").unwrap();
            assert!(notes.document.notes.is_empty());
            fault
        };
        assert_eq!(fault(), None, "there is no file");
        let whole = String::from_utf8(Document::default().bytes(1)).unwrap();
        let nameless = vec![Note { term: String::new(), ..note(7) }];
        let nameless = Document { notes: nameless, ..Document::default() };
        let nameless = String::from_utf8(nameless.bytes(1)).unwrap();
        for (text, reason) in [
            ("", "is damaged: the header is damaged"),
            ("{\"format\":2}", "is damaged: the header is damaged"),
            (&whole[..whole.find('}').unwrap()], "is damaged: the end is missing"),
            (&whole.replacen("null", "\"n\" ", 1), "is damaged: the checksum is wrong"),
            (&(sealed::header(WHAT, FORM, 1, "{}") + "{}"), "is damaged: missing field"),
            (&nameless, "is damaged: a note has no term, or names no marker"),
        ] {
            fs::write(&path, text).unwrap();
            let fault = fault().unwrap();
            let expected = format!("{}: {reason}", path.display());
            assert!(fault.starts_with(&expected) && fault.ends_with(WITHOUT), "{fault}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(fault().unwrap().contains("cannot be read"));
    }

    #[test]
    fn a_file_of_a_newer_release_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let document = serde_json::to_string(&Document::default()).unwrap();
        let more = document.replacen('{', "{\"more\":1,", 1);
        let later = |least_reader, document: &str| {
            let form = Form { format: 4, least_reader };
            let text = sealed::header(WHAT, form, 1, document) + document;
            fs::write(directory.path().join(FILE), text).unwrap();
            Notes::read(directory.path(), None, "").map(|(_, fault)| fault)
        };
        assert_eq!(later(3, &document), Ok(None));
        for (least_reader, document, reason) in [
            (3, &*more, "found \"more\" in it"),
            (4, "new", "found format 4, for programs that know format 4"),
        ] {
            let refused = later(least_reader, document).unwrap_err();
            assert_eq!(refused.cause(), Cause::Damaged);
            let refused = refused.to_string();
            assert!(refused.contains(reason) && refused.ends_with(WITHOUT), "{refused}");
        }
    }
}
