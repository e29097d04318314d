//! State over restarts: ceilings on disks that fail, changed configurations, crashes, and moves between machines.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::daemon::{Ended, mode};
use support::failing_disk::{EIO, ENOSPC, EROFS, FailingDisk};
use support::ids::{twitter_unix_ms, unix_ms};
use support::wire::{CLOCK_BEHIND, NO_CEILING};
use support::{Ask, DEADLINE, Daemon, Random, Setup, Wire, http, poll, records};
use tempfile::TempDir;

/// A machine whose daemons come and go: its state and locks stay.
struct Machine {
    directory: TempDir,
}

impl Machine {
    fn new() -> Machine {
        Machine { directory: support::directory() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn file(&self) -> PathBuf {
        self.state().join("ceilings")
    }

    /// A daemon with this machine's directories.
    fn setup(&self) -> Setup {
        Setup::new().env("SNOWBANK_STATE_DIR", self.state()).env("SNOWBANK_LOCK_DIR", self.path("locks"))
    }

    fn start(&self) -> Daemon {
        self.setup().start()
    }

    fn disk(&self) -> FailingDisk {
        FailingDisk::new(&self.state(), self.path("orders"))
    }

    /// `snowbank state …` over this machine's directories.
    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
        command.arg("state").args(arguments);
        command.env("SNOWBANK_STATE_DIR", self.state()).env("SNOWBANK_LOCK_DIR", self.path("locks"));
        command.output().expect("the program runs")
    }

    /// Returns the only source of `state show --json`.
    fn shown(&self) -> Shown {
        let output = self.command(&["show", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["sources"].as_array().map(Vec::len), Some(1), "{answer}");
        let source = &answer["sources"][0];
        Shown {
            name: source["name"].as_str().expect("a name").to_owned(),
            bound: source["ceiling_id"].as_str().and_then(|id| id.parse().ok()).expect("an ID"),
            clean: source["clean"].as_bool().expect("a flag"),
            released: source["released"].as_bool().expect("a flag"),
            in_use: answer["in_use"].as_bool().expect("a flag"),
        }
    }

    /// Changes every record, as another hand would.
    fn edit(&self, change: impl Fn(&mut serde_json::Value)) {
        records::edit(&self.state(), change);
    }
}

#[derive(Debug)]
struct Shown {
    name: String,
    bound: u64,
    clean: bool,
    released: bool,
    in_use: bool,
}

/// One ID, now.
fn one(wire: &mut Wire) -> u64 {
    wire.next(Ask::of(1)).ids()[0]
}

/// Draws until a request is refused for lack of a ceiling, and gives the refusal's message.
fn draw_until_no_ceiling(wire: &mut Wire, ids: &mut BTreeSet<u64>) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let reply = wire.next(Ask::of(1).wait_ms(100));
        match reply.id_count() {
            Some(_) => assert!(reply.ids().into_iter().all(|id| ids.insert(id)), "an ID came twice"),
            None => return reply.assert_error(0, NO_CEILING),
        }
        assert!(Instant::now() < deadline, "the ceiling is never met");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Draws until there are IDs again.
fn draw_until_served(wire: &mut Wire, ids: &mut BTreeSet<u64>) {
    poll("IDs flow again", || {
        let reply = wire.next(Ask::of(1).wait_ms(100));
        reply.id_count()?;
        assert!(reply.ids().into_iter().all(|id| ids.insert(id)), "an ID came twice");
        Some(())
    });
}

#[test]
fn a_clean_restart_loses_nothing_and_is_not_ahead() {
    let machine = Machine::new();
    let mut ids = BTreeSet::new();
    for round in 0..20 {
        let daemon = machine.start();
        let mut wire = daemon.connect();
        let id = one(&mut wire);
        assert_eq!(daemon.log().contains("starts for the first time"), round == 0, "{}", daemon.log());
        assert!(ids.last().is_none_or(|&last| id > last), "round {round}: {id} after {ids:?}");
        assert!(twitter_unix_ms(id) <= unix_ms() + 2, "round {round}: ahead of the clock after a clean stop");
        ids.insert(id);
        assert!(machine.shown().in_use);
        daemon.stop();
        let shown = machine.shown();
        assert!(shown.clean && !shown.in_use && !shown.released, "{shown:?}");
        assert!(shown.bound > id && twitter_unix_ms(shown.bound) <= unix_ms() + 2, "{shown:?}");
    }
}

#[test]
fn kill_9_under_load_repeats_nothing() {
    let machine = Machine::new();
    let mut ids = BTreeSet::new();
    for round in 0..20_u64 {
        let mut daemon = machine.start();
        let bound = machine.shown().bound;
        let mut wire = daemon.connect();
        let deadline = Instant::now() + Duration::from_millis(20 + round * 7);
        let mut count = 1;
        while Instant::now() < deadline {
            for id in wire.next(Ask::of(count)).ids() {
                assert!(ids.insert(id), "round {round}: {id} came twice");
            }
            count = count % 500 + 37;
        }
        assert!(machine.shown().bound >= bound, "a ceiling sank");
        daemon.kill();
        let shown = machine.shown();
        assert!(
            !shown.clean && ids.last().is_some_and(|&last| last < shown.bound),
            "round {round}: {shown:?}"
        );
    }
    let ahead = twitter_unix_ms(ids.pop_last().expect("IDs")).saturating_sub(unix_ms());
    assert!(ahead < 10_000, "{ahead} ms ahead");
}

#[test]
fn kill_9_within_a_write_leaves_a_whole_file() {
    let machine = Machine::new();
    let disk = machine.disk();
    let mut ids = BTreeSet::new();
    for round in 0..12_u64 {
        // Slow enough that most kills are between two of the calls that make up a commit.
        disk.order(["write stall 3", "sync stall 30", "any stall 5"][round as usize % 3]);
        let mut daemon = disk.under(machine.setup().config("max_ahead = \"202ms\"")).start();
        let mut wire = daemon.connect();
        let deadline = Instant::now() + Duration::from_millis(1_000 + round * 13);
        while Instant::now() < deadline {
            let reply = wire.next(Ask::of(10).wait_ms(20));
            if reply.id_count().is_some() {
                assert!(reply.ids().into_iter().all(|id| ids.insert(id)), "round {round}: an ID came twice");
            }
        }
        daemon.kill();
        assert!(ids.last().is_some_and(|&last| last < machine.shown().bound), "round {round}");
    }
}

#[test]
fn files_and_directories_are_private() {
    let machine = Machine::new();
    let daemon = machine.start();
    assert_eq!(mode(&machine.state()), 0o700);
    for name in ["ceilings", "lock"] {
        assert_eq!(mode(&machine.state().join(name)), 0o600, "{name}");
    }
    daemon.stop();
    let names: BTreeSet<_> = fs::read_dir(machine.state())
        .expect("it is there")
        .map(|entry| entry.expect("read").file_name())
        .collect();
    assert_eq!(names.len(), 2, "nothing unfinished is left: {names:?}");
}

#[test]
fn two_daemons_do_not_share_a_directory() {
    let machine = Machine::new();
    let daemon = machine.start();
    let state = machine.state();
    let ended = machine.setup().args(["--worker-id", "1"]).end();
    ended.assert_refusal_for_now(&[state.to_str().unwrap(), "is in use (process ", "--state-dir"]);
    let refused = machine.command(&["export"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is in use (process "), "{refused:?}");
    daemon.stop();
    machine.setup().args(["--worker-id", "1"]).start().stop();
}

#[test]
fn syncs_that_fail_stop_the_ids_at_the_ceiling_and_recover() {
    for (orders, what) in [
        (format!("sync fail {EIO}"), "syncs fail"),
        (format!("sync lie {EIO}"), "syncs fail after they were done"),
        (format!("write fail {ENOSPC}"), "the disk is full"),
        (format!("write short 100\nsync fail {EIO}"), "writes are short and syncs fail"),
        (format!("any fail {EIO}"), "everything fails"),
    ] {
        let machine = Machine::new();
        let disk = machine.disk();
        let daemon = disk.under(machine.setup().config("max_ahead = \"302ms\"")).start();
        let mut wire = daemon.connect();
        let mut ids = BTreeSet::from([one(&mut wire)]);
        let inode = || fs::metadata(machine.file()).expect("the file is there").ino();
        let before = inode();
        disk.order(&orders);
        let message = draw_until_no_ceiling(&mut wire, &mut ids);
        assert!(message.contains("ceiling"), "{what}: {message}");
        assert!(ids.len() > 1, "{what}: it serves up to the ceiling");
        // The next attempts fail too.
        thread::sleep(Duration::from_millis(1_200));
        assert!(wire.next(Ask::of(1).wait_ms(50)).id_count().is_none(), "{what}");
        disk.works();
        draw_until_served(&mut wire, &mut ids);
        assert_ne!(inode(), before, "{what}: a file whose sync failed is not trusted again");
        let said = poll("it says so", || Some(daemon.log()).filter(|said| said.contains("ready again")));
        for line in [
            "check ceiling of default fails: reached, and cannot be raised",
            "not ready: ",
            "check ceiling of default is ok again",
            "ready again: ",
        ] {
            assert_eq!(said.matches(line).count(), 1, "{what}: {line:?} is not said once:\n{said}");
        }
        let last = *ids.last().expect("IDs");
        drop(daemon);
        // What is on the disk after all that is whole, and above all that was handed out.
        assert!(machine.shown().bound > last, "{what}");
        let daemon = machine.start();
        assert!(one(&mut daemon.connect()) > last, "{what}");
    }
}

/// A power failure leaves what was synced: a file is written, synced, given its name, and then the name is synced.
/// So is the name of each directory that was made for it.
#[test]
fn a_new_state_file_is_on_the_disk_before_it_counts() {
    const NEW: &str = "in/here/ceilings.new";
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("disk"), machine.path("orders"));
    let setup = || {
        let setup = machine.setup().config("max_ahead = \"302ms\"");
        disk.under(setup.env("SNOWBANK_STATE_DIR", machine.path("disk/in/here")))
    };
    let assert_order = |calls: &[String], what: &str| {
        let at =
            |call: &str, from: usize| calls[from..].iter().position(|made| made == call).map(|at| from + at);
        let renamed =
            at("rename in/here/ceilings", 0).unwrap_or_else(|| panic!("{what}: no name: {calls:?}"));
        let written = calls[..renamed].iter().rposition(|call| *call == format!("write {NEW}"));
        let written = written.unwrap_or_else(|| panic!("{what}: nothing is written: {calls:?}"));
        let synced = at(&format!("sync {NEW}"), written);
        assert!(
            synced.is_some_and(|synced| synced < renamed),
            "{what}: named before it is synced: {calls:?}"
        );
        let next = calls.get(renamed + 1).map(String::as_str);
        assert_eq!(next, Some("sync in/here"), "{what}: the name is not synced: {calls:?}");
    };
    let daemon = setup().start();
    let calls = disk.calls();
    assert_order(&calls, "the first start");
    for made in ["sync .", "sync in"] {
        assert!(
            calls.iter().any(|call| call == made),
            "{made:?} is not before the daemon listens: {calls:?}"
        );
    }
    // The same holds for a new file after a failed write.
    let mut wire = daemon.connect();
    disk.order(&format!("sync fail {EIO}"));
    draw_until_no_ceiling(&mut wire, &mut BTreeSet::new());
    let before = disk.calls().len();
    disk.works();
    draw_until_served(&mut wire, &mut BTreeSet::new());
    let calls = disk.calls()[before..].to_vec();
    let last_new = calls.iter().rposition(|call| call.starts_with("open") && call.ends_with("ceilings.new"));
    assert_order(&calls[last_new.expect("a new file")..], "after a failure");
    daemon.stop();
    let before = disk.calls().len();
    let mut daemon = setup().start();
    // A start writes in place. Its file and its directory may have been put there by a hand that did not sync them.
    let calls = disk.calls()[before..].to_vec();
    let is_name = |call: &&str| ["sync in", "sync in/here"].contains(call);
    let calls: Vec<&str> = calls.iter().map(String::as_str).filter(|call| !call.contains("lock")).collect();
    let (names, calls): (Vec<&str>, Vec<&str>) = calls.into_iter().partition(is_name);
    assert_eq!(names, ["sync in", "sync in/here"]);
    const IN_PLACE: [&str; 4] = [
        "write in/here/ceilings",
        "sync in/here/ceilings",
        "write in/here/ceilings",
        "sync in/here/ceilings",
    ];
    let writes: Vec<&str> = calls.iter().copied().skip_while(|call| !call.starts_with("write")).collect();
    assert_eq!(writes[..4], IN_PLACE, "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("rename")), "{calls:?}");
    daemon.kill();
}

/// Before a raise is granted, both copies are on the disk.
#[test]
fn nothing_is_granted_before_both_copies_are_on_the_disk() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup().config("max_ahead = \"302ms\"")).start();
    let mut wire = daemon.connect();
    disk.order("sync stall 1500");
    let before = disk.calls().len();
    let syncs = || disk.calls()[before..].iter().filter(|call| *call == "sync ceilings").count();
    poll("the second copy's sync", || (syncs() == 2).then_some(()));
    // The first copy says more by now, and nothing of it may be used: the ceiling of before is met.
    let mut ids = BTreeSet::new();
    draw_until_no_ceiling(&mut wire, &mut ids);
    let bytes = fs::read(machine.file()).expect("read");
    assert_eq!(syncs(), 2, "a machine too slow for this test");
    assert_eq!(
        bytes[..bytes.len() / 2],
        bytes[bytes.len() / 2..],
        "the second copy is written before its sync"
    );
    disk.works();
    draw_until_served(&mut wire, &mut ids);
}

/// A start that was killed may have made the directory and not come to syncing its name.
#[test]
fn a_directory_that_was_there_is_on_the_disk_before_anything_in_it_counts() {
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("disk"), machine.path("orders"));
    let setup = |state: &str| disk.under(machine.setup().env("SNOWBANK_STATE_DIR", machine.path(state)));
    let assert_synced = |made: &str, from: usize| {
        let calls = &disk.calls()[from..];
        assert!(calls.contains(&format!("sync {made}")), "{made:?} is not synced: {calls:?}");
    };
    fs::create_dir_all(machine.path("disk/in")).expect("made");
    setup("disk/in/here").start().stop();
    assert_synced(".", 0);
    assert_synced("in", 0);
    let before = disk.calls().len();
    setup("disk/in/here").start().stop();
    assert_synced("in", before);
    // If it cannot be, nothing is served.
    disk.order(&format!("name fail {EIO}"));
    let ended = setup("disk/in/here").end();
    ended.assert_refusal_for_now(&[
        "cannot create the state directory or make its name durable",
        "disk/in/here",
    ]);
}

#[test]
fn a_rename_that_fails_is_tried_again() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup().config("max_ahead = \"302ms\"")).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::new();
    disk.order(&format!("sync fail {EIO}"));
    draw_until_no_ceiling(&mut wire, &mut ids);
    disk.order(&format!("rename fail {EIO}"));
    thread::sleep(Duration::from_millis(1_200));
    assert!(wire.next(Ask::of(1).wait_ms(50)).id_count().is_none());
    disk.order(&format!("rename lie {EIO}"));
    thread::sleep(Duration::from_millis(1_200));
    disk.works();
    draw_until_served(&mut wire, &mut ids);
}

