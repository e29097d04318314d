//! The first ID in a fleet on a real etcd.

use std::io;

use crate::{Effort, server, start};
use snowbank_testkit::coordinators::{Coordinator, Etcd};

pub(crate) fn run(effort: &Effort) -> io::Result<()> {
    println!("\n## A fleet on etcd\n");
    let Some(etcd) = Etcd::start() else { return Ok(()) };
    println!(
        "Time from before the fork to the first ID over TCP. Targets: 50 ms after a clean stop; after kill -9 \
         the same as without a fleet.\n"
    );
    start::print_header();
    let directory = tempfile::tempdir()?;
    let toml =
        format!("worker_ids = 0\nmax_ahead = \"1s\"\n{}horizon = \"5m\"\n", etcd.table(&[&etcd.url()]));
    let daemon = || {
        let daemon = server::daemon(&directory.path().join("state"));
        daemon.env("SNOWBANK_LOCK_DIR", directory.path().join("locks")).config(&toml)
    };
    let new = daemon();
    let config = new.path("snowbank.toml");
    let prepared = new.run(&["fleet", "init", "--new", "--config", &config.to_string_lossy()]);
    assert_eq!(prepared.code, Some(0), "{}", prepared.err);
    for (name, is_clean) in [("after a clean stop", true), ("after kill -9", false)] {
        start::print_times(name, start::first_ids(effort, is_clean, daemon));
    }
    Ok(())
}
