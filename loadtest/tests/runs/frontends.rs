//! The same load and checks over the protocols of Redis, memcached, HTTP and noeqd.

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::scripted::listener;
use crate::support::{CLOSED, Ran, has_daemon, loadtest};

fn load(more: &[&str]) -> Ran {
    loadtest(&[&CLOSED, more].concat())
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
        let ran = load(&[front_end, "--batch", batch]);
        assert_eq!(ran.code, 0, "{front_end}: {ran:?}");
        assert_eq!(ran.figure("target", "protocol"), front_end.trim_start_matches('-'));
        let of = |name: &str| ran.figure("IDs", name).as_f64();
        assert!(of("IDs checked") > of("requests"), "{front_end}: {ran:?}");
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

/// Runs a server that gives each key of a `get` the next ID, on one connection after the other.
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
            // The client may have gone.
            let _ = out.write_all(answer.as_bytes());
        }
    })
}

#[test]
fn a_repeated_id_is_found_without_a_layout() {
    let one = ["--connections", "1", "--memcached", "--address"];
    let ran = load(&[&one[..], &[&memcached(|number| 1_000 + number)]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.figure("target", "version") == "1.8" && ran.figure("target", "layout") == "–", "{ran:?}");
    let repeats = memcached(|number| 1_000 + number - u64::from(number == 20));
    let ran = load(&[&one[..], &[&repeats]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.result().contains("duplicate: 1019 "), "{ran:?}");
}
