//! Fuzz targets: any bytes as a state file, any bytes as damage to a state file, and any text as an
//! export.

use std::sync::OnceLock;

use super::copies;
use super::moved::{export_text, merge, parse_export};
use super::record::Record;
use super::{Claimant, Plan, plan};
use crate::fuzzing::Choices;
use crate::{HostIdentity, Owner};
use snowbank_id::layout::{Layout, Tick, UnixMicros};
use snowbank_id::numbering::Numbering;

/// 2027-01-15T08:00:00Z
const WALL: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);
const SLOT_BYTES: usize = 16 * 1024;

/// Reads any bytes as a state file, or reads a real state file in which one copy is damaged. Each
/// copy of the real file may lack the last write.
///
/// A refusal must be one line, and records that are read must be consistent. Damage to the older
/// copy, or to one of two equal copies, must have no effect. After damage to the newer copy, the
/// older copy may count.
pub fn state_file(data: &[u8]) {
    let mut choices = Choices(data);
    if choices.bool() {
        // This panics if the records do not read back.
        copies::document(&read(choices.0).unwrap_or_default()).expect("records are JSON");
        return;
    }
    let generations = generations();
    let damaged_copy = usize::from(choices.bool());
    let ages = [usize::from(choices.bool()), usize::from(choices.bool())];
    let from = usize::from(choices.u16()) % SLOT_BYTES;
    let mut bytes = ages.map(|age| &*generations[age].0).concat();
    let slot = &mut bytes[damaged_copy * SLOT_BYTES..][..SLOT_BYTES];
    for (byte, change) in slot[from..].iter_mut().zip(choices.0) {
        *byte ^= change;
    }
    let newest = ages.into_iter().max().unwrap_or(0);
    let other = ages[1 - damaged_copy];
    let found = read(&bytes).expect("one copy is whole");
    assert!([newest, other].iter().any(|&age| found == generations[age].1), "{damaged_copy}, {ages:?}");
}

fn read(bytes: &[u8]) -> Option<Vec<Record>> {
    match copies::read(bytes) {
        Ok(stored) => Some(stored.document.to_read().records),
        Err(error) => {
            assert_is_a_line(&error.to_string());
            None
        }
    }
}

fn assert_is_a_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}

/// Returns the slot and the records of two successive writes.
fn generations() -> &'static [(Vec<u8>, Vec<Record>); 2] {
    static GENERATIONS: OnceLock<[(Vec<u8>, Vec<Record>); 2]> = OnceLock::new();
    GENERATIONS.get_or_init(|| {
        let layouts = ["clearing", "twitter"].map(|layout| Layout::resolve(layout).expect("a preset"));
        // The owner is not random, so that the same input always makes the same file.
        let owner = Owner { instance: "0".repeat(32), pid: 1, state: "1".repeat(32) };
        [1, 2].map(|number| {
            let record = |layout: &Layout| {
                let numbering = Numbering::new(layout.clone(), "1-3".parse().expect("worker IDs"));
                let numbering = numbering.expect("the worker IDs exist");
                let ceiling = numbering.first_of(Tick(1_000_000 + number));
                Record::new("orders", &numbering, ceiling, &owner, &HostIdentity::default())
            };
            let mut records: Vec<Record> = layouts.iter().map(record).collect();
            records.sort_by_key(Record::key);
            let document = copies::document(&records).expect("records are JSON");
            let slot = copies::slot(&copies::header(number, &document), &document, SLOT_BYTES);
            (slot.expect("the copy fits"), records)
        })
    })
}

/// Reads two texts as exports, and imports the second export after the first.
///
/// A refusal must be one line. An export that is written and read again must be the same. After an
/// import, the state must still cover every stored and every imported record, and no source may
/// start below the bound of any of these records.
pub fn state_import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let owner = Owner { instance: "0".repeat(32), pid: 1, state: "1".repeat(32) };
    let here = HostIdentity::default();
    let mut stored: Vec<Record> = Vec::new();
    for text in text.splitn(2, '\0') {
        let export = match parse_export(text) {
            Ok(export) => export,
            Err(error) => return assert_is_a_line(&error.to_string()),
        };
        assert_eq!(parse_export(&export_text(&export)).as_ref(), Ok(&export));
        let merged = match merge(stored.clone(), export.clone(), &owner, &here) {
            Ok(merged) => merged,
            Err(error) => return assert_is_a_line(&error.to_string()),
        };
        for record in stored.iter().chain(&export) {
            let is_kept = record.forgotten || merged.iter().any(|other| other.says_all_of(record));
            assert!(is_kept, "{record:?} is lost");
            check_start(&merged, record);
        }
        stored = merged;
    }
}

/// Plans the start of a source with the name and numbering of a record. The plan must refuse the
/// source, or start it at the record's bound or above.
fn check_start(records: &[Record], record: &Record) {
    let numbering = record.numbering.clone();
    let claimant = Claimant {
        name: &record.name,
        numbering: &numbering,
        max_ahead: std::time::Duration::ZERO,
        catch_up: std::time::Duration::ZERO,
        in_fleet: false,
        options: "",
    };
    match plan(records, &[claimant], WALL) {
        Ok(Plan { starts, .. }) => {
            let start = starts[0].expect("a record binds the source");
            assert!(start.id_bound >= record.id_bound, "{record:?} starts at {start:?}");
        }
        Err(error) => assert_is_a_line(&error.to_string()),
    }
}
