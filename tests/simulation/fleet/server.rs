//! The simulated coordinator, and the faults of its network.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use snowbank_core::clock::BootMicros;
use snowbank_fleet::{
    CONNECTING, Coordinator, Marker, NoAnswer, NoteStore, Notes, POLL_PERIOD, Paths, SWAP, Swap, Swapped,
};
use snowbank_id::layout::UnixMicros;
use snowbank_state::StateError;
use std::time::Duration;

use super::FLEET;

/// The most keys of one message. etcd accepts few more.
const KEYS_MAX: usize = 101;

pub(crate) type Keys = BTreeMap<String, String>;

/// The coordinator, with the faults of its network.
#[derive(Clone)]
pub(crate) struct Server {
    /// True if reads may return old values, as at ZooKeeper. At etcd they never do.
    reads_lag: bool,
    pub(crate) keys: Keys,
    /// The keys as they were some writes ago.
    pub(crate) older: Keys,
    pub(crate) writes: u64,
    /// True from a restore that lost a write until the loss is noticed.
    pub(crate) lost_writes: bool,
    /// While `lost_writes` is true: the terms of the worker IDs whose writes were lost by restores.
    pub(crate) lost_terms: Vec<String>,
    /// How many of the next calls get no answer.
    cut_off: u32,
    /// The time that each message takes.
    answer_time: Duration,
    /// The longest time in which a daemon so far would have noticed a restore.
    noticed_within: Duration,
    /// Writes in flight.
    pub(crate) late: Vec<Vec<Swap>>,
    pub(crate) is_away: bool,
    /// True while the machine that calls is cut off.
    pub(crate) is_cut_off: bool,
    /// True if no answer is lost, no write is late and no read is old, except while the coordinator
    /// is away.
    pub(crate) is_reliable: bool,
    pub(crate) rng: fastrand::Rng,
}

impl Server {
    pub(crate) fn new(reads_lag: bool, mut rng: fastrand::Rng) -> Server {
        Server {
            answer_time: Duration::from_millis(rng.u64(..300)),
            noticed_within: Duration::ZERO,
            reads_lag,
            keys: Keys::new(),
            older: Keys::new(),
            writes: 0,
            lost_writes: false,
            lost_terms: Vec::new(),
            cut_off: 0,
            late: Vec::new(),
            is_away: false,
            is_cut_off: false,
            is_reliable: false,
            rng,
        }
    }

    pub(crate) fn apply(&mut self, swaps: &[Swap]) -> Swapped {
        let stored = |key: &str| self.keys.get(key).cloned();
        if swaps.iter().any(|swap| stored(&swap.key) != swap.expected) {
            return Swapped::Refused(swaps.iter().map(|swap| stored(&swap.key)).collect());
        }
        if self.rng.bool() {
            self.older.clone_from(&self.keys);
        }
        self.writes += 1;
        for Swap { key, text, .. } in swaps {
            if let Some(text) = text {
                // A daemon that has noticed the loss raises the floor.
                let floor =
                    |text: &String| Marker::parse(text).map_or(UnixMicros(0), |marker| marker.floor());
                let is_raised = self.keys.get(key).is_some_and(|before| floor(text) > floor(before));
                if is_raised {
                    self.find_losses();
                }
                self.keys.insert(key.clone(), text.clone());
            }
        }
        Swapped::Done
    }

    /// Records that a daemon has noticed the loss of writes by a restore.
    pub(crate) fn find_losses(&mut self) {
        self.lost_writes = false;
        self.lost_terms.clear();
    }

    /// Changes the leader: each write in flight is either done at once, or never done.
    pub(crate) fn change_leader(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        self.rng.shuffle(&mut late);
        for swaps in late {
            if self.rng.bool() {
                self.apply(&swaps);
            }
        }
    }

