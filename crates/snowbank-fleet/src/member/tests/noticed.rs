//! Tests: a holder notices a restore of the coordinator within the pause of a taker, whatever job
//! the holder does meanwhile. The restores come at moments spread over each job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::notice::{CONNECTING, SWAP};
use crate::{CounterKey, Marker, NUMBERS_MAX, NoteStore, NumberRange, POLL_PERIOD, noticed_within};
use snowbank_id::layout::WorkerSet;
use snowbank_id::numbering::{Numbering, TicketCounter};
use snowbank_state::StateError;

/// The number of a daemon's sources.
const SOURCES: usize = 16;
/// A time after which the bounds of all sources have passed.
const OUTAGE: Duration = Duration::from_secs(400);
const COUNTER: &str = "tickets";

/// The state of a coordinator whose answers take time.
struct World {
    keys: BTreeMap<String, String>,
    now: Duration,
    /// The time of each message.
    answer: Duration,
    /// The time of each sync of the disk.
    sync: Duration,
    /// When the sync that is under way ends, and when the last notes will be durable.
    synced_at: Duration,
    durable_at: Duration,
    is_connected: bool,
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
            self.is_connected = false;
        }
    }

    /// Waits for the answers to this many messages, and connects first if that is necessary.
    fn await_answers(&mut self, messages: u32) -> Result<(), NoAnswer> {
        let asked_at = self.now;
        let connecting = if std::mem::replace(&mut self.is_connected, true) { 0 } else { CONNECTING };
        self.now += self.answer * (messages + connecting);
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

impl Waits for Slow {
    fn wait(&mut self, time: Duration) {
        self.0.lock().unwrap().now += time;
    }
}

impl AsMut<dyn Coordinator> for Slow {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Slow {
    fn now(&self) -> BootMicros {
        BootMicros(0).after(self.0.lock().unwrap().now)
    }

    /// Reads the keys before the answer's delay, so that a restore is seen as late as possible.
    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let mut world = self.0.lock().unwrap();
        world.restore_if_due();
        let read = keys.iter().map(|key| world.keys.get(key).cloned()).collect();
        world.await_answers(1)?;
        Ok(read)
    }

    fn list(&mut self, _: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        unreachable!("no job lists keys")
    }

    /// Writes the keys after the answer's delay.
    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let mut world = self.0.lock().unwrap();
        world.restore_if_due();
        world.await_answers(SWAP)?;
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

/// A disk whose syncs take time, as the notes see it.
struct SlowDisk(Slow);

impl std::fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a slow disk")
    }
}

impl NoteStore for SlowDisk {
    fn begin(&self, _: Notes) {
        let mut world = self.0.0.lock().unwrap();
        if world.synced_at <= world.now {
            world.synced_at = world.durable_at.max(world.now);
        }
        // Notes that came during a sync are written together after it.
        if world.synced_at <= world.now {
            world.synced_at = world.now + world.sync;
            world.durable_at = world.synced_at;
        } else {
            world.durable_at = world.synced_at + world.sync;
        }
    }

    fn wait(&self, limit: Duration) -> Result<bool, StateError> {
        let mut world = self.0.0.lock().unwrap();
        let until = world.durable_at.min(world.now + limit);
        world.now = world.now.max(until);
        Ok(world.now >= world.durable_at)
    }
}

/// Returns a member that holds nothing yet.
fn member(world: &Slow, notes: Notes) -> Member<Slow> {
    let notes = notes.kept_in(Some(Arc::new(SlowDisk(world.clone()))));
    Member::new(world.clone(), names("state"), limits(), notes, new_identity)
}

/// Returns the clocks this long after the beginning.
fn after(time: Duration) -> Clocks {
    clocks(WALL).at_boot(BootMicros(0).after(time))
}

/// Returns the names of the sources, and their worker IDs: together as many as a daemon may have.
/// The last source has the lowest worker ID.
fn sources() -> impl Iterator<Item = (String, WorkerSet)> {
    (0..SOURCES).map(|index| {
        let first = (SOURCES - 1 - index) as u64;
        let end = if index == 0 { NUMBERS_MAX as u64 } else { first + 1 };
        (format!("source-{index}"), WorkerSet::from_list(first..end).unwrap())
    })
}

