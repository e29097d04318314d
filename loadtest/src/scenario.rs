//! The options of a run, and the instants that follow from them.

use std::time::Duration;

use snowbank_tls::Connector;
use snowbank_wire::Address as Endpoint;

use crate::daemon::Ending;
use crate::frontend::Row;
use crate::schedule::Arrivals;
use crate::target::Token;
use crate::value::Rate;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// The targets, to which the connections go in turn. If the list is empty, the run starts a
    /// daemon.
    pub(crate) addresses: Vec<Endpoint>,
    /// If `addresses` speak another protocol: the addresses at which the same daemons answer INFO,
    /// in the same order.
    pub(crate) info: Vec<Endpoint>,
    /// Makes the TLS connections. `None` if no address uses TLS.
    pub(crate) tls: Option<Connector>,
    pub(crate) token: Option<Token>,
    /// `None` stands for the default source.
    pub(crate) source: Option<String>,
    pub(crate) protocol: &'static Row,
    /// Decides when requests leave.
    pub(crate) drive: Drive,
    /// IDs per request.
    pub(crate) batch: u32,
    /// The number of connections of all threads together.
    pub(crate) connections: usize,
    pub(crate) threads: usize,
    /// The time before the measurement, in which requests leave at the same rate. Their IDs are
    /// checked, but their response times do not count.
    pub(crate) warm_up: Duration,
    /// The length of the measurement.
    pub(crate) length: Duration,
    /// The outage of the run's own daemon.
    pub(crate) outage: Option<Outage>,
    /// True if each second's histogram is kept for a file.
    pub(crate) keeps_interval_log: bool,
}

/// An outage: the run ends its own daemon and starts it again. The outage is over when all
/// connections are open again and a request has been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The time from the start of the measurement to the outage.
    pub(crate) at: Duration,
    pub(crate) ending: Ending,
}

/// Decides when requests leave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Drive {
    /// On a schedule.
    Open { rate: Rate, arrivals: Arrivals },
    /// A new request leaves for each answer.
    Closed { depth: usize },
}

impl Scenario {
    /// Returns the time from the start of the run to the start of the outage.
    pub(crate) fn outage_at(&self) -> Option<Duration> {
        Some(self.warm_up + self.outage?.at)
    }

    /// Returns the time from the start of the run to the end of the measurement.
    pub(crate) fn ends_at(&self) -> Duration {
        self.warm_up + self.length
    }

    pub(crate) fn is_open_loop(&self) -> bool {
        matches!(self.drive, Drive::Open { .. })
    }

    /// Returns the name of the loop, which is the same in every output.
    pub(crate) fn loop_words(&self) -> &'static str {
        if self.is_open_loop() { "open loop" } else { "closed loop" }
    }
}
