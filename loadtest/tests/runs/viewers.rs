//! The files for HdrHistogram's viewers, read by HdrHistogram's own reader.

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
    let (target, directory) = (sound_target(), tempfile::tempdir().expect("a directory"));
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let (log, theirs) = (path("run.hlog"), path("theirs"));
    let load = ["--address", &target.name(), "--rate", "1000", "--for", "3s", "--warm-up", "100ms"];
    let ran = loadtest(&[&load[..], &["--p99.9", "5s", "--hlog", &log]].concat());
    assert!(ran.code != 1, "{ran:?}");

    let mut reader = Command::new("java");
    reader.args(["-cp", READER, "org.HdrHistogram.HistogramLogProcessor", "-i", &log, "-o", &theirs]);
    let output = reader.output().expect("java runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    // One line of times and values for each interval.
    let intervals = read(&theirs).lines().filter(|line| line.contains("I:")).count();
    // There is a fourth interval if an answer came late.
    assert!((3..=4).contains(&intervals), "{}", read(&theirs));

    // The last row of its distribution: the maximum in ms, 1, and the count.
    let distribution = read(&(theirs + ".hgrm"));
    let mut rows = distribution.lines().filter(|line| line.starts_with(' ') && !line.contains("Value"));
    let last = rows.next_back().expect("a row").split_whitespace();
    let last: Vec<f64> = last.map(|column| column.parse().expect("a number")).collect();
    let max_ms = ran.figure("response time", "max").as_f64().expect("a time") / 1e3;
    assert!((last[0] - max_ms).abs() <= max_ms * 0.01 + 0.002, "{last:?} {max_ms}");
    assert_eq!(ran.figure("IDs", "answered").as_f64(), Some(last[2]), "{ran:?}");
}
