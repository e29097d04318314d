//! From what is stored to the first grants: where sources start, under ceilings that are durable.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::ceiling::store::{self, Claimant, DiskStore, PlanError, Record, StateDir, StateLock};
use crate::ceiling::{
    self, CeilingRule, CeilingStore, Grant, Marked, MemoryStore, Owner, Place, StoreError, WorkerLocks,
};
use crate::clock::{self, Now, Remembered, Wall};
use crate::config::SourceSettings;
use crate::keeper::{self, Keeper, Kept};
use crate::server::shared::start_error::StartError;
use crate::source::{Rules, Source};
use snowbank_client::layout::{Numbering, Position, Tick};

/// How the daemon uses what outlasts a restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct State<'a> {
    /// The state directory; `None`: nothing is kept.
    pub directory: Option<&'a Path>,
    /// Take over the state of another machine, or an older copy of one that is lost.
    pub adopt: bool,
}

/// The state as it was found, locked.
#[derive(Debug)]
pub(crate) struct Found {
    directory: Option<StateDir>,
    adopt: bool,
    records: Vec<Record>,
    owner: Owner,
    here: Place,
    notes: Vec<String>,
}

/// Sources under their first ceilings.
pub(crate) struct Granted {
    pub(crate) kept: Vec<Kept>,
    /// The first position of each, by its index.
    pub(crate) starts: Vec<(usize, Position)>,
    pub(crate) store: Box<dyn CeilingStore>,
    /// The lock under which it does, if what it keeps outlasts the process.
    pub(crate) state_lock: Option<StateLock>,
    /// As whom it keeps them; `None`: they do not outlast the process.
    pub(crate) owner: Option<Owner>,
    /// What the operator should know of it, once the daemon has started.
    pub(crate) notes: Vec<String>,
}

impl Found {
    /// Locks and reads the state directory.
    pub(crate) fn open(state: State<'_>) -> Result<Found, StartError> {
        let (adopt, here) = (state.adopt, Place::here());
        let Some(path) = state.directory else {
            let (owner, records, notes) = (Owner::new(), Vec::new(), Vec::new());
            return Ok(Found { directory: None, adopt, records, owner, here, notes });
        };
        let mut notes = Vec::new();
        let directory = StateDir::lock(path)?;
        let mut records = directory.read()?;
        if let Some(record) = store::foreign(&records, &here) {
            let (path, source) = (path.display(), &record.name);
            if !state.adopt {
                return Err(StartError::ForeignState(format!(
                    "the state in {path} is another machine's (source {source:?}): if that machine still runs, both \
                     would hand out the same IDs; start with --adopt-state once its daemon has stopped for good, or \
                     choose another --state-dir"
                )));
            }
            notes.push(format!(
                "adopted the state of another machine in {path}: its daemon must never run again with these worker IDs"
            ));
            records.iter_mut().for_each(|record| record.machine.clone_from(&here.machine));
        }
        let owner = Owner::after(records.iter().map(|record| &record.owner));
        Ok(Found { directory: Some(directory), adopt, records, owner, here, notes })
    }

    /// What the last owner knew of the time: wall − boot, if it ran in this boot of the machine, or else how far ceilings were
    /// granted.
    pub(crate) fn remembered(&self) -> Remembered {
        let in_this_boot = |record: &&Record| record.boot.is_some() && record.boot == self.here.boot;
        // The last to run is the one whose ceiling is the latest.
        let latest = |records: &mut dyn Iterator<Item = &Record>| {
            records.max_by_key(|record| record.instant()).cloned()
        };
        if let Some(last) = latest(&mut self.records.iter().filter(in_this_boot)) {
            return Remembered::Offset(last.wall_minus_boot_us);
        }
        latest(&mut self.records.iter())
            .map_or(Remembered::Nothing, |last| Remembered::Granted(last.instant()))
    }

