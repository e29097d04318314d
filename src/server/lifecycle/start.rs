//! Starting and stopping: from settings to a daemon that serves, and from there to a clean end.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify, mpsc, watch};

use super::live_config::{LiveConfig, Supply};
use super::reload::Reloader;
use crate::admin::{Beats, Site};
use crate::ceiling::{WorkerLocks, lock_workers};
use crate::clock::{self, Now, StepRule, Wall};
use crate::config::{Address, Secrets, Settings, SourceSettings};
use crate::front::Facts;
use crate::keeper::Keeper;
use crate::server::ceilings::keeper_thread::{self, JoinRequest};
use crate::server::ceilings::lookout;
use crate::server::ceilings::start_sources::{self, Found, Granted, State};
use crate::server::health::heartbeat::{Excused, Heartbeat};
use crate::server::health::metrics::Metrics;
use crate::server::health::vitals::Vitals;
use crate::server::net::accept::{self, INBOX_SOCKETS, Inbox, Registered};
use crate::server::net::admin_accept;
use crate::server::net::inherited::{Inherited, Protocol};
use crate::server::net::listen::{self, Listener};
use crate::server::restored::{self, Ears};
use crate::server::shard_thread::worker::{self, Common, WakeUps, Worker};
use crate::shard::{Order, Shard};
use crate::tls;
use snowbank_client::layout::Numbering;
use snowbank_client::protocol::{self, Info, MAX_REPLY_LENGTH, MIN_LENGTH, info};

/// Why the daemon does not start, in one line that names the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    reason: String,
    may_pass: bool,
}

impl StartError {
    /// A reason that may be gone at the next try: a port, a name, a disk.
    pub(crate) fn for_now(reason: impl fmt::Display) -> Self {
        StartError { reason: reason.to_string(), may_pass: true }
    }

    /// Whether the reason may be gone at the next try without anybody's doing; else somebody has to change something.
    pub fn may_pass(&self) -> bool {
        self.may_pass
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(reason: String) -> Self {
        StartError { reason, may_pass: false }
    }
}

/// How long a stop waits for storage beyond `drain_timeout`. With that one's default it is over before the 10 s after which
/// containers are killed; a disk that takes longer costs the next start no more than a kill does.
const TRIM_TIMEOUT: Duration = Duration::from_secs(3);

/// A daemon that listens. Dropped without [`run`](Server::run), it ends without having served.
pub struct Server {
    listeners: Vec<Listener>,
    admin: Vec<Listener>,
    common: Arc<Common>,
    shards: Vec<(Shard, Runtime)>,
    keeper: Keeper,
    join_requests: std_mpsc::Receiver<JoinRequest>,
    adopted: std_mpsc::Sender<u64>,
    ears: Ears,
    notes: Vec<String>,
}

impl Server {
    /// Locks the state directory and the worker IDs, makes the first ceilings durable, and opens the listeners that are not
    /// inherited. With the daemon comes what puts another configuration in force while it runs.
    ///
    /// # Errors
    /// In one line, what is in the way.
    pub fn start(
        settings: &Settings,
        secrets: Secrets,
        state: State<'_>,
        inherited: Inherited,
    ) -> Result<(Server, Reloader), StartError> {
        let Secrets { tokens, tls, warnings: _ } = secrets;
        let tls = tls.map(tls::Acceptor::new);
        // First: a ceiling that was made durable before the machine was restored is no longer one.
        let ears = Ears::open();
        let found = Found::open(state)?;
        let numberings: Vec<Numbering> = settings.sources.iter().map(number).collect::<Result<_, _>>()?;
        let locks = numberings.iter().map(|numbering| lock(settings, numbering));
        let locks: Vec<WorkerLocks> = locks.collect::<Result<_, _>>()?;
        let reading = clock::os::read();
        let rule = StepRule { max_step: settings.clock.max_step, step_hold: settings.clock.step_hold };
        let wall = Arc::new(Wall::new(rule, reading, found.remembered()));
        let now = wall.believe(reading);
        let Granted { kept, starts, mut store, state_lock, owner, notes } =
            found.grant(&settings.sources, &numberings, locks, now, &wall)?;
        let count = settings.shards.get();
        let supplies: Vec<Supply> =
            kept.iter().map(|kept| Supply::new(Arc::clone(kept.source()), count)).collect();
        let instance = instance();
        let opened = open(settings, inherited, &instance, &supplies, now)
            .and_then(|opened| check_certificate(opened.2.iter().flatten(), tls.as_ref()).map(|()| opened));
        let (info_json, shards, [listeners, admin]) = opened.inspect_err(|_| {
            // Nothing was handed out, so the next start need not go on above what was granted. If this fails, it does.
            let _ = start_sources::give_back(&kept, &starts, store.as_mut());
        })?;

        let wake_ups = Arc::new(WakeUps {
            shards: shards.iter().map(|_| Notify::new()).collect(),
            keeper: std::sync::OnceLock::new(),
        });
        let facts =
            Facts { info_json, max_count: settings.limits.max_count.get(), sources: supplies.len(), tokens };
        let live_config = LiveConfig { version: 0, facts, limits: settings.limits.clone(), supplies };
        let (live_config, receiver) = watch::channel(Arc::new(live_config));
        let (adopted, adoptions) = std_mpsc::channel();
        let (send_requests, join_requests) = std_mpsc::sync_channel(1);
        let reloader = Reloader {
            settings: settings.clone(),
            owner,
            instance,
            tls: tls.clone(),
            live_config,
            adopted: adoptions,
            join_requests: send_requests,
            wake_ups: Arc::clone(&wake_ups),
        };
        let heartbeat = Arc::new(Heartbeat::new(shards.len()));
        let store = Box::new(Excused::new(store, Arc::clone(&heartbeat)));
        let keeper = Keeper::new(kept, store, state_lock, Arc::clone(&wall), reading);
        let all_drained = Barrier::new(shards.len());
        let metrics = Arc::new(Metrics::new(shards.len(), reloader.instance.clone(), reading));
        let order = settings.order;
        let live_config = receiver;
        let common =
            Arc::new(Common { live_config, wall, order, wake_ups, metrics, tls, heartbeat, all_drained });
        Ok((
            Server { listeners, admin, common, shards, keeper, join_requests, adopted, ears, notes },
            reloader,
        ))
    }

