//! Positions to IDs and back, for a layout and the worker IDs of a daemon.
//!
//! Within a tick, IDs are ordered by the node fields above the sequence, then by the sequence, then
//! by the node fields below it. Workers that have the same values in the node fields above the
//! sequence form a *group*. The positions of a group form rows and columns:
//!
//! ```text
//!   tick ┬ group 0 (upper part 0) ┬ row: sequence 0 │ column: worker a │ worker b │ …
//!        │                        ├ row: sequence 1 │        …
//!        └ group 1 (upper part 1) ┴ …
//! ```
//!
//! Twitter's layout has groups of one column. A layout with the machine at the bottom has one group
//! of several columns. A layout with the sequence between node fields has several groups of several
//! columns. With one worker, or with neighbouring workers whose IDs continue each other, a whole
//! tick is one arithmetic progression. That is the common case and the fast path.

use std::sync::Arc;

use super::build::ID_LIMIT;
use super::{Field, Layout, LayoutError, Position, Role, Run, Tick, UnixMicros, WorkerSet};

/// Converts positions to IDs and back, for a layout and a worker set. Cloning is cheap.
///
/// Every position below [`end`](LayoutNumbering::end) has an ID, and IDs strictly increase with
/// positions.
#[derive(Clone, Debug)]
pub struct LayoutNumbering {
    tables: Arc<Tables>,
}

#[derive(Debug)]
struct Tables {
    layout: Layout,
    workers: WorkerSet,
    /// The number of IDs in a tick, of all workers together. Invariant: at most `tick_weight`.
    ids_per_tick: Divisor,
    /// The difference between an ID and the same ID one tick later.
    tick_weight: u64,
    end: Position,
    /// The first ID of tick 0 and the stride, if a whole tick is one arithmetic progression.
    whole_tick: Option<(u64, u64)>,
    /// The difference between an ID and the same ID with the next sequence number.
    row_weight: u64,
    /// The number of positions in a group, if all groups have the same number.
    group_size: Option<Divisor>,
    /// The groups in order of IDs, at least one.
    groups: Box<[Group]>,
    /// The columns of all groups in order, one for each worker.
    columns: Box<[Column]>,
    random_parts: Box<[(u64, u64)]>,
    needs_list: bool,
}

/// The workers that have the same values in the node fields above the sequence.
#[derive(Debug)]
struct Group {
    /// The worker IDs' part above the sequence, which all workers of the group share.
    upper: u64,
    /// The group's first index within the tick. `last` is its last index.
    start: u64,
    last: u64,
    /// The part of an ID that the upper part and the constants make.
    base: u64,
    /// The columns of the group, as a range of `Tables::columns`. There is at least one.
    columns: std::ops::Range<usize>,
}

/// A worker within its group.
#[derive(Debug)]
struct Column {
    /// The worker ID's part below the sequence.
    lower: u64,
    /// The part of an ID that the lower part makes.
    offset: u64,
    /// The distance from an ID of this column to the next ID of the group. For the last ID of the
    /// group, this is the distance to the ID that a further row would begin with.
    stride: u64,
    /// The number of equal strides that follow each other, beginning with this column's.
    /// `u64::MAX` if all strides of the group are equal.
    steps: u64,
}

impl PartialEq for LayoutNumbering {
    fn eq(&self, other: &Self) -> bool {
        self.layout() == other.layout() && self.workers() == other.workers()
    }
}

impl Eq for LayoutNumbering {}

impl LayoutNumbering {
    /// Creates the numbering for a layout and the worker IDs of a daemon.
    ///
    /// # Errors
    /// Returns an error if the layout does not have one of the worker IDs.
    pub fn new(layout: Layout, workers: WorkerSet) -> Result<LayoutNumbering, LayoutError> {
        if workers.highest() >= layout.workers() {
            return Err(LayoutError::NoSuchWorkerId { id: workers.highest(), workers: layout.workers() });
        }
        let (groups, columns) = arrange(&layout, &workers);
        let rows = layout.ids_per_tick();
        let ids_per_tick = rows * workers.len() as u64;
        let equal = groups.iter().all(|group| group.columns.len() == groups[0].columns.len());
        let random_parts = random_parts(&layout);
        let has_wide_strides = columns.iter().any(|column| column.stride > u64::from(u32::MAX));
        let tables = Tables {
            ids_per_tick: Divisor::new(ids_per_tick),
            tick_weight: layout.tick_weight(),
            // This product is at most `ID_LIMIT`, because a tick has no more IDs than its weight.
            end: Position(layout.ticks * ids_per_tick),
            whole_tick: whole_tick(&groups, &columns),
            row_weight: row_weight(&layout),
            group_size: equal.then(|| Divisor::new(rows * groups[0].columns.len() as u64)),
            needs_list: !random_parts.is_empty() || has_wide_strides,
            random_parts,
            groups,
            columns,
            layout,
            workers,
        };
        Ok(LayoutNumbering { tables: Arc::new(tables) })
    }

