//! A load generator that lacks CPU time blames no target, also in a sweep.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::alone;
use crate::support::scripted::fake_daemon::{self, FakeDaemon};
use crate::support::scripted::{INFO, sound_target, target};
use crate::support::{Ran, figure, loadtest, poll, skip, start, start_by, until_judged};
use rustix::process::Signal;
use snowbank_wire::reply;

#[test]
fn a_generator_stopped_for_half_a_second_blames_no_target() {
    let _alone = alone();
    let ran = stopped_in_its_measurement("2ms");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.result().contains("this machine stood still"), "{ran:?}");
    // Even with the stop, every answer is within 5 s, so the run passes. The test repeats the run
    // if a pause of this machine leaves the run without a verdict.
    let ran = until_judged(|| stopped_in_its_measurement("5s"));
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Stops a generator for half a second while it measures. If the number of its requests shows that
/// the stop came too late, starts another generator.
fn stopped_in_its_measurement(objective: &str) -> Ran {
    let begun = Instant::now();
    loop {
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "the machine is too busy to stop the generator in time"
        );
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        let target = target(INFO, move |_, ids, peer, next, tag| {
            counter.fetch_add(1, Ordering::SeqCst);
            peer.send_run(tag, ids.take(next.count), next.count)
        });
        let load = format!("--address {} --rate 1000 --warm-up 200ms --for 4s --runs 1", target.name());
        let generator = start(&format!("{load} --p99.9 {objective}"));
        poll("500 requests", || (requests.load(Ordering::SeqCst) >= 500).then_some(()));
        generator.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(500));
        let sent = requests.load(Ordering::SeqCst);
        generator.signal(Signal::CONT);
        let ran = generator.wait();
        if sent < 4_000 {
            return ran;
        }
    }
}

/// A control group that gives its processes a twenty-fifth of one core.
struct Quota {
    directory: PathBuf,
}

impl Quota {
    /// Makes the group. Returns `None`, with a note on standard error, if no control group can be
    /// written.
    fn new() -> Option<Self> {
        let name = format!("snowbank-loadtest-{}", std::process::id());
        let hierarchies = [
            (
                Path::new("/sys/fs/cgroup/cpu"),
                &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "4000")][..],
            ),
            (Path::new("/sys/fs/cgroup"), &[("cpu.max", "4000 100000")]),
        ];
        for (hierarchy, settings) in hierarchies {
            let directory = hierarchy.join(&name);
            if !hierarchy.join("cgroup.procs").is_file() || std::fs::create_dir(&directory).is_err() {
                continue;
            }
            let quota = Self { directory };
            let mut settings = settings.iter();
            match settings.try_for_each(|(file, value)| std::fs::write(quota.directory.join(file), value)) {
                Ok(()) => return Some(quota),
                Err(error) => skip(&format!("{} takes no quota: {error}", quota.directory.display())),
            }
        }
        // Containers often have no control groups of their own. So this is no failure, even in CI.
        eprintln!("skipped: there are no control groups that can be written");
        None
    }

    fn run(&self, options: &str) -> Ran {
        let mut command = Command::new("sh");
        // `$0` is the file that lists the group's processes. The shell enters the group, and then
        // becomes the generator.
        command.args(["-c", r#"echo $$ > "$0"; exec "$@""#]).arg(self.directory.join("cgroup.procs"));
        command.arg(env!("CARGO_BIN_EXE_snowbank-loadtest"));
        start_by(command, options).wait()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_generator_under_a_quota_gives_no_verdict() {
    let _alone = alone();
    let Some(quota) = Quota::new() else {
        return;
    };
    let target = sound_target();
    let load = format!("--address {} --for 1s --warm-up 200ms --rate 100000", target.name());
    // This rate needs more CPU time than the quota, even if the generator sends due requests in
    // large batches. With the objective of 20 s, the run meets the objective, but does not reach
    // the rate.
    for more in ["--runs 1", "--p99.9 20s", "--closed"] {
        let ran = quota.run(&format!("{load} {more}"));
        assert_eq!(ran.code, 2, "{more}: {ran:?}");
        assert!(ran.result().contains("the CPU quota of its control group"), "{more}: {ran:?}");
    }
}

/// Returns a target whose replies list every ID instead of a run. The generator has to check each
/// ID, so it has more work than the target.
fn costly_to_check() -> FakeDaemon {
    let next_id = AtomicU64::new(1);
    target(fake_daemon::INFO, move |_, _, peer, next, tag| {
        let first = next_id.fetch_add(next.count.into(), Ordering::SeqCst);
        let list = first..first + u64::from(next.count);
        peer.send(|out| reply::encode_list_frame(out, tag, list, false).expect("sound IDs"))
    })
}

#[test]
fn a_starved_generator_is_not_taken_for_a_slow_target() {
    let _alone = alone();
    let target = costly_to_check();
    let search = "sweep --for 500ms --warm-up 200ms --start 500000 --p99.9 20ms";
    let load = format!("--address {} --batch 5000 --connections 4 --threads 2", target.name());
    let ran = loadtest(&format!("{search} {load}"));
    let file = ran.json();
    // If a step without a verdict ended the climb, the saturation point is a lower bound. If other
    // programs run, a step with late answers may end the climb first.
    let is_bound = file["limit"] == "machine";
    assert!(file["saturation"].is_null() || file["at_least"] == is_bound, "{ran:?}");
    // If the cores were busy, mostly with the generator, the limit of a step must not be latency.
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    for step in file["steps"].as_array().expect("steps") {
        let share = |name: &str| figure(&step["run"], "CPU, memory", name).as_f64().unwrap_or_default();
        let generator = share("generator's CPU");
        let target = share("target's CPU");
        let is_full = generator + target > cores * 0.9 && generator > target;
        assert!(step["limit"] != "latency" || !is_full, "{step}");
    }
}
