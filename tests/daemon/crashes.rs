//! Daemons that are killed or suspended, or whose locks are lost, repeat no ID.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::clock_steps::evidence::{assert_follows, tick};
use crate::support::failing_disk::EPERM;
use crate::support::faketime::true_unix_ms;
use crate::support::ids::assert_distinct;
use crate::support::machine::Machine;
use crate::support::wire::{NO_CEILING, Run, SHUTTING_DOWN};
use crate::support::witness::{FLOOD, Load, MIXED, SPARSE, Sample, Witness};
use crate::support::{Ask, DEADLINE, Daemon, Random, Wire, lock_files};
use rustix::process::Signal;

/// Returns how often a test kills its daemon: `SNOWBANK_KILLS`, which `tests/long` sets, or a
/// default.
fn rounds() -> u64 {
    std::env::var("SNOWBANK_KILLS").map_or(30, |kills| kills.parse().expect("SNOWBANK_KILLS: a number"))
}

/// Kills and restarts a daemon again and again while connections request IDs. In each round the
/// wall clock is set further back.
#[test]
fn kills_with_the_clock_further_back_each_time_repeat_nothing() {
    const LOST_MS: u64 = 40;
    const HORIZON_MS: f64 = 3_000.0;
    /// A tolerance: a ceiling is rounded up to a tick. And the first ceiling rises in steps while
    /// the first IDs are handed out.
    const LITTLE_MS: f64 = 30.0;
    const LOADS: [Load; 4] = [MIXED, MIXED, SPARSE, FLOOD];
    let Some(machine) = Machine::with_clock() else { return };
    let mut random = Random::seeded(1);
    let mut runs = Vec::<Run>::new();
    let mut highest = 0;
    let mut lost_in_all_ms = 0;
    let mut starved = 0;
    for round in 0..rounds() {
        let started = Instant::now();
        let mut daemon = machine.start("shards = 2");
        // After a kill the ID clock starts seconds ahead of the wall clock. The first ceiling is
        // only a few ms above the ID clock. So the daemon may have to raise the ceiling before the
        // first ID. On a busy machine that takes seconds.
        let first = daemon.connect().next_once_granted(Ask::of(1).wait_ms(1_000)).ids()[0];
        let answered = Instant::now();
        assert!(first > highest, "round {round}: the first ID {first} is not above {highest}");
        // However often the daemon crashes, its first ID is not far ahead of the wall clock. The
        // most is the horizon plus the time by which this test has set the clock back.
        let ahead_ms = tick(first) - true_unix_ms(answered);
        assert!(
            ahead_ms <= HORIZON_MS + LITTLE_MS,
            "round {round}: the first ID is {ahead_ms} ms ahead of the true time"
        );
        let witness = Witness::of(&daemon, &LOADS);
        if round % 10 != 0 {
            // Every tenth daemon gets no time, and is killed as early as possible.
            witness.await_time(Duration::from_micros(random.below(60_000)));
        }
        daemon.kill();
        let testimony = witness.after_death();
        for samples in &testimony.connections {
            let mut last = first;
            for (first, to) in samples.iter().filter_map(Sample::ids) {
                assert!(first > last, "round {round}: {first} is not above {last} of the same connection");
                last = to;
            }
        }
        // On a busy machine a ceiling may rise too late.
        testimony.assert_refusals(|sample, _, _| sample.is_starved);
        starved += u64::from(testimony.samples().any(|sample| sample.is_starved));
        let new = testimony.runs();
        highest = new.iter().map(|run| run.last()).max().unwrap_or(first).max(first);
        runs.extend(new);
        runs.push(Run { first, count: 1, stride: 1 });
        drop(daemon);
        // With faster restarts the daemon would refuse requests with `clock_behind`. It would still
        // repeat no ID.
        std::thread::sleep(Duration::from_millis(50).saturating_sub(started.elapsed()));
        lost_in_all_ms += random.below(LOST_MS) as i64;
        machine.clock().set(-lost_in_all_ms);
    }
    assert_distinct(runs);
    assert!(starved <= rounds() / 10, "requests waited in vain in {starved} rounds");
}

/// A suspended process does not notice the pause. When the process continues, its blocks are old.
#[test]
fn a_resumed_daemon_hands_out_no_old_ids() {
    let machine = Machine::new();
    let daemon = machine.start("shards = 2");
    let witness = Witness::of(&daemon, &[MIXED, MIXED, FLOOD, SPARSE]);
    let mut woken = Vec::new();
    for suspended_ms in [50, 400, 2_500] {
        witness.await_ids();
        witness.await_time(Duration::from_millis(100));
        daemon.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(suspended_ms));
        // The daemon is still stopped. So it reads the requests that are sent from now on only
        // after it continues.
        woken.push(Instant::now());
        daemon.signal(Signal::CONT);
    }
    witness.await_ids();
    let testimony = witness.stop();
    daemon.stop();

    testimony.assert_unique_and_ordered();
    // The daemon may refuse a request only if its wait ended meanwhile: while the daemon was
    // stopped, or had to wait for a core.
    testimony.assert_refusals(|sample, _, _| {
        let is_woken = woken.iter().any(|&at| sample.asked < at && at <= sample.answered);
        sample.is_starved || (sample.waited_in_vain() && is_woken)
    });
    // An ID is at most a burst window older than its request: the daemon reads the ID clock later.
    assert_follows("suspended", testimony.samples(), 0);
    for (index, woken) in woken.iter().enumerate() {
        let next = testimony.samples().find(|sample| sample.asked >= *woken && sample.ids().is_some());
        assert!(next.is_some(), "no IDs after suspension {index}");
    }
}