/// The sync of the directory failed after the rename: a power failure may bring the old file back. Repeating the sync proves
/// nothing, so only another new file will do, and there is no room for one.
#[test]
fn a_file_whose_name_may_not_be_durable_is_not_used_on_a_full_disk() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup().config("max_ahead = \"302ms\"")).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::new();
    let inode = || fs::metadata(machine.file()).expect("the file is there").ino();
    disk.order(&format!("sync fail {EIO}"));
    draw_until_no_ceiling(&mut wire, &mut ids);
    let before = inode();
    disk.order(&format!("name fail {EIO}"));
    poll("a new file has the name", || {
        wire.next(Ask::of(1).wait_ms(50)).assert_error(0, NO_CEILING);
        (inode() != before).then_some(())
    });
    disk.order(&format!("name fail {EIO}\nopen fail {ENOSPC}"));
    thread::sleep(Duration::from_millis(100));
    disk.order(&format!("open fail {ENOSPC}"));
    for _ in 0..30 {
        wire.next(Ask::of(1).wait_ms(100)).assert_error(0, NO_CEILING);
    }
    disk.works();
    draw_until_served(&mut wire, &mut ids);
}

/// Anybody who reaches the admin listener may ask how the daemon is; its disk is not his.
#[test]
fn health_checks_write_nothing() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup().admin()).start();
    one(&mut daemon.connect());
    let syncs = || disk.calls().iter().filter(|call| call.starts_with("sync ")).count();
    let (before, began) = (syncs(), Instant::now());
    for _ in 0..300 {
        assert_eq!(http::get(&daemon, "/healthz").code, 200);
    }
    let made = syncs() - before;
    // Two for each second's raise, and those of a claim that met the ceiling of the start.
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few");
    assert!(made <= 2 * (seconds + 4), "{made} syncs in {seconds} s");
}

