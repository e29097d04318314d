//! Lines for the operator about how a source starts.

use std::time::Duration;

use crate::config::SourceSettings;
use crate::server::shared::note::Note;
use snowbank_core::clock::Now;
use snowbank_core::keeper::ManagedSource;
use snowbank_state::store::{Claimant, Record};

/// Returns the note about a source for which nothing is stored.
pub(super) fn first_time(source: &SourceSettings) -> Note {
    // The coordinator stores the bounds of the worker IDs that it assigns.
    let advice = if source.is_assigned() {
        ""
    } else {
        "; if its worker IDs were in use before, on another machine or with another state directory, move that state here \
         first"
    };
    Note::Info(format!(
        "source {:?} starts for the first time with this state, at the current time{advice}",
        source.name
    ))
}

/// Returns a note about a source whose IDs another layout of this machine has made already.
pub(super) fn made_before(name: &str, space: &str) -> Note {
    Note::Warning(format!(
        "source {name:?} starts below IDs that another layout of this machine was granted since its boot ({space}), and may make \
         some of them a second time: use it only for a table that has none of them, or give it worker IDs that the \
         other layout never had"
    ))
}

/// Returns a note about a source that starts below the bound of `record`, which belongs to other
/// worker IDs.
pub(super) fn sorts_below(name: &str, record: &Record) -> Option<Note> {
    let (layout, worker_ids) = record.numbering.snowflake()?;
    let until = layout.rfc3339(record.instant()?);
    Some(Note::Warning(format!(
        "source {name:?} starts at the clock, and IDs of worker {worker_ids} were granted until {until}: no ID is repeated, \
         but until then new IDs sort below those IDs"
    )))
}

/// Returns a note if the source has worker IDs that a fleet assigned, but no longer belongs to the
/// fleet.
pub(super) fn left_fleet(claimant: &Claimant<'_>, records: &[Record]) -> Option<Note> {
    let mut assigned = records.iter().filter(|record| record.assigned);
    let shared = assigned.find(|record| record.numbering.shares_ids_with(claimant.numbering))?;
    let (_, worker_ids) = shared.numbering.snowflake()?;
    let name = claimant.name;
    let worker_ids = worker_ids.in_words();
    Some(Note::Warning(format!(
        "source {name:?} continues outside its fleet, which assigned {worker_ids} to this state: if a daemon of the fleet gets them, \
         both hand out the same IDs; keep them from the fleet, or use worker IDs that it does not assign"
    )))
}

/// If a source's first tick comes within this time, no note is needed, because requests wait this
/// long by default.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// If the source refuses requests until a later instant, returns a note that says what to do.
/// `is_above_floor`: it starts so late because its fleet may have handed out the IDs before.
/// `options` are those of [`Claimant`].
pub(super) fn not_reached(
    managed: &ManagedSource,
    now: Now,
    is_above_floor: bool,
    options: &str,
) -> Option<Note> {
    let source = managed.source();
    let name = source.name();
    let wait = source.unavailable_for(now);
    let is_yet_to_begin = source.is_yet_to_begin(now);
    if wait.is_zero() || is_yet_to_begin && wait <= SHORT_WAIT {
        return None;
    }
    let (layout, worker_ids) = source.numbering().snowflake()?;
    let until = layout.rfc3339(now.after(wait).wall);
    let remedy = if is_yet_to_begin {
        String::from(
            "without a state a start waits for the next tick; keep a state (state_dir) if that takes too long",
        )
    } else if is_above_floor {
        String::from(
            "its fleet may have handed out the IDs up to then, as after a restore of the coordinator, which raises the \
             fleet's floor; wait, and see docs/fleet.md",
        )
    } else {
        format!(
            "IDs were granted further ahead of this clock than max_ahead and on_step_back allow; set the clock right, or, \
             if it is right, give the source a worker ID that was never used; if no ID of {} after an INSTANT was \
             handed out, under whatever source and in whatever layout, run `snowbank state lower {name} INSTANT --worker-id \
             {worker_ids}{options}`",
            worker_ids.in_words()
        )
    };
    Some(Note::Warning(format!("source {name:?} refuses requests with clock_behind until {until}: {remedy}")))
}
