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
//! 3. Sources of the fleet take worker IDs and first ranges, on the fleet thread. A source that gets
//!    none *waits*. Those with a worker ID that others may have had start last: before it they pause,
//!    step by step, so that the fleet thread polls and raises meanwhile.
//! 4. Worker IDs are locked once, and peers are asked. Peers say what they were granted, so two
//!    daemons that start together both serve.
//! 5. The storage thread makes the first ceilings durable. Nothing is handed out before that.
//! 6. The fleet thread compares the keys once more. If it cannot, the sources end, and wait.
//! 7. The next live configuration has the sources. Only then the keeper grants them, unless the
//!    machine was restored or its clocks jumped since step 2. Then only ceilings written from now
//!    on count.
//!
//! A reload takes the same steps. New sources of this machine take them before the new
//! configuration is live, so the reload is refused if one fails. Removed sources end once no shard
//! has them. The keeper seals them. Then the control thread confirms at the coordinator, and lowers
//! marks, state and keys, in this order. The locks are free before the keys.
//!
//! Sources start in two groups: those that need no coordinator, and the others. If a source of the
//! fleet gets no worker ID, the control thread tries again and again. It reloads in a pause, too; a
//! reload that changes a source that waits ends the pause, and the next try pauses again. A daemon that
//! is stopped at any moment gives back what it took and did not grant.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;
use tokio::sync::watch;

use super::reread::Reread;
use crate::config::{Secrets, Settings, SourceSettings};
use crate::os_clock;
use crate::server::ceilings::ending::Writers;
use crate::server::ceilings::fleet_thread;
use crate::server::ceilings::job_thread::Asks;
use crate::server::ceilings::keeper_thread::{Change, Granted};
use crate::server::ceilings::start_sources::{Found, Starting};
use crate::server::ceilings::storage_thread;
use crate::server::common::Common;
use crate::server::net::registered::Registered;
use crate::server::reading::handle::GIVE_BACK_TIMEOUT;
use crate::server::restored::KernelLog;
use crate::server::shared::live_config::{LiveConfig, Stage, Supply};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use crate::service::{Logs, Notifier};
use snowbank_core::clock::Remembered;

/// The pause before the second try to take worker IDs. It is short, because another daemon may be
/// stopping and about to give back its worker ID. Each later pause is twice as long as the pause
/// before it, up to [`PAUSE_MAX`], because each try asks the coordinator several questions.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest wait for the disk while a source serves. A source whose start waits for longer tries
/// again, once the disk has done what it was asked for.
pub(super) const DISK_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Each message asks for a reload. It may have the connection of one who waits for the result.
    pub(super) requests: Receiver<Option<Socket>>,
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
    /// What the clock began with.
    pub(super) remembered: Option<Remembered>,
    /// How the daemon notices a restore of the machine: a line that is logged with the first grant.
    pub(super) notices_restores: Option<Note>,
}

/// The state and the coordinator, once they are open.
pub(super) struct Opened {
    pub(super) found: Arc<Found>,
    /// Jobs for the storage thread. `None`: the daemon keeps no state.
    pub(super) storage: Option<Asks<storage_thread::Job>>,
    /// Jobs for the fleet thread. `None`: the daemon belongs to no fleet.
    pub(super) fleet: Option<Asks<fleet_thread::Job>>,
    pub(super) kernel_log: Arc<KernelLog>,
}

/// The most requests for a reload that wait. People and units ask. While a disk hangs, those who
/// gave up keep their places.
pub(super) const REQUESTS_MAX: usize = 16;

/// The handle of the control thread.
pub(super) struct ControlThread {
    reloads: SyncSender<Option<Socket>>,
    is_stopping: Arc<AtomicBool>,
    /// The channel closes when the thread has ended.
    over: Receiver<()>,
}

impl ControlThread {
    pub(super) fn spawn(
        control: Control,
        reloads: SyncSender<Option<Socket>>,
    ) -> Result<ControlThread, StartError> {
        let is_stopping = Arc::clone(&control.is_stopping);
        let (is_over, over) = mpsc::sync_channel(0);
        let spawned = thread::Builder::new().name(String::from("control")).spawn(move || {
            control.run();
            drop(is_over);
        });
        spawned.map_err(|error| StartError::no_thread(&error))?;
        Ok(ControlThread { reloads, is_stopping, over })
    }

    /// Requests a reload. If a requested reload has not begun, it serves this request too, because
    /// it has read nothing yet.
    pub(super) fn reload(&self) {
        // If the queue is full, a reload is requested.
        if let Err(TrySendError::Disconnected(_)) = self.reloads.try_send(None) {
            tracing::error!("cannot reload: the control thread has ended");
        }
    }

    /// Requests a reload, for each connection at the socket for it.
    pub(super) async fn reload_for(&self, socket: Option<Registered>) {
        let Some(mut socket) = socket else { return };
        loop {
            // Sending fails if too many wait, or if the thread has ended. The connection is then closed.
            let _ = self.reloads.try_send(Some(socket.accept().await));
        }
    }

    /// Tells the thread to begin nothing more.
    pub(super) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Waits until the thread has ended and has given back what it took, until [`GIVE_BACK_TIMEOUT`]
    /// after `drained_by` at most.
    pub(super) fn stop(self, drained_by: Instant) {
        self.begin_stop();
        drop(self.reloads);
        let left = (drained_by + GIVE_BACK_TIMEOUT).saturating_duration_since(Instant::now());
        if let Err(RecvTimeoutError::Timeout) = self.over.recv_timeout(left) {
            tracing::warn!(
                "the control thread has not ended in time: what it took for a start is as after a kill"
            );
        }
    }
}