    /// Starts every source under its first ceiling, all of which are durable when this returns.
    pub(crate) fn grant(
        self,
        sources: &[SourceSettings],
        numberings: &[Numbering],
        locks: Vec<WorkerLocks>,
        now: Now,
        wall: &Wall,
    ) -> Result<Granted, StartError> {
        let claimants: Vec<_> =
            sources.iter().zip(numberings).map(|(source, numbering)| claimant(source, numbering)).collect();
        let mut plan = store::plan(&self.records, &claimants, now.wall)?;
        let mut notes = self.notes.clone();
        if self.directory.is_some() {
            let fresh = plan.starts.iter().zip(sources).filter(|(start, _)| start.is_none());
            notes.extend(fresh.map(|(_, source)| not_covered(source)));
        }
        let is_kept = self.directory.is_some();
        let first = |(claim, start): (usize, Option<Position>)| {
            start.unwrap_or_else(|| first_start(&sources[claim], &numberings[claim], now))
        };
        let mut starts: Vec<(usize, Position)> =
            plan.starts.into_iter().enumerate().map(first).enumerate().collect();
        for (claimant, ((_, start), locks)) in claimants.iter().zip(starts.iter_mut().zip(&locks)) {
            notes.extend(self.start_above_marks(claimant, start, locks, now)?);
        }
        plan.retired.iter_mut().for_each(|record| record.owner.state.clone_from(&self.owner.state));
        let state_lock = self.directory.as_ref().map(StateDir::state_lock).cloned();
        let mut store: Box<dyn CeilingStore> = match self.directory {
            None => Box::new(MemoryStore),
            Some(directory) => {
                let sources = claimants.iter().zip(&starts);
                let sources =
                    sources.map(|(claimant, (_, start))| (claimant.name, claimant.numbering, *start));
                Box::new(DiskStore::new(directory, sources, plan.retired, &self.owner, &self.here))
            }
        };
        let mut kept: Vec<Kept> = starts
            .iter()
            .map(|&(index, start)| keep(&sources[index], numberings[index].clone(), start, is_kept, now))
            .collect();
        let owner = is_kept.then_some(self.owner);
        for (kept, mut locks) in kept.iter_mut().zip(locks) {
            if let Some(owner) = &owner {
                locks.mark_for(owner);
            }
            kept.hold(locks);
        }
        let ceilings: Vec<(usize, Position)> =
            kept.iter().map(|kept| kept.first_ceiling(now)).enumerate().collect();
        store.raise(&ceilings, wall.carried_us()).map_err(|error| {
            StartError::StorageFailing(format!("cannot make the first ceilings durable: {error}"))
        })?;
        for (kept, (_, ceiling)) in kept.iter_mut().zip(ceilings) {
            kept.grant(ceiling);
        }
        Ok(Granted { kept, starts, store, state_lock, owner, notes })
    }

    /// Raises a start above what the machine remembers of its worker IDs. With it comes what the operator should know.
    ///
    /// # Errors
    /// The state is an older copy of the one that was granted them.
    fn start_above_marks(
        &self,
        claimant: &Claimant<'_>,
        start: &mut Position,
        locks: &WorkerLocks,
        now: Now,
    ) -> Result<Option<String>, StartError> {
        let Claimant { name, numbering, .. } = *claimant;
        let end = match ceiling::compare(&locks.marks()?, numbering, *start, &self.records) {
            Marked::Below => return Ok(None),
            Marked::Released => return Err(moved_away(claimant).into()),
            Marked::ByAnother(end) => {
                *start = end;
                return Ok(None);
            }
            Marked::SinceThisCopy(end) => end,
        };
        let until = ceiling::instant_of(numbering, end);
        let shown = numbering.layout().rfc3339(until);
        if !self.adopt {
            let path = self.directory.as_ref().map(|directory| directory.path().display().to_string());
            return Err(StartError::OlderState(format!(
                "the state in {} is older than the one that served on this machine: to source {name:?} IDs were \
                 granted until {shown} since; put the newest state directory back, or, if it is lost, start with \
                 --adopt-state once the clock is past {shown}",
                path.unwrap_or_default()
            )));
        }
        let wait_us = until.0.saturating_sub(now.wall.0);
        if wait_us > 0 {
            let wait = Duration::from_millis(wait_us.unsigned_abs().div_ceil(1_000));
            return Err(StartError::ClockBehind(format!(
                "the state is older than the one that served on this machine: to source {name:?} IDs were granted until \
                 {shown}, and the clock gets there in {wait:?}; start with --adopt-state then"
            )));
        }
        *start = end;
        Ok(Some(format!(
            "adopted an older copy of the state: source {name:?} starts above all IDs granted until {shown}; the newer \
             one must never be used again"
        )))
    }
}

/// Gives back what was granted to sources of which nothing was claimed.
///
/// # Errors
/// What was granted may stand: the next start goes on above it.
pub(crate) fn give_back(
    kept: &[Kept],
    starts: &[(usize, Position)],
    store: &mut dyn CeilingStore,
) -> Result<(), StoreError> {
    for (kept, &(_, start)) in kept.iter().zip(starts) {
        kept.mark(start).map_err(|error| keeper::unlowered(&error))?;
    }
    store.trim(starts)
}

