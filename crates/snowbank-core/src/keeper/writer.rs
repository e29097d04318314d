//! What the keeper knows of one writer: its write in flight, and its durable ceilings.

use super::managed_source::{Durable, Reach};
use crate::clock::BootMicros;

/// Ceilings for one writer to make durable, all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The writer, counted from 0.
    pub writer: usize,
    /// The write's number, counted from 1 for each writer. The outcome has the same number.
    pub number: u64,
    /// The ceilings, each with its source's index.
    pub ceilings: Vec<(usize, Durable)>,
    /// The ticket sources whose numbers another copy of the machine may hand out. A start must
    /// refuse these sources.
    pub restored: Vec<usize>,
    /// Wall − boot as the daemon believes it, in microseconds.
    pub wall_minus_boot_us: i64,
    /// The highest value of ID time − boot from now to the next write, in microseconds.
    pub id_minus_boot_us: i64,
}

/// What a writer reports when a write has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The writer.
    pub writer: usize,
    /// The number of the write.
    pub number: u64,
    /// Why the write failed, for people. `None` if all of its ceilings are durable. Ceilings of a
    /// failed write may be durable too.
    pub failure: Option<String>,
}

/// A write that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The reach of the writer.
    pub reach: Reach,
    /// When the keeper handed out the write.
    pub began: BootMicros,
    /// True if the ceilings of the write are durable.
    pub is_durable: bool,
}

/// The keeper's record of one writer.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) reach: Reach,
    /// The durable ceilings, by source.
    pub(super) durable: Vec<Durable>,
    /// The believed wall − boot that is stored with `durable`.
    pub(super) wall_minus_boot_us: i64,
    pub(super) writes: u64,
    /// The write that was handed out and has no outcome yet, and when it was handed out.
    pub(super) in_flight: Option<(Write, BootMicros)>,
    /// When all ceilings are raised next, unless a source needs a raise sooner.
    pub(super) due: Option<BootMicros>,
    /// Why the last write failed. The next write then waits until `due`.
    pub(super) failure: Option<String>,
}
