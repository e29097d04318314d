//! A clearing house from end to end: one daemon with trade IDs and batch IDs, table suffixes that the caller chooses, and a
//! table of old IDs that goes on in the new layout.

mod support;

use std::process::{Command, Output};

use support::{Daemon, Setup};

/// Its three kinds of IDs in one daemon. The layout of the code makes 1,000 IDs per second and machine, so ten machine numbers
/// make the 10,000 that it promised.
const SOURCES: &str = r#"
[[sources]]
name = "trades"
layout = "clearing"
worker_ids = "machine=81,82"
[[sources]]
name = "trades-code"
layout = "clearing-code"
worker_ids = "machine=0-19"
[[sources]]
name = "batches"
layout = "clearing-batch"
worker_ids = "machine=81,82"
"#;

fn snowbank(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_snowbank")).args(arguments).output().expect("the program runs")
}

fn next(daemon: &Daemon, source: &str, further: &[&str]) -> Output {
    let address = daemon.addresses[0].to_string();
    snowbank(&[&["next", "--address", &address, "--source", source][..], further].concat())
}

#[track_caller]
fn ids(output: &Output) -> Vec<u64> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("an ID")).collect()
}

/// The one line of a command that hands out nothing.
#[track_caller]
fn refusal(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

#[test]
fn a_caller_chooses_the_table_suffix() {
    let daemon = Setup::configured(SOURCES).start();
    for source in ["trades", "trades-code"] {
        let chosen = ids(&next(&daemon, source, &["-n", "1000", "--set", "table=316"]));
        assert_eq!(chosen.len(), 1000);
        assert!(chosen.iter().all(|id| id % 1000 == 316), "{chosen:?}");
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]), "{chosen:?}");
        // Without it the suffix is drawn.
        let drawn = ids(&next(&daemon, source, &["-n", "100"]));
        assert!(drawn.iter().any(|id| id % 1000 != drawn[0] % 1000), "{drawn:?}");
    }
    let text = next(&daemon, "trades", &["--set", "table=0", "--format", "hex"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert_eq!(u64::from_str_radix(text.trim(), 16).expect("digits") % 1000, 0);
}

#[test]
fn what_may_not_be_chosen_is_refused_and_nothing_is_handed_out() {
    let daemon = Setup::configured(SOURCES).admin().start();
    for (source, set, part) in [
        ("trades", "machine=1", "machine is a part of the worker number, which keeps IDs distinct"),
        ("trades", "sequence=1", "sequence is the sequence"),
        ("trades", "time=1", "time is the time"),
        ("trades", "tabel=1", "no field \"tabel\"; the fields that may be chosen: table"),
        ("trades", "table=1000", "found table=1000, and table is a number from 0 to 999"),
        ("trades", "table=-1", "a number, as in table=316"),
        ("trades", "table", "a number, as in table=316"),
        ("batches", "table=1", "the fields that may be chosen: none"),
    ] {
        let line = refusal(&next(&daemon, source, &["--set", set]));
        assert!(line.contains(part), "{line}");
    }
    let twice = refusal(&next(&daemon, "trades", &["--set", "table=1", "--set", "table=2"]));
    assert!(twice.contains("table is set twice"), "{twice}");
    let samples = support::http::scrape(&daemon);
    let handed_out: Vec<_> =
        samples.iter().filter(|(name, _)| name.starts_with("snowbank_ids_issued")).collect();
    assert!(!handed_out.is_empty() && handed_out.iter().all(|(_, count)| *count == 0.0), "{handed_out:?}");
}
