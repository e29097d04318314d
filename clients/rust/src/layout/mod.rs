//! Layouts: how an ID is divided into fields.
//!
//! A layout is a mixed-radix number. Each field takes a number of values, 2^12, 10^3 or any other, and its *weight* is
//! the product of the sizes below it:
//!
//! ```text
//!   ID = time × W₀ + field₁ × W₁ + … + fieldₙ × 1        Wᵢ = sizeᵢ₊₁ × … × sizeₙ
//! ```
//!
//! Bits and decimal digits are then the same thing. Everything is checked when a [`Layout`] is built (`build.rs` has all
//! the checks); a [`Numbering`] joins it with the worker IDs that a daemon holds and does the hot path's arithmetic:
//! positions to runs of IDs. Nothing here does I/O or reads a clock.

mod build;
mod decode;
mod error;
mod field;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod instant;
mod numbering;
mod preset;
mod run;
mod space;
mod text;
mod toml;
mod workers;

pub use decode::{Decoded, Life};
pub use error::LayoutError;
pub use field::{Field, FieldSize, FieldSpec, MAX_FIELD_NAME_LEN, Role};
pub use instant::{InstantError, Tick, UnixMicros};
pub use numbering::Numbering;
pub use preset::{PRESETS, Preset, find as find_preset};
pub use run::{Position, Run, append_run};
pub use space::{NotASpace, Space, collision, twins};
pub use toml::{EpochForm, FieldForm, LayoutForm, LayoutTable};
pub use workers::{MAX_WORKER_IDS, WorkerSet};

use build::ID_LIMIT;

/// How an ID is divided into fields, with the length of its tick and the instant of its tick 0.
///
/// Built from a preset's name or a text form by [`Layout::resolve`], from a table by [`LayoutForm::build`], or by
/// [`Layout::new`]; `Display` writes the text form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Invariant: `time` first, exactly one `sequence`, random fields below all node fields and the sequence; the sizes
    /// multiply to at most 2^63, or at most 10^19 with a decimal time field.
    fields: Vec<Field>,
    /// Invariant: 1 to `MAX_TICK_MS`.
    tick_ms: u64,
    /// Invariant: within the years that RFC 3339 can write.
    epoch_unix_ms: i64,
    /// What the constant fields add to every ID.
    constants: u64,
    /// Ticks all of whose IDs exist; those in which IDs are made.
    whole_ticks: u64,
    /// Ticks with an ID: the whole ones, and one more if the limit of 2^63 - 1 falls within it.
    ticks: u64,
    /// The size of the sequence.
    ids_per_tick: u64,
    /// The product of the sizes of the node fields; 1 if there is none.
    workers: u64,
}

impl Layout {
    /// The fields, most significant first; the first is the time.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The length of a tick in ms.
    pub fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// The start of tick 0 in Unix ms; negative before 1970.
    pub fn epoch_unix_ms(&self) -> i64 {
        self.epoch_unix_ms
    }

    /// How many IDs one worker has in a tick.
    pub fn ids_per_tick(&self) -> u64 {
        self.ids_per_tick
    }

    /// How many IDs one worker has in a second, rounded down; saturates.
    pub fn ids_per_second(&self) -> u64 {
        let per_second = u128::from(self.ids_per_tick) * 1000 / u128::from(self.tick_ms);
        u64::try_from(per_second).unwrap_or(u64::MAX)
    }

    /// How many worker numbers there are, 0 to that − 1; 1 without a node field.
    pub fn workers(&self) -> u64 {
        self.workers
    }

    /// The start of the first tick: the epoch.
    pub fn first(&self) -> UnixMicros {
        self.start_of(Tick(0))
    }

    /// The start of the last tick of which an ID exists; some of that tick's IDs may be cut off by the limit of
    /// 2^63 − 1. A layout that would outlast the year 9999 ends with it, because RFC 3339 does.
    pub fn last(&self) -> UnixMicros {
        self.start_of(Tick(self.ticks - 1))
    }

    /// The end of the layout's life, exclusive: the first instant for which no ID can be made any more. A last tick
    /// that is cut off makes none.
    pub fn end(&self) -> UnixMicros {
        self.start_of(Tick(self.whole_ticks))
    }

    /// The largest ID.
    pub fn last_id(&self) -> u64 {
        // At most one tick over the limit: below 2^63 + 10^18.
        (self.ticks * self.tick_weight()).min(ID_LIMIT) - 1
    }

    /// How many decimal digits the largest ID has.
    pub fn max_digits(&self) -> u32 {
        self.last_id().ilog10() + 1
    }

    /// Whether a field is drawn for each ID.
    pub fn has_random(&self) -> bool {
        self.fields.iter().any(|field| field.role() == Role::Random)
    }

    /// The start of a tick; saturates at the end of time.
    pub fn start_of(&self, tick: Tick) -> UnixMicros {
        let since_epoch_ms = i64::try_from(tick.0.saturating_mul(self.tick_ms)).unwrap_or(i64::MAX);
        UnixMicros::from_unix_ms(self.epoch_unix_ms.saturating_add(since_epoch_ms))
    }

    /// How many decimals of a second write the start of every tick exactly: none where ticks start at whole seconds,
    /// else 3.
    pub fn decimals(&self) -> u8 {
        let whole_seconds = self.tick_ms.is_multiple_of(1000) && self.epoch_unix_ms % 1000 == 0;
        if whole_seconds { 0 } else { 3 }
    }

    /// An instant as RFC 3339 in UTC, with the precision of this layout's ticks.
    pub fn rfc3339(&self, instant: UnixMicros) -> String {
        instant.rfc3339(self.decimals())
    }

    /// What one step of the time field adds to an ID.
    fn tick_weight(&self) -> u64 {
        self.fields[0].weight
    }
}

#[cfg(test)]
mod tests;
