//! Stand-in for the `layout` room until it lands: only the run, which the wire format speaks of.

/// Consecutive IDs of one tick: `first`, `first + stride`, … (`count` of them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The lowest ID.
    pub first: u64,
    /// How many IDs; at least 1.
    pub count: u32,
    /// The distance from one ID to the next.
    pub stride: u64,
}

impl Run {
    /// The highest ID.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.count - 1) * self.stride
    }
}
