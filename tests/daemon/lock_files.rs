//! Lock files and their directory, as other users of the machine might create, write or hold them.
//! Tests with several users need root. Without root they report that and pass, unless `CI` is set.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::daemon::mode;
use crate::support::machine::Machine;
use crate::support::{Setup, lock_files};
use rustix::process::getuid;

/// An ID of worker 0 in 2045, in the layout `twitter`.
const FAR: u64 = 1 << 62;
const OTHER_STATE: &str = "fedcba9876543210fedcba9876543210";
/// A group, two of its members, and a user who is no member.
const GROUP: u32 = 4444;
const MEMBERS: [u32; 2] = [4001, 4002];
const STRANGER: u32 = 4003;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Writes a mark as a daemon does.
fn write_mark(lock: &Path, id_bound: u64) {
    let mark = format!("granted  below ID {id_bound:020} by state {OTHER_STATE}\n");
    let text = fs::read_to_string(lock).expect("read");
    let holder_bytes = text.find('\n').expect("a holder's line") as u64 + 1;
    let file = OpenOptions::new().write(true).open(lock).expect("there");
    file.write_all_at(mark.as_bytes(), holder_bytes).expect("written");
}

#[test]
fn a_lock_file_that_others_could_write_is_replaced() {
    let machine = Machine::new();
    machine.start("").stop();
    let lock = lock_files(&machine.path("locks")).remove(0);
    assert_eq!((mode(&lock), mode(&machine.path("locks"))), (0o600, 0o700), "this user's alone");
    write_mark(&lock, FAR);
    set_mode(&lock, 0o666);
    // While the file is locked, the daemon cannot know which other processes might hold it.
    let held = File::open(&lock).expect("there");
    held.try_lock().expect("free");
    machine.beside("").end().assert_refusal_for_now(&["held by another daemon"]);
    // Closing the file is not enough: a process that another test is just starting has it open too.
    held.unlock().expect("held");
    let daemon = machine.beside("").start();
    assert!(daemon.draw_one() < FAR);
    assert_eq!(mode(&lock), 0o600);
    daemon.stop();

    // Nothing is written to another file through a hard link.
    let elsewhere = machine.path("elsewhere");
    fs::write(&elsewhere, "kept").expect("written");
    set_mode(&elsewhere, 0o600);
    fs::remove_file(&lock).expect("removed");
    fs::hard_link(&elsewhere, &lock).expect("linked");
    machine.beside("").start().stop();
    assert_eq!(fs::read(&elsewhere).expect("there"), b"kept");
}

#[test]
fn a_mark_too_far_ahead_is_refused_and_never_stored() {
    let machine = Machine::new();
    machine.start("").stop();
    let lock = lock_files(&machine.path("locks")).remove(0);
    write_mark(&lock, FAR);
    let parts =
        ["the mark in", lock.to_str().expect("text"), "2045-", "set the clock right", "remove the file"];
    for setup in [machine.setup(""), machine.beside(""), machine.beside("").args(["--adopt-state"])] {
        setup.end().assert_refusal_for_now(&parts);
    }
    assert!(!machine.path("other/ceilings").exists());
    let shown = machine.run(&["state", "show"]).out;
    assert!(shown.contains("further ahead of the clock than a daemon grants by default"), "{shown}");
    // Another worker ID still serves.
    machine.beside("").args(["--worker-id", "1"]).start().stop();
    fs::remove_file(&lock).expect("removed");
    assert!(machine.start("").draw_one() < FAR, "nothing of it was stored");
}

#[test]
fn a_lock_directory_that_others_can_write_or_own_is_refused() {
    let machine = Machine::new();
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("made");
    for open in [0o777, 0o1777, 0o702] {
        set_mode(&locks, open);
        let found = format!("(mode {open:o})");
        machine.setup("").end().assert_refusal(&[
            locks.to_str().expect("text"),
            &found,
            "chmod o-w",
            "lock_dir",
        ]);
    }
    set_mode(&locks, 0o700);
    machine.start("").stop();
    let real = machine.path("real");
    fs::rename(&locks, &real).expect("renamed");
    symlink(&real, &locks).expect("linked");
    machine.setup("").end().assert_refusal(&["cannot lock worker IDs at", "it is a link"]);
}

/// Runs the daemon as this user, with this additional group, and gives the user the daemon's
/// directory.
fn as_user(setup: Setup, user: u32, group: u32) -> Setup {
    chown(setup.path(""), Some(user), Some(user)).expect("root may");
    let ids = [format!("--reuid={user}"), format!("--regid={user}"), format!("--groups={group}")];
    setup.through("setpriv", &ids)
}

