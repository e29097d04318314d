//! One cause, one exit code: 2 if an operator must change something, 3 if the cause may pass by
//! itself.
//!
//! Each test belongs to a cause that "Exit codes" of docs/operations.md lists. Other effects of a
//! cause are tested elsewhere: states and disks in state.rs, marks in marks.rs, addresses in
//! listeners.rs, settings in serve_cli.rs.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Setup, lock_files};

/// The layout `twitter` with an epoch years ahead of a correct clock.
const FUTURE: &str = "time:41,datacenter:5,worker:5,sequence:12;epoch=2999-01-01T00:00:00Z";

#[test]
fn an_epoch_ahead_of_the_clock_is_3_if_nothing_else_is_wrong() {
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
    fs::create_dir(path).expect("made");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

/// Makes a pipe. Opening it waits for its other end.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("it runs").success());
}

type Make = fn(&Path);

/// For each case: the option for a directory, its value (a path in the daemon's own directory),
/// what is made first, and a part of the refusal.
const UNUSABLE: [(&str, &str, Make, &str); 9] = [
    ("--state-dir", "file", make_file, "file is not a directory; choose another (--state-dir DIR)"),
    ("--state-dir", "file/state", |at| make_file(parent(at)), "file is not a directory; choose another"),
    ("--lock-dir", "file/locks", |at| make_file(parent(at)), "worker IDs at"),
    // A directory that others can write or replace.
    ("--state-dir", "state", |at| make_directory(at, 0o777), "(mode 777)"),
    ("--state-dir", "state", |at| make_directory(at, 0o1777), "(mode 1777)"),
    ("--state-dir", "state", |at| symlink("/tmp", at).expect("linked"), "it is a link"),
    // Another kind of file with the name of a file of the state.
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

/// Makes a directory, and makes something called `name` in it.
fn make_with(directory: &Path, name: &str, make: Make) {
    make_directory(directory, 0o700);
    make(&directory.join(name));
}

#[test]
fn paths_that_cannot_be_used_are_2() {
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
fn directories_without_permission_are_2() {
    for option in ["--state-dir", "--lock-dir"] {
        let setup = Setup::new();
        let below = setup.path("closed/below");
        make_directory(parent(&below), 0o500);
        let ended = without_privileges(setup.option(option, &below)).end();
        ended.assert_refusal(&["Permission denied", below.to_str().expect("text")]);
    }
}

/// Takes root's capabilities away, which leaves it the permissions of an ordinary user.
fn without_privileges(setup: Setup) -> Setup {
    if rustix::process::getuid().is_root() {
        return setup.through("setpriv", &["--inh-caps=-all", "--bounding-set=-all"]);
    }
    setup
}

#[test]
fn a_port_in_use_and_a_missing_address_are_3() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").to_string();
    let reachable = |address: &str| Setup::bare().args(["--listen", address, "--worker-id", "1"]).end();
    reachable(&port).assert_refusal_for_now(&[&port, "in use"]);
    // One address in use among several is enough.
    Setup::new().option("--listen", &port).end().assert_refusal_for_now(&[&port, "choose another port"]);
    let unknown = "no.such.host.invalid:7660";
    reachable(unknown).assert_refusal_for_now(&[unknown, "resolve"]);
    // An address for documentation (RFC 5737), which no machine has.
    reachable("192.0.2.7:0").assert_refusal_for_now(&["192.0.2.7:0", "does not have that address"]);
}

#[test]
fn another_kind_of_file_with_a_locks_name_is_3() {
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
        start().end().assert_refusal_for_now(&[part, text, "who put it there"]);
        fs::rename(&lock, setup.path(&format!("kind-{index}"))).expect("put away");
    }
    start().start().stop();
}

#[test]
fn too_few_file_descriptors_are_3() {
    // The lowest limit stops the program at its first descriptor, the highest one at the shards'
    // reactors.
    for files in 4..16 {
        // The program that runs the tests may have left a descriptor open.
        let limit = format!("exec 3>&- 4>&- 5>&-; ulimit -n {files}; exec \"$@\"");
        let ended = Setup::new().through("sh", &["-c", &limit, "sh"]).end();
        ended.assert_refusal_for_now(&["(os error 24)"]);
    }
}
