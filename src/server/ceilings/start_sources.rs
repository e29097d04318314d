//! Starts sources: finds a first position for each source above the stored bounds that concern it,
//! and makes the first ceilings durable.

mod first_position;
mod marks;
pub(crate) mod unlocked;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::first_position::{guard, max_ahead, may_start_in_step, start_at};
use crate::config::{SourceSettings, directory_options};
use crate::server::ceilings::start_notes::{first_time, left_fleet, made_before, not_reached, sorts_below};
use crate::server::restored::KernelLog;
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_core::clock::{Now, Reading, Remembered, Wall};
use snowbank_core::grant::{CeilingRule, Grant};
use snowbank_core::keeper::{self, ManagedSource};
use snowbank_core::source::{OnStepBack, Rules, Source};
use snowbank_fleet::rules::{self, Proof};
use snowbank_fleet::{Bound, NumberRange, Rest, Taken};
use snowbank_id::layout::{Layout, Position, UnixMicros, WorkerSet};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Beginning, Claimant, DiskStore, Moment, Plan, Record, Start, StateDir};
use snowbank_state::{HostIdentity, Mark, Owner, StateError, WorkerLocks};

/// What the state and this machine remember of earlier runs.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The state directory. `None`: the daemon keeps no state.
    path: Option<PathBuf>,
    /// The options by which commands find this daemon's directories.
    options: String,
    adopt: bool,
    pub(super) records: Vec<Record>,
    pub(super) owner: Owner,
    pub(super) here: HostIdentity,
    /// Lines for the operator about the state.
    pub(crate) notes: Vec<Note>,
}

/// Checks that a numbering ends above all IDs that may have been handed out, which are below
/// `bound`. A start would forget the higher ones, because no record, mark or key that it writes has
/// a bound above that of the numbering's end.
pub(super) fn check_end(name: &str, numbering: &Numbering, bound: u64) -> Result<(), StartError> {
    // A record knows no maximum, so a counter that has ended has the number after its last as bound.
    if bound <= numbering.without_maximum().id_bound(numbering.end()) {
        return Ok(());
    }
    let end = numbering.id_bound(numbering.end());
    let (last, highest) = (end - 1, bound - 1);
    Err(StartError::WrongSetting(match numbering.snowflake() {
        None => format!(
            "source {name:?}: found maximum {last}, allowed: from {highest} on, because numbers up to that may have been \
             handed out"
        ),
        Some((layout, _)) => format!(
            "source {name:?}: found layout {layout}, whose IDs end at {last}, allowed: one with {highest} too, because IDs up \
             to that may have been handed out; give its time field as many values as before"
        ),
    }))
}

/// Returns the refusal of a start beside a forward step of the clock that is not believed yet. `read` is
/// the clock as it was read.
fn clock_stepped(name: &str, read: UnixMicros) -> StartError {
    StartError::ClockStepped(format!(
        "source {name:?}: the clock jumped ahead to {}, which is not believed before clock.step_hold is over, and another \
         machine may have used the worker IDs until then; wait, or, if that time is wrong, set the clock right",
        read.rfc3339(0)
    ))
}

/// Returns the highest bound of marks; 0 without a mark.
fn highest_mark(marks: &[Mark]) -> u64 {
    marks.iter().map(|mark| mark.id_bound).max().unwrap_or(0)
}

/// Refuses records of another machine. No clock shows how far such a counter has counted since, so
/// the refusal asks for its number. `options` are those of [`Claimant`].
fn refuse_foreign(
    records: &[Record],
    here: &HostIdentity,
    path: &Path,
    options: &str,
) -> Result<(), StartError> {
    let Some(record) = store::foreign(records, here).next() else { return Ok(()) };
    let counter = store::foreign(records, here).find(|record| record.numbering.ticket().is_some());
    let counter = counter.map_or_else(String::new, |Record { name, numbering, .. }| {
        format!(
            "run {} with the highest number that was handed out, and likewise for other ticket sources; for all others, ",
            store::set_command(name, numbering, options)
        )
    });
    Err(StartError::UnusableState(format!(
        "the state in {} is another machine's (source {:?}): if that machine still runs, both would hand out the same IDs; \
         once its daemon has stopped for good, {counter}start with --adopt-state, if this is the state that it used last, and no \
         earlier copy; for two daemons, give this one worker IDs that no daemon uses, and an empty --state-dir",
        path.display(),
        record.name
    )))
}

