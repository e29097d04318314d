//! A fleet on a real etcd: the first ID, and single IDs while etcd takes two seconds for each
//! answer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snowbank_testkit::coordinators::{Coordinator, Etcd};
use snowbank_testkit::program::snowbank;

use crate::client::Client;
use crate::process::Process;
use crate::{Effort, disk, moments};

/// Several times as long as a start takes at a slow coordinator, and short enough for raises while
/// single IDs are measured.
const HORIZON: &str = "40s";
/// The delay of each answer of a slow coordinator.
const DELAY: Duration = Duration::from_secs(2);

/// A daemon's directory, with its configuration, state and locks.
struct Place(tempfile::TempDir);

impl Place {
    fn new(worker: usize, table: &str, horizon: &str) -> io::Result<Place> {
        let place = Place(tempfile::tempdir()?);
        let toml = format!("worker_ids = {worker}\nmax_ahead = \"1s\"\n{table}horizon = \"{horizon}\"\n");
        std::fs::write(place.config(), toml)?;
        Ok(place)
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("snowbank.toml")
    }

    fn daemon(&self) -> io::Result<Process> {
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| io::Error::other("a path"));
        let config = text(&self.config())?;
        let locks = text(&self.0.path().join("locks"))?;
        let options = ["--config", config.as_str(), "--lock-dir", locks.as_str()];
        Process::daemon_with_state(&options, &self.0.path().join("state"), &[])
    }
}

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## A fleet on etcd\n");
    let Some(etcd) = Etcd::start() else { return Ok(()) };
    println!(
        "From before the fork to the first ID over TCP. Targets: 50 ms; after kill -9 as without a fleet.\n"
    );
    println!("| state | median ms | longest ms | times |");
    println!("|---|---:|---:|---:|");
    let place = Place::new(0, &etcd.table(&[&etcd.url()]), "5m")?;
    let prepared =
        snowbank(["fleet", "init", "--new", "--config"].map(Path::new).into_iter().chain([&*place.config()]));
    if prepared.code != Some(0) {
        return Err(io::Error::other(prepared.err));
    }
    for (name, clean) in [("after a clean stop", true), ("after kill -9", false)] {
        let mut times = Vec::new();
        for round in 0..=effort.rounds(20, 5) {
            let begin = Instant::now();
            let daemon = place.daemon()?;
            Client::connect(daemon.address())?.take(1)?;
            // The first start also takes the worker ID.
            if round > 0 {
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            if clean {
                daemon.stop()?;
            }
        }
        moments::print_times(&format!("| {name}"), times);
    }
    slow(effort, &etcd)
}

/// Latency of single IDs at 10,000/s, from the moment that each was due, with an etcd as it is and
/// a slow one.
fn slow(effort: &Effort, etcd: &Etcd) -> io::Result<()> {
    let stretch = effort.stretch(Duration::from_secs(30), Duration::from_secs(10));
    println!(
        "\n10,000 requests of one ID a second for {} s, from the moment that each was due, with a horizon of {HORIZON}.\n",
        stretch.as_secs()
    );
    println!("| an answer takes | p50 µs | p99 µs | p99.9 µs | longest µs |");
    println!("|---|---:|---:|---:|---:|");
    for (worker, name, delay) in [(1, "what it takes", Duration::ZERO), (2, "2 s", DELAY)] {
        let proxy = etcd.proxy();
        proxy.delay(delay);
        let place = Place::new(worker, &etcd.table(&[&proxy.url()]), HORIZON)?;
        let daemon = place.daemon()?;
        disk::print_times(name, &disk::measure(&daemon, stretch)?);
        daemon.stop()?;
    }
    Ok(())
}
