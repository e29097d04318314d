//! The text form: `time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657`.
//!
//! First come the fields, most significant first: `name:size`, `name:size:random` or
//! `name:size:constant(N)`. Then come the settings, each at most once and in any order. Spaces
//! around names and values do not matter.

use std::fmt;
use std::str::FromStr;

use super::build::tick_text;
use super::field::{FieldSize, FieldSpec, Role};
use super::{Layout, LayoutError, UnixMicros, preset};

pub(super) const DEFAULT_TICK_MS: u64 = 1;

pub(super) const DEFAULT_EPOCH_UNIX_MS: i64 = 0;

impl Layout {
    /// Builds the layout from the name of a preset, or from a text form.
    ///
    /// # Errors
    /// Returns an error if the text is neither of these. The error for an unknown name lists the
    /// presets; that for a preset with something behind it has the preset's text form.
    pub fn resolve(name_or_spec: &str) -> Result<Layout, LayoutError> {
        let text = name_or_spec.trim();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || ['-', '_'].contains(&c);
        let name = text.split(|c| !is_of_name(c)).next().unwrap_or_default();
        match preset::find(&name.to_ascii_lowercase()) {
            Some(preset) if text == preset.name => preset.spec.parse(),
            // The first field is the time, so a text form begins with no preset's name.
            Some(preset) if text != name => Err(LayoutError::PresetChanged(preset.name)),
            _ if text.contains([':', ',', ';', '=']) => text.parse(),
            _ => Err(LayoutError::UnknownLayout(name_or_spec.to_owned())),
        }
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(';');
        let fields = parts.next().unwrap_or_default();
        let fields = fields.split(',').map(|field| parse_field(field.trim())).collect::<Result<_, _>>()?;
        let mut tick_ms = None;
        let mut epoch_unix_ms = None;
        for setting in parts {
            match setting.trim().split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
                Some(("tick", value)) => set(&mut tick_ms, "tick", parse_tick(value)?)?,
                Some(("epoch", value)) => set(&mut epoch_unix_ms, "epoch", parse_epoch(value)?)?,
                _ => return Err(LayoutError::NotASetting(setting.to_owned())),
            }
        }
        Layout::new(
            fields,
            tick_ms.unwrap_or(DEFAULT_TICK_MS),
            epoch_unix_ms.unwrap_or(DEFAULT_EPOCH_UNIX_MS),
        )
    }
}

fn set<T>(setting: &mut Option<T>, name: &'static str, value: T) -> Result<(), LayoutError> {
    match setting.replace(value) {
        None => Ok(()),
        Some(_) => Err(LayoutError::SetTwice(name)),
    }
}

fn parse_field(text: &str) -> Result<FieldSpec, LayoutError> {
    let mut pieces = text.split(':').map(str::trim);
    let (Some(name), Some(size), role, None) = (pieces.next(), pieces.next(), pieces.next(), pieces.next())
    else {
        return Err(LayoutError::NotAField(text.to_owned()));
    };
    let role = match role {
        None => FieldSpec::role_of(name),
        Some("random") => Role::Random,
        Some(suffix) => {
            Role::Constant(parse_constant(suffix).ok_or_else(|| LayoutError::NotAField(text.to_owned()))?)
        }
    };
    let name = name.to_owned();
    match parse_size(size) {
        Some(size) => Ok(FieldSpec { name, size, role }),
        None => Err(LayoutError::NotASize { field: name, size: size.to_owned() }),
    }
}

/// Parses `constant(5)`.
fn parse_constant(suffix: &str) -> Option<u64> {
    number(suffix.strip_prefix("constant(")?.strip_suffix(')')?.trim())
}

/// Parses `12`, `3d` or `=1000`. [`Layout::new`] checks the limits.
fn parse_size(text: &str) -> Option<FieldSize> {
    if let Some(count) = text.strip_prefix('=') {
        number(count).map(FieldSize::Count)
    } else if let Some(digits) = text.strip_suffix('d') {
        number(digits).map(FieldSize::Digits)
    } else {
        number(text).map(FieldSize::Bits)
    }
}

/// Parses a decimal number without a sign.
pub(super) fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses `10ms` or `1s` to ms.
pub(super) fn parse_tick(text: &str) -> Result<u64, LayoutError> {
    let tick_ms = if let Some(ms) = text.strip_suffix("ms") {
        number(ms)
    } else {
        text.strip_suffix('s').and_then(number::<u64>).and_then(|seconds| seconds.checked_mul(1000))
    };
    tick_ms.ok_or_else(|| LayoutError::NotATick(text.to_owned()))
}

/// Parses Unix ms, RFC 3339 or a date to Unix ms.
pub(super) fn parse_epoch(text: &str) -> Result<i64, LayoutError> {
    let epoch: UnixMicros = text.parse().map_err(|error| LayoutError::Epoch(Box::new(error)))?;
    if epoch.0.rem_euclid(1000) != 0 {
        return Err(LayoutError::EpochBetweenMs(text.to_owned()));
    }
    Ok(epoch.unix_ms())
}

/// Writes the canonical text form: sizes as they were given, and always tick and epoch. The text
/// parses to an equal layout.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", field.spec)?;
        }
        write!(f, ";tick={};epoch={}", tick_text(self.tick_ms), self.epoch_unix_ms)
    }
}
