//! How a reload is requested, and how its result is reported.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::support::daemon::replace;
use crate::support::http::finding;
use crate::support::program::{Said, program};

/// Runs `snowbank reload` for a process and its runtime directory, as `systemctl reload` does.
/// Returns the exit code and the standard error.
fn reload_by_command(id: u32, directory: &Path) -> (Option<i32>, String) {
    let mut command = program();
    command.arg("reload").env("MAINPID", id.to_string()).env("RUNTIME_DIRECTORY", directory);
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
    let (code, said) = reload_by_command(daemon.id(), &daemon.path("run"));
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
    assert_eq!(reload_by_command(daemon.id(), &daemon.path("run")), (Some(0), String::new()));
    assert_eq!((success(), found()), (1.0, None));
    assert!(get(&daemon, "/config").body.contains("limits.max_count = 3000\n"));
    assert!(sample(&scrape(&daemon), "snowbank_config_last_reload_timestamp_seconds") > 1.7e9);
    assert!(!daemon.path("run/reload.sock").exists());

    let other = crate::support::directory();
    let (code, said) = reload_by_command(daemon.id(), other.path());
    assert!(code == Some(2) && said.contains("reports no result in "), "{code:?}, {said}");
}

/// SIGHUP would end a process that does not catch the signal, so `reload` checks first whether the
/// process does.
#[test]
fn reload_sends_no_signal_to_other_programs() {
    let directory = crate::support::directory();
    let mut sleep = Command::new("sleep").arg("60").spawn().expect("the program runs");
    let (code, said) = reload_by_command(sleep.id(), directory.path());
    assert!(code == Some(2) && said.contains("does not catch SIGHUP"), "{code:?}, {said}");
    assert!(sleep.try_wait().expect("a status").is_none(), "the process has ended");
    sleep.kill().and_then(|()| sleep.wait()).expect("the process ends");
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
