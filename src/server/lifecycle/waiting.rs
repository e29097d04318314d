//! A daemon waits if its fleet gives it no worker ID. The usual reasons are: another daemon holds
//! the configured worker ID; no worker ID is left; or the coordinator does not answer, and nothing
//! shows that the worker IDs in the stored state still belong to this daemon. A waiting daemon
//! listens, is not ready, and refuses requests with `no_ceiling`. Its process does not end, so no
//! service manager has to start the daemon again.
//!
//! The sources of a waiting daemon have no ceilings and never get a grant. A separate thread tries
//! to take worker IDs, as a start does. Once that thread has worker IDs, the process ends the other
//! threads of the waiting daemon, and a start continues with the daemon's sockets. If the
//! coordinator then does not confirm the worker IDs, the wait begins again. A daemon that is
//! stopped at any moment gives back its worker IDs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::start::{Open, Opening, Prepared, Ready, Server};
use super::threads::make_runtime;
use crate::clock::{self, Remembered, Wall};
use crate::config::{Purpose, Secrets, Settings};
use crate::fleet::{Access, Tried, noticed_within};
use crate::server::ceilings::keeper_thread::Ceilings;
use crate::server::ceilings::start_sources::{Durable, waiting_source};
use crate::server::health::metrics::Metrics;
use crate::server::net::inherited::Inherited;
use crate::server::shared::common::Common;
use crate::server::shared::instance::Instance;
use crate::server::shared::live_config::Supply;
use crate::server::shared::start_error::{RunError, StartError};

/// The pause before the second try. It is short, because another daemon may be stopping and about
/// to give back its worker ID. Each later pause is twice as long as the pause before it, up to
/// [`PAUSE_MAX`], because each try logs in, which costs etcd a tenth of a second.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest time that a stop waits until a running try or start has ended and has given back its
/// worker IDs. Most of this time is the pause that a try makes after it has taken a worker ID.
pub const TRY_TIMEOUT: Duration = noticed_within(Duration::ZERO).saturating_add(Duration::from_secs(1));

/// A daemon that waits for worker IDs.
pub struct Waiting {
    server: Server,
    /// Further handles of the server's sockets. The start that follows uses them.
    sockets: Inherited,
    /// The thread that tries to take worker IDs. It returns the result of the last try, and the
    /// `Tries`, which another wait can use again.
    tries: Work<(Result<Prepared, StartError>, Tries)>,
    /// When this sender is dropped, the thread makes no further try.
    trying: SyncSender<()>,
}

/// A daemon that has got its worker IDs after a wait, and can continue its start.
pub struct TakenNumbers {
    prepared: Prepared,
    sockets: Inherited,
    tries: Tries,
}

/// The result of a start. If the daemon must then wait for worker IDs, the wait takes over these
/// sockets and this `Tries`.
pub struct StartEnd {
    /// A server that is ready to hand out IDs, or the reason why the start failed.
    pub ready: Result<Ready, StartError>,
    /// The inherited sockets or, if the daemon waited before this start, the sockets that it had
    /// during the wait.
    pub sockets: Inherited,
    /// Remembers the worker IDs that earlier tries took.
    pub tries: Tries,
}

/// A part of a start that runs in a thread of its own. A daemon that is stopped abandons this work.
struct Work<T> {
    ended: oneshot::Receiver<T>,
    /// The channel closes once the thread has ended.
    over: mpsc::Receiver<()>,
    /// Gives back the worker IDs in the result of abandoned work.
    give_back: fn(T),
}

impl<T: Send + 'static> Work<T> {
    fn start(
        work: impl FnOnce() -> Option<T> + Send + 'static,
        give_back: fn(T),
    ) -> Result<Work<T>, StartError> {
        let (send_end, ended) = oneshot::channel();
        let (is_over, over) = mpsc::sync_channel(0);
        let spawned = thread::Builder::new().name(String::from("numbers")).spawn(move || {
            if let Some(Err(unwanted)) = work().map(|end| send_end.send(end)) {
                give_back(unwanted);
            }
            drop(is_over);
        });
        spawned.map_err(|error| StartError::no_thread(&error))?;
        Ok(Work { ended, over, give_back })
    }

    /// Gives back the worker IDs in the result. If the thread is still running, the thread gives
    /// them back itself at its end. Waits at most [`TRY_TIMEOUT`] for the thread to end.
    fn abandon(mut self) {
        self.ended.close();
        if let Ok(unwanted) = self.ended.try_recv() {
            (self.give_back)(unwanted);
        }
        let _ = self.over.recv_timeout(TRY_TIMEOUT);
    }
}

/// The attempts of a start to take its worker IDs: the first attempt, and those during the wait.
pub struct Tries {
    pub(super) settings: Settings,
    pub(super) access: Option<Access>,
    pub(super) directory: Option<PathBuf>,
    pub(super) adopt: bool,
    pub(super) tried: Tried,
}

