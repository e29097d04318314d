//! A try to start sources: takes what they need for their grants, and gives it back if the try ends
//! without a grant. The steps are those at the top of [`control`](super::control).

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use socket2::Socket;

use super::ask_peers::refuse_shared;
use super::control::{Control, DISK_TIMEOUT, Opened};
use crate::config::SourceSettings;
use crate::os_clock;
use crate::server::ceilings::ending::Ended;
use crate::server::ceilings::fleet_thread::{self, Fleet, Work};
use crate::server::ceilings::job_thread::NoReply;
use crate::server::ceilings::join_fleet::{self, Joining, no_fleet, say_pause, warn_unless_marked};
use crate::server::ceilings::keeper_thread::{Change, Granted};
use crate::server::ceilings::start_sources::{Begun, Found, Joined, Locked, Starting, claimant};
use crate::server::ceilings::storage_thread::{self, Storage};
use crate::server::restored::{self, KernelLog, Life};
use crate::server::shared::live_config::{Supply, order_of};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use snowbank_core::clock::Reading;
use snowbank_fleet::{Bound, Clocks, Pause};
use snowbank_id::layout::WorkerSet;
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{Claimant, DiskStore};
use snowbank_state::{Fate, StateError, WorkerLocks, lock_all, lock_workers};

const AFTER_A_CRASH: &str = "the previous run did not end its record: it was killed or crashed, it lost its \
      worker ID, the power failed, or the disk hung";

impl Control {
    /// Takes all that these sources need for their grants, which need no coordinator. Returns `None` if
    /// the daemon stops.
    ///
    /// # Errors
    /// One of them cannot start. What was taken is given back.
    pub(super) fn prepare(&mut self, own: &[usize]) -> Result<Option<(Granted, Vec<Note>)>, StartError> {
        let life = Life::now(&self.common);
        let (mut joined, mut begun) = (Joined::default(), Vec::new());
        let ready = self.begin(own, &mut joined, &life, &mut begun);
        if !matches!(ready, Ok(Some(_))) {
            self.end_try(own, &mut joined, begun, &life);
        }
        ready
    }

    /// Tries to start these sources together. Those that get no worker ID wait, each for its own reason.
    /// Those with a new worker ID pause, and no other source waits for them. Returns true if a reload has
    /// ended the pause: then they have given back what is new to them, and the next try is due at once.
    ///
    /// # Errors
    /// The daemon's start is refused: no source has a grant, and waiting cannot help. What was taken is
    /// given back.
    pub(super) fn start_group(&mut self, group: &[usize]) -> Result<bool, StartError> {
        let life = Life::now(&self.common);
        let mut joined = self.join(group, &life)?;
        let mut starting = group.to_vec();
        if let Err(lasting) = self.leave_out_refused(&mut starting, &mut joined) {
            self.end_try(&starting, &mut joined, Vec::new(), &life);
            return Err(lasting);
        }
        let is_new = |index: &usize| joined.taken.get(index).is_some_and(|taken| taken.is_new);
        let (mut pausing, ready): (Vec<usize>, Vec<usize>) = starting.into_iter().partition(is_new);
        let mut started = self.start_taken(&ready, &mut joined, &life);
        let mut is_over = true;
        if started.is_ok() && !pausing.is_empty() {
            started = self.pause(&pausing, &mut joined).and_then(|over| {
                is_over = over;
                self.leave_out_refused(&mut pausing, &mut joined)
            });
        }
        if started.is_ok() && is_over {
            started = self.start_taken(&pausing, &mut joined, &life);
        } else {
            self.say_stopping();
            self.end_try(&pausing, &mut joined, Vec::new(), &life);
        }
        started.map(|()| !is_over)
    }

