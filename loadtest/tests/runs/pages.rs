//! The files of a run: a page that a real browser opens, and JSON that matches its schema.

use std::path::Path;
use std::process::Command;

use crate::support::browser::{View, open};
use crate::support::scripted::sound_target;
use crate::support::{CLOSED, compare, has_program, loadtest, skip};

const VIEWS: [View; 4] = [
    View { width: 1_200, dark: false },
    View { width: 1_200, dark: true },
    View { width: 390, dark: false },
    View { width: 390, dark: true },
];

/// Runs a script on a page. The page is in an iframe of another page. The policy of the page
/// forbids scripts, and no browser window is as narrow as a phone.
fn found(page: &Path, view: View) -> serde_json::Value {
    let text = std::fs::read_to_string(page).expect("a page").replace('&', "&amp;").replace('"', "&quot;");
    let around = page.with_file_name(format!("around-{}-{}.html", view.width, view.dark));
    let script = "
        const frame = document.querySelector('iframe').contentWindow;
        const root = frame.document.documentElement;
        const style = one => frame.getComputedStyle(frame.document.querySelector(one));
        document.title = JSON.stringify({
            width: root.clientWidth, overflow: root.scrollWidth - root.clientWidth,
            paper: style('body').backgroundColor, line: style('.chart [stroke=\"#005FA8\"]').stroke,
            loaded: frame.performance.getEntriesByType('resource').length,
        });";
    let text = format!(
        "<!doctype html><meta name=color-scheme content=\"light dark\"><title>{{}}</title>
        <iframe width={} height=900 style=\"border:0\" srcdoc=\"{text}\"></iframe>
        <script>addEventListener('load', () => {{ {script} }});</script>",
        view.width
    );
    std::fs::write(&around, text).expect("a page");
    let dom = open(&around, View { width: 1_300, ..view }).dom;
    let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    serde_json::from_str(title.expect("a title").0).expect("what the script found")
}

#[test]
fn pages_open_in_a_browser_light_and_dark_wide_and_narrow() {
    if !has_program("chromium", "chromium") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let address = sound_target().name();
    for (options, heading) in [
        ("--rate 1000 --for 2s", "Latency by percentile"),
        ("sweep --start 100 --limit 200 --for 1s", "Rate against latency"),
    ] {
        let page = directory.path().join("page.html");
        let load = format!("--address {address} --warm-up 100ms --p99.9 5s --html {}", page.display());
        loadtest(&format!("{options} {load}"));
        let seen = open(&page, VIEWS[0]);
        assert_eq!(seen.console, Vec::<String>::new());
        assert!(seen.dom.contains(heading) && seen.dom.contains("class=\"verdict\""), "{}", seen.dom);
        let found = VIEWS.map(|view| found(&page, view));
        for (view, found) in VIEWS.iter().zip(&found) {
            assert_eq!(found["width"], view.width, "{view:?}: {found}");
            assert_eq!((&found["overflow"], &found["loaded"]), (&0.into(), &0.into()), "{view:?}: {found}");
        }
        for part in ["paper", "line"] {
            assert_ne!(found[0][part], found[1][part], "{part}");
            assert_eq!((&found[0][part], &found[1][part]), (&found[2][part], &found[3][part]), "{part}");
        }
    }
}

#[test]
fn a_file_of_another_form_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    for (content, reason) in [
        (None, "cannot read"),
        (Some(""), "is not what snowbank-loadtest --json writes"),
        (Some("{}"), "found no format in"),
        (
            Some(r#"{"format":2,"kind":"run"}"#),
            ", allowed: a file with format 3, written by this version of snowbank-loadtest",
        ),
        (Some(r#"{"format":3,"kind":"walk"}"#), r#", allowed: a file with kind "run", written by"#),
        (Some(r#"{"format":3,"kind":"run"}"#), "missing field"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).expect("a file");
        }
        let file = [file.display().to_string()];
        compare(&file, &file, "").assert_refused(2, reason);
    }
}

#[test]
fn the_json_of_each_kind_of_load_matches_the_schema() {
    let address = sound_target().name();
    // `loadtest` validates each run against the schema, so this test has only loads that no other
    // test has.
    for more in [
        "--poisson --for 500ms --batch 10",
        "--for 500ms --max 900ms --p50 1ns",
        "--closed --for 500ms --rate 10/s --connections 2",
    ] {
        assert!(!loadtest(&format!("--address {address} {more}")).json_text().is_empty());
    }
}

#[test]
fn the_schema_refuses_unknown_fields() {
    let figures = loadtest(&format!("{CLOSED} --address {}", sound_target().name())).json();
    let schema = serde_json::from_str(include_str!("../../schema.json")).expect("JSON");
    for (key, value) in [("surplus", 1.into()), ("seconds", "none".into()), ("kind", "walk".into())] {
        let mut wrong = figures.clone();
        wrong[key] = value;
        assert!(!jsonschema::is_valid(&schema, &wrong), "{key}");
    }
}

/// The jar of Debian's libhdrhistogram-java.
const READER: &str = "/usr/share/java/hdrhistogram.jar";

#[test]
fn hdrhistograms_own_reader_reads_the_log() {
    if Command::new("java").arg("-version").output().is_err() || !Path::new(READER).is_file() {
        skip("java and libhdrhistogram-java are not installed");
        return;
    }
    let target = sound_target();
    let directory = tempfile::tempdir().expect("a directory");
    let [log, theirs] = ["run.hlog", "theirs"].map(|name| directory.path().join(name).display().to_string());
    // The load test makes only one run. With several runs, the log has late answers that the list
    // of seconds leaves out.
    let load = "--rate 1000 --for 3s --warm-up 100ms --runs 1 --p99.9 5s";
    let ran = loadtest(&format!("--address {} {load} --hlog {log}", target.name()));
    let mut reader = Command::new("java");
    reader.args(["-cp", READER, "org.HdrHistogram.HistogramLogProcessor", "-i", &log, "-o", &theirs]);
    let output = reader.output().expect("java runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    // The reader's file has one line of times and values for each interval.
    let intervals = read(&theirs).lines().filter(|line| line.contains("I:")).count();
    // If the machine stood still for a whole second, the log has no interval for that second. Late
    // answers add an interval. The same is true of the list of seconds.
    let seconds = ran.json()["seconds"].as_array().map_or(0, Vec::len);
    assert!(seconds > 0 && intervals == seconds, "{seconds}: {}", read(&theirs));

    // The columns of the last row are the maximum in ms, the quantile 1, and the count.
    let distribution = read(&(theirs + ".hgrm"));
    let mut rows = distribution.lines().filter(|line| line.starts_with(' ') && !line.contains("Value"));
    let last = rows.next_back().expect("a row").split_whitespace();
    let last: Vec<f64> = last.map(|column| column.parse().expect("a number")).collect();
    let max_us = ran.figure("response time", "max").as_f64().expect("a maximum");
    assert!((last[0] - max_us / 1e3).abs() <= 0.001 * last[0] + 0.001, "{max_us}: {last:?}");
    assert_eq!(last[2], ran.figure("IDs", "answered"), "{last:?}");
}