/// Draws IDs until the daemon refuses a request or has ended.
fn draw_to_the_end(wire: &mut Wire) -> Vec<Run> {
    let mut runs = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    while wire.try_send(&Ask::of(1).default_wait().bytes()).is_ok()
        && let Ok(Some(reply)) = wire.try_reply()
    {
        assert!(Instant::now() < deadline, "the daemon still serves");
        if reply.id_count().is_none() {
            let (code, _, message) = reply.error();
            assert!([NO_CEILING, SHUTTING_DOWN].contains(&code), "{message}");
            break;
        }
        runs.extend(reply.runs());
    }
    runs
}

/// Removes or replaces a file of a running daemon. Checks that the daemon stops handing out IDs,
/// logs the reason and ends, and that the next daemon starts above its IDs.
fn taken_over(machine: &Machine, mut daemon: Daemon, path: &Path, take: impl FnOnce(&Path)) {
    let mut wire = daemon.connect();
    assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1));
    take(path);
    let runs = draw_to_the_end(&mut wire);
    assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
    daemon.assert_logs(path.file_name().and_then(|name| name.to_str()).expect("text"));
    let next = machine.beside("").start();
    let after = next.draw_one();
    assert!(runs.iter().all(|run| run.last() < after), "{after} after {runs:?}");
}

#[test]
fn a_lock_that_is_removed_or_replaced_stops_its_daemon() {
    let remove = |path: &Path| std::fs::remove_file(path).expect("removed");
    let replace = |path: &Path| {
        let other = path.with_extension("new");
        std::fs::write(&other, "").expect("written");
        std::fs::rename(&other, path).expect("replaced");
    };
    for take in [remove, replace] {
        let machine = Machine::new();
        let daemon = machine.start("");
        taken_over(&machine, daemon, &lock_files(&machine.path("locks"))[0], take);
    }
}

/// Even while storage hangs, the daemon checks the locks of its worker IDs.
#[test]
fn a_lock_that_is_removed_while_storage_stalls_stops_its_daemon() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup(FAR_CEILING)).start();
    let mut wire = daemon.connect();
    disk.stall_syncs(20_000, || assert_eq!(wire.next(Ask::of(1)).id_count(), Some(1)));
    let calls = disk.calls();
    taken_over(&machine, daemon, &lock_files(&machine.path("locks"))[0], |path| {
        std::fs::remove_file(path).expect("removed")
    });
    assert_eq!(disk.calls(), calls, "storage worked again before the daemon ended");
}

/// The horizon is two ticks of this layout, so a daemon serves for seconds while its storage hangs.
const FAR_CEILING: &str = "layout = \"time:30,worker:10,sequence:20;tick=5s\"";

/// The lock of the state is on the disk that hangs. So the daemon notices the loss of the lock only
/// when the disk answers. Until then the daemon serves below its ceiling. Another daemon that takes
/// over the state reads that ceiling and starts above it.
#[test]
fn a_state_lock_removed_while_storage_stalls_stops_its_daemon() {
    let machine = Machine::new();
    let disk = machine.disk();
    let mut daemon = disk.under(machine.setup(FAR_CEILING)).start();
    let mut wire = daemon.connect();
    let mut runs = wire.next(Ask::of(1)).runs();
    disk.stall_syncs(4_000, || {});
    std::fs::remove_file(machine.path("state/lock")).expect("removed");
    // The other daemon has another lock_dir, so it does not see that the worker ID is locked. When
    // the first daemon's hanging write continues, the other daemon may notice it, and stop as well.
    let others_start = || machine.setup("").env("SNOWBANK_LOCK_DIR", machine.path("elsewhere")).start();
    let mut other = others_start();
    let mut others_wire = other.connect();
    let others = std::thread::spawn(move || draw_to_the_end(&mut others_wire));
    runs.extend(draw_to_the_end(&mut wire));
    disk.works();
    // The first daemon ends once its hanging write has ended.
    assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
    other.kill();
    runs.extend(others.join().expect("its connection ends"));
    runs.extend(others_start().connect().next(Ask::of(100)).runs());
    assert_distinct(runs);
    let said = daemon.log();
    assert_eq!(said.matches("stopped, because").count(), 1, "{said}");
}

/// A service manager may deny access to the kernel's log (`ProtectKernelLogs`), or pass the log as
/// standard input.
#[test]
fn one_log_line_says_how_a_restore_is_noticed() {
    let assert_only_line = |stdin: Stdio, line: &str| {
        let machine = Machine::new();
        let disk = machine.disk();
        disk.order(&format!("kernel fail {EPERM}"));
        let daemon = disk.under(machine.setup("")).stdin(stdin).start();
        daemon.connect().next(Ask::of(1)).ids();
        daemon.assert_logs(line);
        let log = daemon.log();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("snapshot")).collect();
        assert!(matches!(lines[..], [only] if only.contains(line)), "{log}");
    };
    assert_only_line(Stdio::null(), "its clocks jump");
    match std::fs::File::open("/dev/kmsg") {
        Ok(log) => assert_only_line(log.into(), "reads the kernel's log (standard input)"),
        Err(_) => crate::support::skip("this user may not read the kernel's log"),
    }
}
