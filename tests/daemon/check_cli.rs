//! `snowbank check`: where it finds the configuration, and which states it reports.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::file_system::FileSystem;
use crate::support::machine::Machine;
use crate::support::program::{Said, program};
use crate::support::{Ask, directory, lock_files};

/// Runs `snowbank check` in this directory.
fn check(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = program();
    command.arg("check").args(arguments).current_dir(directory);
    command.env("STATE_DIRECTORY", "").env("XDG_STATE_HOME", "/s");
    command
}

#[test]
fn check_takes_its_file_as_an_argument_or_an_option() {
    let directory = directory();
    let text = "shards = 2\n[[sources]]\nname = \"orders\"\nlayout = \"game\"\n";
    std::fs::write(directory.path().join("snowbank.toml"), text).expect("written");
    let path = "snowbank.toml";
    let variable = |name| Some(("SNOWBANK_CONFIG", name));
    for (arguments, variable) in [
        (&[path][..], None),
        (&["--config", path], None),
        (&[], variable(path)),
        (&[path], variable("other.toml")),
    ] {
        let out = Said::by(check(directory.path(), arguments).envs(variable)).printed();
        // In a container `check` warns of the locks.
        let (out, heading) = match out.split_once("warning: this daemon runs in a container, ") {
            Some((out, _)) => (out, "snowbank.toml: no mistakes, 1 warning"),
            None => (&*out, "snowbank.toml: no mistakes"),
        };
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], heading);
        assert!(lines[1].starts_with("listens on 127.0.0.1:7660; 2 shards, "), "{out}");
        assert_eq!(lines[3..], ["state in /s/snowbank (by $XDG_STATE_HOME)"]);
    }
    let said = Said::by(&mut check(directory.path(), &[path, "--config", "other.toml"])).refusal(2);
    assert!(said.contains("found two configurations, snowbank.toml and --config other.toml"), "{said}");
}

/// The configuration of a packaged service is known by its directory, however its path is written.
#[test]
fn check_knows_the_configuration_of_a_unit_by_a_relative_path() {
    let places = [("/etc/snowbank", "ids.toml"), ("/etc", "snowbank/ids.toml")];
    for (from, path) in places {
        let script = format!(
            "mount -t tmpfs none /etc && mkdir /etc/snowbank && echo 'state_dir = \"/data\"' > /etc/snowbank/ids.toml && cd {from} \
             && exec \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", &script, "sh"]);
        command.arg(program().get_program()).args(["check", path]);
        let said = Said::by(&mut command);
        if said.err.contains("unshare") || said.err.contains("mount") {
            return crate::support::skip("this user cannot mount a file system in a namespace");
        }
        let out = said.printed();
        assert!(out.contains("the packaged unit does not let the daemon write /data"), "{out}");
        assert!(out.contains("admin on unix:/run/snowbank/ids/admin.sock"), "{out}");
    }
}

#[test]
fn check_without_a_file_checks_the_options() {
    let directory = directory();
    let options = ["--listen", "127.0.0.1:7661, [::1]:7661", "--worker-id", "2"];
    let out = Said::by(&mut check(directory.path(), &options)).printed();
    assert!(out.starts_with("the options and variables: no mistakes"), "{out}");
    assert!(out.contains("listens on 127.0.0.1:7661, [::1]:7661; ") && out.contains("worker 2, "), "{out}");
    let said = Said::by(&mut check(directory.path(), &["--worker-id", "x"]));
    assert!(said.code == Some(1) && said.out.contains("--worker-id: "), "{said:?}");
}

#[test]
fn an_unreadable_file_is_refused() {
    let directory = directory();
    std::fs::write(directory.path().join("snowbank.toml"), b"shards = 1\n# \xff\n").expect("written");
    // `check` refuses a pipe instead of waiting for a writer.
    assert!(Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap().success());
    for (arguments, said) in [
        (&["--config", "missing.toml"][..], "cannot read missing.toml: No such file or directory"),
        (&["--config", "."], "cannot read .: Is a directory"),
        (&["--config", "snowbank.toml"], "cannot read snowbank.toml: found bytes that are not UTF-8"),
        (&["--config", "pipe"], "cannot read pipe: it is a pipe"),
    ] {
        let line = Said::by(&mut check(directory.path(), arguments)).refusal(2);
        assert!(line.contains(said), "{line}");
    }
}

