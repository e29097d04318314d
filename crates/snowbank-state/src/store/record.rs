//! The record of a source: a line of the state file.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::identity::{HostIdentity, Owner};
use crate::source_kind::kind_of;
use crate::{Cause, StateError};
use snowbank_core::clock::BootMicros;
use snowbank_id::layout::{Position, Tick, UnixMicros};
use snowbank_id::numbering::{Numbering, TicketCounter};

/// The bound of one source. Unless `restored`, all IDs that the source ever handed out with this
/// numbering are below `id_bound`. The bound may lie between the IDs of two positions. Either a
/// clean stop kept the bound of other worker IDs, or `snowbank ticket set` stored the bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub struct Record {
    /// The source's name.
    pub name: String,
    /// Its layout and worker IDs, or its counter without a maximum. So a changed maximum changes
    /// no record.
    pub numbering: Numbering,
    /// The lowest ID that was not granted.
    pub id_bound: u64,
    /// The process that raised the ceiling last.
    pub owner: Owner,
    /// The boot in which that process raised the ceiling. `None` if the kernel does not report the
    /// boot, or after a command that does not know this boot's clock offsets.
    pub boot: Option<String>,
    /// The machine on which that process raised the ceiling.
    pub machine: Option<String>,
    /// The wall clock minus the boot clock in microseconds, as the daemon believed them at the last
    /// write in `boot`. The difference has no meaning if `boot` is `None`.
    pub wall_minus_boot_us: i64,
    /// An upper bound of the ID clock minus the boot clock, in microseconds. The bound holds until
    /// the next write in `boot`. `None` if no bound is known.
    pub id_minus_boot_us: Option<i64>,
    /// True if no position at or above the ceiling was claimed, as after a clean stop.
    pub clean: bool,
    /// True if `clean`, but it is unknown where the last claim below the ceiling ended. A stop
    /// leaves this if the daemon had claimed nothing since a crash or a first start.
    pub untouched: bool,
    /// True if `snowbank state export` moved the worker IDs away: this machine may not use them.
    pub released: bool,
    /// True if numbers beyond the ceiling of this counter may have been handed out. The machine was
    /// restored from a snapshot, or the counter was shared in a fleet. `snowbank ticket set`
    /// replaces the record by a new one.
    pub restored: bool,
    /// The machine's [`life`](HostIdentity) in which this counter was last started or set.
    pub life: Option<String>,
    /// True if a fleet's coordinator assigned the worker IDs. Within the fleet, the keys of these
    /// worker IDs at the coordinator decide where their next holder starts, and this record binds
    /// only the order of IDs.
    pub assigned: bool,
    /// An ID bound above everything granted under the worker IDs that a fleet assigned to this
    /// source earlier. The records of these worker IDs may be gone. If the source has left the
    /// fleet, the bound binds the source under any worker IDs. `None` if a fleet never assigned
    /// worker IDs to the source.
    pub assigned_bound: Option<u64>,
    /// True if the daemon that last wrote the file had no source with these worker IDs.
    pub retired: bool,
    /// True if `snowbank state forget` dropped this record, which had the highest bound among those
    /// of layouts that can make the same IDs. It stays in their place.
    pub forgotten: bool,
}

/// The moment of a start.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The wall clock, as far as it is believed.
    pub wall: UnixMicros,
    /// The boot of the machine, and the time since that boot. `None` if the boot is unknown.
    pub boot: Option<(&'a str, BootMicros)>,
}

impl From<UnixMicros> for Moment<'_> {
    /// Returns the moment at this time of the wall clock, in an unknown boot.
    fn from(wall: UnixMicros) -> Self {
        Moment { wall, boot: None }
    }
}

/// A record in the form that the state file has. Positions and IDs are strings, because
/// JavaScript's numbers end at 2^53.
#[derive(Serialize, Deserialize)]
struct Line {
    name: String,
    /// The layout's canonical text. A snowflake source has `layout` and `worker_ids`, a ticket
    /// source `increment` and `offset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker_ids: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    increment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    /// For people and for older programs. This program computes the ceiling from `id_bound`.
    #[serde(skip_deserializing)]
    ceiling: String,
    #[serde(with = "as_text")]
    id_bound: u64,
    owner: Owner,
    boot: Option<String>,
    machine: Option<String>,
    wall_minus_boot_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id_minus_boot_us: Option<i64>,
    clean: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    untouched: bool,
    released: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restored: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    life: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    assigned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assigned_bound: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retired: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forgotten: bool,
}

