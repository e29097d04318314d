//! Loads targets over the protocols of Redis, memcached, HTTP and noeqd, and checks their IDs.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::port::Port;
use crate::support::scripted::listener;
use crate::support::{CLOSED, Ran, Server, has_daemon, has_program, loadtest, poll, until_in_time};

fn load(more: &str) -> Ran {
    loadtest(&format!("{CLOSED} {more}"))
}

#[test]
fn each_front_end_of_a_daemon_is_loaded_and_its_ids_are_checked() {
    if !has_daemon() {
        return;
    }
    // A reply of 1,000 IDs comes in chunks.
    let cases = [("--resp", "20"), ("--memcached", "20"), ("--http", "1000"), ("--noeqd", "20")];
    let batches = cases.into_iter().flat_map(|(front_end, several)| [(front_end, "1"), (front_end, several)]);
    for (front_end, batch) in batches {
        let ran = load(&format!("{front_end} --batch {batch}"));
        assert_eq!(ran.code, 0, "{front_end}: {ran:?}");
        assert_eq!(ran.figure("target", "protocol"), front_end.trim_start_matches('-'));
        let of = |name: &str| ran.figure("IDs", name).as_f64();
        assert!(of("IDs checked") > of("requests"), "{front_end}: {ran:?}");
    }
}

#[test]
fn a_batch_beyond_a_front_ends_limit_is_refused() {
    if !has_daemon() {
        return;
    }
    for options in ["--noeqd --batch 256", "--memcached --batch 10000"] {
        load(options).assert_refused(2, "the target's limit");
    }
}

/// Runs a server that answers each key of a `get` with the next ID. It serves one connection at a
/// time.
fn memcached(id: fn(u64) -> u64) -> String {
    let asked = AtomicU64::new(0);
    listener(move |stream| {
        let mut out = stream.try_clone().expect("a second handle");
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut answer = String::from("VERSION 1.8\r\n");
            if let Some(keys) = line.strip_prefix("get ") {
                answer.clear();
                for key in keys.split(' ') {
                    let id = id(asked.fetch_add(1, Ordering::SeqCst)).to_string();
                    answer += &format!("VALUE {key} 0 {}\r\n{id}\r\n", id.len());
                }
                answer += "END\r\n";
            }
            // This fails if the client has closed the connection.
            let _ = out.write_all(answer.as_bytes());
        }
    })
}

#[test]
fn a_repeated_id_is_found_without_a_layout() {
    let on_one_connection = |address| load(&format!("--connections 1 --memcached --address {address}"));
    let ran = on_one_connection(memcached(|number| 1_000 + number));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.figure("target", "version") == "1.8" && ran.figure("target", "layout") == "–", "{ran:?}");
    let ran = on_one_connection(memcached(|number| 1_000 + number - u64::from(number == 20)));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: 1019 "), "{ran:?}");
}

#[test]
fn a_redis_is_loaded_and_checked_like_a_daemon() {
    if !has_program("redis-server", "redis-server") {
        return;
    }
    let port = Port::take();
    let directory = tempfile::tempdir().expect("a directory");
    let address = port.address();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(directory.path()).stdout(Stdio::null());
    let _redis = Server(command.spawn().expect("a Redis"));
    poll("a Redis", || TcpStream::connect(address).ok());
    for load in ["--rate 10000 --batch 50 --for 1s --p99.9 5s", CLOSED] {
        let ran = until_in_time(|| loadtest(&format!("--resp --address {address} {load}")));
        assert_eq!(ran.code, 0, "{ran:?}");
        let of = |name: &str| ran.figure("IDs", name).as_f64();
        assert!(of("IDs checked") > of("requests"), "{ran:?}");
        let version = ran.figure("target", "version");
        assert!(version.as_str().is_some_and(|it| it.starts_with("Redis ")), "{ran:?}");
    }
}
