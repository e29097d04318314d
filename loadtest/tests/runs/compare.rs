//! Compares files of runs: equal, slower and faster runs, and too few runs for an answer.

use std::path::Path;

use serde_json::Value;

use crate::support::scripted::sound_target;
use crate::support::{CLOSED, assert_of_schema, command, compare, loadtest};

/// Writes three copies of a run's file, in which `change` has changed each figure.
fn files(directory: &Path, side: &str, run: &Value, change: impl Fn(&mut Value)) -> Vec<String> {
    let written = (0..3).map(|number| {
        let path = directory.join(format!("{side}{number}.json"));
        let mut run = run.clone();
        run["figures"].as_array_mut().expect("figures").iter_mut().for_each(&change);
        std::fs::write(&path, run.to_string()).expect("a file");
        path.display().to_string()
    });
    written.collect()
}

#[test]
fn equal_runs_show_no_difference_and_slower_runs_show_one() {
    let target = sound_target();
    let run = loadtest(&format!("{CLOSED} --address {}", target.name())).json();
    let directory = tempfile::tempdir().expect("a directory");
    let of = |side: &str, change: fn(&mut Value)| files(directory.path(), side, &run, change);
    let sound = of("sound", |_| {});
    let slow = of("slow", |figure| {
        if figure["row"] == "response time" {
            figure["value"] = (figure["value"].as_f64().expect("a number") * 2.0).into();
        }
    });
    for (a, b, code, begin) in [
        (&sound[..], &sound[..], 0, "equal: "),
        (&sound, &slow, 1, "slower: response time p50 x 2.00, response time p90 x 2.00"),
        (&slow, &sound, 0, "faster: response time p50 x 0.50, "),
        (&sound[..1], &slow[..1], 2, "cannot tell: "),
    ] {
        let json = directory.path().join("comparison.json");
        let ran = compare(a, b, &format!("--fail-if-worse --json {}", json.display()));
        assert!(ran.code == code && ran.stdout.starts_with(begin), "{begin}: {ran:?}");
        assert_of_schema(&std::fs::read_to_string(&json).expect("a file"));
        // Only warnings may be longer than a line of the table, because they repeat the reasons of
        // a run.
        let mut table = ran.stdout.lines().skip(2).filter(|line| !line.starts_with("warning: "));
        assert!(table.all(|line| line.chars().count() <= 110), "{ran:?}");
        assert_eq!(compare(a, b, "").code, 0, "without --fail-if-worse");
    }
    assert_eq!(command("compare").code, 2);
}
