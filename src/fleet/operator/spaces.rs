//! The ID spaces of a fleet: writes the marker, and replaces colliding spaces.

use super::{Operator, OperatorError};
use crate::fleet::key::{Marker, NumberKey, Paths};
use crate::fleet::{Swap, Swapped, Version};
use snowbank_client::layout::{Layout, Space};

/// The change that an operator made to a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The ID spaces that were replaced, because they collide with the added ones.
    pub replaced: Vec<String>,
}

/// The most numbers of an ID space that are compared, so that a layout with millions of workers delays no command.
const COMPARED_MAX: u64 = 1 << 16;

impl Operator<'_> {
    /// Writes the marker with the ID spaces of these layouts. `draw` gives the identities: a new marker's, and each write's.
    /// `is_growing` adds those that an existing marker does not have, and replaces others that collide with them. `None`:
    /// nothing was changed.
    ///
    /// # Errors
    /// Another fleet has the name, numbers of a colliding ID space are held, or the coordinator did not answer.
    pub fn init(
        &mut self,
        layouts: &[&Layout],
        draw: fn() -> String,
        is_growing: bool,
    ) -> Result<Option<Added>, OperatorError> {
        let (known, mut version) = self.read_marker()?.unzip();
        let is_known = known.is_some();
        let mut marker = known.unwrap_or_else(|| Marker::new(&draw(), Vec::new()));
        let spaces: Vec<String> = layouts.iter().map(|layout| layout.space().to_string()).collect();
        let missing = spaces.iter().filter(|space| marker.place_of(space).is_none());
        let new: Vec<&str> = missing.map(String::as_str).collect();
        if is_known && !new.is_empty() && !is_growing {
            return Err(OperatorError::Refused(format!(
                "the fleet {:?} has other ID spaces: found {}, this configuration has {} besides; choose another \
                 fleet.name, or add them with --add",
                self.name,
                marker.shown(),
                new.join(", ")
            )));
        }
        let rivals: Vec<(&String, Vec<usize>)> =
            spaces.iter().map(|space| (space, in_way(&marker, space, &spaces))).collect();
        let has_rivals = rivals.iter().flat_map(|(_, indices)| indices).any(|&index| marker.is_active(index));
        let is_changed = !new.is_empty() || is_growing && has_rivals;
        if !is_changed {
            return Ok(None);
        }
        let (replaced, floors) = self.replace(&mut marker, &mut version, &rivals, draw)?;
        spaces.iter().zip(floors).for_each(|(space, floor)| marker.put(space, floor));
        self.write_marker(&mut marker, &mut version, draw)?;
        Ok(Some(Added { replaced }))
    }

    /// Replaces the rivals of ID spaces. Returns those that daemons could use until now, and for each space the bound of the IDs
    /// that were made in its rivals.
    ///
    /// If none is held, writes the marker without colliding spaces or new ones. From then on no daemon can start in those: each
    /// reads the marker again after its write. So a second check sees all holders. If there are any, it restores the marker.
    fn replace(
        &mut self,
        marker: &mut Marker,
        version: &mut Option<Version>,
        rivals: &[(&String, Vec<usize>)],
        draw: fn() -> String,
    ) -> Result<(Vec<String>, Vec<u64>), OperatorError> {
        let mut before = marker.clone();
        let floors = self.bounds_unless_held(marker, rivals)?;
        let replaced: Vec<String> = rivals.iter().flat_map(|(_, indices)| marker.replace(indices)).collect();
        if replaced.is_empty() {
            return Ok((replaced, floors));
        }
        self.write_marker(marker, version, draw)?;
        match self.bounds_unless_held(marker, rivals) {
            Ok(floors) => Ok((replaced, floors)),
            Err(error) => {
                self.write_marker(&mut before, version, draw)?;
                Err(error)
            }
        }
    }

    /// Returns for each ID space the highest bound of its rivals' numbers. Refuses if one of them is held.
    fn bounds_unless_held(
        &mut self,
        marker: &Marker,
        rivals: &[(&String, Vec<usize>)],
    ) -> Result<Vec<u64>, OperatorError> {
        rivals.iter().map(|(space, indices)| self.bound_unless_held(marker, indices, space)).collect()
    }

    fn write_marker(
        &mut self,
        marker: &mut Marker,
        version: &mut Option<Version>,
        draw: fn() -> String,
    ) -> Result<(), OperatorError> {
        marker.write = draw();
        let text = marker.text();
        let swap = Swap { key: Paths::of(self.name).marker(), expected: *version, text: text.clone() };
        let written = match self.coordinator.swap(&[swap])? {
            Swapped::Done(version) => Some(version),
            // It was done before: its answer was lost.
            Swapped::Refused(found) => {
                found.into_iter().flatten().find(|stored| stored.text == text).map(|stored| stored.version)
            }
        };
        *version = Some(written.ok_or_else(|| {
            OperatorError::Refused(String::from(
                "another command changed the fleet at the same time; try again",
            ))
        })?);
        Ok(())
    }

    /// Returns the highest bound of the numbers of these ID spaces. Refuses if one of them is held.
    fn bound_unless_held(
        &mut self,
        marker: &Marker,
        indices: &[usize],
        space: &str,
    ) -> Result<u64, OperatorError> {
        let mut bound = 0;
        for &index in indices {
            let name = marker.name_at(index);
            bound = bound.max(marker.floor(name));
            for (key, stored) in self.coordinator.list(&Paths::of(self.name).space(index))? {
                let number = NumberKey::parse(&stored.text)
                    .map_err(|error| OperatorError::Refused(format!("key {key}: {error}")))?;
                if !number.released {
                    return Err(OperatorError::Refused(format!(
                        "the ID spaces {space} and {name} can make the same IDs, and {} holds a number ({key}) of the \
                         latter: stop all daemons with that layout, release the numbers of killed ones (`snowbank fleet \
                         release` with a configuration of that layout), and try again; or choose an epoch at least a \
                         year apart",
                        number.holder
                    )));
                }
                bound = bound.max(number.id_bound);
            }
        }
        Ok(bound)
    }
}

/// Returns the indices of the ID spaces, also replaced ones, that collide with this one. Those of one configuration were
/// compared when it was read.
fn in_way(marker: &Marker, space: &str, configured: &[String]) -> Vec<usize> {
    marker.indices(|known| !configured.iter().any(|space| space == known) && collides(space, known))
}

/// Returns whether numbers of two ID spaces can make the same IDs at about the same time.
fn collides(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<Space>(), other.parse::<Space>()) else { return false };
    let numbers = |space: &Space| (0..space.numbers().min(COMPARED_MAX)).collect::<Vec<_>>();
    one.runs_beside(&other) && one.collision(&numbers(&one), &other, &numbers(&other)).is_some()
}