    /// What the operator should know of how it started, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where it tells how it is, with the ports that the system chose.
    pub fn admin_addresses(&self) -> impl Iterator<Item = &Address> {
        self.admin.iter().map(|listener| &listener.address)
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.address)
    }

    /// How to ask for its life signs while it runs.
    pub fn vitals(&self) -> Vitals {
        Vitals::new(Arc::clone(&self.common))
    }

    /// Serves until `stop` is complete, then stops: accepts nothing more, answers what has arrived, seals every source,
    /// and trims its ceiling. Storage that does not answer is waited for no longer than `drain_timeout` and a few seconds;
    /// the keeper's thread then stays behind with its locks, and ends with the process.
    ///
    /// # Errors
    /// When a thread or a reactor cannot be had.
    pub fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Server { listeners, admin, common, shards, mut keeper, join_requests, adopted, ears, notes: _ } =
            self;
        let runtime = make_runtime().map_err(io::Error::other)?;
        let registered = {
            let _reactor = runtime.enter();
            register(listeners).and_then(|listeners| Ok([listeners, register(admin)?]))
        };
        // Nothing was handed out. If this fails, the next start goes on above what was granted.
        let [listeners, admin] = registered.inspect_err(|_| drop(keeper.seal_and_trim()))?;
        lookout::watch(&common, keeper.ownership())?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (send_end, keeper_ended) = std_mpsc::channel();
        let keep = {
            let (common, stopping) = (Arc::clone(&common), Arc::clone(&stopping));
            move || {
                let mut keeper = keeper_thread::run(keeper, &common, &stopping, &join_requests);
                let trimmed = keeper.seal_and_trim();
                // Its locks are free when this is told.
                drop(keeper);
                let _ = send_end.send(trimmed);
            }
        };
        let keeper = thread::Builder::new().name(String::from("keeper")).spawn(keep)?;
        let _ = common.wake_ups.keeper.set(keeper.thread().clone());
        restored::watch(ears, Arc::clone(&common));

