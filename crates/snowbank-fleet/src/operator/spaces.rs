//! The command that writes a fleet's marker: its ID spaces and its floor.

use serde::Serialize;

use super::Operator;
use crate::key::{HORIZON_MAX, Marker, NumberKey, Paths, parse_to_replace};
use crate::member::{first_numbering, instant_of, other_limits};
use crate::{FleetError, FleetLimits, Swap, Swapped, rules};
use snowbank_id::layout::{Layout, UnixMicros};

/// What an operator knows of the IDs that were made before the fleet was prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// No daemon has made IDs of these layouts.
    New,
    /// All IDs so far are from ticks before this instant.
    Above(UnixMicros),
    /// As `Above`. If the marker has a higher floor, that floor is wrong, and the command lowers
    /// it.
    Lowered(UnixMicros),
}

/// An operator's request to prepare a fleet, or to change its ID spaces or its floor.
#[derive(Clone, Copy, Debug)]
pub struct Preparing {
    /// `None`: the fleet must be prepared already.
    pub begins: Option<Begins>,
    /// True to add the ID spaces that the marker lacks. The added spaces replace the spaces that
    /// can make the same IDs.
    pub is_growing: bool,
    /// The limits of this configuration's daemons.
    pub limits: FleetLimits,
    /// The wall clock.
    pub now: UnixMicros,
}

/// The result of a preparation: what has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// True if the fleet was not prepared before.
    pub is_new: bool,
    /// The ID spaces that were added to a fleet that was prepared before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// The ID spaces that were replaced, because they can make the same IDs as the added spaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// The fleet's other ID spaces whose daemons may have handed out IDs that an added space makes
    /// from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lies_below: Vec<String>,
    /// The floor, if there is one.
    #[serde(skip)]
    pub floor: Option<UnixMicros>,
    /// True if the floor has changed.
    #[serde(skip)]
    pub is_floor_changed: bool,
    /// The fleet's limits, if they have changed.
    #[serde(flatten)]
    pub limits: Option<FleetLimits>,
}