    /// Pauses before the worker IDs of these sources. The fleet thread does other jobs between the steps
    /// of the pause, and this thread reloads. A reload that changes a source without a grant, or adds
    /// one, ends the pause, and so does a stop. Returns whether the pause is over. If it fails, all of
    /// these sources are refused.
    ///
    /// # Errors
    /// The fleet thread has ended.
    fn pause(&mut self, pausing: &[usize], joined: &mut Joined) -> Result<bool, StartError> {
        for &index in pausing {
            say_pause(self.supplies[index].name(), joined.taken.get(&index));
        }
        let mut pause = Pause::of(pausing.to_vec());
        let settled = loop {
            let (next, step) = self.ask_fleet(move |work| {
                let clocks = work.clocks();
                let step = work.member().settle(&mut pause, clocks);
                (pause, step)
            })?;
            pause = next;
            match step {
                Ok(Some(due_in)) => match self.requests.recv_timeout(due_in) {
                    Err(RecvTimeoutError::Timeout) if !self.is_stopping() => {}
                    Ok(first) => {
                        if !self.reload_beside_pause(first) {
                            return Ok(false);
                        }
                    }
                    Err(_) => return Ok(false),
                },
                step => break step.map(drop),
            }
        };
        for Bound { source, id_bound } in pause.floors {
            joined.taken.entry(source).and_modify(|taken| taken.floor = id_bound);
        }
        let Err(error) = settled else { return Ok(true) };
        joined.locks_of(pausing);
        for &index in pausing {
            joined.taken.remove(&index);
            joined.refused.push((index, StartError::from(error.clone())));
        }
        let pausing = pausing.to_vec();
        self.ask_fleet(move |work| work.member().give_up(&pausing)).map(|()| true)
    }

    /// Reloads in a pause. Returns whether the sources without a grant are as before.
    fn reload_beside_pause(&mut self, first: Option<Socket>) -> bool {
        let awaited = |control: &Control| -> Vec<(usize, Arc<SourceSettings>)> {
            control.awaited().map(|index| (index, Arc::clone(control.settings_of(index)))).collect()
        };
        let before = awaited(self);
        self.reload(first);
        awaited(self) == before
    }

