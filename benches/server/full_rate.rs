//! The full rate: how much of what a layout allows reaches clients, and what the daemon spends on
//! it.

use std::io;
use std::time::Duration;

use snowbank_client::protocol::Wait;

use crate::Effort;
use crate::load::{self, Load, Refill, Wire};
use crate::process::Process;

/// The IDs per second that `twitter` allows one worker ID: 4,096 IDs each millisecond.
pub(crate) const IDS_PER_SECOND: f64 = 4_096_000.0;

/// Long enough for the reserve of a fresh start to be gone, and for the first replies of the
/// deepest queue to be there.
const WARM: Duration = Duration::from_secs(2);
/// As long as the daemon lets a request wait: the deepest queue here lasts less.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(10), Duration::from_secs(1));
    println!("\n## The full rate\n");
    println!("Layout `twitter`, worker ID 0, {} s each.", stretch.as_secs_f64());
    println!("Targets: 99 % of 4,096,000 IDs/s, with less than 0.1 core from 1,000 IDs a request on.\n");
    print_header();
    for order in ["relaxed", "strict"] {
        let daemon = Process::daemon(&["--worker-id", "0", "--order", order])?;
        // Deep enough that more is always asked for than the burst window holds (40,960 IDs), and
        // no more in all than the layout yields within the wait.
        for (connections, count, depth) in [
            (1, 1_000, 64),
            (1, 10_000, 16),
            (1, 100_000, 4),
            (50, 1_000, 2),
            (50, 10_000, 2),
            (50, 100_000, 2),
        ] {
            let load = asking(count, connections, depth);
            row(order, &load, count, &daemon, stretch, IDS_PER_SECOND)?;
        }
    }

    println!("\nWorker IDs 0 to 255 (1,048,576,000 IDs/s). Target: over 1,000,000,000 IDs/s.\n");
    print_header();
    for order in ["relaxed", "strict"] {
        let daemon = Process::daemon(&["--worker-id", "0-255", "--order", order])?;
        row(order, &asking(1_000_000, 1, 16), 1_000_000, &daemon, stretch, 256.0 * IDS_PER_SECOND)?;
    }
    Ok(())
}

fn print_header() {
    println!(
        "| order | connections | IDs/request | deep | IDs/s | % | daemon cores | µs/request | p50 ms | p99 ms | refused |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
}

/// NEXT for this many IDs, sent again as soon as one is answered.
pub(crate) fn asking(count: u32, connections: usize, depth: usize) -> Load {
    let request = load::next(count, Wait::at_most(WAIT));
    Load { connections, depth, refill: Refill::Each, wire: Wire::Native, request }
}

fn row(
    order: &str,
    load: &Load,
    count: u32,
    daemon: &Process,
    stretch: Duration,
    full_rate: f64,
) -> io::Result<()> {
    let sample = load.run(daemon, WARM, stretch)?;
    let seconds = sample.elapsed.as_secs_f64();
    let ids_per_second = (sample.replies - sample.refused) as f64 * f64::from(count) / seconds;
    println!(
        "| {order} | {} | {count} | {} | {ids_per_second:.0} | {:.2} | {:.4} | {:.1} | {:.2} | {:.2} | {} |",
        load.connections,
        load.depth,
        100.0 * ids_per_second / full_rate,
        sample.cpu.as_secs_f64() / seconds,
        crate::micros(sample.cpu) / sample.replies as f64,
        sample.latency.value_at_quantile(0.5) as f64 / 1e6,
        sample.latency.value_at_quantile(0.99) as f64 / 1e6,
        sample.refused,
    );
    if let Some(refusal) = sample.first_refusal {
        println!("\nThe first refusal: {refusal}\n");
    }
    Ok(())
}
