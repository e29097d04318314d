//! Storage that fails, hangs or is full: the state file's promises when calls fail.

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
        assert!(unix_ms() >= twitter_unix_ms(bound), "{what}: it serves up to the ceiling");
        // The next attempts fail, too.
        thread::sleep(Duration::from_millis(1_200));
        assert!(wire.next(Ask::of(1).wait_ms(50)).id_count().is_none(), "{what}");
        disk.works();
        draw_until_served(&mut wire, &mut ids);
        assert_ne!(inode(), before, "{what}: a file whose sync failed is not trusted again");
        let said = poll("it says so", || Some(daemon.log()).filter(|said| said.contains("ready again")));
        // A busy machine's slow disk may have been a finding before, but nothing worse.
        assert!(said.contains("finding ceiling of default has ended"), "{what}: {said}");
        for line in ["not ready: /readyz answers 503, because of ceiling of default", "ready again: "] {
            assert_eq!(said.matches(line).count(), 1, "{what}: {line:?} is not said once:\n{said}");
        }
        let last = *ids.last().expect("IDs");
        drop(daemon);
        // In the end the file is whole, and above all IDs handed out.
        assert!(machine.shown().bound > last, "{what}");
        let daemon = machine.start("");
        assert!(daemon.draw_one() > last, "{what}");
    });
}

/// A power failure keeps only what was synced: a file is written, synced and renamed, and then its
/// name is synced. The name of each directory that was made for the file is synced, too.
#[test]
fn a_new_state_file_is_on_the_disk_before_it_counts() {
    const NEW: &str = "in/here/ceilings.new";
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("disk"), machine.path("orders"));
    let setup = || {
        let setup = machine.setup("max_ahead = \"302ms\"");
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
    // A start that was killed may have made a directory without syncing its name.
    fs::create_dir_all(machine.path("disk/in")).expect("made");
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
    // A start writes in place. Its file and directory may come from an operator who did not sync
    // them.
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
    // If the sync of a name fails, nothing is served.
    disk.order(&format!("name fail {EIO}"));
    setup().end().assert_refusal_for_now(&[
        "cannot create the state directory or make its name durable",
        "disk/in/here",
    ]);
}

/// The sync of the directory failed after the rename, so a power failure may bring the old file
/// back. A repeated sync proves nothing. Only another new file helps, and there is no space for
/// one.
#[test]
fn a_file_with_a_name_not_durable_is_unused_on_a_full_disk() {
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
    poll("a new file has the name", || {
        wire.next(Ask::of(1).wait_ms(50)).assert_error(0, NO_CEILING);
        (inode() != before).then_some(())
    });
    disk.order(&format!("name fail {EIO}\nopen fail {ENOSPC}"));
    // When the next attempt begins, any attempt that opened its file before the order is over.
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
    // The horizon is two ticks of this layout: 8 s. So a busy machine has seconds for a raise.
    let layout = "layout = \"time:30,worker:10,sequence:20;tick=4s\"";
    let daemon = disk.under(machine.setup(layout)).start();
    let mut wire = daemon.connect();
    let mut ids = BTreeSet::from([wire.next(Ask::of(1)).ids()[0]]);
    disk.order("sync stall 1000");
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        // For longer than the horizon, no request allows a wait.
        for id in wire.next(Ask::of(1).wait_ms(0)).ids() {
            assert!(ids.insert(id));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
