//! Large, streaming and single requests at once: who is served, and how long single IDs take
//! meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use snowbank_client::protocol::Wait;

use crate::Effort;
use crate::client::{Answer, Client};
use crate::full_rate::{IDS_PER_SECOND, asking};
use crate::load::Sample;
use crate::process::Process;

const LARGE: u32 = 1_000_000;
const LARGE_CONNECTIONS: usize = 5;
const STREAMING_CONNECTIONS: usize = 50;
const STREAMED: u32 = 1_000;
const SINGLES_EVERY: Duration = Duration::from_millis(1);
const WARM: Duration = Duration::from_secs(2);
/// From the start of the stretch until the large requests are sent.
const LARGE_AFTER: Duration = Duration::from_millis(500);

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(5), Duration::from_secs(3));
    println!("\n## Fairness\n");
    println!(
        "Layout `twitter`, worker ID 0, 2 shards, {} s: {STREAMING_CONNECTIONS} connections stream {STREAMED} IDs a \
         request (with a wait of 10 s), one asks a single ID every ms, and {LARGE_CONNECTIONS} more ask {LARGE} IDs once, \
         all at the same time.",
        stretch.as_secs_f64()
    );
    println!(
        "Targets: all admitted requests finish, 99 % of the full rate reaches clients, single IDs within 2 ms.\n"
    );
    println!(
        "| order | wait of the large | large requests: outcome (ms) | streams refused | % of the full rate | single: p50 ms | p99 ms | longest ms | refused |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|");
    for order in ["relaxed", "strict"] {
        for (name, wait) in [("default", Wait::DEFAULT), ("10 s", Wait::at_most(Duration::from_secs(10)))] {
            let daemon = Process::daemon(&["--worker-id", "0", "--shards", "2", "--order", order])?;
            let round = round(&daemon, stretch, wait)?;
            println!("| {order} | {name} | {}", round.cells());
        }
    }
    Ok(())
}

struct Round {
    streams: Sample,
    large: Vec<(Answer, Duration)>,
    /// IDs of large requests that were answered within the stretch.
    large_ids: u64,
    singles: Singles,
}

/// The measurements of the connection that asks single IDs.
struct Singles {
    latency: Histogram<u64>,
    refused: u64,
}

fn round(daemon: &Process, stretch: Duration, wait: Wait) -> io::Result<Round> {
    let address = daemon.address();
    let stop = AtomicBool::new(false);
    let large_ids = AtomicU64::new(0);
    let begin = Instant::now() + WARM;
    thread::scope(|scope| {
        let singles = scope.spawn(|| ask_singles(address, begin, &stop));
        let large: Vec<_> = (0..LARGE_CONNECTIONS)
            .map(|_| {
                scope.spawn(|| ask_large(address, wait, begin + LARGE_AFTER, begin + stretch, &large_ids))
            })
            .collect();
        let streams = asking(STREAMED, STREAMING_CONNECTIONS, 1).run(daemon, WARM, stretch);
        stop.store(true, Ordering::Relaxed);
        let join = |_| io::Error::other("a client's thread failed");
        let singles = singles.join().map_err(join)??;
        let large: io::Result<Vec<_>> = large.into_iter().map(|large| large.join().map_err(join)?).collect();
        Ok(Round { streams: streams?, large: large?, large_ids: large_ids.load(Ordering::Relaxed), singles })
    })
}

fn ask_large(
    address: SocketAddr,
    wait: Wait,
    at: Instant,
    end: Instant,
    within: &AtomicU64,
) -> io::Result<(Answer, Duration)> {
    let mut client = Client::connect(address)?;
    thread::sleep(at.saturating_duration_since(Instant::now()));
    let begin = Instant::now();
    let answer = client.ask(LARGE, wait)?;
    if let Answer::Ids(ids) = answer
        && Instant::now() < end
    {
        within.fetch_add(ids, Ordering::Relaxed);
    }
    Ok((answer, begin.elapsed()))
}

/// Asks at fixed moments. A request that could not be sent because the one before it was still out
/// counts from when it should have been.
fn ask_singles(address: SocketAddr, begin: Instant, stop: &AtomicBool) -> io::Result<Singles> {
    let latency = Histogram::new_with_max(60_000_000_000, 3).map_err(io::Error::other)?;
    let mut singles = Singles { latency, refused: 0 };
    let mut client = Client::connect(address)?;
    let mut due = begin;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let sent = if due > now {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        if client.ask(1, Wait::DEFAULT)? != Answer::Ids(1) {
            singles.refused += 1;
        }
        singles.latency.saturating_record(sent.elapsed().as_nanos() as u64);
        due += SINGLES_EVERY;
    }
    Ok(singles)
}

impl Round {
    fn cells(&self) -> String {
        let large: Vec<String> = self
            .large
            .iter()
            .map(|(answer, took)| {
                let outcome = match answer {
                    Answer::Ids(_) => "all",
                    Answer::Refused(code) => code.map_or("refused", |code| code.name()),
                };
                format!("{outcome} {}", took.as_millis())
            })
            .collect();
        let streamed = (self.streams.replies - self.streams.refused) * u64::from(STREAMED);
        let ids = streamed + self.large_ids + self.singles.latency.len() - self.singles.refused;
        let ms = |quantile| self.singles.latency.value_at_quantile(quantile) as f64 / 1e6;
        format!(
            "{} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            large.join(", "),
            self.streams.refused,
            100.0 * ids as f64 / self.streams.elapsed.as_secs_f64() / IDS_PER_SECOND,
            ms(0.5),
            ms(0.99),
            ms(1.0),
            self.singles.refused,
        )
    }
}
