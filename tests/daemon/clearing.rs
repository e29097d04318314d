//! The IDs of a clearing house: table suffixes that the caller chooses.

use crate::support::program::{Said, snowbank};
use crate::support::{Daemon, Setup};

/// The clearing house's three kinds of IDs in one daemon.
const SOURCES: &str = r#"
[[sources]]
name = "trades"
layout = "clearing"
worker_ids = "machine=81"
[[sources]]
name = "trades-code"
layout = "clearing-code"
worker_ids = "machine=0-9"
[[sources]]
name = "batches"
layout = "clearing-batch"
worker_ids = "machine=81"
"#;

fn next(daemon: &Daemon, source: &str, further: &[&str]) -> Said {
    let address = daemon.addresses[0].to_string();
    snowbank([&["next", "--address", &address, "--source", source][..], further].concat())
}

#[track_caller]
fn ids(said: Said) -> Vec<u64> {
    said.printed().lines().map(|line| line.parse().expect("an ID")).collect()
}

#[test]
fn a_caller_chooses_the_table_suffix() {
    let daemon = Setup::configured(SOURCES).start();
    for source in ["trades", "trades-code"] {
        let chosen = ids(next(&daemon, source, &["-n", "1000", "--set", "table=316"]));
        assert_eq!(chosen.len(), 1000);
        assert!(chosen.iter().all(|id| id % 1000 == 316), "{chosen:?}");
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]), "{chosen:?}");
        // Without a choice the suffix is drawn at random.
        let drawn = ids(next(&daemon, source, &["-n", "100"]));
        assert!(drawn.iter().any(|id| id % 1000 != drawn[0] % 1000), "{drawn:?}");
    }
    let text = next(&daemon, "trades", &["--set", "table=0", "--format", "hex"]).printed();
    assert_eq!(u64::from_str_radix(text.trim(), 16).expect("digits") % 1000, 0);
}

#[test]
fn an_invalid_choice_is_refused() {
    let daemon = Setup::configured(SOURCES).start();
    for (source, set, part) in [
        ("trades", "machine=1", "\"machine\" is not a random field; only random fields"),
        ("trades", "table", "a number, as in table=316"),
        ("batches", "table=1", "only random fields can be chosen, in this layout: none"),
    ] {
        let line = next(&daemon, source, &["--set", set]).refusal(2);
        assert!(line.contains(part), "{line}");
    }
    let twice = next(&daemon, "trades", &["--set", "table=1", "--set", "table=2"]).refusal(2);
    assert!(twice.contains("\"table\" is set twice"), "{twice}");
}
