//! The first moment of a daemon: from settings to a daemon that listens, with sources whose grants
//! are under way. The [control thread](super::control) does the rest.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use socket2::Socket;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::os_clock;

use super::control::{Control, REQUESTS_MAX};
use super::reread::Reread;
use super::threads::make_runtime;
use crate::access::Rules;
use crate::config::{Address, Protocol, Purpose, Secrets, Settings};
use crate::server::ceilings::keeper_thread::Ceilings;
use crate::server::ceilings::start_sources::awaiting;
use crate::server::common::Common;
use crate::server::health::metrics::Metrics;
use crate::server::net::inherited::Inherited;
use crate::server::net::listen::{self, Listener};
use crate::server::reading::handle::Health;
use crate::server::shared::instance::Instance;
use crate::server::shared::live_config::{LiveConfig, Stage, Supply, order_of};
use crate::server::shared::note::Note;
use crate::server::shared::start_error::StartError;
use crate::service::{self, Logs, Notifier};
use crate::tls;
use snowbank_core::clock::{Remembered, Wall};
use snowbank_core::keeper::{Keeper, Reach};

/// What a daemon starts with.
pub struct Beginning {
    /// The settings, with the worker IDs that come from the machine.
    pub settings: Settings,
    /// The contents of the files that the settings name.
    pub secrets: Secrets,
    /// The sockets that a service manager has opened.
    pub sockets: Inherited,
    /// The state directory. `None`: the daemon keeps no state.
    pub directory: Option<PathBuf>,
    /// True to adopt the state of another machine, or an older copy.
    pub adopt: bool,
    /// The lines about settings that the log of a start shows.
    pub choices: Vec<Note>,
    /// The warnings among them. A reload does not repeat these.
    pub warned: Vec<String>,
    /// Reads the configuration again.
    pub reread: Reread,
    /// Sends messages to the service manager.
    pub notifier: Notifier,
    /// The log.
    pub logs: Logs,
}

/// A daemon that listens. `run` serves its clients.
pub struct Server {
    pub(super) listeners: Vec<(Protocol, Listener)>,
    pub(super) admin: Vec<Listener>,
    /// Where `snowbank reload` asks. `None`: there is no runtime directory.
    pub(super) reload_socket: Option<Listener>,
    pub(super) common: Arc<Common>,
    pub(super) runtimes: Vec<Runtime>,
    pub(super) ceilings: Ceilings,
    pub(super) control: Control,
    /// The sender with which shards report the version of each configuration that they adopt.
    pub(super) adopted: mpsc::Sender<u64>,
    /// The sender of requests for a reload.
    pub(super) reloads: mpsc::SyncSender<Option<Socket>>,
}

