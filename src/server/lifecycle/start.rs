//! The daemon's start: from settings to a daemon that listens and has durable first ceilings.

use std::path::Path;
use std::sync::{Arc, mpsc};

use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::info::{describe, rules};
use super::peers::refuse_shared;
use super::reload::Reloader;
use super::threads::make_runtime;
use super::waiting::Tries;
use crate::access::Rules;
use crate::ceiling::{Cause, StateError, WorkerLocks, lock_workers};
use crate::clock::{self, Reading, Wall};
use crate::config::{Address, Protocol, Purpose, Secrets, Settings};
use crate::fleet::{Clocks, Tried};
use crate::frontends::Facts;
use crate::numbering::Numbering;
use crate::server::ceilings::join_fleet::{Here, Joined};
use crate::server::ceilings::keeper_thread::Ceilings;
use crate::server::ceilings::start_sources::{Found, FromFleet, Locked};
use crate::server::health::handle::Health;
use crate::server::health::metrics::Metrics;
use crate::server::net::inherited::Inherited;
use crate::server::net::listen::{self, Listener};
use crate::server::restored::KernelLog;
use crate::server::shared::common::Common;
use crate::server::shared::instance::Instance;
use crate::server::shared::live_config::{LiveConfig, Supply};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use crate::shard::Shard;
use crate::tls;

const AFTER_A_CRASH: &str = "the previous run did not end its record: it was killed or crashed, it lost its \
      worker ID, the power failed, or the disk hung";

/// A daemon that listens. [`run`](Server::run) serves its clients.
pub struct Server {
    pub(super) open: Open,
    /// The ceilings of all sources. A daemon that waits for worker IDs has none.
    pub(super) ceilings: Ceilings,
    /// The sender with which shards report the version of each configuration that they adopt.
    pub(super) adopted: mpsc::Sender<u64>,
    pub(super) kernel_log: Option<KernelLog>,
    /// The notes for the operator about the start.
    pub notes: Vec<Note>,
}

/// The listeners and the shards of a daemon.
pub(super) struct Open {
    pub(super) listeners: Vec<(Protocol, Listener)>,
    pub(super) admin: Vec<Listener>,
    pub(super) common: Arc<Common>,
    pub(super) shards: Vec<(Shard, Runtime)>,
}

/// A start that has its worker IDs. They come from the configuration or from the fleet.
pub struct Prepared {
    settings: Settings,
    found: Found,
    fleet: Option<Joined>,
    kernel_log: KernelLog,
    /// The reading of the clocks that was used in the requests to the coordinator.
    first: Reading,
}

impl Prepared {
    /// Locks the state directory, and takes the worker IDs of a fleet. Continues with the worker
    /// IDs that earlier tries of this process took.
    pub(super) fn new(tries: &mut Tries) -> Result<Prepared, StartError> {
        let Tries { settings, access, directory, adopt, tried } = tries;
        // The kernel's log is opened before the state is read, so that the daemon notices every
        // restore that comes after the state was read.
        let counts = settings.sources.iter().any(|source| source.kind.counts_by_itself());
        let kernel_log = KernelLog::open(access.is_some() || counts);
        let mut found = Found::open(directory.as_deref(), *adopt)?;
        found.look_back(&kernel_log)?;
        let first = clock::os::read();
        let mut settings = settings.clone();
        let here = Here { found: &found, reading: first, kernel_log: &kernel_log };
        let access = access.clone();
        let fleet = access.map(|access| Joined::join(&mut settings, access, here, tried)).transpose()?;
        Ok(Prepared { settings, found, fleet, kernel_log, first })
    }

    /// Gives back the worker IDs of a fleet, because the daemon was told to stop. Then unlocks the
    /// state.
    pub(super) fn give_back(self) {
        let reading = clock::os::read();
        let clocks = Clocks::at(reading.wall, reading);
        self.fleet.into_iter().for_each(|fleet| fleet.give_back(clocks));
    }

