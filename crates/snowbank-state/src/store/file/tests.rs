//! Crashes at every point of a write, and files that cannot be written in place.

use std::cell::RefCell;

use proptest::prelude::*;

use super::super::copies::tests::{ceiling_of, records_at, slot_at};
use super::*;

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
enum Act {
    Write(usize, Vec<u8>),
    Sync,
}

/// A disk that notes each write and each sync.
#[derive(Default)]
struct Noted(RefCell<Vec<Act>>);

impl Disk for Noted {
    fn write_at(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.0.borrow_mut().push(Act::Write(at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.borrow_mut().push(Act::Sync);
        Ok(())
    }
}

/// Applies acts to a disk that then loses power. All writes before the last sync reach the disk. Of
/// each later write, only the sectors for which `reaches_disk` returns true do.
fn lose_power(disk: &mut [u8], acts: &[Act], mut reaches_disk: impl FnMut() -> bool) {
    let synced = acts.iter().rposition(|act| matches!(act, Act::Sync)).unwrap_or(0);
    for (index, act) in acts.iter().enumerate() {
        let Act::Write(at, bytes) = act else { continue };
        for (sector, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if index < synced || reaches_disk() {
                disk[at + sector * SECTOR_BYTES..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A process may die at any point of a write, and any sectors of that write may reach the disk.
    /// The ceiling in the file must never be below what was granted. This must also hold if, in
    /// addition, one copy is damaged or has lost its last write. But if the last write was also cut
    /// short, the file may be refused.
    #[test]
    fn a_power_failure_never_lowers_a_granted_ceiling(
        lives in prop::collection::vec((0_usize..3, 0_usize..5, any::<u64>()), 1..8),
    ) {
        let mut disk = slot_at(1, 100).repeat(2);
        let mut granted = 100;
        let mut next = 100;
        for (raises, crash_at, seed) in lives {
            let mut random = fastrand::Rng::with_seed(seed);
            let found = copies::read(&disk).unwrap();
            let mut number = found.number();
            let mut first = found.first_to_write();
            let mut before = disk.clone();
            for raise in 0..=raises {
                number += 1;
                next += 100;
                before.clone_from(&disk);
                let noted = Noted::default();
                overwrite(&noted, &slot_at(number, next), &mut first).unwrap();
                let mut acts = noted.0.into_inner();
                let is_crash = raise == raises && crash_at < acts.len();
                if is_crash {
                    acts.truncate(crash_at);
                } else {
                    granted = next;
                }
                lose_power(&mut disk, &acts, || random.bool());
            }
            prop_assert!(ceiling_of(&disk).is_ok_and(|ceiling| ceiling >= granted), "granted {granted}");
            let half = disk.len() / 2;
            for copy in [0, half] {
                let mut damaged = disk.clone();
                damaged[copy..copy + half].fill(0);
                prop_assert!(ceiling_of(&damaged).map_or(granted < next, |ceiling| ceiling >= granted), "granted {granted}");
                // The disk has lost the last write of this copy.
                damaged[copy..copy + half].copy_from_slice(&before[copy..copy + half]);
                prop_assert!(ceiling_of(&damaged).map_or(granted < next, |ceiling| ceiling >= granted), "granted {granted}");
            }
        }
    }
}

fn inode(directory: &Path) -> FileId {
    file_id(&fs::metadata(path(directory)).unwrap())
}

#[test]
fn a_start_writes_in_place_unless_the_file_is_unfit() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut ceiling = 100;
    let mut start = || {
        ceiling += 100;
        StateFile::of(directory).write(&records_at(ceiling)).unwrap();
        let bytes = fs::read(path(directory)).unwrap();
        assert_eq!(ceiling_of(&bytes), Ok(ceiling));
        assert_eq!(bytes[..bytes.len() / 2], bytes[bytes.len() / 2..]);
        bytes
    };
    let length = start().len();
    assert_eq!(length, 2 * slot_bytes_min());
    let before = inode(directory);
    let bytes = start();
    assert_eq!(inode(directory), before);
    // If one copy is damaged, a start writes this copy first.
    for copy in [0, length / 2] {
        let mut damaged = bytes.clone();
        damaged[copy + 300] ^= 1;
        fs::write(path(directory), &damaged).unwrap();
        start();
        assert_eq!(inode(directory), before);
    }
    for unfit in [&bytes[..length - 1], &bytes[..length / 2], &[&bytes[..], b" "].concat()] {
        fs::write(path(directory), unfit).unwrap();
        let before = inode(directory);
        assert_eq!(start().len(), length);
        assert_ne!(inode(directory), before);
    }
}

#[test]
fn a_file_without_room_for_the_records_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = StateFile::of(directory.path());
    let mut records = records_at(100);
    file.write(&records).unwrap();
    let before = inode(directory.path());
    while inode(directory.path()) == before {
        records.push(Record { name: format!("source {}", records.len()), ..records[0].clone() });
        file.write(&records).unwrap();
        assert_eq!(file.still_ours(), Ok(()));
        let found = copies::read(&fs::read(path(directory.path())).unwrap()).unwrap();
        assert_eq!(found.document.to_read().records.len(), records.len());
    }
    assert!(records.len() > 16, "the first file has room for {} records only", records.len());
}

#[test]
fn an_unfinished_file_of_a_crash_does_not_prevent_a_write() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(UNFINISHED_NAME), "half").unwrap();
    StateFile::of(directory.path()).write(&records_at(100)).unwrap();
    assert!(!directory.path().join(UNFINISHED_NAME).exists());
}

#[test]
fn a_file_that_was_cut_off_is_no_longer_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = StateFile::of(directory.path());
    file.write(&records_at(100)).unwrap();
    assert_eq!(file.still_ours(), Ok(()));
    let cut = OpenOptions::new().write(true).open(path(directory.path())).unwrap();
    cut.set_len(slot_bytes_min() as u64).unwrap();
    file.still_ours().unwrap_err();
}

#[test]
fn no_file_is_made_that_is_too_long_to_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let record = Record { name: "n".repeat(FILE_BYTES_MAX as usize / 4), ..records_at(100).remove(0) };
    StateFile::of(directory.path()).write(&[record]).unwrap_err();
    assert!(!path(directory.path()).exists());
}
