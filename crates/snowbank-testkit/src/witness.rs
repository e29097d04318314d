//! A client that keeps all replies. Many connections request IDs all the time. The client notes the
//! moment before each request and the moment after its reply. The daemon reads its clock between
//! these two moments. So the clock's times at these two moments are bounds of the times in the IDs,
//! even on a busy machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::ids::assert_distinct;
use super::pauses::PauseWatch;
use super::wire::{Ask, EXHAUSTED, NO_CEILING, Reply, Run, Wire};
use super::{Daemon, Random, poll};

/// The daemon's default wait, with which all requests are sent.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Calls `play` up to five times, until it returns a result. `play` returns `None` if the machine
/// was too busy to serve a request.
pub fn play_until_fed<T>(mut play: impl FnMut() -> Option<T>) -> T {
    (0..5).find_map(|_| play()).expect("one of five runs in which the machine serves all requests")
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Came {
    /// All IDs that were requested.
    Ids(Vec<Run>),
    /// An error.
    Refusal {
        /// The code of the error.
        code: u16,
        /// The time after which the client may ask again.
        retry_after_ms: u32,
    },
}

/// A request with its reply.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The moment before the request.
    pub asked: Instant,
    /// The moment after the reply.
    pub answered: Instant,
    /// The highest ID that any connection had received before this request.
    pub highest_before: u64,
    /// The answer.
    pub came: Came,
    /// True if the request waited in vain while the daemon had to wait for a core. Set once all
    /// requests have ended.
    pub is_starved: bool,
}

impl Sample {
    /// Returns the first and the last ID.
    pub fn ids(&self) -> Option<(u64, u64)> {
        match &self.came {
            Came::Ids(runs) => Some((runs[0].first, runs[runs.len() - 1].last())),
            Came::Refusal { .. } => None,
        }
    }

    /// Returns whether the request waited for the whole default wait and got nothing.
    pub fn waited_in_vain(&self) -> bool {
        let is_late = self.answered - self.asked >= DEFAULT_WAIT;
        is_late && self.refusal().is_some_and(|(code, _)| [EXHAUSTED, NO_CEILING].contains(&code))
    }

    /// Returns the code of a refusal, and the time in ms after which the client may ask again.
    pub fn refusal(&self) -> Option<(u16, u32)> {
        match self.came {
            Came::Ids(_) => None,
            Came::Refusal { code, retry_after_ms } => Some((code, retry_after_ms)),
        }
    }
}

/// The pattern of one connection's requests.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The numbers of IDs to request. Each request picks one at random.
    pub counts: &'static [u32],
    /// The pause between a reply and the next request.
    pub pause: Duration,
}

/// Single IDs and batches.
pub const MIXED: Load = Load { counts: &[1, 1, 1, 20, 500], pause: Duration::from_micros(500) };
/// Single IDs, one every few ms.
pub const SPARSE: Load = Load { counts: &[1], pause: Duration::from_millis(3) };
/// Requests for more IDs than the source makes.
pub const FLOOD: Load = Load { counts: &[5_000, 20_000], pause: Duration::ZERO };

#[derive(Debug)]
struct Shared {
    samples: Mutex<Vec<Sample>>,
    stop: AtomicBool,
}

/// Connections that send requests all the time.
#[derive(Debug)]
pub struct Witness {
    connections: Vec<(Arc<Shared>, JoinHandle<bool>)>,
    pauses: PauseWatch,
}

impl Witness {
    /// Connects once for each load, and starts the requests.
    pub fn of(daemon: &Daemon, loads: &[Load]) -> Witness {
        Witness::beside(daemon, loads, &[])
    }

    /// Does the same as [`Witness::of`] for a daemon that needs other processes. A request may also
    /// wait in vain while one of these processes waits for a core.
    pub fn beside(daemon: &Daemon, loads: &[Load], others: &[u32]) -> Witness {
        let pauses = PauseWatch::of([&[daemon.id()], others].concat());
        let highest = Arc::new(AtomicU64::new(0));
        let connections = loads.iter().enumerate().map(|(index, &load)| {
            let wire = daemon.connect();
            let mine = Arc::new(Shared { samples: Mutex::new(Vec::new()), stop: AtomicBool::new(false) });
            let own = Arc::clone(&mine);
            let highest = Arc::clone(&highest);
            let random = Random::seeded(index as u64);
            (mine, thread::spawn(move || ask_on(wire, load, random, &own, &highest)))
        });
        Witness { connections: connections.collect(), pauses }
    }

    /// Waits until, on every connection, a request was sent after `moment` and `is_it` returned
    /// true for its reply.
    pub fn await_each(&self, what: &str, moment: Instant, is_it: impl Fn(&Sample) -> bool) {
        for (shared, _) in &self.connections {
            let mut seen = 0;
            poll(what, || {
                let samples = shared.samples.lock().expect("no connection panics");
                let new = &samples[seen..];
                seen = samples.len();
                new.iter().any(|sample| sample.asked >= moment && is_it(sample)).then_some(())
            });
        }
    }

    /// Waits until every connection has had IDs for a request that it sent after this call.
    pub fn await_ids(&self) {
        self.await_each("IDs", Instant::now(), |sample| sample.ids().is_some());
    }

    /// Waits for this long, and then until every connection has received one more answer.
    pub fn await_time(&self, span: Duration) {
        self.await_each("an answer", Instant::now() + span, |_| true);
    }