        let (stop_acceptors, no_more) = watch::channel(false);
        let (stop_shards, stopped) = watch::channel(false);
        let (inboxes, threads, mut shards_ended) = spawn_shards(&common, shards, adopted, &stopped)?;
        let drained_by = runtime.block_on(async {
            let site = {
                let (common, vitals) = (Arc::clone(&common), Vitals::new(Arc::clone(&common)));
                let all_beat = move || -> Beats {
                    let vitals = vitals.clone();
                    Box::pin(async move { vitals.all_beat().await })
                };
                Arc::new(Site::new(move || common.status(), all_beat))
            };
            let tls_of = |listener: &Registered| common.tls.clone().filter(|_| listener.address.is_tls());
            let admin = admin.into_iter().map(|listener| {
                let tls = tls_of(&listener);
                admin_accept::serve(listener, tls, Arc::clone(&site))
            });
            let mut admin: tokio::task::JoinSet<_> = admin.collect();
            let mut acceptors = tokio::task::JoinSet::new();
            for listener in listeners {
                let tls = tls_of(&listener);
                let (inboxes, common) = (Arc::clone(&inboxes), Arc::clone(&common));
                acceptors.spawn(accept::accept(listener, tls, inboxes, common, no_more.clone()));
            }
            stop.await;
            common.metrics.draining.store(true, Ordering::Relaxed);
            let _ = stop_acceptors.send(true);
            // With the acceptors their listeners close: from here on connections are refused, or wait for the next daemon
            // where a service manager holds the sockets.
            let all_ended = async { while acceptors.join_next().await.is_some() {} };
            // One that cannot hand on what it accepted waits for a shard that does not get to it.
            let drain_timeout = common.live_config.borrow().limits.drain_timeout;
            let drained_by = Instant::now() + drain_timeout;
            let _ = tokio::time::timeout(drain_timeout, all_ended).await;
            acceptors.shutdown().await;
            drop(inboxes);
            let _ = stop_shards.send(true);
            // Until the shards have answered what has arrived, the operator can see that they do.
            let _ = shards_ended.recv().await;
            admin.shutdown().await;
            drained_by
        });
        let mut failed = None;
        for thread in threads {
            if thread.join().is_err() {
                failed = Some(io::Error::other("a shard's thread failed"));
            }
        }
        stopping.store(true, Ordering::Release);
        keeper.thread().unpark();
        let drain_left = drained_by.saturating_duration_since(Instant::now());
        match keeper_ended.recv_timeout(drain_left + TRIM_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the ceilings could not be trimmed; the next start rides from them");
            }
            // It ends with the process, as by kill -9: what is durable stays so.
            Err(RecvTimeoutError::Timeout) => tracing::warn!(
                "storage did not answer in time; the ceilings are not trimmed, and the next start rides from them"
            ),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the keeper's thread failed"));
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Registers all listeners with the reactor that is entered, before anything serves: a daemon that says it listens does.
fn register(listeners: Vec<Listener>) -> io::Result<Vec<Registered>> {
    listeners.into_iter().map(Registered::new).collect()
}

type ShardThreads = Vec<JoinHandle<()>>;

/// Ends when all shards' threads have.
type AllEnded = mpsc::Receiver<()>;

fn spawn_shards(
    common: &Arc<Common>,
    shards: Vec<(Shard, Runtime)>,
    adopted: std_mpsc::Sender<u64>,
    stopped: &watch::Receiver<bool>,
) -> io::Result<(Arc<[Inbox]>, ShardThreads, AllEnded)> {
    let (alive, all_ended) = mpsc::channel(1);
    let mut inboxes = Vec::new();
    let mut threads = Vec::new();
    for (shard, runtime) in shards {
        let (sockets, inbox) = mpsc::channel(INBOX_SOCKETS);
        inboxes.push(Inbox { sockets, connections: Arc::clone(&common.metrics.open[shard.index()]) });
        let (common, adopted, stopped) = (Arc::clone(common), adopted.clone(), stopped.clone());
        let name = format!("shard-{}", shard.index());
        let seed = fastrand::u64(..);
        let alive = alive.clone();
        let run = move || {
            worker::run(&runtime, Worker::new(common, shard, seed), inbox, adopted, stopped);
            drop(alive);
        };
        threads.push(thread::Builder::new().name(name).spawn(run)?);
    }
    Ok((inboxes.into(), threads, all_ended))
}

fn make_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        StartError::for_now(format_args!(
            "cannot make a reactor for each shard: {error}; allow more open files, or set fewer shards"
        ))
    })
}

type Opened = (Vec<u8>, Vec<(Shard, Runtime)>, [Vec<Listener>; 2]);

