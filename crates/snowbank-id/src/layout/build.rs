//! Builds a layout and checks it, so that the hot path need not.

use std::collections::HashSet;

use super::field::{Field, FieldSize, FieldSpec, Role};
use super::instant::{MAX_UNIX_MS, MIN_UNIX_MS};
use super::{Layout, LayoutError};

/// All IDs are below this limit, so they fit a signed 64-bit integer.
pub(super) const ID_LIMIT: u64 = 1 << 63;

/// The limit for layouts with a decimal time field: all numbers with 19 digits are below it. In
/// such a layout, [`ID_LIMIT`] may exclude the highest values of the time field.
const DECIMAL_LIMIT: u128 = 10_u128.pow(19);

/// The longest tick, a day. With longer ticks, IDs would hardly be sorted. The number of
/// microseconds in a day is far from an overflow.
pub(super) const MAX_TICK_MS: u64 = 86_400_000;

/// The longest name of a field, in bytes. Any word fits, and the command line's picture of a layout
/// still has room for the name.
pub(super) const MAX_FIELD_NAME_LEN: usize = 32;

impl Layout {
    /// Builds a layout from its fields, most significant first, its tick in ms and its epoch in
    /// Unix ms.
    ///
    /// # Errors
    /// Returns the first reason found why the layout is not allowed.
    pub fn new(fields: Vec<FieldSpec>, tick_ms: u64, epoch_unix_ms: i64) -> Result<Layout, LayoutError> {
        check_names(&fields)?;
        check_roles(&fields)?;
        if !(1..=MAX_TICK_MS).contains(&tick_ms) {
            return Err(LayoutError::NotATick(format!("{tick_ms}ms")));
        }
        if !(MIN_UNIX_MS..=MAX_UNIX_MS).contains(&epoch_unix_ms) {
            let reason = LayoutError::TimeOutOfRange(epoch_unix_ms.to_string());
            return Err(LayoutError::Epoch(Box::new(reason)));
        }
        let fields = weigh(fields, tick_ms)?;
        let time = &fields[0];
        let constants: u64 = fields.iter().map(constant_part).sum();
        let ticks = time.values.min(ID_LIMIT / time.weight);
        // No tick begins after `MAX_UNIX_MS`. The epoch is not after `MAX_UNIX_MS` either.
        let ticks_of_calendar = MAX_UNIX_MS.abs_diff(epoch_unix_ms) / tick_ms + 1;
        Ok(Layout {
            tick_ms,
            epoch_unix_ms,
            constants,
            ticks: ticks.min(ticks_of_calendar),
            ids_per_tick: combinations(&fields, Role::Sequence),
            workers: combinations(&fields, Role::Node),
            fields,
        })
    }
}

fn combinations(fields: &[Field], role: Role) -> u64 {
    fields.iter().filter(|field| field.role() == role).map(Field::values).product()
}

/// Returns the part of every ID that a constant field makes.
fn constant_part(field: &Field) -> u64 {
    match field.role() {
        Role::Constant(value) => value * field.weight,
        _ => 0,
    }
}

fn check_names(fields: &[FieldSpec]) -> Result<(), LayoutError> {
    let mut names = HashSet::new();
    for FieldSpec { name, .. } in fields {
        let spelled = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        let begun = name.starts_with(|first: char| first.is_ascii_lowercase());
        if !spelled || !begun || name.len() > MAX_FIELD_NAME_LEN {
            return Err(LayoutError::NotAFieldName(name.clone()));
        }
        if !names.insert(name) {
            return Err(LayoutError::FieldTwice(name.clone()));
        }
    }
    Ok(())
}

fn check_roles(fields: &[FieldSpec]) -> Result<(), LayoutError> {
    for field in fields {
        let fits = match FieldSpec::role_of(&field.name) {
            Role::Node => !matches!(field.role, Role::Time | Role::Sequence),
            reserved => field.role == reserved,
        };
        if !fits {
            return Err(LayoutError::RoleOfOtherName(field.name.clone()));
        }
    }
    let first = fields.first();
    if first.is_none_or(|first| first.role != Role::Time) {
        return Err(LayoutError::FirstIsNotTime(first.map(|first| first.name.clone())));
    }
    if !fields.iter().any(|field| field.role == Role::Sequence) {
        return Err(LayoutError::NoSequence);
    }
    if let Some(index) = fields.iter().position(|field| field.role == Role::Random) {
        let mut below = fields[index..].iter();
        if let Some(below) = below.find(|field| matches!(field.role, Role::Sequence | Role::Node)) {
            return Err(LayoutError::RandomAbove {
                random: fields[index].name.clone(),
                below: below.name.clone(),
            });
        }
    }
    Ok(())
}

/// Gives each field its weight, which is the product of the sizes of the fields below it. Checks
/// that the sizes fit an ID.
fn weigh(specs: Vec<FieldSpec>, tick_ms: u64) -> Result<Vec<Field>, LayoutError> {
    let mut fields = Vec::with_capacity(specs.len());
    for spec in &specs {
        let values = spec
            .size
            .values()
            .ok_or_else(|| LayoutError::NotASize { field: spec.name.clone(), size: spec.size.to_string() })?;
        if let Role::Constant(value) = spec.role
            && value >= values
        {
            let field = spec.name.clone();
            return Err(LayoutError::ConstantTooLarge { field, most: values - 1, value });
        }
        fields.push(Field { spec: spec.clone(), values, weight: 0 });
    }
    // `ID_LIMIT` may later exclude high values of a decimal time field. Here, the ID may have 19
    // digits.
    let decimal_time = matches!(specs[0].size, FieldSize::Digits(_));
    let limit = if decimal_time { DECIMAL_LIMIT } else { u128::from(ID_LIMIT) };
    let mut product = 1_u128;
    for field in fields.iter_mut().rev() {
        // The weight fits a u64, because the product so far is at most the limit.
        field.weight = u64::try_from(product).unwrap_or(u64::MAX);
        product *= u128::from(field.values);
        if product > limit {
            return Err(LayoutError::TooLarge { fields: specs, tick_ms });
        }
    }
    Ok(fields)
}

/// Formats a tick as in the text form: `1ms`, `10ms`, `1s`.
pub(super) fn tick_text(tick_ms: u64) -> String {
    if tick_ms.is_multiple_of(1000) { format!("{}s", tick_ms / 1000) } else { format!("{tick_ms}ms") }
}