    /// Counts a call. Returns an error if the caller is cut off.
    fn pass(&mut self) -> Result<(), NoAnswer> {
        let is_cut_off = self.is_cut_off || self.cut_off > 0;
        self.cut_off = self.cut_off.saturating_sub(1);
        if is_cut_off { Err(NoAnswer::passing("cut off")) } else { Ok(()) }
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        self.pass()?;
        match self.rng.u8(..10) {
            _ if self.is_away => Err(NoAnswer::passing("away")),
            _ if self.is_reliable => Ok(self.apply(swaps)),
            0 => Err(NoAnswer::passing("lost on the way there")),
            1 => {
                self.apply(swaps);
                Err(NoAnswer::passing("lost on the way back"))
            }
            2 => {
                self.late.push(swaps.to_vec());
                Err(NoAnswer::passing("late"))
            }
            _ => Ok(self.apply(swaps)),
        }
    }

    /// Returns the keys as a read sees them.
    fn seen(&mut self) -> Result<&Keys, NoAnswer> {
        self.pass()?;
        match self.rng.u8(..12) {
            _ if self.is_away => Err(NoAnswer::passing("away")),
            _ if self.is_reliable => Ok(&self.keys),
            0 => Err(NoAnswer::passing("lost")),
            1 if self.reads_lag => Ok(&self.older),
            _ => Ok(&self.keys),
        }
    }
}

/// A daemon's connection to the coordinator. Clones share one clock, as a daemon and the world do.
#[derive(Clone)]
pub(crate) struct Link {
    server: Arc<Mutex<Server>>,
    opened: u64,
    times: Arc<Mutex<Times>>,
}

/// The times of a daemon, by its own clock, which counts only its waits for answers and syncs, and
/// the time between its polls.
#[derive(Default)]
struct Times {
    now: Duration,
    /// When the daemon last wrote. In the pause of a raise, when the raise did.
    written: Duration,
    /// When the last call that compared a key began, by the key.
    compared: BTreeMap<String, Duration>,
    /// When the last check began.
    checked: Duration,
    is_connected: bool,
}

impl Times {
    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

impl Link {
    pub(crate) fn to(server: Server) -> Link {
        Link { server: Arc::new(Mutex::new(server)), opened: 0, times: Arc::default() }
    }

    /// Returns another daemon's connection to the same coordinator.
    pub(crate) fn another(&self) -> Link {
        Link { server: Arc::clone(&self.server), opened: 0, times: Arc::default() }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("one thread")
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().expect("one thread")
    }

    /// Lets time pass until the daemon's next job, at most until its next check is due. `part` of 1
    /// is a check, and a smaller part is another job.
    pub(crate) fn idle(&self, part: f64) {
        let mut times = self.times();
        let due_in = (times.checked + POLL_PERIOD).saturating_sub(times.now);
        times.pass(due_in.mul_f64(part));
        if part >= 1.0 {
            times.checked = times.now;
        }
    }

    /// Lets the time between two steps of a pause pass.
    ///
    /// A daemon that lost a write notices the loss in the time that its polls take. If that time
    /// has passed since the pausing daemon's last write, and no daemon has noticed the loss, the
    /// pausing daemon is cut off at the end of its pause.
    pub(crate) fn pause(&self, time: Duration) {
        let since_write = {
            let mut times = self.times();
            times.pass(time);
            times.now - times.written
        };
        let mut server = self.server();
        // As many calls as a daemon makes after the pause.
        server.cut_off = if server.lost_writes && since_write >= server.noticed_within { 3 } else { 0 };
    }

    /// Makes a check in the pause of a raise, if one is due.
    pub(crate) fn check_if_due<T>(&self, check: impl FnOnce() -> T) -> Option<T> {
        let Times { now, checked, written, .. } = *self.times();
        if now < checked + POLL_PERIOD {
            return None;
        }
        self.times().checked = now;
        let done = check();
        self.times().written = written;
        Some(done)
    }

    /// Records that the daemon holds nothing: it need not notice that a restore lost its writes.
    pub(crate) fn holds_nothing(&self) {
        self.times().compared.clear();
    }

