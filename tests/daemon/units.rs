//! The units under systemd/: systemd reads them without a warning and rates them as hardened, and
//! the template equals the plain unit. The generator passes the kernel's log to the units on
//! virtual machines only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::has_program;
use tempfile::TempDir;

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(unit(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Copies the units into a new directory, with or without the drop-in that the generator links on a
/// virtual machine.
fn installed(with_kernel_log: bool) -> (TempDir, Vec<PathBuf>) {
    let directory = crate::support::directory();
    let mut paths = Vec::new();
    for name in ["snowbank.service", "snowbank.socket", "snowbank@.service", "snowbank@.socket"] {
        // Makes an instance of each template. Replaces the path of the program, because the program
        // is not installed here.
        let text = text(name).replace("/usr/bin/snowbank", env!("CARGO_BIN_EXE_snowbank"));
        let path = directory.path().join(name.replace('@', "@instance"));
        fs::write(&path, text.replace("%i", "instance")).expect("written");
        if with_kernel_log && name.ends_with(".service") {
            let drop_ins = path.with_extension("service.d");
            fs::create_dir(&drop_ins).expect("mkdir");
            fs::copy(unit("kernel-log.conf"), drop_ins.join("10-kernel-log.conf")).expect("copied");
        }
        paths.push(path);
    }
    (directory, paths)
}

#[test]
fn systemd_finds_no_fault_and_rates_the_services_as_hardened() {
    if !has_program("systemd-analyze", "systemd") {
        return;
    }
    for with_kernel_log in [false, true] {
        let (_directory, paths) = installed(with_kernel_log);
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output();
        let output = output.expect("the program runs");
        let said = [output.stdout, output.stderr].concat();
        // The exit code of `verify` is 0 even after warnings.
        assert_eq!(String::from_utf8_lossy(&said), "");
        for path in paths.iter().filter(|path| path.extension() == Some("service".as_ref())) {
            let mut analyze = Command::new("systemd-analyze");
            analyze.args(["security", "--offline=yes", "--no-pager", "--threshold=15"]).arg(path);
            let output = analyze.output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stdout);
            let name = path.display();
            assert!(output.status.success(), "{name}: found an exposure above 1.5\n{said}");
        }
    }
}

/// Returns the number of links that the generator makes on a machine. `kinds` are the options with
/// which systemd-detect-virt succeeds there, and `kmsg` is what `stat` prints of /dev/kmsg. The
/// file `missing` is removed before the generator runs.
fn links_made(kinds: &str, kmsg: &str, missing: &str) -> usize {
    let directory = crate::support::directory();
    let at = |name: &str| directory.path().join(name);
    let program = |name: &str, text: &str| {
        fs::write(at(name), format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("it can be run");
    };
    let detect = format!("for kind; do :; done; case {kinds} in *\"$kind\"*) ;; *) exit 1 ;; esac");
    program("systemd-detect-virt", &detect);
    program("stat", &format!("echo '{kmsg}'"));
    fs::write(at("kmsg"), "").expect("written");
    fs::copy(unit("kernel-log.conf"), at("kernel-log.conf")).expect("copied");
    if !missing.is_empty() {
        fs::remove_file(at(missing)).expect("removed");
    }
    let script = text("snowbank-generator")
        .replace("/dev/kmsg", &at("kmsg").to_string_lossy())
        .replace("/usr/lib/snowbank/", &format!("{}/", directory.path().display()));
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut generator = Command::new("sh");
    generator.args(["-c", &script, "generator"]).arg(at("normal")).env("PATH", path);
    let output = generator.output().expect("there is a shell");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let services = ["snowbank.service.d", "snowbank@.service.d"];
    let links = services.map(|name| at("normal").join(name).join("10-kernel-log.conf"));
    links
        .iter()
        .filter(|link| fs::read_link(link).is_ok_and(|target| target == at("kernel-log.conf")))
        .count()
}

#[test]
fn the_generator_hands_over_the_kernels_log_on_vms_alone() {
    const LOG: &str = "character special file:1:b";
    for (machine, kinds, kmsg, missing, expected) in [
        ("a virtual machine", "--vm", LOG, "", 2),
        ("hardware", "none", LOG, "", 0),
        ("a container in a virtual machine", "--vm--container", LOG, "", 0),
        ("a pipe, as systemd-nspawn makes one", "--vm", "fifo:0:0", "", 0),
        ("/dev/null", "--vm", "character special file:1:3", "", 0),
        ("a log that cannot be opened", "--vm", LOG, "kmsg", 0),
        ("a package that is half removed", "--vm", LOG, "kernel-log.conf", 0),
    ] {
        assert_eq!(links_made(kinds, kmsg, missing), expected, "{machine}");
    }
}

#[test]
fn the_template_equals_the_service_except_for_its_names() {
    let settings = |name: &str| {
        let text = text(name);
        let lines = text.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
        lines.fold(String::new(), |settings, line| settings + line + "\n")
    };
    let expected = settings("snowbank.service")
        .replace("unique time-sortable IDs\n", "unique time-sortable IDs (%i)\n")
        .replace("StateDirectory=snowbank\n", "StateDirectory=snowbank/%i\n")
        .replace("RuntimeDirectory=snowbank\n", "RuntimeDirectory=snowbank/%i\n")
        .replace("/etc/snowbank/snowbank.toml", "/etc/snowbank/%i.toml")
        // Each instance has its own admin listener. The environment file can replace the address of
        // this listener.
        .replace(
            "EnvironmentFile=-/etc/default/snowbank\n",
            "Environment=SNOWBANK_ADMIN_LISTEN=unix:/run/snowbank/%i/admin.sock\n\
             EnvironmentFile=-/etc/default/snowbank-%i\n",
        );
    assert_eq!(settings("snowbank@.service"), expected);
}

#[test]
fn the_units_match_the_daemons_exit_codes_and_paths() {
    // systemd restarts a daemon that failed, except after the exit code that needs an operator.
    for line in ["RestartPreventExitStatus=2", "Restart=on-failure", "RestartSec=3s"] {
        assert!(text("snowbank.service").contains(&format!("\n{line}\n")), "{line}");
    }
    // With this mode other users can neither write nor hold a lock, and no member of the group can
    // remove another member's lock.
    assert!(text("snowbank.tmpfiles").contains("\nd /run/lock/snowbank 3770 root snowbank -\n"));
    // The socket has the address of the daemon's default listener.
    assert!(text("snowbank.socket").contains("\nListenStream=127.0.0.1:7660\n"));
}
