//! The record of a source: a line of the state file.

use serde::{Deserialize, Serialize};

use crate::ceiling::identity::{HostIdentity, Owner};
use snowbank_client::layout::{
    Layout, LayoutError, Numbering, Position, UnixMicros, WorkerSet, concurrent_collision,
};

/// The ceiling of one source and what it means: all IDs that were ever handed out under it are below `id_bound`.
///
/// Invariant: `id_bound` is the bound of `ceiling` in the layout with the worker IDs; the file's reader checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The source's name.
    pub name: String,
    /// Its layout, in canonical text form.
    #[serde(with = "as_text")]
    pub layout: Layout,
    /// Its worker IDs.
    #[serde(with = "as_text")]
    pub worker_ids: WorkerSet,
    /// The first position that was not granted.
    #[serde(with = "position")]
    pub ceiling: Position,
    /// The lowest ID that was not granted. Text, because JavaScript's numbers end at 2^53.
    #[serde(with = "as_text")]
    pub id_bound: u64,
    /// The process that raised it last.
    pub owner: Owner,
    /// The boot in which that was. `None` if the kernel does not tell, and after an import into a boot that knew nothing of the
    /// time yet.
    pub boot: Option<String>,
    /// The machine on which that was.
    pub machine: Option<String>,
    /// The belief of wall − boot at the last write in that boot, in microseconds. Meaningless without `boot`.
    pub wall_minus_boot_us: i64,
    /// True after a clean stop, unless nothing was claimed since a crash: the ceiling is then the first position never
    /// claimed.
    pub clean: bool,
    /// True if the worker IDs were moved away by `snowbank state export`: nothing here may use them.
    pub released: bool,
}

impl Record {
    /// Returns the record of a source that runs here.
    pub fn new(
        name: &str,
        numbering: &Numbering,
        ceiling: Position,
        owner: &Owner,
        host: &HostIdentity,
    ) -> Self {
        Record {
            name: name.to_owned(),
            layout: numbering.layout().clone(),
            worker_ids: numbering.workers().clone(),
            ceiling,
            id_bound: id_bound(numbering, ceiling),
            owner: owner.clone(),
            boot: host.boot.clone(),
            machine: host.machine.clone(),
            wall_minus_boot_us: 0,
            clean: false,
            released: false,
        }
    }

    /// Returns its layout and worker IDs.
    ///
    /// # Errors
    /// When the layout does not have the worker IDs: the record was not written by this program.
    pub fn numbering(&self) -> Result<Numbering, LayoutError> {
        Numbering::new(self.layout.clone(), self.worker_ids.clone())
    }

    /// Returns the same record with another ceiling.
    pub fn at(&self, numbering: &Numbering, ceiling: Position) -> Self {
        Record { ceiling, id_bound: id_bound(numbering, ceiling), ..self.clone() }
    }

    /// Returns its key in the file: there is one record for each name, layout and set of worker IDs.
    pub fn key(&self) -> String {
        format!("{} {} {}", self.name, self.layout, self.worker_ids)
    }

    /// Returns the instant of the ceiling: the start of its tick.
    pub fn instant(&self) -> UnixMicros {
        let ids_per_tick = u128::from(self.layout.ids_per_tick()) * self.worker_ids.len() as u128;
        let tick = u128::from(self.ceiling.0) / ids_per_tick.max(1);
        self.layout.start_of(snowbank_client::layout::Tick(u64::try_from(tick).unwrap_or(u64::MAX)))
    }

    /// Returns whether IDs of this record can be the same as those of worker IDs of a layout. Supplies whose epochs are years
    /// apart count as different.
    pub fn shares_ids_with(&self, layout: &Layout, worker_ids: &WorkerSet) -> bool {
        concurrent_collision((&self.layout, &self.worker_ids), (layout, worker_ids)).is_some()
    }

