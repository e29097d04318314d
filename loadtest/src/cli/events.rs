//! Options for what happens on purpose during a run.

use clap::Args;

use super::Failure;
use crate::daemon::Ending;
use crate::scenario::{Cause, Outage, Scenario};
use crate::units::counted;
use crate::value::{PerSecond, Time, TimeAt};

/// Outages, targets that go away, and connections that change.
#[derive(Debug, Args)]
pub(super) struct Events {
    /// Stop the daemon cleanly at this time of the measurement and start it again; only for a daemon of the
    /// run's own
    #[arg(long, value_name = "TIME", conflicts_with_all = ["address", "kill_daemon_at"], allow_hyphen_values = true)]
    restart_daemon_at: Option<Time>,
    /// Kill the daemon at this time of the measurement and start it again; only for a daemon of the run's own
    #[arg(long, value_name = "TIME", conflicts_with = "address", allow_hyphen_values = true)]
    kill_daemon_at: Option<Time>,
    /// The service is restarted in this window, by an operator: 5s@10s begins at 10 s of the measurement.
    /// Requests due in it do not count against objectives. All connections must be open again at its end
    #[arg(
        long, value_name = "TIME@TIME", requires = "address", allow_hyphen_values = true,
        conflicts_with_all = ["may_lose", "churn"]
    )]
    outage: Option<TimeAt>,
    /// With several addresses: the number of them that may go away during the run. Requests in flight there are
    /// sent to the others, and count from when they were due
    #[arg(long, value_name = "N", requires = "address")]
    may_lose: Option<usize>,
    /// Open this many new connections a second, each in place of an older one, which is closed once it has its
    /// answers
    #[arg(
        long, value_name = "RATE", allow_hyphen_values = true,
        conflicts_with_all = ["restart_daemon_at", "kill_daemon_at", "may_lose"]
    )]
    churn: Option<PerSecond>,
}

impl Events {
    /// Adds them to a run.
    pub(super) fn put_into(&self, scenario: Scenario) -> Result<Scenario, Failure> {
        let scenario = Scenario {
            outage: self.outage(),
            may_lose: self.may_lose.unwrap_or(0),
            churn: self.churn.map(|churn| churn.0),
            ..scenario
        };
        check_outage(&scenario)?;
        let targets = scenario.addresses.len();
        if scenario.may_lose > 0 && scenario.may_lose >= targets {
            let (given, targets) = (scenario.may_lose, counted(targets as u64, "target"));
            return Err(Failure::usage(format!("--may-lose {given} leaves none of {targets} to ask")));
        }
        Ok(scenario)
    }

    fn outage(&self) -> Option<Outage> {
        let own = |at: Option<Time>, ending| at.map(|at| Outage { at: at.0, cause: Cause::Own(ending) });
        let announced =
            self.outage.map(|TimeAt { length, at }| Outage { at, cause: Cause::Others { within: length } });
        own(self.restart_daemon_at, Ending::Stop).or(own(self.kill_daemon_at, Ending::Kill)).or(announced)
    }
}

/// Refuses an outage that is not within the measurement.
fn check_outage(scenario: &Scenario) -> Result<(), Failure> {
    let (Some(outage), Some(measured)) = (scenario.outage, scenario.measured_for()) else {
        return match scenario.outage {
            Some(Outage { cause: Cause::Others { .. }, .. }) => {
                Err(Failure::usage("--outage needs an end by time: --for instead of --count"))
            }
            _ => Ok(()),
        };
    };
    let is_within = match outage.cause {
        Cause::Own(_) => outage.at < measured,
        Cause::Others { within } => outage.at + within < measured,
    };
    let at = match outage.cause {
        Cause::Own(_) => format!("at {}", Time(outage.at)),
        Cause::Others { within } => format!("of {} at {}", Time(within), Time(outage.at)),
    };
    if is_within {
        return Ok(());
    }
    Err(Failure::usage(format!("the outage {at} is not within the measurement of {}", Time(measured))))
}
