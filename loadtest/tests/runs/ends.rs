//! Load tests that are interrupted or killed, or that run out of open files or disk space.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::scripted::fake_daemon::FakeDaemon;
use crate::support::scripted::{INFO, sound_target, target};
use crate::support::{Ran, Running, THOUSAND, command, has_daemon, poll, start, start_by};
use rustix::process::{Pid, Signal, getpgid};

/// The time in which an interrupted load test must end: far longer than the load test needs.
const AT_ONCE: Duration = Duration::from_secs(60);

fn pid(id: u32) -> Pid {
    Pid::from_raw(id as i32).expect("a process ID")
}

fn interrupt(running: Running) -> Ran {
    running.signal(Signal::INT);
    let begin = Instant::now();
    let ran = running.wait();
    assert!(begin.elapsed() < AT_ONCE, "{:?}: {ran:?}", begin.elapsed());
    ran
}

/// Runs the load test with at most this many open files.
fn with_files(files: u32, options: &str) -> Ran {
    let mut shell = Command::new("sh");
    let script = format!(r#"ulimit -n {files}; exec "$0" "$@""#);
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_snowbank-loadtest")]);
    start_by(shell, options).wait()
}

#[test]
fn an_interrupt_ends_each_stage_and_shows_the_figures() {
    // Each stage has a name and its options. It has the number of requests by which it has begun,
    // and the number of requests that get an answer. In the last stage, the run waits for the
    // requests that get no answer.
    let stages: [(&str, u64, u64, &str); 3] = [
        ("warm-up", 100, u64::MAX, "--warm-up 1h"),
        ("measuring", 300, u64::MAX, "--warm-up 100ms --for 1h"),
        ("draining", 400, 300, "--warm-up 100ms --for 300ms"),
    ];
    for (stage, begun_by, answered, more) in stages {
        let asked = Arc::new(AtomicU64::new(0));
        let asks = Arc::clone(&asked);
        let target = target(INFO, move |number, ids, peer, next, tag| {
            asks.fetch_add(1, Ordering::SeqCst);
            number >= answered || peer.send_run(tag, ids.take(next.count), next.count)
        });
        let running = start(&format!("--address {} --rate 1000 {more}", target.name()));
        poll(stage, || (asked.load(Ordering::SeqCst) >= begun_by).then_some(()));
        let ran = interrupt(running);
        assert_eq!(ran.code, 2, "{stage}: {ran:?}");
        assert!(ran.result().contains("the run was interrupted"), "{stage}: {ran:?}");
        assert!(ran.stdout.contains("IDs  "), "{stage}: {ran:?}");
        assert_eq!(ran.json()["verdict"], "no verdict", "{stage}");
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_a_silent_target() {
    // The target accepts the connection, and stays silent for longer than the test takes.
    let silent = FakeDaemon::start(|_, _| std::thread::sleep(Duration::from_secs(30)));
    let running = start(&format!("--address {}", silent.name()));
    poll("a connection", || (silent.connections() > 0).then_some(()));
    let ran = interrupt(running);
    ran.assert_refused(2, "interrupted before the measurement began");
}

#[test]
fn a_runs_own_daemon_ends_with_the_run_and_gets_no_ctrl_c() {
    if !has_daemon() {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        let running = start("--rate 1000 --for 1h");
        let daemon = poll("a daemon", || running.children().first().copied().map(pid));
        // On Ctrl-C, a terminal signals all processes of the foreground group.
        let group = getpgid(Some(pid(running.id()))).expect("it runs");
        poll("a group of its own", || (getpgid(Some(daemon)) != Ok(group)).then_some(()));
        running.signal(signal);
        running.reap();
        poll("the end of the daemon", || {
            // A container may have no init process that reaps the daemon, which then stays a
            // zombie.
            let status = std::fs::read_to_string(format!("/proc/{}/stat", daemon.as_raw_nonzero()));
            status.map_or(true, |status| status.contains(") Z ")).then_some(())
        });
    }
}

#[test]
fn a_bare_echo_that_cannot_run_is_reported_with_its_reason() {
    if !has_daemon() {
        return;
    }
    // Both ends of an echo's connections are open files of the load test.
    let ran = with_files(1_000, "--connections 600 --rate 500 --for 500ms --p99.9 1us --runs 1");
    assert!(ran.result().contains("p99.9 "), "{ran:?}");
    assert!(ran.words().contains("a bare echo could not be run: "), "{ran:?}");
}

#[test]
fn a_full_disk_loses_the_files_but_not_the_table() {
    for option in ["--json", "--hlog"] {
        let ran = command(&format!("{THOUSAND} --address {} {option} /dev/full", sound_target().name()));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("cannot write /dev/full: No space left on device"), "{ran:?}");
        assert!(ran.stdout.contains("requests 1,000, answered 1,000"), "{ran:?}");
    }
}

#[test]
fn a_load_test_out_of_open_files_blames_no_target() {
    // The connections open first. With so few files, one of them or the epoll of a thread gets no
    // file.
    for files in 7..11 {
        let target = sound_target();
        let load = format!("--address {} --connections 4 --threads 4 --rate 500 --for 100ms", target.name());
        let ran = with_files(files, &load);
        assert_eq!(ran.code, 2, "{files}: {ran:?}");
        assert!(format!("{ran:?}").contains("Too many open files"), "{files}: {ran:?}");
    }
}