    /// Ends a call of this many messages that compared these keys. After a call without an answer,
    /// the daemon connects again, and counts as cut off until it has compared its keys.
    fn after<'k, T>(
        &mut self,
        messages: u32,
        keys: impl Iterator<Item = &'k String>,
        answer: Result<T, NoAnswer>,
    ) -> Result<T, NoAnswer> {
        let mut server = self.server();
        let answer_time = server.answer_time;
        let mut times = self.times();
        let connecting = if times.is_connected { 0 } else { CONNECTING };
        let began = times.now;
        times.pass(answer_time * (messages + connecting));
        times.is_connected = answer.is_ok();
        if answer.is_err() {
            times.compared.clear();
        }
        let now = times.now;
        // A poll and a write compare the marker too. Other calls also read keys of others.
        let keys: Vec<&String> = keys.collect();
        let compares = answer.is_ok() && keys.contains(&&Paths::of(FLEET).marker());
        for key in keys.into_iter().filter(|_| compares) {
            let before = times.compared.insert(key.clone(), began);
            // A restore ends all connections, and the daemon raises the floor by a swap.
            let rest = answer_time * (CONNECTING + SWAP);
            let noticed_within = now - before.unwrap_or(began) + rest;
            server.noticed_within = server.noticed_within.max(noticed_within);
        }
        drop((server, times));
        self.opened += u64::from(answer.is_err());
        answer
    }
}

impl AsMut<dyn Coordinator> for Link {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Link {
    fn connections(&self) -> u64 {
        self.opened
    }

    fn now(&self) -> BootMicros {
        BootMicros(0).after(self.times().now)
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let read = self.server().seen().map(|seen| keys.iter().map(|key| seen.get(key).cloned()).collect());
        self.after(keys.len().div_ceil(KEYS_MAX) as u32, keys.iter(), read)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let listed = self.server().seen().map(|seen| {
            let found = seen.iter().filter(|(key, _)| key.starts_with(prefix));
            found.map(|(key, stored)| (key.clone(), stored.clone())).collect()
        });
        self.after(1, [].iter(), listed)
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let swapped = self.server().swap(swaps);
        let swapped = self.after(SWAP, swaps.iter().map(|swap| &swap.key), swapped);
        // A refused write changes nothing. Nor does a write of the value that the key already has.
        let writes = swaps.iter().any(|swap| swap.text.is_some() && swap.text != swap.expected);
        if writes && matches!(swapped, Ok(Swapped::Done)) {
            let mut times = self.times();
            times.written = times.now;
        }
        swapped
    }
}

/// A machine's disk, as a daemon's notes see it: a sync takes time.
#[derive(Clone)]
pub(crate) struct SlowDisk {
    pub(crate) link: Link,
    sync_time: Duration,
    writing: Arc<Mutex<Writing>>,
}

#[derive(Default)]
struct Writing {
    durable: Notes,
    /// The notes that are not durable yet, and when they will be.
    last: Option<(Duration, Notes)>,
}

impl SlowDisk {
    /// Returns a disk with these notes, whose syncs take this long.
    pub(crate) fn with(link: Link, durable: Notes, sync_time: Duration) -> SlowDisk {
        SlowDisk { link, sync_time, writing: Arc::new(Mutex::new(Writing { durable, last: None })) }
    }

    /// Returns the notes that are durable by now.
    pub(crate) fn durable(&self) -> Notes {
        let now = self.link.times().now;
        let mut writing = self.writing.lock().expect("one thread");
        if let Some((_, notes)) = writing.last.take_if(|(at, _)| *at <= now) {
            writing.durable = notes;
        }
        writing.durable.clone()
    }
}

impl fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a simulated disk")
    }
}

impl NoteStore for SlowDisk {
    fn begin(&self, notes: Notes) {
        self.durable();
        let at = self.link.times().now + self.sync_time;
        let mut writing = self.writing.lock().expect("one thread");
        // A write that is under way is not begun again.
        let at = writing.last.as_ref().map_or(at, |(before, _)| at.max(*before));
        writing.last = Some((at, notes));
    }

    fn wait(&self, limit: Duration) -> Result<bool, StateError> {
        let now = self.link.times().now;
        let left =
            self.writing.lock().expect("one thread").last.as_ref().map(|(at, _)| at.saturating_sub(now));
        self.link.times().pass(left.unwrap_or_default().min(limit));
        self.durable();
        Ok(self.writing.lock().expect("one thread").last.is_none())
    }
}
