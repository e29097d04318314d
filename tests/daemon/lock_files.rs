//! Lock files and their directory, which other users of the machine might create, write or hold.
//! Tests with several users need root. Without root they are skipped, unless `CI` is set.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemon::mode;
use crate::support::machine::Machine;
use crate::support::{Setup, lock_files};
use rustix::process::getuid;

/// An ID of the layout `twitter` with worker ID 0 and a time far in the future.
const FAR: u64 = 1 << 62;
const OTHER_STATE: &str = "fedcba9876543210fedcba9876543210";
/// A group that owns the lock directory.
const GROUP: u32 = 4444;
/// Two users in that group.
const MEMBERS: [u32; 2] = [4001, 4002];
/// A user who is not in that group.
const OTHER_USER: u32 = 4003;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

/// Writes a mark into a lock file, as a daemon of another state does.
fn write_mark(lock: &Path, id_bound: u64) {
    let mark = format!("format 1, least reader 1: granted  below ID {id_bound:020} by state {OTHER_STATE}\n");
    let text = fs::read_to_string(lock).expect("read");
    let holder_bytes = text.find('\n').expect("a holder's line") as u64 + 1;
    let file = OpenOptions::new().write(true).open(lock).expect("it exists");
    file.write_all_at(mark.as_bytes(), holder_bytes).expect("written");
}

#[test]
fn a_lock_file_that_others_could_write_is_replaced() {
    let machine = Machine::new();
    machine.start("").stop();
    let lock = lock_files(&machine.path("locks")).remove(0);
    assert_eq!((mode(&lock), mode(&machine.path("locks"))), (0o600, 0o700), "only this user has access");
    write_mark(&lock, FAR);
    set_mode(&lock, 0o666);
    // While the file is locked, the daemon must not replace it, because another daemon may hold the
    // lock.
    let held = File::open(&lock).expect("it exists");
    held.try_lock().expect("a free lock");
    machine.beside("").end().assert_refusal_for_now(&["held by another daemon"]);
    // Closing the file would not be enough, because a process that another test starts right now
    // may have inherited the open file.
    held.unlock().expect("the lock is held");
    let daemon = machine.beside("").start();
    assert!(daemon.draw_one() < FAR);
    assert_eq!(mode(&lock), 0o600);
    daemon.stop();

    // Nobody else could write this one.
    write_mark(&lock, FAR);
    set_mode(&lock, 0o755);
    machine.beside("").end().assert_refusal_for_now(&["the mark in", "2045-"]);
    assert_eq!(mode(&lock), 0o600);

    // The daemon does not write through a hard link to another file.
    let elsewhere = machine.path("elsewhere");
    fs::write(&elsewhere, "kept").expect("written");
    set_mode(&elsewhere, 0o600);
    fs::remove_file(&lock).expect("removed");
    fs::hard_link(&elsewhere, &lock).expect("linked");
    machine.beside("").end().assert_refusal(&["has no readable mark", "it has 2 names"]);
    assert_eq!(fs::read(&elsewhere).expect("it exists"), b"kept");
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
    // A daemon with another worker ID still starts.
    machine.beside("").args(["--worker-id", "1"]).start().draw_and_stop();
    fs::remove_file(&lock).expect("removed");
    assert!(machine.start("").draw_one() < FAR, "the daemon stored the mark");
}

#[test]
fn a_lock_directory_that_is_a_link_or_too_open_is_refused() {
    let machine = Machine::new();
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("mkdir");
    let closed = "`chmod o-w` it, or give all daemons of this machine another lock_dir";
    let shared =
        "leave its mode, which other programs need, and give all daemons of this machine another lock_dir";
    for (open, cure) in [(0o777, closed), (0o1777, shared), (0o702, closed)] {
        set_mode(&locks, open);
        let found = format!("(mode {open:o})");
        machine.setup("").end().assert_refusal(&[locks.to_str().expect("text"), &found, cure]);
    }
    set_mode(&locks, 0o700);
    machine.start("").stop();
    // In an open directory others could replace the lock directory, in a sticky one they could not.
    let above = locks.parent().expect("a directory").to_owned();
    set_mode(&above, 0o777);
    machine.setup("").end().assert_refusal(&[above.to_str().expect("text"), "(mode 777)", "chmod o-w"]);
    set_mode(&above, 0o1777);
    machine.start("").stop();
    set_mode(&above, 0o700);
    // So it is with the state's directory.
    let open = machine.path("open");
    fs::create_dir(&open).expect("mkdir");
    set_mode(&open, 0o777);
    let below_it = || machine.setup("").option("--state-dir", open.join("state"));
    below_it().end().assert_refusal(&[open.to_str().expect("text"), "(mode 777)", "chmod o-w"]);
    set_mode(&open, 0o1777);
    below_it().start().stop();
    let shared = "leave its mode, which other programs need, and move the state elsewhere";
    machine.setup("").option("--state-dir", &open).end().assert_refusal(&["(mode 1777)", shared]);
    let real = machine.path("real");
    fs::rename(&locks, &real).expect("renamed");
    symlink(&real, &locks).expect("linked");
    machine.setup("").end().assert_refusal(&["cannot lock worker IDs at", "it is a link"]);
}