    fn ask_fleet<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Work) -> R + Send + 'static,
    ) -> Result<R, StartError> {
        let fleet = self.fleet().ok_or_else(|| no_fleet(NoReply::Ended))?;
        fleet.question(Duration::MAX, question).map_err(no_fleet)
    }

    /// Lets the sources that were refused wait, and takes them out of `starting`.
    ///
    /// # Errors
    /// As [`start_group`](Control::start_group).
    fn leave_out_refused(
        &mut self,
        starting: &mut Vec<usize>,
        joined: &mut Joined,
    ) -> Result<(), StartError> {
        let refused = std::mem::take(&mut joined.refused);
        starting.retain(|index| !refused.iter().any(|(of, _)| of == index));
        if let Some((_, lasting)) = refused.iter().find(|(_, error)| !self.may_wait(error)) {
            return Err(lasting.clone());
        }
        if refused.is_empty() { Ok(()) } else { self.wait(&refused) }
    }

    fn say_stopping(&self) {
        if self.is_stopping() {
            tracing::info!("stopping: the daemon returns the worker IDs that it has just taken");
        }
    }

    /// Returns whether a source whose start fails for this reason waits for the next try.
    fn may_wait(&self, error: &StartError) -> bool {
        self.has_served || error.waits()
    }

    /// Starts sources that have taken what they need of the fleet. If one is refused before their
    /// ceilings are written, each is tried alone, so that only those wait that have a reason.
    ///
    /// # Errors
    /// As [`start_group`](Control::start_group).
    fn start_taken(&mut self, sources: &[usize], joined: &mut Joined, life: &Life) -> Result<(), StartError> {
        if sources.is_empty() {
            return Ok(());
        }
        let mut begun = Vec::new();
        let error = match self.begin(sources, joined, life, &mut begun) {
            Ok(Some((granted, notes))) => return self.grant(granted, notes),
            Ok(None) => {
                self.say_stopping();
                None
            }
            Err(error) if self.may_wait(&error) && begun.is_empty() && sources.len() > 1 => {
                for (at, &index) in sources.iter().enumerate() {
                    if let Err(error) = self.start_taken(&[index], joined, life) {
                        self.end_try(&sources[at + 1..], joined, Vec::new(), life);
                        return Err(error);
                    }
                }
                return Ok(());
            }
            Err(error) => Some(error),
        };
        self.end_try(sources, joined, begun, life);
        match error {
            // Another daemon has them by now, or the coordinator does not answer.
            Some(error) if self.may_wait(&error) => self.wait_alike(sources, &error),
            error => error.map_or(Ok(()), Err),
        }
    }

    /// Locks and reads the state directory, and opens the coordinator's client, at the first call.
    /// Returns what the state has now. Before a counter of this daemon starts, looks back in the
    /// kernel's log. If the machine was restored since the counter was last started or set, the
    /// counter is unknown.
    fn open(&mut self, group: &[usize], began: Reading) -> Result<Arc<Found>, StartError> {
        let running: Vec<usize> = self.granted().map(|(index, _)| index).collect();
        if let Some(opened) = &mut self.opened {
            if let Some(storage) = &opened.storage {
                let limit = if self.has_served { DISK_TIMEOUT } else { Duration::MAX };
                let records = storage.question(limit, move |store| store.records(&running));
                let records = records.map_err(no_storage)?;
                let mut counters: Vec<&str> = Vec::new();
                let starting = group.iter().map(|&index| &self.supplies[index]);
                let counting = starting.filter(|supply| supply.settings.kind.counts_by_itself());
                counters.extend(counting.map(Supply::name));
                opened.found = Arc::new(opened.found.again(records, &counters, &opened.kernel_log));
            }
            return Ok(Arc::clone(&opened.found));
        }
        // The kernel's log is opened before the state is read, so that the daemon notices every
        // restore that comes after the state was read.
        let access = self.secrets.fleet.clone();
        let kernel_log = Arc::new(KernelLog::open());
        let here = kernel_log.host();
        let lock_dir = &self.settings.lock_dir;
        let directory = self.directory.as_deref();
        let (mut found, store) = Found::open(directory, lock_dir, self.adopt, here, Some(&kernel_log))?;
        self.choices.append(&mut found.notes);
        let found = Arc::new(found);
        let in_fleet =
            access.map(|access| join_fleet::open(&self.settings, access, &found, &kernel_log)).transpose()?;
        let fleet = in_fleet.map(|in_fleet| {
            let wall = Arc::clone(&self.common.wall);
            let read_clocks = move || {
                let reading = os_clock::read();
                Clocks::at(wall.believe(reading).wall, reading)
            };
            fleet_thread::start(in_fleet, Arc::clone(&self.common), Box::new(read_clocks))
        });
        let fleet: Option<Fleet> = fleet.transpose().map_err(|error| StartError::no_thread(&error))?;
        let storage = store.map(|store: DiskStore| storage_thread::start(store)).transpose();
        let storage: Option<Storage> = storage.map_err(|error| StartError::no_thread(&error))?;
        if let Some(is_unclean) = found.follows_a_crash() {
            let _ = self.common.metrics.previous_run_unclean.set(is_unclean);
        }
        self.opened = Some(Opened {
            found: Arc::clone(&found),
            storage: storage.as_ref().map(Storage::asks),
            fleet: fleet.as_ref().map(Fleet::asks),
            kernel_log: Arc::clone(&kernel_log),
        });
        let watched = restored::watch(kernel_log, Arc::clone(&self.common));
        self.notices_restores = Some(watched.map_err(|error| StartError::no_thread(&error))?);
        self.tell_keeper(Change::Opened(storage, fleet));
        self.remember(&found, &[], began);
        Ok(found)
    }

    /// Lets the clock begin with what the state remembers, unless a source has had a grant, or the clock
    /// has begun with just that: it may judge a step, for which a source waits. `numberings` are those of
    /// the sources that start now. If other sources have none yet, all that the state remembers counts.
    fn remember(&mut self, found: &Found, numberings: &[&Numbering], began: Reading) {
        if self.has_served {
            return;
        }
        let is_all = numberings.len() == self.settings.sources.len();
        let stored = found.numberings().filter(|_| !is_all);
        let remembered = found.remembered(numberings.iter().copied().chain(stored), began);
        if self.remembered.replace(remembered) == Some(remembered) {
            return;
        }
        let (done, is_done) = mpsc::channel();
        self.tell_keeper(Change::Clock(remembered, began, done));
        let _ = is_done.recv();
    }

    /// Takes the worker IDs of the sources that belong to the fleet, and the first ranges of its
    /// counters.
    fn join(&mut self, group: &[usize], life: &Life) -> Result<Joined, StartError> {
        if !self.is_of_fleet(self.settings_of(group[0])) {
            return Ok(Joined::default());
        }
        let found = self.open(group, life.began)?;
        let Some(fleet) = self.fleet() else { return Ok(Joined::default()) };
        let lock = |numbering: &Numbering| lock_workers(&self.settings.lock_dir, numbering);
        let joining = Joining {
            fleet,
            lock: &lock,
            sources: group.iter().map(|&index| (index, Arc::clone(self.settings_of(index)))).collect(),
            in_use: self.worker_ids_in_use(),
            found,
            life: life.clone(),
            is_stopping: &self.is_stopping,
            latest_wall: self.common.wall.believe(life.began).wall.max(life.began.wall),
        };
        joining.join()
    }

    /// Returns the worker IDs of the sources that have a grant.
    fn worker_ids_in_use(&self) -> Vec<WorkerSet> {
        self.granted().filter_map(|(_, supply)| Some(supply.numbering()?.snowflake()?.1.clone())).collect()
    }

    /// Makes the first ceilings of these sources durable, and puts the sources into `begun`. Then
    /// checks that worker IDs of the fleet are still this daemon's. Returns what to grant, with lines
    /// for the operator, or `None` if the daemon stops meanwhile.
    fn begin(
        &mut self,
        starting: &[usize],
        joined: &mut Joined,
        life: &Life,
        begun: &mut Vec<Starting>,
    ) -> Result<Option<(Granted, Vec<Note>)>, StartError> {
        // Sources that have started since the sources joined have changed the state.
        let found = &*self.open(starting, life.began)?;
        let others = self.awaited().filter(|index| !starting.contains(index));
        let others = others.map(|index| self.settings_of(index));
        joined.awaited = others
            .map(|source| {
                let own = source.own_workers().filter(|_| source.kind.follows_the_clock());
                (source.name.clone(), own.and_then(|own| source.numbering_with(own).ok()))
            })
            .collect();
        let lock_dir = self.settings.lock_dir.clone();
        let settings: Vec<_> =
            starting.iter().map(|&index| (index, Arc::clone(self.settings_of(index)))).collect();
        let numberings = number_and_lock(&lock_dir, &settings, joined, found)?;
        if self.is_stopping() {
            return Ok(None);
        }
        let next: Vec<(usize, &Numbering)> = starting.iter().copied().zip(&numberings).collect();
        let silent_peers = self.refuse_shared(&next)?;
        if self.is_stopping() {
            return Ok(None);
        }
        self.remember(found, &numberings.iter().collect::<Vec<_>>(), life.began);
        // The clocks are read again, because an earlier process may have handed out IDs of ticks
        // after `began`, until it released the locks.
        let reading = os_clock::read();
        let running: Vec<Claimant<'_>> = self.running(found).collect();
        let sources = settings.iter().zip(numberings).map(|((index, settings), numbering)| Locked {
            index: *index,
            settings,
            numbering,
            locks: &joined.locks[index],
        });
        let sources = sources.collect();
        let horizon = self.settings.fleet.horizon;
        let wall = &self.common.wall;
        let Begun { sources, beginning, mut notes } =
            found.begin(sources, &running, joined, horizon, wall, reading)?;
        let is_unclean = !self.has_served && found.follows_a_crash() == Some(true);
        notes.extend(silent_peers);
        notes.extend(is_unclean.then(|| Note::Info(AFTER_A_CRASH.to_owned())));
        if let Some(storage) = self.storage() {
            let carried_us = wall.carried_us();
            let stored = storage.question(self.disk_limit(), move |store| store.begin(beginning, carried_us));
            match stored {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let reason = format!("cannot make the first ceilings durable: {error}");
                    return Err(StartError::from_state(error.cause(), reason));
                }
                Err(reason) => {
                    // The ceilings may become durable later.
                    *begun = sources;
                    return Err(no_storage(reason));
                }
            }
        }
        *begun = sources;
        self.check_taken(starting, joined)?;
        if self.is_stopping() {
            return Ok(None);
        }
        notes.append(&mut joined.notes);
        let granted =
            Granted { sources: std::mem::take(begun), locks: joined.locks_of(starting), life: life.clone() };
        Ok(Some((granted, notes)))
    }

    /// Checks that the worker IDs that sources of the fleet took are still this daemon's. From now on,
    /// their loss ends the daemon.
    fn check_taken(&self, starting: &[usize], joined: &Joined) -> Result<(), StartError> {
        let is_of_fleet = self.is_of_fleet(self.settings_of(starting[0]));
        let Some(fleet) = self.fleet().filter(|_| is_of_fleet) else { return Ok(()) };
        // Once these serve, the daemon asks, and an answer may be the loss of those that wait.
        let waiting = joined.locks.iter().filter(|(index, _)| !starting.contains(index));
        waiting.for_each(|(_, locks)| warn_unless_marked(locks.mark_as(Fate::Lost)));
        let pools = join_fleet::pools(starting.iter().map(|&index| (index, self.settings_of(index))));
        let indices = starting.to_vec();
        let checked = fleet.question(Duration::MAX, move |work| work.check_taken(&indices, pools));
        checked.map_err(no_fleet)?.map_err(StartError::from)
    }

    /// Returns the sources that have a grant, for the plan of those that start.
    fn running<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = Claimant<'a>> {
        self.granted().map(|(_, supply)| Claimant {
            in_fleet: self.is_of_fleet(&supply.settings),
            options: found.options(),
            ..claimant(&supply.settings, supply.source.numbering())
        })
    }

    /// Asks the peers for their worker IDs. `next` has the indices and the numberings of the
    /// sources that start.
    fn refuse_shared(&self, next: &[(usize, &Numbering)]) -> Result<Option<Note>, StartError> {
        let mut granted = Vec::new();
        for index in order_of(&self.settings, &self.supplies) {
            let starts = next.iter().find(|(of, _)| *of == index).map(|(_, numbering)| *numbering);
            granted.push(starts.or_else(|| self.supplies[index].numbering()));
        }
        let info_json = super::info::describe(&self.settings, &granted, self.common.metrics.instance)?;
        // The live configuration with these sources has these texts. So it can be made for certain
        // once their ceilings are durable.
        for identity in &self.settings.identities {
            super::info::describe_to(identity, &info_json)?;
        }
        refuse_shared(self.secrets.peers.as_ref(), &info_json, &self.settings.listen)
    }

    /// Ends a try to start these sources: gives back what they took of the fleet, and trims those whose
    /// first ceilings may be durable. If a step fails, the worker IDs are as after a kill.
    fn end_try(&self, sources: &[usize], joined: &mut Joined, begun: Vec<Starting>, life: &Life) {
        let ended = Ended {
            have_served: false,
            are_removed: false,
            left: begun.iter().filter_map(|source| source.managed.seal(source.index)).collect(),
            bounds: joined.unused(sources),
            rests: joined.unused_ranges(sources),
            locks: joined.locks_of(sources),
            restored: Vec::new(),
            wall_minus_boot_us: self.common.wall.carried_us(),
            life: life.clone(),
        };
        if let Err(reason) = ended.end(self.writers()) {
            tracing::warn!("a start ended as after a kill: {reason}");
        }
        let has_joined = sources.iter().any(|&index| self.is_of_fleet(&self.supplies[index].settings));
        if let Some(fleet) = self.fleet().filter(|_| has_joined) {
            let sources = sources.to_vec();
            let _ = fleet.question(Duration::MAX, move |work| work.member().give_up(&sources));
        }
    }
}

