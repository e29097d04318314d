//! `snowbank serve`: options that it refuses, locks of worker IDs, the precedence of settings, and
//! its defaults.

use std::net::TcpListener;

use crate::support::ids::twitter_worker;
use crate::support::{Ask, Setup, each_case};

/// Wrong options, each with parts of the line that refuses it: the value found, and what is
/// allowed.
const WRONG: [(&[&str], &[&str]); 6] = [
    // If one listener is beyond loopback, the daemon needs a worker ID.
    (&["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"], &["0.0.0.0:0", "worker_ids", "loopback"]),
    (&["--worker-id=-1"], &["--worker-id", "-1"]),
    // The fields need more bits than an ID has, and the time field lasts only 4.35 years.
    (&["--layout", "time:37,server:20,sequence:16"], &["--layout", "73", "63", "4.35 years", "game"]),
    (&["--order", "loose"], &["--order", "loose", "relaxed", "strict"]),
    (&["--lisen", "127.0.0.1:0"], &["--lisen"]),
    (&["--stop-at-stdin-eof", "surplus"], &["surplus"]),
];

#[test]
fn wrong_options_are_refused_with_what_is_allowed() {
    each_case(&WRONG, |(options, parts)| Setup::bare().args(*options).end().assert_refusal(parts));
}

#[test]
fn a_worker_id_that_another_local_daemon_holds_is_refused() {
    let setup = Setup::new();
    let locks = setup.path("locks");
    let daemon = setup.args(["--worker-id", "4-6"]).start();
    // The other daemons have a state of their own, but share the lock directory.
    let other = |options: &[&str]| Setup::new().env("SNOWBANK_LOCK_DIR", &locks).args(options);
    let process = format!("process {}", daemon.id());
    // These layouts can make the same IDs, at another time or with other fields.
    let finer = "time:41,worker:11,sequence:11;tick=1ms;epoch=1288834974657";
    let later = "time:41,worker:10,sequence:12;tick=1ms;epoch=1288834979657";
    let twin = |worker: &str, layout: &str| {
        format!("worker ID {worker} of layout {layout} can make the same IDs as number 5 of time,node:=1024,")
    };
    for (worker, layout, words) in [
        ("5", "twitter", "worker ID 5"),
        ("0-4", "twitter", "worker ID 4"),
        // The layout `twitter` with other names of fields, and the same layout with a constant in
        // some bits.
        ("6", "time:41,dc:5,host:5,sequence:12;epoch=2010-11-04T01:42:54.657Z", "worker ID 6"),
        ("6", "time:41,zero:7:constant(0),host:3,sequence:12;epoch=1288834974657", "worker ID 6"),
        ("5", later, &twin("5", later)),
        ("11", finer, &twin("11", finer)),
    ] {
        let ended = other(&["--worker-id", worker, "--layout", layout]).end();
        ended.assert_refusal_for_now(&[words, "another daemon", &process]);
    }
    // Another worker ID is allowed, and so is a layout whose IDs are years away or grow at another
    // rate.
    for (worker, layout) in [("7", "twitter"), ("5", "simple-2020"), ("5", "clearing")] {
        other(&["--worker-id", worker, "--layout", layout]).start().draw_and_stop();
    }
    // The worker ID is free after a stop, and after a kill.
    daemon.stop();
    let mut daemon = other(&["--worker-id", "5"]).start();
    daemon.kill();
    other(&["--worker-id", "5"]).start().draw_and_stop();
    other(&["--worker-id", "11", "--layout", finer]).start().draw_and_stop();
}

/// Starts a daemon, and returns the order and the worker IDs in its INFO.
fn reported(setup: Setup) -> (String, Vec<u64>) {
    let daemon = setup.start();
    let info = daemon.connect().info();
    let order = info["order"].as_str().expect("a text").to_owned();
    let workers = info["sources"][0]["worker_ids"].as_array().expect("an array");
    (order, workers.iter().map(|id| id.as_u64().expect("a number")).collect())
}

#[test]
fn options_override_variables_and_variables_override_the_file() {
    let file = || Setup::configured("order = \"strict\"\nworker_ids = 1\n");
    assert_eq!(reported(file()), ("strict".into(), vec![1]));
    let variables = || file().env("SNOWBANK_ORDER", "relaxed").env("SNOWBANK_WORKER_IDS", "2-3");
    assert_eq!(reported(variables()), ("relaxed".into(), vec![2, 3]));
    assert_eq!(reported(variables().args(["--worker-id", "4"])), ("relaxed".into(), vec![4]));
    assert_eq!(
        reported(variables().args(["--order", "strict", "--worker-id", "5"])),
        ("strict".into(), vec![5])
    );
    // An empty variable counts as not set.
    assert_eq!(reported(file().env("SNOWBANK_WORKER_IDS", "")), ("strict".into(), vec![1]));
}

#[test]
fn a_signal_right_after_the_listening_line_stops_the_daemon() {
    for _ in 0..20 {
        Setup::new().start().stop();
    }
}

#[test]
fn twitter_ids_of_worker_0_are_served_without_options() {
    // If another program has the default port, this test cannot run.
    if let Err(error) = TcpListener::bind("127.0.0.1:7660") {
        println!("127.0.0.1:7660 is taken ({error}): not tried");
        return;
    }
    let daemon = Setup::bare().in_own_directory().start();
    assert_eq!(daemon.addresses[0].to_string(), "127.0.0.1:7660");
    let ids = daemon.connect().next(Ask::of(1_000)).ids();
    assert!(ids.iter().all(|&id| twitter_worker(id) == 0));
    assert!(daemon.stop().is_empty());
}