    /// Returns the layout.
    pub fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    /// Returns the worker IDs.
    pub fn workers(&self) -> &WorkerSet {
        &self.tables.workers
    }

    /// Returns the number of IDs in a tick, of all workers together.
    pub fn ids_per_tick(&self) -> u64 {
        self.tables.ids_per_tick.value
    }

    /// Returns the tick of a position.
    pub fn tick_of(&self, position: Position) -> Tick {
        Tick(self.tables.ids_per_tick.split(position.0).0)
    }

    /// Returns the first position of a tick, or [`end`](LayoutNumbering::end) for a tick after the last.
    pub fn first_of(&self, tick: Tick) -> Position {
        Position(tick.0.saturating_mul(self.ids_per_tick())).min(self.end())
    }

    /// Returns the first position without an ID. A tick in which an ID would be above 2^63 − 1 has
    /// no positions.
    pub fn end(&self) -> Position {
        self.tables.end
    }

    /// Returns the tick of an instant: 0 before the epoch, the tick of [`end`](LayoutNumbering::end)
    /// after the last tick.
    pub fn tick_at(&self, now: UnixMicros) -> Tick {
        let layout = &self.tables.layout;
        Tick(layout.tick_since_epoch(now).unwrap_or(0).min(layout.ticks))
    }

    /// Returns the start of a tick. Saturates.
    pub fn start_of(&self, tick: Tick) -> UnixMicros {
        self.tables.layout.start_of(tick)
    }

    /// Returns the longest run from `from` on that is one arithmetic progression within one tick.
    /// Unless a whole tick is one progression, the run also ends with its group. The run has at
    /// most `max` IDs, but at least one.
    ///
    /// `from` must be below [`end`](LayoutNumbering::end). Otherwise the run consists of one number above
    /// 2^63 − 1, which is not an ID.
    #[inline]
    pub fn run_at(&self, from: Position, max: u64) -> Run {
        let tables = &*self.tables;
        if from >= tables.end {
            return Run { first: u64::MAX, count: 1, stride: 1 };
        }
        let (tick, index) = tables.ids_per_tick.split(from.0);
        let first_of_tick = tick * tables.tick_weight;
        match tables.whole_tick {
            Some((first, stride)) => Run {
                first: first_of_tick + first + index * stride,
                count: count(max, tables.ids_per_tick.value - index),
                stride,
            },
            None => tables.run_in_tick(first_of_tick, index, max),
        }
    }

    /// Returns the ID of a position. For a position at or above [`end`](LayoutNumbering::end), returns a
    /// number above 2^63 − 1, which is not an ID.
    #[inline]
    pub fn id_at(&self, position: Position) -> u64 {
        self.run_at(position, 1).first
    }

    /// Returns the position of an ID, whatever its random fields hold. Returns `None` if the ID
    /// belongs to another worker or layout, or lies beyond the end.
    pub fn position_of(&self, id: u64) -> Option<Position> {
        let tables = &*self.tables;
        let mut upper = 0;
        let mut lower = 0;
        let mut row = None;
        for field in tables.layout.fields() {
            let value = field.value_in(id);
            match (field.role(), row) {
                (Role::Constant(constant), _) if constant != value => return None,
                (Role::Sequence, _) => row = Some(value),
                (Role::Node, None) => upper = upper * field.values() + value,
                (Role::Node, Some(_)) => lower = lower * field.values() + value,
                (Role::Time | Role::Random | Role::Constant(_), _) => {}
            }
        }
        let group = tables.groups.binary_search_by_key(&upper, |group| group.upper).ok()?;
        let group = &tables.groups[group];
        let columns = &tables.columns[group.columns.clone()];
        let column = columns.binary_search_by_key(&lower, |column| column.lower).ok()?;
        let index = group.start + row? * columns.len() as u64 + column as u64;
        let tick = id / tables.tick_weight;
        (tick < tables.layout.ticks).then(|| Position(tick * self.ids_per_tick() + index))
    }

    /// Returns the size and weight of each random field. A run's IDs have 0 in these fields. The
    /// encoder adds `random × weight` to each ID, with a random number below the size.
    pub fn random_parts(&self) -> &[(u64, u64)] {
        &self.tables.random_parts
    }

    /// Returns true if replies must list each ID, because the layout has random fields or a run
    /// has a stride above `u32::MAX`.
    pub fn needs_list(&self) -> bool {
        self.tables.needs_list
    }
}

impl Tables {
    fn run_in_tick(&self, first_of_tick: u64, index: u64, max: u64) -> Run {
        let (group, row, column) = self.place(index);
        let first = first_of_tick + group.base + row * self.row_weight + column.offset;
        let left = group.last - index;
        Run { first, count: count(max, column.steps.min(left) + 1), stride: column.stride }
    }

