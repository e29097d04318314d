//! A fleet on a real etcd: the first ID, and single IDs while etcd takes two seconds for each
//! answer.

use std::io;
use std::path::Path;
use std::time::Duration;

use snowbank_testkit::Setup;
use snowbank_testkit::coordinators::{Coordinator, Etcd};

use crate::{Effort, disk, server, start};

/// Several times the length of a start at a slow coordinator, and short enough that raises occur
/// while single IDs are measured.
const HORIZON: &str = "40s";
/// The delay of each answer of a slow coordinator.
const DELAY: Duration = Duration::from_secs(2);

/// A daemon of the fleet, on the state and the locks in this directory.
fn daemon(directory: &Path, worker: usize, table: &str, horizon: &str) -> Setup {
    let toml = format!("worker_ids = {worker}\nmax_ahead = \"1s\"\n{table}horizon = \"{horizon}\"\n");
    server::daemon(&directory.join("state")).env("SNOWBANK_LOCK_DIR", directory.join("locks")).config(&toml)
}

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## A fleet on etcd\n");
    let Some(etcd) = Etcd::start() else { return Ok(()) };
    println!(
        "Time from before the fork to the first ID over TCP. Targets: 50 ms; after kill -9 as without a fleet.\n"
    );
    start::print_header();
    let directory = tempfile::tempdir()?;
    let table = etcd.table(&[&etcd.url()]);
    let new = daemon(directory.path(), 0, &table, "5m");
    let config = new.path("snowbank.toml");
    let prepared = new.run(&["fleet", "init", "--new", "--config", &config.to_string_lossy()]);
    assert_eq!(prepared.code, Some(0), "{}", prepared.err);
    for (name, is_clean) in [("after a clean stop", true), ("after kill -9", false)] {
        let times = start::first_ids(effort, is_clean, || daemon(directory.path(), 0, &table, "5m"));
        start::print_times(name, times);
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
    disk::print_header("an answer takes");
    for (worker, name, delay) in [(1, "what it takes", Duration::ZERO), (2, "2 s", DELAY)] {
        let proxy = etcd.proxy();
        proxy.delay(delay);
        let directory = tempfile::tempdir()?;
        let daemon = daemon(directory.path(), worker, &etcd.table(&[&proxy.url()]), HORIZON).start();
        disk::print_times(name, &disk::measure(&daemon, stretch)?);
        daemon.stop();
    }
    Ok(())
}
