//! The keeper: raises ceilings, durable first, and watches the wall clock. Pure but for the store that it is given: the
//! daemon's thread drives it with the system's clock, simulations with theirs.

mod ownership;

pub use ownership::Ownership;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use self::ownership::Owned;
use crate::ceiling::store::{Claimant, PlanError, StateLock, id_bound};
use crate::ceiling::{CeilingRule, CeilingStore, Newcomer, StoreError, TakenOver, WorkerLocks};
use crate::clock::{BootMicros, Now, Observed, Reading, StepWatch, Wall};
use crate::source::Source;
use snowbank_client::layout::{Position, Tick};

/// How long after its last use a source's ceiling is still raised, so that the first request after a pause does not wait.
const KEPT_AFTER_USE: Duration = Duration::from_secs(600);

/// How often the keeper wants to look without being asked: the one timer of an idle daemon.
const PERIOD: Duration = Duration::from_secs(1);
/// While a source is in use and its ceiling is near (soon after a start, or riding far ahead), the keeper looks more often,
/// so that requests do not meet it: each time when half the way is left, but not more often than this.
const SHORTEST_PERIOD: Duration = Duration::from_millis(5);
/// What counts as in use for that.
const IN_USE: Duration = Duration::from_secs(3);

/// One source as the keeper sees it.
#[derive(Debug)]
pub struct Kept {
    source: Arc<Source>,
    rule: CeilingRule,
    /// The highest ceiling that is durable.
    durable: Position,
    /// The cursor when the keeper last looked, and when it was last found moved.
    seen: Position,
    used_at: BootMicros,
    /// The machine's locks of its worker IDs, where there are any.
    locks: Option<Arc<WorkerLocks>>,
    /// Why the machine does not remember what was granted last.
    unmarked: Option<String>,
}

impl Kept {
    /// A source that starts at `start`, before its first ceiling.
    pub fn new(source: Arc<Source>, rule: CeilingRule, start: Position, now: Now) -> Self {
        Kept { source, rule, durable: start, seen: start, used_at: now.boot, locks: None, unmarked: None }
    }

    /// Holds the locks of its worker IDs for as long as it is kept.
    pub fn hold(&mut self, locks: WorkerLocks) {
        self.locks = Some(Arc::new(locks));
    }

    /// The source.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The first ceiling: to be made durable and then handed to [`grant`](Kept::grant), before anything is claimed.
    pub fn first_ceiling(&self, now: Now) -> Position {
        self.wanted_ceiling(now, Duration::ZERO).max(self.durable)
    }

    /// Grants what is durable now.
    pub fn grant(&mut self, durable: Position) {
        let generation = self.source.grant().generation();
        self.durable = durable;
        self.mark_durable();
        self.source.grant().raise_if(generation, durable);
    }

    fn owned(&self) -> Owned {
        Owned { source: Arc::clone(&self.source), locks: self.locks.clone() }
    }

    /// Has the machine remember how far the worker IDs are granted. A failure stops nothing: the state still says it.
    fn mark_durable(&mut self) {
        self.unmarked = self.mark(self.durable).err().map(|error| error.to_string());
    }

    /// Has the machine remember that nothing from this position on was granted to the worker IDs.
    ///
    /// # Errors
    /// It may remember what it did before.
    pub fn mark(&self, position: Position) -> io::Result<()> {
        let id_bound = id_bound(self.source.numbering(), position);
        self.locks.as_ref().map_or(Ok(()), |locks| locks.mark_granted(id_bound))
    }

    /// Follows the source's time and use.
    fn look(&mut self, now: Now) {
        self.source.end_catch_up(now);
        if let Some(cursor) = self.source.cursor()
            && cursor != self.seen
        {
            self.seen = cursor;
            self.used_at = now.boot;
        }
    }

    /// Whether a raise cannot wait until it is due: a claim has met the ceiling, or the grant was taken away.
    fn is_needed(&self) -> bool {
        self.source.grant().is_wanted() || self.is_revoked()
    }

    /// The ceiling to make durable, if there is one to.
    fn next_ceiling(&self, now: Now, uptime: Duration) -> Option<Position> {
        self.source.cursor()?;
        let is_wanted = self.is_needed() || self.source.wait_queue().admitted_ids() > 0;
        if !is_wanted && now.boot.since(self.used_at) > KEPT_AFTER_USE {
            return None;
        }
        let ceiling = self.wanted_ceiling(now, uptime).max(self.durable);
        (ceiling > self.source.grant().ceiling()).then_some(ceiling)
    }

