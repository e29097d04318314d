//! Runs a started daemon: serves clients until the stop, and then stops the daemon.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::attend::attend;
use super::control::ControlThread;
use super::start::Server;
use super::stop::Signals;
use super::threads::{KeeperThread, ShardThreads, make_runtime};
use crate::config::Protocol;
use crate::server::acceptor::{self, Inbox, ListenerInfo};
use crate::server::common::Common;
use crate::server::net::registered::Registered;
use crate::server::reading::handle::Health;
use crate::server::shared::start_error::StartError;
use crate::tls;

impl Server {
    /// Serves until a signal, a loss or a refused start stops the daemon. Then accepts no more
    /// connections, answers the requests that have arrived, seals every source, and trims its
    /// ceiling. If storage needs longer than `drain_timeout` and a few seconds, returns without
    /// waiting for the keeper thread. That thread then ends with the process.
    ///
    /// `serve_admin` serves the connections of one admin listener until it is dropped.
    ///
    /// Calls `announce` once the daemon listens and its configuration stands. By then the first
    /// sources have started or wait, or it has listened for a second.
    ///
    /// # Errors
    /// The start was refused, the daemon has lost a worker ID, or the system has no thread or
    /// reactor left.
    pub(crate) fn run<A>(
        self,
        signals: Signals,
        serve_admin: impl Fn(Registered, Option<tls::Acceptor>, Health) -> A,
        announce: impl FnOnce(),
    ) -> Result<(), StartError>
    where
        A: Future<Output = ()> + Send + 'static,
    {
        let health = self.health();
        let is_probed = self.admin_addresses().next().is_some();
        let Server { listeners, admin, reload_socket, common, runtimes, ceilings, control, adopted, reloads } =
            self;
        let notifier = control.notifier.clone();
        let runtime = make_runtime()?;
        let reactor = runtime.enter();
        let clients =
            listeners.into_iter().map(|(protocol, listener)| Ok((protocol, Registered::new(listener)?)));
        let clients = clients.collect::<Result<Vec<_>, StartError>>()?;
        let admin = admin.into_iter().map(Registered::new).collect::<Result<Vec<_>, _>>()?;
        let reload_socket = reload_socket.map(Registered::new).transpose()?;
        drop(reactor);
        let no_thread = |error: io::Error| StartError::no_thread(&error);
        let keeper = KeeperThread::spawn(ceilings, &common).map_err(no_thread)?;
        let control = ControlThread::spawn(control, reloads)?;
        let (inboxes, mut shards) = ShardThreads::spawn(&common, runtimes, adopted).map_err(no_thread)?;
        let drained_by = runtime.block_on(async {
            let mut serving_admin = JoinSet::new();
            for listener in admin {
                let tls = tls_of(&listener, &common);
                serving_admin.spawn(serve_admin(listener, tls, health.clone()));
            }
            let stop = async {
                let attend = async {
                    common.is_decided(DECIDED_WITHIN).await;
                    announce();
                    attend(&notifier, &health).await;
                };
                let attend = async {
                    tokio::join!(attend, control.reload_for(reload_socket));
                };
                signals.obey(&notifier, &health, is_probed, attend, || control.reload()).await;
                control.begin_stop();
            };
            let drained_by = accept_until(stop, clients, inboxes, &common).await;
            // Admin listeners serve until the shards have ended, so that an operator can watch the
            // stop.
            shards.stop(drained_by).await;
            serving_admin.shutdown().await;
            drained_by
        });
        shards.join();
        control.stop(drained_by);
        keeper.stop(drained_by);
        match (health.refused(), health.lost()) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(reason)) => Err(StartError::HeldInFleet(format!(
                "stopped, because IDs may no longer be this daemon's alone: {reason}; the next start serves, waits, or \
                 says what to do"
            ))),
            (None, None) => {
                tracing::info!("stopped");
                Ok(())
            }
        }
    }
}

/// The longest time from the moment when the daemon listens until it says so. Within this time, a
/// start that cannot succeed usually is refused, and its unit fails at once.
const DECIDED_WITHIN: Duration = Duration::from_secs(1);

/// Returns the TLS acceptor for a listener's connections. `None`: the listener does not speak TLS.
fn tls_of(listener: &Registered, common: &Common) -> Option<tls::Acceptor> {
    common.tls.clone().filter(|_| listener.address.is_tls())
}

/// Accepts connections until `stop` is complete, and closes the listeners. Returns the instant by
/// which the shards must have answered all requests.
async fn accept_until(
    stop: impl Future<Output = ()>,
    listeners: Vec<(Protocol, Registered)>,
    inboxes: Arc<[Inbox]>,
    common: &Arc<Common>,
) -> Instant {
    let (stop_acceptors, stopped) = watch::channel(false);
    let mut acceptors = JoinSet::new();
    for (protocol, listener) in listeners {
        let info = ListenerInfo { protocol, tls: tls_of(&listener, common) };
        let inboxes = Arc::clone(&inboxes);
        let common = Arc::clone(common);
        let stopped = stopped.clone();
        acceptors.spawn(acceptor::accept(listener, info, inboxes, common, stopped));
    }
    stop.await;
    let _ = stop_acceptors.send(true);
    // Each acceptor closes its listener when it ends, and the kernel then refuses new connections.
    // If a service manager holds the sockets, new connections wait for the next daemon.
    let all_ended = async { while acceptors.join_next().await.is_some() {} };
    // The wait for the acceptors is limited, because an acceptor may be waiting for a shard whose
    // inbox is full.
    let drain_timeout = common.live_config.borrow().limits.drain_timeout;
    let drained_by = Instant::now() + drain_timeout;
    let _ = tokio::time::timeout(drain_timeout, all_ended).await;
    acceptors.shutdown().await;
    drained_by
}