fn moved_away(claimant: &Claimant<'_>) -> PlanError {
    let (name, numbering) = (claimant.name.to_owned(), claimant.numbering);
    let (layout, worker_ids) = (Box::new(numbering.layout().clone()), numbering.workers().clone());
    PlanError::Released { name, layout, worker_ids }
}

fn claimant<'a>(source: &'a SourceSettings, numbering: &'a Numbering) -> Claimant<'a> {
    Claimant { name: &source.name, numbering, max_ahead: source.max_ahead }
}

/// A source that is to join those of a running daemon. Dropped, it gives its worker IDs back.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) settings: SourceSettings,
    pub(crate) numbering: Numbering,
    pub(crate) locks: WorkerLocks,
}

/// Sources that have joined, under their first ceilings.
pub(crate) struct Joined {
    pub(crate) sources: Vec<Arc<Source>>,
    /// What the operator should know of how they started.
    pub(crate) notes: Vec<String>,
}

/// Starts sources beside those that run, by the rules of a start. Their first ceilings are durable when this returns; if
/// that fails, nothing has changed.
pub(crate) fn join(keeper: &mut Keeper, joining: Vec<Joining>, is_kept: bool) -> Result<Joined, String> {
    let mut joined = Joined { sources: Vec::new(), notes: Vec::new() };
    if joining.is_empty() {
        return Ok(joined);
    }
    let now = keeper.believe(clock::os::read());
    let claimants: Vec<_> = joining.iter().map(|new| claimant(&new.settings, &new.numbering)).collect();
    let starts = keeper.starts(&claimants, now).map_err(|error| error.to_string())?;
    let mut all_kept = Vec::new();
    for (Joining { settings, numbering, locks }, start) in joining.into_iter().zip(starts) {
        if start.is_none() && is_kept {
            joined.notes.push(not_covered(&settings));
        }
        let start = start.unwrap_or_else(|| first_start(&settings, &numbering, now));
        // The state is in use: what was granted to these worker IDs since it was read, another state's daemon did.
        let start = match ceiling::compare(
            &locks.marks().map_err(|error| error.to_string())?,
            &numbering,
            start,
            &[],
        ) {
            Marked::Below => start,
            Marked::ByAnother(end) | Marked::SinceThisCopy(end) => end,
            Marked::Released => return Err(moved_away(&claimant(&settings, &numbering)).to_string()),
        };
        let mut kept = keep(&settings, numbering, start, is_kept, now);
        kept.hold(locks);
        joined.sources.push(Arc::clone(kept.source()));
        all_kept.push(kept);
    }
    keeper
        .add(all_kept, now)
        .map_err(|error| format!("cannot make the first ceilings of the new sources durable: {error}"))?;
    Ok(joined)
}

/// What a start without a stored ceiling cannot know.
fn not_covered(source: &SourceSettings) -> String {
    format!(
        "source {:?}: no ceiling is stored yet, so it starts above now by first_start_guard; not covered is what its \
         worker IDs handed out elsewhere, or before with a clock that was ahead",
        source.name
    )
}

/// Where a source starts of which nothing is stored: nothing says what an earlier process has used, so above the
/// current tick by the guard.
fn first_start(source: &SourceSettings, numbering: &Numbering, now: Now) -> Position {
    let tick = Duration::from_millis(numbering.layout().tick_ms());
    let guard = source.first_start_guard.unwrap_or(tick);
    let next = numbering.tick_at(now.wall).0.saturating_add(1);
    numbering.first_of(Tick(numbering.tick_at(now.after(guard).wall).0.max(next)))
}

/// A source that may not claim anything yet.
fn keep(settings: &SourceSettings, numbering: Numbering, start: Position, is_kept: bool, now: Now) -> Kept {
    let rules = Rules {
        burst_window: settings.burst_window,
        max_ahead: settings.max_ahead,
        on_step_back: settings.on_step_back,
        sequence_start: settings.sequence_start,
    };
    let tick = Duration::from_millis(numbering.layout().tick_ms());
    let rule = CeilingRule { horizon: settings.horizon, max_ahead: settings.max_ahead, tick };
    let grant = Grant::new(Position(0));
    let source = Source::new(settings.name.clone(), numbering, rules, grant, start, now);
    // Where nothing is kept, the next start in this tick would ride from the same place.
    let source = if is_kept { source } else { source.begins_with_the_clock() };
    Kept::new(Arc::new(source), rule, start, now)
}

#[cfg(test)]
mod tests;
