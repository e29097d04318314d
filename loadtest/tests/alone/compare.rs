//! Runs side by side: equal runs compare as equal, and a slower target is found slower.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::alone;
use crate::support::scripted::{slow_target, sound_target};
use crate::support::{Ran, Running, command, start};

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

/// Compares two targets until the spread is narrow enough to tell which is slower, at most ten
/// times: a busy machine makes it wide.
fn until_told(files: &Files, addresses: [&str; 2]) -> ([Vec<PathBuf>; 2], Ran) {
    let mut sides = pairs(files, addresses);
    let mut ran = compare(&sides[0], &sides[1]);
    for _ in 0..9 {
        if !ran.stdout.starts_with("cannot tell: ") {
            break;
        }
        sides = pairs(files, addresses);
        ran = compare(&sides[0], &sides[1]);
    }
    (sides, ran)
}

/// Loads both targets three times, each time together, so that the machine's disturbances affect
/// both alike.
fn pairs(files: &Files, addresses: [&str; 2]) -> [Vec<PathBuf>; 2] {
    let load =
        ["--rate", "60", "--for", "2s", "--warm-up", "300ms", "--connections", "4", "--p99.9", "900ms"];
    let mut sides = [Vec::new(), Vec::new()];
    for number in 0..3 {
        let both = addresses.map(|address| start(&[&["--address", address], &load[..]].concat()));
        for ((side, ran), name) in sides.iter_mut().zip(both.map(Running::wait)).zip(["a", "b"]) {
            side.push(files.keep(&format!("{name}{number}.json"), &ran));
        }
    }
    sides
}

fn compare(a: &[PathBuf], b: &[PathBuf]) -> Ran {
    let files = |side: &[PathBuf]| side.iter().map(|path| text(path).to_owned()).collect::<Vec<_>>();
    let words = [vec!["compare".to_owned()], files(a), vec!["--with".to_owned()], files(b)].concat();
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--fail-if-worse"]).collect();
    command(&words)
}

/// The response time of a steady target. It is long compared with the delays of a busy machine.
const STEADY: Duration = Duration::from_millis(20);

#[test]
fn equal_targets_are_equal_and_a_slower_one_is_slower() {
    let _alone = alone();
    let files = Files::new();
    let one = slow_target(STEADY);
    let other = slow_target(STEADY);
    let quick = sound_target();
    let [a, b] = pairs(&files, [&one.name(), &other.name()]);
    let same = compare(&a, &b);
    assert_ne!(same.code, 1, "{same:?}");
    assert!(["equal: ", "cannot tell: "].iter().any(|word| same.stdout.starts_with(word)), "{same:?}");
    let ([quick, slow], slower) = until_told(&files, [&quick.name(), &one.name()]);
    assert!(slower.code == 1 && slower.stdout.starts_with("slower: response time p"), "{slower:?}");
    let faster = compare(&slow, &quick);
    assert!(faster.code == 0 && faster.stdout.starts_with("faster: response time p"), "{faster:?}");
    // A warning repeats the reasons of a run.
    let mut table = slower.stdout.lines().skip(2).filter(|line| !line.starts_with("warning: "));
    assert!(table.all(|line| line.chars().count() <= 110), "{slower:?}");
}

#[test]
fn runs_that_measured_different_things_are_refused() {
    let files = Files::new();
    let target = sound_target();
    let address = target.name();
    let open = start(&["--address", &address, "--rate", "100", "--for", "1s", "--p99.9", "900ms"]).wait();
    let closed = start(&["--address", &address, "--closed", "--for", "1s"]).wait();
    let open = files.keep("open.json", &open);
    let closed = files.keep("closed.json", &closed);
    let ran = compare(&[open], &[closed]);
    assert_eq!((ran.code, ran.stderr.lines().count(), ran.stdout.len()), (2, 1, 0), "{ran:?}");
    assert!(ran.stderr.contains("A is open loop, B is closed loop"), "{ran:?}");
    assert_eq!(command(&["compare"]).code, 2);
}