fn add_counter(member: &mut Member<Slow>) {
    let numbering = Numbering::from(TicketCounter::new(COUNTER, 1, 1).unwrap());
    member.add_counter(SOURCES, COUNTER, &numbering, 0);
}

/// The time of each answer, and of each sync of the disk.
#[derive(Clone, Copy, Debug)]
struct Pace {
    answer: Duration,
    sync: Duration,
}

/// Returns the paces to try.
fn paces() -> impl Iterator<Item = Pace> {
    [(10, 0), (10, 1_400), (200, 0), (200, 400)].into_iter().map(|(answer, sync)| Pace {
        answer: Duration::from_millis(answer),
        sync: Duration::from_millis(sync),
    })
}

/// Returns the coordinator of a prepared fleet.
fn world(Pace { answer, sync }: Pace) -> Slow {
    let layout = twitter();
    let paths = Paths::of("f");
    let marker = Marker::new("1f", vec![layout.space().to_string()], limits());
    let first = NumberRange { from: 1, to: 1 };
    let counter = CounterKey::new("c", first, "first", "nobody").text();
    let keys = BTreeMap::from([(paths.marker(), marker.text()), (paths.counter(COUNTER), counter)]);
    let (now, synced_at, durable_at, is_connected, restore) = Default::default();
    let (noticed, rivals, is_away, stall) = Default::default();
    let world = World {
        keys,
        now,
        answer,
        sync,
        synced_at,
        durable_at,
        is_connected,
        restore,
        noticed,
        rivals,
        is_away,
        stall,
    };
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
        settle(&mut member, &mut taken, clocks(WALL)).unwrap();
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
        assert_eq!(raised(&mut self.member, &[(last, 0)], clocks(WALL)), Ok(()));
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
        let bounds: Vec<_> = (0..SOURCES).map(|source| (Bound { source, id_bound }, 0)).collect();
        raised(&mut self.member, &bounds, after(later))
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
            holder.member.coordinator.wait((checked_at + POLL_PERIOD).saturating_sub(now));
            checked_at = holder.now();
            ended = holder.check(job.later());
        } else {
            // The job begins shortly before the next poll is due.
            let now = holder.now();
            let due = checked_at + POLL_PERIOD - Duration::from_millis(1);
            holder.member.coordinator.wait(due.saturating_sub(now));
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
                assert!(slowest <= noticed_within(pace.answer));
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
        if is_over && after > POLL_PERIOD * 2 {
            return slowest;
        }
        after += POLL_PERIOD / 10;
    }
}

/// The only daemon that has lost a write is in the pause of its start.
#[test]
fn a_taker_notices_a_restore_within_another_takers_pause() {
    for pace in paces() {
        let pause = noticed_within(pace.answer);
        for part in 0..=10 {
            let after = pause * part / 10;
            let world = world(pace);
            let backup = world.0.lock().unwrap().keys.clone();
            let mut taker = member(&world, Notes::default());
            let mut taken = [taker.take(want(WALL, false), &five()).ok()];
            let restored_at = world.0.lock().unwrap().now + after;
            world.0.lock().unwrap().restore = Some((restored_at, backup));
            let settled = settle(&mut taker, &mut taken, clocks(WALL));
            let noticed = world.0.lock().unwrap().noticed;
            if settled.is_err() {
                let within = noticed.expect("the floor was raised") - restored_at;
                assert!(within <= pause, "{pace:?}, {after:?} after the write: noticed after {within:?}");
            } else {
                assert!(
                    after + SWAP * pace.answer >= pause,
                    "{pace:?}: missed a restore {after:?} after the write"
                );
            }
        }
    }
}

