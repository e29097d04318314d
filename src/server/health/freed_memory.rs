//! Gives memory back to the system after connections have closed.
//!
//! When the allocator takes or frees a large piece of memory, it also gives back what was freed some time ago. A daemon
//! that serves does neither, and kept the memory of ten thousand closed connections.

use std::hint::black_box;

/// The looks after the last closed connection: the first one may come before its memory was freed for long enough.
const LOOKS: u32 = 3;

/// A piece of memory that the allocator does not keep for later.
const LARGE_BYTES: usize = 4 << 20;

/// Makes the allocator give memory back.
#[derive(Debug, Default)]
pub(super) struct FreedMemory {
    /// The open connections at the last look.
    connections: u64,
    /// The remaining looks that free memory.
    looks_left: u32,
}

impl FreedMemory {
    /// Notes the open connections. If there were more, the allocator gives memory back at this look and the next ones.
    pub(super) fn note(&mut self, connections: u64) {
        if connections < self.connections {
            self.looks_left = LOOKS;
        }
        self.connections = connections;
        if let Some(left) = self.looks_left.checked_sub(1) {
            self.looks_left = left;
            drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
        }
    }
}
