//! The simulated coordinator, and the faults of its network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use snowbank::clock::BootMicros;
use snowbank::fleet::{Cluster, Coordinator, Marker, NoAnswer, Swap, Swapped};
use snowbank_id::layout::UnixMicros;
use std::time::Duration;

/// The time between two polls of each daemon.
pub(crate) const POLL_PERIOD: Duration = Duration::from_secs(3);

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
    answer_time: Duration,
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
            answer_time: Duration::from_millis(rng.u64(..1_000)),
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

/// A daemon's connection to the coordinator.
#[derive(Clone)]
pub(crate) struct Link {
    server: Arc<Mutex<Server>>,
    opened: u64,
    /// The time that passed while the daemon paused or waited for answers.
    passed: Duration,
    /// The time that passed since the daemon's last write.
    since_write: Duration,
}

impl Link {
    pub(crate) fn to(server: Server) -> Link {
        let (opened, passed, since_write) = Default::default();
        Link { server: Arc::new(Mutex::new(server)), opened, passed, since_write }
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("one thread")
    }

    fn pass(&mut self, time: Duration) {
        self.passed += time;
        self.since_write += time;
    }

    /// Connects again after a call without an answer.
    fn after<T>(&mut self, answer: Result<T, NoAnswer>) -> Result<T, NoAnswer> {
        self.opened += u64::from(answer.is_err());
        let answer_time = self.server().answer_time;
        self.pass(answer_time);
        answer
    }
}

impl AsMut<dyn Coordinator> for Link {
    fn as_mut(&mut self) -> &mut (dyn Coordinator + 'static) {
        self
    }
}

impl Coordinator for Link {
    fn hurry(&mut self) {}

    fn connections(&self) -> u64 {
        self.opened
    }

    fn now(&self) -> BootMicros {
        BootMicros(0).after(self.passed)
    }

    /// A daemon that lost a write notices the loss within the time of a poll and its answers. If
    /// that time has passed since the pausing daemon's last write, and no daemon has noticed the
    /// loss, the pausing daemon is cut off at the end of its pause.
    fn pause(&mut self, time: Duration) {
        self.pass(time);
        let since_write = self.since_write;
        let mut server = self.server();
        // The last poll waits for its answer, and one step of a job is in flight. Then the next
        // poll reads the keys and writes the floor.
        let noticed_within = POLL_PERIOD + (1 + 2 + 2) * server.answer_time;
        // As many calls as a daemon makes after the pause.
        server.cut_off = if server.lost_writes && since_write >= noticed_within { 3 } else { 0 };
    }

    fn read(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, NoAnswer> {
        let read = self.server().seen().map(|seen| keys.iter().map(|key| seen.get(key).cloned()).collect());
        self.after(read)
    }

    /// There is one endpoint.
    fn read_at_each(&mut self, _: &str) -> Result<Vec<(String, Option<String>)>, String> {
        Ok(Vec::new())
    }

    fn set_cluster(&mut self, _: Option<Cluster>) {}

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, NoAnswer> {
        let listed = self.server().seen().map(|seen| {
            let found = seen.iter().filter(|(key, _)| key.starts_with(prefix));
            found.map(|(key, stored)| (key.clone(), stored.clone())).collect()
        });
        self.after(listed)
    }

    fn swap(&mut self, swaps: &[Swap]) -> Result<Swapped, NoAnswer> {
        let swapped = self.server().swap(swaps);
        let swapped = self.after(swapped);
        // A refused write changes nothing. Nor does a write of the value that the key already has.
        let writes = swaps.iter().any(|swap| swap.text.is_some() && swap.text != swap.expected);
        if writes && matches!(swapped, Ok(Swapped::Done)) {
            self.since_write = Duration::ZERO;
        }
        swapped
    }
}