/// Marks the records of counters as [`mark_restored`] does, and stores the marks.
fn record_restores(
    directory: &StateDir,
    records: &mut [Record],
    boot: Option<&str>,
    log: &KernelLog,
) -> Result<(), StateError> {
    if mark_restored(records.iter_mut(), boot, log) { store::write(directory, records) } else { Ok(()) }
}

/// Marks the records of counters that were last started or set before a restore of the machine that
/// the kernel's log has. Returns whether there are such records.
fn mark_restored<'r>(
    records: impl Iterator<Item = &'r mut Record>,
    boot: Option<&str>,
    log: &KernelLog,
) -> bool {
    let Some(boot) = boot else { return false };
    let mut is_changed = false;
    for record in records.filter(|record| !record.restored) {
        record.restored = log.has_restore_since(record.life.as_deref(), boot);
        is_changed |= record.restored;
    }
    is_changed
}

/// A configured source that is locked, but has no ceiling yet.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    /// The source's index.
    pub(crate) index: usize,
    pub(crate) settings: &'a SourceSettings,
    pub(crate) numbering: Numbering,
    /// The locks of the source's worker IDs, or of its counter.
    pub(crate) locks: &'a WorkerLocks,
}

/// A source whose first ceiling, once it is durable, may be granted.
#[derive(Debug)]
pub(crate) struct Starting {
    pub(crate) index: usize,
    pub(crate) managed: ManagedSource,
    pub(crate) first_ceiling: Position,
    /// The first range of a shared counter.
    pub(crate) range: Option<NumberRange>,
}

/// Sources that start together, and what the state must store before they do.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) sources: Vec<Starting>,
    pub(crate) beginning: Beginning,
    /// Lines for the operator.
    pub(crate) notes: Vec<Note>,
}

/// What sources that start have got from the coordinator and this machine. Without a fleet, all is empty.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// The worker IDs that each source has in the fleet.
    pub(crate) taken: BTreeMap<usize, Taken>,
    /// The keys of the records whose bounds the coordinator has, each with the index of the source
    /// that had it.
    pub(super) held: Vec<(usize, String)>,
    /// The first range of each shared counter.
    pub(super) ranges: BTreeMap<usize, NumberRange>,
    /// The sources that do not start with these, and have no grant yet: their names, and their worker
    /// IDs, unless the coordinator picks them.
    pub(crate) awaited: Vec<(String, Option<Numbering>)>,
    /// The locks of the worker IDs that were taken.
    pub(crate) locks: BTreeMap<usize, WorkerLocks>,
    /// The sources that may not start yet, each with the reason.
    pub(crate) refused: Vec<(usize, StartError)>,
    /// The reason why the coordinator did not answer. Then a source goes on only without asking.
    pub(super) silence: Option<String>,
    /// Lines for the operator, which are logged once the sources have started.
    pub(crate) notes: Vec<Note>,
}

impl Joined {
    /// Returns the worker IDs that these sources give back if they do not start.
    pub(crate) fn unused(&self, sources: &[usize]) -> Vec<Bound> {
        sources.iter().filter_map(|index| self.taken.get(index)?.unused(*index)).collect()
    }

    /// Returns the ranges that these sources give back if they do not start, all of their numbers.
    pub(crate) fn unused_ranges(&self, sources: &[usize]) -> Vec<Rest> {
        let of = self.ranges.keys().filter(|of| sources.contains(of));
        of.map(|&source| Rest { source, next: 0, generation: 0 }).collect()
    }

    /// Takes the locks of these sources out.
    pub(crate) fn locks_of(&mut self, sources: &[usize]) -> BTreeMap<usize, WorkerLocks> {
        sources.iter().filter_map(|index| self.locks.remove_entry(index)).collect()
    }
}

