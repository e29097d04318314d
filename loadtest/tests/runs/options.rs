//! Wrong use is one line and exit code 2, and the files have the formats that their readers expect.

use crate::support::{figure, loadtest};

#[test]
fn wrong_options_are_refused_in_one_line() {
    for (options, reason) in [
        (&["--rate", "0"][..], "not a rate"),
        (&["--rate", "-5/s"], "not a rate"),
        (&["--rate", "fast"], "not a rate"),
        (&["--for", "-5s"], "not a time"),
        (&["--for", "0s"], "not a time"),
        (&["--p99.9", "2"], "not a time"),
        (&["--batch", "1:90,100"], "not a number of IDs"),
        (&["--batch", "0"], "not a number of IDs"),
        (&["--depth", "4"], "--closed"),
        (&["--closed", "--poisson"], "cannot be used with"),
        (&["--connections", "0"], "0 is not in"),
        (&["--threads", "9"], "each thread needs a connection"),
        (&["--count", "5", "--for", "1s"], "cannot be used with"),
        (&["--address", "nowhere"], "not an address"),
        (&["--address", "127.0.0.1:1"], "cannot connect"),
        (&["--address", "unix:/nonexistent/socket"], "cannot connect"),
        (&["--no-such-option"], "unexpected argument"),
    ] {
        let ran = loadtest(options);
        assert_eq!(ran.code, 2, "{options:?}: {ran:?}");
        assert!(ran.stderr.contains(reason), "{options:?}: {ran:?}");
        assert_eq!((ran.stderr.lines().count(), ran.stdout.len()), (1, 0), "{options:?}: {ran:?}");
    }
}

#[test]
fn figures_go_to_standard_output_on_demand() {
    let target = crate::support::scripted::sound_target();
    let address = target.name();
    let options =
        ["--address", &address, "--rate", "500", "--for", "500ms", "--warm-up", "100ms", "--p99.9", "5s"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank-loadtest"));
    let output = command.args(options).args(["--json", "-"]).output().expect("it runs");
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(run["kind"], "run");
    // One tick plus the defaults of the burst window and of max_ahead.
    let window = ["an ID is older than its request by at most", "newer than its reply by at most"];
    assert_eq!(window.map(|name| figure(&run, "target", name).as_f64()), [11_000.0, 10_000_000.0].map(Some));
    let table = String::from_utf8_lossy(&output.stderr);
    assert!(table.contains("requests 250, answered 250"), "{table}");
}

#[test]
fn a_run_that_cannot_start_keeps_the_last_runs_figures() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("figures.json");
    std::fs::write(&file, "figures").expect("a file");
    let path = file.to_str().expect("UTF-8");
    for command in [&[][..], &["sweep"]] {
        // Nothing listens on port 1 of the loopback address.
        let ran = loadtest(&[command, &["--address", "127.0.0.1:1", "--json", path]].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), "figures");
    }
}
