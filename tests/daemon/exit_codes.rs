//! One cause, one exit code: 2 if an operator must change something, 3 if the cause may pass by
//! itself.
//!
//! Each test belongs to a cause that "Exit codes" of docs/operations.md lists, or to a reload.
//! Other effects of a cause are tested elsewhere: states in state.rs, marks in marks.rs,
//! addresses in listeners.rs, settings in serve_cli.rs.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::file_system::FileSystem;
use crate::support::{Setup, lock_files};

/// The layout `twitter` with an epoch years ahead of a correct clock.
const FUTURE: &str = "time:41,datacenter:5,worker:5,sequence:12;epoch=2999-01-01T00:00:00Z";

/// A daemon with its state and locks in its own directory.
fn setup() -> Setup {
    let setup = Setup::new();
    let state = setup.path("state");
    setup.option("--state-dir", state)
}

#[test]
fn an_epoch_ahead_of_the_clock_is_3_if_nothing_else_is_wrong() {
    let parts = ["2999-01-01", "epoch", "or the clock is wrong"];
    setup().args(["--layout", FUTURE]).end().assert_refusal_for_now(&parts);
    setup().config(&format!("layout = \"{FUTURE}\"")).end().assert_refusal_for_now(&parts);
    setup().env("SNOWBANK_LAYOUT", FUTURE).end().assert_refusal_for_now(&parts);
    let ended = setup().config(&format!("layout = \"{FUTURE}\"\nshards = 0")).end();
    ended.assert_refusal(&["1 more mistake"]);
}

#[test]
fn paths_that_cannot_be_used_are_2() {
    let setup_with = |option: &str, path: &str| {
        let setup = Setup::new();
        fs::write(setup.path("file"), "").expect("written");
        let path = setup.path(path);
        setup.option(option, path).end()
    };
    for path in ["file", "file/state"] {
        let parts = ["state directory", path, "file is not a directory; choose another (--state-dir DIR)"];
        setup_with("--state-dir", path).assert_refusal(&parts);
    }
    setup_with("--lock-dir", "file/locks").assert_refusal(&["worker IDs at", "file/locks"]);
    let socket = Setup::bare().option("--listen", "unix:/no/such/directory/socket").end();
    socket.assert_refusal(&["/no/such/directory/socket", "directory must exist"]);
}

#[test]
fn directories_without_permission_are_2() {
    for option in ["--state-dir", "--lock-dir"] {
        let setup = Setup::new();
        let closed = setup.path("closed");
        fs::create_dir(&closed).expect("made");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("set");
        let below = closed.join("below");
        let setup = setup.option(option, &below);
        let ended = without_privileges(setup).end();
        ended.assert_refusal(&["Permission denied", below.to_str().expect("text")]);
    }
}

/// Root without its capabilities has the permissions of an ordinary user.
fn without_privileges(setup: Setup) -> Setup {
    if rustix::process::getuid().is_root() {
        return setup.through("setpriv", &["--inh-caps=-all", "--bounding-set=-all"]);
    }
    setup
}

#[test]
fn a_state_directory_that_others_can_write_or_replace_is_2() {
    let state_dir = || {
        let setup = Setup::new();
        let state = setup.path("state");
        fs::create_dir(&state).expect("made");
        (setup.option("--state-dir", &state), state)
    };
    for open in [0o777, 0o1777] {
        let (setup, state) = state_dir();
        fs::set_permissions(&state, fs::Permissions::from_mode(open)).expect("set");
        let found = format!("(mode {open:o})");
        setup.end().assert_refusal(&["state directory", state.to_str().expect("text"), &found, "chmod o-w"]);
    }
    let (setup, state) = state_dir();
    fs::rename(&state, state.with_file_name("real")).expect("renamed");
    symlink("real", &state).expect("linked");
    setup.end().assert_refusal(&["state directory", "it is a link"]);
}

