//! The text of the state file: two copies of one JSON document. A checksum shows whether a copy is
//! whole.
//!
//! ```text
//! snowbank ceilings: format 1, number 42, length 613, sha256 6b1f…
//! {"records":[
//! {"name":"orders", …}
//! ]}
//! ```
//!
//! Each half of the file is a slot: a copy, then blanks. The checksum covers the fields of the
//! header that come before it, a line end, and the document. A write replaces and syncs one copy,
//! and then replaces and syncs the other copy. So at least one copy is whole at every moment, and
//! after a write both copies are equal. If both copies are whole, the copy with the higher number
//! counts.
//!
//! Every later format keeps this header line, so that an older program can distinguish a newer file
//! from a damaged one.

use std::collections::BTreeMap;

use hmac_sha256::Hash;
use serde::Deserialize;

use super::record::Record;

/// The version of the document. A change of the document gets a new version only if an older
/// program would misread it.
const FORMAT: u32 = 1;
/// The number of bytes in which a reader looks for the end of the header line: more than twice the
/// length of the longest header line that a writer writes.
const HEADER_BYTES_MAX: usize = 320;
/// The length of each blank line after a document. The line ends are there for people who read the
/// file.
const BLANK_LINE_BYTES: usize = 128;

/// The reason why the bytes of a file give no records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CopyError {
    /// No copy is whole.
    #[error("{0}")]
    Corrupt(String),
    /// The copy that counts is whole, but has a record that this program does not write.
    #[error(
        "it is whole, but this program cannot read a record of it ({0}): run the program that wrote it, or find out who \
         changed it"
    )]
    Foreign(String),
    /// A copy has this newer format.
    #[error("it has format {0}, and this program reads up to {FORMAT}: run the newer program that wrote it")]
    Newer(u32),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) records: Vec<Record>,
    /// The number of each copy; `None` for a copy that is not whole.
    pub(super) numbers: [Option<u64>; 2],
}

impl Stored {
    /// Returns the number of the last write.
    pub(super) fn number(&self) -> u64 {
        self.numbers.into_iter().flatten().max().unwrap_or(0)
    }

    /// Returns the index of the copy to write first: the copy that is not whole, or otherwise the
    /// older copy.
    pub(super) fn first_to_write(&self) -> usize {
        usize::from(self.numbers[1] < self.numbers[0])
    }
}

#[derive(Deserialize)]
struct Document {
    records: Vec<Record>,
}

/// Returns the document of these records, ordered by their keys. If two records have the same key,
/// the later one counts.
///
/// # Panics
/// A record does not read back as it is. The next start would refuse the state.
pub(super) fn document<'a>(records: impl IntoIterator<Item = &'a Record>) -> serde_json::Result<String> {
    let by_key: BTreeMap<String, &Record> =
        records.into_iter().map(|record| (record.key(), record)).collect();
    let lines: Vec<String> = by_key.values().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let document = format!("{{\"records\":[\n{}\n]}}\n", lines.join(",\n"));
    let written: Document = serde_json::from_str(&document)?;
    assert!(written.records.iter().eq(by_key.into_values()), "a daemon reads what it writes: {document}");
    Ok(document)
}

pub(super) fn header(number: u64, document: &str) -> String {
    let fields = format!("snowbank ceilings: format {FORMAT}, number {number}, length {}", document.len());
    let checksum = checksum(&fields, document.as_bytes());
    format!("{fields}, sha256 {checksum}\n")
}

/// Returns the bytes of a full slot: a copy, then blanks. Returns `None` if the copy is longer than
/// the slot.
pub(super) fn slot(header: &str, document: &str, slot_bytes: usize) -> Option<Vec<u8>> {
    let mut slot = [header, document].concat().into_bytes();
    if slot.len() > slot_bytes {
        return None;
    }
    for at in slot.len()..slot_bytes {
        let is_line_end = (at + 1).is_multiple_of(BLANK_LINE_BYTES);
        slot.push(if is_line_end { b'\n' } else { b' ' });
    }
    Some(slot)
}

/// Reads the records of a state file from all of its bytes.
///
/// # Errors
/// There are three reasons: no copy is whole, the copy that counts has an invalid record, or a copy
/// has a newer format.
pub(super) fn read(bytes: &[u8]) -> Result<Stored, CopyError> {
    // In a file that was cut off, the first copy may reach beyond the middle of the bytes that are
    // left.
    let copies = [bytes, &bytes[bytes.len() / 2..]].map(WholeCopy::find);
    let numbers = [0, 1].map(|index| copies[index].as_ref().ok().map(|copy: &WholeCopy<'_>| copy.number));
    let reasons = [0, 1].map(|index| copies[index].as_ref().err().copied().unwrap_or("whole"));
    let whole = copies.iter().flatten();
    if let Some(newer) = whole.clone().find(|copy| copy.format > FORMAT) {
        return Err(CopyError::Newer(newer.format));
    }
    let Some(last) = whole.max_by_key(|copy| copy.number) else {
        if bytes.is_empty() {
            return Err(CopyError::Corrupt(String::from("it is empty")));
        }
        let text = format!("first copy: {}, second copy: {}", reasons[0], reasons[1]);
        return Err(CopyError::Corrupt(text));
    };
    Ok(Stored { records: last.records().map_err(CopyError::Foreign)?, numbers })
}

/// A copy whose checksum is right.
#[derive(Clone, Copy, Debug)]
struct WholeCopy<'a> {
    format: u32,
    number: u64,
    document: &'a [u8],
}

impl<'a> WholeCopy<'a> {
    /// Returns the copy at the beginning of these bytes.
    fn find(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let start = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
        let end = start.iter().position(|&byte| byte == b'\n').ok_or("the header is damaged")?;
        let header = std::str::from_utf8(&start[..end]).map_err(|_| "the header is damaged")?;
        let (fields, wanted) = header.split_once(", sha256 ").ok_or("the header is damaged")?;
        let (format, number, length) = parse_fields(fields).ok_or("the header is damaged")?;
        let document = bytes[end + 1..].get(..length).ok_or("the end is missing")?;
        if checksum(fields, document) != wanted {
            return Err("the checksum is wrong");
        }
        Ok(WholeCopy { format, number, document })
    }

    fn records(&self) -> Result<Vec<Record>, String> {
        let document: Document = serde_json::from_slice(self.document).map_err(|error| error.to_string())?;
        Ok(document.records)
    }
}

fn parse_fields(fields: &str) -> Option<(u32, u64, usize)> {
    let (format, rest) = fields.strip_prefix("snowbank ceilings: format ")?.split_once(", number ")?;
    let (number, length) = rest.split_once(", length ")?;
    Some((format.parse().ok()?, number.parse().ok()?, length.parse().ok()?))
}

fn checksum(fields: &str, document: &[u8]) -> String {
    let mut hash = Hash::new();
    hash.update(fields);
    hash.update("\n");
    hash.update(document);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests;
