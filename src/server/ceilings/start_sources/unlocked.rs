//! The check of a stored state without its locks, by the rules of a start.

use std::path::Path;

use super::first_position::guard;
use super::marks::older_copy;
use super::{claimant, refuse_foreign};
use crate::ceiling::store::{self, Claimant, Plan, Record};
use crate::ceiling::{HostIdentity, Mark, Marked, StateError, compare, survey};
use crate::config::{Settings, SourceSettings};
use crate::server::shared::start_error::StartError;
use snowbank_client::layout::{Position, UnixMicros};

/// Checks that a start would accept these records of a state directory.
///
/// Left out are sources that get their worker IDs at the start, and the marks of a daemon that
/// runs: it moves them while they are read.
///
/// # Errors
/// The refusal.
pub fn check_records(
    records: &[Record],
    path: &Path,
    settings: &Settings,
    wall: UnixMicros,
) -> Result<(), StartError> {
    if let Some(record) = store::foreign(records, &HostIdentity::here()) {
        return Err(refuse_foreign(record, path));
    }
    // A configuration may be checked on a machine where no daemon has run yet.
    if records.is_empty() || settings.sources.iter().any(SourceSettings::is_assigned) {
        return Ok(());
    }
    let mut numberings = Vec::with_capacity(settings.sources.len());
    for source in &settings.sources {
        numberings.push(source.numbering().map_err(StartError::WrongSetting)?);
    }
    let mut claimants = Vec::with_capacity(numberings.len());
    for (source, numbering) in settings.sources.iter().zip(&numberings) {
        let has_worker_ids_there = settings.fleet.coordinator.is_some() && source.kind.follows_the_clock();
        let in_fleet = has_worker_ids_there || source.kind.takes_ranges();
        claimants.push(Claimant { in_fleet, state_dir: Some(path), ..claimant(source, numbering) });
    }
    let Plan { starts, .. } = store::plan(records, &claimants, wall)?;
    if store::holder(path).is_some() {
        return Ok(());
    }
    for (Claimant { name, numbering, .. }, start) in claimants.iter().zip(starts) {
        let seen = survey(&settings.lock_dir, numbering);
        let marks: Vec<Mark> = seen.into_iter().filter_map(|seen| seen.mark.ok().flatten()).collect();
        let start = start.unwrap_or(Position(0)).max(guard(numbering, records, wall));
        match compare(&marks, numbering, start, records) {
            Marked::Released => return Err(StateError::released(name, numbering).into()),
            Marked::SinceThisCopy(end) => return Err(older_copy(name, numbering, end, path)),
            Marked::Below | Marked::ByAnother(_) => {}
        }
    }
    Ok(())
}
