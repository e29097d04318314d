//! The latency of single IDs while the disk is slow: no request may wait for the write of a higher
//! ceiling.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use snowbank_testkit::failing_disk::FailingDisk;
use snowbank_testkit::{Ask, Daemon};

use crate::{Effort, server};

/// The time between two requests.
const EVERY: Duration = Duration::from_micros(100);

/// Prints the latency of single IDs at 10,000/s on the disk as it is. Then prints it on a disk that
/// takes 500 ms for each sync. The latency of a request counts from the moment at which the request
/// was due.
pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(10), Duration::from_secs(3));
    println!("\n## Single IDs while the disk is slow\n");
    println!(
        "10,000 requests of one ID a second for {} s. A latency counts from the time at which its request was \
         due.\n",
        stretch.as_secs()
    );
    println!("| a sync takes | p50 µs | p99 µs | p99.9 µs | longest µs |");
    println!("|---|---:|---:|---:|---:|");
    let directory = tempfile::tempdir()?;
    for (index, (name, orders)) in [("its usual time", ""), ("500 ms", "sync stall 500")].iter().enumerate() {
        let state = directory.path().join(format!("state-{index}"));
        let disk = FailingDisk::new(&state, directory.path().join("control"));
        let daemon = disk.under(server::daemon(&state)).option("--worker-id", "0").start();
        // The disk becomes slow only now, so that the syncs of the daemon's start are quick.
        disk.order(orders);
        print_times(name, &measure(&daemon, stretch)?);
    }
    Ok(())
}

fn print_times(name: &str, times: &Histogram<u64>) {
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let longest = times.max() as f64 / 1e3;
    println!("| {name} | {:.0} | {:.0} | {:.0} | {longest:.0} |", at(0.5), at(0.99), at(0.999));
}

fn measure(daemon: &Daemon, stretch: Duration) -> io::Result<Histogram<u64>> {
    let mut client = daemon.connect();
    let mut times = Histogram::new(3).map_err(io::Error::other)?;
    let begin = Instant::now();
    let mut due = begin;
    while due < begin + stretch {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
        }
        client.next(Ask::of(1)).runs();
        times.record(due.elapsed().as_nanos() as u64).map_err(io::Error::other)?;
        due += EVERY;
    }
    Ok(times)
}
