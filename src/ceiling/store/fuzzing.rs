//! Any bytes as a state file and as damage to one, and any text as an export.

use std::sync::{Arc, OnceLock};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::file::{commit, make_database};
use super::image;
use super::record::{Record, id_bound};
use super::{Claimant, Export, Plan, merge, plan};
use crate::ceiling::{Owner, Place};
use crate::fuzzing::Choices;
use snowbank_client::layout::{Layout, Numbering, Position, Tick, UnixMicros};

/// 2027-01-15T08:00:00Z
const WALL: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);
const PAGE_BYTES: usize = 4096;
/// The parts of the first page: what says which commit is the last, and the two commits.
const HEADER_PARTS: [(usize, usize); 3] = [(0, 64), (64, 128), (192, 128)];

/// A whole file, or damage to one part of a real one: of its header, of one of its two commits, or of a page.
///
/// What is refused is refused in one line. Records that are read hold together; those of a damaged file are those of its last
/// commit, never of the one before, whose ceilings are lower.
pub fn state_file(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.bool() {
        for record in read(choices.rest().to_vec()).unwrap_or_default() {
            assert_eq!(record.check(), Ok(()));
        }
        return;
    }
    let (whole, written) = real_file();
    let mut damaged = whole.clone();
    let pages = whole.len() / PAGE_BYTES;
    let part = choices.below((HEADER_PARTS.len() + pages - 1) as u64) as usize;
    let (at, size) = HEADER_PARTS.get(part).copied().unwrap_or_else(|| {
        let page = part - HEADER_PARTS.len() + 1;
        (page * PAGE_BYTES, PAGE_BYTES)
    });
    let from = choices.below(size as u64) as usize;
    let is_cut = choices.byte() == 1;
    for (byte, change) in damaged[at + from..at + size].iter_mut().zip(choices.rest()) {
        *byte ^= change;
    }
    if is_cut {
        damaged.truncate(at + from);
    }
    if let Some(records) = read(damaged) {
        assert_eq!(records, *written, "damage to part {part} from byte {from} on");
    }
}

fn read(bytes: Vec<u8>) -> Option<Vec<Record>> {
    match image::records(bytes) {
        Ok(records) => Some(records),
        Err(error) => {
            assert_is_a_line(&error.to_string());
            None
        }
    }
}

fn assert_is_a_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}

/// A file whose ceilings were raised a few times, as a crash leaves it, and the records of its last raise.
fn real_file() -> &'static (Vec<u8>, Vec<Record>) {
    static FILE: OnceLock<(Vec<u8>, Vec<Record>)> = OnceLock::new();
    FILE.get_or_init(|| {
        let numberings = ["twitter", "clearing"].map(|layout| {
            let layout = Layout::resolve(layout).expect("a preset");
            Numbering::new(layout, "1-3".parse().expect("worker IDs")).expect("they exist")
        });
        // Nothing of it is drawn, so that an input means the same in every run.
        let owner = Owner { instance: "0".repeat(32), pid: 1, state: "1".repeat(32) };
        let records = |tick| -> Vec<Record> {
            let at = |numbering: &Numbering| numbering.first_of(Tick(tick));
            let record =
                |numbering| Record::new("orders", numbering, at(numbering), &owner, &Place::default());
            numberings.iter().map(record).collect()
        };
        let memory = Arc::new(InMemoryBackend::new());
        let database = make_database(Memory(Arc::clone(&memory))).expect("memory does not fail");
        let mut written = Vec::new();
        for tick in 1_000_000..1_000_004 {
            written = records(tick);
            commit(&database, &written.iter().collect::<Vec<_>>()).expect("memory does not fail");
        }
        // Before the database is closed, which would be one more commit.
        let mut bytes = vec![0; memory.len().expect("memory does not fail") as usize];
        memory.read(0, &mut bytes).expect("memory does not fail");
        written.sort_by_key(Record::key);
        (bytes, written)
    })
}

/// Memory that is still there when the database is.
#[derive(Debug)]
struct Memory(Arc<InMemoryBackend>);

impl StorageBackend for Memory {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

/// Two texts as exports, the second imported after the first.
///
/// What is refused is refused in one line. What is read is written as it was read. After an import nothing that was stored is
/// forgotten, and no source starts below what it or the import says was granted.
pub fn state_import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (owner, here) = (Owner { instance: "0".repeat(32), pid: 1, state: "1".repeat(32) }, Place::default());
    let mut stored: Vec<Record> = Vec::new();
    for text in text.splitn(2, '\0') {
        let export = match Export::parse(text) {
            Ok(export) => export,
            Err(error) => return assert_is_a_line(&error.to_string()),
        };
        let written = serde_json::to_string(&export).expect("an export is JSON");
        assert_eq!(Export::parse(&written).as_ref(), Ok(&export));
        let arriving = export.records.clone();
        let merged = match merge(stored.clone(), export, &owner, &here) {
            Ok(merged) => merged,
            Err(error) => return assert_is_a_line(&error.to_string()),
        };
        for record in stored.iter().chain(&arriving) {
            assert!(merged.iter().any(|other| other.says_all_of(record)), "{record:?} is forgotten");
            check_start(&merged, record);
        }
        stored = merged;
    }
}

/// A source configured as a record says starts at its bound or above, if it starts.
fn check_start(records: &[Record], record: &Record) {
    let numbering = record.numbering().expect("it was checked");
    let claimant =
        Claimant { name: &record.name, numbering: &numbering, max_ahead: std::time::Duration::ZERO };
    match plan(records, &[claimant], WALL) {
        Ok(Plan { starts, .. }) => {
            let start: Position = starts[0].expect("a record binds it");
            assert!(id_bound(&numbering, start) >= record.id_bound, "{record:?} starts at {start:?}");
        }
        Err(error) => assert_is_a_line(&error.to_string()),
    }
}
