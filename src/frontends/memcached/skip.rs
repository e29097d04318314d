//! The value of a refused storage command. The client sends it without waiting for the refusal, so it
//! is read and dropped. No byte of it is a command.

/// The part of a refused value that has not arrived yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skip {
    /// The bytes of the value.
    bytes: u64,
    /// True if the rest of a line follows the value.
    to_line_end: bool,
    /// The number of values so far.
    values: u64,
}

impl Skip {
    /// Skips a value behind a line. What is left of the value's last line is no command either, even
    /// if the client counted wrong.
    pub(super) fn block(&mut self, bytes: u32) {
        *self = Skip { bytes: bytes.into(), to_line_end: true, values: self.values + 1 };
    }

    /// Skips the body of a packet.
    pub(super) fn body(&mut self, bytes: usize) {
        *self = Skip { bytes: bytes as u64, to_line_end: false, values: self.values + 1 };
    }

    /// Returns the number of the value that has not arrived whole, counted from 1; 0 if there is none.
    pub(super) fn unfinished(self) -> u64 {
        if self.is_over() { 0 } else { self.values }
    }

    /// Returns whether nothing is left to skip.
    pub(super) fn is_over(self) -> bool {
        self.bytes == 0 && !self.to_line_end
    }

    /// Skips what is in `bytes`, and returns how many bytes these are. It is at least one, if
    /// something is left to skip and `bytes` is not empty.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let of_value = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.bytes -= of_value as u64;
        if self.bytes > 0 || !self.to_line_end {
            return of_value;
        }
        match bytes[of_value..].iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                self.to_line_end = false;
                of_value + at + 1
            }
            None => bytes.len(),
        }
    }
}
