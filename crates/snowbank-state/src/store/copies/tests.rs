//! Damage to the text of a state file.

use hmac_sha256::Hash;

use super::*;
use crate::store::tests::record;
use snowbank_id::layout::Position;

const SLOT_BYTES: usize = 16 * 1024;
/// The size of a sector, the smallest part of a disk that is written as a whole.
const SECTOR_BYTES: usize = 512;

/// Returns two records at this ceiling, ordered by their keys.
pub(in crate::store) fn records_at(ceiling: u64) -> Vec<Record> {
    let records = [("clearing", "1-3"), ("twitter", "0,5")]
        .map(|(layout, workers)| record("orders", layout, workers, 0).at(Position(ceiling)));
    records.into()
}

pub(in crate::store) fn slot_at(number: u64, ceiling: u64) -> Vec<u8> {
    let document = document(&records_at(ceiling)).unwrap();
    slot(&header(number, &document), &document, SLOT_BYTES).unwrap()
}

pub(in crate::store) fn ceiling_of(bytes: &[u8]) -> Result<u64, CopyError> {
    let records = read(bytes)?.document.to_read().records;
    assert_eq!(records.len(), 2);
    assert!(
        records.iter().all(|record| record.ceiling() == records[0].ceiling()),
        "the records are from two writes"
    );
    Ok(records[0].ceiling().0)
}

#[test]
fn the_file_is_text_with_a_record_on_each_line() {
    let text = String::from_utf8(slot_at(42, 1_000)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("snowbank ceilings: format 1, least reader 1, number 42, length "),
        "{}",
        lines[0]
    );
    assert_eq!((lines[1], lines[4]), ("{\"records\":[", "]}"));
    for (line, record) in lines[2..4].iter().zip(records_at(1_000)) {
        let (layout, _) = record.numbering.snowflake().unwrap();
        assert!(line.starts_with(&format!("{{\"name\":\"orders\",\"layout\":\"{layout}\"")), "{line}");
    }
    assert!(lines[5..].iter().all(|line| line.len() < BLANK_LINE_BYTES && line.trim().is_empty()));
    assert!(text.ends_with('\n'));
}

#[test]
fn a_copy_may_fill_its_slot() {
    assert_eq!(slot("header\n", "document", 15).as_deref(), Some(&b"header\ndocument"[..]));
    assert_eq!(slot("header\n", "document", 14), None);
}

#[test]
fn the_checksum_is_that_of_sha256sum() {
    let text = String::from_utf8(slot_at(42, 1_000)).unwrap();
    let (fields, rest) = text.split_once(", sha256 ").unwrap();
    let (sum, rest) = rest.split_once('\n').unwrap();
    let end = rest.find("]}\n").unwrap() + 3;
    let expected = Hash::hash(format!("{fields}\n{}", &rest[..end]).as_bytes());
    assert_eq!(sum, expected.map(|byte| format!("{byte:02x}")).concat());
}

/// Calls `check` with many damaged versions of a file. In each version, one byte of a copy is
/// changed, or one sector is zero, full of noise, or from an older write.
fn damage(whole: &[u8], older: &[u8], mut check: impl FnMut(&[u8], &str)) {
    let document_end = whole.windows(3).position(|end| end == b"]}\n").unwrap() + SECTOR_BYTES;
    for copy in [0, SLOT_BYTES] {
        for at in copy..copy + document_end {
            for change in [1, 0x80, 0xFF] {
                let mut damaged = whole.to_vec();
                damaged[at] ^= change;
                check(&damaged, &format!("byte {at}"));
            }
        }
        for at in (copy..copy + SLOT_BYTES).step_by(SECTOR_BYTES) {
            let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(SECTOR_BYTES).collect();
            for sector in [&[0; SECTOR_BYTES], &noise[..], &older[at..at + SECTOR_BYTES]] {
                let mut damaged = whole.to_vec();
                damaged[at..at + SECTOR_BYTES].copy_from_slice(sector);
                check(&damaged, &format!("the sector at {at}"));
            }
        }
    }
}

