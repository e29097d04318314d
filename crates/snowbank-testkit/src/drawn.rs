//! The IDs that clients of the front ends draw.

use std::collections::{HashMap, HashSet};

/// The number of digits of every ID of Twitter's layout since 2018. No other number in a reply has
/// that many digits.
const DIGITS: usize = 19;

/// The IDs that a client has drawn, by source.
#[derive(Default)]
pub struct Drawn {
    /// All IDs so far.
    pub all: HashSet<u64>,
    last: HashMap<String, u64>,
}

impl Drawn {
    /// Adds the ID in a line. The line's second word is the source, and the third is the ID. The ID
    /// must be new, and above the last ID of the source.
    pub fn add(&mut self, line: &str) {
        let mut words = line.split(' ').skip(1);
        let (Some(source), Some(Ok(id))) = (words.next(), words.next().map(str::parse)) else {
            panic!("{line:?} is no ID");
        };
        let last = self.last.insert(source.to_owned(), id);
        assert!(last.is_none_or(|last| last < id), "{id} is not above {last:?}, the last ID of {source}");
        assert!(self.all.insert(id), "{id} came twice");
    }
}

/// Returns the IDs in the bytes of replies, for protocols that write IDs as decimal numbers.
pub fn ids_of(replies: &[u8]) -> Vec<u64> {
    let texts = replies.split(|byte| !byte.is_ascii_digit()).filter(|text| text.len() == DIGITS);
    texts.filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok()).collect()
}
