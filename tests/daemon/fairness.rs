//! Overload: requests for a million IDs, fifty connections that stream, and one that requests single IDs, all at
//! once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::ids::{assert_distinct, twitter_ids_between};
use crate::support::wire::{EXHAUSTED, EXPLICIT, PARTIAL, Run};
use crate::support::{Ask, Daemon, Setup};

/// The length of the overload. The reserve below is a twentieth of it, so a daemon that is slower by more than that
/// loses IDs.
const OVERLOAD: Duration = Duration::from_secs(4);

/// The reserve: a pause of the daemon shorter than this loses no IDs. The default of 10 ms suits machines that run
/// nothing else.
const CONFIG: &str = "shards = 2\nburst_window = \"200ms\"\n";

/// Repeats a request until the end, also after a refusal.
fn keep_asking(daemon: &Daemon, stop: &AtomicBool, ask: Ask) -> Vec<Run> {
    let mut wire = daemon.connect();
    let mut drawn = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let reply = wire.next(ask);
        if reply.id_count().is_some() {
            drawn.extend(reply.runs());
        }
    }
    drawn
}

/// Requests this many IDs again and again until the end. Each request must get its IDs.
fn ask_modestly(daemon: &Daemon, stop: &AtomicBool, ask: Ask, pause: Duration) -> Vec<Run> {
    let mut wire = daemon.connect();
    let mut drawn = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        drawn.extend(wire.next(ask).runs());
        thread::sleep(pause);
    }
    drawn
}

/// Runs a modest client beside greedy ones.
fn modest_beside(greedy: &[(usize, Ask)], modest: Ask) {
    let daemon = Setup::configured(CONFIG).start();
    let stop = AtomicBool::new(false);
    let drawn = thread::scope(|scope| {
        let (daemon, stop) = (&daemon, &stop);
        let asks = greedy.iter().flat_map(|&(connections, ask)| vec![ask; connections]);
        let mut threads: Vec<_> =
            asks.map(|ask| scope.spawn(move || keep_asking(daemon, stop, ask))).collect();
        thread::sleep(Duration::from_millis(200));
        threads.push(scope.spawn(move || ask_modestly(daemon, stop, modest, Duration::from_millis(10))));
        thread::sleep(OVERLOAD / 2);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|one| one.join().expect("each modest request has IDs")).collect()
    });
    assert_distinct(drawn);
    daemon.stop();
}

#[test]
fn a_modest_client_gets_its_ids_beside_requests_for_a_million() {
    for connections in [1, 16] {
        let greedy = [(connections, Ask::of(1_000_000).wait_ms(10_000).flags(PARTIAL))];
        modest_beside(&greedy, Ask::of(1_000).wait_ms(10_000));
    }
}

#[test]
fn single_ids_are_never_refused_beside_many_requests_for_256() {
    let greedy = [(45, Ask::of(1_000_000)), (64, Ask::of(256))];
    modest_beside(&greedy, Ask::of(1).wait_ms(10_000));
}

/// Requests a million IDs with a wait. Returns `None` if that is refused.
fn ask_a_million(daemon: &Daemon, wait_ms: u16) -> Option<Vec<Run>> {
    let reply = daemon.connect().next(Ask::of(1_000_000).wait_ms(wait_ms));
    if reply.id_count().is_some() {
        return Some(reply.runs());
    }
    let (code, retry_after_ms, message) = reply.error();
    assert_eq!(code, EXHAUSTED, "{message}");
    assert!(retry_after_ms > 0, "a million can be had within {wait_ms} ms, later");
    None
}

/// Returns the share of the IDs between the first and the last of these that reached clients.
fn delivered_share(drawn: &[Run]) -> f64 {
    let first = drawn.iter().map(|run| run.first).min().expect("IDs");
    let last = drawn.iter().map(Run::last).max().expect("IDs");
    let total: u64 = drawn.iter().map(|run| u64::from(run.count)).sum();
    total as f64 / twitter_ids_between(first, last) as f64
}

