//! The fleet thread checks the daemon's keys at the coordinator, by its own timer, and does one job
//! after another. It takes no lock of this machine, and what it learns to the daemon's disadvantage
//! passes no thread that may wait for a disk. Only the control thread waits for a job and, for a
//! moment, a clean stop.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::job_thread::{Asks, JobThread, NoReply, Question, Reply};
use crate::config::SOURCES_MAX;
use crate::os_clock;
use crate::server::common::Common;
use crate::server::health::fleet_seen::FleetSeen;
use snowbank_core::clock::BootMicros;
use snowbank_core::grant::TakenOver;
use snowbank_core::keeper::{Outcome, PERIOD, WantedRange};
use snowbank_fleet::{
    Bound, Clocks, Coordinator, FleetError, Member, NoAnswer, NumberRange, POLL_PERIOD, Pause, Pool,
};
use snowbank_tls::files;

/// The longest time that a clean stop waits for one answer of the coordinator. The stop asks twice:
/// it confirms that the daemon still holds its worker IDs, and then it gives them back. Both waits
/// are part of the stop's wait for storage.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The time between two counts of the worker IDs that the coordinator may still assign.
const COUNT_EVERY: Duration = Duration::from_secs(600);

/// The most jobs in flight: a raise, a question of a stop, one of the control thread, and a range for
/// each shared counter. One more result is that of a check that has found a loss.
const JOBS_MAX: usize = 4 + SOURCES_MAX;

/// A job for the fleet thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// Raise bounds at the coordinator.
    Raise {
        /// The index of this thread among the keeper's writers, and the number of the write.
        writer: usize,
        number: u64,
        /// Each with the generation of its source's grant when the keeper asked for this raise.
        bounds: Vec<(Bound, u64)>,
    },
    /// Take a range of a shared counter.
    Range(WantedRange),
    /// One or a few messages to the coordinator, and nothing else that takes long, so that polls go on.
    Ask(Question<Work>),
}

impl Asks<Job> {
    /// Asks the fleet thread a question, and waits for the answer. A loss that the question finds goes
    /// to the keeper, too.
    pub(crate) fn question<R: Send + 'static>(
        &self,
        limit: Duration,
        question: impl FnOnce(&mut Work) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.ask(limit, |reply: Reply<R>| {
            Job::Ask(Question(Box::new(move |work: &mut Work| reply.send(question(work)))))
        })
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Done {
    /// The outcome of a raise.
    Raised(Outcome),
    /// The keeper's request for a range, and the range that was taken for it.
    Ranged(WantedRange, Result<NumberRange, NoAnswer>),
    /// Another process may have taken over a worker ID or a shared counter.
    Lost(TakenOver),
}

pub(crate) type FleetMember = Member<Box<dyn Coordinator>>;

/// The daemon's membership in its fleet.
pub(crate) struct InFleet {
    pub(crate) member: FleetMember,
    /// The worker IDs that the coordinator may assign to each source, with the source's index.
    pub(crate) pools: Vec<(usize, Pool)>,
    /// The end of the certificate that the daemon shows to the coordinator, in Unix time. `None`: the
    /// daemon shows no certificate, or its file was not read yet.
    pub(crate) certificate_ends_unix_s: Arc<Mutex<Option<i64>>>,
}

/// A raise that has written its bounds, and pauses.
struct Raising {
    writer: usize,
    number: u64,
    pause: Pause,
    /// When the pause's next step is due.
    due: BootMicros,
}

/// The state of the thread.
pub(crate) struct Work {
    in_fleet: InFleet,
    common: Arc<Common>,
    /// Reads the clocks as the daemon believes them.
    read_clocks: Box<dyn Fn() -> Clocks + Send>,
    /// The keeper waits for the outcome of a raise before it asks for another.
    raising: Option<Raising>,
    /// When the last check began. `None`: none did since the last source started.
    checked_at: Option<BootMicros>,
    seen: FleetSeen,
    /// The time at which the last count of all pools began.
    noticed_at: Option<Instant>,
    /// The index of the pool that is being counted. `None` between two counts.
    counting: Option<usize>,
    /// How often the machine had been restored from a snapshot when sources last joined.
    restores: u64,
}

impl Work {
    /// Begins the start of sources. The machine was restored from a snapshot `restores` times by now.
    pub(crate) fn begin_start(&mut self, sources: Vec<usize>, restores: u64) {
        if std::mem::replace(&mut self.restores, restores) != restores {
            self.in_fleet.member.record_restored();
        }
        self.in_fleet.member.begin_start(sources);
    }

