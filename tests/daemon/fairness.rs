//! Overload, all at the same time. There are requests for a million IDs, fifty connections that
//! send one request after another, and one connection that requests single IDs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::support::ids::{assert_distinct, twitter_ids_between};
use crate::support::wire::{EXHAUSTED, EXPLICIT, PARTIAL, Run};
use crate::support::{Ask, Daemon, Setup, Wire};

/// The length of the overload.
const OVERLOAD: Duration = Duration::from_secs(2);

/// If the daemon pauses for less than `burst_window`, no IDs are lost. The default is too short for
/// a machine that also runs other programs.
const CONFIG: &str = "shards = 2\nburst_window = \"200ms\"\n";
/// A `burst_window` that is longer than any pause of the machine.
const PATIENT: &str = "shards = 2\nburst_window = \"30s\"\nmax_ahead = \"30s\"\n";

/// Clients that ask one daemon at the same time.
struct Crowd<'a> {
    daemon: &'a Daemon,
    stop: AtomicBool,
    /// The number of requests that have got IDs.
    granted: AtomicUsize,
}

/// The IDs of a client.
#[derive(Default)]
struct Drawn {
    runs: Vec<Run>,
    /// For each request that got IDs: the number of requests of other clients that got IDs while
    /// this request waited.
    others_before: Vec<usize>,
}

impl Crowd<'_> {
    fn around(daemon: &Daemon) -> Crowd<'_> {
        Crowd { daemon, stop: AtomicBool::new(false), granted: AtomicUsize::new(0) }
    }

    /// Sends a request. Returns whether the request got IDs.
    fn request(&self, wire: &mut Wire, ask: Ask, drawn: &mut Drawn) -> bool {
        let before = self.granted.load(Ordering::SeqCst);
        let reply = wire.next(ask);
        let is_granted = reply.id_count().is_some();
        if is_granted {
            let now = self.granted.fetch_add(1, Ordering::SeqCst);
            drawn.others_before.push(now - before);
            drawn.runs.extend(reply.runs());
        }
        is_granted
    }

    /// Repeats a request until the test stops the clients, even after refusals.
    fn keep_asking(&self, ask: Ask) -> Drawn {
        let mut wire = self.daemon.connect();
        let mut drawn = Drawn::default();
        while !self.stop.load(Ordering::Relaxed) {
            self.request(&mut wire, ask, &mut drawn);
        }
        drawn
    }

    /// Repeats a request with pauses, at most `at_most` times, until the test stops the clients.
    /// Each request must get its IDs.
    fn ask_modestly(&self, ask: Ask, pause: Duration, at_most: usize) -> Drawn {
        let mut wire = self.daemon.connect();
        let mut drawn = Drawn::default();
        while !self.stop.load(Ordering::Relaxed) && drawn.others_before.len() < at_most {
            assert!(self.request(&mut wire, ask, &mut drawn), "a modest request was refused");
            thread::sleep(pause);
        }
        drawn
    }
}

/// Waits for these clients to end, and returns the IDs of all of them.
fn joined(clients: Vec<ScopedJoinHandle<'_, Drawn>>) -> Vec<Run> {
    clients.into_iter().flat_map(|client| client.join().expect("no client panics").runs).collect()
}

/// A request for a million IDs takes a quarter of a second of the full rate. So before most modest
/// requests, the daemon should answer at most one such large request. In a plain queue, it would
/// answer all of them first.
#[test]
fn a_modest_client_gets_its_ids_beside_requests_for_a_million() {
    let greedy = Ask::of(1_000_000).wait_ms(10_000).flags(PARTIAL);
    let modest = Ask::of(1_000).wait_ms(10_000);
    for connections in [1, 4, 16] {
        let daemon = Setup::configured(CONFIG).start();
        let crowd = Crowd::around(&daemon);
        let (mut modest, others) = thread::scope(|scope| {
            let crowd = &crowd;
            let others = (0..connections).map(|_| scope.spawn(move || crowd.keep_asking(greedy))).collect();
            thread::sleep(Duration::from_millis(200));
            let pause = Duration::from_millis(10);
            let modest = scope.spawn(move || crowd.ask_modestly(modest, pause, 25)).join();
            crowd.stop.store(true, Ordering::Relaxed);
            (modest.expect("no panic"), joined(others))
        });
        assert_distinct([modest.runs, others].concat());
        daemon.stop();
        modest.others_before.sort_unstable();
        let median = modest.others_before[modest.others_before.len() / 2];
        assert!(median <= 1, "{median} of {connections} greedy requests were served first");
    }
}