    /// Locks the worker IDs, and makes the first ceilings durable. Then checks that worker IDs from
    /// a fleet still belong to this daemon.
    pub(super) fn grant(self, secrets: &Secrets, tried: &mut Tried) -> Result<Ready, StartError> {
        let Prepared { settings, found, fleet, kernel_log, first } = self;
        let sources = number_and_lock(&settings)?;
        let instance = Instance::choose();
        let info_json = describe(&settings, instance)?;
        let silent_peers = refuse_shared(secrets.peers.as_ref(), &info_json, &settings.listen)?;
        // The clocks are read again, because an earlier process may have handed out IDs of ticks
        // after `first`, until it released the locks.
        let reading = clock::os::read();
        let rule = settings.clock.step_rule();
        let numberings = sources.iter().map(|source| &source.numbering);
        let wall = Arc::new(Wall::new(rule, reading, found.remembered(numberings, reading)));
        // With `first`, the keeper also notices a jump of the clocks between `first` and this
        // reading.
        wall.record_seen(first);
        let now = wall.believe(reading);
        let previous_run_unclean = found.follows_a_crash();
        let no_fleet = FromFleet::default();
        let from_fleet = fleet.as_ref().map_or(&no_fleet, |joined| &joined.answers);
        let (durable, mut notes) = found.grant(sources, from_fleet, &wall, now)?;
        notes.extend(silent_peers);
        notes.extend((previous_run_unclean == Some(true)).then(|| Note::Info(AFTER_A_CRASH.to_owned())));
        let mut in_fleet = None;
        let mut checked = Ok(());
        if let Some(mut joined) = fleet {
            let reading = clock::os::read();
            let clocks = Clocks::at(wall.believe(reading).wall, reading);
            checked = joined.in_fleet.member.check_taken(clocks).map_err(StartError::from);
            if checked.is_ok() {
                notes.extend(joined.notes);
                in_fleet = Some(joined.in_fleet);
            } else {
                // The worker IDs are not given back here. The next try asks the coordinator who
                // holds them.
                *tried = joined.in_fleet.member.into_tried();
            }
        }
        let ceilings = Ceilings::grant(durable, in_fleet, &wall, reading)?;
        let ((), ceilings) = ceilings.or_trim(checked)?;
        let opening = Opening { settings, instance, wall, reading, previous_run_unclean };
        Ok(Ready { opening, ceilings, kernel_log, notes })
    }
}

/// A start whose first ceilings are durable. The daemon may hand out IDs.
pub struct Ready {
    opening: Opening,
    ceilings: Ceilings,
    kernel_log: KernelLog,
    notes: Vec<Note>,
}

impl Ready {
    /// Gives back the worker IDs of a fleet, because the daemon was told to stop before it served.
    pub(super) fn give_back(self) {
        // No ID was handed out. If the ceilings cannot be trimmed, the next start begins above
        // them.
        let _ = self.ceilings.seal_and_trim();
    }
}

impl Server {
    /// Opens the listeners that no service manager has handed over. Returns the daemon and the
    /// reloader of its configuration.
    ///
    /// # Errors
    /// Returns the reason why the daemon cannot start, in one line.
    pub fn start(
        ready: Ready,
        secrets: Secrets,
        inherited: Inherited,
    ) -> Result<(Server, Reloader), StartError> {
        let Ready { opening, ceilings, kernel_log, notes } = ready;
        let count = opening.settings.shards.get();
        let supplies = ceilings.sources().map(|source| Supply::new(Arc::clone(source), count)).collect();
        let opened = opening.open(supplies, &secrets, inherited);
        let ((open, live_config), ceilings) = ceilings.or_trim(opened)?;
        open.common.metrics.keeper().polled.fleet_ceilings = ceilings.fleet_ceilings();
        let (reloader, adopted) =
            Reloader::new(opening.settings, Arc::clone(&open.common), live_config, secrets.fleet_files);
        let kernel_log = Some(kernel_log);
        Ok((Server { open, ceilings, adopted, kernel_log, notes }, reloader))
    }

    /// Returns the admin listeners' addresses, with the ports that the system chose.
    pub fn admin_addresses(&self) -> impl Iterator<Item = &Address> {
        self.open.admin.iter().map(|listener| &listener.address)
    }

