//! Schedules of events that once repeated IDs in a fleet. Each runs on a real coordinator and
//! checks that all IDs of its daemons are distinct. If a daemon now refuses a step of the schedule,
//! the output shows the refusal.
//!
//! The schedules take minutes, so only `tests/long` runs them. `SNOWBANK_SCHEDULE=lowered` selects
//! the schedules whose names contain `lowered`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::*;
use crate::support::copy;
use crate::support::wire::{CLOCK_BEHIND, Wire};

/// The number of IDs in one request.
const BATCH: u32 = 10_000;
/// The number of requests in one draw. Together they ask for the IDs that the layout makes in a
/// quarter of a second.
const BATCHES: usize = 100;
/// The longest time for which a draw waits for its IDs. No floor of the schedules is that far
/// ahead.
const TURN: Duration = Duration::from_secs(60);

struct Schedule {
    name: &'static str,
    play: fn(&mut dyn Coordinator, &mut Tally),
}

const SCHEDULES: [Schedule; 8] = [
    Schedule { name: "a jump of the clocks, and a kill", play: jump_and_kill },
    Schedule { name: "a jump of the clocks, and a kill inside a call that hangs", play: jump_and_hang },
    Schedule { name: "max_ahead lowered between two starts", play: lower_max_ahead },
    Schedule { name: "a slow disk, a cut connection, and a restore", play: slow_disk },
    Schedule { name: "many worker IDs, slow answers, and a restore", play: many_worker_ids },
    Schedule { name: "lost data, and a clock that was ahead", play: lost_data },
    Schedule { name: "a restored key with a count of writes that was there before", play: paused_writer },
    Schedule { name: "two restores in a row, and a daemon that is cut off", play: two_restores },
];

/// The IDs of each daemon of a schedule, and the refusals.
#[derive(Default)]
struct Tally {
    runs: BTreeMap<String, Vec<Run>>,
    refused: Vec<String>,
}

