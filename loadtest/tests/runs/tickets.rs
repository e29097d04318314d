//! Ticket counters: their order, uniqueness, and what they leave out. Time is not checked.

use crate::support::{CLOSED, Daemon, Ran, Setup, has_daemon, loadtest};

/// Serves every second number from `offset` on.
fn counter(offset: &str) -> Daemon {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[resp]\nlisten = [\"127.0.0.1:0\"]\n[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n\
         increment = 2\noffset = {offset}\n"
    );
    let setup = Setup::bare().config(&config).listeners(2);
    let set = setup.run(&["ticket", "set", "orders", "0", "--increment", "2", "--offset", offset]);
    assert_eq!(set.code, Some(0), "{set:?}");
    setup.start()
}

fn load(more: &[&str]) -> Ran {
    loadtest(&[&CLOSED[..], &["--batch=20"], more].concat())
}

#[test]
fn tickets_need_no_clock_and_what_they_leave_out_counts() {
    if !has_daemon() {
        return;
    }
    for front_end in [false, true] {
        let daemon = counter("1");
        let native = daemon.addresses[0].to_string();
        let resp = daemon.addresses[1].to_string();
        let ran = if front_end {
            load(&["--resp", "--address", &resp, "--info", &native])
        } else {
            load(&["--address", &native])
        };
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.figure("target", "layout"), "tickets, increment 2", "{ran:?}");
        assert!(ran.words().contains("numbers left out 0"), "{ran:?}");
    }
}

#[test]
fn odd_and_even_counters_are_loaded_together_and_equal_ones_are_refused() {
    if !has_daemon() {
        return;
    }
    let pair = |offsets: [&str; 2]| {
        let daemons = offsets.map(counter);
        let addresses = daemons.each_ref().map(|daemon| format!("--address={}", daemon.addresses[0]));
        load(&addresses.each_ref().map(String::as_str))
    };
    let ran = pair(["1", "2"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    pair(["1", "1"]).assert_refused(1, "count the same tickets");
}
