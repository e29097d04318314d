//! The units under systemd/ as systemd reads them: without a warning, hardened, and the template
//! equal to the plain one. And the generator, which gives them the kernel's log on virtual
//! machines.

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

/// The units as they are installed, in their own directory, with the generator's output for a
/// virtual machine or without.
fn installed(with_kernel_log: bool) -> (TempDir, Vec<PathBuf>) {
    let directory = crate::support::directory();
    let mut paths = Vec::new();
    for name in ["snowbank.service", "snowbank.socket", "snowbank@.service", "snowbank@.socket"] {
        // The program is not installed here, and an instance stands for its template.
        let text = text(name).replace("/usr/bin/snowbank", env!("CARGO_BIN_EXE_snowbank"));
        let path = directory.path().join(name.replace('@', "@instance"));
        fs::write(&path, text.replace("%i", "instance")).expect("written");
        if with_kernel_log && name.ends_with(".service") {
            let drop_ins = path.with_extension("service.d");
            fs::create_dir(&drop_ins).expect("made");
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
        let output = output.expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        // Its exit code is 0 in any case.
        assert_eq!(String::from_utf8_lossy(&said), "");
        for path in paths.iter().filter(|path| path.extension() == Some("service".as_ref())) {
            let mut analyze = Command::new("systemd-analyze");
            analyze.args(["security", "--offline=yes", "--no-pager", "--threshold=15"]).arg(path);
            let output = analyze.output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stdout);
            let name = path.display();
            assert!(output.status.success(), "{name}: an exposure of 1.5 at most is allowed\n{said}");
        }
    }
}

/// A machine for the generator: its files, and programs that answer for it.
struct Seen {
    virtualization: &'static str,
    device: &'static str,
    has_log: bool,
    has_drop_in: bool,
}

impl Seen {
    /// Returns the files that the generator makes there.
    fn generated(&self) -> Vec<PathBuf> {
        let directory = crate::support::directory();
        let at = |name: &str| directory.path().join(name);
        let program = |name: &str, text: String| {
            fs::write(at(name), format!("#!/bin/sh\n{text}\n")).expect("written");
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).expect("it can be run");
        };
        program(
            "systemd-detect-virt",
            format!(
                "for kind; do :; done; case {} in *\"$kind\"*) ;; *) exit 1 ;; esac",
                self.virtualization
            ),
        );
        program("stat", format!("echo '{}'", self.device));
        if self.has_log {
            fs::write(at("kmsg"), "").expect("written");
        }
        if self.has_drop_in {
            fs::copy(unit("kernel-log.conf"), at("kernel-log.conf")).expect("copied");
        }
        let script = text("snowbank-generator")
            .replace("/dev/kmsg", &at("kmsg").to_string_lossy())
            .replace("/usr/lib/snowbank/", &format!("{}/", directory.path().display()));
        let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
        let [normal, early, late] = ["normal", "early", "late"].map(at);
        let output = Command::new("sh")
            .args(["-c", &script, "generator"])
            .args([&normal, &early, &late])
            .env("PATH", path)
            .output()
            .expect("there is a shell");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()), "");
        assert!(!early.exists() && !late.exists());
        let services = ["snowbank.service.d", "snowbank@.service.d"];
        let links = services.iter().map(|name| normal.join(name).join("10-kernel-log.conf"));
        let made: Vec<PathBuf> = links.filter_map(|link| fs::read_link(link).ok()).collect();
        assert!(made.iter().all(|target| *target == at("kernel-log.conf")), "{made:?}");
        assert!(!made.is_empty() || !normal.exists());
        made
    }
}

#[test]
fn the_generator_hands_over_the_kernels_log_on_vms_alone() {
    let machine = || Seen {
        virtualization: "--vm",
        device: "character special file:1:b",
        has_log: true,
        has_drop_in: true,
    };
    assert_eq!(machine().generated().len(), 2);
    let others = [
        ("hardware", Seen { virtualization: "none", ..machine() }),
        ("a container on hardware", Seen { virtualization: "--container", ..machine() }),
        ("a container in a virtual machine", Seen { virtualization: "--vm--container", ..machine() }),
        ("a pipe, as systemd-nspawn makes one", Seen { device: "fifo:0:0", ..machine() }),
        ("/dev/null", Seen { device: "character special file:1:3", ..machine() }),
        ("a log that cannot be opened", Seen { has_log: false, ..machine() }),
        ("a package that is half removed", Seen { has_drop_in: false, ..machine() }),
    ];
    for (name, seen) in others {
        assert!(seen.generated().is_empty(), "{name}");
    }
}

#[test]
fn the_template_equals_the_service_except_for_its_names() {
    let settings = |name: &str| -> Vec<String> {
        let text = text(name);
        text.lines().filter(|line| line.contains('=') && !line.starts_with('#')).map(str::to_owned).collect()
    };
    let plain: Vec<String> = settings("snowbank.service")
        .into_iter()
        .flat_map(|line| match &*line {
            // It has its own admin listener, which the environment file can change.
            "EnvironmentFile=-/etc/default/snowbank" => {
                vec![
                    String::from("Environment=SNOWBANK_ADMIN_LISTEN=unix:/run/snowbank/%i/admin.sock"),
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
    // Only the exit code of refusals that need an operator.
    assert!(text("snowbank.service").contains("\nRestartPreventExitStatus=2\n"));
    // Other users can neither write nor hold a lock, and no member of the group removes another's.
    assert!(text("snowbank.tmpfiles").contains("\nd /run/lock/snowbank 3770 root snowbank -\n"));
    // The daemon's default listener, so that a client finds either.
    assert!(text("snowbank.socket").contains("\nListenStream=127.0.0.1:7660\n"));
}