    /// Returns whether its worker IDs are among those of a layout: the ID space and each one's number in it are the same.
    pub fn is_part_of(&self, layout: &Layout, worker_ids: &WorkerSet) -> bool {
        let numbers = layout.numbers_in_space(worker_ids);
        let mut own = self.layout.numbers_in_space(&self.worker_ids).into_iter();
        // Numbers ascend with worker IDs.
        self.layout.space() == layout.space() && own.all(|number| numbers.binary_search(&number).is_ok())
    }

    /// Returns whether this record bounds every ID that the other bounds, and as high.
    pub fn says_all_of(&self, other: &Record) -> bool {
        self.id_bound >= other.id_bound && other.is_part_of(&self.layout, &self.worker_ids)
    }

    /// Checks that it is consistent, as every record is that this program wrote.
    ///
    /// # Errors
    /// In words, what contradicts what.
    pub fn check(&self) -> Result<(), String> {
        let numbering = self.numbering().map_err(|error| error.to_string())?;
        if id_bound(&numbering, self.ceiling) == self.id_bound {
            Ok(())
        } else {
            Err(format!(
                "the ceiling {} of source {:?} is not ID {}",
                self.ceiling.0, self.name, self.id_bound
            ))
        }
    }
}

/// Returns the lowest ID that may be handed out from `ceiling` on. All IDs of positions below it are lower, whatever their random
/// fields. At the end of the layout it is the number after its last ID.
pub fn id_bound(numbering: &Numbering, ceiling: Position) -> u64 {
    if ceiling < numbering.end() { numbering.id_at(ceiling) } else { numbering.layout().last_id() + 1 }
}

/// Returns the first position whose ID is at least `bound`; the end of the layout if there is none.
pub fn position_from(numbering: &Numbering, bound: u64) -> Position {
    // IDs strictly increase with positions.
    let (mut low, mut high) = (0, numbering.end().0);
    while low < high {
        let middle = low + (high - low) / 2;
        if numbering.id_at(Position(middle)) < bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Position(low)
}

/// Through `Display` and `FromStr`.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod position {
    use serde::{Deserializer, Serializer};

    use snowbank_client::layout::Position;

    pub(super) fn serialize<S: Serializer>(position: &Position, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&position.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Position, D::Error> {
        super::as_text::deserialize(deserializer).map(Position)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use snowbank_client::layout::{PRESETS, Tick};

    fn numbering(layout: &str, workers: &str) -> Numbering {
        Numbering::new(Layout::resolve(layout).unwrap(), workers.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let numbering = numbering("twitter", "0-3,8");
        let ceiling = numbering.first_of(Tick(500_000_000_000));
        let record = Record::new("orders", &numbering, ceiling, &Owner::new(), &HostIdentity::here());
        let text = serde_json::to_string(&record).unwrap();
        assert!(text.contains("\"worker_ids\":\"0-3,8\""), "{text}");
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        assert_eq!(record.instant(), numbering.start_of(Tick(500_000_000_000)));
    }

    #[test]
    fn at_the_end_of_a_layout_nothing_is_left() {
        let numbering = numbering("twitter", "1");
        let bound = id_bound(&numbering, numbering.end());
        assert_eq!(bound, 1 << 63);
        assert_eq!(position_from(&numbering, bound), numbering.end());
    }

    proptest! {
        #[test]
        fn bounds_and_positions_are_inverse(preset in 0..PRESETS.len(), at in any::<prop::sample::Index>(), two in any::<bool>()) {
            let numbering = numbering(PRESETS[preset].name, if two { "0,3" } else { "2" });
            let position = Position(at.index(numbering.end().0 as usize) as u64);
            let bound = id_bound(&numbering, position);
            prop_assert_eq!(position_from(&numbering, bound), position);
            prop_assert_eq!(position_from(&numbering, bound + 1), Position(position.0 + 1));
            if let Some(before) = position.0.checked_sub(1) {
                let largest: u64 = numbering.random_parts().iter().map(|(size, weight)| (size - 1) * weight).sum();
                prop_assert!(numbering.id_at(Position(before)) + largest < bound, "random parts stay below the bound");
            }
        }
    }
}