    /// Returns the client listeners' protocols and addresses, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = (Protocol, &Address)> {
        self.open.listeners.iter().map(|(protocol, listener)| (*protocol, &listener.address))
    }

    /// Returns a handle that reads the daemon's status and heartbeat while it runs.
    pub fn health(&self) -> Health {
        Health(Arc::clone(&self.open.common))
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

/// Makes the numbering of each source, and locks its worker IDs.
fn number_and_lock(settings: &Settings) -> Result<Vec<Locked<'_>>, StartError> {
    let mut locked = Vec::new();
    for source in &settings.sources {
        let numbering = source.numbering();
        let numbering = numbering
            .map_err(|error| StartError::WrongSetting(format!("source {}: {error}", source.name)))?;
        let locks = if source.kind.takes_ranges() {
            mark_shared(&settings.lock_dir, &numbering)?;
            WorkerLocks::none()
        } else {
            lock_workers(&settings.lock_dir, &numbering)?
        };
        locked.push(Locked { settings: source, numbering, locks });
    }
    Ok(locked)
}

/// The facts that a daemon needs to open its listeners.
pub(super) struct Opening {
    pub(super) settings: Settings,
    pub(super) instance: Instance,
    pub(super) wall: Arc<Wall>,
    pub(super) reading: Reading,
    pub(super) previous_run_unclean: Option<bool>,
}

impl Opening {
    /// Creates the shards with their reactors, and opens the listeners for clients and for the
    /// operator. Also returns the sender that gives the shards a new configuration.
    pub(super) fn open(
        &self,
        supplies: Vec<Supply>,
        secrets: &Secrets,
        mut inherited: Inherited,
    ) -> Result<(Open, watch::Sender<Arc<LiveConfig>>), StartError> {
        let Opening { settings, instance, wall, reading, previous_run_unclean } = self;
        let now = wall.believe(*reading);
        let info_json = describe(settings, *instance)?;
        let access = rules(settings, secrets, &info_json, &Rules::default())?;
        let mut shards = Vec::new();
        for index in 0..settings.shards.get() {
            let lanes = supplies.iter().map(|supply| supply.lane(index, settings.order, now));
            let shard = Shard::new(index, lanes.collect(), fastrand::u64(..), now);
            shards.push((shard, make_runtime()?));
        }
        let mut listeners = Vec::new();
        let mut by_protocol = Vec::new();
        let everywhere = settings.listeners().into_iter().flat_map(|(_, addresses)| addresses);
        let ipv4_ports: Vec<u16> =
            everywhere.chain(&settings.admin.listen).filter_map(listen::ipv4_port).collect();
        for (protocol, addresses) in settings.listeners() {
            let opened = listen_at(inherited.listeners(Purpose::Clients(protocol)), addresses, &ipv4_ports)?;
            if !opened.is_empty() {
                let addresses = opened.iter().map(|listener| listener.address.to_string());
                by_protocol.push((protocol, addresses.collect()));
            }
            listeners.extend(opened.into_iter().map(|listener| (protocol, listener)));
        }
        let admin = listen_at(inherited.listeners(Purpose::Admin), &settings.admin.listen, &ipv4_ports)?;
        let live_config = LiveConfig::new(0, settings, Facts::new(settings, info_json, access), supplies);
        let (live_config, receiver) = watch::channel(Arc::new(live_config));
        let mut metrics = Metrics::new(shards.len(), by_protocol, *instance, *reading);
        metrics.previous_run_unclean = *previous_run_unclean;
        let tls = secrets.tls.clone().map(tls::Acceptor::new);
        let common = Arc::new(Common::new(receiver, Arc::clone(wall), settings.order, tls, metrics));
        Ok((Open { listeners, admin, common, shards }, live_config))
    }
}

/// Returns the inherited listeners for a purpose. If there are none, opens listeners at
/// `addresses`. Listeners at `[::]` leave `ipv4_ports` to others.
fn listen_at(
    inherited: Vec<Listener>,
    addresses: &[Address],
    ipv4_ports: &[u16],
) -> Result<Vec<Listener>, StartError> {
    if !inherited.is_empty() {
        return Ok(inherited);
    }
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.extend(listen::open(address, ipv4_ports)?);
    }
    Ok(listeners)
}
