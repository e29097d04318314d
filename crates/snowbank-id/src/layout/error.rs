//! The errors of layouts. Each is one line with what was found, what is allowed, and what to do.

use super::field::MAX_FIELD_NAME_LEN;
use super::instant::InstantError;
use super::workers::MAX_WORKER_IDS;
use super::{UnixMicros, preset};

/// The reason why a layout, a worker set, an ID or a range is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The text is neither a preset nor a text form.
    #[error(
        "no layout is called {name:?}; the presets are {}; or write one, such as time:41,worker:10,sequence:12;epoch=2026-01-01",
        preset::names()
    )]
    UnknownPreset {
        /// The text.
        name: String,
    },

    /// A piece of the text form or the table is not allowed there.
    #[error("{found:?} is not {wanted}")]
    Syntax {
        /// The piece.
        found: String,
        /// The form that is allowed.
        wanted: &'static str,
    },

    /// The text form has a setting twice.
    #[error("{name} is set twice; set it once")]
    SettingTwice {
        /// `tick` or `epoch`.
        name: &'static str,
    },

    /// A field name has characters or a length that are not allowed.
    #[error(
        "{name:?} is not a field name: a lower-case letter, then lower-case letters, digits and _, at most \
         {MAX_FIELD_NAME_LEN} in all"
    )]
    FieldName {
        /// The name.
        name: String,
    },

    /// Two fields have the same name.
    #[error("two fields are called {name:?}; give each its own name")]
    FieldTwice {
        /// The name.
        name: String,
    },

    /// A field of a table has no size, or several.
    #[error("field {name:?} has {found}; give it exactly one of bits, digits and count")]
    SizeCount {
        /// The field's name.
        name: String,
        /// Its sizes: `no size`, `bits and digits` …
        found: String,
    },

    /// A field of a table is both constant and random.
    #[error("field {name:?} is both constant and random; choose one")]
    ConstantAndRandom {
        /// The field's name.
        name: String,
    },

    /// The size is out of range.
    #[error(
        "{size:?} is not a size for {name:?}: 1 to 63 bits (12), 1 to 19 decimal digits (3d), or a count of at least \
         2 (=1000)"
    )]
    Size {
        /// The field's name.
        name: String,
        /// The size, as in the text form.
        size: String,
    },

    /// The time field is missing, or is not the first one.
    #[error("the first field is {found}; it must be time, or IDs would not sort by time")]
    TimeNotFirst {
        /// The first field, or `missing`.
        found: String,
    },

    /// There is no sequence field.
    #[error("there is no sequence field; add one, such as sequence:12, or one tick could hold one ID only")]
    NoSequence,

    /// The name `time` or `sequence` does not fit the field's role.
    #[error(
        "the name {name:?} does not go with its role: time and sequence are the names of those two fields, which are \
         neither constant nor random; choose another"
    )]
    ReservedName {
        /// The name.
        name: String,
    },

    /// A random field is above a field that keeps the order.
    #[error("random field {random:?} stands above {below:?}; move it below, or IDs would not be in order")]
    RandomAbove {
        /// The random field.
        random: String,
        /// The field below it.
        below: String,
    },

    /// A constant exceeds its field.
    #[error("{name:?} holds 0 to {}, not the constant {value}", values - 1)]
    Constant {
        /// The field's name.
        name: String,
        /// The constant.
        value: u64,
        /// The number of values of the field.
        values: u64,
    },

    /// The sizes do not fit an ID.
    #[error("{sum}, but an ID holds {room}; {life}{advice}")]
    TooLarge {
        /// The sum of the sizes: `37 + 20 + 16 = 73 bits`.
        sum: String,
        /// The room in an ID, in the same unit.
        room: &'static str,
        /// The life of the time field.
        life: String,
        /// The advice: a preset that fits, or smaller fields.
        advice: String,
    },

    /// The tick is empty or too long.
    #[error("a tick of {found} is not allowed: whole ms or s, such as 1ms, 10ms or 1s, up to 86400s")]
    Tick {
        /// The tick as it was given.
        found: String,
    },

    /// The epoch is not a time.
    #[error("epoch: {reason}")]
    Epoch {
        /// The fault.
        reason: InstantError,
    },

    /// The epoch is between two milliseconds.
    #[error("epoch {found:?} has a fraction of a millisecond; round it to milliseconds")]
    EpochFraction {
        /// The epoch as it was given.
        found: String,
    },

    /// The text is not an ID.
    #[error("{found:?} is not an ID: IDs are decimal numbers from 0")]
    NotAnId {
        /// The text.
        found: String,
    },

    /// The ID is above the layout's last.
    #[error("ID {id} is above this layout's last, {last}; is it another layout's?")]
    IdTooLarge {
        /// The ID, which may exceed any integer.
        id: String,
        /// The last ID of the layout.
        last: u64,
    },

    /// The ID does not have the layout's constant.
    #[error("ID {id} is not of this layout: its {name} is {found}, the layout's is always {constant}")]
    OtherConstant {
        /// The ID.
        id: u64,
        /// The constant field.
        name: String,
        /// The ID's value.
        found: u64,
        /// The layout's value.
        constant: u64,
    },

    /// The range ends before it begins.
    #[error("the range ends at {to}, before it begins at {from}; swap them")]
    RangeBackwards {
        /// The range's first instant.
        from: UnixMicros,
        /// The range's last instant.
        to: UnixMicros,
    },

    /// The range is outside the layout's life.
    #[error("no ID of this layout lies between {from} and {to}: it has IDs from {first} until {last}")]
    OutsideLife {
        /// The range's first instant.
        from: UnixMicros,
        /// The range's last instant.
        to: UnixMicros,
        /// The start of the layout's first tick.
        first: UnixMicros,
        /// The start of the layout's last tick.
        last: UnixMicros,
    },

    /// The layout has no field of that name.
    #[error("the layout has no field {name:?}; the fields that may be chosen: {allowed}")]
    UnknownField {
        /// The name.
        name: String,
        /// The random fields.
        allowed: String,
    },

    /// The field carries uniqueness or tells layouts apart, so only the daemon sets it.
    #[error("{name} is {role}, which keeps IDs distinct; only random fields may be chosen: {allowed}")]
    NotRandom {
        /// The field's name.
        name: String,
        /// The field's meaning.
        role: &'static str,
        /// The random fields.
        allowed: String,
    },

    /// The value exceeds its field.
    #[error("found {name}={value}, and {name} is a number from 0 to {most}")]
    FieldValue {
        /// The field's name.
        name: String,
        /// The value.
        value: u64,
        /// The highest value of the field.
        most: u64,
    },

    /// Two IDs differ in nothing but a random field.
    #[error(
        "the IDs {id} and {next} are not of this layout: they differ in nothing but {name}; use their source's layout"
    )]
    NotDistinct {
        /// The lower ID.
        id: u64,
        /// The ID after it.
        next: u64,
        /// The random field.
        name: String,
    },

    /// The text is not a set of worker IDs.
    #[error(
        "{found:?} is not a set of worker IDs: write a number, ranges, or both, such as 5, 0-3 or 0-3,8, or each node \
         field with its numbers, such as datacenter=1,worker=0-3"
    )]
    WorkerIds {
        /// The text.
        found: String,
    },

    /// A node field does not have the number.
    #[error("found {name}={found}, and {name} is a number from 0 to {most}, a range or a list of them")]
    NodeValue {
        /// The field's name.
        name: String,
        /// The text.
        found: String,
        /// The highest value of the field.
        most: u64,
    },

    /// The layout has no node field of that name.
    #[error("the layout has no node field {name:?}; its node fields are {nodes}")]
    UnknownNode {
        /// The name.
        name: String,
        /// The node fields, with their values.
        nodes: String,
    },

    /// A node field has no number.
    #[error("{name} is missing; give each node field its numbers: {nodes}")]
    NodeMissing {
        /// The field's name.
        name: String,
        /// The node fields, with their values.
        nodes: String,
    },

    /// A node field is named twice.
    #[error("{name} is given twice; give each node field once, with all its numbers")]
    NodeTwice {
        /// The field's name.
        name: String,
    },

    /// A worker ID is given twice.
    #[error("worker ID {id} is given twice; give each once")]
    WorkerIdTwice {
        /// The worker ID.
        id: u64,
    },

    /// There are too many worker IDs.
    #[error("a daemon holds at most {MAX_WORKER_IDS} worker IDs; give fewer")]
    TooManyWorkerIds,

    /// The layout does not have the worker ID.
    #[error("worker ID {id} does not fit the layout: it has {}", worker_ids(*workers))]
    WorkerIdTooLarge {
        /// The worker ID.
        id: u64,
        /// The number of worker IDs of the layout.
        workers: u64,
    },
}

impl From<InstantError> for LayoutError {
    fn from(reason: InstantError) -> Self {
        LayoutError::Epoch { reason }
    }
}

fn worker_ids(workers: u64) -> String {
    match workers {
        1 => "no node field, so the only worker ID is 0".to_owned(),
        _ => format!("worker IDs 0 to {}", workers - 1),
    }
}