#[test]
fn one_damaged_copy_never_brings_back_a_lower_ceiling() {
    let older = slot_at(6, 600).repeat(2);
    let whole = slot_at(7, 700).repeat(2);
    damage(&whole, &older, |damaged, what| assert_eq!(ceiling_of(damaged), Ok(700), "{what}"));
    // One copy is lost, for one of three reasons: the file was cut off, the copy was never written,
    // or the copy is still from the earlier write.
    for end in 0..whole.len() {
        let is_first_there = end > 4_096;
        if end % 97 == 0 || end > whole.len() - 10 {
            match ceiling_of(&whole[..end]) {
                Ok(ceiling) => assert_eq!(ceiling, 700, "cut off at {end}"),
                Err(error) => assert!(!is_first_there, "cut off at {end}: {error}"),
            }
        }
    }
    for lost in [vec![0; SLOT_BYTES], older[..SLOT_BYTES].to_vec()] {
        assert_eq!(ceiling_of(&[&lost, &whole[..SLOT_BYTES]].concat()), Ok(700));
        assert_eq!(ceiling_of(&[&whole[..SLOT_BYTES], &lost].concat()), Ok(700));
    }
}

#[test]
fn a_copy_of_a_newer_format_is_refused_if_it_is_whole() {
    let ours = slot_at(7, 700);
    let form = Form { format: 3, least_reader: 2 };
    let newer = slot(&sealed::header(WHAT, form, 8, "binary"), "binary", SLOT_BYTES).unwrap();
    for bytes in [newer.repeat(2), [ours.clone(), newer.clone()].concat(), [newer, ours.clone()].concat()] {
        let refused = read(&bytes).unwrap_err();
        assert_eq!(refused, CopyError::Newer(FormError::Newer { found: form, known: 1 }));
    }
    let damaged = String::from_utf8(ours.clone()).unwrap().replacen("format 1", "format 2", 1);
    assert_eq!(ceiling_of(&[damaged.as_bytes(), &ours].concat()), Ok(700));
}

#[test]
fn a_copy_of_a_later_format_is_shown_and_not_written_again() {
    let records = records_at(700);
    let document = document(&records).unwrap();
    let form = Form { format: 2, least_reader: 1 };
    let copy = |document: &str| slot(&sealed::header(WHAT, form, 8, document), document, SLOT_BYTES).unwrap();
    assert_eq!(read(&copy(&document)).unwrap().document.to_write().unwrap().records, records);
    for newer in [
        document.replacen("\"owner\":{", "\"owner\":{\"since\":7,", 1),
        document.replacen("{\"name\"", "{\"since\":7,\"name\"", 1),
        document.replacen("{\"records\"", "{\"since\":7,\"records\"", 1),
    ] {
        assert_eq!(ceiling_of(&copy(&newer)), Ok(700), "a command shows it");
        let refused = read(&copy(&newer)).unwrap().document.to_write().unwrap_err();
        assert_eq!(refused, FormError::Unknown(String::from("since")));
    }
}

#[test]
fn a_file_without_a_whole_copy_says_what_is_wrong_with_each() {
    let whole = slot_at(7, 700);
    let mut torn = whole.clone();
    torn[600] ^= 1;
    let refused = read(&[vec![0; SLOT_BYTES], torn].concat()).unwrap_err().to_string();
    assert_eq!(refused, "first copy: the header is damaged, second copy: the checksum is wrong");
    assert_eq!(
        read(&whole[..400]).unwrap_err().to_string().split(", ").next(),
        Some("first copy: the end is missing")
    );
    assert_eq!(read(b"").unwrap_err().to_string(), "it is empty");
    // A whole copy with a wrong record is refused, although an older copy is sound.
    let text = document(&records_at(700)).unwrap().replace("\"layout\":", "\"increment\":\"1\",\"layout\":");
    let wrong = slot(&header(8, &text), &text, SLOT_BYTES).unwrap();
    let refused = read(&[whole, wrong].concat()).unwrap_err();
    assert!(refused.to_string().contains("neither a layout nor a ticket counter"), "{refused}");
}

#[test]
fn the_copy_to_write_first_is_the_lost_or_older_one() {
    for (numbers, first) in
        [([Some(2), Some(3)], 0), ([Some(3), Some(2)], 1), ([None, Some(1)], 0), ([Some(1), None], 1)]
    {
        let document = read(&slot_at(1, 1)).unwrap().document;
        assert_eq!(Stored { document, numbers }.first_to_write(), first, "{numbers:?}");
    }
}

#[test]
fn the_last_of_two_records_with_one_key_counts() {
    let old = records_at(600);
    let new = records_at(700);
    assert_eq!(document(old.iter().chain(&new)).unwrap(), document(&new).unwrap());
}
