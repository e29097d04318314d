//! The error of layouts, and its words.

use std::fmt;

use super::build::{MAX_FIELD_NAME_LEN, tick_text};
use super::field::{Field, FieldSize, FieldSpec, Role};
use super::workers::MAX_WORKER_IDS;
use super::{UnixMicros, preset};
use crate::numbering::LAST_ID;

/// The reason for refusing a layout, a set of worker IDs, an instant, an ID or a counter. `Display`
/// writes one line that says what was found, what is allowed, and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The name is of no preset, and the text is of no layout.
    #[error(
        "no layout is called {0:?}; the presets are {presets}; or write a layout, such as {FORM}",
        presets = preset::names()
    )]
    UnknownLayout(String),
    /// The text is the name of this preset with something behind it.
    #[error("a preset has its own tick and epoch; to change {0}, write all of it: {spec}", spec = preset::spec(.0))]
    PresetChanged(&'static str),
    /// The text of a field has another form.
    #[error("{0:?} is not a field: name:size, name:size:random or name:size:constant(N), as in {FORM}")]
    NotAField(String),
    /// A part of the text form after the fields is no setting.
    #[error("{0:?} is not a setting: tick=1ms, or epoch=2026-01-01T00:00:00Z, as in {FORM}")]
    NotASetting(String),
    /// A setting of the text form is there twice.
    #[error("{0} is set twice; set it once")]
    SetTwice(&'static str),
    /// The name has other characters, or is too long.
    #[error(
        "{0:?} is not a field name: a lower-case letter, then lower-case letters, digits and _, at most \
         {MAX_FIELD_NAME_LEN} in all"
    )]
    NotAFieldName(String),
    /// Two fields have this name.
    #[error("two fields are called {0:?}; rename one of them")]
    FieldTwice(String),
    /// The size is of no field.
    #[error(
        "{size:?} is not a size for {field:?}: 1 to 63 bits (12), 1 to 19 decimal digits (3d), or a count of at \
         least 2 (=1000), as in {FORM}"
    )]
    NotASize {
        /// The name of the field.
        field: String,
        /// The size in its text form.
        size: String,
    },
    /// This field of a table has no size, or several.
    #[error("field {0:?} needs exactly one of bits, digits and count")]
    NotOneSize(String),
    /// This field of a table has two roles.
    #[error("field {0:?} is both constant and random; choose one")]
    ConstantAndRandom(String),
    /// The constant has no place in its field.
    #[error("{field:?} holds 0 to {most}, not the constant {value}")]
    ConstantTooLarge {
        /// The name of the field.
        field: String,
        /// The largest value of the field.
        most: u64,
        /// The constant.
        value: u64,
    },
    /// The field with this name has a role of other names.
    #[error(
        "the name {0:?} does not fit the field's role: only the time is called time, only the sequence is called \
         sequence, and neither can be constant or random; choose another name"
    )]
    RoleOfOtherName(String),
    /// The first field, if any, is not the time.
    #[error("the first field is {}; it must be time, or IDs would not sort by time", quoted_or_missing(.0.as_deref()))]
    FirstIsNotTime(Option<String>),
    /// No field is the sequence.
    #[error("there is no sequence field; add one, such as sequence:12, or one tick could hold one ID only")]
    NoSequence,
    /// A random field is above a field that gives IDs their order.
    #[error("random field {random:?} stands above {below:?}; move it below, or IDs would not be in order")]
    RandomAbove {
        /// The name of the random field.
        random: String,
        /// The name of the field below it.
        below: String,
    },
    /// The fields are larger than an ID.
    #[error("{}", larger_than_an_id(.fields, *.tick_ms))]
    TooLarge {
        /// The fields, most significant first.
        fields: Vec<FieldSpec>,
        /// The tick in ms.
        tick_ms: u64,
    },
    /// The tick cannot be read, or is too short or too long.
    #[error("a tick of {0:?} is not allowed: whole ms or s, such as 1ms, 10ms or 1s, up to 86400s")]
    NotATick(String),
    /// The epoch is refused for this reason.
    #[error("epoch: {0}")]
    Epoch(Box<LayoutError>),
    /// The epoch is between two milliseconds.
    #[error("epoch {0:?} has a fraction of a millisecond; round it to milliseconds")]
    EpochBetweenMs(String),
    /// The text is not a time.
    #[error(
        "{0:?} is not a time: write RFC 3339 (2026-01-31T12:00:00Z), a date (2026-01-31) or Unix milliseconds \
         (1769860800000)"
    )]
    NotATime(String),
    /// The time does not say how far it is from UTC.
    #[error("{0:?} has no offset from UTC: write {0}Z for UTC, or an offset such as {0}+08:00")]
    NoOffset(String),
    /// The time is too early or too late.
    #[error("{0:?} is not between 0000-01-01 and 9999-12-30T22:00:00Z")]
    TimeOutOfRange(String),
    /// The number is probably Unix seconds.
    #[error(
        "found {0}, which as Unix milliseconds is {as_ms}; for Unix seconds ({as_seconds}) write {0}000, and write \
         milliseconds of 1970 as RFC 3339",
        as_ms = UnixMicros::from_unix_ms(*.0).rfc3339(3),
        as_seconds = UnixMicros::from_unix_ms(.0.saturating_mul(1_000)).rfc3339(3)
    )]
    LikelySeconds(i64),
    /// The text is not an ID.
    #[error("{0:?} is not an ID: IDs are decimal numbers from 0")]
    NotAnId(String),
    /// The ID is above the last one of the layout.
    #[error("ID {id} is above this layout's last, {last}; is it another layout's?")]
    IdAboveLast {
        /// The ID. It may be larger than any integer type.
        id: String,
        /// The last ID of the layout.
        last: u64,
    },
    /// A constant field of the ID has another value.
    #[error("ID {id} is not of this layout: its {field} is {found}, the layout's is always {constant}")]
    OtherConstant {
        /// The ID.
        id: u64,
        /// The name of the field.
        field: String,
        /// The value in the ID.
        found: u64,
        /// The value in every ID of the layout.
        constant: u64,
    },
    /// The end of a range is before its start.
    #[error("the range ends at {to}, before it begins at {from}; swap them")]
    RangeBackwards {
        /// The start.
        from: UnixMicros,
        /// The end.
        to: UnixMicros,
    },
    /// The range has no ID, because it is before or after the life of the layout.
    #[error("no ID of this layout lies between {from} and {to}: it has IDs from {first} until {last}")]
    RangeOutsideLife {
        /// The start.
        from: UnixMicros,
        /// The end.
        to: UnixMicros,
        /// The first instant of the layout.
        first: UnixMicros,
        /// The start of the last tick of the layout.
        last: UnixMicros,
    },
    /// The text is not a set of worker IDs.
    #[error(
        "{0:?} is not a set of worker IDs: write a number, ranges, or both, such as 5, 0-3 or 0-3,8, or each node \
         field with its numbers, such as datacenter=1,worker=0-3"
    )]
    NotWorkerIds(String),
    /// There are more worker IDs than a daemon may have.
    #[error("a daemon holds at most {MAX_WORKER_IDS} worker IDs; give fewer")]
    TooManyWorkerIds,
    /// A set has this worker ID twice.
    #[error("worker ID {0} is given twice; give each once")]
    WorkerIdTwice(u64),
    /// The layout does not have the worker ID.
    #[error("worker ID {id} does not fit the layout: it has {}", worker_ids(*.workers))]
    NoSuchWorkerId {
        /// The worker ID.
        id: u64,
        /// The number of worker IDs that the layout has.
        workers: u64,
    },
    /// The layout has no node field of this name.
    #[error("the layout has no node field {name:?}; its node fields are {}", node_fields(.nodes))]
    NoSuchNodeField {
        /// The name.
        name: String,
        /// The node fields of the layout.
        nodes: Vec<Field>,
    },
    /// A node field has no number.
    #[error("{name} is missing; give each node field its numbers: {}", node_fields(.nodes))]
    NodeFieldMissing {
        /// The name of the field.
        name: String,
        /// The node fields of the layout.
        nodes: Vec<Field>,
    },
    /// The numbers of this node field are given twice.
    #[error("{0} is given twice; give each node field once, with all its numbers")]
    NodeFieldTwice(String),
    /// The text is no number that the node field has.
    #[error("found {field}={}, and {field} is a number from 0 to {most}, a range or a list of them", .found.escape_debug())]
    NotOfNodeField {
        /// The name of the field.
        field: String,
        /// The start of the text.
        found: String,
        /// The largest number of the field.
        most: u64,
    },
    /// The layout has no random field of this name.
    #[error("{name:?} is not a random field of this layout; its random fields: {}", or_none(.random.join(", ")))]
    NotRandom {
        /// The name.
        name: String,
        /// The names of the layout's random fields.
        random: Vec<String>,
    },
    /// The value chosen for a random field has no place in it.
    #[error("found {field}={value}, and {field} is a number from 0 to {most}")]
    ChosenTooLarge {
        /// The name of the field.
        field: String,
        /// The chosen value.
        value: u64,
        /// The largest value of the field.
        most: u64,
    },
    /// The increment of a counter is 0 or too large.
    #[error("found increment {0}, allowed: from 1 to {LAST_ID}")]
    Increment(u64),
    /// The offset of a counter is not from 1 to its increment.
    #[error("found offset {offset}, allowed: from 1 to the increment, {increment}")]
    Offset {
        /// The offset.
        offset: u64,
        /// The increment.
        increment: u64,
    },
    /// The maximum of a counter is below its offset, or above the last ID.
    #[error("found maximum {maximum}, allowed: from the offset, {offset}, to {LAST_ID}")]
    Maximum {
        /// The maximum.
        maximum: u64,
        /// The offset.
        offset: u64,
    },
    /// The text is not a ticket counter.
    #[error("not a ticket counter")]
    NotACounter,
    /// The text is not an ID space.
    #[error("not an ID space")]
    NotASpace,
}

