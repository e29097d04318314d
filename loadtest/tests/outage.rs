//! A daemon of our own that ends under load: the outage is a figure, and no ID comes twice.

mod support;

use support::{has_daemon, loadtest, until_judged};

#[test]
fn an_announced_outage_is_a_figure_and_not_a_failure() {
    if !has_daemon() {
        return;
    }
    for option in ["--restart-daemon-at", "--kill-daemon-at"] {
        let options =
            ["--rate", "2000", "--for", "2s", "--warm-up", "200ms", "--p99.9", "900ms", option, "1s"];
        let ran = until_judged(|| loadtest(&options));
        assert_eq!(ran.code, 0, "{ran:?}");
        let outage = &ran.json()["outage"];
        assert!(outage["length_us"].as_f64() > Some(0.0) && outage["lost"].as_u64() > Some(0), "{ran:?}");
        assert!(outage["longest_gap_us"].as_f64() <= outage["length_us"].as_f64().map(|us| us + 100_000.0));
    }
}

#[test]
fn an_outage_of_somebody_elses_daemon_is_refused() {
    for options in [
        &["--kill-daemon-at", "1s", "--address", "127.0.0.1:1"][..],
        &["--restart-daemon-at", "1s", "--kill-daemon-at", "1s"],
        &["--restart-daemon-at", "10s"],
    ] {
        let ran = loadtest(options);
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
    }
}
