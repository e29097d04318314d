//! `snowbank serve` for its user: options that it refuses, its messages, the precedence of settings, and its exit
//! codes.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::support::daemon::mode;
use crate::support::ids::twitter_worker;
use crate::support::{Address, Ask, Reply, Setup, Wire, wire};
use rustix::process::Signal;

/// Starts a daemon that must refuse these options. Its one line must hold the value found and the allowed ones.
#[track_caller]
fn refuses(options: &[&str], parts: &[&str]) {
    Setup::bare().args(options).end().assert_refusal(parts);
}

/// The same for a cause that may pass by the next try.
#[track_caller]
fn refuses_for_now(options: &[&str], parts: &[&str]) {
    Setup::bare().args(options).end().assert_refusal_for_now(parts);
}

#[test]
fn an_address_in_use_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    refuses_for_now(&["--listen", &address], &[&address, "in use", "choose another port"]);
    // One address in use among several is enough.
    refuses_for_now(&["--listen", "127.0.0.1:0", "--listen", &address], &[&address]);
}

#[test]
fn a_malformed_or_unresolvable_address_is_refused() {
    refuses_for_now(
        &["--listen", "no.such.host.invalid:7660", "--worker-id", "1"],
        &["no.such.host.invalid:7660", "resolve"],
    );
    refuses(&["--listen", "127.0.0.1:65536"], &["--listen", "65536", "65535"]);
    refuses(&["--listen", "127.0.0.1"], &["127.0.0.1", "port is missing"]);
    refuses(&["--listen", "tcp://127.0.0.1:0"], &["tcp://127.0.0.1:0"]);
    // An address for documentation (RFC 5737), which no machine has.
    refuses_for_now(
        &["--listen", "192.0.2.7:0", "--worker-id", "1"],
        &["192.0.2.7:0", "does not have that address"],
    );
    refuses(&["--listen", "unix:/no/such/directory/socket"], &["/no/such/directory/socket", "directory"]);
}

#[test]
fn listening_beyond_loopback_without_a_worker_id_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.7:7660", "some.host:7660"] {
        refuses(&["--listen", address], &[address, "worker_ids", "loopback"]);
    }
    // Also if other listeners are local.
    refuses(&["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"], &["0.0.0.0:0"]);
}