/// One source serves. Another one starts, or raises its bound, which has passed. The raise of the
/// first one comes between two steps of the pause, and makes the next question late.
#[test]
fn a_raise_does_not_wait_behind_a_pause() {
    for (pace, is_start) in paces().flat_map(|pace| [(pace, true), (pace, false)]) {
        let world = world(pace);
        let mut daemon = member(&world, Notes::default());
        let mut taken = [daemon.take(want(WALL, false), &five()).ok()];
        settle(&mut daemon, &mut taken, clocks(WALL)).unwrap();
        let raise = |source, by| [(Bound { source, id_bound: taken[0].as_ref().unwrap().covered + by }, 0)];
        let (mut pause, now) = if is_start {
            daemon.begin_start([1]);
            let six = Want { index: 1, source: "six", ..want(WALL, false) };
            daemon.take(six, &WorkerSet::single(6)).unwrap();
            (Pause::of(vec![1]), clocks(WALL))
        } else {
            let six = Want { index: 1, source: "six", ..want(at(WALL, -100), false) };
            let mut taken = [None, daemon.take(six, &WorkerSet::single(6)).ok()];
            settle(&mut daemon, &mut taken, clocks(at(WALL, -100))).unwrap();
            let later = clocks(at(WALL, 210));
            assert_eq!(raised(&mut daemon, &raise(0, 1 << 40), clocks(at(WALL, 200))), Ok(()));
            (daemon.raise(&raise(1, 1 << 40), later).unwrap(), later)
        };
        let time = || world.0.lock().unwrap().now;
        let (began, mut late) = (time(), Duration::ZERO);
        loop {
            let step_began = time();
            let step = daemon.settle(&mut pause, now).unwrap();
            let took = time() - step_began;
            assert!(took <= pace.answer * (2 * SWAP + 2), "{pace:?}: a step took {took:?}");
            let Some(due_in) = step else { break };
            daemon.coordinator.wait(due_in);
            if late.is_zero() {
                let raise_began = time();
                assert_eq!(raised(&mut daemon, &raise(0, (1 << 40) + 1), now), Ok(()));
                late = time() - raise_began;
            }
        }
        let paused = time() - began;
        assert!(paused >= noticed_within(late), "{pace:?}: {paused:?}, with a question late by {late:?}");
    }
}

/// Another daemon takes the number before the bound is raised, and the coordinator loses that. So
/// the daemon must not go on before the other one had the time to notice.
#[test]
fn a_stop_and_a_loss_are_seen_in_the_pause_of_a_raise() {
    let world = world(Pace { answer: Duration::from_millis(10), sync: Duration::ZERO });
    let mut daemon = member(&world, Notes::default());
    let mut taken = [daemon.take(want(WALL, false), &five()).ok()];
    settle(&mut daemon, &mut taken, clocks(WALL)).unwrap();
    let covered = taken[0].as_ref().unwrap().covered;
    let now = after(OUTAGE);
    let raise = [(Bound { source: 0, id_bound: covered + (1 << 40) }, 0)];
    let mut pause = daemon.raise(&raise, now).unwrap();
    assert!(matches!(daemon.settle(&mut pause, now), Ok(Some(_))));
    let (mut lost, keys) = (daemon.clone(), world.0.lock().unwrap().keys.clone());

    let bound = Bound { source: 0, id_bound: covered };
    assert_eq!(daemon.give_back(&[bound], &[], now, &|| true), Ok(()));
    assert_eq!(daemon.settle(&mut pause.clone(), now), Ok(None), "what goes back pauses no longer");
    let again =
        member(&world, daemon.notes().clone()).take(Want { clocks: now, ..want(WALL, true) }, &five());
    assert!(again.is_ok_and(|taken| taken.is_new), "the next start pauses");

    world.0.lock().unwrap().keys = keys;
    world.0.lock().unwrap().keys.remove(&key_five());
    assert!(is_lost(&lost.check(now)));
    assert!(is_lost(&lost.settle(&mut pause, now).map(drop)));
}

/// The clock passes the bound while the release is under way. Another daemon may take the number then,
/// and the coordinator may lose that before it does the release.
#[test]
fn a_bound_that_passes_during_its_release_is_paused_for() {
    for is_ahead in [true, false] {
        let world = world(Pace { answer: Duration::from_millis(10), sync: Duration::ZERO });
        let mut daemon = member(&world, Notes::default());
        let mut taken = [daemon.take(want(WALL, false), &five()).ok()];
        settle(&mut daemon, &mut taken, clocks(WALL)).unwrap();
        let covered = taken[0].as_ref().unwrap().covered;
        let until = rules::instant_of(&numbering(), covered);
        let before = clock::micros(2 * MAX_AHEAD) + if is_ahead { 1_000_000 } else { 1_000 };
        let boot = BootMicros(0).after(world.0.lock().unwrap().now);
        let wall = UnixMicros(until.0 - before);
        let now = Clocks { boot, ..clocks(wall) };
        let id_bound = numbering().id_bound(numbering().first_of(numbering().tick_at(wall)));
        assert_eq!(daemon.give_back(&[Bound { source: 0, id_bound }], &[], now, &|| true), Ok(()));
        let want = Want { clocks: now, ..want(WALL, true) };
        let again = member(&world, daemon.notes().clone()).take(want, &five());
        assert_eq!(again.map(|taken| taken.is_new), Ok(!is_ahead));
    }
}