impl Tally {
    /// Draws from all of these daemons at the same time. If a daemon refuses requests, repeats them
    /// until the daemon ends or [`TURN`] has passed.
    fn draw(&mut self, daemons: &[(&str, &Daemon)]) {
        let drawn: Vec<Vec<Run>> = thread::scope(|scope| {
            let running: Vec<_> =
                daemons.iter().map(|(_, daemon)| scope.spawn(|| draw_many(daemon))).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for ((name, _), runs) in daemons.iter().zip(drawn) {
            self.runs.entry((*name).to_owned()).or_default().extend(runs);
        }
    }

    /// Finds the line of `text` that has this part, and adds the line to the refusals.
    #[track_caller]
    fn refuse(&mut self, text: &str, part: &str) {
        let line = text.lines().find(|line| line.contains(part));
        self.refused.push(line.unwrap_or_else(|| panic!("{part:?} is not in {text}")).to_owned());
    }

    fn end(self, name: &str, coordinator: &str) {
        println!("{name}, on {coordinator}:");
        for (daemon, runs) in &self.runs {
            let ids: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
            println!("  {daemon}: {ids} IDs");
        }
        self.refused.iter().for_each(|line| println!("  refused: {line}"));
        assert!(!self.runs.is_empty() || !self.refused.is_empty());
        assert_distinct(self.runs.into_values().flatten().collect());
        println!("  0 twice");
    }
}

/// Sends all requests at once, so that a paused daemon finds them when it wakes up.
fn draw_many(daemon: &Daemon) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut missing = BATCHES;
    let deadline = Instant::now() + TURN;
    while missing > 0 && Instant::now() < deadline {
        // A daemon that gets its worker ID closes the connections that were made before.
        let Ok(mut wire) = Wire::try_connect(&daemon.addresses[0]) else { break };
        let asked = missing;
        if wire.try_send(&Ask::of(BATCH).wait_ms(500).bytes().repeat(asked)).is_err() {
            continue;
        }
        for _ in 0..asked {
            match wire.try_reply() {
                Ok(Some(Reply::Runs(_, more))) => {
                    runs.extend(more);
                    missing -= 1;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    runs
}

/// Returns the configuration of a fleet's daemon. `origin` is the setting of its worker IDs.
fn config(at: &dyn Coordinator, url: &str, name: &str, origin: &str, horizon: &str) -> String {
    let table = at.table(&[url]);
    format!("max_ahead = \"1s\"\n{origin}\n{table}name = \"{name}\"\nhorizon = \"{horizon}\"\n")
}

const ASSIGNED: &str = "worker_id_from = \"coordinator\"";

/// Saves the disk of a machine whose daemon does not run.
fn save(machine: &Machine) {
    fs::create_dir(machine.path("saved")).expect("a new directory");
    for name in ["state", "locks"] {
        copy(&machine.path(name), &machine.path("saved"));
    }
}

/// Restores the saved disk into the same directories. The machine is then a copy of the saved
/// machine.
fn put_back(machine: &Machine) {
    for name in ["state", "locks"] {
        for entry in fs::read_dir(machine.path(name)).expect("a directory").flatten() {
            let _ = fs::remove_file(entry.path());
        }
        copy(&machine.path(&format!("saved/{name}/.")), &machine.path(name));
    }
}

/// A daemon notices a jump of its clock and is killed. Then its disk is saved, and two copies of
/// the machine start from that disk.
fn jump_and_kill(at: &mut dyn Coordinator, tally: &mut Tally) {
    jump(at, "jump", Proxy::cut, tally);
}

/// Does the same as `jump_and_kill`, but kills the daemon while its call waits for an answer.
fn jump_and_hang(at: &mut dyn Coordinator, tally: &mut Tally) {
    jump(at, "hang", Proxy::swallow_answers_from_write, tally);
}

fn jump(at: &mut dyn Coordinator, name: &str, fail: fn(&Proxy), tally: &mut Tally) {
    let Some(machine) = Machine::with_clock() else { return };
    let proxy = at.proxy();
    let toml = config(at, &proxy.url(), name, "worker_ids = 5", "5m");
    init(&toml);
    let mut daemon = machine.start(&toml);
    tally.draw(&[("the original", &daemon)]);
    fail(&proxy);
    machine.clock().step(30_000);
    daemon.draw_until(Ask::of(10), NO_CEILING);
    if proxy.is_swallowing() {
        println!("  killed inside a call");
    }
    daemon.kill();
    save(&machine);
    // From now on, neither copy can reach the coordinator.
    proxy.cut();
    for copy in ["the first copy", "the second copy"] {
        let mut daemon = machine.start(&toml);
        match daemon.connect().next(Ask::of(10).wait_ms(0)) {
            Reply::Error { code: NO_CEILING, .. } => tally.refused.push(format!("{copy}, without an answer")),
            other => panic!("{copy}: {other:?}"),
        }
        daemon.kill();
        put_back(&machine);
    }
    proxy.pass();
    let mut daemon = machine.start(&toml);
    tally.draw(&[("the first copy", &daemon)]);
    daemon.kill();
    put_back(&machine);
    let daemon = machine.start(&toml);
    poll("a daemon that waits", || daemon.log().contains("holds worker ID 5").then_some(()));
    tally.refuse(&daemon.log(), "this state or a copy of it holds worker ID 5");
    assert!(matches!(daemon.connect().next(Ask::of(10).wait_ms(0)), Reply::Error { code: NO_CEILING, .. }));
}

/// A killed daemon's worker ID is taken when its ceiling is near, and a restore loses that. Then the
/// killed daemon starts with a lower `max_ahead`. By this value its ceiling would still be far, and
/// it would go on beyond that ceiling, at which the other daemon had started.
fn lower_max_ahead(at: &mut dyn Coordinator, tally: &mut Tally) {
    let toml = config(at, &at.url(), "lower", "worker_ids = 5", "16s");
    let toml = toml.replace("max_ahead = \"1s\"", "max_ahead = \"2500ms\"");
    init(&toml);
    let [killed, taker] = [(); 2].map(|()| Machine::new());
    let mut first = killed.start(&toml);
    tally.draw(&[("killed", &first)]);
    first.kill();
    at.back_up();
    let mut second = taker.start(&toml);
    second.assert_has_numbers();
    tally.draw(&[("the next holder", &second)]);
    at.restore();
    assert_eq!(second.wait(), Some(3), "{}", second.log());
    let lowered = toml.replace("2500ms", "300ms");
    let refused = Ended::of(*killed.setup(&lowered).try_start().map(drop).expect_err("a refusal"));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    tally.refuse(&refused.stderr, "allowed: fleet.horizon 16s and max_ahead 2.5s");
    let again = killed.start(&toml);
    again.assert_has_numbers();
    tally.draw(&[("killed", &again)]);
}

/// A sync of the holder's notes takes longer than any pause, while its state is stored at once. Its
/// connection is cut, and it connects again. Then a restore loses its key, and another daemon takes
/// its worker ID.
fn slow_disk(at: &mut dyn Coordinator, tally: &mut Tally) {
    let [holder, taker] = [(); 2].map(|()| Machine::new());
    let disk = holder.disk();
    let proxy = at.proxy();
    // Half of this horizon is longer than a pause.
    let toml = |url: &str| config(at, url, "slow", "worker_ids = 5", "30s");
    let [by_proxy, direct] = [toml(&proxy.url()), toml(&at.url())];
    init(&direct);
    at.back_up();
    let notes = holder.path("state/fleet.new");
    let first = disk.under(holder.setup(&by_proxy)).env("FAILING_DISK_DIR", notes).start();
    tally.draw(&[("on a slow disk", &first)]);
    proxy.cut();
    proxy.pass();
    disk.stall_syncs(20_000, || ());
    take_after_restore(at, first, &taker, &direct, tally);
}

/// The holder has as many worker IDs as a daemon may have, and each answer takes 0.18 s.
fn many_worker_ids(at: &mut dyn Coordinator, tally: &mut Tally) {
    let [holder, taker] = [(); 2].map(|()| Machine::new());
    let proxy = at.proxy();
    let toml = |url: &str, ids| config(at, url, "many", &format!("worker_ids = \"{ids}\""), "16s");
    let too_many = toml(&at.url(), "0-999");
    let [by_proxy, direct] = [toml(&proxy.url(), "0-99"), toml(&at.url(), "5")];
    init(&direct);
    let refused = Ended::of(*holder.setup(&too_many).try_start().map(drop).expect_err("a refusal"));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    tally.refuse(&refused.stderr, "found 1000 worker IDs in a fleet, allowed: at most 100");
    at.back_up();
    let first = holder.start(&by_proxy);
    tally.draw(&[("of many worker IDs", &first)]);
    proxy.delay(Duration::from_millis(180));
    take_after_restore(at, first, &taker, &direct, tally);
}

/// Restores the coordinator to before the holder took its worker IDs. Another daemon takes one. Both
/// hand out IDs whenever they can: the holder until it ends, the other one for some seconds.
fn take_after_restore(
    at: &mut dyn Coordinator,
    mut holder: Daemon,
    taker: &Machine,
    toml: &str,
    tally: &mut Tally,
) {
    let (held, taken) = thread::scope(|scope| {
        let held = scope.spawn(|| draw_steadily(&holder, |_| false));
        at.restore();
        let next = taker.start(toml);
        let taken = draw_steadily(&next, |since_first| since_first > Duration::from_secs(5));
        (held.join().expect("no panic"), taken)
    });
    assert_eq!(holder.wait(), Some(3), "{}", holder.log());
    assert!(!held.is_empty() && !taken.is_empty());
    tally.runs.entry(String::from("the holder")).or_default().extend(held);
    tally.runs.insert(String::from("the next holder"), taken);
}

/// Draws IDs again and again, until the daemon ends, or until enough time has passed since the first
/// IDs.
fn draw_steadily(daemon: &Daemon, is_enough: impl Fn(Duration) -> bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut first = None;
    let mut wire = daemon.connect();
    let deadline = Instant::now() + TURN;
    while Instant::now() < deadline && !first.is_some_and(|at: Instant| is_enough(at.elapsed())) {
        if wire.try_send(&Ask::of(100).wait_ms(100).bytes()).is_err() {
            break;
        }
        match wire.try_reply() {
            Ok(Some(Reply::Runs(_, more))) => {
                first.get_or_insert_with(Instant::now);
                runs.extend(more);
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
        thread::sleep(Duration::from_millis(10));
    }
    runs
}

/// The clock of the first daemon is 20 s ahead. The next holder of the same worker ID draws IDs
/// when its clock shows the time at which the first daemon's IDs were made.
fn lost_data(at: &mut dyn Coordinator, tally: &mut Tally) {
    /// The number of draws from the first daemon. Together they ask for the IDs that the layout
    /// makes in two seconds.
    const TURNS: usize = 8;
    let (Some(ahead), Some(right)) = (Machine::with_clock(), Machine::with_clock()) else { return };
    ahead.clock().set(20_000);
    let toml = config(at, &at.url(), "lost", ASSIGNED, "16s");
    init(&toml);
    let mut daemon = ahead.start(&toml);
    let began = Instant::now();
    (0..TURNS).for_each(|_| tally.draw(&[("20 s ahead", &daemon)]));
    let highest = tally.runs.values().flatten().map(Run::last).max().expect("the daemon has drawn");
    daemon.kill();
    at.kill();
    at.lose_data();
    at.run();
    let (code, text) = fleet(&toml, &["init"]);
    assert_eq!(code, Some(1), "{text}");
    tally.refuse(&text, "nothing shows which IDs were made before");
    let (code, text) = fleet(&toml, &["init", "--above", &highest.to_string()]);
    assert_eq!(code, Some(0), "{text}");
    fs::remove_file(ahead.path("state/fleet")).expect("the notes are removed");
    let passed_ms = i64::try_from(began.elapsed().as_millis()).expect("minutes");
    right.clock().set(20_000 - passed_ms);
    let daemon = right.start(&toml);
    tally.draw(&[("of the right time", &daemon)]);
    // By the clock that is 20 s ahead, the bound of the other daemon has passed.
    let again = ahead.start(&toml);
    tally.draw(&[("20 s ahead", &again)]);
}

/// After a restore, etcd continues to count the writes of a key from the count in the backup. The
/// restore loses a write of the paused daemon, so the operator's write gets the same count as the
/// lost write.
fn paused_writer(at: &mut dyn Coordinator, tally: &mut Tally) {
    let url = at.url();
    let toml = |origin| config(at, &url, "writes", origin, "16s");
    let given = toml("worker_ids = 5");
    let noticing = toml("worker_ids = 7");
    init(&given);
    let [holder, notices, taker] = [(); 3].map(|()| Machine::new());
    let mut first = holder.start(&given);
    let mut second = notices.start(&noticing);
    at.back_up();
    let key = "/snowbank/writes/space-0/5";
    for _ in 0..2 {
        let before = at.get(key);
        poll("a raise", || (at.get(key) != before).then_some(()));
    }
    tally.draw(&[("paused", &first)]);
    first.signal(Signal::STOP);
    at.restore();
    assert_eq!(second.wait(), Some(3), "{}", second.log());
    fleet_says(&given, &["release", "5", "--force"], 0, &[]);
    let third = taker.start(&given);
    third.assert_has_numbers();
    // The new holder may refuse this request, because it has no IDs before its clock reaches the
    // floor.
    let mut above = match third.connect().next(Ask::of(10).wait_ms(0)) {
        Reply::Runs(_, runs) => runs,
        _ => Vec::new(),
    };
    let mut wire = first.connect();
    wire.send(&Ask::of(10).wait_ms(0).bytes());
    first.signal(Signal::CONT);
    let mut below = tally.runs["paused"].clone();
    if let Ok(Some(Reply::Runs(_, runs))) = wire.try_reply() {
        below.extend(runs.clone());
        tally.runs.entry(String::from("paused")).or_default().extend(runs);
    }
    tally.draw(&[("paused", &first), ("the next holder", &third)]);
    assert_eq!(first.wait(), Some(3), "{}", first.log());
    above.extend(tally.runs["the next holder"].clone());
    assert_above(&above, &below);
}

/// Checks that the next holder of a worker ID starts above all IDs of the previous holder.
#[track_caller]
fn assert_above(next: &[Run], before: &[Run]) {
    let first = next.iter().map(|run| run.first).min().expect("the next holder has IDs");
    let last = before.iter().map(Run::last).max().unwrap_or(0);
    assert!(last < first, "the previous holder had IDs up to {last}, the next one starts at {first}");
}

/// The daemon that is cut off starts at the floor of the first restore. While that floor is still
/// ahead, the second restore loses the daemon's key.
fn two_restores(at: &mut dyn Coordinator, tally: &mut Tally) {
    let url = at.url();
    let proxy = at.proxy();
    let toml = |url: &str, origin| config(at, url, "again", origin, "16s");
    let noticing = toml(&url, "worker_ids = 7");
    let given = toml(&url, "worker_ids = 5");
    let given_by_proxy = toml(&proxy.url(), "worker_ids = 5");
    init(&noticing);
    let [notices, holder, taker] = [(); 3].map(|()| Machine::new());
    let mut first = notices.start(&noticing);
    at.back_up();
    let key = "/snowbank/again/space-0/7";
    // The first write is the one on the new connection. The second write raises the ceiling.
    for _ in 0..2 {
        let before = at.get(key);
        poll("a write", || (at.get(key) != before).then_some(()));
    }
    at.restore();
    assert_eq!(first.wait(), Some(3), "{}", first.log());
    let cut_off = holder.start(&given_by_proxy);
    cut_off.assert_has_numbers();
    cut_off.assert_logs("clock_behind until");
    let mut again = notices.start(&noticing);
    again.assert_has_numbers();
    proxy.cut();
    at.restore();
    assert_eq!(again.wait(), Some(3), "{}", again.log());
    let next = taker.start(&given);
    next.assert_has_numbers();
    let mut had = Vec::new();
    let mut above = Vec::new();
    let [mut cut_off_wire, mut next_wire] = [&cut_off, &next].map(Daemon::connect);
    poll("the daemon that is cut off reaches its ceiling", || {
        if above.is_empty()
            && let Reply::Runs(_, runs) = next_wire.next(Ask::of(10).wait_ms(0))
        {
            above = runs;
        }
        match cut_off_wire.next(Ask::of(10).wait_ms(1_000)) {
            Reply::Runs(_, runs) => {
                had.extend(runs);
                None
            }
            Reply::Error { code: NO_CEILING, .. } => Some(()),
            Reply::Error { code, .. } => {
                assert_eq!(code, CLOCK_BEHIND);
                None
            }
            other => panic!("{other:?}"),
        }
    });
    tally.draw(&[("the next holder", &next)]);
    above.extend(tally.runs["the next holder"].clone());
    assert_above(&above, &had);
    tally.runs.insert(String::from("cut off"), had);
}

#[test]
#[ignore = "minutes: tests/long runs it"]
fn schedules_that_once_repeated_ids_repeat_none() {
    let chosen = std::env::var("SNOWBANK_SCHEDULE").unwrap_or_default();
    each(|at| {
        for Schedule { name, play } in SCHEDULES.iter().filter(|schedule| schedule.name.contains(&chosen)) {
            let mut tally = Tally::default();
            play(at, &mut tally);
            tally.end(name, at.name());
        }
    });
}
