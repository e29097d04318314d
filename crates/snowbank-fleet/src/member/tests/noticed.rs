//! Tests: a holder notices a restore of the coordinator within the pause of a taker, whatever job
//! the holder does meanwhile. The restores come at moments spread over each job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::{CounterKey, Marker, NumberRange, POLL_PERIOD_MAX, POLL_PERIOD_MIN, noticed_within};
use snowbank_id::layout::WorkerSet;
use snowbank_id::numbering::{Numbering, TicketCounter};

/// The number of a daemon's sources.
const SOURCES: usize = 16;
/// A time after which the bounds of all sources have passed.
const OUTAGE: Duration = Duration::from_secs(400);
const COUNTER: &str = "tickets";
/// A horizon with the shortest poll period. So this horizon makes no pause longer.
const SHORT_HORIZON: Duration = Duration::from_secs(60);

/// The state of a coordinator whose answers take time.
struct World {
    keys: BTreeMap<String, String>,
    now: Duration,
    answer: Duration,
    /// The moment of the restore, and the older keys.
    restore: Option<(Duration, BTreeMap<String, String>)>,
    /// When the floor was raised.
    noticed: Option<Duration>,
    /// How many of the daemon's next writes to the counter fail, because another daemon writes
    /// first.
    rivals: u32,
    is_away: bool,
    stall: Option<Stall>,
}

/// A period without answers. The answers come at its end, or never if `is_outage` is true.
#[derive(Clone, Copy)]
struct Stall {
    from: Duration,
    to: Duration,
    is_outage: bool,
}

impl World {
    fn restore_if_due(&mut self) {
        if let Some((_, keys)) = self.restore.take_if(|(at, _)| *at < self.now) {
            self.keys = keys;
        }
    }

    fn await_answer(&mut self) -> Result<(), NoAnswer> {
        let asked_at = self.now;
        self.now += self.answer;
        let stall = self.stall.filter(|stall| self.now > stall.from && asked_at < stall.to);
        if self.is_away || stall.is_some_and(|stall| stall.is_outage) {
            return Err(NoAnswer::passing("away"));
        }
        self.now = self.now.max(stall.map_or(Duration::ZERO, |stall| stall.to));
        Ok(())
    }

    /// Returns the fleet's floor.
    fn floor(&self) -> UnixMicros {
        Marker::parse(&self.keys[&marker_key()]).unwrap().floor()
    }

    /// Takes a range for another daemon first, unless `rivals` is 0.
    fn outrun(&mut self, key: &str) {
        let Ok(counter) = CounterKey::parse(&self.keys[key]) else { return };
        if self.rivals > 0 {
            self.rivals -= 1;
            let range = NumberRange { from: counter.next, to: counter.next + 1 };
            let text = CounterKey::new(&counter.counter, range, &self.rivals.to_string(), "rival").text();
            self.keys.insert(key.to_owned(), text);
        }
    }
}

#[derive(Clone)]
struct Slow(Arc<Mutex<World>>);

impl AsMut<dyn Coordinator> for Slow {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Slow {
    fn hurry(&mut self) {}

    fn connections(&self) -> u64 {
        0
    }

    fn now(&self) -> BootMicros {
        BootMicros(0).after(self.0.lock().unwrap().now)
    }

    fn pause(&mut self, time: Duration) {
        self.0.lock().unwrap().now += time;
    }

    /// Reads the keys before the answer's delay, so that a restore is seen as late as possible.
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let mut world = self.0.lock().unwrap();
        world.restore_if_due();
        let read = keys.iter().map(|key| world.keys.get(key).cloned()).collect();
        world.await_answer()?;
        Ok(read)
    }

    /// There is one endpoint.
    fn read_at_each(&mut self, _: &str) -> Result<Vec<(String, Option<String>)>, String> {
        Ok(Vec::new())
    }

    fn set_cluster(&mut self, _: Option<Cluster>) {}

    fn list(&mut self, _: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        unreachable!("no job lists keys")
    }

    /// Writes the keys after the answer's delay.
    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut world = self.0.lock().unwrap();
        world.await_answer()?;
        world.restore_if_due();
        world.outrun(&swaps[0].key);
        let swapped = apply(&mut world.keys, swaps);
        if world.floor() > UnixMicros(0) {
            let now = world.now;
            world.noticed.get_or_insert(now);
        }
        Ok(swapped)
    }
}

/// Returns the want of a daemon with a short horizon, so that only the marker's period sets the
/// pause.
fn want(wall: UnixMicros, is_proven: bool) -> Want<'static> {
    Want { horizon: SHORT_HORIZON, ..super::want(wall, is_proven) }
}

