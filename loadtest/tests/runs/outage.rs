//! A daemon of the run's own that ends under load: the outage is measured, and no ID comes twice.

use crate::support::{figure, has_daemon, loadtest, until_seen};
use serde_json::Value;

#[test]
fn an_outage_is_measured_and_the_new_process_after_it() {
    if !has_daemon() {
        return;
    }
    for option in ["--restart-daemon-at", "--kill-daemon-at"] {
        let options = ["--rate", "2000", "--for", "4s", "--warm-up", "200ms", "--p99.9", "5s", option, "1s"];
        // A machine that stands still adds another gap to the outage's own, loses no request that was due in it, or
        // leaves out a sample of the new process.
        let is_seen = |run: &Value| {
            let of = |name: &str| figure(run, "outage", name).as_f64();
            let [gap, length] = ["longest gap between answers", "until all was back"].map(of);
            let last = &run["seconds"][3];
            gap > Some(0.0)
                && gap <= length.map(|us| us + 100_000.0)
                && of("requests lost") > Some(0.0)
                && last["target_cpu_share"].as_f64() > Some(0.0)
                && last["target_memory_bytes"].is_number()
        };
        let ran = until_seen(|| loadtest(&options), is_seen);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.figure("outage", "until all was back").as_f64() > Some(0.0), "{ran:?}");
        assert_eq!(ran.figure("IDs", "requests"), ran.figure("IDs", "answered"), "{ran:?}");
        assert!(is_seen(&ran.json()), "{ran:?}: {}", ran.json()["seconds"]);
    }
}