    /// Whether its grant was taken away and is not back.
    fn is_revoked(&self) -> bool {
        self.source.grant().ceiling() < self.durable
    }

    /// From one raise to the next under the ceiling that is durable.
    fn period(&self, now: Now) -> Duration {
        if now.boot.since(self.used_at) > IN_USE {
            return PERIOD;
        }
        (self.source.reaches_in(now, self.durable) / 2).clamp(SHORTEST_PERIOD, PERIOD)
    }

    /// The ceiling that the rule wants at a moment.
    fn wanted_ceiling(&self, now: Now, uptime: Duration) -> Position {
        let numbering = self.source.numbering();
        let reach = self.rule.reach(now, self.source.id_time(now), uptime);
        numbering.first_of(Tick(numbering.tick_at(reach).0.saturating_add(1)))
    }
}

/// What a look found, for whoever tells the operator.
#[derive(Debug)]
pub struct Looked {
    /// Of the wall clock.
    pub clock: Observed,
    /// Why ceilings that were to rise did not, at the last try.
    pub failure: Option<StoreError>,
    /// Whether that was tried now.
    pub tried: bool,
    /// Why the machine does not remember how far worker IDs were granted.
    pub unmarked: Option<String>,
    /// Why nothing is handed out any more.
    pub taken_over: Option<TakenOver>,
    /// Whether grants that were taken away are back, under ceilings made durable since.
    pub is_renewed: bool,
    /// Whether ceilings were raised.
    pub raised: bool,
    /// Whether requests wait that may have their turn now.
    pub some_wait: bool,
    /// After how long it wants to look again, unless a claim meets its ceiling before.
    pub next_in: Duration,
}

/// Raises the ceilings of all sources, and watches the wall clock.
pub struct Keeper {
    sources: Vec<Kept>,
    store: Box<dyn CeilingStore>,
    wall: Arc<Wall>,
    watch: StepWatch,
    started: BootMicros,
    ownership: Arc<Ownership>,
    /// When ceilings rise next, all together, unless one is needed before: a look in between asks nothing of the disk.
    raise_due: BootMicros,
    failure: Option<StoreError>,
}

impl Keeper {
    /// A keeper of sources whose first ceilings are granted. `started` is the reading with which `wall` began.
    pub fn new(
        sources: Vec<Kept>,
        store: Box<dyn CeilingStore>,
        state_lock: Option<StateLock>,
        wall: Arc<Wall>,
        started: Reading,
    ) -> Self {
        let watch = StepWatch::new(&wall, started);
        let ownership = Arc::new(Ownership::new(sources.iter().map(Kept::owned).collect(), state_lock));
        let (started, raise_due) = (started.boot, started.boot);
        Keeper { sources, store, wall, watch, started, ownership, raise_due, failure: None }
    }

    /// What it looks at with each look, for who looks while it waits for storage.
    pub fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    /// A reading as the daemon believes it.
    pub fn believe(&self, reading: Reading) -> Now {
        self.wall.believe(reading)
    }

    /// Whether worker IDs and state are still this process's. If not, once: nothing is claimed, raised or trimmed any more.
    fn still_ours(&self) -> Result<(), TakenOver> {
        // The state's own lock is the store's to look at.
        self.ownership.look_at_worker_ids()?;
        self.store.still_ours().inspect_err(|taken_over| self.ownership.lose(taken_over))
    }

