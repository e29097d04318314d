//! Storage that fails, hangs or is full.

use super::*;

#[test]
fn failing_syncs_stop_the_ids_until_storage_works() {
    let cases = [
        (format!("sync fail {EIO}"), "syncs fail"),
        (format!("sync lie {EIO}"), "syncs fail after they were done"),
        (format!("write fail {ENOSPC}"), "the disk is full"),
        (format!("write short 100\nsync fail {EIO}"), "writes are short and syncs fail"),
        (format!("any fail {EIO}"), "everything fails"),
    ];
    each_case(&cases, |(orders, what)| {
        let machine = Machine::new();
        let disk = machine.disk();
        let daemon = disk.under(machine.setup("max_ahead = \"2002ms\"")).start();
        let mut wire = daemon.connect();
        let mut ids = BTreeSet::from([wire.next(Ask::of(1)).ids()[0]]);
        let inode = || fs::metadata(machine.file()).expect("the file is there").ino();
        let before = inode();
        let bound = machine.shown().bound;
        disk.order(orders);
        let message = draw_until_no_ceiling(&mut wire, &mut ids);
        assert!(message.contains("ceiling"), "{what}: {message}");
        assert!(unix_ms() >= twitter_unix_ms(bound), "{what}: the daemon refused before the ceiling");
        // The next attempts to raise the ceiling fail as well.
        thread::sleep(Duration::from_millis(1_200));
        assert!(wire.next(Ask::of(1).wait_ms(50)).id_count().is_none(), "{what}");
        disk.works();
        draw_until_served(&mut wire, &mut ids);
        assert_ne!(inode(), before, "{what}: the daemon still uses the file whose sync failed");
        // On a busy machine a slow disk may have been a finding before. So the log may have the line
        // about it several times.
        let said = poll("both ends in the log", || {
            let ended = ["ready again", "finding ceiling of default has ended"];
            Some(daemon.log()).filter(|said| ended.iter().all(|line| said.contains(line)))
        });
        for line in ["not ready: /readyz answers 503, because of ceiling of default", "ready again: "] {
            assert_eq!(said.matches(line).count(), 1, "{what}: {line:?} is not logged once:\n{said}");
        }
        let last = *ids.last().expect("IDs");
        drop(daemon);
        // In the end the file is whole, and its bound is above all IDs handed out.
        assert!(machine.shown().bound > last, "{what}");
        let daemon = machine.start("");
        assert!(daemon.draw_one() > last, "{what}");
    });
}

/// Checks that a new state file is written, synced and renamed, and its directory then synced.
#[track_caller]
fn assert_synced_in_order(calls: &[String], what: &str) {
    const NEW: &str = "in/here/ceilings.new";
    let renamed = calls.iter().position(|call| call == "rename in/here/ceilings");
    let renamed = renamed.unwrap_or_else(|| panic!("{what}: the file is not renamed: {calls:?}"));
    let written = calls[..renamed].iter().rposition(|call| *call == format!("write {NEW}"));
    let written = written.unwrap_or_else(|| panic!("{what}: the file is not written: {calls:?}"));
    assert!(
        calls[written..renamed].contains(&format!("sync {NEW}")),
        "{what}: the file is renamed before it is synced: {calls:?}"
    );
    let next = calls.get(renamed + 1).map(String::as_str);
    assert_eq!(next, Some("sync in/here"), "{what}: the directory is not synced: {calls:?}");
}

/// After a power failure only synced data is left. So the daemon writes, syncs and renames a new
/// file, and then syncs its directory. It also syncs the parent of each directory that it made.
#[test]
fn a_new_state_file_is_synced_before_it_is_used() {
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("disk"), machine.path("orders"));
    let setup = || {
        let setup = machine.setup("max_ahead = \"302ms\"");
        disk.under(setup.env("SNOWBANK_STATE_DIR", machine.path("disk/in/here")))
    };
    // A killed start may have made this directory without a sync of its parent.
    fs::create_dir_all(machine.path("disk/in")).expect("mkdir");
    let daemon = setup().start();
    let calls = disk.calls();
    assert_synced_in_order(&calls, "the first start");
    for made in ["sync .", "sync in"] {
        assert!(calls.iter().any(|call| call == made), "the start did not make the call {made:?}: {calls:?}");
    }
    // The daemon makes the calls in the same order for a new file after a failed sync.
    let mut wire = daemon.connect();
    disk.order(&format!("sync fail {EIO}"));
    draw_until_no_ceiling(&mut wire, &mut BTreeSet::new());
    let before = disk.calls().len();
    disk.works();
    draw_until_served(&mut wire, &mut BTreeSet::new());
    let calls = disk.calls()[before..].to_vec();
    let last_new = calls.iter().rposition(|call| call.starts_with("open") && call.ends_with("ceilings.new"));
    assert_synced_in_order(&calls[last_new.expect("a new file")..], "after a failure");
    daemon.stop();
    let before = disk.calls().len();
    let mut daemon = setup().start();
    // A start writes the existing file in place. It also syncs the directories, because an operator
    // may have put the file there without a sync.
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
    // If the sync of a directory fails, the daemon does not start.
    disk.order(&format!("name fail {EIO}"));
    setup().end().assert_refusal_for_now(&[
        "cannot create the state directory or make its name durable",
        "disk/in/here",
    ]);
}

/// The sync of the directory fails after the rename, so a power failure may bring the old file
/// back. The daemon must write another new file, because a repeated sync of the directory proves
/// nothing. But the disk has no space for another file.
#[test]
fn a_state_file_whose_rename_was_not_synced_is_not_used() {
    let machine = Machine::new();
    let disk = machine.disk();
    let daemon = disk.under(machine.setup("max_ahead = \"302ms\"")).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::new();
    let inode = || fs::metadata(machine.file()).expect("the file is there").ino();
    disk.order(&format!("sync fail {EIO}"));
    draw_until_no_ceiling(&mut wire, &mut ids);
    let before = inode();
    disk.order(&format!("name fail {EIO}"));
    poll("a renamed new file", || {
        wire.next(Ask::of(1).wait_ms(50)).assert_error(0, NO_CEILING);
        (inode() != before).then_some(())
    });
    disk.order(&format!("name fail {EIO}\nopen fail {ENOSPC}"));
    // When the next attempt begins, all attempts that began before this order have ended.
    let before = disk.calls().len();
    let is_new = |call: &String| call.starts_with("open") && call.ends_with("ceilings.new");
    poll("the next attempt", || disk.calls()[before..].iter().any(is_new).then_some(()));
    disk.order(&format!("open fail {ENOSPC}"));
    for _ in 0..15 {
        wire.next(Ask::of(1).wait_ms(100)).assert_error(0, NO_CEILING);
    }
    disk.works();
    draw_until_served(&mut wire, &mut ids);
}

#[test]
fn slow_syncs_delay_no_request() {
    let machine = Machine::new();
    let disk = machine.disk();
    // The horizon is two of these long ticks, so a busy machine has seconds for a raise.
    let layout = "layout = \"time:30,worker:10,sequence:20;tick=4s\"";
    let daemon = disk.under(machine.setup(layout)).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::from([wire.next(Ask::of(1)).ids()[0]]);
    disk.order("sync stall 1000");
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        // No request allows a wait. The loop lasts longer than the horizon.
        for id in wire.next(Ask::of(1).wait_ms(0)).ids() {
            assert!(ids.insert(id));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
