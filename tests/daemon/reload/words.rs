//! How a reload is requested, and how its result is reported.

use std::os::unix::net::UnixListener;
use std::path::Path;

use super::*;
use crate::support::daemon::{mode, replace};
use crate::support::http::finding;
use crate::support::program::{Said, program};

/// Runs `snowbank reload` for a runtime directory, as `systemctl reload` does. Returns the exit code
/// and the standard error.
fn reload_by_command(directory: &Path) -> (Option<i32>, String) {
    let mut command = program();
    command.arg("reload").env("RUNTIME_DIRECTORY", directory);
    let Said { code, err, .. } = Said::by(&mut command);
    (code, err)
}

#[test]
fn the_result_of_a_reload_shows_in_exit_code_status_and_metrics() {
    let setup = Setup::configured("limits.max_count = 1000");
    std::fs::create_dir(setup.path("run")).expect("a runtime directory");
    let run = setup.path("run");
    let daemon = setup.env("RUNTIME_DIRECTORY", run).admin().start();
    let success = || sample(&scrape(&daemon), "snowbank_config_last_reload_successful");
    let found = || Some(finding(&daemon, "reload")?["message"].as_str().expect("a text").to_owned());
    assert_eq!((success(), found()), (1.0, None));
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 1000\n"));

    daemon.replace("snowbank.toml", "shards = 7\nlimits.max_count = 2000");
    let (code, said) = reload_by_command(&daemon.path("run"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the reload was refused: ") && said.contains("shards: found 7"), "{said}");
    assert_eq!(success(), 0.0);
    assert!(
        found().is_some_and(|found| found.contains("was refused: ") && found.contains("shards: found 7"))
    );
    assert_eq!(get(&daemon, "/readyz").code, 200, "a refused reload leaves the daemon ready");
    assert!(
        get(&daemon, "/config").body.contains("limits.max_count = 1000\n"),
        "/config does not show the live settings"
    );

    daemon.replace("snowbank.toml", "limits.max_count = 3000");
    assert_eq!(reload_by_command(&daemon.path("run")), (Some(0), String::new()));
    assert_eq!((success(), found()), (1.0, None));
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 3000\n"));
    assert!(sample(&scrape(&daemon), "snowbank_config_last_reload_timestamp_seconds") > 1.7e9);
    assert_eq!(mode(&daemon.path("run/reload.sock")), 0o600);
}

#[test]
fn all_who_ask_for_a_reload_get_a_result() {
    let setup = Setup::configured("limits.max_count = 1000");
    std::fs::create_dir(setup.path("run")).expect("a runtime directory");
    let run = setup.path("run");
    // A daemon that was killed leaves such a socket behind.
    drop(UnixListener::bind(run.join("reload.sock")).expect("a socket"));
    let mut daemon = setup.env("RUNTIME_DIRECTORY", &run).start();
    let run = daemon.path("run");
    daemon.replace("snowbank.toml", "limits.max_count = 2000");
    let askers: Vec<_> = (0..10)
        .map(|_| {
            let run = run.clone();
            std::thread::spawn(move || reload_by_command(&run))
        })
        .collect();
    for asker in askers {
        assert_eq!(asker.join().expect("no panic"), (Some(0), String::new()));
    }
    assert_eq!(daemon.connect().next(Ask::of(2_000)).id_count(), Some(2_000));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    let (code, said) = reload_by_command(&run);
    assert!(code == Some(2) && said.contains("cannot ask a daemon at "), "{code:?}, {said}");
    assert!(!run.join("reload.sock").exists());
}

#[test]
fn a_runtime_directory_that_another_daemon_has_is_a_warning() {
    let setup = Setup::configured("limits.max_count = 1000");
    std::fs::create_dir(setup.path("run")).expect("a runtime directory");
    let run = setup.path("run");
    let first = setup.env("RUNTIME_DIRECTORY", &run).start();
    let second = Setup::new().env("RUNTIME_DIRECTORY", first.path("run")).start();
    second.assert_logs("`snowbank reload` does not reach this daemon: ");
    assert_eq!(reload_by_command(&first.path("run")), (Some(0), String::new()));
    first.assert_logs("reloaded: ");
}

#[test]
fn reload_outside_of_a_unit_says_how_other_daemons_reload() {
    let line = Said::by(program().arg("reload").env_remove("RUNTIME_DIRECTORY")).refusal(2);
    assert!(line.contains("`systemctl reload`") && line.contains("`kill -HUP PID`"), "{line}");
}

#[test]
fn options_still_override_a_reloaded_file() {
    let setup = Setup::configured("shards = 1\nworker_ids = 9\n").option("--worker-id", "3");
    let daemon = setup.env("SNOWBANK_SHARDS", "2").start();
    assert_reloaded(&daemon, "shards = 5\nworker_ids = 8\nlisten = \"127.0.0.1:1\"", &["nothing changed"]);
    assert_eq!(twitter_worker(daemon.draw_one()), 3);
    let two = format!("{}{}", source("default", 3), source("other", 4));
    daemon.replace("snowbank.toml", &two);
    let log = daemon.reload();
    assert_eq!(log.matches("reload refused: ").count(), 1, "{log}");
    assert!(log.contains("--worker-id: found 2 [[sources]] in the file, allowed: one"), "{log}");
    assert!(log.contains("nothing was reloaded"), "{log}");
}

#[test]
fn a_reload_without_a_file_logs_that_there_is_none() {
    let daemon = Setup::new().start();
    let said = daemon.reload();
    assert!(said.contains("without a configuration file") && said.contains("nothing changed"), "{said}");
    daemon.connect().next(Ask::of(1)).ids();
}

#[test]
fn sighup_never_ends_the_daemon_and_the_last_sighup_counts() {
    let toml = |count: usize| {
        format!("[limits]\ndrain_timeout = \"30s\"\nmax_count = {count}\n{}", source("slow", 1))
    };
    let setup = Setup::configured(&toml(1));
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    disk.order("sync stall 300");
    let mut daemon = {
        let setup = disk.under(setup);
        let path = setup.path("snowbank.toml");
        // Sends SIGHUP during the start, to the process that the lock file names.
        let state = setup.path("state");
        let hang_up = std::thread::spawn(move || {
            let file = state.join("lock");
            let holder = poll("a daemon that starts", || {
                let text = std::fs::read_to_string(&file).ok()?;
                text.split_whitespace()
                    .find_map(|word| word.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok())
            });
            replace(&path, &toml(2));
            let pid = rustix::process::Pid::from_raw(holder).expect("a process");
            rustix::process::kill_process(pid, Signal::HUP).expect("the daemon runs");
        });
        let daemon = setup.start();
        hang_up.join().expect("no panic");
        daemon
    };
    daemon.assert_logs("limits.max_count: 1 -> 2");
    disk.works();
    for round in 3..50 {
        daemon.replace("snowbank.toml", &toml(round));
        daemon.signal(Signal::HUP);
    }
    let mut wire = daemon.connect();
    poll("the last configuration", || wire.next(Ask::of(49)).id_count());
    // Sends SIGHUP during the stop.
    wire.send(&Ask::of(1_000).bytes());
    wire.reply().assert_error(0, BAD_COUNT);
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::HUP);
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
}