/// Makes the daemon run as this user, with this additional group. The user owns the daemon's
/// directory.
fn as_user(machine: &Machine, setup: Setup, user: u32, group: u32) -> Setup {
    chown(setup.path(""), Some(user), Some(user)).expect("chown");
    let ids = [format!("--reuid={user}"), format!("--regid={user}"), format!("--groups={group}")];
    let copy = copy_of_the_program(machine);
    // The shell runs the copy in place of the program that is the next argument.
    let shell = ["sh", "-c", "shift; exec \"$0\" \"$@\"", copy.to_str().expect("text")];
    setup.through("setpriv", &[&ids.each_ref().map(String::as_str)[..], &shell].concat())
}

/// A build may be in a home, which other users cannot enter.
fn copy_of_the_program(machine: &Machine) -> PathBuf {
    machine.path("snowbank")
}

/// Returns a machine whose directory other users may enter. Returns `None` and skips the test if no
/// daemon can run as another user here.
fn machine_of_several_users() -> Option<Machine> {
    if !getuid().is_root() {
        crate::support::skip("only root can have daemons run as several users");
        return None;
    }
    let machine = Machine::new();
    set_mode(&machine.path(""), 0o755);
    let program = copy_of_the_program(&machine);
    crate::support::copy(Path::new(env!("CARGO_BIN_EXE_snowbank")), &program);
    let mut tried = Command::new("setpriv");
    tried.args(["--reuid=4003", "--regid=4003", "--clear-groups", "test", "-x"]).arg(program);
    if !crate::support::has_program("setpriv", "util-linux")
        || !tried.status().expect("the program runs").success()
    {
        crate::support::skip("other users cannot run a program in the directory of the test");
        return None;
    }
    Some(machine)
}

#[test]
fn only_members_share_a_groups_lock_directory() {
    let Some(machine) = machine_of_several_users() else { return };
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("mkdir");
    chown(&locks, None, Some(GROUP)).expect("chown");
    let daemon = |worker: &str, user: u32, group: u32| {
        let setup = Setup::new().env("SNOWBANK_LOCK_DIR", &locks).args(["--worker-id", worker]);
        as_user(&machine, setup, user, group)
    };
    // The mode of the package's directory, and a mode without the setgid bit.
    for (directory_mode, worker) in [(0o3770, "5"), (0o770, "6")] {
        set_mode(&locks, directory_mode);
        let [first, second] = MEMBERS;
        let running = daemon(worker, first, GROUP).start();
        let lock = lock_files(&machine.path("locks")).pop().expect("a lock");
        let found = fs::metadata(&lock).expect("it exists");
        assert_eq!((mode(&lock), found.uid(), found.gid()), (0o660, first, GROUP));
        let holder = format!("(process {})", running.id());
        daemon(worker, second, GROUP).end().assert_refusal_for_now(&["another daemon", &holder]);
        daemon(worker, OTHER_USER, OTHER_USER).end().assert_refusal(&[
            "Permission denied",
            "group",
            "lock_dir",
        ]);
        running.stop();
        daemon(worker, second, GROUP).start().draw_and_stop();
        // The daemon refuses a lock file that a member has closed to the other members, and does
        // not change the file.
        set_mode(&lock, 0);
        let ended = daemon(worker, second, GROUP).end();
        ended.assert_refusal_for_now(&[
            "Permission denied",
            "belongs to user 4001 (mode 0)",
            "stop that daemon",
        ]);
        assert!(!ended.stderr.contains("remove it, or set"), "{}", ended.stderr);
        assert_eq!(mode(&lock), 0);
        fs::remove_file(&lock).expect("removed");
    }
}

#[test]
fn directories_of_another_user_are_refused() {
    let Some(machine) = machine_of_several_users() else { return };
    let locks = machine.path("locks");
    fs::create_dir(&locks).expect("mkdir");
    chown(&locks, Some(OTHER_USER), Some(OTHER_USER)).expect("chown");
    let parts = ["cannot lock worker IDs at", "belongs to user 4003", "root"];
    machine.setup("").end().assert_refusal_for_now(&parts);
    let member = Setup::new().env("SNOWBANK_LOCK_DIR", &locks);
    as_user(&machine, member, MEMBERS[0], GROUP).end().assert_refusal_for_now(&parts);

    // The owner of a link can replace the link, so the cause of the refusal may pass by itself.
    fs::remove_dir(&locks).expect("removed");
    symlink("elsewhere", &locks).expect("linked");
    lchown(&locks, Some(OTHER_USER), Some(OTHER_USER)).expect("chown");
    machine.setup("").end().assert_refusal_for_now(&parts);

    let state = machine.path("anothers");
    fs::create_dir(&state).expect("mkdir");
    chown(&state, Some(OTHER_USER), Some(GROUP)).expect("chown");
    set_mode(&state, 0o770);
    let member = as_user(&machine, Setup::new().env("SNOWBANK_STATE_DIR", &state), MEMBERS[0], GROUP);
    member.end().assert_refusal(&["state directory", "belongs to user 4003"]);
}

/// A PID namespace stands for the container.
#[test]
fn a_daemon_in_a_container_warns_of_its_own_locks() {
    if !getuid().is_root() || !crate::support::has_program("unshare", "util-linux") {
        return crate::support::skip("only root can make a container");
    }
    let within = |script: &str| {
        let setup = Setup::new();
        let locks = setup.path("locks");
        fs::create_dir(&locks).expect("mkdir");
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
    assert!(within("mount --bind LOCKS LOCKS; ").contains(warning), "the mount is the container's own");
    let outside = "mkdir -p LOCKS.outside; mount --bind LOCKS.outside LOCKS; ";
    assert!(!within(outside).contains(warning), "the lock directory of the machine is mounted");
    assert!(!Setup::new().start().log().contains(warning));
}
