//! Checks a stored state by the rules of a start, without locking it.

use std::path::Path;

use super::first_position::guard;
use super::marks::older_copy;
use super::{check_end, claimant, highest_mark, refuse_foreign};
use crate::config::{Settings, directory_options};
use crate::server::shared::start_error::StartError;
use snowbank_id::layout::UnixMicros;
use snowbank_state::store::{self, Claimant, Plan, Record};
use snowbank_state::{HostIdentity, Marked, StateError, compare, readable_marks};

/// Checks that a start would accept these records of the state directory `path`. `adopt` stands for
/// a start with `--adopt-state`.
///
/// The check never refuses what a start accepts, but it may accept what a start refuses. It does
/// not know the worker IDs that a start would get, the coordinator's answers, the locks of other
/// daemons, or the marks of other layouts. While a daemon uses the state, the check leaves
/// out marks and ends.
///
/// # Errors
/// A start would be refused with this error.
pub fn check_records(
    records: &[Record],
    path: &Path,
    adopt: bool,
    settings: &Settings,
    wall: UnixMicros,
) -> Result<(), StartError> {
    let options = directory_options(Some(path), &settings.lock_dir);
    if !adopt {
        refuse_foreign(records, &HostIdentity::here(), path, &options)?;
    }
    let mut with_layout = settings.sources.iter().filter(|source| source.kind.follows_the_clock());
    let are_worker_ids_known = with_layout.all(|source| source.has_worker_ids());
    let mut numbered = Vec::with_capacity(settings.sources.len());
    for source in &settings.sources {
        // A record that belongs to no source may raise the first position of every source with a
        // layout. The check can tell which records these are only if it knows the worker IDs of all
        // sources with a layout.
        if are_worker_ids_known || !source.kind.follows_the_clock() {
            numbered.push((source, source.numbering()?));
        }
    }
    let mut claimants = Vec::with_capacity(numbered.len());
    for (source, numbering) in &numbered {
        let has_fleet_worker_ids = settings.fleet.coordinator.is_some() && source.kind.follows_the_clock();
        let in_fleet = has_fleet_worker_ids || source.kind.takes_ranges();
        claimants.push(Claimant { in_fleet, options: &options, ..claimant(source, numbering) });
    }
    let Plan { starts, .. } = store::plan(records, &claimants, wall)?;
    if store::holder(path).is_some() {
        return Ok(());
    }
    for (claimant, start) in claimants.iter().zip(starts) {
        let Claimant { name, numbering, in_fleet, .. } = *claimant;
        // In a fleet, the marks are not compared. The coordinator may raise the first position of
        // worker IDs above their marks, and a shared counter has no marks.
        let marks = if in_fleet { Vec::new() } else { readable_marks(&settings.lock_dir, numbering)? };
        let start = start.unwrap_or_default().id_bound.max(guard(claimant, records, wall, wall));
        match compare(&marks, numbering, start, records) {
            Marked::Released => return Err(StateError::released(name, numbering, &options).into()),
            Marked::Unknown => return Err(StateError::restored(claimant).into()),
            Marked::SinceThisCopy(end) if !adopt => return Err(older_copy(name, numbering, end, path)),
            Marked::Below | Marked::ByAnother(_) | Marked::SinceThisCopy(_) => {}
        }
        check_end(name, numbering, start.max(highest_mark(&marks)))?;
    }
    Ok(())
}