impl Waiting {
    /// Opens the listeners that no service manager has handed over, and starts the thread that
    /// tries to take worker IDs. `reason` says why the first try failed.
    ///
    /// # Errors
    /// Returns the reason why the daemon cannot start, in one line.
    pub fn start(
        mut tries: Tries,
        secrets: &Secrets,
        inherited: Inherited,
        reason: &StartError,
    ) -> Result<Waiting, StartError> {
        let mut settings = tries.settings.clone();
        for source in settings.sources.iter_mut() {
            source.worker_ids.are_awaited = true;
        }
        let reading = clock::os::read();
        let wall = Arc::new(Wall::new(settings.clock.step_rule(), reading, Remembered::Nothing));
        let now = wall.believe(reading);
        let count = settings.shards.get();
        let mut supplies = Vec::new();
        for source in &settings.sources {
            supplies.push(Supply::new(waiting_source(source, now)?, count).without_numbers());
        }
        let instance = Instance::choose();
        let opening = Opening { settings, instance, wall, reading, previous_run_unclean: None };
        let (mut open, _) = opening.open(supplies, secrets, inherited)?;
        let sockets = duplicate(&mut open)?;
        note(&open.common.metrics, reason);
        let ceilings = Ceilings::grant(Durable::default(), None, &opening.wall, reading)?;
        let adopted = mpsc::channel().0;
        let (trying, is_trying) = mpsc::sync_channel(0);
        let seen = Arc::clone(&open.common);
        let tries = Work::start(
            move || tries.run(&seen, &is_trying).map(|end| (end, tries)),
            |(prepared, _)| prepared.into_iter().for_each(Prepared::give_back),
        )?;
        let server = Server { open, ceilings, adopted, kernel_log: None, notes: Vec::new() };
        Ok(Waiting { server, sockets, tries, trying })
    }

    /// Returns the server, for its addresses and its health.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Serves until the daemon has its worker IDs, or until `stop` is complete. Returns `None` if
    /// `stop` came first.
    ///
    /// # Errors
    /// A try failed for a reason that will not pass while the daemon waits, or a thread failed.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<Option<TakenNumbers>, RunError> {
        let Waiting { server, sockets, mut tries, trying } = self;
        let mut taken = None;
        let until = async {
            tokio::select! {
                () = stop => {}
                end = &mut tries.ended => taken = end.ok(),
            }
        };
        server.run(until)?;
        let Some((prepared, tries)) = taken else {
            drop(trying);
            tries.abandon();
            return Ok(None);
        };
        Ok(Some(TakenNumbers { prepared: prepared?, sockets, tries }))
    }
}

impl TakenNumbers {
    /// Continues the start until it ends, or until `stop` is complete. Returns `None` if `stop`
    /// came first. The start may take long, because it waits for peers, storage and the
    /// coordinator.
    ///
    /// # Errors
    /// The system has no thread or reactor left.
    pub fn grant(
        self,
        secrets: &Secrets,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<StartEnd>, StartError> {
        let TakenNumbers { prepared, sockets, tries } = self;
        let runtime = make_runtime()?;
        let secrets = secrets.clone();
        let mut start = Work::start(
            move || Some(tries.grant(prepared, &secrets, sockets)),
            |end: StartEnd| end.ready.into_iter().for_each(Ready::give_back),
        )?;
        let end = runtime.block_on(async {
            tokio::select! {
                () = stop => None,
                end = &mut start.ended => end.ok(),
            }
        });
        if end.is_none() {
            start.abandon();
        }
        Ok(end)
    }
}

impl Tries {
    /// Returns the `Tries` of a start that has not tried yet. `access` is for the fleet's
    /// coordinator, if there is a fleet.
    pub fn new(settings: &Settings, access: Option<Access>, directory: Option<&Path>, adopt: bool) -> Tries {
        Tries {
            settings: settings.clone(),
            access,
            directory: directory.map(PathBuf::from),
            adopt,
            tried: Tried::default(),
        }
    }

    /// Tries once to start, without a wait for worker IDs.
    pub fn start(mut self, secrets: &Secrets, sockets: Inherited) -> StartEnd {
        match Prepared::new(&mut self) {
            Ok(prepared) => self.grant(prepared, secrets, sockets),
            Err(error) => StartEnd { ready: Err(error), sockets, tries: self },
        }
    }

    /// Makes the first ceilings durable for `prepared`, which has its worker IDs.
    fn grant(mut self, prepared: Prepared, secrets: &Secrets, sockets: Inherited) -> StartEnd {
        let ready = prepared.grant(secrets, &mut self.tried);
        StartEnd { ready, sockets, tries: self }
    }

    /// Tries again and again to take worker IDs. Ends when a try succeeds, or fails for a reason
    /// that will not pass while the daemon waits. Returns `None` once the sender of `is_trying` is
    /// dropped.
    fn run(
        &mut self,
        common: &Common,
        is_trying: &mpsc::Receiver<()>,
    ) -> Option<Result<Prepared, StartError>> {
        let mut pause = FIRST_PAUSE;
        loop {
            match is_trying.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
            }
            match Prepared::new(self) {
                Err(error) if error.lacks_only_worker_id() => note(&common.metrics, &error),
                end => return Some(end),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Stores the reason why the daemon has no worker IDs. The daemon's status shows the reason.
fn note(metrics: &Metrics, reason: &StartError) {
    let mut seen = metrics.keeper();
    seen.waits_for = Some(reason.to_string());
    seen.fleet_silence = matches!(reason, StartError::CoordinatorSilent(_)).then(|| reason.to_string());
}

/// Returns further handles of the sockets. The new handles own the files of Unix sockets.
fn duplicate(open: &mut Open) -> Result<Inherited, StartError> {
    let clients =
        open.listeners.iter_mut().map(|(protocol, listener)| (Purpose::Clients(*protocol), listener));
    let all = clients.chain(open.admin.iter_mut().map(|listener| (Purpose::Admin, listener)));
    let mut sockets = Vec::new();
    for (purpose, listener) in all {
        let duplicate = listener.duplicate().map_err(|error| StartError::MayPass(error.to_string()))?;
        sockets.push((purpose, duplicate));
    }
    Ok(Inherited { sockets })
}