fn no_storage(reason: NoReply) -> StartError {
    match reason {
        NoReply::Ended => StartError::MayPass(String::from("the state was taken over by another process")),
        NoReply::Late => StartError::MayPass(String::from("the state directory's disk does not answer")),
    }
}

/// Marks a shared counter: no state of this machine knows it any more, so a start with `kind =
/// "ticket"` is refused. The lock is free again afterwards, because other daemons of this machine
/// may share the counter.
///
/// # Errors
/// The lock cannot be taken or written, so the counter's own daemon could start again.
fn mark_shared(lock_dir: &Path, numbering: &Numbering) -> Result<(), StateError> {
    lock_workers(lock_dir, numbering)?.mark_unknown()
}

/// Makes the numbering of each source that starts, and locks the worker IDs that are not locked yet.
fn number_and_lock(
    lock_dir: &Path,
    starting: &[(usize, Arc<SourceSettings>)],
    joined: &mut Joined,
    found: &Found,
) -> Result<Vec<Numbering>, StartError> {
    let Joined { taken, locks, .. } = joined;
    let mut numberings = Vec::new();
    for (index, source) in starting {
        let numbering = match taken.get(index) {
            Some(taken) => source.numbering_with(&taken.worker_ids),
            None => source.numbering(),
        };
        let numbering = numbering
            .map_err(|error| StartError::WrongSetting(format!("source {}: {error}", source.name)))?;
        if source.kind.takes_ranges() {
            mark_shared(lock_dir, &numbering)?;
            locks.insert(*index, WorkerLocks::none());
        }
        numberings.push(numbering);
    }
    let all = starting.iter().map(|(index, _)| *index).zip(&numberings);
    let (indices, unlocked): (Vec<usize>, Vec<&Numbering>) =
        all.filter(|(index, _)| !locks.contains_key(index)).unzip();
    locks.extend(indices.into_iter().zip(lock_all(lock_dir, &unlocked)?));
    locks.values_mut().for_each(|locks| locks.mark_for(found.owner()));
    Ok(numberings)
}
