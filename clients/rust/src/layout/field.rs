//! A field of a layout: a name, a size, a role.

use std::fmt;

/// The longest name that a field may have, in bytes: wide enough for any word, narrow enough for a picture.
pub const MAX_FIELD_NAME_LEN: usize = 32;

/// How many values a field takes, in the unit in which it was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldSize {
    /// 2^n values, n from 1 to 63.
    Bits(u32),
    /// 10^n values, n from 1 to 19.
    Digits(u32),
    /// That many values, from 2 to 2^63.
    Count(u64),
}

impl FieldSize {
    /// How many values the field takes; `None` if the size is not allowed.
    pub const fn values(self) -> Option<u64> {
        match self {
            FieldSize::Bits(bits @ 1..=63) => Some(1 << bits),
            FieldSize::Digits(digits @ 1..=19) => Some(10_u64.pow(digits)),
            FieldSize::Count(count @ 2..=0x8000_0000_0000_0000) => Some(count),
            _ => None,
        }
    }
}

/// As in the text form of a layout: `12`, `3d` or `=1000`.
impl fmt::Display for FieldSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldSize::Bits(bits) => write!(f, "{bits}"),
            FieldSize::Digits(digits) => write!(f, "{digits}d"),
            FieldSize::Count(count) => write!(f, "={count}"),
        }
    }
}

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Ticks since the epoch: the leading field, named `time`.
    Time,
    /// The number of an ID within its tick and worker: exactly one field, named `sequence`.
    Sequence,
    /// A part of the worker number; several hold it together, most significant first.
    Node,
    /// Always this value.
    Constant(u64),
    /// Drawn for each ID.
    Random,
}

/// One field as it was asked for: what a layout is built from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldSpec {
    /// A lower-case letter, then lower-case letters, digits and `_`.
    pub name: String,
    /// How many values it takes.
    pub size: FieldSize,
    /// What it holds.
    pub role: Role,
}

impl FieldSpec {
    /// The role of a field without a suffix: the reserved names have theirs, every other name is a node field's.
    pub fn role_of(name: &str) -> Role {
        match name {
            "time" => Role::Time,
            "sequence" => Role::Sequence,
            _ => Role::Node,
        }
    }
}

/// As in the text form of a layout: `table:3d:random`.
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

/// One field of a built [`Layout`](super::Layout), with its place in the ID.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    pub(super) spec: FieldSpec,
    pub(super) values: u64,
    pub(super) weight: u64,
}

impl Field {
    /// The field's name, unique within its layout.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The size in the unit in which it was given.
    pub fn size(&self) -> FieldSize {
        self.spec.size
    }

    /// What the field holds.
    pub fn role(&self) -> Role {
        self.spec.role
    }

    /// How many values the field takes, at least 2. A decimal time field may be cut: [`Layout::last`] tells.
    ///
    /// [`Layout::last`]: super::Layout::last
    pub fn values(&self) -> u64 {
        self.values
    }

    /// What one step of the field adds to an ID: the product of the sizes below it.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The field's value in `id`.
    pub fn value_in(&self, id: u64) -> u64 {
        id / self.weight % self.values
    }
}