    /// Checks that the numbers which these sources took are still this daemon's, right before they
    /// hand out anything. The first check follows at once, before any raise. `pools` are the worker
    /// IDs that the coordinator may assign to them. These are counted soon: a source that does not
    /// serve has no numbers to count by.
    pub(crate) fn check_taken(
        &mut self,
        starting: &[usize],
        pools: Vec<(usize, Pool)>,
    ) -> Result<(), FleetError> {
        self.checked_at = None;
        let clocks = self.clocks();
        self.in_fleet.member.check_taken(starting, clocks)?;
        if !pools.is_empty() {
            self.in_fleet.pools.extend(pools);
            self.noticed_at = None;
        }
        Ok(())
    }

    /// Returns the time until the next check. If the machine sleeps meanwhile, the wait is longer, so
    /// the thread asks again after [`PERIOD`] at most.
    fn check_due_in(&mut self) -> Duration {
        let member = &self.in_fleet.member;
        if self.is_lost() || !member.serves() {
            return Duration::MAX;
        }
        let waited = self.checked_at.map_or(Duration::MAX, |at| os_clock::boot().since(at));
        POLL_PERIOD.saturating_sub(waited).min(PERIOD)
    }

    /// Returns the time until the next step of a raise's pause, at most [`PERIOD`].
    fn step_due_in(&self) -> Duration {
        let raising = self.raising.as_ref().filter(|_| !self.is_lost());
        raising.map_or(Duration::MAX, |raising| raising.due.since(os_clock::boot()).min(PERIOD))
    }

    /// Takes the next step of a raise. Returns its outcome if its pause is over.
    fn step(&mut self, mut raising: Raising) -> Option<Done> {
        let clocks = self.clocks();
        let settled = self.in_fleet.member.settle(&mut raising.pause, clocks);
        if let Ok(Some(due_in)) = settled {
            raising.due = os_clock::boot().after(due_in);
            self.raising = Some(raising);
            return None;
        }
        let Raising { writer, number, .. } = raising;
        Some(self.raised(writer, number, settled.map(drop)))
    }

    /// Returns the outcome of a raise.
    fn raised(&self, writer: usize, number: u64, raised: Result<(), FleetError>) -> Done {
        match raised {
            Err(loss) if loss.is_loss() => self.lost(&loss),
            raised => Done::Raised(Outcome { writer, number, failure: raised.err().map(FleetError::reason) }),
        }
    }

    fn due_in(&mut self) -> Duration {
        self.step_due_in().min(self.check_due_in())
    }

    /// Takes a step of a raise, or checks.
    fn run_due(&mut self) -> Option<Done> {
        let is_step_due = self.step_due_in().is_zero();
        match self.raising.take_if(|_| is_step_due) {
            Some(raising) => {
                let done = self.step(raising);
                self.found_loss().or(done)
            }
            None => self.check(),
        }
    }

    /// Checks that the worker IDs still belong to this daemon.
    fn check(&mut self) -> Option<Done> {
        self.checked_at = Some(os_clock::boot());
        let clocks = self.clocks();
        // A daemon that serves must soon notice a loss.
        self.in_fleet.member.hurry();
        self.seen.silence = match self.in_fleet.member.check(clocks) {
            Ok(()) => {
                self.notice(clocks);
                None
            }
            Err(FleetError::NoAnswer(answer)) => Some(answer.reason),
            Err(loss) => return Some(self.lost(&loss)),
        };
        let metrics = &self.common.metrics;
        metrics.fleet_answers.store(self.seen.silence.is_none(), Ordering::Relaxed);
        metrics.fleet().clone_from(&self.seen);
        self.found_loss()
    }

    /// Returns the loss that a call has found, whatever the call's result.
    fn found_loss(&self) -> Option<Done> {
        self.in_fleet.member.loss().map(|loss| self.lost(loss))
    }

    fn lost(&self, loss: &FleetError) -> Done {
        let reason = format!("the fleet: {loss}");
        self.common.lose(&reason);
        Done::Lost(TakenOver(reason))
    }

    /// Forgets sources that a reload has removed.
    pub(crate) fn leave(&mut self, sources: &[usize]) {
        self.in_fleet.member.leave(sources);
        self.in_fleet.pools.retain(|(source, _)| !sources.contains(source));
        self.seen.pools.retain(|pool| !sources.contains(&pool.source));
    }

    /// Returns true once the daemon has lost a worker ID or its state, so that it ends.
    fn is_lost(&self) -> bool {
        self.common.lost.get().is_some()
    }

    /// Returns the clocks as the daemon believes them now.
    pub(crate) fn clocks(&self) -> Clocks {
        (self.read_clocks)()
    }

    /// Returns the daemon's membership.
    pub(crate) fn member(&mut self) -> &mut FleetMember {
        &mut self.in_fleet.member
    }