/// Returns a member that holds nothing yet.
fn member(world: &Slow, notes: Notes) -> Member<Slow> {
    Member::new(world.clone(), names("state"), notes, new_identity)
}

/// Returns the clocks this long after the beginning.
fn after(time: Duration) -> Clocks {
    clocks(WALL).at_boot(BootMicros(0).after(time))
}

/// Returns the names of the sources, and their worker IDs. The last source has the lowest worker
/// ID.
fn sources() -> impl Iterator<Item = (String, WorkerSet)> {
    (0..SOURCES).map(|index| (format!("source-{index}"), WorkerSet::single((SOURCES - 1 - index) as u64)))
}

fn add_counter(member: &mut Member<Slow>) {
    let numbering = Numbering::from(TicketCounter::new(COUNTER, 1, 1).unwrap());
    member.add_counter(SOURCES, COUNTER, &numbering, 0);
}

/// The poll period and the time for an answer.
#[derive(Clone, Copy, Debug)]
struct Pace {
    period: Duration,
    answer: Duration,
}

/// Returns the paces to try.
fn paces() -> impl Iterator<Item = Pace> {
    let periods = [POLL_PERIOD_MIN, POLL_PERIOD_MAX];
    let answers = [10, 200].map(Duration::from_millis);
    periods.into_iter().flat_map(move |period| answers.map(|answer| Pace { period, answer }))
}

/// Returns the coordinator of a prepared fleet.
fn world(Pace { period, answer }: Pace) -> Slow {
    let layout = twitter();
    let paths = Paths::of("f");
    let mut marker = Marker::new("1f", vec![layout.space().to_string()]).polled_each(period);
    marker.lengthen_reach(rules::reach(HORIZON, MAX_AHEAD));
    let first = NumberRange { from: 1, to: 1 };
    let counter = CounterKey::new("c", first, "first", "nobody").text();
    let keys = BTreeMap::from([(paths.marker(), marker.text()), (paths.counter(COUNTER), counter)]);
    let (now, restore, noticed, rivals, is_away, stall) = Default::default();
    let world = World { keys, now, answer, restore, noticed, rivals, is_away, stall };
    Slow(Arc::new(Mutex::new(world)))
}

/// A daemon with many sources. `backup` has the keys without the last bounds of these sources.
struct Holder {
    member: Member<Slow>,
    world: Slow,
    backup: BTreeMap<String, String>,
    pool: Pool,
    covered: u64,
}

impl Holder {
    fn new(pace: Pace) -> Holder {
        let world = world(pace);
        let mut member = member(&world, Notes::default());
        let mut taken = Vec::new();
        for (index, (source, worker_id)) in sources().enumerate() {
            let want = Want { index, source: &source, ..want(WALL, false) };
            taken.push(Some(member.take(want, &worker_id).unwrap()));
        }
        member.settle(&mut taken, clocks(WALL)).unwrap();
        let covered = taken[SOURCES - 1].as_ref().unwrap().covered;
        add_counter(&mut member);
        let backup = world.0.lock().unwrap().keys.clone();
        let pool = Pool::new(0, (0..1_024).collect());
        let mut holder = Holder { member, world, backup, pool, covered };
        assert_eq!(holder.raise(1, Duration::ZERO), Ok(()));
        holder
    }

    /// Kills the daemon, and starts another with the same notes in an outage. That daemon goes on
    /// without asking, and its first check has no answer. A later restore loses only a write of the
    /// last source.
    fn start_in_outage(&mut self, later: Duration) {
        self.backup = self.world.0.lock().unwrap().keys.clone();
        let last = Bound { source: SOURCES - 1, id_bound: self.covered + 2 };
        assert_eq!(self.member.raise(&[last], 0, clocks(WALL)), Ok(()));
        self.member = member(&self.world, self.member.notes().clone());
        for (index, (source, worker_id)) in sources().enumerate() {
            let want = Want { index, source: &source, ..want(WALL, true) };
            self.member.resume_at_once(want, &worker_id).unwrap();
        }
        add_counter(&mut self.member);
        self.world.0.lock().unwrap().is_away = true;
        assert!(matches!(self.check(later), Err(FleetError::NoAnswer(_))));
        self.world.0.lock().unwrap().is_away = false;
    }

    /// Raises the bounds of all sources.
    fn raise(&mut self, by: u64, later: Duration) -> Result<(), FleetError> {
        let id_bound = self.covered + by;
        let bounds: Vec<Bound> = (0..SOURCES).map(|source| Bound { source, id_bound }).collect();
        self.member.raise(&bounds, 0, after(later))
    }