impl Found {
    /// Locks and reads the state directory, and looks back in the kernel's log. If the machine was
    /// restored from a snapshot since a counter was last started or set, first records durably that
    /// the counter is unknown. `here` is this machine and its boot. Also returns the store of ceilings, which keeps the
    /// lock, if the daemon keeps a state.
    pub(crate) fn open(
        directory: Option<&Path>,
        lock_dir: &Path,
        adopt: bool,
        here: HostIdentity,
        log: Option<&KernelLog>,
    ) -> Result<(Found, Option<DiskStore>), StartError> {
        let options = directory_options(directory, lock_dir);
        let directory = directory.map(StateDir::lock).transpose()?;
        let mut records = directory.as_ref().map(StateDir::read).transpose()?.unwrap_or_default();
        let path = directory.as_ref().map(|directory| directory.path().to_owned());
        let mut notes = Vec::new();
        if let Some(path) = &path
            && let Err(refusal) = refuse_foreign(&records, &here, path, &options)
        {
            if !adopt {
                return Err(refusal);
            }
            notes.push(Note::Warning(format!(
                "adopted the state of another machine in {}: its daemon must never run again with these worker IDs",
                path.display()
            )));
            records.iter_mut().for_each(|record| record.machine.clone_from(&here.machine));
        }
        let owner = Owner::after(records.iter().map(|record| &record.owner));
        if let Some(directory) = &directory
            && let Some(log) = log
        {
            record_restores(directory, &mut records, here.boot.as_deref(), log)?;
        }
        let store = directory.map(|directory| DiskStore::new(directory, records.clone(), &here));
        Ok((Found { path, options, adopt, records, owner, here, notes }, store))
    }

    /// Returns what a later start of this process finds in the state, which has these records by
    /// now. If the machine was restored since these counters were last started or set, they are
    /// unknown.
    pub(crate) fn again(&self, mut records: Vec<Record>, counters: &[&str], log: &KernelLog) -> Found {
        let starting = records.iter_mut().filter(|record| counters.contains(&&*record.name));
        mark_restored(starting, self.boot(), log);
        let here = HostIdentity { life: self.boot().map(|boot| log.life_of(boot)), ..self.here.clone() };
        Found { records, here, ..self.clone() }
    }

    /// Returns the owner of the state.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns the state directory. `None`: the daemon keeps no state.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the options by which commands find this daemon's directories.
    pub(crate) fn options(&self) -> &str {
        &self.options
    }

    /// Returns the numberings that the state has records of.
    pub(crate) fn numberings(&self) -> impl Iterator<Item = &Numbering> + Clone {
        self.records.iter().map(|record| &record.numbering)
    }

    /// Returns the identity of the machine's current boot.
    pub(crate) fn boot(&self) -> Option<&str> {
        self.here.boot.as_deref()
    }

    /// Returns true if the previous run did not mark its records as clean. `None`: the state has no
    /// record of a run. That run wrote the record with the latest ceiling. Others may be of earlier runs,
    /// whose sources still wait.
    pub(crate) fn follows_a_crash(&self) -> Option<bool> {
        let mut of_runs = self.records.iter().filter(|record| !record.retired);
        let last = of_runs.clone().max_by_key(|record| record.instant())?;
        Some(of_runs.any(|record| record.owner == last.owner && !record.clean))
    }