/// What a start can still fail at once its ceilings are durable: INFO's JSON, the shards with their reactors, and the
/// listeners, for clients and for the operator.
fn open(
    settings: &Settings,
    inherited: Inherited,
    instance: &str,
    supplies: &[Supply],
    now: Now,
) -> Result<Opened, StartError> {
    let info_json = describe(settings, instance)?;
    let shards = make_shards(settings, supplies, now);
    let shards = shards.into_iter().map(|shard| Ok((shard, make_runtime()?)));
    let shards = shards.collect::<Result<_, StartError>>()?;
    let listeners = listen_all(settings, inherited)?;
    Ok((info_json, shards, listeners))
}

pub(crate) fn number(source: &SourceSettings) -> Result<Numbering, StartError> {
    Numbering::new(source.layout.clone(), source.worker_ids.clone())
        .map_err(|error| StartError::from(format!("source {}: {error}", source.name)))
}

pub(crate) fn lock(settings: &Settings, numbering: &Numbering) -> Result<WorkerLocks, StartError> {
    lock_workers(&settings.lock_dir, numbering).map_err(StartError::from)
}

fn make_shards(settings: &Settings, supplies: &[Supply], now: Now) -> Vec<Shard> {
    let shard = |index| {
        let lanes = supplies.iter().map(|supply| supply.lane(index, settings.order, now));
        Shard::new(index, lanes.collect(), fastrand::u64(..), now)
    };
    (0..settings.shards.get()).map(shard).collect()
}

/// Inherited sockets take the place of the listeners of their protocol.
fn listen_all(settings: &Settings, mut inherited: Inherited) -> Result<[Vec<Listener>; 2], StartError> {
    let mut open =
        |protocol, addresses| listen_at(inherited.listeners(protocol), addresses, settings.unix_mode);
    Ok([open(Protocol::Native, &settings.listen)?, open(Protocol::Admin, &settings.admin)?])
}

fn listen_at(
    inherited: Vec<Listener>,
    addresses: &[Address],
    unix_mode: u32,
) -> Result<Vec<Listener>, StartError> {
    if !inherited.is_empty() {
        return Ok(inherited);
    }
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.extend(listen::open(address, unix_mode)?);
    }
    Ok(listeners)
}

/// No listener that is to speak TLS may serve without, wherever it comes from.
fn check_certificate<'a>(
    mut listeners: impl Iterator<Item = &'a Listener>,
    tls: Option<&tls::Acceptor>,
) -> Result<(), StartError> {
    match listeners.find(|listener| listener.address.is_tls()) {
        Some(Listener { address, .. }) if tls.is_none() => Err(StartError::from(format!(
            "{address} has no certificate to show; name one and its key in [tls] (certificate, key)"
        ))),
        _ => Ok(()),
    }
}

/// The JSON of INFO.
pub(crate) fn describe(settings: &Settings, instance: &str) -> Result<Vec<u8>, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).ok();
    let order = match settings.order {
        Order::Relaxed => info::Order::Relaxed,
        Order::Strict => info::Order::Strict,
    };
    let describe = |(index, source): (usize, &SourceSettings)| info::Source {
        index: index as u16,
        name: source.name.clone(),
        kind: Some(info::SourceKind::Snowflake),
        layout: Some(source.layout.to_string()),
        worker_ids: Some(source.worker_ids.iter().collect()),
        per_second: Some(source.layout.ids_per_second().saturating_mul(source.worker_ids.len() as u64)),
    };
    let info = Info {
        protocol: protocol::VERSION,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        instance: Some(instance.to_owned()),
        max_count: settings.limits.max_count.get(),
        order: Some(order),
        burst_window_ms: millis(settings.burst_window()),
        max_ahead_ms: millis(settings.max_ahead()),
        sources: settings.sources.iter().enumerate().map(describe).collect(),
    };
    let json = info.to_json();
    let (found, most) = (json.len(), MAX_REPLY_LENGTH - MIN_LENGTH);
    if found > most as usize {
        return Err(StartError::from(format!(
            "the sources and their worker IDs make an INFO reply of {found} bytes, allowed: {most}; set fewer of them"
        )));
    }
    Ok(json)
}

/// Which daemon this is among a fleet: the machine's name, and a number that another start does not have.
fn instance() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{machine}-{:08x}", fastrand::u32(..))
}
