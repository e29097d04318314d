//! The fields of a layout: name, size and role.

use std::fmt;

/// The size of a field, in the unit in which it was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldSize {
    /// 2^n values, n from 1 to 63.
    Bits(u32),
    /// 10^n values, n from 1 to 19.
    Digits(u32),
    /// This number of values, from 2 to 2^63.
    Count(u64),
}

impl FieldSize {
    /// Returns the number of values, or `None` if the size is not allowed.
    pub const fn values(self) -> Option<u64> {
        match self {
            FieldSize::Bits(bits @ 1..=63) => Some(1 << bits),
            FieldSize::Digits(digits @ 1..=19) => Some(10_u64.pow(digits)),
            FieldSize::Count(count @ 2..=0x8000_0000_0000_0000) => Some(count),
            _ => None,
        }
    }
}

/// Writes the text form: `12`, `3d` or `=1000`.
impl fmt::Display for FieldSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldSize::Bits(bits) => write!(f, "{bits}"),
            FieldSize::Digits(digits) => write!(f, "{digits}d"),
            FieldSize::Count(count) => write!(f, "={count}"),
        }
    }
}

/// The meaning of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Ticks since the epoch. This is the leading field, named `time`.
    Time,
    /// The number of an ID within its tick and worker. A layout has exactly one such field, named
    /// `sequence`.
    Sequence,
    /// A part of the worker ID. If there are several node fields, they hold the worker ID together,
    /// most significant first.
    Node,
    /// A constant with this value.
    Constant(u64),
    /// A random number, drawn for each ID.
    Random,
}

/// One field of a layout before it is built.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldSpec {
    /// The name: a lower-case letter, then lower-case letters, digits and `_`.
    pub name: String,
    /// The size.
    pub size: FieldSize,
    /// The meaning.
    pub role: Role,
}

impl FieldSpec {
    /// Returns the role of a field whose text form has no suffix. All these fields except `time`
    /// and `sequence` are node fields.
    pub fn role_of(name: &str) -> Role {
        match name {
            "time" => Role::Time,
            "sequence" => Role::Sequence,
            _ => Role::Node,
        }
    }
}

/// Writes the text form: `table:3d:random`.
impl fmt::Display for FieldSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.size)?;
        match self.role {
            Role::Time | Role::Sequence | Role::Node => Ok(()),
            Role::Constant(value) => write!(f, ":constant({value})"),
            Role::Random => f.write_str(":random"),
        }
    }
}

/// One field of a built [`Layout`](super::Layout), with its weight in the ID.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    pub(super) spec: FieldSpec,
    pub(super) values: u64,
    pub(super) weight: u64,
}

impl Field {
    /// Returns the name, which is unique within the layout.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the size, in the unit in which it was given.
    pub fn size(&self) -> FieldSize {
        self.spec.size
    }

    /// Returns the meaning of the field.
    pub fn role(&self) -> Role {
        self.spec.role
    }

    /// Returns the number of values, at least 2. The time field may have more values than the
    /// layout has ticks; see [`Layout::last`].
    ///
    /// [`Layout::last`]: super::Layout::last
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Returns the difference that one step of the field makes in an ID: the product of the sizes
    /// of the fields below it.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns the field's value in `id`.
    pub fn value_in(&self, id: u64) -> u64 {
        id / self.weight % self.values
    }
}
