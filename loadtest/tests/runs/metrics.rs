//! CPU time, memory and clock of a remote target, second by second.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

use crate::support::scripted::{INFO, first_of_tick, sound_target, target};
use crate::support::{CLOSED, Ran, command, has_daemon, loadtest, start_by, until};
use serde_json::Value;

/// The share of a core that the metrics below report.
const SHARE: f64 = 0.25;

/// Runs an admin listener whose process uses a quarter of a core, and 1 MiB more at each scrape.
/// Returns its URL.
fn admin(body: impl Fn(f64, u64) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/metrics", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let begun = Instant::now();
        for (look, stream) in (1..).zip(listener.incoming()) {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 1_024];
            let size = stream.read(&mut head).expect("a request");
            assert!(head[..size].starts_with(b"GET /metrics HTTP/1.1\r\n"), "{:?}", &head[..size]);
            let body = body(SHARE * begun.elapsed().as_secs_f64(), look << 20);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).expect("an answer");
        }
    });
    url
}

fn sound_admin() -> String {
    admin(|cpu_s, bytes| {
        format!("process_cpu_seconds_total {cpu_s}\nprocess_resident_memory_bytes {bytes}\n")
    })
}

fn load(address: &str, more: &[&str]) -> Ran {
    let options = ["--rate", "500", "--for", "3s", "--warm-up", "200ms", "--p99.9", "5s"];
    loadtest(&[&options[..], &["--address", address], more].concat())
}

fn is_near(share: &Value) -> bool {
    share.as_f64().is_some_and(|share| (SHARE / 2.0..SHARE * 2.0).contains(&share))
}

/// Returns the figure of each whole second.
fn of_seconds<'a>(run: &'a Value, name: &str) -> Vec<&'a Value> {
    run["seconds"].as_array().into_iter().flatten().take(3).map(|second| &second[name]).collect()
}

#[test]
fn metrics_give_cpu_time_and_memory_for_each_second() {
    let directory = tempfile::tempdir().expect("a directory");
    let csv = directory.path().join("seconds.csv");
    let file = csv.to_str().expect("UTF-8");
    let is_seen = |ran: &Ran| {
        let run = ran.json();
        let shares = of_seconds(&run, "target_cpu_share");
        let memory = of_seconds(&run, "target_memory_bytes");
        is_near(&ran.figure("CPU, memory", "target's CPU"))
            && shares.len() == 3
            && is_near(shares[1])
            && memory.iter().all(|bytes| bytes.is_number())
            && memory[0].as_u64() < memory[2].as_u64()
    };
    let loaded = || load(&sound_target().name(), &["--metrics", &sound_admin(), "--csv", file]);
    let ran = until(loaded, |ran| ran.code == 0 && is_seen(ran));
    assert!(ran.code == 0 && is_seen(&ran), "{ran:?}: {}", ran.json()["seconds"]);
    assert!(ran.words().contains(" MiB, generator"), "{ran:?}");
    let text = std::fs::read_to_string(&csv).expect("a file");
    let columns: Vec<&str> = text.lines().nth(2).expect("a second").split(',').collect();
    assert_eq!(columns[10], of_seconds(&ran.json(), "target_memory_bytes")[1].to_string(), "{text}");
}

#[test]
fn unusable_metrics_are_reported_in_one_line() {
    let (other, nowhere) = (admin(|_, _| "up 1\n".to_owned()), "http://127.0.0.1:1/metrics".to_owned());
    let target = sound_target();
    for (options, reason) in [
        (&["--metrics", &other][..], "has no process_cpu_seconds_total"),
        (&["--metrics", &nowhere], "cannot connect to 127.0.0.1:1"),
        (&["--metrics", "http://host/a b"], "is not a URL"),
        (&["--metrics", "9660", "--metrics", "9661"], "one --metrics for each --address"),
    ] {
        command(&[&["--address", &target.name()], options].concat()).assert_refused(2, reason);
    }
}

#[test]
fn the_difference_of_the_clocks_is_measured() {
    // IDs dated 40 ms ahead, as from a machine whose clock is ahead.
    let ahead = target(INFO, |_, ids, peer, next, tag| {
        let mut next_id = ids.0.lock().expect("no panic");
        let first = (*next_id).max(first_of_tick(40));
        *next_id = first + u64::from(next.count);
        peer.send_run(tag, first, next.count)
    });
    let is_seen = |ran: &Ran| {
        let apart = ran.figure("clocks", "furthest apart").as_f64();
        ran.code == 0 && apart.is_some_and(|us| (30_000.0..60_000.0).contains(&us))
    };
    let ran = until(|| load(&ahead.name(), &[]), is_seen);
    assert!(is_seen(&ran), "{ran:?}");
}

/// Starts a daemon of the run's own whose process has another name, as if /proc did not tell who it
/// is.
const OTHER_NAME: &str = r#"d="$1"; shift; ln "$0" "$d/loadtest" && ln -s "${0%/*}/snowbank" "$d/other" &&
    printf '#!/bin/sh\nexec "${0%%/*}/other" "$@"\n' > "$d/snowbank" && chmod +x "$d/snowbank" &&
    exec "$d/loadtest" "$@""#;

#[test]
fn the_runs_own_daemon_has_this_machines_clock() {
    if !has_daemon() {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut renamed = Command::new("sh");
    renamed.args(["-c", OTHER_NAME, env!("CARGO_BIN_EXE_snowbank-loadtest")]).arg(directory.path());
    let ran = start_by(renamed, &CLOSED).wait();
    assert_eq!((ran.code, ran.figure("target", "started for this run")), (0, "yes".into()), "{ran:?}");
    assert_eq!(ran.figure("clocks", "furthest apart"), Value::Null, "it is not measured: {ran:?}");
}
