//! A fuzzer's bytes as choices.

/// After the last byte every choice is the first one, so that short inputs work too.
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Choices { bytes }
    }

    /// Returns all unused bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Returns a number below `end`, which is at least 1. Uses as few bytes as possible.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let number = match end {
            0..=0x100 => self.byte().into(),
            0x101..=0x1_0000 => u16::from_le_bytes(self.array()).into(),
            0x1_0001..=0x1_0000_0000 => self.u32().into(),
            _ => u64::from_le_bytes(self.array()),
        };
        number % end
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let (taken, rest) = self.bytes.split_at(self.bytes.len().min(N));
        array[..taken.len()].copy_from_slice(taken);
        self.bytes = rest;
        array
    }
}