    /// Counts the worker IDs of all pools, and begins again every [`COUNT_EVERY`]. For the count, each
    /// check makes at most one call to the coordinator.
    fn notice(&mut self, clocks: Clocks) {
        self.seen.certificate_ends_unix_s =
            self.in_fleet.certificate_ends_unix_s.lock().map_or(None, |ends| *ends);
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
            self.seen.pools.retain(|pool| pool.source != counted.source);
            self.seen.pools.push(counted);
        }
    }
}

/// Starts a thread that reads when the certificate in a file expires, again and again, because an
/// operator may renew it. The thread waits for the file's disk. It ends when nobody has the result
/// any more.
pub(crate) fn watch_certificate(path: PathBuf) -> Arc<Mutex<Option<i64>>> {
    let found = Arc::new(Mutex::new(None));
    let of = Arc::downgrade(&found);
    // Without a thread, the operator does not see when the certificate expires.
    let _ = thread::Builder::new().name(String::from("certificate")).spawn(move || {
        loop {
            let ends = ends_unix_s(&path);
            let Some(found) = of.upgrade() else { return };
            let _ = found.lock().map(|mut found| *found = ends);
            drop(found);
            thread::sleep(POLL_PERIOD);
        }
    });
    found
}

/// Returns the Unix time at which the certificate in a file expires.
fn ends_unix_s(path: &Path) -> Option<i64> {
    let chain = files::read_chain(path).ok()?;
    Some(files::validity(chain.first()?)?.not_after.as_second())
}

/// The handle of the fleet thread.
pub(crate) type Fleet = JobThread<Job, Done>;

/// Starts the thread.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(
    mut in_fleet: InFleet,
    common: Arc<Common>,
    read_clocks: Box<dyn Fn() -> Clocks + Send>,
) -> io::Result<Fleet> {
    let host = Arc::clone(&common);
    in_fleet.member.on_doubt(Arc::new(move |in_doubt| host.doubt(in_doubt)));
    let work = Work {
        in_fleet,
        common,
        read_clocks,
        raising: None,
        checked_at: None,
        seen: FleetSeen::default(),
        noticed_at: None,
        counting: None,
        restores: 0,
    };
    JobThread::start("fleet", JOBS_MAX, work, run, Work::due_in, Work::run_due)
}

/// Does a job. A loss that the job has found goes to the keeper, whoever waits for the job.
fn run(work: &mut Work, job: Job) -> Option<Done> {
    let done = run_job(work, job);
    work.found_loss().or(done)
}

