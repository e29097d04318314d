//! A clearing house from end to end: one daemon with trade IDs and batch IDs, table suffixes that
//! the caller chooses, and a table of old IDs that continues in the new layout.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::machine::Machine;
use crate::support::postgres::Postgres;
use crate::support::program::{Said, snowbank};
use crate::support::{Daemon, Setup};

/// The clearing house's three kinds of IDs in one daemon. `clearing-code`, the layout of the
/// house's program, makes 1,000 IDs per second and machine number, so ten machine numbers make the
/// promised 10,000.
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
fn an_invalid_choice_is_refused_and_hands_out_nothing() {
    let daemon = Setup::configured(SOURCES).admin().start();
    for (source, set, part) in [
        ("trades", "machine=1", "\"machine\" is no random field of the layout"),
        ("trades", "table=1000", "found table=1000, and table is a number from 0 to 999"),
        ("trades", "table", "a number, as in table=316"),
        ("batches", "table=1", "only such fields may be chosen: none"),
    ] {
        let line = next(&daemon, source, &["--set", set]).refusal(2);
        assert!(line.contains(part), "{line}");
    }
    let twice = next(&daemon, "trades", &["--set", "table=1", "--set", "table=2"]).refusal(2);
    assert!(twice.contains("\"table\" is set twice"), "{twice}");
    let samples = crate::support::http::scrape(&daemon);
    let handed_out: Vec<_> =
        samples.iter().filter(|(name, _)| name.starts_with("snowbank_ids_issued")).collect();
    assert!(!handed_out.is_empty() && handed_out.iter().all(|(_, count)| *count == 0.0), "{handed_out:?}");
}

/// Moves the table to Snowbank as docs/coming-from.md describes: finds the highest ID and its time,
/// starts a daemon, and inserts rows before and after a clean restart and a kill.
#[test]
#[ignore = "needs PostgreSQL: tests/long runs it"]
fn new_ids_of_an_old_table_lie_above_the_old_ones() {
    let postgres = Postgres::start().expect("PostgreSQL");
    // The last ID is the house's published example: time, sequence 9, machine 81, table.
    postgres.rows(
        "CREATE TABLE trades (id bigint PRIMARY KEY); INSERT INTO trades SELECT \
         (1613024787541 - step * 17) * 1000000 + 981000 + step * 7 % 1000 FROM generate_series(0::bigint, 499) step",
    );
    let highest = postgres.rows("SELECT max(id) FROM trades")[0].clone();
    let old = snowbank(["decode", "--layout", "clearing", &highest]).printed();
    assert!(old.starts_with(&format!("{highest} 2016-11-07T02:13:07.541Z ")), "{old}");
    let configuration = "[[sources]]\nname = \"trades\"\nlayout = \"clearing\"\nworker_ids = \"machine=82\"";
    let machine = Machine::new();
    for is_stopped in [true, false, false] {
        let mut daemon = machine.start(configuration);
        let new = ids(next(&daemon, "trades", &["-n", "300", "--set", "table=316"]));
        let values: Vec<String> = new.iter().map(|id| format!("({id})")).collect();
        postgres.rows(&format!("INSERT INTO trades VALUES {}", values.join(",")));
        if is_stopped {
            daemon.stop();
        } else {
            daemon.kill();
        }
    }
    let rows = postgres.rows(&format!("SELECT count(*), count(*) FILTER (WHERE id > {highest}) FROM trades"));
    assert_eq!(rows, ["1400|900"], "every new ID is above every old one, and none came twice");
    // The database's functions date the new rows now, and agree with the library on an hour's first
    // ID.
    let sql = snowbank(["layout", "clearing", "--sql", "postgres"]).printed();
    let new = "FROM trades WHERE id / 1000 % 100 = 82";
    let rows = postgres.rows(&format!(
        "{sql}\nSELECT count(*) {new} AND abs(extract(epoch FROM snowbank_clearing_time(id) - now())) < 3600;\n\
         SELECT count(*) {new} AND id >= snowbank_clearing_first_id(now() - interval '1 hour');"
    ));
    assert_eq!(rows, ["900", "900"]);
}

/// Requests 10,000 IDs/s of a source, all that its machine numbers have. Returns the last line and
/// the exit code.
fn offer(daemon: &Daemon, source: &str, seconds: &str) -> (String, Option<i32>) {
    let output = Command::new(load_test())
        .args(["--address", &daemon.addresses[0].to_string(), "--source", source])
        .args(["--rate", "10000", "--batch", "10", "--connections", "4", "--threads", "1", "--p99.9", "5s"])
        .args(["--for", seconds])
        .output()
        .expect("the load test runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (format!("{source}: {}", text.lines().last().unwrap_or_default()), output.status.code())
}

fn load_test() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_snowbank")).with_file_name("snowbank-loadtest")
}

/// Runs for five seconds, or `SNOWBANK_CLEARING_S`: a minute in `tests/long`. After a pause of the
/// machine the burst window's unused ticks make up for it, so one machine number keeps the whole
/// rate.
#[test]
fn one_daemon_holds_10_000_ids_per_second_of_each_kind() {
    if !load_test().is_file() {
        crate::support::skip("no snowbank-loadtest beside snowbank; cargo build --workspace makes it");
        return;
    }
    let seconds = std::env::var("SNOWBANK_CLEARING_S").unwrap_or_else(|_| String::from("5"));
    for attempt in 1.. {
        let daemon = Setup::configured(&format!("burst_window = \"5s\"\n{SOURCES}")).start();
        let answers: Vec<(String, Option<i32>)> = std::thread::scope(|scope| {
            let sources = ["trades", "trades-code", "batches"];
            let runs = sources.map(|source| scope.spawn(|| offer(&daemon, source, &format!("{seconds}s"))));
            runs.map(|run| run.join().expect("a run")).into()
        });
        // A starved load generator proves nothing about the daemon.
        let is_judged = answers.iter().all(|(line, code)| *code != Some(2) || !line.contains("bottleneck"));
        if is_judged || attempt == 10 {
            assert!(answers.iter().all(|(_, code)| *code == Some(0)), "{answers:#?}");
            return;
        }
    }
}