impl Operator<'_> {
    /// Writes the marker with the ID spaces of these layouts, and with its floor. `new_identity`
    /// makes the identities of a new marker and of each write. No two of these layouts may collide.
    ///
    /// # Errors
    /// The fleet has other ID spaces, `begins` is missing for a new fleet, or the floor would be
    /// too far ahead. Or numbers of a colliding ID space are held, the marker has changed
    /// meanwhile, or the coordinator did not answer.
    pub fn init(
        &mut self,
        layouts: &[&Layout],
        preparing: Preparing,
        new_identity: fn() -> String,
    ) -> Result<Prepared, FleetError> {
        let Preparing { begins, is_growing, limits, now } = preparing;
        let (known, mut before) = self.read_marker()?.unzip();
        let is_new = known.is_none();
        if is_new && begins.is_none() {
            return Err(FleetError::Refused(self.unknown_beginning()));
        }
        let mut marker = known.unwrap_or_else(|| Marker::new(&new_identity(), Vec::new(), limits));
        let missing: Vec<String> = layouts
            .iter()
            .map(|layout| layout.space().to_string())
            .filter(|space| marker.place_of(space).is_none())
            .collect();
        // Each layout, with the indices of the ID spaces that can make the same IDs.
        let mut rivals = Vec::new();
        for &layout in layouts {
            rivals.push((layout, marker.rivals(&layout.space().to_string())));
        }
        if !is_new && !is_growing && !missing.is_empty() {
            return Err(FleetError::Refused(self.other_spaces(&marker, layouts)));
        }
        let is_other = marker.limits != limits;
        if is_other && !matches!(begins, Some(Begins::Above(_) | Begins::Lowered(_))) {
            return Err(other_limits(&marker, &Paths::of(self.name).marker(), limits));
        }
        let floor_before = marker.floor();
        match begins {
            Some(Begins::Above(floor)) => raise_floor(&mut marker, floor, now)?,
            Some(Begins::Lowered(floor)) => {
                marker.forget_floor();
                raise_floor(&mut marker, floor, now)?;
            }
            Some(Begins::New) | None => {}
        }
        if is_other {
            self.change_limits(&mut marker, &mut before, layouts, preparing, new_identity)?;
        }
        let is_missing = |layout: &&&Layout| missing.contains(&layout.space().to_string());
        let lies_below =
            layouts.iter().filter(is_missing).flat_map(|layout| marker.above(layout, now)).collect();
        let mut replaced = Vec::new();
        if !missing.is_empty() {
            let floors;
            (replaced, floors) = self.replace(&mut marker, &mut before, &rivals, new_identity)?;
            for floor in floors {
                raise_floor(&mut marker, floor, now)?;
            }
            missing.iter().for_each(|space| marker.put(space));
        }
        let is_floor_changed = marker.floor() != floor_before;
        if is_new || !missing.is_empty() || is_floor_changed {
            self.write_marker(&mut marker, &mut before, new_identity)?;
        }
        let floor = Some(marker.floor()).filter(|floor| floor.0 > 0);
        let limits = is_other.then_some(limits);
        let added = if is_new { Vec::new() } else { missing };
        Ok(Prepared { is_new, added, replaced, lies_below, floor, is_floor_changed, limits })
    }

    fn unknown_beginning(&self) -> String {
        format!(
            "no fleet {:?} at the coordinator (key {}), and nothing shows which IDs were made before: if no daemon has made \
             IDs of these layouts, add --new; if daemons made some outside the fleet, or the coordinator lost its data, add \
             --above with an instant or an ID that none of their IDs has reached (`snowbank state show` prints it on each \
             machine)",
            self.name,
            Paths::of(self.name).marker()
        )
    }

    /// Changes the limits of a fleet whose daemons have all stopped. The marker gets a new identity
    /// and a floor above the bounds of all keys.
    fn change_limits(
        &mut self,
        marker: &mut Marker,
        before: &mut Option<String>,
        layouts: &[&Layout],
        preparing: Preparing,
        new_identity: fn() -> String,
    ) -> Result<(), FleetError> {
        let look = |it: &mut Self, marker: &Marker| it.highest_unless_held(marker, layouts, preparing);
        look(self, marker)?;
        (marker.identity, marker.limits) = (new_identity(), preparing.limits);
        let highest = self.write_and_look_again(marker, before, new_identity, look)?;
        raise_floor(marker, highest, preparing.now)?;
        self.write_marker(marker, before, new_identity)
    }

    /// Returns an instant above the bounds of all keys. Refuses if one of them is more than
    /// `max_ahead` ahead of the clock, because a daemon may hold it.
    fn highest_unless_held(
        &mut self,
        marker: &Marker,
        layouts: &[&Layout],
        Preparing { limits, now, .. }: Preparing,
    ) -> Result<UnixMicros, FleetError> {
        let mut highest = UnixMicros(0);
        for space in marker.active() {
            let of_space = |layout: &&&Layout| layout.space().to_string() == space;
            let (Some(layout), Some(place)) = (layouts.iter().find(of_space), marker.place_of(space)) else {
                return Err(FleetError::Refused(format!(
                    "the fleet has the ID space {space}, which this configuration lacks; to change horizon or max_ahead, use \
                     a configuration with all layouts of the fleet"
                )));
            };
            for (key, text) in self.coordinator.list(&Paths::of(self.name).space(place))? {
                let number = NumberKey::parse(&text)
                    .map_err(|error| FleetError::Refused(format!("key {key}: {error}")))?;
                let until = instant_of(layout, number.id_bound);
                if rules::free_at(&number, until, limits.max_ahead()) >= now {
                    return Err(FleetError::Refused(format!(
                        "key {key}: {} may still have IDs until {}; stop all daemons of the fleet cleanly, or wait until then, \
                         and try again",
                        number.holder,
                        until.rfc3339(0)
                    )));
                }
                highest = highest.max(above(layout, number.id_bound));
            }
        }
        Ok(highest)
    }

    fn other_spaces(&self, marker: &Marker, layouts: &[&Layout]) -> String {
        let spaces: Vec<String> = layouts.iter().map(|layout| layout.space().to_string()).collect();
        format!(
            "the fleet {:?} has other ID spaces: found {}, this configuration has {}; add the layout's space \
             with --add, or, for tables without IDs of this fleet, choose another fleet.name",
            self.name,
            marker.shown(),
            spaces.join(", ")
        )
    }

    /// Replaces the rivals of ID spaces. Returns the rivals that daemons could use until now. Also
    /// returns, for each replacing layout, the instant at which it is past its rivals' IDs.
    fn replace(
        &mut self,
        marker: &mut Marker,
        before: &mut Option<String>,
        rivals: &[(&Layout, Vec<usize>)],
        new_identity: fn() -> String,
    ) -> Result<(Vec<String>, Vec<UnixMicros>), FleetError> {
        let look = |it: &mut Self, marker: &Marker| it.floors_unless_held(marker, rivals);
        let mut floors = look(self, marker)?;
        let mut replaced = Vec::new();
        for (_, indices) in rivals {
            replaced.extend(marker.replace(indices));
        }
        if !replaced.is_empty() {
            floors = self.write_and_look_again(marker, before, new_identity, look)?;
        }
        Ok((replaced, floors))
    }

    /// Writes a marker that was changed after a first look at the keys, and looks again. Each daemon's
    /// write compares the marker, so after this write no daemon of the earlier marker writes a key. So
    /// the second look sees all holders and bounds. If it refuses, puts the earlier marker back.
    fn write_and_look_again<T>(
        &mut self,
        marker: &mut Marker,
        before: &mut Option<String>,
        new_identity: fn() -> String,
        look: impl FnOnce(&mut Self, &Marker) -> Result<T, FleetError>,
    ) -> Result<T, FleetError> {
        let earlier = before.as_deref().and_then(|text| parse_to_replace::<Marker>(text).ok());
        self.write_marker(marker, before, new_identity)?;
        let seen = look(self, marker);
        if let (Err(_), Some(mut earlier)) = (&seen, earlier) {
            self.write_marker(&mut earlier, before, new_identity)?;
        }
        seen
    }

    /// Returns, for each layout with rivals, the instant at which it is past the rivals' IDs.
    /// Refuses if one of the rivals' numbers is held.
    fn floors_unless_held(
        &mut self,
        marker: &Marker,
        rivals: &[(&Layout, Vec<usize>)],
    ) -> Result<Vec<UnixMicros>, FleetError> {
        let mut floors = Vec::new();
        for (layout, indices) in rivals {
            let mut bound = 0;
            for &index in indices {
                bound = bound.max(self.bound_unless_held(marker, index, layout)?);
            }
            if bound > 0 {
                floors.push(above(layout, bound));
            }
        }
        Ok(floors)
    }

    fn write_marker(
        &mut self,
        marker: &mut Marker,
        before: &mut Option<String>,
        new_identity: fn() -> String,
    ) -> Result<(), FleetError> {
        marker.write = new_identity();
        let text = marker.text();
        let swap = Swap::write(Paths::of(self.name).marker(), before.clone(), text.clone());
        if let Swapped::Refused(found) = self.coordinator.swap(&[swap])?
            // If the key has the new text, the write was done, and its first answer was lost.
            && found.into_iter().next().flatten().as_ref() != Some(&text)
        {
            return Err(FleetError::Refused(String::from(
                "another command, or a daemon, changed the fleet's marker at the same time; try again",
            )));
        }
        *before = Some(text);
        Ok(())
    }

    /// Returns the highest bound of the numbers of an ID space. Refuses if one of them is held.
    fn bound_unless_held(
        &mut self,
        marker: &Marker,
        index: usize,
        layout: &Layout,
    ) -> Result<u64, FleetError> {
        let mut bound = 0;
        for (key, text) in self.coordinator.list(&Paths::of(self.name).space(index))? {
            let number = NumberKey::parse(&text)
                .map_err(|error| FleetError::Refused(format!("key {key}: {error}")))?;
            if !number.released {
                return Err(FleetError::Refused(format!(
                    "the ID spaces {} and {} can make the same IDs, and {} holds a number of the second ({key}): stop all \
                     daemons with that layout, release the numbers of killed daemons (`snowbank fleet release` with a \
                     configuration of that layout), and try again",
                    layout.space(),
                    marker.name_at(index),
                    number.holder
                )));
            }
            bound = bound.max(number.id_bound);
        }
        Ok(bound)
    }
}

/// Returns the instant up to which a layout may have made IDs below a bound.
pub fn above(layout: &Layout, id_bound: u64) -> UnixMicros {
    let numbering = first_numbering(layout);
    // The bound may lie within its tick, so the instant is the end of the tick.
    let tick = numbering.tick_of(numbering.position_from(id_bound));
    let start = numbering.start_of(tick);
    let tick_us = i64::try_from(numbering.tick_ms()).unwrap_or(i64::MAX).saturating_mul(1_000);
    UnixMicros(start.0.saturating_add(tick_us))
}

fn raise_floor(marker: &mut Marker, floor: UnixMicros, now: UnixMicros) -> Result<(), FleetError> {
    let latest = rules::latest(now, HORIZON_MAX);
    if floor > latest {
        return Err(FleetError::Refused(format!(
            "the fleet's floor would be {}, allowed: {} at most, because no number could change hands until then; give an \
             earlier instant, or keep the epoch of the layout that is replaced",
            floor.rfc3339(0),
            latest.rfc3339(0)
        )));
    }
    marker.raise_floor(floor);
    Ok(())
}