impl From<Record> for Line {
    fn from(record: Record) -> Self {
        let snowflake = record.numbering.snowflake();
        let ticket = record.numbering.ticket();
        Line {
            layout: snowflake.map(|(layout, _)| layout.to_string()),
            worker_ids: snowflake.map(|(_, workers)| workers.to_string()),
            increment: ticket.map(|counter| counter.increment().to_string()),
            offset: ticket.map(|counter| counter.offset().to_string()),
            ceiling: record.ceiling().0.to_string(),
            name: record.name,
            id_bound: record.id_bound,
            owner: record.owner,
            boot: record.boot,
            machine: record.machine,
            wall_minus_boot_us: record.wall_minus_boot_us,
            id_minus_boot_us: record.id_minus_boot_us,
            clean: record.clean,
            untouched: record.untouched,
            released: record.released,
            restored: record.restored,
            life: record.life,
            assigned: record.assigned,
            assigned_bound: record.assigned_bound.map(|bound| bound.to_string()),
            retired: record.retired,
            forgotten: record.forgotten,
        }
    }
}

impl TryFrom<Line> for Record {
    type Error = StateError;

    fn try_from(line: Line) -> Result<Self, StateError> {
        let numbering = line.numbering()?;
        let assigned_bound = line.assigned_bound.as_deref().map(str::parse).transpose();
        let assigned_bound = assigned_bound.map_err(|error| foreign(format!("assigned_bound: {error}")))?;
        Ok(Record {
            numbering,
            assigned_bound,
            name: line.name,
            id_bound: line.id_bound,
            owner: line.owner,
            boot: line.boot,
            machine: line.machine,
            wall_minus_boot_us: line.wall_minus_boot_us,
            id_minus_boot_us: line.id_minus_boot_us,
            clean: line.clean,
            untouched: line.untouched,
            released: line.released,
            restored: line.restored,
            life: line.life,
            assigned: line.assigned,
            retired: line.retired,
            forgotten: line.forgotten,
        })
    }
}

/// Returns the error for a line that no program of this project writes.
fn foreign(reason: impl Display) -> StateError {
    StateError::new(Cause::Damaged, reason.to_string())
}

impl Line {
    fn numbering(&self) -> Result<Numbering, StateError> {
        fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, StateError> {
            text.parse().map_err(foreign)
        }
        match (&self.layout, &self.worker_ids, &self.increment, &self.offset) {
            (Some(layout), Some(worker_ids), None, None) => {
                Numbering::new(parsed(layout)?, parsed(worker_ids)?).map_err(foreign)
            }
            (None, None, Some(increment), Some(offset)) => {
                let counter = TicketCounter::new(&self.name, parsed(increment)?, parsed(offset)?);
                counter.map(Numbering::from).map_err(foreign)
            }
            _ => Err(foreign(format!("source {:?} has neither a layout nor a ticket counter", self.name))),
        }
    }
}

impl Record {
    /// Returns the record of a source of this owner on this host. Nothing was granted at or above
    /// `ceiling`.
    pub fn new(
        name: &str,
        numbering: &Numbering,
        ceiling: Position,
        owner: &Owner,
        host: &HostIdentity,
    ) -> Self {
        let kept = numbering.without_maximum();
        Record {
            name: name.to_owned(),
            id_bound: kept.id_bound(ceiling),
            numbering: kept,
            owner: owner.clone(),
            boot: host.boot.clone(),
            machine: host.machine.clone(),
            wall_minus_boot_us: 0,
            id_minus_boot_us: None,
            clean: false,
            untouched: false,
            released: false,
            restored: false,
            life: host.life.clone().filter(|_| numbering.ticket().is_some()),
            assigned: false,
            assigned_bound: None,
            retired: false,
            forgotten: false,
        }
    }

    /// Returns the first position that was not granted: that of the first ID at or above the bound.
    pub fn ceiling(&self) -> Position {
        self.numbering.position_from(self.id_bound)
    }

    /// Returns the same record with another ceiling.
    pub fn at(&self, ceiling: Position) -> Self {
        // If the ceiling stays, so does the bound, which may lie below the ID at the ceiling.
        let is_own = ceiling == self.ceiling();
        self.below(if is_own { self.id_bound } else { self.numbering.id_bound(ceiling) })
    }

