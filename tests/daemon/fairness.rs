//! Overload: requests for a million IDs, fifty connections that stream, and one that requests
//! single IDs, all at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::ids::{assert_distinct, twitter_ids_between};
use crate::support::wire::{EXHAUSTED, Run};
use crate::support::{Ask, Daemon, Setup};

const OVERLOAD: Duration = Duration::from_secs(2);

/// With a `burst_window` as long as this, no pause of the daemon loses IDs. The default of 10 ms
/// suits machines that run nothing else.
const PATIENT: &str = "shards = 2\nburst_window = \"30s\"\nmax_ahead = \"30s\"\n";

/// The IDs of a client, and the number of its requests that were refused.
#[derive(Default)]
struct Drawn {
    runs: Vec<Run>,
    refusals: usize,
}

/// Repeats a request until `stop` is set, even after a refusal.
fn keep_asking(daemon: &Daemon, stop: &AtomicBool, ask: Ask, pause: Duration) -> Drawn {
    let mut wire = daemon.connect();
    let mut drawn = Drawn::default();
    while !stop.load(Ordering::Relaxed) {
        let reply = wire.next(ask);
        if reply.id_count().is_some() {
            drawn.runs.extend(reply.runs());
        } else {
            drawn.refusals += 1;
        }
        thread::sleep(pause);
    }
    drawn
}

/// Requests a million IDs with a wait. Returns `None` if the request is refused.
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

/// Returns the share of the IDs from the first to the last of `drawn` that `drawn` contains.
fn delivered_share(drawn: &[Run]) -> f64 {
    let first = drawn.iter().map(|run| run.first).min().expect("IDs");
    let last = drawn.iter().map(Run::last).max().expect("IDs");
    let total: u64 = drawn.iter().map(|run| u64::from(run.count)).sum();
    total as f64 / twitter_ids_between(first, last) as f64
}

/// While clients ask for more IDs than there are, at least 99 % of the IDs reach a client.
#[test]
fn overload_delivers_the_full_rate_and_all_admitted_requests() {
    let daemon = Setup::configured(PATIENT).start();
    let stop = AtomicBool::new(false);
    let (streamed, millions, singles) = thread::scope(|scope| {
        let daemon = &daemon;
        let stop = &stop;
        let stream = Ask::of(2_000).wait_ms(10_000);
        let streams: Vec<_> =
            (0..50).map(|_| scope.spawn(move || keep_asking(daemon, stop, stream, Duration::ZERO))).collect();
        let single = Ask::of(1).wait_ms(10_000);
        let single = scope.spawn(move || keep_asking(daemon, stop, single, Duration::from_millis(1)));
        // Two requests have waits that are too short for all of their IDs, three can wait.
        let millions: Vec<_> = [600, 600, 10_000, 10_000, 10_000]
            .map(|wait_ms| scope.spawn(move || ask_a_million(daemon, wait_ms)))
            .into_iter()
            .collect();
        thread::sleep(OVERLOAD);
        let millions: Vec<_> = millions.into_iter().map(|asked| asked.join().expect("answered")).collect();
        stop.store(true, Ordering::Relaxed);
        let streamed = streams.into_iter().flat_map(|stream| stream.join().expect("it goes on").runs);
        (streamed.collect::<Vec<_>>(), millions, single.join().expect("it goes on"))
    });
    assert_eq!(singles.refusals, 0, "single IDs come");
    assert!(millions[2..].iter().all(Option::is_some), "one that could wait was refused");
    let admitted = millions.iter().flatten().count();
    println!("{admitted} of 5 requests of a million were admitted");

    let mut drawn = streamed;
    drawn.extend(singles.runs);
    drawn.extend(millions.into_iter().flatten().flatten());
    // At the start and at the end there is no overload.
    drawn.sort_unstable();
    let edge = |run: &Run| run.first >> 22;
    let from = edge(&drawn[0]) + 300;
    let to = edge(&drawn[drawn.len() - 1]) - 300;
    let inner: Vec<Run> = drawn.iter().copied().filter(|run| (from..to).contains(&edge(run))).collect();
    assert_distinct(drawn);
    let share = delivered_share(&inner);
    assert!(share >= 0.99, "{share} of the full rate over {} ms", to - from);
    daemon.stop();
}
