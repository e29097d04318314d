//! The keys of a `get` that are not answered yet.

/// The most bytes of a buffer that an idle connection keeps. While keys are short, requests reuse
/// the kept buffer and allocate nothing.
const KEPT_BYTES_MAX: usize = 64;

/// Keys with blanks between them. The front end answers them in order.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// The end of the last key that has its ID.
    at: usize,
}

/// Returns whether a byte separates words.
pub(super) fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Returns the words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(is_blank).filter(|word| !word.is_empty())
}

impl Keys {
    /// Replaces the keys. `keys` has at least one key, and blanks between keys.
    pub(super) fn set(&mut self, keys: &[u8]) {
        self.clear();
        // Trailing blanks are cut, so that nothing follows the last key.
        let end = keys.iter().rposition(|byte| !is_blank(byte)).map_or(0, |last| last + 1);
        self.bytes.extend_from_slice(&keys[..end]);
    }

    /// Returns the size of the buffer in bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns true if no key waits for its ID.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the keys that have no ID yet.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        words(&self.bytes[self.at..])
    }

    /// Takes the next key, which is empty if there is none.
    pub(super) fn pop(&mut self) -> &[u8] {
        let rest = &self.bytes[self.at..];
        let blanks = rest.iter().position(|byte| !is_blank(byte)).unwrap_or(rest.len());
        let from = self.at + blanks;
        let size = self.bytes[from..].iter().position(is_blank).unwrap_or(self.bytes.len() - from);
        self.at = from + size;
        &self.bytes[from..self.at]
    }

    /// Drops the keys.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }

    /// Frees a large buffer once no key waits.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX {
            *self = Keys::default();
        }
    }
}