/// Opening a pipe for reading would wait for a writer.
#[test]
fn another_kind_of_file_with_the_state_files_name_is_2() {
    let in_place = |name: &str, make: fn(&Path)| {
        let setup = Setup::new();
        let state = setup.path("state");
        fs::create_dir(&state).expect("made");
        make(&state.join(name));
        setup.option("--state-dir", &state).end()
    };
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("it runs");
        assert!(made.success());
    };
    in_place("ceilings", pipe).assert_refusal(&["ceilings", "not a regular file"]);
    in_place("lock", pipe).assert_refusal(&["state directory", "not a regular file"]);
    let link = |path: &Path| symlink("/etc/passwd", path).expect("linked");
    in_place("ceilings", link).assert_refusal(&["ceilings", "it is a link"]);
}

#[test]
fn a_port_in_use_and_a_missing_address_are_3() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|address| (address.to_string(), taken)).expect("bound");
    Setup::bare().option("--listen", &taken.0).end().assert_refusal_for_now(&[&taken.0, "in use"]);
    // One address in use among several is enough.
    let second = Setup::new().option("--listen", &taken.0).end();
    second.assert_refusal_for_now(&[&taken.0, "choose another port"]);
    let unknown = Setup::bare().args(["--listen", "no.such.host.invalid:7660", "--worker-id", "1"]).end();
    unknown.assert_refusal_for_now(&["no.such.host.invalid:7660", "resolve"]);
    // An address for documentation (RFC 5737), which no machine has.
    let other = Setup::bare().args(["--listen", "192.0.2.7:0", "--worker-id", "1"]).end();
    other.assert_refusal_for_now(&["192.0.2.7:0", "does not have that address"]);
}

#[test]
fn another_kind_of_file_with_a_locks_name_is_3() {
    let setup = Setup::new();
    let locks = setup.path("locks");
    setup.start().stop();
    let start = || Setup::new().env("SNOWBANK_LOCK_DIR", &locks);
    fs::create_dir_all(&locks).expect("made");
    let daemon = start().start();
    let lock = lock_files(&locks).remove(0);
    daemon.stop();
    let parts = ["cannot lock worker IDs at", lock.to_str().expect("text"), "who put it there"];
    fs::remove_file(&lock).expect("removed");
    symlink("elsewhere", &lock).expect("linked");
    start().end().assert_refusal_for_now(&parts);
    fs::remove_file(&lock).expect("removed");
    fs::create_dir(&lock).expect("made");
    start().end().assert_refusal_for_now(&parts);
    fs::remove_dir(&lock).expect("removed");
    // Opening a pipe would wait for its other end.
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().expect("it runs").success());
    start().end().assert_refusal_for_now(&["not a regular file", "who put it there"]);
    fs::remove_file(&lock).expect("removed");
    start().start().stop();
}

#[test]
fn a_full_disk_is_3_wherever_it_strikes() {
    let Some(disk) = FileSystem::mount_with_files(64) else { return };
    let made = disk.point().join("made");
    let point = disk.point();
    fs::create_dir(&made).expect("made");
    let ballast: Vec<PathBuf> = (0..)
        .map(|number| point.join(format!("ballast-{number}")))
        .take_while(|path| File::create(path).is_ok())
        .collect();
    let full = ["No space left on device", "make room"];
    for state in [made.clone(), point.join("new")] {
        Setup::new().option("--state-dir", &state).end().assert_refusal_for_now(&full);
    }
    for locks in [made.clone(), point.join("new")] {
        Setup::new().option("--lock-dir", &locks).end().assert_refusal_for_now(&full);
    }
    let listen = format!("unix:{}", made.join("socket").display());
    Setup::bare().option("--listen", &listen).end().assert_refusal_for_now(&full);
    ballast.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    Setup::new().option("--state-dir", &made).start().stop();
}

#[test]
fn too_few_file_descriptors_are_3() {
    // The lowest limit stops the program at its first descriptor, the highest one at the shards'
    // reactors.
    for files in 4..16 {
        // The program that runs the tests may have left a descriptor open.
        let limit = format!("exec 3>&- 4>&- 5>&-; ulimit -n {files}; exec \"$@\"");
        let ended = setup().through("sh", &["-c", &limit, "sh"]).end();
        ended.assert_refusal_for_now(&["(os error 24)"]);
    }
}
