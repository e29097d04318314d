//! The cost of one ID that an application takes from its client's buffer.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use snowbank_client::{Client, ClientOptions, IdsOptions};

use crate::process::Process;
use crate::{Effort, median};

/// IDs timed together: many enough for the clock's grain, few enough that most stretches have no refill in them.
const TOGETHER: usize = 1_000;

/// `next().await` and `try_next()` from a buffer that a daemon refills in the background.
pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## The client's buffer\n");
    println!("{TOGETHER} IDs at a time, refilled in the background. Target: 5 ns an ID.\n");
    println!("| call | median ns | with refills ns | stretches |");
    println!("|---|---:|---:|---:|");
    let daemon = Process::daemon(&["--worker-id", "0-255"])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let stretches = effort.rounds(20_000, 2_000);
    for by_await in [true, false] {
        let times = runtime.block_on(measure(&daemon.address().to_string(), stretches, by_await));
        let times = times.map_err(io::Error::other)?;
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let call = if by_await { "`next().await`" } else { "`try_next()`" };
        println!("| {call} | {:.2} | {mean:.2} | {stretches} |", median(times));
    }
    Ok(())
}

async fn measure(
    address: &str,
    stretches: usize,
    by_await: bool,
) -> Result<Vec<f64>, snowbank_client::Error> {
    let options = ClientOptions::new([address]).unwrap_or_else(|error| unreachable!("{error}"));
    let client = Client::new(options)?;
    let mut ids = client.ids(IdsOptions::default().max_batch(200_000))?;
    let mut times = Vec::with_capacity(stretches);
    for _ in 0..stretches {
        let begin = Instant::now();
        for _ in 0..TOGETHER {
            if by_await {
                black_box(ids.next().await?);
            } else if let Some(id) = ids.try_next()? {
                black_box(id);
            } else {
                black_box(ids.next().await?);
            }
        }
        times.push(begin.elapsed().as_secs_f64() * 1e9 / TOGETHER as f64);
    }
    Ok(times)
}
