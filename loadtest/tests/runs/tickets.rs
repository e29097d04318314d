//! Ticket counters: their order, uniqueness and gaps. Time is not checked.

use crate::support::served::{Served, directory, prepare, serve};
use crate::support::{Ran, has_daemon, loadtest, until_judged};

/// Serves every second number from `offset` on.
fn counter(offset: &str) -> Served {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[resp]\nlisten = [\"127.0.0.1:0\"]\n[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n\
         increment = 2\noffset = {offset}\n"
    );
    let directory = directory(&config);
    prepare(&directory, &["ticket", "set", "orders", "0", "--increment", "2", "--offset", offset]);
    serve(directory, 2)
}

fn load(more: &[&str]) -> Ran {
    let options = ["--rate=2000", "--for=1s", "--warm-up=200ms", "--p99.9=5s", "--batch=1:5,20:5"];
    loadtest(&[&options, more].concat())
}

#[test]
fn tickets_are_checked_without_a_clock_and_their_gaps_are_counted() {
    if !has_daemon() {
        return;
    }
    for front_end in [false, true] {
        let ran = until_judged(|| {
            let daemon = counter("1");
            let (native, resp) = (daemon.address("listening"), daemon.address("resp"));
            match front_end {
                true => load(&["--resp", "--address", &resp, "--info", &native]),
                false => load(&["--address", &native]),
            }
        });
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.figure("target", "layout"), "tickets, increment 2", "{ran:?}");
        assert!(ran.words().contains("gaps 0, numbers left out 0"), "{ran:?}");
    }
}

#[test]
fn odd_and_even_counters_are_loaded_together_and_equal_ones_are_refused() {
    if !has_daemon() {
        return;
    }
    let ran = until_judged(|| {
        let (odd, even) = (counter("1"), counter("2"));
        load(&pair(&odd, &even).each_ref().map(String::as_str))
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let (one, other) = (counter("1"), counter("1"));
    let ran = load(&pair(&one, &other).each_ref().map(String::as_str));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("count the same tickets"), "{ran:?}");
}

fn pair(one: &Served, other: &Served) -> [String; 2] {
    [one, other].map(|daemon| format!("--address={}", daemon.address("listening")))
}
