//! The files for HdrHistogram's viewers, read by HdrHistogram's own reader.

use std::path::Path;
use std::process::Command;

use crate::support::scripted::sound_target;
use crate::support::{loadtest, skip};

/// The jar of Debian's libhdrhistogram-java.
const READER: &str = "/usr/share/java/hdrhistogram.jar";

/// The rows of a percentile distribution: value, percentile, count.
fn rows(text: &str) -> Vec<[f64; 3]> {
    let numbers = text.lines().filter(|line| line.starts_with(' ') && !line.contains("Value"));
    numbers
        .map(|line| {
            let mut columns = line.split_whitespace().map(|column| column.parse().expect("a number"));
            [(); 3].map(|()| columns.next().expect("three columns"))
        })
        .collect()
}

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
    let ours = path("run.hgrm");
    let theirs = path("theirs");
    let load = ["--address", &target.name(), "--rate", "1000", "--for", "3s", "--warm-up", "100ms"];
    // Of several runs, the log has late answers that the list of seconds leaves out.
    let ran =
        loadtest(&[&load[..], &["--runs", "1", "--p99.9", "5s", "--hlog", &log, "--hgrm", &ours]].concat());
    let mut reader = Command::new("java");
    reader.args(["-cp", READER, "org.HdrHistogram.HistogramLogProcessor", "-i", &log, "-o", &theirs]);
    let output = reader.output().expect("java runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    // One line of times and values for each interval.
    let intervals = read(&theirs).lines().filter(|line| line.contains("I:")).count();
    // A machine that stands still for a second leaves it out, and late answers add one.
    let seconds = ran.json()["seconds"].as_array().map_or(0, Vec::len);
    assert!(seconds > 0 && intervals == seconds, "{seconds}: {}", read(&theirs));

    let ours = read(&ours);
    let theirs = read(&(theirs + ".hgrm"));
    let form = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("Value") || line.starts_with("#[B"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(form(&ours), form(&theirs), "heading and form of the histogram");
    let ours = rows(&ours);
    let theirs = rows(&theirs);
    assert!(!ours.is_empty() && ours.len() == theirs.len(), "{ours:?}\n{theirs:?}");
    for (row, their) in theirs.iter().enumerate() {
        // The two programs round the steps of a percentile differently, by at most one recorded
        // value. Where values are few, that can be the next row's value.
        let our = ours[row];
        let below = ours[row.saturating_sub(1)][0];
        let above = ours[(row + 1).min(ours.len() - 1)][0];
        let near = |at: usize, by: f64| (our[at] - their[at]).abs() <= their[at] * by + 0.002;
        let value = near(0, 0.05) || (below..=above).contains(&their[0]);
        assert!(value && near(1, 0.001) && near(2, 0.01), "{our:?} {their:?}");
    }
    assert_eq!(ours.last(), theirs.last(), "maximum and count");
}
