//! ID spaces: which layouts and worker IDs make the same IDs, whatever the names and sizes of their
//! fields.
//!
//! An ID is `tick × W + part`, where W is the weight of the time field, and the part is below W:
//!
//! ```text
//!   part = fixed + Σ ranging fields
//!   fixed:   node fields and constants, one number for each worker ID
//!   ranging: sequence and random fields, every value in every tick
//! ```
//!
//! An ID contains neither the epoch nor the length of a tick: both only decide when an ID is made.
//! So two sources can make the same ID if their parts are equal modulo the greatest common divisor
//! of W₁ and W₂ ([`Layout::collision`]). They may do so at different times.
//!
//! A collision matters only for layouts that *grow alike*. Their IDs grow by the same amount in the
//! same time, because W ÷ tick is equal. If two layouts do not grow alike, their IDs are
//! independent. For example, a trade ID in decimal digits may by chance equal a row ID in bits, and
//! nobody confuses the two.
//!
//! If two layouts that grow alike have about the same epoch, they make the same IDs at the same
//! time ([`Layout::concurrent_collision`]). The daemon refuses them. If their epochs are years
//! apart, as those of well-known layouts are, the daemon only warns of collisions.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::{Layout, LayoutError, Role, UnixMicros, WorkerSet};

/// Two epochs less than a year apart count as equal. A year is longer than any tick, and than the
/// time by which any ID clock runs ahead.
const YEAR_MS: u64 = 365 * 86_400_000;

/// The identity of an ID space, without the names of its fields. Two daemons with equal spaces and
/// a common [number](Layout::number_in_space) hand out the same IDs at the same time.
///
/// All sizes are counts of values. A constant counts as a node field that always has the same
/// value. Neighbouring fields of one kind are merged. The size of the time field is left out,
/// because this size only decides when the space ends. The text form must not change between
/// releases, because lock files are named after it:
/// `time,node:=1024,sequence:=4096;tick=1ms;epoch=1288834974657`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Space {
    /// The parts, most significant first. Invariant: neighbours differ in kind, and sizes multiply
    /// to at most 2^63.
    parts: Vec<Part>,
    tick_ms: u64,
    epoch_unix_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Part {
    kind: Kind,
    values: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// A number that is fixed for a worker ID.
    Node,
    Sequence,
    Random,
}

/// The kinds and their names in the text form.
const KINDS: [(&str, Kind); 3] =
    [("node", Kind::Node), ("sequence", Kind::Sequence), ("random", Kind::Random)];

impl Layout {
    /// Returns the layout's ID space.
    pub fn space(&self) -> Space {
        let parts = self.fields[1..].iter().filter_map(|field| {
            let kind = match field.role() {
                Role::Time => return None,
                Role::Sequence => Kind::Sequence,
                Role::Random => Kind::Random,
                Role::Node | Role::Constant(_) => Kind::Node,
            };
            Some(Part { kind, values: field.values() })
        });
        Space { parts: merged(parts), tick_ms: self.tick_ms, epoch_unix_ms: self.epoch_unix_ms }
    }

    /// Returns a worker ID's number in the layout's [`space`](Layout::space): the node fields and
    /// constants together, most significant first. If there are no constants, the number is the
    /// worker ID.
    pub fn number_in_space(&self, worker: u64) -> u64 {
        let mut rest = worker;
        let mut number = 0;
        let mut scale = 1;
        for field in self.fields[1..].iter().rev() {
            let digit = match field.role() {
                Role::Node => {
                    let digit = rest % field.values();
                    rest /= field.values();
                    digit
                }
                Role::Constant(value) => value,
                Role::Time | Role::Sequence | Role::Random => continue,
            };
            // The number is below the product of the sizes, which fits a u64.
            number += digit * scale;
            scale *= field.values();
        }
        number
    }

    /// Returns the numbers that these worker IDs have in the layout's space, in the order of the
    /// set.
    pub fn numbers_in_space(&self, workers: &WorkerSet) -> Vec<u64> {
        workers.iter().map(|worker| self.number_in_space(worker)).collect()
    }

