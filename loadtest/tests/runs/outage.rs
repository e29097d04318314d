//! Services that end under load: the outage is measured, and no ID comes twice.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::port::Port;
use crate::support::scripted::fake_daemon::{Asked, FakeDaemon};
use crate::support::scripted::{INFO, Ids};
use crate::support::{Ran, directory_in_memory, figure, has_daemon, loadtest, until_judged, until_seen};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn an_announced_outage_is_measured_and_not_a_failure() {
    if !has_daemon() {
        return;
    }
    for option in ["--restart-daemon-at", "--kill-daemon-at"] {
        let options = ["--rate", "2000", "--for", "2s", "--warm-up", "200ms", "--p99.9", "5s", option, "1s"];
        // A busy machine may add another gap to the outage's own.
        let is_longest = |run: &Value| {
            let of = |name: &str| figure(run, "outage", name).as_f64();
            let [gap, length] = ["longest gap between answers", "until all was back"].map(of);
            gap > Some(0.0) && gap <= length.map(|us| us + 100_000.0)
        };
        let ran = until_seen(|| loadtest(&options), is_longest);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.figure("outage", "until all was back").as_f64() > Some(0.0), "{ran:?}");
        assert!(ran.figure("outage", "requests lost").as_f64() > Some(0.0), "{ran:?}");
        assert!(is_longest(&ran.json()), "{ran:?}");
    }
}

#[test]
fn an_outage_that_cannot_be_judged_is_refused() {
    for options in [
        &["--outage", "1s@1s", "--address", "127.0.0.1:1", "--closed", "--count", "1000"][..],
        &["--outage", "1s@1s", "--address", "127.0.0.1:1", "--churn", "1/s"],
    ] {
        let ran = loadtest(options);
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
    }
}

/// A service that is up in every second life. A connection ends with the life that took it: at its next request.
fn restarted(ids: &Arc<Ids>, lives: &Arc<AtomicU64>) -> FakeDaemon {
    let (ids, lives) = (Arc::clone(ids), Arc::clone(lives));
    FakeDaemon::start(move |_, peer| {
        let life = lives.load(Ordering::SeqCst);
        let is_up = || life % 2 == 0 && lives.load(Ordering::SeqCst) == life;
        while is_up()
            && let Some((asked, tag)) = peer.read()
            && is_up()
        {
            let goes_on = match asked {
                Asked::Next(next) => peer.send_run(tag, ids.take(next.count), next.count),
                _ => peer.send(|out| {
                    snowbank_client::protocol::reply::encode_info(out, tag, INFO.as_bytes());
                }),
            };
            if !goes_on {
                return;
            }
        }
    })
}

/// Loads a service that is down between two times, in ms from its first request. The measurement takes 4 s. If the
/// machine is too busy to stop and start the service in time, it tries again.
fn with_outage(down_ms: std::ops::Range<u64>, more: &[&'static str]) -> Ran {
    loop {
        let (ids, lives) = (Arc::new(Ids::default()), Arc::new(AtomicU64::new(0)));
        let address = restarted(&ids, &lives).name();
        let load =
            ["--rate", "1000", "--for", "4s", "--warm-up", "100ms", "--p99.9", "5s", "--address", &address];
        let running = crate::support::start(&[&load[..], more].concat());
        let started = Instant::now();
        while ids.0.lock().map(|next_id| *next_id == 0).unwrap_or(false) {
            assert!(started.elapsed() < Duration::from_secs(30), "no request came");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (begun, mut is_late) = (Instant::now(), false);
        for at_ms in [down_ms.start, down_ms.end] {
            let at = begun + Duration::from_millis(at_ms);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            lives.fetch_add(1, Ordering::SeqCst);
            is_late |= at.elapsed() > Duration::from_millis(300);
        }
        let ran = running.wait();
        if !is_late {
            return ran;
        }
    }
}

#[test]
fn a_restart_within_the_announced_window_is_counted_separately() {
    // The rate is that of the 2 s outside the window. Over all 4 s it would be half. A busy machine sends late.
    let is_full = |run: &Value| {
        figure(run, "IDs", "rate").as_f64().is_some_and(|rate| (900.0..=1_100.0).contains(&rate))
    };
    let ran = until_seen(|| with_outage(1_700..2_200, &["--outage", "2s@1s"]), is_full);
    assert_eq!(ran.code, 0, "{ran:?}");
    let outage = |name: &str| ran.figure("outage", name);
    assert_eq!((outage("cause"), outage("window")), ("announced".into(), 2e6.into()), "{ran:?}");
    assert!(outage("requests lost").as_f64() > Some(0.0), "{ran:?}");
    assert!(outage("until all was back").as_f64() > Some(0.0), "{ran:?}");
    // The window covers half of the 4 s.
    assert_eq!(ran.figure("IDs", "requests"), ran.figure("IDs", "answered"), "{ran:?}");
    assert!(ran.figure("IDs", "requests").as_f64() < Some(2_100.0), "{ran:?}");
    assert!(is_full(&ran.json()), "{ran:?}");
}

/// Starts the daemon as a separate service, and waits until it listens.
fn start_service(address: &str, directory: &Path) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_snowbank-loadtest")).with_file_name("snowbank");
    let mut command = Command::new(program);
    command.args(["serve", "--listen", address]).arg("--state-dir").arg(directory.join("state"));
    command.arg("--lock-dir").arg(directory.join("locks")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut service = command.spawn().expect("the daemon starts");
    let stdout = service.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut String::new()).expect("it listens");
    service
}

#[test]
fn after_a_restart_the_new_process_is_measured() {
    if !has_daemon() {
        return;
    }
    let ran = until_judged(|| {
        let (port, directory) = (Port::take(), directory_in_memory());
        let address = port.address().to_string();
        let service = start_service(&address, directory.path());
        let load = ["--rate", "1000", "--for", "14s", "--warm-up", "100ms", "--p99.9", "5s"];
        let running =
            crate::support::start(&[&load[..], &["--outage", "11s@1s", "--address", &address]].concat());
        // Some seconds after its begin, and many before its end.
        std::thread::sleep(Duration::from_millis(4_000));
        end(service);
        let service = start_service(&address, directory.path());
        let ran = running.wait();
        end(service);
        ran
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let run = ran.json();
    let seconds = run["seconds"].as_array().expect("a list");
    let is_seen =
        |second: &Value| second["target_cpu_share"].is_number() && second["target_memory_bytes"].is_number();
    // A busy machine may leave a second out.
    assert!(seconds[..2].iter().any(is_seen) && seconds[10..].iter().any(is_seen), "{seconds:#?}");
}

fn end(mut service: Child) {
    kill_process(Pid::from_child(&service), Signal::TERM).expect("it runs");
    service.wait().expect("it ends");
}

#[test]
fn a_restart_without_a_window_or_after_it_is_a_failure() {
    let without = until_judged(|| with_outage(1_700..2_200, &[]));
    assert_eq!(without.code, 1, "{without:?}");
    assert!(without.result().contains("closed a connection"), "{without:?}");
    let after = until_judged(|| with_outage(1_900..2_000, &["--outage", "200ms@100ms"]));
    assert_eq!(after.code, 1, "{after:?}");
}

#[test]
fn a_service_that_is_down_after_the_window_is_a_failure() {
    let ran = with_outage(1_500..4_500, &["--outage", "2s@1s"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    // It accepts connections and closes them.
    let reasons = ["did not recover within 2s", "closed a connection"];
    assert!(reasons.iter().any(|reason| ran.result().contains(reason)), "{ran:?}");
}
