//! The verdict on bad targets beside real noise: none passes anywhere. The sound one is in
//! `evidence`.
//!
//! The whole table takes the cores from everything else on the machine, so it runs only with
//! `SNOWBANK_JUDGE_RUNS=1` or more. `judge::simulation` covers it otherwise, and each target has
//! one run here on the machine as it is.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snowbank_client::protocol::ErrorCode;

use crate::alone;
use crate::support::scripted::fake_daemon::{FakeDaemon, Peer};
use crate::support::scripted::{INFO, sound_target, target};
use crate::support::{Daemon, Ran, Setup, has_daemon, loadtest};

/// A program that takes a core for 1 to 20 ms at random times.
const BURSTS: &str = "import random, time\nwhile True:\n end = time.monotonic() + random.uniform(0.001, 0.02)\n while time.monotonic() < end: pass\n time.sleep(random.uniform(0.001, 0.08))";

const LOOP: &str = "while True: pass";

/// The neighbours of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    AsIs,
    BusyLoops,
    RealTimeBursts,
}

/// Processes that are no children of this one, which is the target.
pub(crate) struct Neighbours(Vec<Pid>);

impl Neighbours {
    pub(crate) fn begin(noise: Noise) -> Self {
        let (number, before, script) = match noise {
            Noise::AsIs => return Self(Vec::new()),
            Noise::BusyLoops => (3, "", LOOP),
            Noise::RealTimeBursts => (2, "chrt --fifo 10", BURSTS),
        };
        let start = |_| {
            // The shell ends at once, and its child has another parent then.
            let line = format!("exec 2>/dev/null; {before} python3 -c \"$0\" >/dev/null & echo $!");
            let output =
                Command::new("setsid").args(["sh", "-c", &line, script]).output().expect("it starts");
            let id = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a process ID");
            Pid::from_raw(id).expect("a process ID")
        };
        Self((0..number).map(start).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// A target, and its doings beside its answers until it is dropped.
struct Bad {
    target: Target,
    _beside: Beside,
}

enum Target {
    Fake(FakeDaemon),
    /// A daemon that is stopped and continued by signals.
    Stopped(Daemon),
}

impl Target {
    fn name(&self) -> String {
        match self {
            Self::Fake(fake) => fake.name(),
            Self::Stopped(daemon) => daemon.addresses[0].to_string(),
        }
    }
}

/// Threads and children that end with this value.
#[derive(Default)]
struct Beside {
    is_over: Arc<AtomicBool>,
    children: Vec<Child>,
}

impl Beside {
    fn burn(&self, threads: usize) {
        for _ in 0..threads {
            let is_over = Arc::clone(&self.is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
        }
    }

    fn children(mut self, number: usize, words: &[&str]) -> Self {
        let start = |_| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        };
        self.children = (0..number).map(start).collect();
        self
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a target that stops, all connections at once, for as long as `stop` says: by the number
/// of the request and the time since the first.
fn stopping(stop: impl Fn(u64, Duration) -> Duration + Send + Sync + 'static) -> FakeDaemon {
    let begun = OnceLock::new();
    let stopped = Mutex::new(());
    target(INFO, move |number, ids, peer, next, tag| {
        let guard = stopped.lock().expect("no panic");
        std::thread::sleep(stop(number, begun.get_or_init(Instant::now).elapsed()));
        drop(guard);
        peer.send_run(tag, ids.take(next.count), next.count)
    })
}

/// Returns a target that stops for so long, once in each of these times.
fn stopping_each(length: Duration, each: Duration) -> FakeDaemon {
    let next = Mutex::new(each / 2);
    stopping(move |_, now| {
        let mut next = next.lock().expect("no panic");
        if now < *next {
            return Duration::ZERO;
        }
        *next += each;
        length
    })
}

/// Returns a target that stops for 8 ms after each stall of the machine.
fn stopping_after_stalls() -> Bad {
    let beside = Beside::default();
    let is_over = Arc::clone(&beside.is_over);
    let stalls = Arc::new(Mutex::new(0));
    let found = Arc::clone(&stalls);
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            *found.lock().expect("no panic") += u32::from(before.elapsed() > Duration::from_millis(3));
        }
    });
    let target = stopping(move |_, _| {
        let found = std::mem::take(&mut *stalls.lock().expect("no panic"));
        if found > 0 { Duration::from_millis(8) } else { Duration::ZERO }
    });
    Bad { target: Target::Fake(target), _beside: beside }
}

/// Returns a target that stops for 20 ms twice in a second. New threads of it burn all cores
/// meanwhile.
fn pausing_while_new_threads_burn() -> FakeDaemon {
    let next = Mutex::new(Duration::from_millis(500));
    stopping(move |_, now| {
        let mut next = next.lock().expect("no panic");
        if now < *next {
            return Duration::ZERO;
        }
        *next += Duration::from_millis(500);
        let until = Instant::now() + Duration::from_millis(20);
        for _ in 0..8 {
            std::thread::spawn(move || while Instant::now() < until {});
        }
        Duration::from_millis(20)
    })
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a fake without doings beside its answers.
fn plain(fake: FakeDaemon) -> Bad {
    Bad { target: Target::Fake(fake), _beside: Beside::default() }
}

/// Returns a target that makes no mistake, and burns the cores by so many threads of its own.
fn burning(threads: usize) -> Bad {
    let beside = Beside::default();
    beside.burn(threads);
    Bad { target: Target::Fake(sound_target()), _beside: beside }
}

/// Returns a target that makes no mistake, and burns the cores by so many children.
fn with_children(number: usize, words: &[&str]) -> Bad {
    Bad { target: Target::Fake(sound_target()), _beside: Beside::default().children(number, words) }
}

/// Returns a target that answers some requests, by their number, and does something else with the
/// others.
fn unless_sound(
    is_sound: impl Fn(u64) -> bool + Send + Sync + 'static,
    other: impl Fn(&mut Peer, u16) -> bool + Send + Sync + 'static,
) -> Bad {
    plain(target(INFO, move |number, ids, peer, next, tag| {
        if is_sound(number) { peer.send_run(tag, ids.take(next.count), next.count) } else { other(peer, tag) }
    }))
}

/// Returns a target that answers one connection of eight late.
fn slow_on_one_connection() -> Bad {
    plain(target(INFO, move |_, ids, peer, next, tag| {
        if peer.number % 8 == 0 {
            std::thread::sleep(ms(5));
        }
        peer.send_run(tag, ids.take(next.count), next.count)
    }))
}

/// The bad targets and their names. The first four are those that passed once.
const BAD: [(&str, fn() -> Bad); 16] = [
    ("300 ms once", || plain(stopping_each(ms(300), ms(4_000)))),
    ("60 ms each 3 s", || plain(stopping_each(ms(60), ms(3_000)))),
    ("20 ms each second", || plain(stopping_each(ms(20), ms(1_000)))),
    ("5 ms per 1,000 requests", || {
        plain(stopping(|number, _| if number % 1_000 == 999 { ms(5) } else { ms(0) }))
    }),
    ("slow ramp", || plain(stopping(|number, _| Duration::from_nanos(number * 80)))),
    ("8 ms after each stall", stopping_after_stalls),
    ("pauses in which new threads burn", || plain(pausing_while_new_threads_burn())),
    ("one own thread burning", || burning(1)),
    ("own threads burning", || burning(16)),
    ("children burning", || with_children(16, &["python3", "-c", LOOP])),
    ("children burning in real time", || {
        with_children(2, &["chrt", "--fifo", "10", "python3", "-c", BURSTS])
    }),
    ("one connection of eight slow", slow_on_one_connection),
    ("refusals of 0.5 %", || {
        unless_sound(
            |number| number % 200 != 199,
            |peer, tag| peer.refuse(tag, ErrorCode::Exhausted, None, "none left"),
        )
    }),
    ("a closed connection", || unless_sound(|number| number != 3_000, |_, _| false)),
    ("answers the warm-up only", || unless_sound(|number| number <= 1_000, |_, _| true)),
    ("stops itself by SIGSTOP", stopped),
];

/// Returns a daemon that is stopped for 300 ms in the middle of its load.
fn stopped() -> Bad {
    let daemon = Setup::new().start();
    let process = Pid::from_raw(daemon.id() as i32).expect("a process ID");
    let beside = Beside::default();
    let is_over = Arc::clone(&beside.is_over);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        // It runs while this value lives.
        if !is_over.load(Ordering::Relaxed) {
            kill_process(process, Signal::STOP).expect("it runs");
            std::thread::sleep(Duration::from_millis(300));
            kill_process(process, Signal::CONT).expect("it is stopped");
        }
    });
    Bad { target: Target::Stopped(daemon), _beside: beside }
}

fn load(address: &str) -> Ran {
    let options = ["--rate", "2000/s", "--for", "5s", "--warm-up", "500ms", "--connections", "8"];
    loadtest(&[&["--address", address], &options[..]].concat())
}

/// Returns how often the whole table is run.
fn runs() -> usize {
    std::env::var("SNOWBANK_JUDGE_RUNS").map_or(0, |runs| runs.parse().expect("a number"))
}

fn noises() -> Vec<Noise> {
    let all = [Noise::AsIs, Noise::BusyLoops, Noise::RealTimeBursts];
    if runs() > 0 { all.into() } else { all[..1].into() }
}

/// A target that only answers in time by luck: one that stops after stalls may meet none, and a
/// fair kernel may serve requests between burning threads.
fn may_be_in_time(name: &str) -> bool {
    name == "8 ms after each stall" || name.contains("burn")
}

#[test]
fn no_bad_target_passes_beside_any_noise() {
    let _alone = alone();
    // Each of them takes 15 s.
    let all = if runs() > 0 { &BAD[..] } else { &BAD[..4] };
    for &(name, bad) in all {
        if name.ends_with("SIGSTOP") && !has_daemon() {
            continue;
        }
        for noise in noises() {
            let _neighbours = Neighbours::begin(noise);
            let mut verdicts = Vec::new();
            for _ in 0..runs().max(1) {
                let bad = bad();
                let ran = load(&bad.target.name());
                verdicts.push(ran.json()["verdict"].as_str().expect("a word").to_owned());
                let is_late = ran.json()["objectives"][0]["met"] == false;
                assert!(
                    ran.code != 0 || (may_be_in_time(name) && !is_late),
                    "{name} beside {noise:?}: {ran:?}"
                );
            }
            eprintln!("| {name} | {noise:?} | {} |", verdicts.join(", "));
        }
    }
}