    /// Returns a worker ID of this layout's source and one of the other source. The two can hand
    /// out the same ID, perhaps at different times. Returns `None` if there are no such worker IDs,
    /// or if the layouts do not grow alike.
    ///
    /// If the weights of the layouts' fields do not divide each other, this function cannot decide.
    /// It then returns two worker IDs even if they never collide.
    pub fn collision(&self, workers: &WorkerSet, other: &Layout, others: &WorkerSet) -> Option<(u64, u64)> {
        let numbers = self.numbers_in_space(workers);
        let (one, two) = self.space().collision(&numbers, &other.space(), &other.numbers_in_space(others))?;
        Some((workers.iter().nth(one)?, others.iter().nth(two)?))
    }

    /// Returns a [collision](Layout::collision) if the sources can hand out the same ID at about
    /// the same time.
    pub fn concurrent_collision(
        &self,
        workers: &WorkerSet,
        other: &Layout,
        others: &WorkerSet,
    ) -> Option<(u64, u64)> {
        // Two worker IDs of one layout never make the same ID. A daemon may have a thousand sources
        // of one layout, and compares each with each.
        if self == other && workers.iter().all(|worker| !others.contains(worker)) {
            return None;
        }
        self.space().runs_beside(&other.space()).then(|| self.collision(workers, other, others))?
    }
}

/// Returns the digits of an ID that lie between these pairs of weights, each at its place.
fn digits(id: u64, weights: &[(u64, u64)]) -> u64 {
    weights.iter().map(|(low, high)| id % high / low * low).sum()
}

fn merged(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut merged: Vec<Part> = Vec::new();
    for part in parts {
        match merged.last_mut() {
            Some(above) if above.kind == part.kind => above.values *= part.values,
            _ => merged.push(part),
        }
    }
    merged
}

impl Space {
    /// Returns how many [numbers](Layout::number_in_space) this space has. The numbers start at 0.
    pub fn numbers(&self) -> u64 {
        let nodes = self.parts.iter().filter(|part| part.kind == Kind::Node);
        nodes.map(|part| part.values).product()
    }

    /// Returns the claim of a [number](Layout::number_in_space) of this space. The text of the
    /// space, a blank and the number have a SHA-256. The claim is its first eight bytes,
    /// little-endian. Two daemons with an equal claim hand out the same IDs. Every daemon must make
    /// this text alike, in all releases.
    pub fn claim(&self, number: u64) -> u64 {
        let digest = hmac_sha256::Hash::hash(format!("{self} {number}").as_bytes());
        let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = digest;
        u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
    }

    /// Returns the indices of two numbers that can make the same ID, perhaps at different times.
    /// One is of this space, one of the other space. Returns `None` if there are no such numbers,
    /// or if the spaces do not grow alike.
    pub fn collision(&self, numbers: &[u64], other: &Space, others: &[u64]) -> Option<(usize, usize)> {
        if !self.grows_like(other) {
            return None;
        }
        let common = gcd(self.tick_weight(), other.tick_weight());
        let mut cuts = vec![common];
        // A weight above `common` does not change the remainder if it is a multiple of `common`.
        let mut is_whole = true;
        for weight in self.weights().chain(other.weights()) {
            if weight < common {
                cuts.push(weight);
            }
            is_whole &= weight < common || weight.is_multiple_of(common);
        }
        cuts.sort_unstable();
        cuts.dedup();
        if is_whole && cuts.windows(2).all(|pair| pair[1].is_multiple_of(pair[0])) {
            self.same_digits(numbers, other, others, &cuts)
        } else {
            // The digits cannot decide this case, so any two numbers count as a collision.
            Some((0, 0))
        }
    }

    /// Finds a collision between two spaces. `cuts` are the weights that cut the part of an ID
    /// below the time into digits. Each cut must divide the next. Then each digit is fixed for a
    /// worker, or takes every value. Two workers can make the same ID if and only if they agree in
    /// every digit that is fixed for both.
    fn same_digits(
        &self,
        numbers: &[u64],
        other: &Space,
        others: &[u64],
        cuts: &[u64],
    ) -> Option<(usize, usize)> {
        let fixed_in_both: Vec<(u64, u64)> = cuts
            .windows(2)
            .map(|pair| (pair[0], pair[1]))
            .filter(|&(low, high)| self.is_fixed(low, high) && other.is_fixed(low, high))
            .collect();
        let mut by_digits = HashMap::new();
        for (index, &number) in numbers.iter().enumerate() {
            by_digits.entry(digits(self.fixed_part(number), &fixed_in_both)).or_insert(index);
        }
        others.iter().enumerate().find_map(|(index, &number)| {
            by_digits.get(&digits(other.fixed_part(number), &fixed_in_both)).map(|&mine| (mine, index))
        })
    }

