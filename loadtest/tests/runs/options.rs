//! Bad input leads to one line and exit code 2. A run that cannot start does not change the files.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;

use crate::support::scripted::{listener, sound_target, target};
use crate::support::{THOUSAND, command, loadtest};

/// Starts a server that sends these words on each connection, and keeps the connection open.
fn greeting(words: &'static [u8]) -> String {
    let open = Mutex::new(Vec::new());
    listener(move |mut stream| {
        // This fails if the client has closed the connection.
        let _ = stream.write_all(words);
        open.lock().expect("no panic").push(stream);
    })
}

/// Starts a load test with each of these options. Each leads to one line on standard error with the
/// reason, nothing on standard output, and exit code 2, before any load.
fn assert_refused(cases: &[(&str, &str)]) {
    for (options, reason) in cases {
        loadtest(options).assert_refused(2, reason);
    }
}

#[test]
fn bad_options_are_refused_in_one_line() {
    assert_refused(&[
        // Values that the option does not accept.
        ("--rate 0", "a rate is IDs per second above 0"),
        ("--for -5s", "a time is above 0"),
        ("--errors 100%", "a share is above 0%"),
        ("--batch 0", "0 is not in"),
        ("--address nowhere", "not an address"),
        ("--no-such-option", "unexpected argument"),
        // Options that contradict each other.
        ("--depth 4", "--closed"),
        ("--closed --poisson", "cannot be used with"),
        ("--threads 9", "found --connections 8, allowed: 9 or more"),
        (
            "--address=127.0.0.1:1 --address=127.0.0.1:2 --connections 3",
            "found --connections 3, allowed: 4 or more: each of 2 threads",
        ),
        ("--resp --http", "cannot be used with"),
        ("--info 127.0.0.1:1 --address 127.0.0.1:2", "required"),
        ("--http --address 127.0.0.1:1 --info=127.0.0.1:2 --info=127.0.0.1:3", "one --info for each"),
        ("--memcached --address 127.0.0.1:1 --token-file /dev/null", "cannot be used with"),
        ("--kill-daemon-at 1s --address 127.0.0.1:1", "cannot be used with"),
        ("--restart-daemon-at 1s --kill-daemon-at 1s", "cannot be used with"),
        ("--restart-daemon-at 10s", "allowed: within the measurement, --for 10s"),
        ("--token-file /nonexistent/file", "--address"),
        // Options and values that `sweep` does not accept.
        ("sweep --limit -1", "a rate is IDs per second above 0"),
        ("sweep --rate 5", "unexpected argument"),
    ]);
}

/// There is no target, or the target is not Snowbank.
#[test]
fn bad_targets_are_refused_in_one_line() {
    const NEXT_VERSION: &str = r#"{"protocol":2,"max_count":5,"sources":[]}"#;
    let ssh = greeting(b"SSH-2.0-server\r\n");
    let silent = greeting(b"");
    let closes = listener(drop);
    let home = tempfile::tempdir().expect("a directory");
    let full = home.path().join("socket");
    let stopped = UnixListener::bind(&full).expect("a socket");
    rustix::net::listen(&stopped, 0).expect("a queue of one connection");
    let _queued = UnixStream::connect(&full).expect("queued");
    let full = full.display();
    let http = listener(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let next_version = target(NEXT_VERSION, |_, _, _, _, _| true);
    let next_version = next_version.name();
    assert_refused(&[
        ("--address 127.0.0.1:1", "cannot connect"),
        ("--address unix:/nonexistent/socket", "cannot connect"),
        (&format!("--address unix:{full}"), "its queue of new connections stayed full"),
        (&format!("--address {ssh}"), "does not speak snowbank's protocol, version 1"),
        (&format!("--address {ssh} --http"), "SSH-2.0-server"),
        (&format!("--address {ssh} --resp"), "SSH-2.0-server"),
        (&format!("--address {ssh} --memcached"), "SSH-2.0-server"),
        (&format!("--address {http}"), "does not speak snowbank's protocol"),
        (&format!("--address {closes}"), "closed the connection"),
        (&format!("--address {silent}"), "did not answer within 5s"),
        (&format!("--address {next_version}"), "the daemon speaks protocol version 2"),
        (&format!("sweep --address {next_version}"), "the daemon speaks protocol version 2"),
    ]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    let target = sound_target();
    let sound = target.name();
    assert_refused(&[
        (&format!("--address {sound} --html /nonexistent/file"), "cannot write /nonexistent/file"),
        (&format!("--address {sound} --csv /nonexistent/file"), "cannot write /nonexistent/file"),
        (&format!("--address {sound} --hlog /nonexistent/file"), "cannot write /nonexistent/file"),
        (&format!("sweep --address {sound} --html /nonexistent/file"), "cannot write /nonexistent/file"),
    ]);
}

#[test]
fn json_goes_to_standard_output_on_demand() {
    let target = sound_target();
    let address = target.name();
    let ran = command(&format!("{THOUSAND} --address {address} --json -"));
    let run: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!(run["kind"], "run");
    assert!(ran.stderr.contains("requests 1,000, answered 1,000"), "{ran:?}");
}

#[test]
fn a_run_that_cannot_start_keeps_the_last_runs_figures() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("figures.json");
    std::fs::write(&file, "figures").expect("a file");
    for command in ["", "sweep"] {
        // Nothing listens on port 1 of the loopback address.
        let ran = loadtest(&format!("{command} --address 127.0.0.1:1 --json {}", file.display()));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("the file"), "figures");
    }
}

/// `docs/stability.md` promises them.
#[test]
fn the_options_of_0_1_0_are_known() {
    let names = include_str!("../../../tests/stability/0.1.0/names.txt");
    let kept: Vec<&str> = names.lines().filter_map(|line| line.strip_prefix("loadtest ")).collect();
    assert_eq!(kept.len(), 4, "{kept:?}");
    for kept in kept {
        let (subcommand, options) = kept.split_once(": ").expect("a command");
        let help = match subcommand {
            "run" => command("--help"),
            subcommand => command(&format!("{subcommand} --help")),
        };
        let shown: Vec<&str> = help.stdout.split_whitespace().collect();
        for option in options.split(' ') {
            assert!(shown.contains(&option), "{subcommand} {option}");
        }
    }
}
