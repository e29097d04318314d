//! Starts of the shipped daemon: over older copies, under clocks that were wrong, with changed worker IDs, and without a
//! state.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use support::ids::{twitter_unix_ms, unix_ms};
use support::machine::Machine;
use support::{Ask, Wire, poll};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory is made");
    for entry in fs::read_dir(from).expect("the directory is there") {
        let entry = entry.expect("the directory can be read");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("the file is copied");
    }
}

/// Draws this many IDs, none of which may come twice.
fn draw(wire: &mut Wire, count: u32, ids: &mut BTreeSet<u64>) {
    for id in wire.next(Ask::of(count).wait_ms(10_000)).ids() {
        assert!(ids.insert(id), "{id} came twice");
    }
}

/// Beyond the tick of the last ID, an older copy repeats none, however far `burst_window` reaches back.
#[test]
fn an_older_copy_repeats_nothing_once_the_clock_is_past_the_last_id() {
    const TOML: &str = "burst_window = \"5s\"";
    let machine = Machine::new();
    machine.start(TOML).stop();
    copy(&machine.path("state"), &machine.path("older"));
    let mut ids = BTreeSet::new();
    let daemon = machine.start(TOML);
    let mut wire = daemon.connect();
    (0..20).for_each(|_| draw(&mut wire, 20_000, &mut ids));
    daemon.stop();

    let last_ms = twitter_unix_ms(*ids.last().expect("IDs"));
    poll("the clock is past the last ID", || (unix_ms() > last_ms).then_some(()));
    // After a boot nothing is left of the marks.
    fs::remove_dir_all(machine.path("locks")).expect("the marks are there");
    let older = machine.setup(TOML).env("SNOWBANK_STATE_DIR", machine.path("older")).start();
    let mut wire = older.connect();
    (0..20).for_each(|_| draw(&mut wire, 20_000, &mut ids));
    older.stop();
}
