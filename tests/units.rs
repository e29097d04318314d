//! The units under systemd/, as systemd reads them: without a complaint, hardened, and the template like the plain one.

#![cfg(feature = "daemon")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::manager::has_program;

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(unit(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A setting's value, as the last line that gives it has it.
fn setting(unit: &str, key: &str) -> String {
    let text = text(unit);
    let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.next_back().unwrap_or_else(|| panic!("{unit} has no {key}")).to_owned()
}

#[test]
fn systemd_finds_nothing_to_complain_about() {
    if !has_program("systemd-analyze", "systemd") {
        return;
    }
    let directory = support::directory();
    let mut names = Vec::new();
    for name in ["snowbank.service", "snowbank.socket", "snowbank@.service", "snowbank@.socket"] {
        // The program is not installed where this runs, and an instance stands for its template.
        let text = text(name).replace("/usr/bin/snowbank", env!("CARGO_BIN_EXE_snowbank"));
        let name = name.replace('@', "@instance");
        fs::write(directory.path().join(&name), text.replace("%i", "instance")).expect("written");
        names.push(directory.path().join(name));
    }
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&names).output();
    let output = output.expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    // Its exit code is 0 whatever it finds.
    assert_eq!(String::from_utf8_lossy(&said), "");
}

#[test]
fn the_services_are_hardly_exposed() {
    if !has_program("systemd-analyze", "systemd") {
        return;
    }
    for name in ["snowbank.service", "snowbank@.service"] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=yes", "--no-pager", "--threshold=15"]).arg(unit(name));
        let output = analyze.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: an exposure of 1.5 at most is allowed\n{said}");
    }
}

#[test]
fn the_template_is_the_service_but_for_its_names() {
    let settings = |name: &str| -> Vec<String> {
        let text = text(name);
        text.lines().filter(|line| line.contains('=') && !line.starts_with('#')).map(str::to_owned).collect()
    };
    let plain: Vec<String> = settings("snowbank.service")
        .into_iter()
        .flat_map(|line| match &*line {
            // An admin listener of its own, which the environment file can change.
            "EnvironmentFile=-/etc/default/snowbank" => {
                vec![
                    String::from("Environment=SNOWBANK_ADMIN=unix:/run/snowbank/%i/admin.sock"),
                    line + "-%i",
                ]
            }
            _ => vec![line],
        })
        .map(|line| match &*line {
            "Description=Snowbank, unique time-sortable IDs" => format!("{line} (%i)"),
            "StateDirectory=snowbank" | "RuntimeDirectory=snowbank" => format!("{line}/%i"),
            _ => line.replace("/etc/snowbank/snowbank.toml", "/etc/snowbank/%i.toml"),
        })
        .collect();
    assert_eq!(settings("snowbank@.service"), plain);
}

#[test]
fn the_units_fit_the_daemon() {
    for name in ["snowbank.service", "snowbank@.service"] {
        // Room for 50,000 connections and what the daemon needs for itself.
        let files: usize = setting(name, "LimitNOFILE").parse().expect("a number");
        assert!(files >= 50_000 + 2_000, "{files}");
        // The exit code of refusals that somebody has to mend, and no other.
        assert_eq!(setting(name, "RestartPreventExitStatus"), "2");
        // The locks of all daemons of the machine, where the daemon looks for them by default.
        assert_eq!(setting(name, "ReadWritePaths"), "-/run/lock/snowbank");
    }
    assert!(text("snowbank.tmpfiles").contains("\nd /run/lock/snowbank 1777 root root -\n"));
    // The daemon's default listener, so that a client finds either.
    assert_eq!(setting("snowbank.socket", "ListenStream"), "127.0.0.1:7660");
}
