//! Any bytes as a state file, and any text as an export.

use super::copies;
use super::record::Record;
use super::{Claimant, Export, Plan, merge, plan};
use crate::{HostIdentity, Owner};
use snowbank_id::layout::{Position, UnixMicros};

/// 2027-01-15T08:00:00Z
const WALL: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);

/// Any bytes as a file.
///
/// A refusal is one line. Records that are read hold together.
pub fn state_file(data: &[u8]) {
    match copies::read(data) {
        Ok(stored) => stored.records.iter().for_each(|record| assert_eq!(record.check(), Ok(()))),
        Err(error) => assert_is_a_line(&error.to_string()),
    }
}

fn assert_is_a_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
}

/// Two texts as exports, the second imported after the first.
///
/// A refusal is one line. A text that is read is written back unchanged. After an import no stored
/// record is lost, and no source starts below the bound of its record or of the import.
pub fn state_import(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let owner = Owner { instance: "0".repeat(32), pid: 1, state: "1".repeat(32) };
    let here = HostIdentity::default();
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
    let numbering = record.numbering.clone();
    let claimant = Claimant {
        name: &record.name,
        numbering: &numbering,
        max_ahead: std::time::Duration::ZERO,
        catch_up: std::time::Duration::ZERO,
        in_fleet: false,
        state_dir: None,
    };
    match plan(records, &[claimant], WALL) {
        Ok(Plan { starts, .. }) => {
            let start: Position = starts[0].expect("a record binds it");
            assert!(numbering.id_bound(start) >= record.id_bound, "{record:?} starts at {start:?}");
        }
        Err(error) => assert_is_a_line(&error.to_string()),
    }
}
