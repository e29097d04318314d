//! A sweep whose generator has no cores left reports that.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::alone;
use crate::support::scripted::fake_daemon::{FakeDaemon, INFO};
use crate::support::scripted::target;
use crate::support::{figure, loadtest};
use snowbank_client::protocol::reply;

/// Returns a target that answers with a list of single IDs. The generator checks each ID, so it has
/// more work than the target.
fn costly_to_check() -> FakeDaemon {
    let next_id = AtomicU64::new(1);
    target(INFO, move |_, _, peer, next, tag| {
        let first = next_id.fetch_add(next.count.into(), Ordering::SeqCst);
        let list = first..first + u64::from(next.count);
        peer.send(|out| reply::encode_list_frame(out, tag, list, false).expect("sound IDs"))
    })
}

#[test]
fn a_starved_generator_is_named_as_the_limit() {
    let _alone = alone();
    let target = costly_to_check();
    let address = target.name();
    let search = ["sweep", "--for", "500ms", "--warm-up", "200ms", "--start", "500000"];
    let load =
        ["--address", &address, "--batch", "5000", "--connections", "4", "--threads", "2", "--p99.9", "20ms"];
    let ran = loadtest(&[&search[..], &load].concat());
    let file = ran.json();
    // A saturation point below a step without a verdict is a lower bound. If other programs run, a
    // step may miss by late answers first.
    let is_bound = file["limit"] == "machine";
    assert!(file["saturation"].is_null() || file["at_least"] == is_bound, "{ran:?}");
    // No step is blamed on latency if the cores were busy, mostly with the generator.
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    for step in file["steps"].as_array().expect("steps") {
        let share = |name: &str| figure(&step["run"], "CPU, memory", name).as_f64().unwrap_or_default();
        let generator = share("generator's CPU");
        let target = share("target's CPU");
        let is_full = generator + target > cores * 0.9 && generator > target;
        assert!(step["limit"] != "latency" || !is_full, "{step}");
    }
}
