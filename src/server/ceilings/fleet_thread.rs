//! The fleet thread does one job after another at the coordinator. Only the control thread waits for
//! a job and, for a moment, a clean stop.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::job_thread::{JobThread, Reply};
use super::join_fleet::{Joined, Joining};
use crate::config::SOURCES_MAX;
use crate::server::restored::Life;
use snowbank_core::keeper::{Outcome, WantedRange};
use snowbank_fleet::{
    Bound, Clocks, Coordinator, Counted, FleetError, Member, NoAnswer, NumberRange, Pool, Rest,
};
use snowbank_state::TakenOver;
use snowbank_tls::files;

/// The longest time that a clean stop waits for one answer of the coordinator. The stop asks twice:
/// it confirms that the daemon still holds its worker IDs, and then it gives them back. Both waits
/// are part of the stop's wait for storage.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The time between two counts of the worker IDs that the coordinator may still assign.
const COUNT_EVERY: Duration = Duration::from_secs(600);

/// The most jobs in flight: a raise, a check, a job of a stop, one of the control thread, and a
/// range for each shared counter.
const JOBS_MAX: usize = 4 + SOURCES_MAX;

/// A job for the fleet thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// Raise bounds at the coordinator.
    Raise {
        /// The index of this thread among the keeper's writers, and the number of the write.
        writer: usize,
        number: u64,
        bounds: Vec<Bound>,
        /// The generation of the grants when the keeper asked for this raise.
        generation: u64,
        clocks: Clocks,
    },
    /// Take a range of a shared counter.
    Range(WantedRange),
    /// Check that the coordinator answers, and that the worker IDs of these sources still belong to
    /// this daemon.
    Confirm(Vec<usize>, Clocks, Reply<Result<(), FleetError>>),
    /// Release the worker IDs, and lower their bounds to the given bounds. Give the rest of the
    /// ranges of shared counters back. Nothing goes back once the life is over.
    GiveBack(Vec<Bound>, Vec<Rest>, Clocks, Life, Reply<Result<(), FleetError>>),
    /// Forget sources that a reload has removed.
    Leave(Vec<usize>, Reply<()>),
    /// Forget the worker IDs of sources whose start has failed.
    GiveUp(Vec<usize>, Reply<()>),
    /// Call these sources by these names.
    Rename(Vec<(usize, String)>, Reply<()>),
    /// Take the worker IDs of sources that start.
    Join(Box<Joining>, Reply<Joined>),
    /// Check that the worker IDs that were taken last are still this daemon's.
    CheckTaken(Clocks, Reply<Result<(), FleetError>>),
    /// Check that the worker IDs still belong to this daemon.
    Check(Clocks),
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Done {
    /// The outcome of a raise.
    Raised(Outcome),
    /// The keeper's request for a range, and the range that was taken for it.
    Ranged(WantedRange, Result<NumberRange, NoAnswer>),
    /// The result of a check: Ok if the worker IDs still belong to this daemon, or an error if the
    /// coordinator did not answer.
    Checked(Result<(), NoAnswer>, Box<Noticed>),
    /// Another process may have taken over a worker ID or a shared counter.
    Lost(TakenOver),
}

/// Facts for the operator that the thread learns during a check of its keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noticed {
    /// The count of each source's worker IDs.
    pub(crate) pools: Vec<Counted>,
    /// The Unix time at which the certificate that the daemon shows to the coordinator expires.
    pub(crate) certificate_ends_unix_s: Option<i64>,
}

/// The daemon's membership in its fleet.
pub(crate) struct InFleet {
    pub(crate) member: Member<Box<dyn Coordinator>>,
    /// The worker IDs that the coordinator may assign to each source, with the source's index.
    pub(crate) pools: Vec<(usize, Pool)>,
    /// The file with the certificate that the daemon shows to the coordinator. `None`: the daemon
    /// shows no certificate.
    pub(crate) certificate: Option<PathBuf>,
}

/// The state of the thread.
struct Work {
    in_fleet: InFleet,
    noticed: Noticed,
    /// The time at which the last count of all pools began.
    noticed_at: Option<Instant>,
    /// The index of the pool that is being counted. `None` between two counts.
    counting: Option<usize>,
    /// How often the machine had been restored from a snapshot when sources last joined.
    restores: u64,
}

impl Work {
    /// Adds the pools of sources that join. Their worker IDs are counted soon.
    fn add_pools(&mut self, pools: Vec<(usize, Pool)>) {
        for (source, pool) in pools {
            if self.in_fleet.pools.iter().all(|(of, _)| *of != source) {
                self.in_fleet.pools.push((source, pool));
                self.noticed_at = None;
            }
        }
    }

    /// Forgets sources that a reload has removed.
    fn leave(&mut self, sources: &[usize]) {
        self.in_fleet.member.leave(sources);
        self.in_fleet.pools.retain(|(source, _)| !sources.contains(source));
        self.noticed.pools.retain(|pool| !sources.contains(&pool.source));
    }