    /// Where sources may start that join, as [`CeilingStore::starts`] says.
    ///
    /// # Errors
    /// Why one cannot start.
    pub fn starts(&self, newcomers: &[Claimant<'_>], now: Now) -> Result<Vec<Option<Position>>, PlanError> {
        self.store.starts(newcomers, now.wall)
    }

    /// Takes in sources that join, whose indices follow those there are. Their first ceilings are durable and granted when
    /// this returns.
    ///
    /// # Errors
    /// When that cannot be said. The newcomers are dropped with their locks, and nothing else has changed.
    pub fn add(&mut self, mut newcomers: Vec<Kept>, now: Now) -> Result<(), StoreError> {
        let lost = |taken_over: TakenOver| StoreError(taken_over.to_string());
        self.still_ours().map_err(lost)?;
        let joins = |kept: &Kept| (Arc::clone(&kept.source), kept.first_ceiling(now));
        let joining: Vec<(Arc<Source>, Position)> = newcomers.iter().map(joins).collect();
        let stored = joining.iter().map(|(source, ceiling)| {
            let (name, numbering) = (source.name(), source.numbering());
            Newcomer { name, numbering, ceiling: *ceiling }
        });
        self.store.add(&stored.collect::<Vec<_>>(), self.wall.carried_us())?;
        self.ownership.add(newcomers.iter().map(Kept::owned)).map_err(lost)?;
        for (kept, (_, ceiling)) in newcomers.iter_mut().zip(joining) {
            kept.grant(ceiling);
        }
        self.sources.append(&mut newcomers);
        Ok(())
    }

    /// Has ceilings of these sources, by their index, kept so far ahead from now on. They never come down by it.
    pub fn set_horizons(&mut self, horizons: impl IntoIterator<Item = Duration>) {
        for (kept, horizon) in self.sources.iter_mut().zip(horizons) {
            kept.rule.horizon = horizon;
        }
    }

    /// Looks once: about every second (it says when), and at once when a claim has met its ceiling.
    pub fn look(&mut self, reading: Reading) -> Looked {
        if self.wall.has_jumped(reading) {
            // Perhaps a snapshot was restored: what was claimed ahead is dropped, and nothing is claimed until the
            // ceilings are durable anew.
            self.sources.iter().for_each(|kept| kept.source.grant().revoke());
        }
        // What is lost stays so, and is asked for below.
        let _ = self.still_ours();
        let clock = self.watch.observe(&self.wall, reading);
        self.wall.note_seen(reading);
        let now = self.wall.believe(reading);
        let uptime = now.boot.since(self.started);
        self.sources.iter_mut().for_each(|kept| kept.look(now));
        let is_due = now.boot >= self.raise_due || self.sources.iter().any(Kept::is_needed);
        let sources = self.sources.iter().enumerate().filter(|_| is_due);
        let raises: Vec<_> =
            sources.filter_map(|(index, kept)| Some((index, kept.next_ceiling(now, uptime)?))).collect();
        let were_revoked = self.sources.iter().any(Kept::is_revoked);
        if is_due {
            self.failure = self.raise(&raises).err();
            let periods = self.sources.iter().map(|kept| kept.period(now));
            self.raise_due = now.after(periods.min().unwrap_or(PERIOD)).boot;
        }
        let failure = self.failure.clone();
        let is_renewed = were_revoked && !self.sources.iter().any(Kept::is_revoked);
        // By this look, or by whoever looked meanwhile.
        let taken_over = self.ownership.lost().cloned();
        let is_held = taken_over.is_none() && failure.is_none();
        let tried = !raises.is_empty();
        let raised = tried && is_held;
        let some_wait = self.sources.iter().any(|kept| kept.source.wait_queue().admitted_ids() > 0);
        let next_in = if is_held { self.raise_due.since(now.boot) } else { PERIOD };
        let unmarked = self.sources.iter().find_map(|kept| kept.unmarked.clone());
        Looked { clock, failure, tried, unmarked, taken_over, raised, is_renewed, some_wait, next_in }
    }

    /// Raises ceilings, all in one sync, and grants what is durable then.
    fn raise(&mut self, raises: &[(usize, Position)]) -> Result<(), StoreError> {
        if raises.is_empty() || self.ownership.lost().is_some() {
            return Ok(());
        }
        let generations: Vec<u64> =
            raises.iter().map(|&(index, _)| self.sources[index].source.grant().generation()).collect();
        self.store.raise(raises, self.wall.carried_us())?;
        for (&(index, ceiling), generation) in raises.iter().zip(generations) {
            let kept = &mut self.sources[index];
            kept.durable = ceiling;
            kept.mark_durable();
            // Not if it was taken away while the store was at it.
            kept.source.grant().raise_if(generation, ceiling);
        }
        Ok(())
    }

    /// The end: no more claims, and the ceilings come down to what was claimed. Nothing is claimed after this began.
    ///
    /// # Errors
    /// Why the ceilings could not be trimmed: the next start rides from the old ones.
    pub fn seal_and_trim(&mut self) -> Result<(), StoreError> {
        let sealed = self.sources.iter().enumerate();
        let trims: Vec<_> = sealed.filter_map(|(index, kept)| Some((index, kept.source.seal()?))).collect();
        // Perhaps since the last look.
        if self.still_ours().is_err() {
            return Ok(());
        }
        // The machine first: it is never to remember more than the state says. Nothing above the cursor was handed out.
        for &(index, cursor) in &trims {
            self.sources[index].mark(cursor).map_err(|error| unlowered(&error))?;
        }
        self.store.trim(&trims)
    }
}

/// Why a ceiling is not trimmed: the next start would be taken for one of an older copy of the state.
pub fn unlowered(error: &io::Error) -> StoreError {
    StoreError(format!("cannot mark the worker IDs' locks: {error}"))
}

#[cfg(test)]
mod tests;
