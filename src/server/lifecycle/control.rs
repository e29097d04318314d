//! The control thread makes every live configuration after the first. It takes what sources need to
//! start (worker IDs, locks, first ceilings, first ranges), and it reloads.
//!
//! A daemon listens from its first moment, with sources whose grants are under way. A start, a wait
//! for a worker ID and a reload differ only in what is still missing:
//!
//! ```text
//!  fleet thread: worker IDs, ranges ─▶ peers ─▶ storage thread: first ceilings, durable
//!    ─▶ fleet thread: are they still ours? ─▶ live configuration ─▶ keeper thread: grants
//! ```
//!
//! 1. The main thread opens the listeners, and starts the threads with configuration 0.
//! 2. The control thread locks and reads the state, and keeps its lock until the process ends.
//! 3. Sources of the fleet take worker IDs and first ranges, on the fleet thread, which pauses
//!    before a new worker ID and polls meanwhile. A source that gets none *waits*.
//! 4. Worker IDs are locked once, and peers are asked. Peers say what they were granted, so two
//!    daemons that start together both serve.
//! 5. The storage thread makes the first ceilings durable. Nothing is handed out before that.
//! 6. The fleet thread compares the keys once more. If it cannot, the sources end, and wait.
//! 7. The next live configuration has the sources. Only then the keeper grants them, unless the
//!    machine was restored or its clocks jumped since step 2: then only ceilings written from now
//!    on count.
//!
//! A reload takes the same steps. New sources of this machine take them before the new
//! configuration is live, so the reload is refused if one fails. Removed sources end once no shard
//! has them: the keeper seals them, then the control thread confirms at the coordinator, and lowers
//! marks, state and keys, in this order; the locks are free before the keys.
//!
//! Sources start in two groups: those that need no coordinator, and the others. If a source of the
//! fleet gets no worker ID, the control thread tries again and again. A daemon that is stopped at
//! any moment gives back what it took and did not grant.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::os_clock;

use super::peers::refuse_shared;
use super::start::{Reread, order_of};
use crate::config::{Secrets, Settings, SourceSettings};
use crate::server::ceilings::fleet_thread::{self, Fleet};
use crate::server::ceilings::join_fleet::{self, Joined, Joining};
use crate::server::ceilings::keeper_thread::{Change, Granted};
use crate::server::ceilings::start_sources::{Begun, Found, FromFleet, Locked, Starting, claimant};
use crate::server::ceilings::storage_thread::{self, Storage, Trim};
use crate::server::common::Common;
use crate::server::restored::{self, KernelLog};
use crate::server::shared::live_config::{LiveConfig, Stage, Supply};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use crate::service::{Logs, Notifier};
use snowbank_core::clock::Reading;
use snowbank_fleet::{Clocks, Taken, noticed_within};
use snowbank_id::layout::WorkerSet;
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{Claimant, DiskStore};
use snowbank_state::{Cause, StateError, WorkerLocks, lock_workers};

/// The pause before the second try to take worker IDs. It is short, because another daemon may be
/// stopping and about to give back its worker ID. Each later pause is twice as long as the pause
/// before it, up to [`PAUSE_MAX`], because each try asks the coordinator several questions.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest time that a stop waits until a running try has ended and has given back its worker
/// IDs. Most of this time is the pause that a try makes after it has taken a worker ID.
pub(crate) const TRY_TIMEOUT: Duration =
    noticed_within(Duration::ZERO).saturating_add(Duration::from_secs(1));

const AFTER_A_CRASH: &str = "the previous run did not end its record: it was killed or crashed, it lost its \
      worker ID, the power failed, or the disk hung";