/// Requests a million IDs with this wait. Returns `None` if the daemon refuses the request.
fn ask_a_million(daemon: &Daemon, wait_ms: u16) -> Option<Vec<Run>> {
    let reply = daemon.connect().next(Ask::of(1_000_000).wait_ms(wait_ms));
    if reply.id_count().is_some() {
        return Some(reply.runs());
    }
    let (code, retry_after_ms, message) = reply.error();
    assert_eq!(code, EXHAUSTED, "{message}");
    assert!(retry_after_ms > 0, "a later retry can get a million IDs within {wait_ms} ms");
    None
}

/// Counts all possible IDs from the first to the last of these runs. Returns the share of them that
/// clients got.
fn delivered_share(drawn: &[Run]) -> f64 {
    let first = drawn.iter().map(|run| run.first).min().expect("IDs");
    let last = drawn.iter().map(Run::last).max().expect("IDs");
    let total: u64 = drawn.iter().map(|run| u64::from(run.count)).sum();
    total as f64 / twitter_ids_between(first, last) as f64
}

/// While clients ask for more IDs than there are, the daemon hands out every ID.
#[test]
fn overload_delivers_the_full_rate_and_all_admitted_requests() {
    let daemon = Setup::configured(PATIENT).start();
    let crowd = Crowd::around(&daemon);
    let (streamed, millions, singles) = thread::scope(|scope| {
        let daemon = &daemon;
        let crowd = &crowd;
        let stream = Ask::of(2_000).wait_ms(10_000);
        let streams: Vec<_> = (0..50).map(|_| scope.spawn(move || crowd.keep_asking(stream))).collect();
        let single = Ask::of(1).wait_ms(10_000);
        let pause = Duration::from_millis(1);
        let single = scope.spawn(move || crowd.ask_modestly(single, pause, usize::MAX));
        // Two requests may wait for too short a time to get a million IDs. The other three can wait
        // for long enough.
        let millions: Vec<_> = [600, 600, 10_000, 10_000, 10_000]
            .map(|wait_ms| scope.spawn(move || ask_a_million(daemon, wait_ms)))
            .into_iter()
            .collect();
        thread::sleep(OVERLOAD);
        let millions: Vec<_> = millions.into_iter().map(|asked| asked.join().expect("no panic")).collect();
        crowd.stop.store(true, Ordering::Relaxed);
        (joined(streams), millions, single.join().expect("no panic").runs)
    });
    assert!(millions[2..].iter().all(Option::is_some), "a request that could wait was refused");
    let admitted = millions.iter().flatten().count();
    println!("{admitted} of 5 requests of a million were admitted");

    let mut drawn = streamed;
    drawn.extend(singles);
    drawn.extend(millions.into_iter().flatten().flatten());
    // Leaves out the start and the end of the test, when there was no overload.
    drawn.sort_unstable();
    let edge = |run: &Run| run.first >> 22;
    let from = edge(&drawn[0]) + 300;
    let to = edge(&drawn[drawn.len() - 1]) - 300;
    let inner: Vec<Run> = drawn.iter().copied().filter(|run| (from..to).contains(&edge(run))).collect();
    assert_distinct(drawn);
    let share = delivered_share(&inner);
    assert!(share >= 0.99, "clients got {share} of the full rate over {} ms", to - from);
    daemon.stop();
}

/// The IDs before and after a refused request are consecutive.
#[test]
fn refused_requests_use_up_no_ids() {
    // The source has 16 IDs in each tick, and the burst window is five ticks. The ceiling is two of
    // these long ticks ahead, so the daemon does not reach it even if the machine pauses.
    let layout = "time:31,worker:10,sequence:4;tick=10s;epoch=2025-01-01T00:00:00Z";
    let position = |id: u64| (id >> 14) * 16 + (id & 15);
    for order in ["relaxed", "strict"] {
        let toml = "shards = 1\nburst_window = \"50s\"\nmax_ahead = \"60s\"\n";
        let daemon = Setup::configured(toml).args(["--layout", layout, "--order", order]).start();
        let mut wire = daemon.connect();
        let mut greedy = daemon.connect();
        // Now the cursor is at the clock, and does not jump for the next five ticks.
        let mut last = wire.next(Ask::of(1)).ids()[0];
        for (count, wait_ms) in [(900, 0), (3_000, 1_000), (1_000_000, 10_000), (160, 0)] {
            for flags in [0, EXPLICIT] {
                let ask = Ask::of(count).wait_ms(wait_ms).flags(flags);
                assert_eq!(greedy.next(ask).error().0, EXHAUSTED, "{ask:?}");
                let id = wire.next(Ask::of(1)).ids()[0];
                assert_eq!(position(id), position(last) + 1, "{order}: the refused {ask:?} used up IDs");
                last = id;
            }
        }
    }
}
