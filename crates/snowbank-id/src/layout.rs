//! Layouts: how an ID is divided into fields.
//!
//! A layout reads an ID as a mixed-radix number. A field can have any number of values, such as
//! 2^12 or 10^3. The *weight* of a field is the product of the sizes of the fields below it:
//!
//! ```text
//!   ID = time × W₀ + field₁ × W₁ + … + fieldₙ × 1        Wᵢ = sizeᵢ₊₁ × … × sizeₙ
//! ```
//!
//! So bits and decimal digits use the same arithmetic. An application takes IDs apart with a
//! [`Layout`]:
//!
//! ```
//! use snowbank_id::layout::Layout;
//!
//! let layout = Layout::resolve("twitter")?;
//! let decoded = layout.decode(2_123_687_066_859_471_775)?;
//! assert_eq!(decoded.instant.to_string(), "2026-11-20T07:57:07.594Z");
//! assert_eq!((decoded.worker, decoded.sequence), (0, 927));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A layout is checked when it is built. This module does no I/O and reads no clock.

mod build;
mod choose;
mod decode;
mod doubt;
mod error;
mod field;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod instant;
mod layout_numbering;
mod preset;
mod run;
mod space;
mod text;
mod toml;
mod workers;

pub use choose::ChosenField;
pub use decode::{Decoded, Life};
pub use doubt::Doubt;
pub use error::LayoutError;
pub(crate) use error::excerpt;
pub use field::{Field, FieldSize, FieldSpec, Role};
pub use instant::{Tick, UnixMicros};
pub use layout_numbering::LayoutNumbering;
pub use preset::{PRESETS, Preset, find as find_preset};
pub use run::{Position, Run, append_run};
pub use space::Space;
pub(crate) use space::gcd;
pub use toml::{EpochForm, FieldForm, LayoutTable};
pub use workers::{MAX_WORKER_IDS, WorkerSet};

/// The fields of an ID, the length of a tick, and the instant of tick 0.
///
/// Build a layout from a preset's name or a text form with [`Layout::resolve`], or from fields with
/// [`Layout::new`]. `Display` writes the text form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Invariant: `time` is first, there is exactly one `sequence`, and random fields are below all
    /// node fields and the sequence. The sizes multiply to at most 2^63, or 10^19 with a decimal
    /// time field.
    fields: Vec<Field>,
    /// Invariant: 1 to `MAX_TICK_MS`.
    tick_ms: u64,
    /// Invariant: within the range that [`UnixMicros`] can parse.
    epoch_unix_ms: i64,
    /// The part of every ID that the constant fields make.
    constants: u64,
    /// The number of ticks. In each of them, all IDs are at most 2^63 − 1. No tick begins after the
    /// last instant that [`UnixMicros`] can parse.
    ticks: u64,
    /// The size of the sequence field.
    ids_per_tick: u64,
    /// The product of the sizes of the node fields, or 1 if there are none.
    workers: u64,
}

impl Layout {
    /// Returns the fields, most significant first. The first one is the time.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the length of a tick in ms.
    pub fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// Returns the start of tick 0 in Unix ms, negative before 1970.
    pub fn epoch_unix_ms(&self) -> i64 {
        self.epoch_unix_ms
    }

    /// Returns the number of IDs of one worker in a tick.
    pub fn ids_per_tick(&self) -> u64 {
        self.ids_per_tick
    }

    /// Returns the number of IDs of one worker in a second, rounded down. Saturates.
    pub fn ids_per_second(&self) -> u64 {
        let per_second = u128::from(self.ids_per_tick) * 1000 / u128::from(self.tick_ms);
        u64::try_from(per_second).unwrap_or(u64::MAX)
    }

    /// Returns the number of worker IDs, which start at 0. If there is no node field, the only
    /// worker ID is 0.
    pub fn workers(&self) -> u64 {
        self.workers
    }

    /// Returns the start of the first tick, which is the epoch.
    pub fn first(&self) -> UnixMicros {
        self.start_of(Tick(0))
    }

    /// Returns the start of the last tick.
    ///
    /// No layout outlasts the year 9999, because RFC 3339 cannot write later instants.
    pub fn last(&self) -> UnixMicros {
        self.start_of(Tick(self.ticks - 1))
    }

    /// Returns the end of the layout's life: the first instant for which the layout has no ID.
    pub fn end(&self) -> UnixMicros {
        self.start_of(Tick(self.ticks))
    }

    /// Returns the largest number of the last tick. With constants, the largest ID may be lower.
    pub fn last_id(&self) -> u64 {
        self.ticks * self.tick_weight() - 1
    }

    /// Returns the number of decimal digits of [`last_id`](Layout::last_id).
    pub fn max_digits(&self) -> u32 {
        self.last_id().ilog10() + 1
    }

    /// Returns the start of a tick. Saturates.
    pub fn start_of(&self, tick: Tick) -> UnixMicros {
        let since_epoch_ms = i64::try_from(tick.0.saturating_mul(self.tick_ms)).unwrap_or(i64::MAX);
        UnixMicros::from_unix_ms(self.epoch_unix_ms.saturating_add(since_epoch_ms))
    }

    /// Returns a number of decimals of a second that writes the start of every tick exactly. It is
    /// 0 if ticks start at whole seconds, else 3.
    pub fn decimals(&self) -> u8 {
        let whole_seconds = self.tick_ms.is_multiple_of(1000) && self.epoch_unix_ms % 1000 == 0;
        if whole_seconds { 0 } else { 3 }
    }

    /// Formats an instant as RFC 3339 in UTC, with the precision of this layout's ticks.
    pub fn rfc3339(&self, instant: UnixMicros) -> String {
        instant.rfc3339(self.decimals())
    }

    /// Returns the weight of the time field: the difference between an ID and the same ID one tick
    /// later.
    fn tick_weight(&self) -> u64 {
        self.fields[0].weight
    }
}

#[cfg(test)]
mod tests;