    /// Returns the records of worker IDs that the coordinator assigned to a source before it
    /// assigned the worker IDs of `numbering`.
    pub(super) fn assigned_before<'a>(
        &'a self,
        name: &'a str,
        numbering: &'a Numbering,
    ) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |record| {
            let Record { numbering: earlier, name: of, .. } = record;
            let is_earlier = of == name && earlier.is_of_space(numbering) && !earlier.is_part_of(numbering);
            is_earlier && record.assigned && !record.forgotten
        })
    }

    /// Returns the numberings that `snowbank state export` moved away from this state. Numberings
    /// that a fleet assigned are left out, because the fleet may assign them to this state again.
    pub(super) fn moved_away(&self) -> impl Iterator<Item = &Numbering> {
        let moved = self.records.iter().filter(|record| record.released && !record.assigned);
        moved.map(|record| &record.numbering)
    }

    /// Returns the proof that this state may continue with these worker IDs. The proof is made from
    /// the marks of these worker IDs. Marks last until the machine's next boot.
    pub(crate) fn proof(&self, numbering: &Numbering, locks: &WorkerLocks) -> Result<Proof, StateError> {
        let records = self.records.iter();
        let records = records.filter(|it| !it.released && numbering.is_part_of(&it.numbering));
        let Some(stored) = records.map(|record| record.id_bound).max() else { return Ok(Proof::None) };
        let worker_ids = numbering.numbers_in_space().len();
        Ok(rules::proof(&locks.own_marks()?, worker_ids, &self.owner.state, stored))
    }

    /// Returns the worker IDs that the source with this name last had in this ID space, unless they
    /// were moved away.
    pub(super) fn had_before(&self, name: &str, layout: &Layout) -> Option<WorkerSet> {
        let named = self.records.iter().filter(|record| record.name == name && !record.released);
        let same_space = named.filter(|record| {
            record.numbering.snowflake().is_some_and(|(had, _)| had.space() == layout.space())
        });
        let (had, worker_ids) = same_space.max_by_key(|record| record.instant())?.numbering.snowflake()?;
        // If a constant of the layout has changed, the same worker ID has another number.
        let same = had.numbers_in_space(worker_ids) == layout.numbers_in_space(worker_ids);
        same.then(|| worker_ids.clone())
    }

    /// Returns the records of the machine's present boot.
    fn of_this_boot(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|it| it.boot.is_some() && it.boot == self.here.boot)
    }

    /// Returns what the state remembers of the clock. If the state was used in the machine's
    /// current boot, this is the wall clock minus the boot clock at that time. Otherwise it is the
    /// instant up to which ceilings were granted. If the clock was ahead and has been set right
    /// since, the result has the lead only if one of these worker IDs was used while the clock was
    /// ahead.
    pub(crate) fn remembered<'a>(
        &self,
        numberings: impl Iterator<Item = &'a Numbering> + Clone,
        first: Reading,
    ) -> Remembered {
        let is_used = |record: &&Record| {
            numberings.clone().any(|numbering| record.numbering.shares_ids_with(numbering))
        };
        // The process that ran last has written the record with the latest ceiling.
        if let Some(last) = self.of_this_boot().max_by_key(|record| record.instant()) {
            let used = self.of_this_boot().filter(is_used).max_by_key(|record| record.instant());
            let ahead_us = used.map_or(i64::MIN, |used| used.wall_minus_boot_us).max(first.offset_us());
            return Remembered::Offset(last.wall_minus_boot_us.min(ahead_us));
        }
        let until = self.records.iter().filter(is_used).map(Record::instant).max().flatten();
        until.map_or(Remembered::Nothing, Remembered::GrantedUntil)
    }

    /// Decides where sources start, and what the state must store before they do. `running` has the
    /// sources that have started before.
    pub(crate) fn begin(
        &self,
        sources: Vec<Locked<'_>>,
        running: &[Claimant<'_>],
        joined: &Joined,
        horizon: Duration,
        wall: &Wall,
        reading: Reading,
    ) -> Result<Begun, StartError> {
        let now = wall.believe(reading);
        let mut begun = Begun::default();
        let starts = self.plan(&sources, running, joined, now, reading.wall, &mut begun)?;
        let Begun { sources: starting, beginning, notes } = &mut begun;
        for (source, start) in sources.into_iter().zip(starts) {
            let index = source.index;
            let floor = joined.taken.get(&index).map_or(0, |taken| taken.floor);
            let first = source.numbering.position_from(start.id_bound);
            let is_above_floor = first <= source.numbering.position_from(floor);
            let managed = self.managed(&source, start, joined, horizon, now);
            notes.extend(not_reached(&managed, now, is_above_floor, &self.options));
            let first_ceiling = managed.first_ceiling(now);
            beginning.sources.push((index, self.first_record(&source, first)));
            beginning.ceilings.push((index, first_ceiling));
            beginning.unknown.extend(Some(index).filter(|_| source.settings.kind.takes_ranges()));
            let range = joined.ranges.get(&index).copied();
            starting.push(Starting { index, managed, first_ceiling, range });
        }
        let managed = starting.iter().map(|source| &source.managed);
        beginning.id_minus_boot_us = keeper::id_minus_boot_us(managed, wall.carried_us(), now);
        Ok(begun)
    }

    /// Returns the first record of a source.
    fn first_record(&self, source: &Locked<'_>, position: Position) -> Record {
        let Locked { settings, numbering, .. } = source;
        let same_space = self.records.iter().filter(|record| record.numbering.is_of_space(numbering));
        let assigned = settings.is_assigned();
        let assigned_bound = same_space.filter_map(Record::bound_of_assigned).max();
        Record {
            assigned,
            assigned_bound: assigned_bound.or(assigned.then_some(0)),
            ..Record::new(&settings.name, numbering, position, &self.owner, &self.here)
        }
    }

    /// Creates a source at its first position. `horizon` is the fleet's.
    fn managed(
        &self,
        source: &Locked<'_>,
        start: Start,
        joined: &Joined,
        horizon: Duration,
        now: Now,
    ) -> ManagedSource {
        let Locked { settings, numbering, .. } = source;
        let mut rule = rule_of(settings, numbering);
        if settings.kind.takes_ranges() {
            rule.horizon = horizon;
        }
        let taken = joined.taken.get(&source.index);
        let covered = taken.map(|taken| numbering.position_from(taken.covered));
        let mut source = new_source(settings, numbering.clone(), start, now);
        if self.path.is_none() && covered.is_none() {
            // Without this, a second start in the same tick would begin at the same position.
            source = source.begins_with_the_clock();
        }
        let first = numbering.position_from(start.id_bound);
        let managed = ManagedSource::new(Arc::new(source), rule, first, now);
        let managed = managed.following(start.id_bound, start.is_clean).under_fleet(covered);
        managed.reserving(settings.reserve)
    }

    fn moment(&self, now: Now) -> Moment<'_> {
        Moment { wall: now.wall, boot: self.boot().map(|boot| (boot, now.boot)) }
    }

    /// Decides where these sources start. Puts into `begun` what the
    /// state keeps of other records, and lines for the operator. `read` is the wall clock as it was read,
    /// which may be ahead of the believed one.
    fn plan(
        &self,
        sources: &[Locked<'_>],
        running: &[Claimant<'_>],
        joined: &Joined,
        now: Now,
        read: UnixMicros,
        begun: &mut Begun,
    ) -> Result<Vec<Start>, StartError> {
        let mut claimants = Vec::with_capacity(sources.len() + running.len());
        for Locked { index, settings, numbering, .. } in sources {
            let in_fleet = joined.taken.contains_key(index) || settings.kind.takes_ranges();
            claimants.push(Claimant { in_fleet, options: &self.options, ..claimant(settings, numbering) });
        }
        claimants.extend(running);
        let awaited: Vec<&str> = joined.awaited.iter().map(|(name, _)| &**name).collect();
        let Plan { starts, passed_over, mut retired } =
            store::plan_beside(&self.records, &claimants, &awaited, self.moment(now))?;
        let notes = &mut begun.notes;
        for ((source, start), passed_over) in sources.iter().zip(&starts).zip(&passed_over) {
            if self.path.is_some() && start.is_none() {
                notes.push(first_time(source.settings));
                notes.extend(source.settings.doubts(now.wall).into_iter().map(Note::Warning));
            }
            notes.extend(passed_over.as_ref().and_then(|record| sorts_below(&source.settings.name, record)));
        }
        let outside = claimants[..sources.len()].iter().filter(|claimant| !claimant.in_fleet);
        notes.extend(outside.filter_map(|claimant| left_fleet(claimant, &self.records)));
        let mut placed = Vec::with_capacity(sources.len());
        let highest = self.of_this_boot().map(|record| record.wall_minus_boot_us).max();
        let highest = highest.map_or(now.wall, |offset_us| UnixMicros(now.boot.0.saturating_add(offset_us)));
        for ((source, claimant), start) in sources.iter().zip(&claimants).zip(starts) {
            let numbering = &source.numbering;
            let floor = joined.taken.get(&source.index).map_or(0, |taken| taken.floor);
            let is_first = start.is_none();
            let stored = start.unwrap_or_default();
            // A worker ID of a fleet starts above its key's bound.
            let is_safe = claimant.in_fleet || may_start_in_step(numbering, &self.records, self.boot());
            if read > now.wall && !is_safe {
                return Err(clock_stepped(claimant.name, read));
            }
            let latest_wall = now.wall.max(read);
            let guarded = guard(claimant, &self.records, now.wall, highest);
            let bound = stored.id_bound.max(guarded).max(floor);
            let (bound, note) = self.start_above_marks(source, claimant, bound, latest_wall)?;
            notes.extend(note);
            check_end(claimant.name, numbering, bound.max(highest_mark(&source.locks.marks()?)))?;
            let by_clock = numbering.id_bound(numbering.first_of(numbering.tick_at(now.wall)));
            let repeated = source.locks.made_before(numbering, bound.max(by_clock)).filter(|_| is_first);
            notes.extend(repeated.map(|space| made_before(&source.settings.name, &space)));
            placed.push(start_at(bound, stored, numbering));
        }
        for record in &mut retired {
            record.owner.state.clone_from(&self.owner.state);
            // A source that waits has its record, but not those of worker IDs that it had before.
            let mut waiting = joined.awaited.iter().filter(|(name, _)| *name == record.name);
            let is_its =
                |own: &Option<Numbering>| own.as_ref().is_none_or(|own| record.numbering.is_part_of(own));
            record.retired |= !waiting.any(|(_, own)| is_its(own));
        }
        // The record that a source writes now stands for those of its earlier worker IDs.
        let starts = |index: &usize| sources.iter().any(|source| source.index == *index);
        let held = |record: &mut Record| {
            joined.held.iter().any(|(index, key)| starts(index) && *key == record.key())
        };
        // The coordinator has the bounds of these records, so no ID can repeat without them. The
        // state keeps them, perhaps with lower ceilings, only so that new IDs sort above old ones.
        let let_go = retired.extract_if(.., held);
        let at = self.moment(now);
        begun.beginning.let_go = let_go.map(|record| record.at(record.order_ceiling(at))).collect();
        begun.beginning.retired = retired;
        Ok(placed)
    }
}

pub(crate) fn claimant<'a>(source: &'a SourceSettings, numbering: &'a Numbering) -> Claimant<'a> {
    let catch_up = match source.on_step_back {
        OnStepBack::Ride => source.max_ahead,
        OnStepBack::Wait => Duration::ZERO,
    };
    let name = &source.name;
    let max_ahead = source.max_ahead;
    Claimant { name, numbering, max_ahead, catch_up, in_fleet: false, options: "" }
}

pub(super) fn rule_of(settings: &SourceSettings, numbering: &Numbering) -> CeilingRule {
    let tick = Duration::from_millis(numbering.tick_ms());
    CeilingRule { horizon: settings.horizon(), max_ahead: settings.max_ahead, tick }
}

/// Creates a source without a grant.
fn new_source(settings: &SourceSettings, numbering: Numbering, start: Start, now: Now) -> Source {
    let rules = if settings.kind.follows_the_clock() {
        Rules {
            burst_window: settings.burst_window,
            max_ahead: max_ahead(start, settings.on_step_back, &rule_of(settings, &numbering)),
            on_step_back: settings.on_step_back,
            sequence_start: settings.sequence_start,
        }
    } else {
        Rules::TICKETS
    };
    let grant = Grant::new(Position(0));
    let first = numbering.position_from(start.id_bound);
    let source = Source::new(settings.name.clone(), numbering, rules, grant, first, now);
    let source = if start.is_clean { source.starts_at_a_claim() } else { source };
    if settings.kind.takes_ranges() { source.with_shared_counter() } else { source }
}

/// Creates a source whose grant is under way: it is sealed, so it claims nothing, and the keeper
/// leaves it alone.
pub(crate) fn awaiting(
    settings: &SourceSettings,
    horizon: Duration,
    now: Now,
) -> Result<ManagedSource, StartError> {
    let numbering = settings.numbering()?;
    let first = numbering.first_of(numbering.tick_at(now.wall));
    let start = Start { id_bound: numbering.id_bound(first), is_clean: false };
    let rule = CeilingRule { horizon, ..rule_of(settings, &numbering) };
    let source = new_source(settings, numbering, start, now);
    source.seal();
    Ok(ManagedSource::new(Arc::new(source), rule, first, now))
}

#[cfg(test)]
mod tests;