/// The configuration of a fleet. Nothing needs to listen at the endpoint: `check` does not connect.
const FLEET: &str = "[fleet]\ncoordinator = \"etcd\"\nendpoints = [\"http://127.0.0.1:1\"]\n";

/// Returns the result of `check` on this machine's state.
fn checked(machine: &Machine, toml: &str, options: &[&str]) -> Said {
    let file = machine.path("snowbank.toml");
    std::fs::write(&file, toml).unwrap();
    machine.run(&[&["check", file.to_str().unwrap()], options].concat())
}

#[track_caller]
fn assert_accepted(machine: &Machine, toml: &str, options: &[&str]) {
    let said = checked(machine, toml, options);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[track_caller]
fn assert_refused(machine: &Machine, toml: &str, words: &str) {
    let Said { code, out, err } = checked(machine, toml, &[]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains(words) && err.contains("`serve` refuses the state"), "{out}{err}");
}

/// Checks most states twice: `serve` refuses the state with some settings, and starts with others.
#[test]
fn check_reports_states_that_serve_refuses() {
    let machine = Machine::new();
    let tickets = "[[sources]]\nname = \"default\"\n[[sources]]\nname = \"bills\"\nkind = \"ticket\"\n";
    assert_accepted(&machine, "", &[]);
    assert_refused(&machine, tickets, "no record of its counter");
    let mut daemon = machine.start("");
    let running = machine.back_up();
    assert_accepted(&machine, "", &[]);
    machine.draw_past_a_raise(&daemon);
    daemon.kill();
    assert_accepted(&machine, "", &[]);
    assert_refused(&machine, tickets, "no record of its counter");
    assert_refused(
        &machine,
        "layout = \"time:41,worker:10,sequence:12;tick=1ms;epoch=2020-01-01T00:00:00Z\"\n",
        "it gets there at ",
    );
    let newest = machine.back_up();
    machine.restore(&running);
    assert_refused(&machine, "", "is older than the one that served");
    assert_accepted(&machine, "", &["--adopt-state"]);
    // In a fleet, an older copy is accepted, because the coordinator stores the bound above which
    // the source continues.
    assert_accepted(&machine, &format!("worker_ids = 0\n{FLEET}"), &[]);
    machine.restore(&newest);
    if crate::support::has_machine_id() {
        machine.edit(|record| record["machine"] = "0123456789abcdef0123456789abcdef".into());
        assert_refused(&machine, "", "another machine's");
        assert_accepted(&machine, "", &["--adopt-state"]);
        machine.restore(&newest);
    }
    let lock = lock_files(&machine.path("locks")).remove(0);
    let marked = std::fs::read_to_string(&lock).unwrap();
    std::fs::write(&lock, marked.replace("granted", "grunted")).unwrap();
    assert_refused(&machine, "", "has no readable mark");
    std::fs::write(&lock, marked).unwrap();
    machine.run(&["state", "export", "--output", machine.path("export").to_str().unwrap()]).printed();
    assert_refused(&machine, "", "`snowbank state export` moved");
    // The worker IDs of the source are unknown, but `check` can still check the counter.
    let unknown = "[[sources]]\nname = \"default\"\nworker_id_from = \"file:/missing\"\n";
    assert_accepted(&machine, unknown, &[]);
    let beside = "[[sources]]\nname = \"bills\"\nkind = \"ticket\"\n";
    assert_refused(&machine, &format!("{unknown}{beside}"), "no record of its counter");
    machine.restore(b"not a state");
    assert_refused(&machine, "", "is corrupt");
}

#[test]
fn check_warns_of_identities_that_no_client_can_have() {
    let machine = Machine::new();
    std::fs::write(machine.path("tokens"), "a: 0123456789abcdef\n").unwrap();
    let identity = |name| format!("[[identities]]\nname = \"{name}\"\n");
    let toml =
        ["[auth]\ntoken_file = \"tokens\"\n", &["a", "b", "anonymous"].map(identity).concat()].concat();
    let said = checked(&machine, &toml, &[]);
    assert!(said.out.contains("no mistakes, ") && said.out.contains("have the identity \"b\""), "{said:?}");
    assert!(!said.out.contains("identity \"a\"") && !said.out.contains("\"anonymous\""), "{said:?}");
    let said = checked(&machine, &identity("a"), &[]);
    assert!(said.out.contains("have the identity \"a\""), "{said:?}");
}

#[test]
fn check_warns_if_no_client_can_draw() {
    let machine = Machine::new();
    let nobody = "[[identities]]\nname = \"anonymous\"\nsources = []\n";
    let warns = |toml: &str| {
        let out = checked(&machine, toml, &["--worker-id", "1"]).printed();
        assert!(!out.contains("can draw IDs"), "{out}");
        out.contains("warning: no client can draw an ID: ")
    };
    assert!(warns(&format!("listen = \"0.0.0.0:7660\"\n{nobody}")));
    // No client can have this identity.
    assert!(warns(&format!("{nobody}[[identities]]\nname = \"a\"\n")));
    std::fs::write(machine.path("tokens"), "a: 0123456789abcdef\n").unwrap();
    let tokens = "[auth]\ntoken_file = \"tokens\"\n[[identities]]\nname = \"a\"\n";
    assert!(!warns(&format!("{tokens}{nobody}")));
    assert!(warns(&format!("{tokens}sources = []\n{nobody}")));
    let daemon = machine.setup(nobody).start();
    daemon.assert_logs("no client can draw an ID");
}

/// A shell runs the command as it stands, in any directory.
#[test]
fn the_cure_for_a_new_counter_works_as_it_is_written() {
    let directory = directory();
    let app = directory.path().join("my app");
    fs::create_dir(&app).expect("made");
    let toml = "state_dir = \"it's state\"\nlock_dir = \"my locks\"\n[[sources]]\nname = \"inv\"\nkind = \"ticket\"\n";
    fs::write(app.join("c.toml"), toml).expect("written");
    let said = Said::by(&mut check(directory.path(), &["my app/c.toml"]));
    assert_eq!(said.code, Some(1), "{said:?}");
    let command = said.out.split('`').find(|text| text.starts_with("snowbank ticket set ")).expect("a cure");
    let command = command.replacen("VALUE", "7", 1).replacen("snowbank", "\"$0\"", 1);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(&command).arg(program().get_program()).current_dir("/");
    Said::by(&mut shell).printed();
    Said::by(&mut check(directory.path(), &["my app/c.toml"])).printed();
    assert!(app.join("my locks").is_dir() && app.join("it's state").is_dir());
}

#[test]
fn check_reports_counters_that_serve_refuses() {
    let orders = |kind, more| format!("[[sources]]\nname = \"orders\"\nkind = \"{kind}\"\n{more}");
    let alone = orders("ticket", "");
    let machine = Machine::new();
    machine.run(&["ticket", "set", "orders", "9000"]).printed();
    assert_accepted(&machine, &alone, &[]);
    assert_refused(&machine, &orders("ticket", "maximum = 500\n"), "found maximum 500, allowed: from 9000");
    let set = machine.back_up();
    let daemon = machine.start(&alone);
    daemon.connect().next_once_granted(Ask::of(12_000));
    daemon.stop();
    machine.restore(&set);
    assert_refused(&machine, &alone, "is older than the one that served");
    assert_accepted(&machine, &orders("fleet-ticket", FLEET), &[]);
}

#[test]
fn check_warns_of_addresses_and_directories_that_a_start_cannot_use() {
    let machine = Machine::new();
    let file = machine.path("file");
    std::fs::write(&file, "").expect("written");
    let unix = |path: &Path| format!("listen = \"unix:{}\"\n", path.display());
    let open = machine.path("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("allowed");
    let below = file.join("below");
    let long = format!("/tmp/{}", "d".repeat(256));
    let [file_text, below, open] = [&file, &below, &open].map(|path| path.to_str().expect("text"));
    for (toml, options, words) in [
        ("worker_ids = 1\nlisten = \"192.0.2.7:7660\"\n".to_owned(), &[][..], "does not have that address"),
        (unix(&machine.path("none/socket")), &[], "its directory must exist"),
        (unix(&file), &[], "a file that is no socket is there"),
        (
            "worker_ids = 1\nlisten = \"nohost.invalid:7660\"\n".to_owned(),
            &[],
            "cannot resolve nohost.invalid",
        ),
        (
            "worker_ids = 1\nlisten = \"[fe80::1%nope]:7660\"\n".to_owned(),
            &[],
            "cannot resolve [fe80::1%nope]",
        ),
        (unix(Path::new("/proc/x.sock")), &[], "/proc shows the kernel's own data"),
        (String::new(), &["--state-dir", "/proc/x"], "/proc shows the kernel's own data"),
        (String::new(), &["--lock-dir", "/proc"], "/proc shows the kernel's own data"),
        (String::new(), &["--state-dir", &long], "choose a shorter name"),
        (String::new(), &["--lock-dir", file_text], "cannot lock worker IDs at"),
        (String::new(), &["--lock-dir", below], "file is not a directory"),
        (String::new(), &["--lock-dir", open], "and so replace the lock directory"),
        (String::new(), &["--state-dir", file_text], "cannot use the state directory"),
        (String::new(), &["--state-dir", below], "file is not a directory"),
        (String::new(), &["--state-dir", open], "and so replace the state in"),
    ] {
        let printed = checked(&machine, &toml, options).printed();
        assert!(printed.contains("`serve` would not start on this machine now: "), "{printed}");
        assert!(printed.contains(words), "{printed}");
    }
    let here = checked(&machine, &unix(&machine.path("socket")), &[]).printed();
    assert!(!here.contains("would not start") && !here.contains("every user can write"), "{here}");
    for socket in ["socket", "below/socket"] {
        let replaceable = unix(&Path::new(open).join(socket));
        let printed = checked(&machine, &replaceable, &[]).printed();
        assert!(printed.contains("in the place of the socket"), "{printed}");
    }
}

/// Runs `check` with the permissions of an ordinary user: root may write everywhere.
fn without_privileges(machine: &Machine, options: &[&str]) -> Said {
    let file = machine.path("snowbank.toml");
    fs::write(&file, "").expect("written");
    let snowbank = program().get_program().to_owned();
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(&snowbank);
    if !rustix::process::getuid().is_root() {
        command = Command::new(&snowbank);
    }
    // Not the state of who runs the tests.
    command.env("XDG_STATE_HOME", machine.path("home"));
    Said::by(command.arg("check").arg(file).args(options))
}

#[test]
fn check_warns_of_a_port_and_a_socket_that_this_user_cannot_have() {
    let machine = Machine::new();
    let closed = machine.path("closed");
    fs::create_dir(&closed).expect("made");
    fs::set_permissions(&closed, Permissions::from_mode(0o500)).expect("closed");
    let socket = format!("unix:{}", closed.join("s").display());
    let privileged = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let has_low_ports = privileged.is_ok_and(|first| first.trim() != "0");
    for (address, words) in [(&*socket, "must exist and be writable"), ("127.0.0.1:81", "need privileges")] {
        if address == socket || has_low_ports {
            let printed = without_privileges(&machine, &["--listen", address]).printed();
            assert!(printed.contains(words), "{printed}");
        }
    }
}

/// The reason is that of the start (`exit_codes`).
#[test]
fn check_warns_of_a_state_directory_that_is_a_file() {
    let machine = Machine::new();
    let file = machine.path("file");
    fs::write(&file, "").expect("written");
    let printed = without_privileges(&machine, &["--state-dir", file.to_str().expect("text")]).printed();
    assert!(printed.contains("file is not a directory; allowed: a directory, or a path"), "{printed}");
}

#[test]
fn check_warns_of_directories_that_this_user_cannot_write() {
    let machine = Machine::new();
    let closed = machine.path("closed");
    fs::create_dir(&closed).expect("made");
    fs::set_permissions(&closed, Permissions::from_mode(0o500)).expect("closed");
    let mut cases = vec![(closed.clone(), "Permission denied"), (closed.join("below"), "Permission denied")];
    let disk = FileSystem::mount_as("tmpfs");
    if let Some(disk) = &disk {
        disk.make_read_only();
        cases.extend([disk.point(), disk.point().join("below")].map(|path| (path, "Read-only file system")));
    }
    for (path, reason) in &cases {
        let path = path.to_str().expect("text");
        for (option, cannot) in [
            ("--state-dir", "cannot create the state directory"),
            ("--lock-dir", "cannot lock worker IDs at"),
        ] {
            let printed = without_privileges(&machine, &[option, path]).printed();
            let warning =
                printed.lines().find(|line| line.contains("`serve` would not start on this machine now: "));
            let warning = warning.unwrap_or_else(|| panic!("{option} {path}: {printed}"));
            assert!([cannot, path, reason].iter().all(|part| warning.contains(part)), "{warning}");
        }
    }
}