impl Control {
    /// Starts the sources, and reloads at each request. Ends when the handle is dropped, or when
    /// the first start is refused.
    fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.start_sources() {
                Ok(true) => pause = Duration::ZERO,
                Ok(false) => {}
                Err(error) => {
                    // Setting fails only after an earlier refusal.
                    let _ = self.common.refused.set(error);
                    return;
                }
            }
            let request = if self.awaited().next().is_some() {
                self.requests.recv_timeout(pause)
            } else {
                self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match request {
                Ok(first) => {
                    self.reload(first);
                    pause = FIRST_PAUSE;
                }
                Err(RecvTimeoutError::Timeout) => pause = (pause * 2).clamp(FIRST_PAUSE, PAUSE_MAX),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Returns the indices of the sources without a grant.
    pub(super) fn awaited(&self) -> impl Iterator<Item = usize> {
        let all = self.supplies.iter().enumerate();
        all.filter(|(_, supply)| supply.stage.is_awaited()).map(|(index, _)| index)
    }

    /// Returns the sources that have a grant, with their indices.
    pub(super) fn granted(&self) -> impl Iterator<Item = (usize, &Supply)> {
        self.supplies.iter().enumerate().filter(|(_, supply)| supply.stage == Stage::Granted)
    }

    /// Returns the settings of a source.
    pub(super) fn settings_of(&self, index: usize) -> &Arc<SourceSettings> {
        &self.supplies[index].settings
    }

    /// Tries to start all sources that have no grant. A source that gets no worker ID, or whose
    /// start fails while another source serves, waits for the next try. Returns true if that is due at
    /// once.
    ///
    /// # Errors
    /// The daemon's start is refused: no source has a grant, and waiting cannot help.
    fn start_sources(&mut self) -> Result<bool, StartError> {
        let (fleets, own): (Vec<usize>, Vec<usize>) =
            self.awaited().partition(|&index| self.is_of_fleet(self.settings_of(index)));
        let mut is_due_again = false;
        for group in [own, fleets] {
            if group.is_empty() || self.is_stopping() {
                continue;
            }
            match self.start_group(&group) {
                Ok(is_due) => is_due_again = is_due,
                Err(error) if !self.has_served => return Err(error),
                Err(error) => {
                    // Others of the group may have their grants by now.
                    let waiting: Vec<usize> = self.awaited().filter(|index| group.contains(index)).collect();
                    self.wait_alike(&waiting, &error)?;
                }
            }
        }
        Ok(is_due_again)
    }

    pub(super) fn is_of_fleet(&self, source: &SourceSettings) -> bool {
        self.secrets.fleet.is_some() && !source.kind.counts_by_itself()
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
        // The sources are live before they have their grants. A restore of the machine that is
        // reported from now on takes the grants of live sources away.
        let version = self.publish()?;
        let (done, is_done) = mpsc::channel();
        self.tell_keeper(Change::Granted(granted, done));
        // The daemon says that it serves once each shard has the source, and the source its grant.
        // This fails only if the daemon stops.
        let _ = is_done.recv();
        let _ = self.wait_for_shards(version);
        if waited {
            tracing::info!("waits no longer, and starts");
        }
        self.common.decided.send_replace(true);
        self.notices_restores.take().iter().chain(&notes).for_each(Note::log);
        Ok(())
    }

    /// Lets sources wait for the next try, each for its reason.
    pub(super) fn wait(&mut self, refused: &[(usize, StartError)]) -> Result<(), StartError> {
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
            tracing::warn!("{which}, and hands out nothing: {reason}");
        }
        self.common.decided.send_replace(true);
        Ok(())
    }

    /// Lets sources wait for the next try, all for one reason.
    pub(super) fn wait_alike(&mut self, sources: &[usize], error: &StartError) -> Result<(), StartError> {
        self.wait(&sources.iter().map(|&index| (index, error.clone())).collect::<Vec<_>>())
    }

    /// Returns the handle for jobs of the storage thread.
    pub(super) fn storage(&self) -> Option<&Asks<storage_thread::Job>> {
        self.opened.as_ref()?.storage.as_ref()
    }

    /// Returns the handle for jobs of the fleet thread. Each of its jobs ends in a bounded time.
    pub(super) fn fleet(&self) -> Option<&Asks<fleet_thread::Job>> {
        self.opened.as_ref()?.fleet.as_ref()
    }

    /// Returns how long to wait for the disk: while a source serves, a disk that hangs must not keep
    /// reloads waiting.
    pub(super) fn disk_limit(&self) -> Duration {
        if self.has_served { DISK_TIMEOUT } else { Duration::MAX }
    }

    /// Returns the threads that an end waits for.
    pub(super) fn writers(&self) -> Writers<'_> {
        let (storage, fleet) = (self.storage(), self.fleet());
        let (disk_limit, common) = (self.disk_limit(), &*self.common);
        Writers { storage, disk_limit, fleet, answer_limit: Duration::MAX, common }
    }

    /// Makes the settings, the secrets and the sources live. Returns the configuration's version.
    pub(super) fn publish(&self) -> Result<u64, StartError> {
        let before = Arc::clone(&self.live_config.borrow());
        let instance = self.common.metrics.instance;
        let supplies = self.supplies.clone();
        let next = LiveConfig::of(Some(&*before), &self.settings, &self.secrets, supplies, instance)?;
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

/// Returns the reason why a source waits, in a few words for clients.
fn brief(error: &StartError) -> &'static str {
    match error {
        StartError::HeldInFleet(_) => "the fleet has no free worker ID for it",
        StartError::CoordinatorSilent(_) => "the fleet's coordinator does not answer",
        StartError::ClockStepped(_) => "the clock jumped ahead, and is not believed yet",
        _ => "its start was refused",
    }
}