#[test]
fn slow_syncs_delay_no_request() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup()).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::new();
    disk.order("sync stall 500");
    let deadline = Instant::now() + Duration::from_secs(6);
    while Instant::now() < deadline {
        // No wait at all is allowed, and it is twice the horizon long.
        for id in wire.next(Ask::of(1).wait_ms(0)).ids() {
            assert!(ids.insert(id));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_start_that_cannot_write_is_refused() {
    let refusal: fn(&Ended, &[&str]) = |ended, parts| ended.assert_refusal(parts);
    let for_now: fn(&Ended, &[&str]) = |ended, parts| ended.assert_refusal_for_now(parts);
    for (orders, reason, assert) in [
        (format!("sync fail {EIO}"), "Input/output error", for_now),
        (format!("write fail {ENOSPC}"), "No space left on device", for_now),
        (format!("open fail {EROFS}"), "Read-only file system", refusal),
    ] {
        let machine = Machine::new();
        let disk = machine.disk();
        disk.order(&orders);
        assert(&disk.under(machine.setup()).end(), &[reason, machine.state().to_str().unwrap()]);
        disk.works();
        machine.start().stop();
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_refused() {
    let machine = Machine::new();
    fs::write(machine.path("file"), "").expect("written");
    let below = machine.path("file").join("state");
    let ended = machine.setup().env("SNOWBANK_STATE_DIR", &below).end();
    ended.assert_refusal(&["cannot create the state directory", below.to_str().unwrap(), "--state-dir none"]);
}

/// A machine on which a daemon has run, and the last ID that it handed out.
fn used() -> (Machine, u64) {
    let machine = Machine::new();
    let daemon = machine.start();
    let last = one(&mut daemon.connect());
    daemon.stop();
    (machine, last)
}

#[test]
fn damaged_files_are_refused_and_left_alone() {
    let (machine, _) = used();
    let whole = fs::read(machine.file()).expect("read");
    let mut flipped = whole.clone();
    for copy in [0, whole.len() / 2] {
        flipped[copy + 300] ^= 1;
    }
    let damaged = [
        ("emptied", Vec::new()),
        ("cut off in the header", whole[..100].to_vec()),
        ("cut off in the first copy", whole[..400].to_vec()),
        ("whose copies are both damaged", flipped),
        ("of something else", b"#!/bin/sh\n".repeat(1_000)),
    ];
    for (what, bytes) in damaged {
        fs::write(machine.file(), &bytes).expect("written");
        let ended = machine.setup().end();
        ended.assert_refusal(&[machine.file().to_str().unwrap(), "corrupt"]);
        assert_eq!(fs::read(machine.file()).expect("read"), bytes, "a file {what} was touched");
        assert_eq!(machine.command(&["show"]).status.code(), Some(1), "{what}");
    }
    fs::write(machine.file(), &whole).expect("written");
    machine.start().stop();
}

/// One page of one copy, or all of it, and the other copy has all that was granted.
#[test]
fn damage_to_the_last_raise_never_brings_back_a_lower_ceiling() {
    const PAGE_BYTES: usize = 4096;
    let machine = Machine::new();
    let mut daemon = machine.start();
    let first = machine.shown().bound;
    let mut wire = daemon.connect();
    let last = poll("two raises", || {
        let id = one(&mut wire);
        (twitter_unix_ms(machine.shown().bound) > twitter_unix_ms(first) + 1_500).then_some(id)
    });
    daemon.kill();
    let whole = fs::read(machine.file()).expect("read");
    let mut random = Random::seeded(1);
    for size in [PAGE_BYTES, whole.len() / 2] {
        for from in (0..whole.len()).step_by(size) {
            for bytes in [vec![0; size], random.bytes(size)] {
                let mut damaged = whole.clone();
                damaged[from..from + size].copy_from_slice(&bytes);
                fs::write(machine.file(), &damaged).expect("written");
                assert!(machine.shown().bound > last, "{size} bytes from {from} on were damaged");
            }
        }
    }
    fs::write(machine.file(), &whole[..whole.len() / 2]).expect("written");
    let bound = machine.shown().bound;
    let daemon = machine.start();
    assert!(one(&mut daemon.connect()) >= bound);
    daemon.stop();
    assert_eq!(fs::read(machine.file()).expect("read").len(), whole.len(), "both copies are there again");
}

#[test]
fn a_newer_file_is_refused_with_both_versions() {
    let (machine, _) = used();
    let slot_bytes = fs::read(machine.file()).expect("read").len() / 2;
    let newer = records::copy(7, 1_000, "of a later program", slot_bytes).repeat(2);
    fs::write(machine.file(), &newer).expect("written");
    machine.setup().end().assert_refusal(&["format 7", "reads up to 1", machine.file().to_str().unwrap()]);
    assert_eq!(fs::read(machine.file()).expect("read"), newer);
}

#[test]
fn a_file_of_an_older_program_is_refused() {
    let machine = Machine::new();
    let older = machine.state().join("ceilings.redb");
    fs::create_dir(machine.state()).expect("made");
    fs::write(&older, "redb").expect("written");
    machine.setup().end().assert_refusal(&[older.to_str().unwrap(), "state export", "state import"]);
    assert_eq!(machine.command(&["show"]).status.code(), Some(1));
}

#[test]
fn another_machines_state_needs_adopt_state() {
    let (machine, last) = used();
    machine.edit(|record| record["machine"] = "0123456789abcdef0123456789abcdef".into());
    if Path::new("/etc/machine-id").exists() {
        machine.setup().end().assert_refusal(&[
            "another machine's",
            "--adopt-state",
            machine.state().to_str().unwrap(),
        ]);
        assert_eq!(machine.command(&["export"]).status.code(), Some(1));
    }
    let daemon = machine.setup().args(["--adopt-state"]).start();
    assert!(one(&mut daemon.connect()) > last);
    assert!(daemon.log().contains("adopted the state of another machine"), "{}", daemon.log());
    daemon.stop();
    machine.start().stop();
}

/// The state as if the daemon had been killed while this far ahead of the clock.
fn ahead(machine: &Machine, ahead_ms: u64) {
    let tick = unix_ms() + ahead_ms - 1_288_834_974_657;
    machine.edit(|record| {
        let workers = if record["worker_ids"] == "0-3" { 4 } else { 1 };
        record["ceiling"] = (tick * 4_096 * workers).to_string().into();
        record["id_bound"] = (tick << 22).to_string().into();
        record["clean"] = false.into();
    });
}

#[test]
fn a_far_ceiling_is_waited_for() {
    let (machine, _) = used();
    ahead(&machine, 25_000);
    let bound = machine.shown().bound;
    let daemon = machine.start();
    let (code, retry_after_ms, _) = daemon.connect().next(Ask::of(1)).error();
    assert_eq!(code, CLOCK_BEHIND);
    assert!((1_000..=16_000).contains(&retry_after_ms), "{retry_after_ms}");
    daemon.stop();
    assert!(machine.shown().bound >= bound, "nothing was handed out, and nothing was forgotten");
}

#[test]
fn a_start_below_a_near_ceiling_catches_up() {
    let (machine, _) = used();
    ahead(&machine, 5_000);
    let bound = machine.shown().bound;
    let daemon = machine.start();
    assert!(one(&mut daemon.connect()) >= bound);
}

#[test]
fn changed_worker_ids_names_and_field_names_start_above() {
    let (machine, mut last) = used();
    let mut restart = |machine: &Machine, arguments: &[&str], toml: &str, what: &str| {
        ahead(machine, 2_000);
        let bound = machine.shown().bound;
        let daemon = machine.setup().config(toml).args(arguments).start();
        let id = one(&mut daemon.connect());
        assert!(id > last && id >= bound, "{what}: {id} is not above {bound} and {last}");
        last = id;
        daemon.stop();
    };
    restart(&machine, &["--worker-id", "0-3"], "", "more worker IDs");
    let renamed = "[[sources]]\nname = \"orders\"\nworker_ids = \"0-3\"";
    restart(&machine, &[], renamed, "another name");
    assert_eq!(machine.shown().name, "orders", "the old name is gone");
    let fields = "time:41,machine:10,sequence:12;epoch=1288834974657";
    restart(&machine, &["--layout", fields], renamed, "other field names");
    // Another worker ID and the same name: both records are kept, and both bind.
    let other = "[[sources]]\nname = \"orders\"\nworker_ids = 9";
    machine.setup().config(other).start().stop();
    let output = machine.command(&["show"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("source \"orders\"").count(), 2, "{text}");
}

#[test]
fn worker_ids_that_change_in_turn_gain_nothing_without_a_request() {
    let machine = Machine::new();
    let start = |worker: &str| {
        let layout = "time:30,worker:10,sequence:12;tick=3600s;epoch=2020-01-01T00:00:00Z";
        machine.setup().args(["--layout", layout, "--worker-id", worker]).start()
    };
    for worker in ["2", "1"].repeat(5) {
        start(worker).stop();
    }
    one(&mut start("2").connect());
}

#[test]
fn a_layout_whose_ids_lie_below_is_refused_naming_both() {
    let (machine, last) = used();
    // A later epoch: today's IDs are far below those of the old layout.
    let later = "time:41,datacenter:5,worker:5,sequence:12;epoch=2020-01-01";
    for toml in ["", "[[sources]]\nname = \"renamed\"\nworker_ids = 3"] {
        let ended = machine.setup().config(toml).args(["--layout", later]).end();
        ended.assert_refusal(&[
            "above those of layout twitter, ",
            "epoch=1577836800000",
            "it can start from 20",
            "keep layout twitter, or choose one whose IDs lie higher, or, ",
            "--state-dir",
        ]);
    }
    let short = "time:41,sequence:3";
    machine
        .setup()
        .args(["--layout", short])
        .end()
        .assert_refusal(&["all its IDs lie below that; keep layout twitter"]);
    // An earlier epoch: its IDs of today are larger anyway.
    let earlier = "time:41,datacenter:5,worker:5,sequence:12;epoch=2005-01-01";
    let daemon = machine.setup().args(["--layout", earlier]).start();
    assert!(one(&mut daemon.connect()) > last);
    daemon.stop();
    machine.setup().end().assert_refusal(&["source \"default\"", "epoch=1104537600000"]);
    // With a name of its own and a worker ID that nothing used, it is a source that may have been renamed and changed.
    let other = "[[sources]]\nname = \"other\"\nworker_ids = 8";
    machine.setup().config(other).end().assert_refusal(&["source \"other\"", "--state-dir"]);
    // Beside the one that it is not, it is its own.
    let both = format!("[[sources]]\nname = \"default\"\nlayout = \"{earlier}\"\n{other}");
    machine.setup().config(&both).start().stop();
}

#[test]
fn export_and_import_move_a_worker() {
    let (old, last) = used();
    let export = old.path("export.json");
    let file = export.to_str().unwrap();
    let done = old.command(&["export", "--output", file]);
    assert!(done.status.success(), "{done:?}");
    assert!(old.shown().released);
    assert_eq!(mode(&export), 0o600);
    old.setup().end().assert_refusal(&["state export` moved worker ID", "snowbank state import"]);
    let taken = old.command(&["export", "--output", file]);
    assert_eq!(taken.status.code(), Some(1), "a file that is there is not written over");
    let again = old.command(&["export"]);
    assert_eq!(again.stdout, fs::read(&export).expect("read"), "an export can be had again");

    let new = Machine::new();
    let done = new.command(&["import", file]);
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("worker ID 0: goes on from ID "), "{done:?}");
    let daemon = new.start();
    let id = one(&mut daemon.connect());
    assert!(id > last);
    let refused = new.command(&["import", file]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is in use"), "{refused:?}");
    daemon.stop();
    let refused = new.command(&["import", file]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("were granted") && said.lines().count() == 1, "{said}");

    // Into another directory of the machine while a daemon has the worker ID.
    let daemon = new.start();
    let elsewhere = new.path("elsewhere");
    let refused = new.command(&["import", "--state-dir", elsewhere.to_str().unwrap(), file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("worker ID 0"), "{refused:?}");
    daemon.stop();

    // And back.
    let back = new.command(&["export"]);
    fs::write(new.path("back.json"), &back.stdout).expect("written");
    let done = old.command(&["import", new.path("back.json").to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    let daemon = old.start();
    assert!(one(&mut daemon.connect()) > id);
}

#[test]
fn other_files_than_exports_are_refused() {
    let machine = Machine::new();
    for (text, reason) in [
        ("", "not an export"),
        ("{}", "not an export"),
        ("{\"snowbank_state_format\":1,\"records\":[]}", "no source"),
        ("{\"snowbank_state_format\":9,\"records\":[{}]}", "format 9"),
    ] {
        fs::write(machine.path("export"), text).expect("written");
        let refused = machine.command(&["import", machine.path("export").to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(reason) && said.lines().count() == 1, "{text:?}: {said}");
    }
    assert_eq!(machine.command(&["show"]).status.code(), Some(1), "there is no state");
}

#[test]
fn show_prints_sentences_without_json() {
    let (machine, _) = used();
    let output = machine.command(&["show"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["not in use", "source \"default\"", "behind now", "this boot", "clean", "worker IDs  0"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn without_a_state_directory_it_logs_what_is_not_covered() {
    let machine = Machine::new();
    let daemon = machine.setup().args(["--state-dir", "none"]).start();
    one(&mut daemon.connect());
    assert!(daemon.log().contains("not covered"), "{}", daemon.log());
    assert!(!machine.state().exists());
}

#[test]
fn the_default_directory_comes_from_the_environment() {
    let machine = Machine::new();
    let home = machine.path("home");
    let at = |variable: &str, value: &Path| {
        let setup =
            machine.setup().env("SNOWBANK_STATE_DIR", "").env("HOME", &home).env("XDG_STATE_HOME", "");
        setup.env("STATE_DIRECTORY", "").env(variable, value)
    };
    at("HOME", &home).start().stop();
    assert!(home.join(".local/state/snowbank/ceilings").exists());
    at("XDG_STATE_HOME", &machine.path("xdg")).start().stop();
    assert!(machine.path("xdg/snowbank/ceilings").exists());
    let list = format!("{}:{}", machine.path("service").display(), machine.path("other").display());
    at("STATE_DIRECTORY", Path::new(&list)).start().stop();
    assert!(machine.path("service/ceilings").exists());
    at("HOME", Path::new("")).end().assert_refusal(&["--state-dir none", "$XDG_STATE_HOME"]);
}

#[test]
fn a_start_that_fails_later_gives_back_what_it_was_granted() {
    let (machine, _) = used();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    for _ in 0..3 {
        machine
            .setup()
            .env("SNOWBANK_LISTEN", &address)
            .args(["--listen", &address])
            .end()
            .assert_refusal_for_now(&[&address]);
    }
    let shown = machine.shown();
    assert!(shown.clean && twitter_unix_ms(shown.bound) <= unix_ms() + 2, "{shown:?}");
}

impl Machine {
    /// Copies the state as a backup does, one file after another, however busy its daemon is.
    fn back_up(&self) -> Vec<u8> {
        poll("a whole copy", || {
            let bytes = fs::read(self.file()).expect("the state is there");
            (fs::read(self.file()).expect("read again") == bytes).then_some(bytes)
        })
    }

    /// Puts a copy in the place of the state.
    fn restore(&self, copy: &[u8]) {
        fs::write(self.file(), copy).expect("written");
    }

    /// Below which ID the only worker ID was granted, as its lock says. The state may say more by a raise, if a kill fell between.
    fn marked(&self) -> u64 {
        let lock = fs::read_dir(self.path("locks")).expect("read").next().expect("a lock").expect("read");
        let text = fs::read_to_string(lock.path()).expect("text");
        let mark = text.lines().nth(1).expect("a mark");
        mark.split(' ').find_map(|word| word.parse().ok().filter(|_| word.len() == 20)).expect("an ID")
    }

    fn assert_older_is_refused(&self) {
        let refusal = ["is older than the one that served", "newest state directory", "--adopt-state once"];
        self.setup().end().assert_refusal(&refusal);
        self.setup().end().assert_refusal(&[&self.state().display().to_string(), "\"default\""]);
    }
}

/// Draws until the state says that more was granted than now, and gives the last ID.
fn draw_past_a_raise(machine: &Machine, daemon: &Daemon) -> u64 {
    let (mut wire, bound) = (daemon.connect(), machine.shown().bound);
    poll("an ID above the ceiling of before", || Some(one(&mut wire)).filter(|&id| id > bound))
}

#[test]
fn a_backup_is_refused_once_more_was_handed_out() {
    let machine = Machine::new();
    let daemon = machine.setup().config("max_ahead = \"202ms\"").start();
    let running = machine.back_up();
    draw_past_a_raise(&machine, &daemon);
    daemon.stop();
    let clean = machine.back_up();
    machine.restore(&running);
    machine.assert_older_is_refused();
    assert_eq!(machine.back_up(), running, "it is left as it is");
    let export = machine.command(&["export"]);
    assert_eq!(export.status.code(), Some(1), "{export:?}");
    assert!(
        String::from_utf8_lossy(&export.stderr).contains("is older than the state that served"),
        "{export:?}"
    );
    assert_eq!(export.stdout, b"");

    // The newest is as good as ever, and after another life a copy of it no more.
    machine.restore(&clean);
    let mut daemon = machine.start();
    let last = draw_past_a_raise(&machine, &daemon);
    daemon.kill();
    let killed = machine.back_up();
    machine.restore(&clean);
    machine.assert_older_is_refused();
    machine.restore(&killed);
    assert!(one(&mut machine.start().connect()) > last);
}

#[test]
fn an_older_copy_is_adopted_once_the_clock_is_past_what_was_granted() {
    let machine = Machine::new();
    let adopted = || machine.setup().args(["--adopt-state"]);
    let mut daemon = machine.start();
    let copy = machine.back_up();
    let last = draw_past_a_raise(&machine, &daemon);
    daemon.kill();
    let bound = machine.marked();
    machine.restore(&copy);
    adopted().end().assert_refusal_for_now(&["the clock gets there in ", "--adopt-state then"]);
    machine.assert_older_is_refused();
    poll("the clock gets there", || (unix_ms() > twitter_unix_ms(bound)).then_some(()));
    let daemon = adopted().start();
    let id = one(&mut daemon.connect());
    assert!(id >= bound && bound > last, "{id} is not above {bound} and {last}");
    assert!(daemon.log().contains("adopted an older copy of the state"), "{}", daemon.log());
    daemon.stop();
    machine.start().stop();
    machine.restore(&copy);
    machine.assert_older_is_refused();
}

/// Copies that take turns: each start is compared with all that the machine has granted, whichever served.
#[test]
fn two_copies_used_in_turn_repeat_nothing() {
    let machine = Machine::new();
    machine.start().stop();
    let mut copies = [machine.back_up(), machine.back_up()];
    let (mut ids, mut granted_until) = (BTreeSet::new(), 0);
    for round in 0..8 {
        let copy = &mut copies[round % 2];
        machine.restore(copy);
        poll("the clock is past all that was granted", || (unix_ms() > granted_until).then_some(()));
        let mut daemon = machine.setup().config("max_ahead = \"102ms\"").args(["--adopt-state"]).start();
        let mut wire = daemon.connect();
        for _ in 0..5 {
            let reply = wire.next(Ask::of(100));
            assert!(reply.ids().into_iter().all(|id| ids.insert(id)), "round {round}: an ID came twice");
        }
        drop(wire);
        match round % 3 {
            0 => daemon.kill(),
            _ => drop(daemon.stop()),
        }
        granted_until = granted_until.max(twitter_unix_ms(machine.shown().bound));
        *copy = machine.back_up();
    }
}

#[test]
fn a_new_directory_starts_above_what_the_old_one_was_granted() {
    let machine = Machine::new();
    let mut daemon = machine.start();
    let last = one(&mut daemon.connect());
    daemon.kill();
    let bound = machine.marked();
    fs::remove_dir_all(machine.state()).expect("removed");
    let daemon = machine.start();
    let id = one(&mut daemon.connect());
    assert!(id >= bound && bound > last, "{id} is not above {bound} and {last}");
    daemon.stop();
    // Two directories that take turns are not copies of each other.
    let other = || machine.setup().env("SNOWBANK_STATE_DIR", machine.path("other"));
    let mut last = id;
    for setup in [other(), machine.setup(), other(), machine.setup()] {
        let daemon = setup.start();
        let id = one(&mut daemon.connect());
        assert!(id > last);
        last = id;
        daemon.stop();
    }
}

/// An export carries what is kept of earlier configurations, too: of two records with one worker ID the furthest counts.
#[test]
fn an_export_of_several_configurations_can_be_imported_again() {
    let machine = Machine::new();
    machine.setup().config("worker_ids = \"0-1\"").start().stop();
    let daemon = machine.setup().config("worker_ids = 1").start();
    let last = one(&mut daemon.connect());
    daemon.stop();
    let exported = machine.command(&["export", "--output", machine.path("export").to_str().unwrap()]);
    assert!(exported.status.success(), "{exported:?}");
    let new = Machine::new();
    for _ in 0..2 {
        let done = new.command(&["import", machine.path("export").to_str().unwrap()]);
        assert!(done.status.success(), "{done:?}");
        assert_eq!(String::from_utf8_lossy(&done.stdout).lines().count(), 2, "{done:?}");
    }
    assert!(one(&mut new.setup().config("worker_ids = 1").start().connect()) > last);
}

#[test]
fn an_older_copy_does_not_undo_an_export() {
    let (machine, _) = used();
    let copy = machine.back_up();
    let exported = machine.command(&["export", "--output", machine.path("export").to_str().unwrap()]);
    assert!(exported.status.success(), "{exported:?}");
    machine.restore(&copy);
    machine.setup().end().assert_refusal(&["state export` moved worker ID", "snowbank state import"]);
    machine.setup().args(["--adopt-state"]).end().assert_refusal(&["state export` moved worker ID"]);
    fs::remove_dir_all(machine.state()).expect("removed");
    machine.setup().end().assert_refusal(&["state export` moved worker ID"]);
    let import = |code| {
        let done = machine.command(&["import", machine.path("export").to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
    };
    import(0);
    let daemon = machine.start();
    one(&mut daemon.connect());
    daemon.stop();
    // Used up, wherever it is imported.
    fs::remove_dir_all(machine.state()).expect("removed");
    import(1);
}

#[test]
fn a_daemon_without_a_state_starts_above_what_others_were_granted() {
    let machine = Machine::new();
    let config = "max_ahead = \"402ms\"";
    let mut daemon = machine.setup().config(config).start();
    let last = one(&mut daemon.connect());
    daemon.kill();
    let bound = machine.marked();
    let mut daemon = machine.setup().config(config).args(["--state-dir", "none"]).start();
    let id = one(&mut daemon.connect());
    assert!(id >= bound && bound > last, "{id} is not above {bound} and {last}");
    daemon.kill();
    machine.start().stop();
}

/// As after a boot, which empties the directory of the locks: nothing is left that could tell. Then the clock alone protects.
#[test]
fn an_empty_lock_directory_does_not_reveal_an_older_copy() {
    let (machine, _) = used();
    let copy = machine.back_up();
    let daemon = machine.start();
    let last = one(&mut daemon.connect());
    daemon.stop();
    machine.restore(&copy);
    machine.assert_older_is_refused();
    fs::remove_dir_all(machine.path("locks")).expect("removed");
    thread::sleep(Duration::from_millis(50));
    assert!(one(&mut machine.start().connect()) > last, "the clock has gone on");
}

#[test]
fn a_malformed_mark_is_refused_and_an_old_format_counts_as_none() {
    let (machine, last) = used();
    let locks = fs::read_dir(machine.path("locks")).expect("read");
    let lock = locks.map(|entry| entry.expect("read").path()).next().expect("a lock");
    let whole = fs::read(&lock).expect("read");
    let holder_bytes = whole.iter().position(|&byte| byte == b'\n').expect("a holder's line") + 1;
    let (said, marked) = whole.split_at(holder_bytes);
    assert!(marked.starts_with(b"granted  below ID "), "{}", String::from_utf8_lossy(marked));
    for noise in [&b"granted"[..], &[0; 64], &[b'9'; 4_096]] {
        fs::write(&lock, [said, noise].concat()).expect("written");
        machine.setup().end().assert_refusal(&[lock.to_str().unwrap(), "remove it"]);
    }
    fs::write(&lock, "process 1, worker ID 0, of a program that marks nothing\n").expect("written");
    let daemon = machine.start();
    assert!(one(&mut daemon.connect()) > last);
    daemon.stop();
    fs::remove_file(&lock).expect("removed");
    assert!(Command::new("mkfifo").arg(&lock).status().expect("mkfifo runs").success());
    machine.setup().end().assert_refusal_for_now(&[lock.to_str().unwrap(), "not a regular file"]);
}

/// A state from before states had an identity: it is read as it is, and has one from its next start on.
#[test]
fn a_state_without_an_identity_gets_one_and_keeps_it() {
    let (machine, last) = used();
    let identity = || {
        let shown = machine.command(&["show", "--json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        shown["sources"][0]["owner"]["state"].as_str().unwrap_or_default().to_owned()
    };
    let first = identity();
    machine.start().stop();
    assert_eq!(identity(), first);
    machine.edit(|record| {
        record["owner"].as_object_mut().expect("an owner").remove("state");
    });
    assert_eq!(identity(), "");
    let daemon = machine.start();
    assert!(one(&mut daemon.connect()) > last);
    daemon.stop();
    assert!(identity().len() == 32 && identity() != first);
}

/// Killed while it stops, or stopped on a disk that fails: the state that is left is the newest, wherever it was caught.
#[test]
fn a_stop_that_is_cut_short_is_not_taken_for_an_older_copy() {
    for orders in ["sync stall 400".to_owned(), format!("sync lie {EIO}"), format!("write fail {ENOSPC}")] {
        let machine = Machine::new();
        let disk = machine.disk();
        let mut last = 0;
        for _ in 0..3 {
            let mut daemon = disk.under(machine.setup().config("max_ahead = \"302ms\"")).start();
            let id = one(&mut daemon.connect());
            assert!(id > last, "{orders}");
            last = id;
            disk.order(&orders);
            daemon.signal(Signal::TERM);
            match orders.contains("stall") {
                true => {
                    thread::sleep(Duration::from_millis(150));
                    daemon.kill();
                }
                false => assert_eq!(daemon.wait(), Some(0), "{}", daemon.log()),
            }
            disk.works();
        }
    }
}

#[test]
fn a_source_that_joins_is_marked_like_the_others() {
    let source = |name: &str, worker: u32| format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n");
    let machine = Machine::new();
    let mut daemon = machine.setup().config(&source("first", 1)).start();
    let both = source("first", 1) + &source("second", 2);
    fs::write(daemon.path("snowbank.toml"), &both).expect("written");
    daemon.signal(Signal::HUP);
    let marks = || {
        let locks = fs::read_dir(machine.path("locks")).expect("read");
        let locks = locks.map(|entry| fs::read_to_string(entry.expect("read").path()).expect("text"));
        locks.filter(|text| text.lines().nth(1).is_some_and(|mark| mark.starts_with("granted"))).count()
    };
    poll("two marks", || (marks() == 2).then_some(()));
    let copy = machine.back_up();
    poll("a raise", || {
        daemon.connect().next(Ask::of(1).source(1)).ids();
        (machine.back_up() != copy).then_some(())
    });
    thread::sleep(Duration::from_millis(1_500));
    daemon.kill();
    machine.restore(&copy);
    machine
        .setup()
        .config(&source("second", 2))
        .end()
        .assert_refusal(&["is older than the one", "\"second\""]);
}
