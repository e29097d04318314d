//! Worker IDs that move to a machine which booted at another time: its daemon still judges clock
//! steps correctly.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::faketime::true_unix_ms;
use crate::support::ids::twitter_unix_ms;
use crate::support::machine::Machine;
use crate::support::{Ask, each_case};

const DAY_US: i64 = 86_400_000_000;
const TWO_HOURS_MS: i64 = 7_200_000;
/// The horizon of a ceiling that a kill left, and a margin for a busy machine.
const LITTLE_MS: f64 = 5_000.0;

/// An export that nobody could read is no success, and can be made again.
#[test]
fn an_export_into_a_closed_pipe_fails() {
    let machine = Machine::new();
    machine.start("").stop();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
    command.args(["state", "export"]).stdout(writer);
    command.env("SNOWBANK_STATE_DIR", machine.path("state")).env("SNOWBANK_LOCK_DIR", machine.path("locks"));
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the export"), "{output:?}");
    assert_eq!(machine.run(&["state", "export"]).code, Some(0));
}

/// Returns the last ID of a machine's daemon, and the machine's export.
fn exported() -> (u64, serde_json::Value) {
    let machine = Machine::new();
    let daemon = machine.start("");
    let last = daemon.draw_one();
    daemon.stop();
    let export = machine.run(&["state", "export"]).printed();
    (last, serde_json::from_str(&export).expect("an export is JSON"))
}

/// Imports into a machine that booted this much earlier. Its daemon serves at once, reports no
/// clock step, and holds a real step.
fn import_of_another_boot(booted_earlier_us: i64) {
    let Some(machine) = Machine::with_clock() else { return };
    let (last, mut export) = exported();
    for record in export["records"].as_array_mut().expect("records") {
        let offset_us = record["wall_minus_boot_us"].as_i64().expect("a number");
        record["wall_minus_boot_us"] = (offset_us + booted_earlier_us).into();
        record["boot"] = "another machine's".into();
        record["machine"] = "0123456789abcdef0123456789abcdef".into();
    }
    let file = machine.path("export");
    std::fs::write(&file, export.to_string()).expect("written");
    machine.run(&["state", "import", file.to_str().expect("UTF-8")]).printed();

    let daemon = machine.start("");
    let mut wire = daemon.connect();
    let mut ahead_of_the_clock_ms = || {
        let id = wire.next(Ask::of(1).wait_ms(5_000)).ids()[0];
        assert!(id > last, "{id} after {last}");
        twitter_unix_ms(id) as f64 - true_unix_ms(Instant::now())
    };
    assert!(ahead_of_the_clock_ms().abs() < LITTLE_MS);
    // By now the keeper has looked a few times.
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(ahead_of_the_clock_ms().abs() < LITTLE_MS);
    let said = daemon.log();
    assert!(!said.contains("wall clock"), "{said}");

    machine.clock().step(TWO_HOURS_MS);
    for _ in 0..15 {
        std::thread::sleep(Duration::from_millis(100));
        let ahead_ms = ahead_of_the_clock_ms();
        assert!(ahead_ms < LITTLE_MS, "{ahead_ms} ms ahead: the step was followed at once");
    }
    machine.clock().step(-TWO_HOURS_MS);
    daemon.stop();
}

#[test]
fn an_import_from_another_boot_shows_no_clock_step() {
    each_case(&[DAY_US, -DAY_US], |&booted_earlier_us| import_of_another_boot(booted_earlier_us));
}

/// Worker 1 of Twitter's layout and worker 0 of one with a wider sequence make the same IDs.
#[test]
fn the_marks_of_a_colliding_layout_bind_a_start_and_no_export() {
    let machine = Machine::new();
    let twitter = "worker_ids = 1\n";
    let wide = "layout = \"time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657\"\nworker_ids = 0\n";
    let wide = || machine.setup(wide).env("SNOWBANK_STATE_DIR", machine.path("other"));
    let mut last = 0;
    for setup in [machine.setup(twitter), wide()] {
        let daemon = setup.start();
        let id = daemon.draw_one();
        assert!(id > last, "{id} after {last}");
        last = id;
        daemon.stop();
    }
    let export = machine.path("export").display().to_string();
    machine.run(&["state", "export", "--output", &export]).printed();
    wide().end().assert_refusal(&["a worker ID of another layout", "was moved away", "state import"]);
    machine.run(&["state", "import", &export]).printed();
}
