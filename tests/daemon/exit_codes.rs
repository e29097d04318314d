//! Exit codes of a failed start: 2 if an operator must change something, 3 if the cause may pass by
//! itself. Each test belongs to a cause under "Exit codes" in docs/operations.md.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Setup, lock_files};

/// The layout `twitter` with an epoch that is years in the future.
const FUTURE: &str = "time:41,datacenter:5,worker:5,sequence:12;epoch=2999-01-01T00:00:00Z";

#[test]
fn a_future_epoch_exits_with_3_unless_there_are_other_mistakes() {
    let parts = ["2999-01-01", "epoch", "or the clock is wrong"];
    Setup::new().args(["--layout", FUTURE]).end().assert_refusal_for_now(&parts);
    Setup::new().config(&format!("layout = \"{FUTURE}\"")).end().assert_refusal_for_now(&parts);
    Setup::new().env("SNOWBANK_LAYOUT", FUTURE).end().assert_refusal_for_now(&parts);
    let ended = Setup::new().config(&format!("layout = \"{FUTURE}\"\nany_key = \"nosuch\"")).end();
    ended.assert_refusal(&["1 more mistake"]);
}

fn make_file(path: &Path) {
    fs::write(path, "").expect("written");
}

fn make_directory(path: &Path, mode: u32) {
    fs::create_dir(path).expect("mkdir");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Makes a pipe. A program that opened it would wait for the other end.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("the program runs").success());
}

type Make = fn(&Path);

/// Each row has the option for a directory, and its value, a path in the daemon's own directory.
/// Then it has the function that prepares that path, and a part of the refusal.
const UNUSABLE: [(&str, &str, Make, &str); 9] = [
    ("--state-dir", "file", make_file, "file is not a directory; allowed: a directory"),
    (
        "--state-dir",
        "file/state",
        |at| make_file(parent(at)),
        "file is not a directory; allowed: a directory",
    ),
    ("--lock-dir", "file/locks", |at| make_file(parent(at)), "worker IDs at"),
    // Other users can write into these directories or replace them.
    ("--state-dir", "state", |at| make_directory(at, 0o777), "(mode 777)"),
    ("--state-dir", "state", |at| make_directory(at, 0o1777), "(mode 1777)"),
    ("--state-dir", "state", |at| symlink("/tmp", at).expect("linked"), "it is a link"),
    // A file of the state is not a regular file.
    ("--state-dir", "state", |at| make_with(at, "ceilings", make_pipe), "not a regular file"),
    ("--state-dir", "state", |at| make_with(at, "lock", make_pipe), "not a regular file"),
    ("--state-dir", "state", |at| make_with(at, "ceilings", link_to_another), "it is a link"),
];

fn parent(path: &Path) -> &Path {
    path.parent().expect("a directory")
}

fn link_to_another(path: &Path) {
    symlink("/etc/passwd", path).expect("linked");
}

/// Makes a directory, and calls `make` for the path `name` in it.
fn make_with(directory: &Path, name: &str, make: Make) {
    make_directory(directory, 0o700);
    make(&directory.join(name));
}

#[test]
fn unusable_paths_exit_with_2() {
    for (option, path, make, part) in UNUSABLE {
        let setup = Setup::new();
        let path = setup.path(path);
        make(&path);
        setup.option(option, &path).end().assert_refusal(&[part, path.to_str().expect("text")]);
    }
    let socket = Setup::bare().option("--listen", "unix:/no/such/directory/socket").end();
    socket.assert_refusal(&["/no/such/directory/socket", "directory must exist"]);
}

#[test]
fn directories_without_permission_exit_with_2() {
    for option in ["--state-dir", "--lock-dir"] {
        let setup = Setup::new();
        let below = setup.path("closed/below");
        make_directory(parent(&below), 0o500);
        let ended = without_privileges(setup.option(option, &below)).end();
        ended.assert_refusal(&["Permission denied", below.to_str().expect("text")]);
    }
}

/// Drops root's capabilities, so that the daemon has the permissions of an ordinary user.
fn without_privileges(setup: Setup) -> Setup {
    if rustix::process::getuid().is_root() {
        return setup.through("setpriv", &["--inh-caps=-all", "--bounding-set=-all"]);
    }
    setup
}

#[test]
fn a_port_in_use_and_a_missing_address_exit_with_3() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").to_string();
    let reachable = |address: &str| Setup::bare().args(["--listen", address, "--worker-id", "1"]).end();
    reachable(&port).assert_refusal_for_now(&[&port, "in use"]);
    // The start fails even if only one of several addresses is in use.
    Setup::new().option("--listen", &port).end().assert_refusal_for_now(&[&port, "choose another port"]);
    let unknown = "no.such.host.invalid:7660";
    reachable(unknown).assert_refusal_for_now(&[unknown, "resolve"]);
    // An address for documentation (RFC 5737), which no machine has.
    reachable("192.0.2.7:0").assert_refusal_for_now(&["192.0.2.7:0", "does not have that address"]);
}

#[test]
fn a_lock_path_that_is_no_regular_file_exits_with_3() {
    let setup = Setup::new();
    let locks = setup.path("locks");
    let start = || Setup::new().env("SNOWBANK_LOCK_DIR", &locks);
    let daemon = start().start();
    let lock = lock_files(&locks).remove(0);
    daemon.stop();
    let text = lock.to_str().expect("text");
    fs::remove_file(&lock).expect("removed");
    let kinds: [(Make, &str); 3] = [
        (|at| symlink("elsewhere", at).expect("linked"), "cannot lock worker IDs at"),
        (|at| make_directory(at, 0o700), "cannot lock worker IDs at"),
        (make_pipe, "not a regular file"),
    ];
    for (index, (make, part)) in kinds.into_iter().enumerate() {
        make(&lock);
        start().end().assert_refusal_for_now(&[part, text, "who put this there"]);
        fs::rename(&lock, setup.path(&format!("kind-{index}"))).expect("put away");
    }
    start().start().draw_and_stop();
}

#[test]
fn too_few_file_descriptors_exit_with_3() {
    // With the lowest limit, the program can open one descriptor at a time. With the highest limit,
    // it fails at the locks of the worker IDs.
    for files in 4..23 {
        // Closes descriptors that the process that runs the tests may have left open.
        let limit = format!("exec 3>&- 4>&- 5>&-; ulimit -n {files}; exec \"$@\"");
        let setup = Setup::new().option("--shards", "2").through("sh", &["-c", &limit, "sh"]);
        setup.end().assert_refusal_for_now(&["(os error 24)", "allow more open files"]);
    }
}