    fn check(&mut self, later: Duration) -> Result<(), FleetError> {
        let checked = self.member.check(after(later));
        if checked == Ok(()) {
            let _ = self.member.count_on(&mut self.pool, clocks(WALL));
        }
        checked
    }

    fn now(&self) -> Duration {
        self.world.0.lock().unwrap().now
    }
}

/// The daemon's check before the job.
#[derive(Clone, Copy, Debug)]
enum Before {
    Check,
    /// The first check, without an answer.
    UnansweredCheck,
}

/// A job of the fleet thread.
#[derive(Clone, Copy, Debug)]
enum Job {
    Nothing,
    /// A raise for many sources.
    Raise,
    /// A raise of bounds that have passed, which includes a pause.
    RaiseAfterOutage,
    /// A range of a counter, after other daemons have taken many ranges.
    Range,
}

impl Job {
    fn later(self) -> Duration {
        if matches!(self, Job::RaiseAfterOutage) { OUTAGE } else { Duration::ZERO }
    }

    fn run(self, holder: &mut Holder) -> Result<(), FleetError> {
        match self {
            Job::Nothing => Ok(()),
            Job::Raise | Job::RaiseAfterOutage => holder.raise(1 << 40, self.later()),
            Job::Range => {
                holder.world.0.lock().unwrap().rivals = 60;
                holder.member.take_range(SOURCES, 1_000, 0).map(drop)
            }
        }
    }
}

/// Restores the coordinator this long after the beginning of a check, or after the end of an
/// outage. The job follows. Returns the time from the restore until the floor is raised, and
/// whether the last check began after the restore.
fn notice(before: Before, job: Job, pace: Pace, restored_after: Duration) -> (Duration, bool) {
    let Pace { period, answer } = pace;
    let mut holder = Holder::new(pace);
    if matches!(before, Before::UnansweredCheck) {
        holder.start_in_outage(job.later());
    }
    let restored_at = holder.now() + restored_after;
    let backup = holder.backup.clone();
    holder.world.0.lock().unwrap().restore = Some((restored_at, backup));
    let mut checked_at = holder.now();
    let mut ended = match before {
        Before::Check => holder.check(job.later()),
        Before::UnansweredCheck => Ok(()),
    };
    let mut is_job_done = false;
    while !is_lost(&ended) {
        if std::mem::replace(&mut is_job_done, true) {
            let now = holder.now();
            holder.member.coordinator.pause((checked_at + period).saturating_sub(now));
            checked_at = holder.now();
            ended = holder.check(job.later());
        } else {
            // The job begins shortly before the next poll is due.
            holder.member.coordinator.pause(period - 2 * answer - Duration::from_millis(1));
            ended = job.run(&mut holder);
        }
        assert!(ended.is_ok() || is_lost(&ended), "{ended:?}");
    }
    let noticed = holder.world.0.lock().unwrap().noticed.expect("the floor was raised");
    (noticed - restored_at, checked_at >= restored_at)
}

#[test]
fn a_restore_at_any_moment_is_noticed_within_a_takers_pause() {
    for before in [Before::Check, Before::UnansweredCheck] {
        for job in [Job::Nothing, Job::Raise, Job::RaiseAfterOutage, Job::Range] {
            for pace in paces() {
                let slowest = slowest(before, job, pace);
                eprintln!("{before:?}, {job:?}, {pace:?}: noticed within {slowest:?}");
                assert!(slowest <= noticed_within(pace.period, pace.answer));
            }
        }
    }
}

/// Returns the longest time until a restore is noticed, over all moments of the restore.
fn slowest(before: Before, job: Job, pace: Pace) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut after = Duration::ZERO;
    loop {
        let (noticed, is_over) = notice(before, job, pace, after);
        slowest = slowest.max(noticed);
        if is_over && after > pace.period * 2 {
            return slowest;
        }
        after += pace.period / 10;
    }
}

/// The only daemon that has lost a write is in the pause of its start.
#[test]
fn a_taker_notices_a_restore_within_another_takers_pause() {
    for pace in paces() {
        let pause = noticed_within(pace.period, pace.answer);
        for part in 0..=10 {
            let after = pause * part / 10;
            let world = world(pace);
            let backup = world.0.lock().unwrap().keys.clone();
            let mut taker = member(&world, Notes::default());
            let mut taken = [taker.take(want(WALL, false), &five()).ok()];
            let restored_at = world.0.lock().unwrap().now + after;
            world.0.lock().unwrap().restore = Some((restored_at, backup));
            let settled = taker.settle(&mut taken, clocks(WALL));
            let noticed = world.0.lock().unwrap().noticed;
            if settled.is_err() {
                let within = noticed.expect("the floor was raised") - restored_at;
                assert!(within <= pause, "{pace:?}, {after:?} after the write: noticed after {within:?}");
            } else {
                assert!(after + pace.answer >= pause, "{pace:?}: missed a restore {after:?} after the write");
            }
        }
    }
}

