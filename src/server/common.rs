//! The state that all threads of the daemon share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Barrier, SetOnce, watch};

use super::shared::live_config::LiveConfig;
use super::shared::start_error::StartError;
use super::shared::wake_ups::WakeUps;
use crate::server::health::heartbeat::Heartbeat;
use crate::server::health::metrics::Metrics;
use crate::server::net::pending::PendingLimits;
use crate::server::net::rejections::Rejections;
use crate::tls;
use snowbank_core::clock::Wall;
use snowbank_core::shard::Order;

/// The state that all threads share.
pub(crate) struct Common {
    /// The newest configuration. Each shard has its own reference to the configuration, so that
    /// requests need not take the lock of this channel.
    pub(crate) live_config: watch::Receiver<Arc<LiveConfig>>,
    pub(crate) wall: Arc<Wall>,
    pub(crate) order: Order,
    pub(crate) wake_ups: WakeUps,
    pub(crate) metrics: Metrics,
    /// The acceptor of TLS listeners. `None`: the daemon has no certificate.
    pub(crate) tls: Option<tls::Acceptor>,
    pub(crate) pending: PendingLimits,
    pub(crate) rejections: Rejections,
    pub(crate) heartbeat: Heartbeat,
    /// True once the first sources have started, or wait for a worker ID.
    pub(crate) decided: watch::Sender<bool>,
    /// The reason why the start was refused, if it was. Once it is set, the daemon stops.
    pub(crate) refused: SetOnce<StartError>,
    /// How often the machine was restored from a snapshot since the daemon runs, as the kernel
    /// reported it.
    pub(crate) restores: Arc<AtomicU64>,
    /// The reason why another process may have taken over a worker ID, a shared counter or the
    /// state. Once the reason is set, the daemon stops.
    pub(crate) lost: SetOnce<String>,
    /// True while the daemon asks whether it has lost a worker ID, and until a poll finds all in order. A
    /// stop counts it as a loss.
    pub(crate) in_doubt: AtomicBool,
    /// The barrier at which the shards wait for each other during a stop. While one shard still
    /// answers requests, the other shards keep their connections open and refuse new requests.
    pub(crate) all_drained: Barrier,
}

impl Common {
    pub(crate) fn new(
        live_config: watch::Receiver<Arc<LiveConfig>>,
        wall: Arc<Wall>,
        order: Order,
        tls: Option<tls::Acceptor>,
        metrics: Metrics,
    ) -> Self {
        let shards = metrics.shards.len();
        Common {
            live_config,
            wall,
            order,
            wake_ups: WakeUps::new(shards),
            metrics,
            tls,
            pending: PendingLimits::default(),
            rejections: Rejections::default(),
            heartbeat: Heartbeat::new(shards),
            decided: watch::Sender::new(false),
            refused: SetOnce::new(),
            restores: Arc::default(),
            lost: SetOnce::new(),
            in_doubt: AtomicBool::new(false),
            all_drained: Barrier::new(shards),
        }
    }

    /// Takes the grants of all live sources away, because the machine was restored from a snapshot.
    pub(crate) fn record_restored(&self) {
        for supply in &self.live_config.borrow().supplies {
            supply.source.record_restored();
        }
    }

    /// Ends the daemon, and takes the grants of all live sources away. A source that starts meanwhile is
    /// either live already, or gets its grant after `lost` is set. No grant is raised after that.
    pub(crate) fn lose(&self, reason: &str) {
        // A second `set` has no effect, so the first reason is kept.
        let _ = self.lost.set(reason.to_owned());
        for supply in &self.live_config.borrow().supplies {
            supply.source.grant().revoke();
        }
    }

    /// Records whether the daemon may have lost a worker ID of its fleet, and then takes the grants of the
    /// fleet's sources away. They come back with the next raise that begins after the doubt.
    pub(crate) fn doubt(&self, in_doubt: bool) {
        self.in_doubt.store(in_doubt, Ordering::SeqCst);
        if in_doubt {
            let supplies = &self.live_config.borrow().supplies;
            let in_fleet = supplies.iter().filter(|supply| !supply.source.kind().counts_by_itself());
            in_fleet.for_each(|supply| supply.source.grant().revoke());
            // It marks the locks.
            self.wake_ups.wake_keeper();
        }
    }

    /// Returns true if a worker ID may be lost. Then the locks must say that the next start asks.
    pub(crate) fn may_be_lost(&self) -> bool {
        self.lost.get().is_some() || self.in_doubt.load(Ordering::SeqCst)
    }

    /// Completes when the first sources have started or wait for a worker ID, or after `within`.
    pub(crate) async fn is_decided(&self, within: Duration) {
        let mut decided = self.decided.subscribe();
        // Waiting fails only if the sender is gone, but `self` owns the sender.
        let _ = tokio::time::timeout(within, decided.wait_for(|is_decided| *is_decided)).await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use super::*;
    use crate::access::Rules as AccessRules;
    use crate::config::{self, Overrides};
    use crate::frontends::Facts;
    use crate::os_clock;
    use crate::server::shared::instance::Instance;
    use crate::server::shared::live_config::{Stage, Supply};
    use snowbank_core::clock::Remembered;
    use snowbank_core::grant::Grant;
    use snowbank_core::source::{Rules, Source};
    use snowbank_id::layout::{Layout, Position};
    use snowbank_id::numbering::{Numbering, TicketCounter};

    /// Returns what the threads of a daemon share, and its only source, whose ceiling is 0.
    pub(crate) fn common_of(numbering: Numbering, rules: Rules) -> (Arc<Common>, Arc<Source>) {
        let file = (Path::new("snowbank.toml"), "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n");
        let reading = os_clock::read();
        let settings = config::load(Some(file), &Overrides::default(), NonZeroUsize::MIN, reading.wall);
        let settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let wall = Arc::new(Wall::new(settings.clock.step_rule(), reading, Remembered::Nothing));
        let now = wall.believe(reading);
        let name = String::from("orders");
        let grant = Grant::new(Position(0));
        let source = Arc::new(Source::new(name, numbering, rules, grant, Position(0), now));
        let supply =
            Supply::new(Arc::new(settings.sources[0].clone()), Arc::clone(&source), Stage::Granted, 1);
        let facts = Facts::new(&settings, Vec::new(), AccessRules::default());
        let (_, live_config) = watch::channel(Arc::new(LiveConfig::new(0, &settings, facts, vec![supply])));
        let metrics = Metrics::new(1, Vec::new(), Vec::new(), Instance(1), reading);
        (Arc::new(Common::new(live_config, wall, Order::Relaxed, None, metrics)), source)
    }

    /// A ticket counter of this machine alone is not the fleet's.
    #[test]
    fn nothing_of_the_fleet_is_handed_out_in_doubt() {
        let counter = TicketCounter::new("orders", 1, 1).unwrap();
        let layout = Layout::resolve("twitter").unwrap();
        let worker = Numbering::new(layout, "5".parse().unwrap()).unwrap();
        for (numbering, is_in_force) in [(worker, false), (counter.into(), true)] {
            let (common, source) = common_of(numbering, Rules::TICKETS);
            source.grant().raise(Position(9));
            common.doubt(true);
            assert_eq!(source.grant().is_in_force(), is_in_force);
            assert!(!source.grant().is_lost(), "the next raise brings it back");
        }
    }
}