#[test]
fn a_worker_id_out_of_range_is_refused() {
    for (layout, worker, found, limit) in [
        ("twitter", "1024", "1024", "1023"),
        ("twitter", "1000-1024", "1024", "1023"),
        ("clearing", "100", "100", "99"),
        ("js53", "16", "16", "15"),
        ("kubernetes", "16777216", "16777216", "16777215"),
    ] {
        refuses(&["--layout", layout, "--worker-id", worker], &["--worker-id", found, limit]);
    }
    for worker in ["-1", "one", "3-1", "1,,2", "18446744073709551616"] {
        refuses(&[&format!("--worker-id={worker}")], &["--worker-id", worker]);
    }
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_one_that_does() {
    // The game servers wanted 73 bits, and a time field that lasts 4.35 years.
    let layout = "time:37,server:20,sequence:16";
    refuses(&["--layout", layout], &["--layout", "73", "63", "4.35 years", "game"]);
}

#[test]
fn malformed_ended_and_future_layouts_are_refused() {
    refuses(&["--layout", "baidu"], &["--layout", "2024", "ended"]);
    refuses(&["--layout", "twiter"], &["twiter", "twitter"]);
    refuses(&["--layout", "time:41,worker:10"], &["sequence"]);
    refuses_for_now(
        &["--layout", "time:41,worker:10,sequence:12;epoch=2999-01-01T00:00:00Z"],
        &["2999-01-01", "epoch"],
    );
    refuses(&["--layout", "time:41,worker:10,sequence:12;tick=0ms"], &["tick"]);
}

#[test]
fn a_worker_id_that_another_local_daemon_holds_is_refused() {
    let setup = Setup::new();
    let locks = setup.path("locks");
    let state = setup.path("state");
    let daemon = setup.args(["--worker-id", "4-6"]).option("--state-dir", state).start();
    let other = |options: &[&str]| {
        let setup = Setup::new().env("SNOWBANK_LOCK_DIR", &locks);
        let state = setup.path("state of its own");
        setup.option("--state-dir", &state).args(options)
    };
    let process = format!("process {}", daemon.id());
    other(&["--worker-id", "5"]).end().assert_refusal_for_now(&["worker ID 5", "another daemon", &process]);
    other(&["--worker-id", "0-4"]).end().assert_refusal_for_now(&["worker ID 4"]);
    // The same layout in another form, and with other names of fields.
    let spelled = "time:41,datacenter:5,worker:5,sequence:12;epoch=2010-11-04T01:42:54.657Z";
    other(&["--worker-id", "6", "--layout", spelled]).end().assert_refusal_for_now(&["worker ID 6"]);
    let renamed = "time:41,dc:5,host:5,sequence:12;epoch=1288834974657";
    other(&["--worker-id", "6", "--layout", renamed]).end().assert_refusal_for_now(&["worker ID 6"]);
    // A constant instead of some bits of the worker ID.
    let folded = "time:41,zero:7:constant(0),host:3,sequence:12;epoch=1288834974657";
    other(&["--worker-id", "6", "--layout", folded]).end().assert_refusal_for_now(&[
        "worker ID 6",
        "another daemon",
        &process,
    ]);
    // The same IDs at another time, or of another division into fields.
    let finer = "time:41,worker:11,sequence:11;tick=1ms;epoch=1288834974657";
    let later = "time:41,worker:10,sequence:12;tick=1ms;epoch=1288834979657";
    for (worker, layout) in [("5", later), ("11", finer)] {
        let twin = format!(
            "worker ID {worker} of layout {layout} can make the same IDs as number 5 of time,node:=1024,"
        );
        let words = [&*twin, "another daemon of this machine", &process];
        other(&["--worker-id", worker, "--layout", layout]).end().assert_refusal_for_now(&words);
    }
    // Allowed: another worker ID, or another layout whose IDs are years away or rise at another rate.
    other(&["--worker-id", "7"]).start().stop();
    other(&["--worker-id", "5", "--layout", "simple-2020"]).start().stop();
    other(&["--worker-id", "5", "--layout", "clearing"]).start().stop();
    // The worker ID is free after a stop, and after a kill.
    daemon.stop();
    let mut daemon = other(&["--worker-id", "5"]).start();
    daemon.kill();
    other(&["--worker-id", "5"]).start().stop();
    other(&["--worker-id", "11", "--layout", finer]).start().stop();
}

#[test]
fn a_lock_file_without_worker_ids_is_not_ignored() {
    let setup = Setup::new();
    let locks = setup.path("locks");
    fs::create_dir_all(&locks).unwrap();
    let lock = |name: &str, line: &str| {
        fs::write(locks.join(name), format!("{line:<255}\n")).unwrap();
        let file = File::options().write(true).open(locks.join(name)).unwrap();
        file.try_lock().unwrap();
        file
    };
    let start = || Setup::new().env("SNOWBANK_LOCK_DIR", &locks).args(["--worker-id", "5"]);
    // A lock of another program, and one that no process holds.
    let _held = lock("backup.lock", "held");
    lock("0123456789abcdef-7.lock", "worker ID 7").unlock().unwrap();
    start().start().stop();
    let newer = lock("0123456789abcdef-5.lock", "process 77, worker ID 5, of a release to come");
    let holder = format!("(process {})", std::process::id());
    start().end().assert_refusal_for_now(&[
        "0123456789abcdef-5.lock",
        &holder,
        "in a form that this release does not know",
    ]);
    newer.unlock().unwrap();
    start().start().stop();
}

#[test]
fn two_sources_of_one_file_must_not_share_a_worker_id() {
    let toml = "[[sources]]\nname = \"a\"\nworker_ids = \"0-3\"\n[[sources]]\nname = \"b\"\nworker_ids = 3\n";
    Setup::configured(toml).end().assert_refusal(&["worker 3", "\"a\"", "\"b\""]);
}

#[test]
fn a_lock_directory_that_allows_no_locks_is_refused() {
    let setup = Setup::new();
    let file = setup.path("a-file");
    std::fs::write(&file, "").expect("written");
    let inside = file.join("locks");
    setup.env("SNOWBANK_LOCK_DIR", &inside).end().assert_refusal(&["a-file/locks", "lock_dir"]);
    // Root can write everywhere except in /proc.
    Setup::new().args(["--lock-dir", "/proc/locks"]).end().assert_refusal(&["/proc/locks", "lock_dir"]);
}

#[test]
fn an_unreadable_or_wrong_configuration_is_refused() {
    let setup = Setup::new();
    let missing = setup.path("missing.toml");
    setup.option("--config", &missing).end().assert_refusal(&["missing.toml"]);
    let setup = Setup::new();
    let directory = setup.path(".");
    setup.option("--config", &directory).end().assert_refusal(&["directory"]);
    for (toml, parts) in [
        ("worker_ids = 1024\n", &["snowbank.toml:1", "worker_ids", "1024", "1023"][..]),
        ("\n\norder = \"random\"\n", &["snowbank.toml:3", "order", "random", "strict"]),
        ("shards = 0\n", &["shards", "0"]),
        ("shards = [\n", &["snowbank.toml"]),
        ("wroker_ids = 3\n", &["wroker_ids", "worker_ids"]),
        ("[limits]\nmax_wait = 10\n", &["snowbank.toml:2", "limits.max_wait"]),
        ("shards = 0\norder = 1\n", &["snowbank.toml:1", "1 more mistake"]),
        ("[auth]\ntoken_file = \"nowhere\"\n", &["nowhere"]),
    ] {
        Setup::configured(toml).end().assert_refusal(parts);
    }
    let setup = Setup::new();
    std::fs::write(setup.path("tokens"), "# nobody\n").expect("written");
    setup.config("[auth]\ntoken_file = \"tokens\"").end().assert_refusal(&["tokens", "no token"]);
    let setup = Setup::new();
    std::fs::write(setup.path("snowbank.toml"), b"\xFF\xFE").expect("written");
    let path = setup.path("snowbank.toml");
    setup.option("--config", &path).end().assert_refusal(&["snowbank.toml"]);
}

#[test]
fn options_with_wrong_values_are_refused() {
    refuses(&["--shards", "0"], &["--shards", "0", "256"]);
    refuses(&["--shards", "257"], &["--shards", "257", "256"]);
    refuses(&["--order", "loose"], &["--order", "loose", "relaxed", "strict"]);
    refuses(&["--state-dir", "/proc/state"], &["/proc/state"]);
    refuses(&["--lisen", "127.0.0.1:0"], &["--lisen"]);
    refuses(&["surplus"], &["surplus"]);
    let ended = Setup::new().env("SNOWBANK_SHARDS", "many").end();
    ended.assert_refusal(&["SNOWBANK_SHARDS", "many"]);
}

fn info(wire: &mut Wire) -> serde_json::Value {
    match wire.call(&wire::info(0)) {
        Reply::Info(_, text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("expected INFO, found {other:?}"),
    }
}

/// Returns the order and the worker IDs that a daemon reports.
fn told(setup: Setup) -> (String, Vec<u64>) {
    let daemon = setup.start();
    let info = info(&mut daemon.connect());
    let order = info["order"].as_str().expect("a text").to_owned();
    let workers = info["sources"][0]["worker_ids"].as_array().expect("an array");
    (order, workers.iter().map(|id| id.as_u64().expect("a number")).collect())
}

#[test]
fn options_beat_variables_and_these_beat_the_file() {
    let file = || Setup::configured("order = \"strict\"\nworker_ids = 1\n");
    assert_eq!(told(file()), ("strict".into(), vec![1]));
    let variables = || file().env("SNOWBANK_ORDER", "relaxed").env("SNOWBANK_WORKER_IDS", "2-3");
    assert_eq!(told(variables()), ("relaxed".into(), vec![2, 3]));
    assert_eq!(told(variables().args(["--worker-id", "4"])), ("relaxed".into(), vec![4]));
    assert_eq!(told(variables().args(["--order", "strict", "--worker-id", "5"])), ("strict".into(), vec![5]));
    // An empty variable counts as not set.
    assert_eq!(told(file().env("SNOWBANK_WORKER_IDS", "")), ("strict".into(), vec![1]));
}

#[test]
fn a_variable_may_name_the_configuration_file() {
    let setup = Setup::new();
    let path = setup.path("named.toml");
    std::fs::write(&path, "worker_ids = 9\n").expect("written");
    assert_eq!(told(setup.env("SNOWBANK_CONFIG", path)).1, [9]);
    // An empty variable counts as not set, for every command.
    assert_eq!(told(Setup::new().env("SNOWBANK_CONFIG", "")).1, [0]);
    let next = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank"))
        .args(["next", "--timeout", "1ms"])
        .env("SNOWBANK_ADDRESS", "")
        .output()
        .expect("it runs");
    assert!(String::from_utf8_lossy(&next.stderr).contains("127.0.0.1:7660"), "{next:?}");
}

#[test]
fn listeners_are_replaced_not_joined() {
    // If the file's listener were opened too, there would be one line more.
    let file = "listen = [\"127.0.0.3:0\"]\n";
    let hosts = |setup: Setup, count: usize| -> Vec<String> {
        let daemon = setup.listeners(count).start();
        let hosts = daemon.addresses.iter().map(|address| address.tcp().ip().to_string()).collect();
        assert!(daemon.stop().is_empty(), "more listeners than were asked for");
        hosts
    };
    assert_eq!(hosts(Setup::bare().config(file), 1), ["127.0.0.3"]);
    let variable = || Setup::bare().config(file).env("SNOWBANK_LISTEN", "127.0.0.4:0,127.0.0.5:0");
    assert_eq!(hosts(variable(), 2), ["127.0.0.4", "127.0.0.5"]);
    let options = ["--listen", "127.0.0.6:0", "--listen", "127.0.0.7:0"];
    assert_eq!(hosts(variable().args(options), 2), ["127.0.0.6", "127.0.0.7"]);
}

#[test]
fn standard_output_has_only_the_listeners() {
    let daemon = Setup::new().args(["--worker-id", "3"]).start();
    assert!(matches!(&daemon.addresses[..], [Address::Tcp(address)] if address.port() != 0));
    daemon.connect().next(Ask::of(10));
    // What was chosen stands on standard error.
    for part in ["serves with", "time:41,datacenter:5,worker:5,sequence:12", "worker 3", "relaxed"] {
        daemon.assert_logs(part);
    }
    let said = daemon.log();
    assert!(!said.contains('\u{1B}'), "colours where there is no terminal");
    assert!(daemon.stop().is_empty());
}

#[test]
fn interrupt_and_terminate_end_it_with_0() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut daemon = Setup::configured("[limits]\ndrain_timeout = \"30s\"\n").start();
        // Idle connections do not delay it.
        let mut idle = daemon.connect();
        idle.assert_open();
        daemon.signal(signal);
        assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
        idle.assert_closed();
    }
}

#[test]
fn a_signal_right_after_the_listening_line_stops_the_daemon() {
    for _ in 0..20 {
        Setup::new().start().stop();
    }
}

#[test]
fn a_second_signal_changes_no_exit_code() {
    let mut daemon = Setup::new().start();
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn the_state_directory_is_made_for_the_daemon_s_user_alone() {
    let setup = Setup::new();
    let state = setup.path("var/lib/snowbank");
    let daemon = setup.option("--state-dir", &state).start();
    assert_eq!(mode(&state), 0o700);
    daemon.stop();
    // An existing directory keeps its mode, which its owner chose.
    let setup = Setup::new();
    let state = setup.path("state");
    std::fs::create_dir(&state).expect("made");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o750)).expect("set");
    let daemon = setup.option("--state-dir", &state).start();
    assert_eq!(mode(&state), 0o750);
    daemon.stop();
}

#[test]
fn without_options_it_serves_twitter_ids_of_worker_0() {
    // If another daemon of this machine has the default port, the test ends here.
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