/// Daemons poll at the marker's period, whatever the taker's horizon is. But a restore may bring
/// back an earlier marker. Then the daemons of the lost marker still poll at the lost marker's
/// period, which may be longer.
#[test]
fn a_pause_covers_the_periods_of_the_marker_and_a_lost_marker() {
    let answer = Duration::from_millis(10);
    for (period, horizon) in [(POLL_PERIOD_MAX, SHORT_HORIZON), (POLL_PERIOD_MIN, HORIZON)] {
        let world = world(Pace { period, answer });
        let mut taker = member(&world, Notes::default());
        let mut taken = [taker.take(Want { horizon, ..want(WALL, false) }, &five()).ok()];
        taker.settle(&mut taken, clocks(WALL)).unwrap();
        let paused = world.0.lock().unwrap().now;
        let needed = noticed_within(period.max(crate::poll_period(horizon)), answer);
        assert!(paused >= needed, "{horizon:?}: {paused:?}");
    }
}

#[test]
fn a_start_compares_its_keys_again_after_its_pause() {
    for pace in paces() {
        let world = world(pace);
        let mut taker = member(&world, Notes::default());
        let mut taken = [taker.take(want(WALL, false), &five()).ok()];
        taker.settle(&mut taken, clocks(WALL)).unwrap();
        taker.check_taken(clocks(WALL)).unwrap();
        world.0.lock().unwrap().keys.remove(&key_five());
        let checked = taker.check_taken(clocks(WALL));
        assert!(matches!(checked, Err(FleetError::WentBack(_))), "{pace:?}: {checked:?}");
    }
}

/// Takes number 5, and stalls the coordinator during the pause. Returns how long the pause lasted.
fn pause_with_stall(pace: Pace, after: Duration, lasts: Duration, is_outage: bool) -> Duration {
    let world = world(pace);
    let mut taker = member(&world, Notes::default());
    let mut taken = [taker.take(want(WALL, false), &five()).ok()];
    let began = world.0.lock().unwrap().now;
    let from = began + after;
    world.0.lock().unwrap().stall = Some(Stall { from, to: from + lasts, is_outage });
    let settled = taker.settle(&mut taken, clocks(WALL));
    assert!(settled.is_ok(), "{pace:?}, {lasts:?} after {after:?}: {settled:?}");
    let ended = world.0.lock().unwrap().now;
    ended - began
}

/// The stall delays holders too: the last answer before the restore may come at the end of the
/// stall.
#[test]
fn a_pause_lasts_longer_if_answers_become_slow_in_it() {
    for pace in paces() {
        let pause = noticed_within(pace.period, pace.answer);
        for lasts in [500, 1_000, 2_000, 4_000].map(Duration::from_millis) {
            for part in 0..10 {
                for is_outage in [false, true] {
                    let after = pause * part / 10;
                    let lasted = pause_with_stall(pace, after, lasts, is_outage);
                    assert!(
                        lasted >= pause.max(pace.period + lasts),
                        "{pace:?}, {lasts:?} after {after:?}: {lasted:?}"
                    );
                }
            }
        }
    }
}

/// The job waited for other jobs, or the machine slept.
#[test]
fn a_queued_job_adds_its_waiting_time_to_its_clocks() {
    for pace in paces() {
        let mut holder = Holder::new(pace);
        holder.world.0.lock().unwrap().now += OUTAGE;
        let began = holder.now();
        assert_eq!(holder.raise(1 << 40, Duration::ZERO), Ok(()));
        let paused = holder.now() - began;
        assert!(
            paused >= noticed_within(pace.period, pace.answer),
            "no pause after the bound has passed: {paused:?}"
        );

        let mut holder = Holder::new(pace);
        let backup = holder.backup.clone();
        holder.world.0.lock().unwrap().keys = backup;
        holder.world.0.lock().unwrap().now += OUTAGE;
        assert!(is_lost(&holder.check(Duration::ZERO)));
        let floor = holder.world.0.lock().unwrap().floor();
        let ahead = Duration::from_micros((floor.0 - WALL.0).unsigned_abs());
        assert!(ahead >= OUTAGE + rules::reach(HORIZON, MAX_AHEAD), "the floor is only {ahead:?} ahead");
    }
}
