//! Requests that pass those that wait, and how many IDs they may still take.

/// The permission of a request to be served before those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum Passage {
    /// No request waits.
    Free,
    /// It may pass those that wait. It is counted against the IDs that they leave until the next look.
    Counted(Look),
    /// It must queue.
    Closed,
}

/// The look at the queue that set the number of IDs that may pass. Wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Look(pub(super) u16);

/// The number of IDs that may pass, and the look that set it, in one machine word. If IDs were given back after a later
/// look, more would pass than the promises allow.
#[derive(Clone, Copy)]
pub(super) struct PassingLeft {
    pub(super) look: Look,
    pub(super) ids: u64,
}

impl PassingLeft {
    const IDS_MAX: u64 = u64::MAX >> u16::BITS;

    pub(super) fn unpacked(word: u64) -> Self {
        PassingLeft { look: Look((word >> Self::IDS_MAX.count_ones()) as u16), ids: word & Self::IDS_MAX }
    }

    pub(super) fn packed(self) -> u64 {
        u64::from(self.look.0) << Self::IDS_MAX.count_ones() | self.ids.min(Self::IDS_MAX)
    }
}