    /// Reads the certificate again, because an operator may have renewed it. Counts the worker IDs
    /// of all pools, and begins again every [`COUNT_EVERY`]. For the count, each check makes at
    /// most one call to the coordinator.
    fn notice(&mut self, clocks: Clocks) {
        self.noticed.certificate_ends_unix_s = self.in_fleet.certificate.as_deref().and_then(ends_unix_s);
        if self.noticed_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY) && self.counting.is_none() {
            self.noticed_at = Some(Instant::now());
            self.counting = Some(0);
        }
        let InFleet { member, pools, .. } = &mut self.in_fleet;
        let Some((_, pool)) = self.counting.and_then(|at| pools.get_mut(at)) else {
            self.counting = None;
            return;
        };
        // If the coordinator did not answer, the next check continues the count.
        if let Ok(Some(counted)) = member.count_on(pool, clocks) {
            self.counting = self.counting.map(|at| at + 1);
            self.noticed.pools.retain(|pool| pool.source != counted.source);
            self.noticed.pools.push(counted);
        }
    }
}

/// Returns the Unix time at which the certificate in a file expires.
fn ends_unix_s(path: &Path) -> Option<i64> {
    let chain = files::read_chain(path).ok()?;
    Some(files::validity(chain.first()?)?.not_after.as_second())
}

/// The handle of the fleet thread. The thread ends when the handle is dropped.
pub(crate) type Fleet = JobThread<Job, Done>;

/// Starts the thread.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(in_fleet: InFleet) -> io::Result<Fleet> {
    let work = Work { in_fleet, noticed: Noticed::default(), noticed_at: None, counting: None, restores: 0 };
    JobThread::start("fleet", JOBS_MAX, work, run)
}

fn lost(loss: &FleetError) -> Done {
    Done::Lost(TakenOver(format!("the fleet: {loss}")))
}

/// Does a job. A loss that the job has found goes to the keeper, whoever waits for the job.
fn run(work: &mut Work, job: Job) -> Option<Done> {
    let done = run_job(work, job);
    work.in_fleet.member.loss().map(lost).or(done)
}

fn run_job(work: &mut Work, job: Job) -> Option<Done> {
    if let Job::Join(joining, _) = &job {
        let sources: Vec<usize> = joining.sources.keys().copied().collect();
        work.add_pools(joining.pools());
        let restores = joining.life.restores;
        if std::mem::replace(&mut work.restores, restores) != restores {
            work.in_fleet.member.record_restored();
        }
        work.in_fleet.member.begin_start(sources);
    }
    let member = &mut work.in_fleet.member;
    let done = match job {
        Job::Join(joining, reply) => {
            reply.send(joining.join(member));
            return None;
        }
        Job::CheckTaken(clocks, reply) => {
            reply.send(member.check_taken(clocks));
            return None;
        }
        Job::GiveUp(sources, reply) => {
            member.give_up(&sources);
            reply.send(());
            return None;
        }
        Job::Range(wanted) => {
            // A counter may have started while the coordinator was silent, without a number to check.
            member.record_serving(wanted.source);
            match member.take_range(wanted.source, wanted.count, wanted.generation) {
                Ok(range) => Done::Ranged(wanted, Ok(range)),
                Err(FleetError::NoAnswer(answer)) => Done::Ranged(wanted, Err(answer)),
                Err(loss) => lost(&loss),
            }
        }
        Job::Confirm(sources, clocks, reply) => {
            reply.send(member.confirm(&sources, clocks));
            return None;
        }
        Job::GiveBack(bounds, rests, clocks, life, reply) => {
            member.hurry();
            reply.send(member.give_back(&bounds, &rests, clocks, &|| !life.is_over()));
            return None;
        }
        Job::Leave(sources, reply) => {
            work.leave(&sources);
            reply.send(());
            return None;
        }
        Job::Rename(names, reply) => {
            member.rename(&names);
            reply.send(());
            return None;
        }
        Job::Check(clocks) => {
            // A daemon that serves must soon notice a loss.
            member.hurry();
            let checked = member.check(clocks);
            match checked {
                Ok(()) => {
                    work.notice(clocks);
                    Done::Checked(Ok(()), Box::new(work.noticed.clone()))
                }
                Err(FleetError::NoAnswer(answer)) => {
                    Done::Checked(Err(answer), Box::new(work.noticed.clone()))
                }
                Err(loss) => lost(&loss),
            }
        }
        Job::Raise { writer, number, bounds, generation, clocks } => {
            let raised = member.raise(&bounds, generation, clocks);
            match raised.as_ref().err().filter(|error| error.is_loss()) {
                Some(loss) => lost(loss),
                None => {
                    Done::Raised(Outcome { writer, number, failure: raised.err().map(FleetError::reason) })
                }
            }
        }
    };
    Some(done)
}