/// The share of the full rate that reaches clients. A machine that does other things can only lower it, so the best of some tries
/// counts.
#[test]
fn overload_delivers_the_full_rate_and_all_admitted_requests() {
    let shares: Vec<f64> = std::iter::repeat_with(overload).take(10).scan(false, until_whole).collect();
    assert!(shares.iter().any(|&share| share >= WHOLE), "{shares:?} of the full rate reached clients");
}

/// The least share that counts as the full rate.
const WHOLE: f64 = 0.99;

/// Passes shares on up to the first that is whole.
fn until_whole(is_over: &mut bool, share: f64) -> Option<f64> {
    let is_next = !*is_over;
    *is_over |= share >= WHOLE;
    is_next.then_some(share)
}

/// Overloads a daemon, and returns the share of the full rate that reached clients.
fn overload() -> f64 {
    let daemon = Setup::configured(CONFIG).start();
    let stop = AtomicBool::new(false);
    let (streamed, millions, singles) = thread::scope(|scope| {
        let (daemon, stop) = (&daemon, &stop);
        let streams: Vec<_> = (0..50)
            .map(|_| scope.spawn(move || keep_asking(daemon, stop, Ask::of(2_000).wait_ms(10_000))))
            .collect();
        let single = scope
            .spawn(move || ask_modestly(daemon, stop, Ask::of(1).wait_ms(10_000), Duration::from_millis(1)));
        // Two requests have waits that are too short for all of their IDs, three can wait.
        let millions: Vec<_> = [600, 600, 10_000, 10_000, 10_000]
            .map(|wait_ms| scope.spawn(move || ask_a_million(daemon, wait_ms)))
            .into_iter()
            .collect();
        thread::sleep(OVERLOAD);
        let millions: Vec<_> = millions.into_iter().map(|asked| asked.join().expect("answered")).collect();
        stop.store(true, Ordering::Relaxed);
        let streamed: Vec<Run> =
            streams.into_iter().flat_map(|stream| stream.join().expect("every stream goes on")).collect();
        (streamed, millions, single.join().expect("single IDs come"))
    });
    assert!(millions[2..].iter().all(Option::is_some), "one that could wait was refused");
    let admitted = millions.iter().flatten().count();
    println!("{admitted} of 5 requests of a million were admitted");

    let mut drawn = streamed;
    drawn.extend(singles);
    drawn.extend(millions.into_iter().flatten().flatten());
    // At the start and at the end there is no overload.
    drawn.sort_unstable();
    let edge = |run: &Run| run.first >> 22;
    let (from, to) = (edge(&drawn[0]) + 300, edge(&drawn[drawn.len() - 1]) - 300);
    let inner: Vec<Run> = drawn.iter().copied().filter(|run| (from..to).contains(&edge(run))).collect();
    assert_distinct(drawn);
    let share = delivered_share(&inner);
    println!("{:.2} % of the full rate over {} ms", share * 100.0, to - from);
    daemon.stop();
    share
}

/// A refused request takes nothing: the IDs before and after it are consecutive.
#[test]
fn refused_requests_hand_out_nothing() {
    // The source has 16 IDs in each second, and up to fifty seconds of them in reserve. On a busy machine, too, all
    // requests come before the reserve has 160 IDs.
    let layout = "time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z";
    let position = |id: u64| (id >> 14) * 16 + (id & 15);
    for order in ["relaxed", "strict"] {
        let toml = "shards = 1\nburst_window = \"50s\"\nmax_ahead = \"60s\"\n";
        let daemon = Setup::configured(toml).args(["--layout", layout, "--order", order]).start();
        let (mut wire, mut greedy) = (daemon.connect(), daemon.connect());
        // From here on the cursor is at the clock. It makes no jump for fifty seconds.
        let mut last = wire.next(Ask::of(1)).ids()[0];
        for (count, wait_ms) in [(900, 0), (3_000, 1_000), (1_000_000, 10_000), (160, 0)] {
            for flags in [0, EXPLICIT] {
                let ask = Ask::of(count).wait_ms(wait_ms).flags(flags);
                assert_eq!(greedy.next(ask).error().0, EXHAUSTED, "{ask:?}");
                let id = wire.next(Ask::of(1)).ids()[0];
                assert_eq!(position(id), position(last) + 1, "{order}: after {ask:?}");
                last = id;
            }
        }
    }
}
