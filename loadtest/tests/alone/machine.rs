//! The verdict on bad targets beside real noise: none may pass. `evidence` tests the sound target.
//!
//! The whole table takes all cores of the machine, so it runs only with `SNOWBANK_JUDGE_RUNS=1` or
//! more. Otherwise the first four bad targets have one run each, without noise; `judge::simulation`
//! covers the rest.

use std::any::Any;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snowbank_wire::ErrorCode;

use crate::alone;
use crate::support::scripted::fake_daemon::{FakeDaemon, Peer};
use crate::support::scripted::{INFO, sound_target, target};
use crate::support::{Ran, Server, Setup, has_daemon, loadtest};

/// A program that takes a core for 1 to 20 ms at random times.
const BURSTS: &str = "import random, time\nwhile True:\n end = time.monotonic() + random.uniform(0.001, 0.02)\n while time.monotonic() < end: pass\n time.sleep(random.uniform(0.001, 0.08))";

const LOOP: &str = "while True: pass";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    AsIs,
    BusyLoops,
    RealTimeBursts,
}

/// Noisy processes. They are not children of this process, in which the targets run, because the
/// processor time of a child would count as the target's.
pub(crate) struct Neighbours(Vec<Pid>);

impl Neighbours {
    pub(crate) fn begin(noise: Noise) -> Self {
        let (number, before, script) = match noise {
            Noise::AsIs => return Self(Vec::new()),
            Noise::BusyLoops => (3, "", LOOP),
            Noise::RealTimeBursts => (2, "chrt --fifo 10", BURSTS),
        };
        let processes = (0..number).map(|_| {
            // The shell ends at once, so the noisy process gets another parent.
            let line = format!("exec 2>/dev/null; {before} python3 -c \"$0\" >/dev/null & echo $!");
            let output =
                Command::new("setsid").args(["sh", "-c", &line, script]).output().expect("it starts");
            let id = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a process ID");
            Pid::from_raw(id).expect("a process ID")
        });
        Self(processes.collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// A bad target. When this value is dropped, the target stops all that it does besides answering.
struct Bad {
    address: String,
    _target: Box<dyn Any>,
    is_over: Arc<AtomicBool>,
    children: Vec<Server>,
}

impl Bad {
    fn new(address: String, target: impl Any) -> Self {
        Self { address, _target: Box::new(target), is_over: Arc::default(), children: Vec::new() }
    }

    fn doing(self, mut something: impl FnMut() + Send + 'static) -> Self {
        let is_over = Arc::clone(&self.is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                something();
            }
        });
        self
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns a target that stops on all connections at once, before each answer. `stop` gets the
/// request's number and the time since the first request, and returns the length of the stop.
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

/// Returns a target that stops for `length` once in each period of `each`. During each stop,
/// `burning` new threads of the target burn CPU time.
fn stopping_each(length: Duration, each: Duration, burning: usize) -> Bad {
    let next = Mutex::new(each / 2);
    plain(stopping(move |_, now| {
        let mut next = next.lock().expect("no panic");
        if now < *next {
            return Duration::ZERO;
        }
        *next += each;
        let until = Instant::now() + length;
        for _ in 0..burning {
            std::thread::spawn(move || while Instant::now() < until {});
        }
        length
    }))
}

/// Returns a target that stops for 8 ms after each stall of the machine. A stall is found as in the
/// load test: a thread wakes half a millisecond late.
fn stopping_after_stalls() -> Bad {
    let found = Arc::new(AtomicBool::new(false));
    let stalled = Arc::clone(&found);
    let target = stopping(move |_, _| if found.swap(false, Ordering::Relaxed) { ms(8) } else { ms(0) });
    plain(target).doing(move || {
        let before = Instant::now();
        std::thread::sleep(ms(1));
        stalled.fetch_or(before.elapsed() > Duration::from_micros(1_500), Ordering::Relaxed);
    })
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns a target that does nothing besides answering.
fn plain(target: FakeDaemon) -> Bad {
    Bad::new(target.name(), target)
}

/// Returns a target that makes no mistake, but burns the cores with `threads` threads of its own.
fn burning(threads: usize) -> Bad {
    (0..threads).fold(plain(sound_target()), |bad, _| bad.doing(|| {}))
}

/// Returns a target that makes no mistake, but burns the cores with `number` children.
fn with_children(number: usize, words: &[&str]) -> Bad {
    let mut bad = plain(sound_target());
    for _ in 0..number {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        bad.children.push(Server(command.spawn().expect("it starts")));
    }
    bad
}

/// Returns a target that answers a request if `is_sound` returns true for the request's number.
/// `other` handles all other requests.
fn unless_sound(
    is_sound: impl Fn(u64) -> bool + Send + Sync + 'static,
    other: impl Fn(&mut Peer, u16) -> bool + Send + Sync + 'static,
) -> Bad {
    plain(target(INFO, move |number, ids, peer, next, tag| {
        if is_sound(number) { peer.send_run(tag, ids.take(next.count), next.count) } else { other(peer, tag) }
    }))
}

/// Returns a daemon that is stopped for 300 ms in the middle of its load.
fn stopped() -> Bad {
    let daemon = Setup::new().start();
    let process = Pid::from_raw(daemon.id() as i32).expect("a process ID");
    let bad = Bad::new(daemon.addresses[0].to_string(), daemon);
    let is_over = Arc::clone(&bad.is_over);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        // The daemon runs until its `Bad` is dropped.
        if !is_over.load(Ordering::Relaxed) {
            kill_process(process, Signal::STOP).expect("it runs");
            std::thread::sleep(ms(300));
            kill_process(process, Signal::CONT).expect("it is stopped");
        }
    });
    bad
}

/// Returns a target that is late with each answer on one connection of eight.
fn slow_on_one_connection() -> Bad {
    plain(target(INFO, move |_, ids, peer, next, tag| {
        if peer.number % 8 == 0 {
            std::thread::sleep(ms(5));
        }
        peer.send_run(tag, ids.take(next.count), next.count)
    }))
}

/// The bad targets and their names. Without `SNOWBANK_JUDGE_RUNS`, only the first four run.
const BAD: [(&str, fn() -> Bad); 15] = [
    ("300 ms once", || stopping_each(ms(300), ms(4_000), 0)),
    ("60 ms each 3 s", || stopping_each(ms(60), ms(3_000), 0)),
    ("20 ms each second", || stopping_each(ms(20), ms(1_000), 0)),
    ("5 ms per 1,000 requests", || {
        plain(stopping(|number, _| if number % 1_000 == 999 { ms(5) } else { ms(0) }))
    }),
    ("slow ramp", || plain(stopping(|number, _| Duration::from_nanos(number * 80)))),
    ("8 ms after each stall", stopping_after_stalls),
    ("pauses in which new threads burn", || stopping_each(ms(20), ms(500), 8)),
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

fn load(address: &str) -> Ran {
    loadtest(&format!("--address {address} --rate 2000/s --for 5s --warm-up 500ms --connections 8"))
}

/// Returns how often the whole table runs. 0 means that only the first four targets run.
fn runs() -> usize {
    std::env::var("SNOWBANK_JUDGE_RUNS").map_or(0, |runs| runs.parse().expect("a number"))
}

fn noises() -> Vec<Noise> {
    let all = [Noise::AsIs, Noise::BusyLoops, Noise::RealTimeBursts];
    if runs() > 0 { all.into() } else { all[..1].into() }
}

#[test]
fn no_bad_target_passes_beside_any_noise() {
    let _alone = alone();
    // Each run takes about eight seconds.
    let all = if runs() > 0 { &BAD[..] } else { &BAD[..4] };
    for &(name, bad) in all {
        if name.ends_with("SIGSTOP") && !has_daemon() {
            continue;
        }
        for noise in noises() {
            // Without a stall of the machine, this target never stops.
            if name == "8 ms after each stall" && noise == Noise::AsIs {
                continue;
            }
            let _neighbours = Neighbours::begin(noise);
            let mut verdicts = Vec::new();
            for _ in 0..runs().max(1) {
                let bad = bad();
                let ran = load(&bad.address);
                verdicts.push(ran.json()["verdict"].as_str().expect("a word").to_owned());
                assert_ne!(ran.code, 0, "{name} beside {noise:?}: {ran:?}");
            }
            eprintln!("| {name} | {noise:?} | {} |", verdicts.join(", "));
        }
    }
}