/// Returns a machine whose directory other users may enter; `None` if no daemon can run as another
/// user here.
fn machine_of_several_users() -> Option<Machine> {
    if !getuid().is_root() {
        crate::support::skip("only root can have daemons run as several users");
        return None;
    }
    let program = env!("CARGO_BIN_EXE_snowbank");
    let mut tried = Command::new("setpriv");
    tried.args(["--reuid=4003", "--regid=4003", "--clear-groups", "test", "-x", program]);
    if !crate::support::has_program("setpriv", "util-linux") || !tried.status().expect("it runs").success() {
        crate::support::skip("other users cannot run the program where it was built");
        return None;
    }
    let machine = Machine::new();
    set_mode(&machine.path(""), 0o755);
    Some(machine)
}

#[test]
fn only_members_share_a_groups_lock_directory() {
    let Some(machine) = machine_of_several_users() else { return };
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("made");
    chown(&locks, None, Some(GROUP)).expect("root may");
    let daemon = |worker: &str, user: u32, group: u32| {
        as_user(Setup::new().env("SNOWBANK_LOCK_DIR", &locks).args(["--worker-id", worker]), user, group)
    };
    // The package's directory, and one that lacks the bit that hands its group on.
    for (directory_mode, worker) in [(0o3770, "5"), (0o770, "6")] {
        set_mode(&locks, directory_mode);
        let [first, second] = MEMBERS;
        let running = daemon(worker, first, GROUP).start();
        let lock = lock_files(&machine.path("locks")).pop().expect("a lock");
        let found = fs::metadata(&lock).expect("there");
        assert_eq!((mode(&lock), found.uid(), found.gid()), (0o660, first, GROUP));
        let holder = format!("(process {})", running.id());
        daemon(worker, second, GROUP).end().assert_refusal_for_now(&["another daemon", &holder]);
        daemon(worker, STRANGER, STRANGER).end().assert_refusal(&["Permission denied", "group", "lock_dir"]);
        running.stop();
        daemon(worker, second, GROUP).start().stop();
        // A lock that a member closed to the others is found, and never changed.
        set_mode(&lock, 0);
        daemon(worker, second, GROUP)
            .end()
            .assert_refusal_for_now(&["Permission denied", "who put it there"]);
        assert_eq!(mode(&lock), 0);
        fs::remove_file(&lock).expect("removed");
    }
}

#[test]
fn directories_of_another_user_are_refused() {
    let Some(machine) = machine_of_several_users() else { return };
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("made");
    chown(&locks, Some(STRANGER), Some(STRANGER)).expect("root may");
    let parts = ["cannot lock worker IDs at", "belongs to user 4003", "root"];
    machine.setup("").end().assert_refusal_for_now(&parts);
    let member = Setup::new().env("SNOWBANK_LOCK_DIR", &locks);
    as_user(member, MEMBERS[0], GROUP).end().assert_refusal_for_now(&parts);

    // That user may replace the directory by anything, so the cause may pass by itself.
    fs::remove_dir(&locks).expect("removed");
    symlink("elsewhere", &locks).expect("linked");
    lchown(&locks, Some(STRANGER), Some(STRANGER)).expect("root may");
    machine.setup("").end().assert_refusal_for_now(&parts);

    let state = machine.path("anothers");
    fs::create_dir(&state).expect("made");
    chown(&state, Some(STRANGER), Some(GROUP)).expect("root may");
    set_mode(&state, 0o770);
    let member = as_user(Setup::new().env("SNOWBANK_STATE_DIR", &state), MEMBERS[0], GROUP);
    member.end().assert_refusal(&["state directory", "belongs to user 4003"]);
}

/// In this test, a PID namespace makes the container.
#[test]
fn a_daemon_in_a_container_warns_of_its_own_locks() {
    if !getuid().is_root() || !crate::support::has_program("unshare", "util-linux") {
        return crate::support::skip("only root can make a container");
    }
    let within = |script: &str| {
        let setup = Setup::new();
        let locks = setup.path("locks");
        fs::create_dir(&locks).expect("made");
        let script = format!("{script}exec \"$@\"").replace("LOCKS", locks.to_str().expect("text"));
        let unshare =
            ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c", &script, "sh"];
        let daemon = setup.through("unshare", &unshare).start();
        daemon.assert_logs("worker IDs");
        daemon.draw_one();
        daemon.log()
    };
    let warning = "this daemon runs in a container";
    assert!(within("").contains(warning));
    assert!(within("mount --bind LOCKS LOCKS; ").contains(warning), "it shows nothing from outside");
    let outside = "mkdir -p LOCKS.outside; mount --bind LOCKS.outside LOCKS; ";
    assert!(!within(outside).contains(warning), "a directory of the machine's is mounted");
    assert!(!Setup::new().start().log().contains(warning));
}
