//! Compares the position at which a source would start with the machine's marks. A mark shows how
//! far the IDs of a worker ID were granted, whichever state had the worker ID.

use std::path::Path;
use std::time::Duration;

use super::{Found, Locked, rule_of};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_id::layout::UnixMicros;
use snowbank_id::numbering::Numbering;
use snowbank_state::store::Claimant;
use snowbank_state::{Mark, Marked, StateError, WorkerLocks};

impl Found {
    /// Raises `start`, an ID bound, above the marks of the worker IDs. Returns the raised bound, and
    /// a note if the operator adopted an older copy of the state.
    ///
    /// A mark above the state's bound usually shows that the state is an older copy. For worker IDs
    /// that a fleet assigns, the mark does not show that, because the state may have dropped their
    /// record. A source with such worker IDs starts above the mark and above the coordinator's
    /// bound. `latest_wall` is the later of the believed and the read wall clock: the clock of the
    /// process that wrote a mark may have been set right before.
    ///
    /// # Errors
    /// The state is an older copy, a mark is unreadable or too far ahead of the clock, or a worker
    /// ID was moved away.
    pub(super) fn start_above_marks(
        &self,
        source: &Locked<'_>,
        claimant: &Claimant<'_>,
        start: u64,
        latest_wall: UnixMicros,
    ) -> Result<(u64, Option<Note>), StartError> {
        let Locked { settings, numbering, locks, .. } = source;
        let marks = locks.marks()?;
        let latest = snowbank_state::latest_grant(&rule_of(settings, numbering), latest_wall);
        if let Some(end) = snowbank_state::beyond(&marks, numbering, start, latest) {
            return Err(StartError::ClockBehind(too_far(claimant, end, locks, latest)));
        }
        match snowbank_state::compare(&marks, numbering, start, &self.records) {
            Marked::Below => Ok((start, None)),
            Marked::Released => Err(moved_away(claimant, locks)),
            Marked::Unknown => Err(StateError::restored(claimant).into()),
            Marked::SinceThisCopy(end) if !settings.is_assigned() => {
                Ok((end, Some(self.adopt_older(claimant, end, latest_wall)?)))
            }
            Marked::ByAnother(end) | Marked::SinceThisCopy(end) => Ok((end, None)),
        }
    }

    /// Allows a start with an older copy of the state on two conditions: the operator adopts the
    /// copy, and the clock is past `end`, up to which IDs were granted since the copy was made.
    fn adopt_older(&self, claimant: &Claimant<'_>, end: u64, wall: UnixMicros) -> Result<Note, StartError> {
        let Claimant { name, numbering, .. } = *claimant;
        if !self.adopt {
            return Err(older_copy(name, numbering, end, self.path().unwrap_or(Path::new(""))));
        }
        let until = snowbank_state::instant_of(numbering, end);
        let shown = granted_until(numbering, end);
        let wait_us = until.0.saturating_sub(wall.0);
        if wait_us > 0 {
            let wait = Duration::from_millis(wait_us.unsigned_abs().div_ceil(1_000));
            return Err(StartError::ClockBehind(format!(
                "the state is older than the one that served on this machine: source {name:?} was granted IDs until \
                 {shown}, and the clock gets there in {wait:?}; start with --adopt-state then"
            )));
        }
        Ok(Note::Warning(format!(
            "adopted an older copy of the state: source {name:?} starts above all IDs granted until {shown}; the newer \
             one must never be used again"
        )))
    }
}

/// Returns `end`, up to which IDs were granted, in words.
fn granted_until(numbering: &Numbering, end: u64) -> String {
    match numbering.snowflake() {
        Some((layout, _)) => layout.rfc3339(snowbank_state::instant_of(numbering, end)),
        None => format!("number {end}"),
    }
}

/// Returns the refusal of an older copy of the state. After the copy was made, IDs were granted up
/// to `end`.
pub(super) fn older_copy(name: &str, numbering: &Numbering, end: u64, path: &Path) -> StartError {
    let shown = granted_until(numbering, end);
    // A counter does not follow a clock, so there is nothing to wait for.
    let once = match numbering.snowflake() {
        Some(_) => format!(" once the clock is past {shown}"),
        None => String::new(),
    };
    StartError::OlderState(format!(
        "the state in {} is older than the one that served on this machine: since that copy, source {name:?} was \
         granted IDs until {shown}; put the newest state directory back, or, if it is lost, start with --adopt-state{once}",
        path.display()
    ))
}

/// Returns the refusal of a source because its worker IDs, or other worker IDs that can make the
/// same IDs, were moved away.
pub(super) fn moved_away(claimant: &Claimant<'_>, locks: &WorkerLocks) -> StartError {
    let Claimant { name, numbering, options, .. } = *claimant;
    if locks.marks_of_source().is_ok_and(|marks| marks.iter().any(Mark::is_released)) {
        return StateError::released(name, numbering, options).into();
    }
    StartError::UnusableState(format!(
        "source {name:?}: a worker ID of another layout, which can make the same IDs, was moved away by `snowbank state \
         export`; use worker IDs that the other layout never had, or bring that one back: stop the daemon that has it now, and import its export \
         here (or, if no daemon got it, the same export) with `snowbank state import FILE{options}`"
    ))
}

/// Returns the refusal of a start because a mark is further ahead than any grant that this clock
/// and this layout allow.
pub(super) fn too_far(claimant: &Claimant<'_>, end: u64, locks: &WorkerLocks, latest: UnixMicros) -> String {
    let Claimant { name, numbering, .. } = *claimant;
    let decimals = numbering.snowflake().map_or(0, |(layout, _)| layout.decimals());
    let until = snowbank_state::instant_of(numbering, end).rfc3339(decimals);
    if locks.is_of_kin(locks.furthest()) {
        return format!(
            "source {name:?}: the mark in {} is of a worker ID of another layout: it was granted IDs that this layout can make \
             too, the last of them at {until}; use worker IDs that the other layout never had",
            locks.furthest().display(),
        );
    }
    format!(
        "source {name:?}: the mark in {} shows that IDs were granted until {until}, but by this clock no grant reaches beyond {}; set the \
         clock right, give the source worker IDs that were never used, or wait; if no daemon's clock was ever so far ahead, \
         find out who wrote the mark, and remove the file",
        locks.furthest().display(),
        latest.rfc3339(decimals),
    )
}