/// The state of the control thread.
pub(super) struct Control {
    pub(super) common: Arc<Common>,
    pub(super) live_config: watch::Sender<Arc<LiveConfig>>,
    /// The settings and the secrets that are live.
    pub(super) settings: Arc<Settings>,
    pub(super) secrets: Secrets,
    /// The sources of the next live configuration, by index.
    pub(super) supplies: Vec<Supply>,
    /// True once a source has had a grant. From then on, the daemon ends only by a stop or a loss.
    pub(super) has_served: bool,
    /// The state directory. `None`: the daemon keeps no state.
    pub(super) directory: Option<PathBuf>,
    pub(super) adopt: bool,
    /// The keeper thread gets its changes here.
    pub(super) keeper: Sender<Change>,
    /// Receives a version from each shard that has adopted the configuration with this version.
    pub(super) adopted: Receiver<u64>,
    /// True once the daemon stops.
    pub(super) is_stopping: Arc<AtomicBool>,
    /// The lines about settings that the log shows once the daemon has started or waits. A start
    /// that is refused at once logs only its reason.
    pub(super) choices: Vec<Note>,
    /// The warnings that were logged: a reload does not repeat them.
    pub(super) warned: Vec<String>,
    pub(super) reread: Reread,
    pub(super) notifier: Notifier,
    pub(super) logs: Logs,
    pub(super) opened: Option<Opened>,
    /// How the daemon notices a restore of the machine: a line that is logged with the first grant.
    pub(super) notices_restores: Option<Note>,
}

/// The state and the coordinator, once they are open.
pub(super) struct Opened {
    found: Arc<Found>,
    /// Jobs for the storage thread. `None`: the daemon keeps no state.
    storage: Option<SyncSender<storage_thread::Job>>,
    /// Jobs for the fleet thread. `None`: the daemon belongs to no fleet.
    fleet: Option<SyncSender<fleet_thread::Job>>,
}

/// The handle of the control thread.
pub(super) struct ControlThread {
    /// Each message asks for a reload.
    pub(super) reloads: SyncSender<()>,
    is_stopping: Arc<AtomicBool>,
    /// The channel closes when the thread has ended.
    over: Receiver<()>,
}

impl ControlThread {
    pub(super) fn spawn(control: Control) -> Result<ControlThread, StartError> {
        let is_stopping = Arc::clone(&control.is_stopping);
        let (reloads, requests) = mpsc::sync_channel(1);
        let (is_over, over) = mpsc::sync_channel(0);
        let spawned = thread::Builder::new().name(String::from("control")).spawn(move || {
            control.run(&requests);
            drop(is_over);
        });
        spawned.map_err(|error| StartError::no_thread(&error))?;
        Ok(ControlThread { reloads, is_stopping, over })
    }

    /// Requests a reload. If a requested reload has not begun, it serves this request too, because
    /// it has read nothing yet.
    pub(super) fn reload(&self) {
        if let Err(TrySendError::Disconnected(())) = self.reloads.try_send(()) {
            tracing::error!("cannot reload: the control thread has ended");
        }
    }

    /// Tells the thread to begin nothing more.
    pub(super) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Waits until the thread has ended and has given back what it took, for [`TRY_TIMEOUT`] at
    /// most.
    pub(super) fn stop(self) {
        self.begin_stop();
        drop(self.reloads);
        let _ = self.over.recv_timeout(TRY_TIMEOUT);
    }
}

