//! Two runs side by side: equal runs compare as equal, and a slower target is found slower.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::alone;
use crate::support::target;
use crate::support::{Ran, Running, command, start};

const LOAD: [&str; 10] =
    ["--rate", "60", "--for", "6s", "--warm-up", "300ms", "--connections", "4", "--p99.9", "900ms"];

/// Compares new runs until the machine is quiet enough for a verdict.
fn until_told(compared: impl Fn() -> Ran) -> Ran {
    let mut ran = compared();
    for _ in 0..9 {
        if !ran.result().starts_with("cannot tell") {
            break;
        }
        ran = compared();
    }
    ran
}

/// Writes the figures of runs to files for `compare`.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn keep(&self, name: &str, ran: &Ran) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, ran.json_text()).expect("a file");
        path
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The load that each target gets.
fn at(address: &str) -> Vec<&str> {
    [&["--address", address][..], &LOAD[..]].concat()
}

/// Loads both targets at the same time, so that the machine's disturbances affect both alike.
fn together(one: &[&str], other: &[&str]) -> [Ran; 2] {
    [start(one), start(other)].map(Running::wait)
}

/// The response time of a steady target. It is long compared with the delays of a busy machine.
const STEADY: Duration = Duration::from_millis(20);

#[test]
fn two_equal_runs_are_equal() {
    let _alone = alone();
    let files = Files::new();
    let figures = files.0.path().join("comparison.json");
    let (one, other) = (target::slow(STEADY), target::slow(STEADY));
    let (one, other) = (one.name(), other.name());
    let compared = || {
        let [a, b] = together(&at(&one), &at(&other));
        let (a, b) = (files.keep("a.json", &a), files.keep("b.json", &b));
        command(&["compare", text(&a), text(&b), "--fail-if-worse", "--json", text(&figures)])
    };
    let ran = until_told(compared);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.result().starts_with("equal: "), "{}", ran.stdout);
    let comparison: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(figures).expect("a file")).expect("JSON");
    assert_eq!((&comparison["verdict"], &comparison["spread_from"]), (&"equal".into(), &"seconds".into()));
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80 || is_words(line)), "{}", ran.stdout);
}

/// Returns whether a line is prose, which a terminal breaks. Columns must fit.
fn is_words(line: &str) -> bool {
    ["warning: ", "equal: ", "A  ", "B  "].iter().any(|start| line.starts_with(start))
}

#[test]
fn a_target_made_slower_is_slower() {
    let _alone = alone();
    let files = Files::new();
    let (quick, slow) = (target::sound(), target::slow(STEADY));
    let (quick_address, slow_address) = (quick.name(), slow.name());
    let (a, b) = (files.0.path().join("a.json"), files.0.path().join("b.json"));
    let ran = until_told(|| {
        let [quick, slow] = together(&at(&quick_address), &at(&slow_address));
        files.keep("a.json", &quick);
        files.keep("b.json", &slow);
        command(&["compare", text(&a), text(&b)])
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.result().starts_with("slower: response p50 x "), "{}", ran.stdout);
    assert_eq!(command(&["compare", text(&a), text(&b), "--fail-if-worse"]).code, 1);
    let turned = command(&["compare", text(&b), text(&a), "--fail-if-worse"]);
    assert_eq!(turned.code, 0, "{turned:?}");
    assert!(turned.result().starts_with("faster: response p50 x 0."), "{}", turned.stdout);
    let itself = command(&["compare", text(&a), text(&a), "--with", text(&a), text(&a)]);
    assert!(itself.result().starts_with("equal: "), "{}", itself.stdout);
}

#[test]
fn runs_that_measured_different_things_are_refused() {
    let files = Files::new();
    let target = target::sound();
    let address = target.name();
    let [open, closed] = together(
        &["--address", &address, "--rate", "100", "--for", "1s", "--p99.9", "900ms"],
        &["--address", &address, "--closed", "--for", "1s"],
    );
    assert!(closed.stdout.contains("closed loop"), "{closed:?}");
    let (open, closed) = (files.keep("open.json", &open), files.keep("closed.json", &closed));
    let ran = command(&["compare", text(&open), text(&closed)]);
    assert_eq!((ran.code, ran.stderr.lines().count(), ran.stdout.as_str()), (2, 1, ""), "{ran:?}");
    assert!(ran.stderr.contains("A is open loop, B is closed loop"), "{ran:?}");
    let ran = command(&["compare", text(&open)]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
    assert_eq!(command(&["compare"]).code, 2);
}
