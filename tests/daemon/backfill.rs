//! `snowbank backfill`: IDs for rows that exist already.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::support::Random;
use crate::support::ids::unix_ms;
use crate::support::machine::Machine;
use crate::support::program::{program, run_with_input as run};

/// 2024-01-01T00:00:00Z, in Unix milliseconds.
const YEAR_2024: u64 = 1_704_067_200_000;
/// The epoch of `twitter`.
const EPOCH: u64 = 1_288_834_974_657;

/// A command with its own state and locks, and its input.
fn backfill(machine: &Machine, layout: &str, worker_id: &str) -> Command {
    let mut command = program();
    command.args(["backfill", "--layout", layout, "--worker-id", worker_id]);
    command
        .env("SNOWBANK_STATE_DIR", machine.path("backfill"))
        .env("SNOWBANK_LOCK_DIR", machine.path("locks"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Forgets the worker IDs that no run used last. The locks do not outlast the boot.
fn forget_and_boot(machine: &Machine) {
    let mut forget = program();
    forget.args(["state", "forget"]).env("SNOWBANK_STATE_DIR", machine.path("backfill"));
    forget.env("SNOWBANK_LOCK_DIR", machine.path("locks")).stdin(Stdio::piped()).stdout(Stdio::piped());
    run(&mut forget, "").printed();
    std::fs::remove_dir_all(machine.path("locks")).unwrap();
}

fn ids(said: &str) -> Vec<u64> {
    said.lines().map(|line| line.parse().expect("an ID")).collect()
}

#[test]
fn a_full_disk_may_have_cut_off_the_last_line() {
    let mut command = backfill(&Machine::new(), "twitter", "5");
    command.stdout(File::options().write(true).open("/dev/full").expect("a full device"));
    let said = run(&mut command, "2024-01-01T00:00:00Z\n");
    assert!(said.code == Some(1) && said.err.contains("it is a part of an ID"), "{said:?}");
}

#[test]
fn each_instant_gets_an_id_of_its_tick_and_worker() {
    let machine = Machine::new();
    // As PowerShell, psql -t and CSV print them, the last with an empty line behind it.
    let input = "\u{feff}2024-01-01T00:00:00Z\r\n1704067200000\n \"2024-01-01 01:00:00.005+01\" \n 1706745600000\n\n\n";
    let said = run(&mut backfill(&machine, "twitter", "datacenter=31,worker=8"), input);
    let ids = ids(&said.printed());
    let fields: Vec<_> = ids.iter().map(|id| ((id >> 22) + EPOCH, id >> 12 & 1023)).collect();
    let expected = [YEAR_2024, YEAR_2024, YEAR_2024 + 5, 1_706_745_600_000];
    assert_eq!(fields, expected.map(|instant| (instant, 1000)));
    assert!(ids.is_sorted_by(|one, two| one < two), "{ids:?}");
}

#[test]
fn another_run_goes_on_with_later_instants_and_refuses_earlier_ones() {
    let machine = Machine::new();
    let first = ids(&run(&mut backfill(&machine, "twitter", "7"), "2024-02-01\n").printed());
    let refused = run(&mut backfill(&machine, "twitter", "7"), "2024-01-31T23:59:59.999Z\n").refusal(1);
    assert!(
        refused.contains(
            "line 1: found 2024-01-31T23:59:59.999Z, allowed: instants from 2024-02-01T00:00:00.000Z"
        ),
        "{refused}"
    );
    // The same tick still has IDs, and another worker ID begins anywhere.
    let again = ids(&run(&mut backfill(&machine, "twitter", "7"), "2024-02-01\n2024-02-02\n").printed());
    assert!(first[0] < again[0] && again[0] >> 22 == first[0] >> 22, "{first:?} {again:?}");
    run(&mut backfill(&machine, "twitter", "8"), "2020-01-01\n").printed();
    // So does a state that was lost: the lock remembers.
    std::fs::remove_dir_all(machine.path("backfill")).unwrap();
    let refused = run(&mut backfill(&machine, "twitter", "7"), "2024-01-01\n").refusal(1);
    assert!(refused.contains("allowed: instants from 2024-02-02"), "{refused}");
}

#[test]
fn rows_of_one_instant_may_lie_in_several_runs() {
    let machine = Machine::new();
    let rows = |count: usize| "2024-01-01\n".repeat(count);
    let mut seen = BTreeSet::new();
    // Three ticks have so many IDs.
    for _ in 0..3 {
        seen.extend(ids(&run(&mut backfill(&machine, "twitter", "7"), &rows(5_000)).printed()));
    }
    assert_eq!(seen.len(), 15_000);
    let refused = run(&mut backfill(&machine, "twitter", "7"), "2023-12-31\n").refusal(1);
    assert!(refused.contains("allowed: instants from 2024-01-01T00:00:00.000Z"), "{refused}");
}

#[test]
fn layouts_with_other_epochs_share_no_id_in_one_state() {
    let machine = Machine::new();
    // Both instants have the same time in their IDs.
    let twitter = ids(&run(&mut backfill(&machine, "twitter", "7"), "1500000000000\n").printed());
    let discord = 1_500_000_000_000 + 1_420_070_400_000 - EPOCH;
    let refused = run(&mut backfill(&machine, "discord", "7"), &format!("{}\n", discord - 1)).refusal(1);
    assert!(refused.contains("one that makes the same IDs"), "{refused}");
    let later = run(&mut backfill(&machine, "discord", "7"), &format!("{discord}\n")).printed();
    assert!(ids(&later) > twitter);
    run(&mut backfill(&machine, "twitter", "8"), "1400000000000\n").printed();

    // Also if only the bound of a forgotten worker ID is left of the first layout.
    let machine = Machine::new();
    run(&mut backfill(&machine, "twitter", "7"), "1500000000000\n").printed();
    run(&mut backfill(&machine, "discord", "9"), "2024-01-01\n").printed();
    forget_and_boot(&machine);
    let refused = run(&mut backfill(&machine, "discord", "7"), &format!("{}\n", discord - 1)).refusal(1);
    assert!(refused.contains("one that makes the same IDs"), "{refused}");
}

#[test]
fn a_forgotten_worker_id_goes_on_above_its_ids_after_a_boot() {
    let machine = Machine::new();
    for (worker_id, instant) in [("1023", "2020-01-01"), ("1022", "2024-01-01"), ("1", "2024-02-01")] {
        run(&mut backfill(&machine, "twitter", worker_id), &format!("{instant}\n")).printed();
    }
    forget_and_boot(&machine);
    let refused = run(&mut backfill(&machine, "twitter", "1023"), "2020-01-01\n").refusal(1);
    assert!(refused.contains("allowed: instants from 2024-01-01") && refused.contains("forget"), "{refused}");
    run(&mut backfill(&machine, "twitter", "1023"), "2024-01-01\n").printed();
}

#[test]
fn wrong_lines_are_refused_and_what_was_printed_before_is_good() {
    let year = (unix_ms() + 400 * 86_400_000).to_string();
    for (line, part) in [
        (
            "2023-12-31",
            "allowed: instants from 2024-01-01T00:00:00.000Z on, that of the line before; sort the lines",
        ),
        ("", "line 2: found an empty line"),
        ("now", "line 2: "),
        ("1704067200000000", "of microseconds, leave off the last three digits"),
        ("1704067200000000000", "of nanoseconds, leave off the last six digits"),
        ("1704067200.25", "of seconds with a fraction, write whole milliseconds"),
        ("1.7e+12", "write whole milliseconds"),
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00Z"),
        ("1704067201", "1704067201000"),
        ("2010-01-01", "sort the lines"),
        ("9223372036854775808", "line 2: "),
        (&year, "in the future"),
        (&"9".repeat(100_000), "line 2: "),
        ("\u{fffd}2024", "line 2: "),
    ] {
        let machine = Machine::new();
        let said = run(&mut backfill(&machine, "twitter", "7"), &format!("2024-01-01\n{line}\n2024-06-01\n"));
        assert_eq!((said.code, ids(&said.out).len()), (Some(1), 1), "{line:.20}: {}", said.err);
        assert!(said.err.contains(part) && said.err.lines().count() == 1, "{line:.20}: {}", said.err);
        // The refused line has taken nothing.
        run(&mut backfill(&machine, "twitter", "7"), "2024-01-01\n").printed();
    }
    let machine = Machine::new();
    for (layout, worker_id, part) in [
        ("twitter", "1024", "1024"),
        ("twitter", "0-3", "one worker ID"),
        ("ticket", "1", "ticket"),
        ("snow", "1", "snow"),
    ] {
        let refused = run(&mut backfill(&machine, layout, worker_id), "2024-01-01\n").refusal(2);
        assert!(refused.contains(part), "{refused}");
    }
    let before_the_epoch = run(&mut backfill(&machine, "twitter", "7"), "2010-01-01\n").refusal(1);
    assert!(before_the_epoch.contains("2010-11-04T01:42:54.657Z"), "{before_the_epoch}");
}

#[test]
fn a_worker_id_or_a_state_in_use_is_refused() {
    let machine = Machine::new();
    let daemon = machine.start("worker_ids = 7");
    let refused = run(&mut backfill(&machine, "twitter", "7"), "2024-01-01\n").refusal(1);
    assert!(refused.contains("worker ID 7") && refused.contains("another daemon"), "{refused}");
    let other = "time:41,node:10,sequence:12;epoch=1288834974657";
    run(&mut backfill(&machine, other, "7"), "2024-01-01\n").refusal(1);
    let mut with_its_state = backfill(&machine, "twitter", "9");
    let refused =
        run(with_its_state.arg("--state-dir").arg(machine.path("state")), "2024-01-01\n").refusal(1);
    assert!(refused.contains("is in use"), "{refused}");
    daemon.stop();
    // The daemon's IDs are from now: the past is below them.
    let refused = run(&mut backfill(&machine, "twitter", "7"), "2024-01-01\n").refusal(1);
    assert!(refused.contains("worker ID that was never used"), "{refused}");
}

#[test]
fn the_records_of_a_daemon_stay_as_they_are() {
    let machine = Machine::new();
    machine.start("worker_ids = 7").kill();
    let state = || std::fs::read_to_string(machine.path("state/ceilings")).unwrap();
    let of_daemon = |state: &str| {
        let lines = state.lines().filter(|line| line.contains("\"default\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = of_daemon(&state());
    assert!(!before.is_empty(), "{}", state());
    let mut with_its_state = backfill(&machine, "twitter", "9");
    run(with_its_state.arg("--state-dir").arg(machine.path("state")), "2024-01-01\n").printed();
    assert_eq!(of_daemon(&state()), before);
    assert!(state().contains("\"backfill\""), "{}", state());
}

#[test]
fn more_rows_than_a_tick_has_ids_flow_into_the_next_ticks() {
    let machine = Machine::new();
    // Ten IDs for each millisecond.
    let input = "2024-01-01\n".repeat(1_000);
    let drawn = ids(&run(&mut backfill(&machine, "clearing-batch", "5"), &input).printed());
    assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 1_000);
    assert!(drawn[999] / 1_000 - drawn[0] / 1_000 <= 100, "{} {}", drawn[0], drawn[999]);
    let said = run(&mut backfill(&machine, "clearing-batch", "6"), &"2024-01-01\n".repeat(100_100));
    assert!(said.code == Some(1) && said.err.contains("10s ahead"), "{}", said.err);
    let drawn = ids(&said.out);
    assert!(
        drawn.len() > 99_000 && drawn.iter().collect::<BTreeSet<_>>().len() == drawn.len(),
        "{}",
        drawn.len()
    );
}

/// Starts a run over a million instants, half a minute apart, and reads some of its IDs.
fn interrupted(machine: &Machine, lines: usize) -> (Child, BufReader<std::process::ChildStdout>, Vec<u64>) {
    let path = machine.path("instants");
    let mut file = std::io::BufWriter::new(File::create(&path).unwrap());
    (0..1_000_000).for_each(|row| writeln!(file, "{}", EPOCH + row * 30_000).unwrap());
    drop(file);
    let mut command = backfill(machine, "twitter", "7");
    let mut child = command.stdin(File::open(&path).unwrap()).spawn().expect("the program runs");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut drawn = Vec::new();
    for _ in 0..lines {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        drawn.push(line.trim_end().parse().expect("an ID"));
    }
    (child, out, drawn)
}

#[test]
fn after_ctrl_c_the_next_run_goes_on_behind_the_last_printed_id() {
    let machine = Machine::new();
    // The pipe is full, so the program waits for its reader.
    let (child, out, mut drawn) = interrupted(&machine, 10);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drawn.extend(out.lines().map(|line| line.unwrap().parse::<u64>().expect("a whole ID")));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let next = EPOCH + drawn.len() as u64 * 30_000;
    let rest = ids(&run(&mut backfill(&machine, "twitter", "7"), &format!("{next}\n")).printed());
    assert!(rest[0] > *drawn.last().unwrap());
}

/// The instants that databases and programs write.
#[test]
fn instants_have_zones_fractions_and_leap_seconds() {
    /// 2017-01-01T00:00:00Z, in Unix milliseconds.
    const YEAR_2017: u64 = 1_483_228_800_000;
    let machine = Machine::new();
    let rows = [
        ("2016-12-31T23:59:59.999Z", YEAR_2017 - 1),
        ("2016-12-31T23:59:60Z", YEAR_2017),
        ("2016-12-31T23:59:60.5Z", YEAR_2017),
        ("2017-01-01", YEAR_2017),
        ("2016-12-31T19:00:00-05:00", YEAR_2017),
        ("2017-01-01T05:45:00.0019+05:45", YEAR_2017 + 1),
        ("2017-01-01 00:00:00.002+00", YEAR_2017 + 2),
        ("2017-01-01t00:00:00.0029999z", YEAR_2017 + 2),
        ("1483228800003", YEAR_2017 + 3),
        ("2017-01-01T00:01Z", YEAR_2017 + 60_000),
    ];
    let input: String = rows.iter().map(|(text, _)| format!("{text}\r\n")).collect();
    let said = run(&mut backfill(&machine, "twitter", "7"), &input);
    let found: Vec<_> = ids(&said.printed()).iter().map(|id| (id >> 22) + EPOCH).collect();
    assert_eq!(found, rows.map(|(_, instant)| instant));
}

#[test]
fn a_reader_that_goes_away_leaves_a_state_that_goes_on() {
    let machine = Machine::new();
    let (child, out, drawn) = interrupted(&machine, 10);
    drop(out);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("the reader of the output is gone"), "{said}");
    let goes_on =
        said.split("goes on at ").nth(1).and_then(|rest| rest.split(',').next()).expect("an instant");
    let rest = ids(&run(&mut backfill(&machine, "twitter", "7"), &format!("{goes_on}\n")).printed());
    assert!(rest[0] > *drawn.last().unwrap());
}

/// The input is a pipe, and a million instants take no more memory than the first hundred thousand.
#[test]
fn a_million_instants_need_no_more_memory_than_few() {
    let machine = Machine::new();
    let mut child = backfill(&machine, "twitter", "7").spawn().expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut peaks_kib = Vec::new();
    let mut last = 0;
    for part in 0..10 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let rows = part * 100_000..(part + 1) * 100_000;
                let lines: String = rows.map(|row| format!("{}\n", EPOCH + row * 30_000)).collect();
                stdin.write_all(lines.as_bytes()).expect("read");
            });
            for _ in 0..100_000 {
                let mut line = String::new();
                out.read_line(&mut line).unwrap();
                let id: u64 = line.trim_end().parse().expect("an ID");
                assert!(id > last, "{id} after {last}");
                last = id;
            }
        });
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        peaks_kib.push(peak.trim_end_matches("kB").trim().parse::<u64>().expect("a number"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert!(peaks_kib[9] <= peaks_kib[0] + 1_024, "{peaks_kib:?}");
}

/// Each run is killed somewhere. The next one goes on with the rows whose IDs were not printed or,
/// as its refusal says, from a later instant on.
#[test]
fn runs_that_are_killed_again_and_again_repeat_no_id() {
    let machine = Machine::new();
    let mut random = Random::seeded(46);
    let mut seen = BTreeSet::new();
    let mut row = 0;
    for _ in 0..25 {
        let mut child = backfill(&machine, "twitter", "7").spawn().expect("the program runs");
        let mut stdin = child.stdin.take().expect("piped");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let instant = |row: u64| YEAR_2024 + row * 50;
        let lines: String = (row..row + 40_000).map(|row| format!("{}\n", instant(row))).collect();
        let feeder = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
        let until = random.below(20_000);
        let mut printed = 0;
        for line in out.lines() {
            let line = line.unwrap();
            // A line that was cut off is no ID.
            if let Ok(id) = line.parse::<u64>()
                && (id >> 22) + EPOCH == instant(row + printed)
            {
                assert!(seen.insert(id), "{id} came twice");
                printed += 1;
            }
            if printed == until {
                child.kill().unwrap();
            }
        }
        let output = child.wait_with_output().unwrap();
        let _ = feeder.join().expect("the thread ends");
        row += printed;
        let said = String::from_utf8(output.stderr).unwrap();
        if let Some((_, allowed)) = said.split_once("allowed: instants from ") {
            assert_eq!(printed, 0, "{said}");
            let from: jiff::Timestamp = allowed.split(' ').next().expect("one").parse().expect("an instant");
            let later = (from.as_millisecond() as u64 - instant(0)).div_ceil(50);
            assert!(later > row && later <= row + 8_192 + 1, "{said}");
            row = later;
        }
    }
    assert!(seen.len() > 25 * 1_000, "{}", seen.len());
}

#[test]
fn after_a_kill_no_id_comes_twice() {
    let machine = Machine::new();
    let (mut child, out, mut drawn) = interrupted(&machine, 20_000);
    child.kill().unwrap();
    drawn.extend(out.lines().map_while(|line| line.unwrap().parse::<u64>().ok()));
    child.wait().unwrap();
    let next = EPOCH + drawn.len() as u64 * 30_000;
    let said = run(&mut backfill(&machine, "twitter", "7"), &format!("{next}\n"));
    // At most the lines whose IDs were made durable together are lost.
    let said = if said.code == Some(1) {
        let next = next + 8_192 * 30_000;
        run(&mut backfill(&machine, "twitter", "7"), &format!("{next}\n"))
    } else {
        said
    };
    assert!(ids(&said.printed())[0] > *drawn.last().unwrap());
}