impl Control {
    /// Starts the sources, and reloads at each request. Ends when the handle is dropped, or when
    /// the first start is refused.
    fn run(mut self, requests: &Receiver<()>) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Err(error) = self.start_sources() {
                // Setting fails only after an earlier refusal.
                let _ = self.common.refused.set(error);
                return;
            }
            let request = if self.awaited().next().is_some() {
                requests.recv_timeout(pause)
            } else {
                requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match request {
                Ok(()) => {
                    self.reload();
                    pause = FIRST_PAUSE;
                }
                Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(PAUSE_MAX),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Returns the indices of the sources without a grant.
    fn awaited(&self) -> impl Iterator<Item = usize> {
        let all = self.supplies.iter().enumerate();
        all.filter(|(_, supply)| supply.stage.is_awaited()).map(|(index, _)| index)
    }

    /// Returns the sources that have a grant, with their indices.
    fn granted(&self) -> impl Iterator<Item = (usize, &Supply)> {
        self.supplies.iter().enumerate().filter(|(_, supply)| supply.stage == Stage::Granted)
    }

    /// Returns the settings of a source.
    fn settings_of(&self, index: usize) -> &Arc<SourceSettings> {
        &self.supplies[index].settings
    }

    /// Tries to start all sources that have no grant. A source that gets no worker ID, or whose
    /// start fails while another source serves, waits for the next try.
    ///
    /// # Errors
    /// The daemon's start is refused: no source has a grant, and waiting cannot help.
    fn start_sources(&mut self) -> Result<(), StartError> {
        let (fleets, own): (Vec<usize>, Vec<usize>) =
            self.awaited().partition(|&index| self.is_of_fleet(self.settings_of(index)));
        for group in [own, fleets] {
            if group.is_empty() || self.is_stopping() {
                continue;
            }
            if let Err(error) = self.start_group(&group) {
                if !self.has_served {
                    return Err(error);
                }
                self.wait_alike(&group, &error)?;
            }
        }
        Ok(())
    }

    pub(super) fn is_of_fleet(&self, source: &SourceSettings) -> bool {
        self.secrets.fleet.is_some() && !source.kind.counts_by_itself()
    }

    /// Tries to start these sources together. Those that get no worker ID wait.
    ///
    /// # Errors
    /// Waiting cannot help. What was taken is given back.
    fn start_group(&mut self, group: &[usize]) -> Result<(), StartError> {
        match self.prepare(group)? {
            Some((granted, notes)) => self.grant(granted, notes),
            None => Ok(()),
        }
    }

    /// Takes all that these sources need for their grants. Returns `None` if all of them wait, or if
    /// the daemon stops.
    ///
    /// # Errors
    /// As [`start_group`](Control::start_group).
    pub(super) fn prepare(&mut self, group: &[usize]) -> Result<Option<(Granted, Vec<Note>)>, StartError> {
        let restores = self.common.restores.load(Ordering::Acquire);
        let began = os_clock::read();
        let found = self.open(group, began)?;
        let mut joined = self.join(group, &found, began, restores)?;
        let refused = std::mem::take(&mut joined.refused);
        // While a source serves, the others wait, each for its own reason.
        let lasting = refused.iter().find(|(_, error)| !self.has_served && !error.lacks_only_worker_id());
        if let Some((_, lasting)) = lasting {
            self.give_back(group, &mut joined);
            return Err(lasting.clone());
        }
        let mut starting = group.to_vec();
        starting.retain(|index| !refused.iter().any(|(of, _)| of == index));
        if !refused.is_empty() {
            self.wait(&refused)?;
        }
        if starting.is_empty() {
            return Ok(None);
        }
        match self.begin(&starting, &found, &mut joined, began) {
            Ok(Some(begun)) if !self.is_stopping() => {
                let granted = Granted { sources: begun.sources, began, restores };
                Ok(Some((granted, begun.notes.into_iter().chain(joined.notes).collect())))
            }
            Ok(begun) => {
                tracing::info!("stopping: the daemon returns the worker IDs that it has just taken");
                self.end(begun.into_iter().flat_map(|begun| begun.sources).collect());
                self.give_back(&starting, &mut joined);
                Ok(None)
            }
            Err(NotBegun::Refused(error)) => {
                self.give_back(&starting, &mut joined);
                Err(error)
            }
            // The worker IDs are not given back: the next try asks the coordinator who holds them.
            Err(NotBegun::Unconfirmed(error)) => {
                self.give_up(&starting, None);
                if !error.lacks_only_worker_id() {
                    return Err(error);
                }
                self.wait_alike(&starting, &error)?;
                Ok(None)
            }
        }
    }

    /// Locks and reads the state directory, and opens the coordinator's client, at the first call.
    /// Returns what the state has now. Before a counter of this daemon starts, looks back in the
    /// kernel's log: if the machine was restored since the counter was last started or set, the
    /// counter is unknown.
    fn open(&mut self, group: &[usize], began: Reading) -> Result<Arc<Found>, StartError> {
        if let Some(opened) = &mut self.opened {
            if let Some(storage) = &opened.storage {
                let records = ask(storage, storage_thread::Job::Records).ok_or_else(storage_has_ended)?;
                let mut counters: Vec<&str> = Vec::new();
                let starting = group.iter().map(|&index| &self.supplies[index]);
                let counting = starting.filter(|supply| supply.settings.kind.counts_by_itself());
                counters.extend(counting.map(Supply::name));
                opened.found = Arc::new(opened.found.again(records, &counters));
            }
            return Ok(Arc::clone(&opened.found));
        }
        // The kernel's log is opened before the state is read, so that the daemon notices every
        // restore that comes after the state was read.
        let access = self.secrets.fleet.clone();
        let counts = self.settings.sources.iter().any(|source| source.kind.counts_by_itself());
        let kernel_log = KernelLog::open(access.is_some() || counts);
        let here = kernel_log.host();
        let (mut found, store) = Found::open(self.directory.as_deref(), self.adopt, here, Some(&kernel_log))?;
        self.choices.append(&mut found.notes);
        let found = Arc::new(found);
        let in_fleet =
            access.map(|access| join_fleet::open(&self.settings, access, &found, &kernel_log)).transpose()?;
        let fleet = in_fleet.map(fleet_thread::start).transpose();
        let fleet: Option<Fleet> = fleet.map_err(|error| StartError::no_thread(&error))?;
        let storage = store.map(|store: DiskStore| storage_thread::start(store)).transpose();
        let storage: Option<Storage> = storage.map_err(|error| StartError::no_thread(&error))?;
        if let Some(is_unclean) = found.follows_a_crash() {
            let _ = self.common.metrics.previous_run_unclean.set(is_unclean);
        }
        self.opened = Some(Opened {
            found: Arc::clone(&found),
            storage: storage.as_ref().map(Storage::jobs),
            fleet: fleet.as_ref().map(Fleet::jobs),
        });
        self.notices_restores = Some(restored::watch(kernel_log, Arc::clone(&self.common)));
        self.tell_keeper(Change::Opened(storage, fleet));
        self.remember(&found, &[], began);
        Ok(found)
    }

    /// Lets the clock begin with what the state remembers, unless a source has had a grant.
    /// `numberings` are those of the sources that start now. If other sources have none yet, all
    /// that the state remembers counts.
    fn remember(&self, found: &Found, numberings: &[&Numbering], began: Reading) {
        if self.has_served {
            return;
        }
        let is_all = numberings.len() == self.settings.sources.len();
        let stored = found.numberings().filter(|_| !is_all);
        let remembered = found.remembered(numberings.iter().copied().chain(stored), began);
        let (done, is_done) = mpsc::channel();
        self.tell_keeper(Change::Clock(remembered, began, done));
        let _ = is_done.recv();
    }

    /// Takes the worker IDs of the sources that belong to the fleet, and the first ranges of its
    /// counters.
    fn join(
        &self,
        group: &[usize],
        found: &Arc<Found>,
        began: Reading,
        restores: u64,
    ) -> Result<Joined, StartError> {
        let Some(fleet) = self.fleet().filter(|_| self.is_of_fleet(self.settings_of(group[0]))) else {
            return Ok(Joined::default());
        };
        let joining = Joining {
            settings: Arc::clone(&self.settings),
            sources: group.iter().map(|&index| (index, Arc::clone(self.settings_of(index)))).collect(),
            indices: self.supplies.len(),
            in_use: self.worker_ids_in_use(),
            found: Arc::clone(found),
            reading: began,
            restores,
        };
        ask(fleet, |reply| fleet_thread::Job::Join(Box::new(joining), reply)).ok_or_else(fleet_has_ended)
    }

    /// Returns the worker IDs of the sources that have a grant.
    fn worker_ids_in_use(&self) -> Vec<WorkerSet> {
        self.granted().filter_map(|(_, supply)| Some(supply.numbering()?.snowflake()?.1.clone())).collect()
    }

    /// Makes the first ceilings of these sources durable, and checks that worker IDs of the fleet
    /// are still this daemon's. Returns `None` if the daemon stops meanwhile.
    fn begin(
        &mut self,
        starting: &[usize],
        found: &Found,
        joined: &mut Joined,
        began: Reading,
    ) -> Result<Option<Begun>, NotBegun> {
        let lock_dir = self.settings.lock_dir.clone();
        let settings: Vec<_> =
            starting.iter().map(|&index| (index, Arc::clone(self.settings_of(index)))).collect();
        let sources = number_and_lock(&lock_dir, &settings, joined)?;
        if self.is_stopping() {
            return Ok(None);
        }
        let numberings: Vec<&Numbering> = sources.iter().map(|source| &source.numbering).collect();
        let next = sources.iter().map(|source| (source.index, &source.numbering)).collect::<Vec<_>>();
        let silent_peers = self.refuse_shared(&next)?;
        if self.is_stopping() {
            return Ok(None);
        }
        self.remember(found, &numberings, began);
        // The clocks are read again, because an earlier process may have handed out IDs of ticks
        // after `began`, until it released the locks.
        let now = self.common.wall.believe(os_clock::read());
        let running: Vec<Claimant<'_>> = self.running(found).collect();
        let horizon = self.settings.fleet.horizon;
        let wall = &self.common.wall;
        let mut begun = found.begin(sources, &running, &joined.answers, horizon, wall, now)?;
        let is_unclean = !self.has_served && found.follows_a_crash() == Some(true);
        begun.notes.extend(silent_peers);
        begun.notes.extend(is_unclean.then(|| Note::Info(AFTER_A_CRASH.to_owned())));
        let beginning = Box::new(std::mem::take(&mut begun.beginning));
        if let Some(storage) = self.storage() {
            let carried_us = wall.carried_us();
            let stored = ask(storage, |reply| storage_thread::Job::Begin(beginning, carried_us, reply));
            stored.ok_or_else(storage_has_ended)?.map_err(|error| {
                let remedy = "make the state directory writable, or make room if it is full";
                let reason = format!("cannot make the first ceilings durable: {error}; {remedy}");
                StartError::from_state(error.cause(), reason)
            })?;
        }
        if let Err(error) = self.check_taken(&joined.answers) {
            self.end(begun.sources);
            return Err(NotBegun::Unconfirmed(error));
        }
        Ok(Some(begun))
    }

    /// Checks that the worker IDs that were taken are still this daemon's.
    fn check_taken(&self, answers: &FromFleet) -> Result<(), StartError> {
        let is_of_fleet = answers.has_taken() || answers.has_ranges();
        let Some(fleet) = self.fleet().filter(|_| is_of_fleet) else { return Ok(()) };
        let clocks = self.clocks(os_clock::read());
        let checked = ask(fleet, |reply| fleet_thread::Job::CheckTaken(clocks, reply));
        checked.ok_or_else(fleet_has_ended)?.map_err(StartError::from)
    }

    pub(super) fn clocks(&self, reading: Reading) -> Clocks {
        Clocks::at(self.common.wall.believe(reading).wall, reading)
    }

    /// Returns the sources that have a grant, for the plan of those that start.
    fn running<'a>(&'a self, found: &'a Found) -> impl Iterator<Item = Claimant<'a>> {
        self.granted().map(|(_, supply)| Claimant {
            in_fleet: self.is_of_fleet(&supply.settings),
            state_dir: found.path(),
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

    /// Grants sources: makes them live, and hands them to the keeper.
    pub(super) fn grant(&mut self, granted: Granted, notes: Vec<Note>) -> Result<(), StartError> {
        self.log_choices();
        let waited =
            granted.sources.iter().any(|it| matches!(self.supplies[it.index].stage, Stage::Waits { .. }));
        for Starting { index, managed, .. } in &granted.sources {
            let settings = Arc::clone(self.settings_of(*index));
            let source = Arc::clone(managed.source());
            let shards = self.settings.shards.get();
            self.supplies[*index] = Supply::new(settings, source, Stage::Granted, shards);
        }
        self.has_served = true;
        // The sources are live before they have their grants: a restore of the machine that is
        // reported from now on takes the grants of live sources away.
        let version = self.publish()?;
        let (done, is_done) = mpsc::channel();
        self.tell_keeper(Change::Granted(granted, done));
        // The daemon says that it serves once each shard has the source, and the source its grant.
        // This fails only if the daemon stops.
        let _ = is_done.recv();
        let _ = self.wait_for_shards(version);
        if waited {
            tracing::info!("has worker IDs now, and starts");
        }
        self.common.decided.send_replace(true);
        self.notices_restores.take().iter().chain(&notes).for_each(Note::log);
        Ok(())
    }

    /// Lets sources wait for the next try, each for its reason.
    fn wait(&mut self, refused: &[(usize, StartError)]) -> Result<(), StartError> {
        self.log_choices();
        let mut is_new = false;
        let mut has_changed = false;
        for (index, error) in refused {
            let stage = &mut self.supplies[*index].stage;
            let waits = Stage::Waits { reason: error.to_string().into(), brief: brief(error) };
            let before = std::mem::replace(stage, waits);
            is_new |= before == Stage::UnderWay;
            has_changed |= before != *stage;
        }
        if has_changed {
            self.publish()?;
        }
        if let Some((_, reason)) = refused.first().filter(|_| is_new) {
            let which = if self.has_served { "a source waits" } else { "waits" };
            tracing::warn!("{which} for a worker ID, and hands out nothing: {reason}");
        }
        self.common.decided.send_replace(true);
        Ok(())
    }

    /// Lets sources wait for the next try, all for one reason.
    fn wait_alike(&mut self, sources: &[usize], error: &StartError) -> Result<(), StartError> {
        self.wait(&sources.iter().map(|&index| (index, error.clone())).collect::<Vec<_>>())
    }

    /// Returns the sender of jobs for the storage thread.
    pub(super) fn storage(&self) -> Option<&SyncSender<storage_thread::Job>> {
        self.opened.as_ref()?.storage.as_ref()
    }

    /// Returns the sender of jobs for the fleet thread.
    pub(super) fn fleet(&self) -> Option<&SyncSender<fleet_thread::Job>> {
        self.opened.as_ref()?.fleet.as_ref()
    }

    /// Ends sources whose first ceilings are durable and were not granted. If their records cannot
    /// be trimmed, the next start begins above them.
    pub(super) fn end(&self, sources: Vec<Starting>) {
        let ends = sources.iter().filter_map(|source| source.managed.seal(source.index)).collect();
        let Some(storage) = self.storage() else { return };
        let wall_minus_boot_us = self.common.wall.carried_us();
        let trim = Trim { sources: ends, wall_minus_boot_us, restored: Vec::new() };
        let _ = ask(storage, |reply| storage_thread::Job::End(trim, reply));
    }

    /// Gives back what these sources, which do not start, took of the fleet. Their locks are freed
    /// first, because the marks are made under locks taken for that.
    fn give_back(&self, sources: &[usize], joined: &mut Joined) {
        joined.locks.clear();
        self.give_up(sources, Some(&joined.answers));
    }

    /// Lets the fleet thread forget the worker IDs that it took for these sources, which do not
    /// start. `Some` gives them back first. Their locks are free by now.
    fn give_up(&self, sources: &[usize], taken: Option<&FromFleet>) {
        let Some(fleet) = self.fleet() else { return };
        let taken = taken.filter(|answers| answers.has_taken()).map(|answers| answers.taken_of(sources));
        let taken = taken.filter(|taken| self.mark_given_back(taken));
        let taken = taken.map(|taken| (taken, self.clocks(os_clock::read())));
        let sources = sources.to_vec();
        let _ = ask(fleet, |reply| fleet_thread::Job::GiveUp(sources, taken, reply));
    }

    /// Marks these worker IDs as given back, as a stop does: the mark comes before the release.
    /// Returns false if that fails. Then they stay taken, as after a kill.
    fn mark_given_back(&self, taken: &[Option<Taken>]) -> bool {
        let Some(opened) = &self.opened else { return false };
        let mark = |index: usize, taken: &Taken| {
            let numbering = self.settings_of(index).numbering_with(&taken.worker_ids);
            let numbering = numbering.map_err(|error| error.to_string())?;
            let locks = match lock_workers(&self.settings.lock_dir, &numbering) {
                // A daemon that has locked them since marks them itself.
                Err(error) if error.cause() == Cause::WorkerIdHeld => return Ok(()),
                locks => locks.map_err(|error| error.to_string())?,
            };
            locks.mark_given_back(opened.found.owner()).map_err(|error| error.to_string())
        };
        let taken = taken.iter().enumerate();
        // What continues a term of before is not given back.
        let mut taken = taken
            .filter_map(|(index, taken)| Some((index, taken.as_ref().filter(|taken| !taken.is_same_term)?)));
        let marked: Result<(), String> = taken.try_for_each(|(index, taken)| mark(index, taken));
        marked.inspect_err(|error| tracing::warn!("the worker IDs are not given back: {error}")).is_ok()
    }

    /// Makes the settings, the secrets and the sources live. Returns the configuration's version.
    pub(super) fn publish(&self) -> Result<u64, StartError> {
        let before = Arc::clone(&self.live_config.borrow());
        let instance = self.common.metrics.instance;
        let supplies = self.supplies.clone();
        let next = LiveConfig::after(&before, &self.settings, &self.secrets, supplies, instance)?;
        next.facts.access.apply_rates(os_clock::boot());
        let version = next.version;
        self.live_config.send_replace(Arc::new(next));
        Ok(version)
    }

    pub(super) fn tell_keeper(&self, change: Change) {
        // Sending fails if the keeper thread has ended, because the daemon stops.
        let _ = self.keeper.send(change);
        self.common.wake_ups.wake_keeper();
    }

    /// Logs the lines about settings, once.
    pub(super) fn log_choices(&mut self) {
        std::mem::take(&mut self.choices).iter().for_each(Note::log);
    }
}

/// The reason why sources do not start.
enum NotBegun {
    Refused(StartError),
    /// The coordinator did not confirm that their worker IDs are still this daemon's.
    Unconfirmed(StartError),
}

impl<E: Into<StartError>> From<E> for NotBegun {
    fn from(error: E) -> Self {
        NotBegun::Refused(error.into())
    }
}

/// Sends a job that has a reply, and waits for the reply. Returns `None` if the thread has ended,
/// or has lost what its jobs work on.
pub(super) fn ask<J, R>(jobs: &SyncSender<J>, job: impl FnOnce(Sender<R>) -> J) -> Option<R> {
    let (reply, replied) = mpsc::channel();
    jobs.send(job(reply)).ok()?;
    replied.recv().ok()
}

fn storage_has_ended() -> StartError {
    StartError::HeldInFleet(String::from("the state was taken over by another process"))
}

fn fleet_has_ended() -> StartError {
    StartError::HeldInFleet(String::from("the fleet thread has ended"))
}

/// Returns the reason why a source waits, in a few words for clients.
fn brief(error: &StartError) -> &'static str {
    match error {
        StartError::HeldInFleet(_) => "none is free",
        StartError::CoordinatorSilent(_) => "the fleet's coordinator does not answer",
        _ => "its start was refused",
    }
}

/// Marks a shared counter: no state of this machine knows it any more, so a start with `kind =
/// "ticket"` is refused. The lock is free again afterwards, because other daemons of this machine
/// may share the counter.
fn mark_shared(lock_dir: &Path, numbering: &Numbering) -> Result<(), StateError> {
    match lock_workers(lock_dir, numbering) {
        Ok(mut locks) => locks.mark_unknown(),
        Err(error) if error.cause() == Cause::WorkerIdHeld => Err(error),
        // Without its lock, no daemon starts with this counter as its own.
        Err(_) => Ok(()),
    }
}

/// Makes the numbering of each source that starts, and locks the worker IDs that are not locked yet.
fn number_and_lock<'a>(
    lock_dir: &Path,
    starting: &'a [(usize, Arc<SourceSettings>)],
    joined: &mut Joined,
) -> Result<Vec<Locked<'a>>, StartError> {
    let mut locked = Vec::new();
    for (index, source) in starting {
        let index = *index;
        let numbering = match joined.answers.taken(index) {
            Some(taken) => source.numbering_with(&taken.worker_ids),
            None => source.numbering(),
        };
        let numbering = numbering
            .map_err(|error| StartError::WrongSetting(format!("source {}: {error}", source.name)))?;
        let of_fleet = joined.locks.iter().position(|(of, _)| *of == index);
        let locks = match of_fleet {
            Some(at) => joined.locks.swap_remove(at).1,
            None if source.kind.takes_ranges() => {
                mark_shared(lock_dir, &numbering)?;
                WorkerLocks::none()
            }
            None => lock_workers(lock_dir, &numbering)?,
        };
        locked.push(Locked { index, settings: source, numbering, locks });
    }
    Ok(locked)
}
