//! The effects on a run of its machine, and of outages and stalls that were announced.

use serde::{Deserialize, Serialize};

use super::{Times, us};
use crate::measure::Counts;
use crate::report::Report;
use crate::scenario::{Cause, ClientStall, Outage};

/// The machine that the generator ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MachineFigures {
    /// The number of runs of the length asked for that became this one, because stalls of the machine decided the
    /// first one's answer.
    pub(crate) rounds: u32,
    /// Stalls of half a millisecond or more.
    pub(crate) stalls: u64,
    /// For how long it stood still.
    pub(crate) stalled_us: f64,
    pub(crate) longest_stall_us: f64,
    /// The response times of a bare echo under the same load; null if it was not run.
    pub(crate) echo_time: Option<Times>,
}

impl MachineFigures {
    pub(super) fn of(report: &Report<'_>) -> Self {
        let stalls = report.outcome.stalls;
        Self {
            rounds: report.outcome.rounds,
            stalls: stalls.count,
            stalled_us: us(stalls.total),
            longest_stall_us: us(stalls.longest),
            echo_time: report.echo.map(|echo| Times::of(echo)),
        }
    }
}

/// The effects of an announced outage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutageFigures {
    /// The end of the daemon: `stop` or `kill`, or `announced` for a service that others restart.
    pub(crate) ending: String,
    /// When it began, in seconds of the measurement.
    pub(crate) at_s: f64,
    /// Until every connection was back and one answered.
    pub(crate) length_us: f64,
    /// The length of the window that was announced; null where the run ended the daemon.
    #[serde(default)]
    pub(crate) window_us: Option<f64>,
    /// The longest time between two answers.
    pub(crate) longest_gap_us: f64,
    /// Requests that it took away.
    pub(crate) lost: u64,
}

/// The effects of an announced stall of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientStallFigures {
    /// When the connection was not read any more, in seconds of the measurement.
    pub(crate) at_s: f64,
    pub(crate) for_s: f64,
    /// `recovered`, `closed by the target`, or `not over` at the end of the run.
    pub(crate) ended: String,
    /// When the target was seen to have closed the connection, from the start of the stall.
    pub(crate) closed_after_us: Option<f64>,
    /// From the end of the stall until all that had been due on the connection was answered.
    pub(crate) caught_up_after_us: Option<f64>,
    /// The longest time between two answers on the other connections.
    pub(crate) longest_gap_us: f64,
    /// Requests on the connection that do not count against objectives.
    pub(crate) excused: u64,
    /// Those in flight when it was closed.
    pub(crate) lost: u64,
}

impl OutageFigures {
    pub(super) fn of(outage: Outage, counts: &Counts) -> Self {
        let (ending, window) = match outage.cause {
            Cause::Own(ending) => (format!("{ending:?}").to_lowercase(), None),
            Cause::Others { within } => ("announced".to_owned(), Some(within)),
        };
        Self {
            ending,
            window_us: window.map(us),
            at_s: outage.at.as_secs_f64(),
            length_us: us(counts.outage),
            longest_gap_us: us(counts.longest_gap),
            lost: counts.lost,
        }
    }
}

impl OutageFigures {
    /// Returns the time in which requests do not count, from its start.
    pub(crate) fn excluded_us(&self) -> f64 {
        self.window_us.unwrap_or(self.length_us)
    }
}

/// New connections that replace older ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChurnFigures {
    /// Those that were asked for in a second.
    pub(crate) per_s: f64,
    /// Those that were due in the measurement.
    pub(crate) due: u64,
    /// From the first packet until requests could be sent, of those that were opened.
    pub(crate) open_time: Times,
}

impl ChurnFigures {
    pub(super) fn of(per_s: f64, counts: &Counts) -> Self {
        Self { per_s, due: counts.churn.due, open_time: Times::of(&counts.churn.times) }
    }
}

impl ClientStallFigures {
    pub(super) fn of(stall: ClientStall, counts: &Counts) -> Self {
        let closed_after = counts.stall.and_then(|figures| figures.closed_after);
        let ended = match counts.stall {
            None => "not over",
            Some(_) if closed_after.is_some() => "closed by the target",
            Some(_) => "recovered",
        };
        Self {
            at_s: stall.at.as_secs_f64(),
            for_s: stall.length.as_secs_f64(),
            ended: ended.to_owned(),
            closed_after_us: closed_after.map(us),
            caught_up_after_us: counts.stall.map(|figures| us(figures.caught_up_after)),
            longest_gap_us: us(counts.longest_gap),
            excused: counts.excused,
            lost: counts.lost,
        }
    }
}

/// A target that went away during a run that may lose it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LostTarget {
    pub(crate) address: String,
    /// In seconds of the measurement.
    pub(crate) at_s: f64,
}

impl LostTarget {
    pub(super) fn of((address, at): &(String, std::time::Duration)) -> Self {
        Self { address: address.clone(), at_s: at.as_secs_f64() }
    }
}