/// An example of the text form.
const FORM: &str = "time:41,worker:10,sequence:12;tick=1ms;epoch=2026-01-01";

/// The most characters that an [`excerpt`] keeps. No format writes a longer text.
const EXCERPT_CHARS_MAX: usize = 80;

/// Returns the part of a text that a message repeats: the whole text, or its start and an ellipsis.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn quoted_or_missing(name: Option<&str>) -> String {
    name.map_or("missing".to_owned(), |name| format!("{name:?}"))
}

fn or_none(list: String) -> String {
    if list.is_empty() { "none".to_owned() } else { list }
}

fn worker_ids(workers: u64) -> impl fmt::Display {
    match workers {
        1 => "no node field, so the only worker ID is 0".to_owned(),
        workers => format!("worker IDs 0 to {}", workers - 1),
    }
}

fn node_fields(nodes: &[Field]) -> String {
    let nodes: Vec<String> =
        nodes.iter().map(|node| format!("{} (0 to {})", node.name(), node.values() - 1)).collect();
    or_none(nodes.join(" and "))
}

/// An average year, 365.25 days.
const YEAR_MS: u128 = 31_557_600_000;

fn larger_than_an_id(fields: &[FieldSpec], tick_ms: u64) -> String {
    let (sum, room) = sum_of_sizes(fields);
    let time_size = fields.first().map_or(FieldSize::Count(0), |time| time.size);
    let time_values = time_size.values().unwrap_or(0);
    let time_size = match time_size {
        FieldSize::Bits(bits) => format!("{bits} bits"),
        FieldSize::Digits(digits) => format!("{digits} digits"),
        FieldSize::Count(count) => format!("{count} steps"),
    };
    let life = years(u128::from(time_values) * u128::from(tick_ms));
    let workers: u128 = fields
        .iter()
        .filter(|field| field.role == Role::Node)
        .filter_map(|field| field.size.values())
        .fold(1, |product, values| product.saturating_mul(u128::from(values)));
    let advice = match preset::like(time_values, workers) {
        Some(preset) => format!("; the preset {} fits: {}", preset.name, preset.spec),
        None => "; make fields smaller".to_owned(),
    };
    let tick = tick_text(tick_ms);
    format!("{sum}, but an ID holds {room}; the time's {time_size} of {tick} would last {life}{advice}")
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