    /// Returns the group of an index within the tick, the row in the group, and the column.
    fn place(&self, index: u64) -> (&Group, u64, &Column) {
        let group = match self.group_size {
            Some(size) => size.split(index).0 as usize,
            None => self.groups.partition_point(|group| group.start <= index) - 1,
        };
        let group = &self.groups[group];
        let columns = &self.columns[group.columns.clone()];
        let index = index - group.start;
        match columns {
            [column] => (group, index, column),
            _ => {
                let width = columns.len() as u64;
                (group, index / width, &columns[(index % width) as usize])
            }
        }
    }
}

/// Returns the first ID of tick 0 and the stride, if a whole tick is one arithmetic progression.
fn whole_tick(groups: &[Group], columns: &[Column]) -> Option<(u64, u64)> {
    let first_of = |group: &Group| group.base + columns[group.columns.start].offset;
    let stride = columns[0].stride;
    let has_one_stride = columns.iter().all(|column| column.stride == stride);
    let is_even = has_one_stride
        && groups.windows(2).all(|pair| {
            let size = pair[1].start - pair[0].start;
            first_of(&pair[0]) + size * stride == first_of(&pair[1])
        });
    is_even.then(|| (first_of(&groups[0]), stride))
}

fn count(max: u64, available: u64) -> u32 {
    u32::try_from(max.clamp(1, available)).unwrap_or(u32::MAX)
}

fn random_parts(layout: &Layout) -> Box<[(u64, u64)]> {
    let random = layout.fields().iter().filter(|field| field.role() == Role::Random);
    random.map(|field| (field.values(), field.weight())).collect()
}

fn row_weight(layout: &Layout) -> u64 {
    layout.fields().iter().find(|field| field.role() == Role::Sequence).map_or(1, Field::weight)
}

fn nodes(layout: &Layout) -> impl DoubleEndedIterator<Item = &Field> {
    layout.fields().iter().filter(|field| field.role() == Role::Node)
}

/// Returns the part of an ID that a worker ID makes. The worker ID's least significant digit
/// belongs to the lowest node field.
fn part_of_worker(layout: &Layout, worker: u64) -> u64 {
    let mut rest = worker;
    let mut part = 0;
    for node in nodes(layout).rev() {
        part += rest % node.values() * node.weight();
        rest /= node.values();
    }
    part
}

/// Arranges the workers in groups and columns, and measures the strides between their IDs.
fn arrange(layout: &Layout, workers: &WorkerSet) -> (Box<[Group]>, Box<[Column]>) {
    let row_weight = row_weight(layout);
    let lower = nodes(layout).filter(|node| node.weight() < row_weight);
    let lower_size: u64 = lower.map(Field::values).product();
    let rows = layout.ids_per_tick();
    let mut groups: Vec<Group> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    let mut start = 0;
    let ids: Vec<u64> = workers.iter().collect();
    for members in ids.chunk_by(|left, right| left / lower_size == right / lower_size) {
        let upper = members[0] / lower_size;
        let size = rows * members.len() as u64;
        let first_column = columns.len();
        for &worker in members {
            let lower = worker % lower_size;
            columns.push(Column { lower, offset: part_of_worker(layout, lower), stride: 0, steps: 0 });
        }
        measure_columns(&mut columns[first_column..], row_weight);
        groups.push(Group {
            upper,
            start,
            last: start + size - 1,
            base: part_of_worker(layout, upper * lower_size) + layout.constants,
            columns: first_column..columns.len(),
        });
        start += size;
    }
    (groups.into(), columns.into())
}

/// Measures the strides and steps of one group's columns. The last row is measured as if a further
/// row followed.
fn measure_columns(columns: &mut [Column], row_weight: u64) {
    let width = columns.len();
    for index in 0..width {
        let next = (index + 1) % width;
        let row = if next == 0 { row_weight } else { 0 };
        columns[index].stride = row + columns[next].offset - columns[index].offset;
    }
    if columns.iter().all(|column| column.stride == columns[0].stride) {
        columns.iter_mut().for_each(|column| column.steps = u64::MAX);
        return;
    }
    // The loop goes backwards through the columns, twice: in the second round, the steps of each
    // column's successor are already final.
    for index in (0..width).rev().chain((0..width).rev()) {
        let next = (index + 1) % width;
        let goes_on = columns[next].stride == columns[index].stride;
        columns[index].steps = if goes_on { columns[next].steps + 1 } else { 1 };
    }
}

/// A divisor. If it is a power of two, as most sizes are, a shift replaces the division. In a chain
/// of calls of `run_at`, a call takes 2.6 ns with the shift and 5.2 ns with the division.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    value: u64,
    shift: Option<u32>,
}

impl Divisor {
    fn new(value: u64) -> Self {
        debug_assert!(value != 0 && value <= ID_LIMIT);
        Divisor { value, shift: value.is_power_of_two().then(|| value.trailing_zeros()) }
    }

    /// Returns quotient and remainder.
    #[inline]
    fn split(self, number: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (number >> shift, number & (self.value - 1)),
            None => (number / self.value, number % self.value),
        }
    }
}
