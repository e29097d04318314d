//! The file for HdrHistogram's viewers, read by HdrHistogram's own reader.

use std::path::Path;
use std::process::Command;

use crate::support::scripted::sound_target;
use crate::support::{loadtest, skip};

/// The jar of Debian's libhdrhistogram-java.
const READER: &str = "/usr/share/java/hdrhistogram.jar";

#[test]
fn the_reference_reader_of_the_log_finds_the_distribution_that_was_written() {
    if Command::new("java").arg("-version").output().is_err() || !Path::new(READER).is_file() {
        skip("java and libhdrhistogram-java are not installed");
        return;
    }
    let target = sound_target();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let log = path("run.hlog");
    let theirs = path("theirs");
    let load = ["--address", &target.name(), "--rate", "1000", "--for", "3s", "--warm-up", "100ms"];
    // Only one run: with several, the log has late answers that the list of seconds leaves out.
    let ran = loadtest(&[&load[..], &["--runs", "1", "--p99.9", "5s", "--hlog", &log]].concat());
    let mut reader = Command::new("java");
    reader.args(["-cp", READER, "org.HdrHistogram.HistogramLogProcessor", "-i", &log, "-o", &theirs]);
    let output = reader.output().expect("java runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    // One line of times and values for each interval.
    let intervals = read(&theirs).lines().filter(|line| line.contains("I:")).count();
    // If the machine stands still for a second, there is no interval for it; late answers add one.
    let seconds = ran.json()["seconds"].as_array().map_or(0, Vec::len);
    assert!(seconds > 0 && intervals == seconds, "{seconds}: {}", read(&theirs));

    // The last row has the maximum in ms, 1, and the count.
    let distribution = read(&(theirs + ".hgrm"));
    let mut rows = distribution.lines().filter(|line| line.starts_with(' ') && !line.contains("Value"));
    let last = rows.next_back().expect("a row").split_whitespace();
    let last: Vec<f64> = last.map(|column| column.parse().expect("a number")).collect();
    let max_us = ran.figure("response time", "max").as_f64().expect("a maximum");
    assert!((last[0] - max_us / 1e3).abs() <= 0.001 * last[0] + 0.001, "{max_us}: {last:?}");
    assert_eq!(last[2], ran.figure("IDs", "answered"), "{last:?}");
}