    /// Returns true if both spaces reach the same ID at about the same time. They grow alike, and
    /// their epochs are less than a year apart.
    pub fn runs_beside(&self, other: &Space) -> bool {
        self.epoch_unix_ms.abs_diff(other.epoch_unix_ms) < YEAR_MS && self.grows_like(other)
    }

    /// Returns true if the IDs of both spaces grow by the same amount in the same time.
    pub fn grows_like(&self, other: &Space) -> bool {
        u128::from(self.tick_weight()) * u128::from(other.tick_ms)
            == u128::from(other.tick_weight()) * u128::from(self.tick_ms)
    }

    /// Returns the end of the tick of this ID.
    pub fn end_of_tick(&self, id: u64) -> UnixMicros {
        let ticks = i128::from(id / self.tick_weight()) + 1;
        let unix_ms = i128::from(self.epoch_unix_ms) + ticks * i128::from(self.tick_ms);
        UnixMicros(i64::try_from(unix_ms * 1_000).unwrap_or(i64::MAX))
    }

    fn tick_weight(&self) -> u64 {
        self.parts.iter().map(|part| part.values).product()
    }

    /// Returns each part with its weight, least significant first.
    fn weighed(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        self.parts.iter().rev().scan(1_u64, |next, &part| {
            let weight = *next;
            *next *= part.values;
            Some((part, weight))
        })
    }

    fn weights(&self) -> impl Iterator<Item = u64> + '_ {
        self.weighed().map(|(_, weight)| weight)
    }

    /// Returns true if the digit between two neighbouring cuts belongs to a node field.
    fn is_fixed(&self, low: u64, high: u64) -> bool {
        self.weighed().any(|(part, weight)| {
            part.kind == Kind::Node
                && weight <= low
                && u128::from(high) <= u128::from(weight) * u128::from(part.values)
        })
    }

    /// Returns the part of an ID that is fixed for the worker ID with this number.
    fn fixed_part(&self, number: u64) -> u64 {
        let mut rest = number;
        let mut fixed = 0;
        for (part, weight) in self.weighed().filter(|(part, _)| part.kind == Kind::Node) {
            fixed += rest % part.values * weight;
            rest /= part.values;
        }
        fixed
    }
}

pub(crate) fn gcd(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { gcd(right, left % right) }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("time")?;
        for part in &self.parts {
            let name = KINDS.iter().find(|(_, kind)| *kind == part.kind).map_or("", |(name, _)| name);
            write!(f, ",{name}:={}", part.values)?;
        }
        write!(f, ";tick={}ms;epoch={}", self.tick_ms, self.epoch_unix_ms)
    }
}

impl FromStr for Space {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).filter(|space| space.to_string() == text).ok_or(LayoutError::NotASpace)
    }
}

/// Parses a space with sizes that a layout can have. The text need not be canonical.
fn read(text: &str) -> Option<Space> {
    let (fields, settings) = text.strip_prefix("time,")?.split_once(";tick=")?;
    let (tick_ms, epoch_unix_ms) = settings.split_once("ms;epoch=")?;
    let mut product = 1_u64;
    let mut parts = Vec::new();
    for field in fields.split(',') {
        let (name, values) = field.split_once(":=")?;
        let (_, kind) = KINDS.iter().find(|(known, _)| *known == name)?;
        let values = values.parse().ok().filter(|&values| values >= 2)?;
        product = product.checked_mul(values).filter(|&product| product <= super::build::ID_LIMIT)?;
        parts.push(Part { kind: *kind, values });
    }
    let tick_ms = tick_ms.parse().ok().filter(|&tick_ms| tick_ms >= 1)?;
    let epoch_unix_ms = epoch_unix_ms.parse().ok()?;
    let is_merged = merged(parts.iter().copied()).len() == parts.len();
    is_merged.then_some(Space { parts, tick_ms, epoch_unix_ms })
}