fn run_job(work: &mut Work, job: Job) -> Option<Done> {
    // The job may have waited.
    let clocks = work.clocks();
    let member = &mut work.in_fleet.member;
    let done = match job {
        Job::Ask(Question(question)) => {
            question(work);
            return None;
        }
        Job::Range(wanted) => match member.take_range(wanted.source, wanted.count, wanted.generation) {
            Ok(range) => Done::Ranged(wanted, Ok(range)),
            Err(FleetError::NoAnswer(answer)) => Done::Ranged(wanted, Err(answer)),
            Err(loss) => work.lost(&loss),
        },
        Job::Raise { writer, number, bounds } => match member.raise(&bounds, clocks) {
            Ok(pause) => return work.step(Raising { writer, number, pause, due: os_clock::boot() }),
            Err(error) => work.raised(writer, number, Err(error)),
        },
    };
    Some(done)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard};

    use super::*;
    use crate::server::common::tests::common_of;
    use snowbank_core::clock::Reading;
    use snowbank_core::source::Rules;
    use snowbank_fleet::rules::Proof;
    use snowbank_fleet::{FleetLimits, Marker, Names, Notes, Paths, Swap, Swapped, Want};
    use snowbank_id::layout::{Layout, UnixMicros, WorkerSet};
    use snowbank_id::numbering::TicketCounter;
    use snowbank_state::new_identity;

    const NAMES: Names<'_> = Names { fleet: "f", state: "state", holder: "holder" };

    /// A coordinator that answers at once.
    #[derive(Clone)]
    pub(crate) struct Keys(Arc<Mutex<BTreeMap<String, String>>>);

    impl Keys {
        fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
            self.0.lock().unwrap()
        }

        /// Gives the key of one worker ID to another one.
        pub(crate) fn move_holder(&self, from: u64, to: u64) {
            let mut all = self.all();
            let end = format!("/{from}");
            let Some(key) = all.keys().find(|key| key.ends_with(&end)).cloned() else { return };
            let text = all.remove(&key).unwrap();
            all.insert(format!("{}/{to}", key.strip_suffix(&end).unwrap()), text);
        }
    }

    impl Coordinator for Keys {
        fn now(&self) -> BootMicros {
            os_clock::boot()
        }

        fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
            let all = self.all();
            Ok(keys.iter().map(|key| all.get(key).cloned()).collect())
        }

        fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
            let all = self.all();
            let found = all.iter().filter(|(key, _)| key.starts_with(prefix));
            Ok(found.map(|(key, text)| (key.clone(), text.clone())).collect())
        }

        fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
            let mut all = self.all();
            if swaps.iter().any(|swap| all.get(&swap.key) != swap.expected.as_ref()) {
                let found = swaps.iter().map(|swap| all.get(&swap.key).cloned());
                return Ok(Swapped::Refused(found.collect()));
            }
            let written = swaps.iter().filter_map(|swap| Some((swap.key.clone(), swap.text.clone()?)));
            all.extend(written);
            Ok(Swapped::Done)
        }
    }

    /// Returns the keys of a prepared fleet.
    fn prepared(layout: &Layout, limits: FleetLimits) -> Keys {
        let marker = Marker::new("1f", vec![layout.space().to_string()], limits);
        let all = BTreeMap::from([(Paths::of(NAMES.fleet).marker(), marker.text())]);
        Keys(Arc::new(Mutex::new(all)))
    }

    fn member_of(keys: &Keys, state: &str, limits: FleetLimits) -> FleetMember {
        let names = Names { state, ..NAMES };
        Member::new(Box::new(keys.clone()), names, limits, Notes::default(), new_identity)
    }

    /// Returns a daemon in a prepared fleet. It holds nothing yet.
    fn member(layout: &Layout, limits: FleetLimits) -> FleetMember {
        member_of(&prepared(layout, limits), NAMES.state, limits)
    }

    /// Starts a fleet thread in a prepared fleet, where another daemon holds a worker ID.
    pub(crate) fn start_beside_others(
        layout: &Layout,
        limits: FleetLimits,
        clocks: Clocks,
        held: u64,
    ) -> (Fleet, Keys) {
        let keys = prepared(layout, limits);
        let want = Want { index: 0, source: "orders", layout, clocks, proof: Proof::None };
        member_of(&keys, "other", limits).take(want, &WorkerSet::single(held)).unwrap();
        (started(member_of(&keys, NAMES.state, limits), clocks), keys)
    }

    /// Starts a fleet thread whose clocks stand still.
    pub(crate) fn started(member: FleetMember, clocks: Clocks) -> Fleet {
        let in_fleet = InFleet { member, pools: Vec::new(), certificate_ends_unix_s: Arc::default() };
        let counter = TicketCounter::new("orders", 1, 1).unwrap();
        let (common, _) = common_of(counter.into(), Rules::TICKETS);
        start(in_fleet, common, Box::new(move || clocks)).unwrap()
    }

    /// Starts a fleet thread in a prepared fleet.
    pub(crate) fn start_in_fleet(layout: &Layout, limits: FleetLimits, clocks: Clocks) -> Fleet {
        started(member(layout, limits), clocks)
    }

    #[test]
    fn a_raise_that_pauses_delays_no_other_job() {
        const LIMIT: Duration = Duration::from_secs(60);
        let clocks_at = |second: i64| {
            let wall = UnixMicros(1_800_000_000_000_000 + second * 1_000_000);
            Clocks::at(wall, Reading { wall, boot: BootMicros(0) })
        };
        let layout = Layout::resolve("twitter").unwrap();
        let limits = FleetLimits::new(Duration::from_secs(300), Duration::from_secs(10));
        let mut member = member(&layout, limits);
        let clocks = clocks_at(0);
        let want = Want { index: 0, source: "orders", layout: &layout, clocks, proof: Proof::None };
        let taken = member.take(want, &WorkerSet::single(5)).unwrap();
        // The bound has passed by now.
        let mut fleet = started(member, clocks_at(400));
        let bound = |by| Bound { source: 0, id_bound: taken.covered + by };
        let bounds = vec![(bound(1 << 40), 0)];
        fleet.send(Job::Raise { writer: 1, number: 7, bounds });
        let asks = fleet.asks();
        assert_eq!(asks.question(LIMIT, |work| work.raising.is_some()), Ok(true));
        assert!(fleet.take_done().is_empty(), "the raise pauses");
        // A stop gives the number back, so nothing is left to pause for.
        let given_back = [bound(0)];
        let given = asks.question(LIMIT, move |work| {
            let clocks = work.clocks();
            work.member().give_back(&given_back, &[], clocks, &|| true)
        });
        assert_eq!(given, Ok(Ok(())));
        let done = fleet.done.recv_timeout(LIMIT);
        assert!(
            matches!(&done, Ok(Done::Raised(outcome)) if outcome.number == 7 && outcome.failure.is_none()),
            "{done:?}"
        );
    }
}
