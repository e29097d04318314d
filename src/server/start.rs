//! Starting and stopping: from settings to a daemon that serves, and from there to a clean end.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io, thread};

use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify, mpsc, watch};

use super::accept::{self, INBOX_SOCKETS, Inbox};
use super::keeper;
use super::listen::{self, Listener};
use super::worker::{self, Bells, Common, Worker};
use crate::ceiling::{CeilingRule, CeilingStore, Grant, MemoryStore, StoreError, WorkerLocks, lock_workers};
use crate::clock::{self, Now, StepRule, Wall};
use crate::config::{Address, Settings, SourceSettings, Tokens};
use crate::front::Facts;
use crate::keeper::{Keeper, Kept};
use crate::layout::{Numbering, Position, Tick};
use crate::protocol::{self, Info, MAX_REPLY_LENGTH, MIN_LENGTH, info};
use crate::shard::{Lane, Order, Ring, Rings, Shard};
use crate::source::{Rules, Source};

/// Why the daemon does not start, in one line that names the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<String> for StartError {
    fn from(reason: String) -> Self {
        StartError(reason)
    }
}

/// A daemon that listens. Dropped without [`run`](Server::run), it ends without having served.
pub struct Server {
    listeners: Vec<Listener>,
    common: Arc<Common>,
    shards: Vec<(Shard, Runtime)>,
    keeper: Keeper,
    max_connections: usize,
    _locks: Vec<WorkerLocks>,
}

impl Server {
    /// Takes the worker IDs' locks, makes the first ceilings durable, and opens the listeners.
    ///
    /// # Errors
    /// In one line, what is in the way.
    pub fn start(settings: &Settings, tokens: Option<Tokens>) -> Result<Server, StartError> {
        let reading = clock::os::read();
        let rule = StepRule { max_step: settings.clock.max_step, step_hold: settings.clock.step_hold };
        let wall = Arc::new(Wall::new(rule, reading, None));
        let now = wall.believe(reading);

        if let Some(directory) = &settings.state_dir {
            make_state_dir(directory)?;
        }
        let mut locks = Vec::new();
        let mut store: Box<dyn CeilingStore> = Box::new(MemoryStore);
        let mut kept = Vec::new();
        for (index, source) in settings.sources.iter().enumerate() {
            let numbering = Numbering::new(source.layout.clone(), source.worker_ids.clone())
                .map_err(|error| format!("source {}: {error}", source.name))?;
            locks.push(lock_workers(&settings.lock_dir, &numbering)?);
            kept.push(first_grant(index, source, numbering, now, &mut *store).map_err(|error| {
                format!("source {}: cannot make the first ceiling durable: {error}", source.name)
            })?);
        }
        let sources: Vec<Arc<Source>> = kept.iter().map(|kept| Arc::clone(kept.source())).collect();
        let info_json = describe(settings, &sources)?;
        let shards = make_shards(settings, &sources, now);
        let shards = shards
            .into_iter()
            .map(|shard| Ok((shard, make_runtime()?)))
            .collect::<Result<Vec<_>, StartError>>()?;
        let listeners = listen_all(settings)?;

        let bells = Arc::new(Bells {
            shards: shards.iter().map(|_| Notify::new()).collect(),
            keeper: std::sync::OnceLock::new(),
        });
        let facts =
            Facts { info_json, max_count: settings.limits.max_count.get(), sources: sources.len(), tokens };
        let keeper = Keeper::new(kept, store, Arc::clone(&wall), reading);
        let limits = settings.limits.clone();
        let all_drained = Barrier::new(shards.len());
        let common = Arc::new(Common { facts, limits, wall, sources, bells, all_drained });
        let max_connections = settings.limits.max_connections;
        Ok(Server { listeners, common, shards, keeper, max_connections, _locks: locks })
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.address)
    }

    /// Serves until `stop` is complete, then stops: accepts nothing more, answers what has arrived, seals every source,
    /// and trims its ceiling.
    ///
    /// # Errors
    /// When a thread or a reactor cannot be had.
    pub fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Server { listeners, common, shards, keeper, max_connections, _locks } = self;
        let runtime = make_runtime().map_err(io::Error::other)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let keep = {
            let (bells, stopping) = (Arc::clone(&common.bells), Arc::clone(&stopping));
            move || keeper::run(keeper, &bells, &stopping)
        };
        let keeper = thread::Builder::new().name(String::from("keeper")).spawn(keep)?;
        let _ = common.bells.keeper.set(keeper.thread().clone());

        let (stop_shards, stopped) = watch::channel(false);
        let (inboxes, threads) = spawn_shards(&common, shards, &stopped)?;
        runtime.block_on(async {
            let mut acceptors = tokio::task::JoinSet::new();
            for listener in listeners {
                acceptors.spawn(accept::accept(listener, Arc::clone(&inboxes), max_connections));
            }
            stop.await;
            // Dropping the acceptors closes their listeners: from here on connections are refused.
            acceptors.shutdown().await;
        });
        drop(inboxes);
        let _ = stop_shards.send(true);
        let mut failed = None;
        for thread in threads {
            if thread.join().is_err() {
                failed = Some(io::Error::other("a shard's thread failed"));
            }
        }
        stopping.store(true, Ordering::Release);
        keeper.thread().unpark();
        let mut keeper = keeper.join().map_err(|_| io::Error::other("the keeper's thread failed"))?;
        for (source, error) in keeper.seal_and_trim().err().into_iter().flatten() {
            tracing::warn!(source, %error, "the ceiling could not be trimmed; the next start rides from it");
        }
        failed.map_or(Ok(()), Err)
    }
}