    /// Ends the requests. Checks that the daemon closed no connection. Returns all replies by
    /// connection.
    pub fn stop(self) -> Testimony {
        let (testimony, ended) = self.end();
        assert!(!ended, "a connection was closed");
        testimony
    }

    /// Returns all replies by connection, after the daemon has died.
    pub fn after_death(self) -> Testimony {
        self.end().0
    }

    fn end(self) -> (Testimony, bool) {
        for (shared, _) in &self.connections {
            shared.stop.store(true, Ordering::Release);
        }
        let mut any_ended = false;
        let connections = self.connections.into_iter().map(|(shared, thread)| {
            any_ended |= thread.join().expect("no connection panics");
            std::mem::take(&mut *shared.samples.lock().expect("no connection panics"))
        });
        let mut testimony = Testimony { connections: connections.collect() };
        let pauses = self.pauses.end();
        for sample in testimony.connections.iter_mut().flatten() {
            sample.is_starved = sample.waited_in_vain() && pauses.explain(sample.asked, sample.answered);
        }
        (testimony, any_ended)
    }
}

/// Sends requests until the witness is stopped or the daemon closes the connection. Returns true if
/// the daemon closed the connection.
fn ask_on(mut wire: Wire, load: Load, mut random: Random, own: &Shared, highest: &AtomicU64) -> bool {
    while !own.stop.load(Ordering::Acquire) {
        let ask = Ask::of(random.pick(load.counts)).default_wait();
        let highest_before = highest.load(Ordering::SeqCst);
        let asked = Instant::now();
        if wire.try_send(&ask.bytes()).is_err() {
            return true;
        }
        let Ok(Some(reply)) = wire.try_reply() else {
            return true;
        };
        let answered = Instant::now();
        let came = match reply {
            Reply::Runs(_, runs) => {
                let count: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
                assert_eq!(
                    count,
                    u64::from(ask.count),
                    "the reply to {ask:?} has another number of IDs: {runs:?}"
                );
                highest.fetch_max(runs[runs.len() - 1].last(), Ordering::SeqCst);
                Came::Ids(runs)
            }
            Reply::Error { code, retry_after_ms, .. } => Came::Refusal { code, retry_after_ms },
            other => panic!("the reply to {ask:?} has another kind: {other:?}"),
        };
        let was_refused = matches!(came, Came::Refusal { .. });
        let sample = Sample { asked, answered, highest_before, came, is_starved: false };
        own.samples.lock().expect("no reader panics").push(sample);
        // A refusal can come at once. Without a pause, such requests would keep the machine busy.
        thread::sleep(load.pause.max(if was_refused { Duration::from_millis(2) } else { Duration::ZERO }));
    }
    false
}

/// All replies by connection.
#[derive(Debug, Default)]
pub struct Testimony {
    /// The replies of each connection, in order.
    pub connections: Vec<Vec<Sample>>,
}

impl Testimony {
    /// Returns all replies.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.connections.iter().flatten()
    }

    /// Returns all IDs.
    pub fn runs(&self) -> Vec<Run> {
        let runs = |sample: &Sample| match &sample.came {
            Came::Ids(runs) => runs.clone(),
            Came::Refusal { .. } => Vec::new(),
        };
        self.samples().flat_map(runs).collect()
    }

    /// Checks promises 1 and 2: no ID comes twice, and the IDs of each connection increase.
    #[track_caller]
    pub fn assert_unique_and_ordered(&self) {
        for samples in &self.connections {
            let mut last = 0;
            for (first, to) in samples.iter().filter_map(Sample::ids) {
                assert!(first > last, "{first} is not above {last} of the same connection");
                last = to;
            }
        }
        let runs = self.runs();
        assert!(!runs.is_empty());
        assert_distinct(runs);
    }

    /// Checks strict order: an ID is above all IDs that any connection had received before this ID
    /// was requested.
    #[track_caller]
    pub fn assert_strictly_ordered(&self) {
        for sample in self.samples() {
            if let Some((first, _)) = sample.ids() {
                assert!(
                    first > sample.highest_before,
                    "{first} is not above {}, which was received before the request",
                    sample.highest_before
                );
            }
        }
    }

    /// Checks that `may_be` allows every refusal.
    #[track_caller]
    pub fn assert_refusals(&self, may_be: impl Fn(&Sample, u16, u32) -> bool) {
        for sample in self.samples() {
            if let Some((code, retry_after_ms)) = sample.refusal() {
                assert!(may_be(sample, code, retry_after_ms), "a request was refused: {sample:?}");
            }
        }
    }

    /// Checks promises 1 and 2. Checks that no request waited in vain, except while the daemon had
    /// to wait for a core. Returns `None` if a request waited in vain for that reason.
    #[track_caller]
    pub fn if_fed(self) -> Option<Testimony> {
        self.assert_unique_and_ordered();
        let in_vain: Vec<&Sample> = self.samples().filter(|sample| sample.waited_in_vain()).collect();
        let to_blame = in_vain.iter().find(|sample| !sample.is_starved);
        assert!(to_blame.is_none(), "the daemon refused a request although it had its cores: {to_blame:?}");
        in_vain.is_empty().then_some(self)
    }

    /// Checks that no request was refused.
    #[track_caller]
    pub fn assert_no_refusal(&self) {
        self.assert_refusals(|_, _, _| false);
    }

    /// Returns the replies that came no later than `to`, for requests that were sent no earlier
    /// than `from`. So the daemon made these replies between the two moments.
    pub fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Sample> {
        self.samples().filter(move |sample| from <= sample.asked && sample.answered <= to)
    }
}
