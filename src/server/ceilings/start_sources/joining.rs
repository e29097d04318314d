//! The start of sources that a reload adds to those that run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::first_position::{FirstPosition, guard};
use super::marks::{moved_away, too_far};
use super::{claimant, manage, rule_of};
use crate::ceiling::store::{self, Claimant, Record};
use crate::ceiling::{self, Marked, WorkerLocks};
use crate::clock::Now;
use crate::config::SourceSettings;
use crate::keeper::ManagedSource;
use crate::numbering::Numbering;
use crate::server::ceilings::start_notes::{first_time, not_reached, sorts_below};
use crate::server::shared::note::Note;
use crate::source::Source;
use snowbank_client::layout::Position;

/// A source that joins a running daemon. Dropping it releases its worker IDs.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) settings: SourceSettings,
    pub(crate) numbering: Numbering,
    pub(crate) locks: WorkerLocks,
}

/// Sources that have joined, under their first ceilings.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) sources: Vec<Arc<Source>>,
    /// Lines for the operator about how they started.
    pub(crate) notes: Vec<Note>,
}

/// Sources that may start once their first ceilings are durable.
pub(crate) struct Planned {
    pub(crate) sources: Vec<ManagedSource>,
    pub(crate) locks: Vec<WorkerLocks>,
    /// The reload's result, once they are durable.
    pub(crate) joined: Joined,
}

/// Starts sources in addition to those that run, by the rules of a start. `retired` are the stored records that
/// belong to no running source. Only the locks of worker IDs are read.
///
/// # Errors
/// Returns why a source cannot start.
pub(crate) fn plan_joining(
    running: &[Arc<Source>],
    retired: &[Record],
    joining: Vec<Joining>,
    state_dir: Option<&Path>,
    (now, held): (Now, Duration),
) -> Result<Planned, String> {
    // How far a running source may be ahead was decided when it started.
    let (max_ahead, catch_up, in_fleet) = (Duration::ZERO, Duration::ZERO, false);
    let running = running.iter().map(|source| (source.name(), source.numbering()));
    let running: Vec<_> = running
        .map(|(name, numbering)| Claimant { name, numbering, max_ahead, catch_up, in_fleet })
        .collect();
    let claimants: Vec<_> = joining.iter().map(|new| claimant(&new.settings, &new.numbering)).collect();
    let plan = store::plan_beside(&running, retired, &claimants, now.wall);
    let plan = plan.map_err(|error| error.in_directory(state_dir).to_string())?;
    let is_kept = state_dir.is_some();
    let mut planned = Planned { sources: Vec::new(), locks: Vec::new(), joined: Joined::default() };
    let starts = plan.starts.into_iter().zip(plan.passed_over);
    for (Joining { settings, numbering, locks }, (start, passed_over)) in joining.into_iter().zip(starts) {
        check_step((&settings.name, &numbering), retired, held, now)?;
        planned.joined.notes.extend(sorts_below((&passed_over, &settings)));
        if start.is_none() && is_kept {
            planned.joined.notes.push(first_time(&settings));
        }
        let start = first_position(start, (&settings, &numbering), &locks, retired, now)?;
        let managed = manage((&settings, None), numbering, start, is_kept, now);
        planned.joined.notes.extend(not_reached(&managed, now));
        planned.joined.sources.push(Arc::clone(managed.source()));
        planned.sources.push(managed);
        planned.locks.push(locks);
    }
    Ok(planned)
}

/// While a forward step of the clock is held, refuses worker IDs that the state does not know. The believed clock may
/// then be behind, so IDs of its next tick may have been handed out elsewhere.
///
/// A start cannot wait for the step, because only a daemon that runs measures how long it lasts.
fn check_step(
    (name, numbering): (&str, &Numbering),
    records: &[Record],
    held: Duration,
    now: Now,
) -> Result<(), String> {
    if held.is_zero() || guard(numbering, records, now) == Position(0) {
        return Ok(());
    }
    Err(format!(
        "source {name:?}: the wall clock stepped forward by {held:?}, which is not believed yet, so nothing shows which IDs \
         of its worker IDs were handed out elsewhere; reload again when the step has lasted clock.step_hold"
    ))
}

/// Returns where a source starts: above its stored bounds, and above the marks of its worker IDs.
fn first_position(
    start: Option<Position>,
    (settings, numbering): (&SourceSettings, &Numbering),
    locks: &WorkerLocks,
    retired: &[Record],
    now: Now,
) -> Result<FirstPosition, String> {
    let guard = guard(numbering, retired, now);
    let start = start.map_or(guard, |start| start.max(guard));
    // This daemon uses the state. So grants to these worker IDs since it was read came from another state's daemon.
    let marks = locks.marks().map_err(|error| error.to_string())?;
    let latest = ceiling::latest_grant(&rule_of(settings, numbering), now.wall);
    if let Some(end) = ceiling::beyond(&marks, numbering, start, latest) {
        return Err(too_far(&claimant(settings, numbering), end, locks, latest));
    }
    let start = match ceiling::compare(&marks, numbering, start, &[]) {
        Marked::Below => start,
        Marked::ByAnother(end) | Marked::SinceThisCopy(end) => end,
        Marked::Released => return Err(moved_away(&claimant(settings, numbering), locks).to_string()),
    };
    Ok(FirstPosition::of(start, numbering, retired, &marks))
}