impl Server {
    /// Opens the listeners that no service manager has handed over, and makes the first
    /// configuration, in which no source has a grant.
    ///
    /// # Errors
    /// Returns the reason why the daemon cannot start, in one line.
    pub fn open(beginning: Beginning) -> Result<Server, StartError> {
        let Beginning { settings, secrets, mut sockets, mut choices, .. } = beginning;
        let reading = os_clock::read();
        let wall = Arc::new(Wall::new(settings.clock.step_rule(), reading, Remembered::Nothing));
        let now = wall.believe(reading);
        let count = settings.shards.get();
        let mut awaited = Vec::new();
        for source in &settings.sources {
            awaited.push(awaiting(source, settings.fleet.horizon, now)?);
        }
        let mut supplies = Vec::new();
        for (source, managed) in settings.sources.iter().zip(&awaited) {
            let source = Arc::new(source.clone());
            supplies.push(Supply::new(source, Arc::clone(managed.source()), Stage::UnderWay, count));
        }
        let instance = Instance::choose();
        let live_config = LiveConfig::of(None, &settings, &secrets, supplies.clone(), instance)?;
        let runtimes = (0..count).map(|_| make_runtime()).collect::<Result<_, _>>()?;
        let mut listeners = Vec::new();
        let mut by_protocol = Vec::new();
        let everywhere = settings.listeners().into_iter().flat_map(|(_, addresses)| addresses);
        let ipv4_ports: Vec<u16> =
            everywhere.chain(&settings.admin.listen).filter_map(listen::ipv4_port).collect();
        for (protocol, addresses) in settings.listeners() {
            let opened = listen_at(sockets.listeners(Purpose::Clients(protocol)), addresses, &ipv4_ports)?;
            if !opened.is_empty() {
                let addresses = opened.iter().map(|listener| listener.address.to_string());
                by_protocol.push((protocol, addresses.collect()));
            }
            listeners.extend(opened.into_iter().map(|listener| (protocol, listener)));
        }
        let admin = listen_at(sockets.listeners(Purpose::Admin), &settings.admin.listen, &ipv4_ports)?;
        let reload_socket = service::runtime_directory().and_then(|directory| {
            let opened = listen::open_reload_socket(&service::reload_socket(&directory));
            opened
                .map_err(|error| {
                    choices
                        .push(Note::Warning(format!("`snowbank reload` does not reach this daemon: {error}")))
                })
                .ok()
        });
        let (live_config, receiver) = watch::channel(Arc::new(live_config));
        let admin_addresses = admin.iter().map(|listener| listener.address.to_string()).collect();
        let metrics = Metrics::new(count, by_protocol, admin_addresses, instance, reading);
        let tls = secrets.tls.clone().map(tls::Acceptor::new);
        let common = Common::new(receiver, Arc::clone(&wall), settings.order, tls, metrics);
        let common = Arc::new(common);
        let mut writers = vec![Reach::Local];
        writers.extend(secrets.fleet.as_ref().map(|_| Reach::Fleet(settings.fleet.horizon)));
        let (keeper, changes) = mpsc::channel();
        let ceilings = Ceilings::new(Keeper::new(awaited, &writers, wall, reading), changes);
        let (adopted, receive_adopted) = mpsc::channel();
        let (reloads, requests) = mpsc::sync_channel(REQUESTS_MAX);
        let control = Control {
            common: Arc::clone(&common),
            live_config,
            settings: Arc::new(settings),
            secrets,
            supplies,
            has_served: false,
            directory: beginning.directory,
            adopt: beginning.adopt,
            keeper,
            requests,
            adopted: receive_adopted,
            is_stopping: Arc::new(AtomicBool::new(false)),
            choices,
            warned: beginning.warned,
            reread: beginning.reread,
            notifier: beginning.notifier,
            logs: beginning.logs,
            opened: None,
            remembered: None,
            notices_restores: None,
        };
        Ok(Server { listeners, admin, reload_socket, common, runtimes, ceilings, control, adopted, reloads })
    }

    /// Returns the admin listeners' addresses, with the ports that the system chose.
    pub fn admin_addresses(&self) -> impl Iterator<Item = &Address> {
        self.admin.iter().map(|listener| &listener.address)
    }

    /// Returns the client listeners' protocols and addresses, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = (Protocol, &Address)> {
        self.listeners.iter().map(|(protocol, listener)| (*protocol, &listener.address))
    }

    pub(super) fn health(&self) -> Health {
        Health(Arc::clone(&self.common))
    }
}

/// Makes configurations.
impl LiveConfig {
    /// Returns the version of the configuration that follows `before`, or the first version.
    pub(super) fn of(
        before: Option<&LiveConfig>,
        settings: &Settings,
        secrets: &Secrets,
        supplies: Vec<Supply>,
        instance: Instance,
    ) -> Result<LiveConfig, StartError> {
        let version = before.map_or(0, |before| before.version + 1);
        let rules = before.map_or_else(Rules::default, |before| before.facts.access.clone());
        let order = order_of(settings, &supplies);
        let granted: Vec<_> = order.iter().map(|&index| supplies[index].numbering()).collect();
        let info_json = super::info::describe(settings, &granted, instance)?;
        let mut names = vec![String::new(); supplies.len()];
        order.iter().for_each(|&index| names[index] = supplies[index].name().to_owned());
        let access = super::info::rules(settings, secrets, &names, &info_json, &rules)?;
        let facts = crate::frontends::Facts::of(settings, order, info_json, access);
        Ok(LiveConfig::new(version, settings, facts, supplies))
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