#[test]
fn a_start_compares_its_keys_again_after_its_pause() {
    for pace in paces() {
        let world = world(pace);
        let mut taker = member(&world, Notes::default());
        let mut taken = [taker.take(want(WALL, false), &five()).ok()];
        settle(&mut taker, &mut taken, clocks(WALL)).unwrap();
        taker.check_taken(&[0], clocks(WALL)).unwrap();
        world.0.lock().unwrap().keys.remove(&key_five());
        let checked = taker.check_taken(&[0], clocks(WALL));
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
    let settled = settle(&mut taker, &mut taken, clocks(WALL));
    assert!(settled.is_ok(), "{pace:?}, {lasts:?} after {after:?}: {settled:?}");
    let ended = world.0.lock().unwrap().now;
    ended - began
}

/// The stall delays holders too: the last answer before the restore may come at the end of the
/// stall.
#[test]
fn a_pause_lasts_longer_if_answers_become_slow_in_it() {
    for pace in paces() {
        let pause = noticed_within(pace.answer);
        for lasts in [500, 1_000, 2_000, 3_000].map(Duration::from_millis) {
            for part in 0..10 {
                for is_outage in [false, true] {
                    let after = pause * part / 10;
                    let lasted = pause_with_stall(pace, after, lasts, is_outage);
                    assert!(
                        lasted >= pause.max(POLL_PERIOD + lasts),
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
        assert!(paused >= noticed_within(pace.answer), "no pause after the bound has passed: {paused:?}");

        let mut holder = Holder::new(pace);
        let backup = holder.backup.clone();
        holder.world.0.lock().unwrap().keys = backup;
        holder.world.0.lock().unwrap().now += OUTAGE;
        assert!(is_lost(&holder.check(Duration::ZERO)));
        let floor = holder.world.0.lock().unwrap().floor();
        let ahead = Duration::from_micros((floor.0 - WALL.0).unsigned_abs());
        assert!(ahead >= OUTAGE + limits().reach(), "the floor is only {ahead:?} ahead");
    }
}

/// A reload, for example, makes the daemon look early.
#[test]
fn no_call_before_its_time_shortens_a_pause() {
    let world = world(Pace { answer: Duration::ZERO, sync: Duration::ZERO });
    let mut taker = member(&world, Notes::default());
    taker.take(want(WALL, false), &five()).unwrap();
    let mut pause = Pause::of(vec![0]);
    let mut passed = Duration::ZERO;
    while let Some(due_in) = taker.settle(&mut pause, clocks(WALL)).unwrap() {
        assert_eq!(taker.settle(&mut pause, clocks(WALL)).unwrap(), Some(due_in));
        let early = due_in / 2;
        taker.coordinator.wait(early);
        passed += early;
    }
    assert!(passed >= noticed_within(Duration::ZERO), "{passed:?}");
}

/// A slow disk may keep the thread that asks.
#[test]
fn a_pause_that_fails_says_whether_its_question_was_late() {
    let world = world(Pace { answer: Duration::from_millis(10), sync: Duration::ZERO });
    let mut taker = member(&world, Notes::default());
    taker.take(want(WALL, false), &five()).unwrap();
    let mut pause = Pause::of(vec![0]);
    let due_in = taker.settle(&mut pause, clocks(WALL)).unwrap().unwrap();
    taker.coordinator.wait(due_in + Duration::from_secs(60));
    let failed = taker.settle(&mut pause, clocks(WALL)).unwrap_err().reason();
    assert!(failed.contains("a question was 60.0s late, and its answer took 20.0ms"), "{failed}");
}
