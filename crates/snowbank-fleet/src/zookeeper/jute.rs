//! Jute, the encoding of ZooKeeper's protocol. Integers are big-endian. A text or a buffer begins
//! with its length.

/// A writer of a request's body.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn boolean(mut self, choice: bool) -> Self {
        self.0.push(u8::from(choice));
        self
    }

    /// Adds a buffer, which is encoded as a text is.
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut written = self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        written.0.extend_from_slice(bytes);
        written
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }
}

/// The unread rest of an answer's body. Its methods return `None` if the body ends too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        Some(self.take(1)? != [0])
    }

    /// Reads a text. A negative length stands for a missing text, which is read as an empty text.
    pub(super) fn text(&mut self) -> Option<String> {
        let size = usize::try_from(self.int()?).unwrap_or(0);
        Some(String::from_utf8_lossy(self.take(size)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jute_reads_back_unless_it_is_truncated() {
        let written = Writer::default().int(-7).long(1 << 40).boolean(true).text("ä").int(-1).0;
        let read = |bytes| {
            let mut reader = Reader(bytes);
            Some((reader.int()?, reader.long()?, reader.boolean()?, reader.text()?, reader.text()?))
        };
        assert_eq!(read(&written), Some((-7, 1 << 40, true, String::from("ä"), String::new())));
        for cut in 0..written.len() {
            assert_eq!(read(&written[..cut]), None);
        }
    }
}
