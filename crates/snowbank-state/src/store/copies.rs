//! The text of the state file: two copies of one JSON document. A checksum shows whether a copy is
//! whole.
//!
//! ```text
//! snowbank ceilings: format 1, least reader 1, number 42, length 613, sha256 6b1f…
//! {"records":[
//! {"name":"orders", …}
//! ]}
//! ```
//!
//! Each half of the file is a slot: a copy, then blanks. A write replaces and syncs one copy, and
//! then replaces and syncs the other copy. So at least one copy is whole at every moment, and after
//! a write both copies are equal. If both copies are whole, the copy with the higher number counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Record;
use crate::form::{self, Form, FormError, Read};
use crate::sealed::{self, Sealed};

const FORM: Form = Form { format: 1, least_reader: 1 };
/// The first words of a state file.
const WHAT: &str = "snowbank ceilings";
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
    /// This program may not use a copy, or may not write it again.
    #[error(transparent)]
    Newer(FormError),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) document: Read<Document>,
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

/// The document of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) records: Vec<Record>,
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
    sealed::header(WHAT, FORM, number, document)
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
/// is only for newer programs.
pub(super) fn read(bytes: &[u8]) -> Result<Stored, CopyError> {
    // In a file that was cut off, the first copy may reach beyond the middle of the bytes that are
    // left.
    let copies = [bytes, &bytes[bytes.len() / 2..]].map(|half| Sealed::find(WHAT, half));
    let numbers = [0, 1].map(|index| copies[index].as_ref().ok().map(|copy: &Sealed<'_>| copy.number));
    let reasons = [0, 1].map(|index| copies[index].as_ref().err().copied().unwrap_or("whole"));
    let whole = copies.iter().flatten();
    for copy in whole.clone() {
        FORM.may_read(copy.form).map_err(CopyError::Newer)?;
    }
    let Some(last) = whole.max_by_key(|copy| copy.number) else {
        if bytes.is_empty() {
            return Err(CopyError::Corrupt(String::from("it is empty")));
        }
        let text = format!("first copy: {}, second copy: {}", reasons[0], reasons[1]);
        return Err(CopyError::Corrupt(text));
    };
    let document = document_in(last.document).map_err(|error| CopyError::Foreign(error.to_string()))?;
    Ok(Stored { document, numbers })
}

fn document_in(text: &[u8]) -> serde_json::Result<Read<Document>> {
    form::read(&serde_json::from_slice(text)?)
}

#[cfg(test)]
pub(super) mod tests;
