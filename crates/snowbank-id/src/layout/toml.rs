//! Layouts as tables, for configuration files.
//!
//! ```toml
//! layout = { fields = [
//!     { name = "time", bits = 41 },
//!     { name = "worker", count = 1000 },
//!     { name = "sequence", digits = 3 },
//!     { name = "region", bits = 2, constant = 1 },
//!     { name = "table", digits = 1, random = true },
//! ], tick = "10ms", epoch = 1288834974657 }
//! ```
//!
//! Other self-describing formats of serde work too.

use serde::{Deserialize, Serialize};

use super::field::{FieldSize, FieldSpec, Role};
use super::text::{DEFAULT_EPOCH_UNIX_MS, DEFAULT_TICK_MS, parse_epoch, parse_tick};
use super::{Layout, LayoutError};

/// A layout as a table.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutTable {
    /// The fields, most significant first.
    pub fields: Vec<FieldForm>,
    /// The tick, such as `10ms` or `1s`. The default is 1 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<String>,
    /// The start of tick 0. The default is the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochForm>,
}

/// A field as a table: a name, one of three sizes, and an optional role.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table, such as { name = \"time\", bits = 41 }")]
pub struct FieldForm {
    /// The name. `time` and `sequence` are reserved.
    pub name: String,
    /// The size in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// The size in decimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digits: Option<u32>,
    /// The size as the number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// True for a random number, drawn for each ID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub random: bool,
    /// The value of a constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant: Option<u64>,
}

/// An epoch as Unix milliseconds or as text.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "the epoch must be Unix milliseconds, or RFC 3339 or a date in quotes")]
pub enum EpochForm {
    /// Unix milliseconds.
    UnixMs(i64),
    /// RFC 3339 or a date.
    Text(String),
}

impl LayoutTable {
    /// Builds the layout.
    ///
    /// # Errors
    /// Returns an error if [`Layout::new`] does, or if the tick or the epoch cannot be read. A
    /// field without a size, with several sizes or with two roles is an error, too.
    pub fn build(&self) -> Result<Layout, LayoutError> {
        let fields = self.fields.iter().map(FieldForm::spec).collect::<Result<_, _>>()?;
        let tick_ms = self.tick.as_deref().map_or(Ok(DEFAULT_TICK_MS), parse_tick)?;
        let epoch_unix_ms = match &self.epoch {
            None => DEFAULT_EPOCH_UNIX_MS,
            Some(EpochForm::UnixMs(unix_ms)) => *unix_ms,
            Some(EpochForm::Text(text)) => parse_epoch(text)?,
        };
        Layout::new(fields, tick_ms, epoch_unix_ms)
    }
}

impl FieldForm {
    fn spec(&self) -> Result<FieldSpec, LayoutError> {
        let name = self.name.clone();
        let size = match (self.bits, self.digits, self.count) {
            (Some(bits), None, None) => FieldSize::Bits(bits),
            (None, Some(digits), None) => FieldSize::Digits(digits),
            (None, None, Some(count)) => FieldSize::Count(count),
            _ => return Err(LayoutError::NotOneSize(name)),
        };
        let role = match self.constant {
            Some(_) if self.random => return Err(LayoutError::ConstantAndRandom(name)),
            Some(value) => Role::Constant(value),
            None if self.random => Role::Random,
            None => FieldSpec::role_of(&name),
        };
        Ok(FieldSpec { name, size, role })
    }
}

impl From<&Layout> for LayoutTable {
    fn from(layout: &Layout) -> Self {
        let fields = layout.fields().iter().map(|field| {
            let mut form = FieldForm { name: field.name().to_owned(), ..FieldForm::default() };
            match field.size() {
                FieldSize::Bits(bits) => form.bits = Some(bits),
                FieldSize::Digits(digits) => form.digits = Some(digits),
                FieldSize::Count(count) => form.count = Some(count),
            }
            match field.role() {
                Role::Time | Role::Sequence | Role::Node => {}
                Role::Random => form.random = true,
                Role::Constant(value) => form.constant = Some(value),
            }
            form
        });
        LayoutTable {
            fields: fields.collect(),
            tick: Some(super::build::tick_text(layout.tick_ms())),
            epoch: Some(EpochForm::UnixMs(layout.epoch_unix_ms())),
        }
    }
}
