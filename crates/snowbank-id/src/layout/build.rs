//! Builds a layout and checks it, so that the hot path need not.

use std::collections::HashSet;

use super::field::{Field, FieldSize, FieldSpec, Role};
use super::instant::{MAX_UNIX_MS, MIN_UNIX_MS, out_of_range};
use super::{Layout, LayoutError, preset};

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
const MAX_FIELD_NAME_LEN: usize = 32;

/// An average year, 365.25 days.
const YEAR_MS: u128 = 31_557_600_000;

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
            return Err(not_a_tick(&format!("{tick_ms}ms")));
        }
        if !(MIN_UNIX_MS..=MAX_UNIX_MS).contains(&epoch_unix_ms) {
            let reason = out_of_range(&epoch_unix_ms.to_string());
            return Err(LayoutError::new(format!("epoch: {reason}")));
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
            return Err(LayoutError::new(format!(
                "{name:?} is not a field name: a lower-case letter, then lower-case letters, digits and _, at most \
                 {MAX_FIELD_NAME_LEN} in all"
            )));
        }
        if !names.insert(name) {
            return Err(LayoutError::new(format!("two fields are called {name:?}; rename one of them")));
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
            return Err(LayoutError::new(format!(
                "the name {:?} does not fit the field's role: only the time is called time, only the sequence is \
                 called sequence, and neither can be constant or random; choose another name",
                field.name
            )));
        }
    }
    let first = fields.first();
    if first.is_none_or(|first| first.role != Role::Time) {
        let found = first.map_or("missing".to_owned(), |first| format!("{:?}", first.name));
        return Err(LayoutError::new(format!(
            "the first field is {found}; it must be time, or IDs would not sort by time"
        )));
    }
    if !fields.iter().any(|field| field.role == Role::Sequence) {
        return Err(LayoutError::new(
            "there is no sequence field; add one, such as sequence:12, or one tick could hold one ID only",
        ));
    }
    if let Some(index) = fields.iter().position(|field| field.role == Role::Random) {
        let mut below = fields[index..].iter();
        if let Some(below) = below.find(|field| matches!(field.role, Role::Sequence | Role::Node)) {
            return Err(LayoutError::new(format!(
                "random field {:?} stands above {:?}; move it below, or IDs would not be in order",
                fields[index].name, below.name
            )));
        }
    }
    Ok(())
}

/// Gives each field its weight, which is the product of the sizes of the fields below it, and
/// checks that the sizes fit an ID.
fn weigh(specs: Vec<FieldSpec>, tick_ms: u64) -> Result<Vec<Field>, LayoutError> {
    let mut fields = Vec::with_capacity(specs.len());
    for spec in &specs {
        let values = spec.size.values().ok_or_else(|| not_a_size(&spec.name, &spec.size.to_string()))?;
        if let Role::Constant(value) = spec.role
            && value >= values
        {
            let name = &spec.name;
            let most = values - 1;
            return Err(LayoutError::new(format!("{name:?} holds 0 to {most}, not the constant {value}")));
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
            return Err(too_large(&specs, tick_ms));
        }
    }
    Ok(fields)
}

fn too_large(specs: &[FieldSpec], tick_ms: u64) -> LayoutError {
    let (sum, room) = sum_of_sizes(specs);
    let time_values = specs[0].size.values().unwrap_or(0);
    let time_size = match specs[0].size {
        FieldSize::Bits(bits) => format!("{bits} bits"),
        FieldSize::Digits(digits) => format!("{digits} digits"),
        FieldSize::Count(count) => format!("{count} steps"),
    };
    let life = years(u128::from(time_values) * u128::from(tick_ms));
    let workers: u128 = specs
        .iter()
        .filter(|spec| spec.role == Role::Node)
        .filter_map(|spec| spec.size.values())
        .fold(1, |product, values| product.saturating_mul(u128::from(values)));
    let advice = match preset::like(time_values, workers) {
        Some(preset) => format!("; the preset {} fits: {}", preset.name, preset.spec),
        None => "; make fields smaller".to_owned(),
    };
    let tick = tick_text(tick_ms);
    LayoutError::new(format!(
        "{sum}, but an ID holds {room}; the time's {time_size} of {tick} would last {life}{advice}"
    ))
}

/// Describes the sum of the sizes, and the room in an ID, both in the unit of the sizes.
fn sum_of_sizes(specs: &[FieldSpec]) -> (String, &'static str) {
    let mut bits = Vec::new();
    let mut digits = Vec::new();
    for spec in specs {
        match spec.size {
            FieldSize::Bits(size) => bits.push(size),
            FieldSize::Digits(size) => digits.push(size),
            FieldSize::Count(_) => {}
        }
    }
    if bits.len() == specs.len() {
        (format!("{} bits", sum(&bits)), "63")
    } else if digits.len() == specs.len() {
        (format!("{} digits", sum(&digits)), "19")
    } else {
        // The number of fields has no limit, so the product of their sizes may exceed any integer
        // type. The exponent is rounded up, to at least 63.01, because a float cannot tell 2^63 + 1
        // from 2^63.
        let log2: f64 = specs.iter().filter_map(|spec| spec.size.values()).map(|n| (n as f64).log2()).sum();
        (format!("the sizes multiply to 2^{:.2}", ((log2 * 100.0).ceil() / 100.0).max(63.01)), "2^63")
    }
}

/// Formats an addition, such as `41 + 10 + 12 = 63`.
fn sum(sizes: &[u32]) -> String {
    let terms: Vec<String> = sizes.iter().map(u32::to_string).collect();
    format!("{} = {}", terms.join(" + "), sizes.iter().sum::<u32>())
}

/// Formats a span in years, rounded down, such as `4.35 years`, or in seconds if it is below 0.01
/// years.
fn years(span_ms: u128) -> String {
    let hundredths = span_ms * 100 / YEAR_MS;
    match hundredths {
        0 => format!("{} s", span_ms / 1000),
        1..100_000 => format!("{}.{:02} years", hundredths / 100, hundredths % 100),
        _ => format!("{} years", hundredths / 100),
    }
}

/// Formats a tick as in the text form: `1ms`, `10ms`, `1s`.
pub(super) fn tick_text(tick_ms: u64) -> String {
    if tick_ms.is_multiple_of(1000) { format!("{}s", tick_ms / 1000) } else { format!("{tick_ms}ms") }
}

pub(super) fn not_a_tick(found: &str) -> LayoutError {
    LayoutError::new(format!(
        "a tick of {found} is not allowed: whole ms or s, such as 1ms, 10ms or 1s, up to 86400s"
    ))
}

pub(super) fn not_a_size(name: &str, size: &str) -> LayoutError {
    LayoutError::new(format!(
        "{size:?} is not a size for {name:?}: 1 to 63 bits (12), 1 to 19 decimal digits (3d), or a count of at least 2 \
         (=1000)"
    ))
}
