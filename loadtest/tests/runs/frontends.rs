//! The same load and checks over the protocols of Redis, memcached, HTTP and noeqd.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{CLOSED, Ran, has_daemon, loadtest, until_in_time};

fn load(more: &[&str]) -> Ran {
    loadtest(&[&CLOSED, more].concat())
}

#[test]
fn each_front_end_of_a_daemon_is_loaded_and_its_ids_are_checked() {
    if !has_daemon() {
        return;
    }
    // A reply of 1,000 IDs comes in chunks.
    let cases = [
        ("--resp", "1:5,20:5"),
        ("--memcached", "1:5,20:5"),
        ("--http", "1:5,1000:5"),
        ("--noeqd", "1:5,20:5"),
    ];
    for (front_end, batches) in cases {
        let ran = load(&[front_end, "--batch", batches]);
        assert_eq!(ran.code, 0, "{front_end}: {ran:?}");
        assert_eq!(ran.figure("target", "protocol"), front_end.trim_start_matches('-'));
        let of = |name: &str| ran.figure("IDs", name).as_f64();
        assert!(of("IDs checked") > of("requests"), "{front_end}: {ran:?}");
    }
}

#[test]
fn a_front_end_killed_under_load_comes_back_and_repeats_no_id() {
    if !has_daemon() {
        return;
    }
    for front_end in ["--resp", "--memcached", "--http", "--noeqd"] {
        let options = ["--rate", "2000", "--for", "2s", "--p99.9", "5s", "--kill-daemon-at", "1s"];
        let ran = until_in_time(|| loadtest(&[&options[..], &[front_end]].concat()));
        assert_eq!(ran.code, 0, "{front_end}: {ran:?}");
        assert!(ran.figure("outage", "until all was back").as_f64() > Some(0.0), "{front_end}: {ran:?}");
    }
}

#[test]
fn a_batch_size_that_a_front_end_cannot_ask_for_is_refused() {
    if !has_daemon() {
        return;
    }
    for (front_end, batch) in [("--noeqd", "256"), ("--memcached", "10000")] {
        load(&[front_end, "--batch", batch]).assert_refused(2, "the target allows");
    }
}

/// A server that answers each line of a connection by a script.
fn server(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(&stream, &*answer));
        }
    });
    address
}

fn serve(stream: &TcpStream, answer: &dyn Fn(&str) -> Option<String>) {
    let mut out = stream.try_clone().expect("a second handle");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Some(reply) = answer(line.trim_end()) else { continue };
        if out.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// Runs a server that gives each key of a `get` the next ID.
fn memcached(id: impl Fn(u64) -> u64 + Send + Sync + 'static) -> String {
    let asked = AtomicU64::new(0);
    server(move |line| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["get", keys @ ..] => {
            let value = |key: &&str| {
                let id = id(asked.fetch_add(1, Ordering::SeqCst)).to_string();
                format!("VALUE {key} 0 {}\r\n{id}\r\n", id.len())
            };
            Some(keys.iter().map(value).collect::<String>() + "END\r\n")
        }
        ["version"] => Some("VERSION 1.8\r\n".to_owned()),
        _ => Some("ERROR\r\n".to_owned()),
    })
}

#[test]
fn a_repeated_id_is_found_without_a_layout() {
    let one = ["--connections", "1", "--memcached", "--address"];
    let ran = load(&[&one[..], &[&memcached(|number| 1_000 + number)]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.figure("target", "version") == "1.8" && ran.figure("target", "layout") == "–", "{ran:?}");
    let repeats = |number: u64| 1_000 + number - u64::from(number == 900);
    let ran = load(&[&one[..], &[&memcached(repeats)]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: 1899 "), "{ran:?}");
}

#[test]
fn a_refusal_in_another_protocol_has_its_code() {
    let requests = AtomicU64::new(0);
    let refusing = server(move |line| {
        if line == "version" {
            return Some("VERSION 1\r\n".to_owned());
        }
        let id = 1_000_000 + requests.fetch_add(1, Ordering::SeqCst);
        // Not the first one, which greets, and not one of the warm-up alone.
        if id.is_multiple_of(100) && id > 1_000_000 {
            return Some("SERVER_ERROR exhausted retry_after_ms=5 source id\r\n".to_owned());
        }
        Some(format!("VALUE id 0 7\r\n{id}\r\nEND\r\n"))
    });
    let ran = load(&["--memcached", "--connections", "1", "--address", &refusing]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let refused = "of 1,000 requests were refused: exhausted x 10 (exhausted retry_after_ms=5 source id)";
    assert!(ran.result().contains(refused), "{ran:?}");
}

#[test]
fn a_target_of_another_protocol_is_named_in_one_line() {
    let ssh = server(|_| Some("SSH-2.0-server\r\n".to_owned()));
    for front_end in ["--resp", "--memcached", "--http"] {
        load(&[front_end, "--address", &ssh]).assert_refused(2, "SSH-2.0-server");
    }
}
