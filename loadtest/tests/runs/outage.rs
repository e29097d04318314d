//! A run ends its own daemon under load: the run measures the outage, and no ID comes twice.

use crate::support::{Ran, has_daemon, loadtest, until, until_in_time};

/// Returns true if all figures are there. If the machine stood still, the outage may have lost no
/// request, or there may be no sample of the new process.
fn is_seen(ran: &Ran) -> bool {
    let of = |name: &str| ran.figure("outage", name).as_f64();
    let last = &ran.json()["seconds"][3];
    of("until all was back") > Some(0.0)
        && of("requests lost") > Some(0.0)
        && last["target_cpu_share"].as_f64() > Some(0.0)
        && last["target_memory_bytes"].is_number()
}

#[test]
fn an_outage_and_the_new_process_after_it_are_measured() {
    if !has_daemon() {
        return;
    }
    for ending in ["--restart-daemon-at 1s", "--kill-daemon-at 1s", "--kill-daemon-at 1s --resp"] {
        let options = format!("--rate 2000 --for 4s --warm-up 200ms --p99.9 5s {ending}");
        // The test repeats only a run that was late or lacks a figure. Even such a run must not
        // repeat an ID.
        let ran = until(
            || {
                let ran = until_in_time(|| loadtest(&options));
                assert_eq!(ran.code, 0, "{ending}: {ran:?}");
                ran
            },
            is_seen,
        );
        assert!(is_seen(&ran), "{ending}: {ran:?}: {}", ran.json()["seconds"]);
        assert_eq!(ran.figure("IDs", "requests"), ran.figure("IDs", "answered"), "{ending}: {ran:?}");
    }
}
