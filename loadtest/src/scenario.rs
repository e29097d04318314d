//! The options of a run, and the instants that follow from them.

use std::time::Duration;

use snowbank_client::Endpoint;
use snowbank_client::layout::Numbering;
use snowbank_client::tls::Connector;

use crate::daemon::Ending;
use crate::schedule::Arrivals;
use crate::target::{Access, Metrics, Token};
use crate::value::{Mix, Rate};

/// The options of a run.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Each gets the same share of the requests. Without any, a daemon is started.
    pub(crate) addresses: Vec<Endpoint>,
    /// The form of the IDs behind another protocol.
    pub(crate) form: Form,
    /// The number of targets that may go away during the run.
    pub(crate) may_lose: usize,
    /// For addresses of TLS.
    pub(crate) tls: Option<Connector>,
    /// The addresses' metrics, if their processes are elsewhere.
    pub(crate) metrics: Vec<Metrics>,
    /// Sent first on each connection.
    pub(crate) token: Option<Token>,
    /// `None` is the default source.
    pub(crate) source: Option<String>,
    pub(crate) protocol: Protocol,
    /// When requests leave.
    pub(crate) drive: Drive,
    /// IDs per request.
    pub(crate) batch: Mix,
    /// Connections of all threads together.
    pub(crate) connections: usize,
    /// Generator threads.
    pub(crate) threads: usize,
    /// The time before the measurement at the offered rate: checked and not timed.
    pub(crate) warm_up: Duration,
    pub(crate) length: Length,
    /// The announced outage.
    pub(crate) outage: Option<Outage>,
    /// New connections a second, each of which replaces an older one.
    pub(crate) churn: Option<f64>,
    /// True if each second's histogram is kept for a file.
    pub(crate) keeps_interval_log: bool,
    /// The seed of random draws.
    pub(crate) seed: u64,
}

/// The knowledge about the IDs of a target that speaks another protocol.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// As far as the target itself says.
    AsTold,
    /// INFO at these addresses of the same daemons, in their order.
    Info(Vec<Endpoint>),
    /// A layout, and the worker IDs that the target may use.
    Layout(Numbering),
}

/// The protocol of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Snowbank's own.
    Snowbank,
    /// RESP, as Redis speaks it.
    Resp,
    /// memcached's text protocol.
    Memcached,
    /// HTTP 1.1.
    Http,
    /// noeqd's.
    Noeqd,
    /// None: each byte comes back.
    Echo,
}

/// An announced outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outage {
    /// From the start of the measurement.
    pub(crate) at: Duration,
    pub(crate) cause: Cause,
}

/// The cause of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The run ends a daemon of its own in this way and starts it again. The outage is over when all is back.
    Own(Ending),
    /// The service is restarted by others in a window of this length.
    Others { within: Duration },
}

/// When requests leave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Drive {
    /// On a schedule.
    Open { rate: Rate, arrivals: Arrivals },
    /// A new request for each answer.
    Closed { depth: usize },
}

/// The length of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// That long.
    For(Duration),
    /// Until this many IDs were requested.
    Ids(u64),
}

impl Protocol {
    /// Returns true for a protocol that is one of Snowbank's doors.
    pub(crate) fn is_door(self) -> bool {
        !matches!(self, Self::Snowbank | Self::Echo)
    }

    /// Returns its name in every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Snowbank => "snowbank",
            Self::Resp => "resp",
            Self::Memcached => "memcached",
            Self::Http => "http",
            Self::Noeqd => "noeqd",
            Self::Echo => "echo",
        }
    }
}

impl Scenario {
    /// Returns this load without events during a run, and without further recordings.
    pub(crate) fn without_events(&self) -> Self {
        Self { outage: None, churn: None, metrics: Vec::new(), keeps_interval_log: false, ..self.clone() }
    }

    /// Returns the way to open connections to one of its targets.
    pub(crate) fn access(&self, endpoint: Endpoint) -> Access {
        Access { endpoint, protocol: self.protocol, tls: self.tls.clone(), token: self.token.clone() }
    }

    /// Returns the time from the start of the run to the start of the measurement.
    pub(crate) fn measured_from(&self) -> Duration {
        self.warm_up
    }

    /// Returns the time from the start of the run to the start of the announced outage.
    pub(crate) fn outage_at(&self) -> Option<Duration> {
        Some(self.measured_from() + self.outage?.at)
    }

    /// Returns the loop in words, for every output.
    pub(crate) fn loop_words(&self) -> &'static str {
        match self.drive {
            Drive::Open { .. } => "open loop",
            Drive::Closed { .. } => "closed loop",
        }
    }

    /// Returns the length of the measurement, if a time ends it. On a schedule, a count is a time too.
    pub(crate) fn measured_for(&self) -> Option<Duration> {
        match (self.length, self.drive) {
            (Length::For(length), _) => Some(length),
            (Length::Ids(ids), Drive::Open { rate, .. }) => {
                Some(Duration::from_secs_f64((ids as f64 / rate.per_s()).min(1e9)))
            }
            (Length::Ids(_), Drive::Closed { .. }) => None,
        }
    }

    /// Returns the time from the start of the run to the last request, if a time ends it.
    pub(crate) fn ends_at(&self) -> Option<Duration> {
        Some(self.measured_from() + self.measured_for()?)
    }

    /// Returns the IDs that a thread may ask for, if a count ends the run and no schedule does.
    pub(crate) fn ids_limit(&self, thread: usize) -> Option<u64> {
        match (self.length, self.drive) {
            (Length::Ids(ids), Drive::Closed { .. }) => Some(share_of(ids, thread, self.threads)),
            _ => None,
        }
    }
}

/// Returns a thread's share: equal parts, the rest to the first threads.
fn share_of(all: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    all / threads + u64::from(thread < all % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (all, threads) in [(10, 3), (0, 2), (7, 7), (1, 4)] {
            assert_eq!((0..threads).map(|thread| share_of(all, thread, threads)).sum::<u64>(), all);
        }
    }
}