    /// Returns a bound of all IDs made under worker IDs whose records were dropped. Either
    /// `snowbank state forget` dropped them, or a fleet has the worker IDs. `None` if the record
    /// stands only for its own worker IDs.
    pub fn bound_of_dropped(&self) -> Option<u64> {
        let is_one_of_many = self.forgotten || self.assigned || self.assigned_bound.is_some();
        is_one_of_many.then(|| self.id_bound.max(self.assigned_bound.unwrap_or(0)))
    }

    /// Returns the bound of all IDs made under worker IDs that a fleet assigned. `None` if no fleet
    /// assigned any.
    pub fn bound_of_assigned(&self) -> Option<u64> {
        self.assigned_bound.max(self.assigned.then_some(self.id_bound))
    }

    /// Returns the same record with this bound of IDs.
    pub fn below(&self, id_bound: u64) -> Self {
        Record { id_bound, ..self.clone() }
    }

    /// Returns the record's key in the file. The file has one record for each combination of name,
    /// layout and worker IDs, and one record for each name of a ticket counter. A record that stands
    /// for forgotten ones has a key of its own, because a source may have its worker IDs again.
    pub fn key(&self) -> String {
        let key = kind_of(&self.numbering).record_key(&self.name);
        if self.forgotten { key + " forgotten" } else { key }
    }

    /// Returns the instant of the ceiling: the start of its tick. `None` for a ticket counter,
    /// which has no time.
    pub fn instant(&self) -> Option<UnixMicros> {
        let numbering = &self.numbering;
        numbering.snowflake().map(|_| numbering.start_of(numbering.tick_of(self.ceiling())))
    }

    /// Returns a position above all IDs that were handed out until this moment, as far as the
    /// clocks show. After a kill, this position may be below the ceiling. Only the order of IDs may
    /// depend on this position. If a clock stepped forward and back right before the kill, the
    /// clocks do not show that.
    pub fn order_ceiling(&self, at: Moment<'_>) -> Position {
        let ceiling = self.ceiling();
        let Some((boot, now)) = at.boot else { return ceiling };
        let Some(id_minus_boot_us) = self.id_minus_boot_us else { return ceiling };
        if self.boot.as_deref() != Some(boot) {
            return ceiling;
        }
        let latest = self.numbering.tick_at(UnixMicros(now.0.saturating_add(id_minus_boot_us)));
        ceiling.min(self.numbering.first_of(Tick(latest.0.saturating_add(1))))
    }

    /// Returns true if a clean stop has set the ceiling to the end of the last claim.
    pub fn ends_at_a_claim(&self) -> bool {
        self.clean && !self.untouched
    }

    /// Returns true if this record bounds all IDs that the other record bounds, and its bound is at
    /// least as high.
    pub fn says_all_of(&self, other: &Record) -> bool {
        self.id_bound >= other.id_bound && other.numbering.is_part_of(&self.numbering)
    }

    /// Returns true if an export moves the record's worker IDs, or its counter, away: the last daemon
    /// had them, and no fleet assigned them. Other records travel as bounds, because another daemon of
    /// the machine may have their worker IDs now.
    pub fn is_movable(&self) -> bool {
        !self.assigned && !self.retired && !self.forgotten
    }

    /// Returns true if the record may be dropped once the clock has reached its ceiling. A ticket
    /// counter's record stays, because no clock shows its numbers. A released record stays, so that
    /// starts with its worker IDs are refused.
    pub fn is_forgettable(&self) -> bool {
        self.retired && !self.released && !self.forgotten && self.instant().is_some()
    }

    /// Returns true if the record may be dropped now. Then the clock is in the tick of its ceiling
    /// or later, and a start without a record begins after the present tick.
    pub fn may_be_forgotten(&self, now: UnixMicros) -> bool {
        self.is_forgettable() && self.instant().is_some_and(|until| until <= now)
    }

    /// Returns true if both records have the same name, and a source that starts above this record
    /// also starts above the IDs of `other`.
    pub fn keeps_order_of(&self, other: &Record) -> bool {
        self.name == other.name
            && self.numbering.is_of_space(&other.numbering)
            && self.id_bound >= other.id_bound
    }
}

/// Writes a number as text, and reads it back.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