type ShardThreads = Vec<JoinHandle<()>>;

fn spawn_shards(
    common: &Arc<Common>,
    shards: Vec<(Shard, Runtime)>,
    stopped: &watch::Receiver<bool>,
) -> io::Result<(Arc<[Inbox]>, ShardThreads)> {
    let mut inboxes = Vec::new();
    let mut threads = Vec::new();
    for (shard, runtime) in shards {
        let (sockets, inbox) = mpsc::channel(INBOX_SOCKETS);
        inboxes.push(Inbox { sockets, connections: Arc::new(AtomicUsize::new(0)) });
        let (common, stopped) = (Arc::clone(common), stopped.clone());
        let name = format!("shard-{}", shard.index());
        let seed = fastrand::u64(..);
        let run = move || worker::run(&runtime, Worker::new(common, shard, seed), inbox, stopped);
        threads.push(thread::Builder::new().name(name).spawn(run)?);
    }
    Ok((inboxes.into(), threads))
}

fn make_runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        StartError(format!(
            "cannot make a reactor for each shard: {error}; allow more open files, or set fewer shards"
        ))
    })
}

/// The state directory, private to the daemon's user.
fn make_state_dir(directory: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
        let shown = directory.display();
        StartError(format!(
            "cannot create the state directory {shown}: {error}; make its parent writable, or choose another"
        ))
    })
}

/// Starts a source under its first ceiling, which is durable when this returns.
///
/// Nothing stored says what an earlier process has used, so the start lies above the current tick by the guard.
fn first_grant(
    index: usize,
    settings: &SourceSettings,
    numbering: Numbering,
    now: Now,
    store: &mut dyn CeilingStore,
) -> Result<Kept, StoreError> {
    let tick = Duration::from_millis(numbering.layout().tick_ms());
    let guard = settings.first_start_guard.unwrap_or(tick);
    let start = numbering
        .first_of(Tick(numbering.tick_at(now.after(guard).wall).0.max(numbering.tick_at(now.wall).0 + 1)));
    let rules = Rules {
        burst_window: settings.burst_window,
        max_ahead: settings.max_ahead,
        on_step_back: settings.on_step_back,
        sequence_start: settings.sequence_start,
    };
    let rule = CeilingRule { horizon: settings.horizon, max_ahead: settings.max_ahead, tick };
    let grant = Grant::new(Position(0));
    let source = Source::new(settings.name.clone(), numbering, rules, grant, start, now);
    let mut kept = Kept::new(Arc::new(source), rule, start, now);
    let ceiling = kept.first_ceiling(now);
    store.raise(index, ceiling)?;
    kept.grant(ceiling);
    Ok(kept)
}

fn make_shards(settings: &Settings, sources: &[Arc<Source>], now: Now) -> Vec<Shard> {
    let count = settings.shards.get();
    let rings: Vec<Rings> = sources.iter().map(|_| (0..count).map(|_| Ring::default()).collect()).collect();
    let shard = |index| {
        let lanes = sources.iter().zip(&rings).map(|(source, rings)| {
            Lane::new(Arc::clone(source), Arc::clone(rings), index, settings.order, now)
        });
        Shard::new(index, lanes.collect(), fastrand::u64(..), now)
    };
    (0..count).map(shard).collect()
}

fn listen_all(settings: &Settings) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    for address in &settings.listen {
        listeners.extend(listen::open(address, settings.unix_mode)?);
    }
    Ok(listeners)
}

/// The JSON of INFO.
fn describe(settings: &Settings, sources: &[Arc<Source>]) -> Result<Vec<u8>, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).ok();
    let order = match settings.order {
        Order::Relaxed => info::Order::Relaxed,
        Order::Strict => info::Order::Strict,
    };
    let describe = |(index, source): (usize, &Arc<Source>)| info::Source {
        index: index as u16,
        name: source.name().to_owned(),
        kind: Some(info::SourceKind::Snowflake),
        layout: Some(source.numbering().layout().to_string()),
        worker_ids: Some(source.numbering().workers().iter().collect()),
        per_second: Some(
            source
                .numbering()
                .layout()
                .ids_per_second()
                .saturating_mul(source.numbering().workers().len() as u64),
        ),
    };
    let info = Info {
        protocol: protocol::VERSION,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        instance: Some(instance()),
        max_count: settings.limits.max_count.get(),
        order: Some(order),
        burst_window_ms: millis(settings.burst_window()),
        max_ahead_ms: millis(settings.max_ahead()),
        sources: sources.iter().enumerate().map(describe).collect(),
    };
    let json = info.to_json();
    let (found, most) = (json.len(), MAX_REPLY_LENGTH - MIN_LENGTH);
    if found > most as usize {
        return Err(StartError(format!(
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
