//! Large, streaming and single requests at once: who is served, and how long single IDs take
//! meanwhile.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use snowbank_client::protocol::ErrorCode;
use snowbank_testkit::{Ask, Daemon, Reply};

use crate::{Effort, server};

const LARGE: u32 = 1_000_000;
const LARGE_CONNECTIONS: usize = 5;
const STREAMING_CONNECTIONS: usize = 50;
const STREAMED: u32 = 1_000;
const SINGLES_EVERY: Duration = Duration::from_millis(1);
const WARM: Duration = Duration::from_secs(2);
/// From the start of the stretch until the large requests are sent.
const LARGE_AFTER: Duration = Duration::from_millis(500);
/// The IDs per second that `twitter` allows one worker ID: 4,096 IDs each millisecond.
const IDS_PER_SECOND: f64 = 4_096_000.0;

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
        for (name, large) in
            [("default", Ask::of(LARGE).default_wait()), ("10 s", Ask::of(LARGE).wait_ms(10_000))]
        {
            let state = tempfile::tempdir()?;
            let options = ["--worker-id", "0", "--shards", "2", "--order", order];
            let daemon = server::daemon(state.path()).args(options).start();
            print!("| {order} | {name} | ");
            Round { daemon: &daemon, begin: Instant::now() + WARM, stretch }.print(large);
        }
    }
    Ok(())
}

/// A daemon under all three kinds of requests.
struct Round<'a> {
    daemon: &'a Daemon,
    begin: Instant,
    stretch: Duration,
}

/// Replies that came within the stretch.
#[derive(Default)]
struct Served {
    ids: u64,
    refused: u64,
}

impl Served {
    fn add(&mut self, reply: &Reply) {
        match reply.id_count() {
            Some(ids) => self.ids += ids,
            None => self.refused += 1,
        }
    }
}

impl Round<'_> {
    fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.stretch
    }

    fn stream(&self) -> Served {
        let mut client = self.daemon.connect();
        let mut served = Served::default();
        while !self.is_over() {
            let reply = client.next(Ask::of(STREAMED).wait_ms(10_000));
            if Instant::now() >= self.begin && !self.is_over() {
                served.add(&reply);
            }
        }
        served
    }

    /// Asks for many IDs. Returns the outcome in words.
    fn ask_large(&self, large: Ask) -> (Served, String) {
        let mut client = self.daemon.connect();
        thread::sleep((self.begin + LARGE_AFTER).saturating_duration_since(Instant::now()));
        let sent = Instant::now();
        let reply = client.next(large);
        let mut served = Served::default();
        if !self.is_over() {
            served.add(&reply);
        }
        let outcome = match reply {
            Reply::Error { code, .. } => ErrorCode::from_u16(code).map_or("refused", ErrorCode::name),
            _ => "all",
        };
        (served, format!("{outcome} {}", sent.elapsed().as_millis()))
    }

    /// Asks at fixed moments. A request that could not be sent because the one before it was still
    /// out counts from when it should have been. Returns the latencies in nanoseconds.
    fn ask_singles(&self) -> (Served, Histogram<u64>) {
        let mut client = self.daemon.connect();
        let mut served = Served::default();
        let mut latency = Histogram::new_with_max(60_000_000_000, 3).expect("bounds are allowed");
        let mut due = self.begin;
        while !self.is_over() {
            let mut sent = due;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
                sent = Instant::now();
            }
            served.add(&client.next(Ask::of(1).default_wait()));
            latency.saturating_record(sent.elapsed().as_nanos() as u64);
            due += SINGLES_EVERY;
        }
        (served, latency)
    }

    fn print(&self, large: Ask) {
        thread::scope(|scope| {
            let singles = scope.spawn(|| self.ask_singles());
            let large: Vec<_> =
                (0..LARGE_CONNECTIONS).map(|_| scope.spawn(move || self.ask_large(large))).collect();
            let streams: Vec<_> =
                (0..STREAMING_CONNECTIONS).map(|_| scope.spawn(move || self.stream())).collect();
            let (singles, latency) = singles.join().expect("single IDs");
            let mut ids = singles.ids;
            let mut streams_refused = 0;
            let mut outcomes = Vec::new();
            for large in large {
                let (served, outcome) = large.join().expect("a large request");
                ids += served.ids;
                outcomes.push(outcome);
            }
            for stream in streams {
                let served = stream.join().expect("a stream");
                ids += served.ids;
                streams_refused += served.refused;
            }
            let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
            println!(
                "{} | {streams_refused} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
                outcomes.join(", "),
                100.0 * ids as f64 / self.stretch.as_secs_f64() / IDS_PER_SECOND,
                ms(0.5),
                ms(0.99),
                ms(1.0),
                singles.refused,
            );
        });
    }
}
