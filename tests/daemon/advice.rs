//! The advice of refusals: whoever does what a message says gets no ID twice.

use std::collections::HashSet;
use std::fs;

use crate::support::machine::Machine;
use crate::support::{Ask, Daemon, Setup};

/// The IDs that were handed out in a test.
#[derive(Default)]
struct Seen(HashSet<u64>);

impl Seen {
    /// Draws IDs. Each must be new.
    fn draw(&mut self, daemon: &Daemon) {
        for run in daemon.connect().next(Ask::of(20_000)).runs() {
            for id in run.ids() {
                assert!(self.0.insert(id), "{id} came twice");
            }
        }
    }

    /// Starts daemons that are killed, so that the last IDs are ahead of the clock.
    fn crash(&mut self, machine: &Machine, toml: &str) {
        for _ in 0..10 {
            let mut daemon = machine.start(toml);
            self.draw(&daemon);
            daemon.kill();
        }
    }

    /// Starts a daemon after the operator has done as the message said.
    fn go_on(&mut self, setup: Setup) {
        let daemon = setup.start();
        self.draw(&daemon);
        self.draw(&daemon);
        daemon.stop();
    }
}

#[test]
fn a_foreign_state_gives_way_to_worker_ids_of_ones_own() {
    if !crate::support::has_machine_id() {
        return;
    }
    let (machine, mut seen) = (Machine::new(), Seen::default());
    seen.crash(&machine, "worker_ids = 5");
    machine.edit(|record| record["machine"] = "another".into());
    let advice = ["worker IDs that no daemon uses, and an empty --state-dir", "has stopped for good"];
    machine.setup("worker_ids = 5").end().assert_refusal(&advice);
    // The other machine still runs, with worker ID 5.
    seen.go_on(machine.beside("worker_ids = 7"));
}

#[test]
fn a_further_daemon_takes_a_directory_and_worker_ids_of_its_own() {
    let (machine, mut seen) = (Machine::new(), Seen::default());
    let daemon = machine.start("worker_ids = 5");
    seen.draw(&daemon);
    // On a busy machine the daemon may listen before it is refused.
    for (setup, advice) in [
        (machine.setup("worker_ids = 7"), "worker IDs of its own"),
        (machine.beside("worker_ids = 5"), "a worker ID that no daemon uses"),
    ] {
        let ended = setup.end();
        assert!(ended.code == Some(3) && ended.stderr.contains(advice), "{ended:?}");
    }
    seen.go_on(machine.beside("worker_ids = 7"));
    seen.draw(&daemon);
}

/// The state directory and the locks of an unusable directory are as they were.
#[test]
fn an_unusable_directory_is_mended_and_not_replaced() {
    let (machine, mut seen) = (Machine::new(), Seen::default());
    seen.crash(&machine, "worker_ids = 5");
    fs::rename(machine.state(), machine.path("kept")).expect("renamed");
    fs::write(machine.state(), "").expect("written");
    let ended = machine.setup("worker_ids = 5").end();
    ended.assert_refusal(&["allowed: a directory"]);
    assert!(!ended.stderr.contains("none") && !ended.stderr.contains("another"), "{}", ended.stderr);
    fs::remove_file(machine.state()).expect("removed");
    fs::rename(machine.path("kept"), machine.state()).expect("renamed");
    // A boot empties the directory of the locks.
    fs::remove_dir_all(machine.path("locks")).expect("removed");
    seen.go_on(machine.setup("worker_ids = 5"));
}

#[test]
fn a_damaged_state_is_moved_away() {
    let (machine, mut seen) = (Machine::new(), Seen::default());
    seen.crash(&machine, "worker_ids = 5");
    machine.restore(b"");
    let advice =
        ["past every ID handed out, move the file away", "`snowbank state export` moved away from here"];
    machine.setup("worker_ids = 5").end().assert_refusal(&advice);
    fs::rename(machine.file(), machine.path("damaged")).expect("renamed");
    seen.go_on(machine.setup("worker_ids = 5"));
}

#[test]
fn worker_ids_that_were_moved_come_back_with_the_last_export() {
    let (machine, other, mut seen) = (Machine::new(), Machine::new(), Seen::default());
    seen.crash(&machine, "worker_ids = 5");
    let file = |machine: &Machine, name| machine.path(name).display().to_string();
    let (there, back) = (file(&machine, "there"), file(&machine, "back"));
    assert_eq!(machine.run(&["state", "export", "--output", &there]).code, Some(0));
    machine.setup("worker_ids = 5").end().assert_refusal(&["stop the daemon that has them now"]);
    assert_eq!(other.run(&["state", "import", &there]).code, Some(0));
    seen.crash(&other, "worker_ids = 5");
    assert_eq!(other.run(&["state", "export", "--output", &back]).code, Some(0));
    assert_eq!(machine.run(&["state", "import", &back]).code, Some(0));
    seen.go_on(machine.setup("worker_ids = 5"));
}

/// The new machine's daemon started before the import, so its state is the newest one.
#[test]
fn an_import_that_came_too_late_goes_through_the_old_machine() {
    let (old, new, mut seen) = (Machine::new(), Machine::new(), Seen::default());
    let file = |machine: &Machine, name| machine.path(name).display().to_string();
    let export = |machine: &Machine, name| {
        machine.run(&["state", "export", "--output", &file(machine, name)]).printed();
    };
    let toml = "[[sources]]\nname = \"a\"\nworker_ids = 5\n";
    let both = format!("{toml}[[sources]]\nname = \"b\"\nworker_ids = 6\n");
    seen.go_on(old.setup(&both));
    export(&old, "first");
    seen.go_on(new.setup(toml));
    let late = new.run(&["state", "import", &file(&old, "first")]).refusal(1);
    assert!(
        late.contains("goes on without an import") && late.contains("import that where this export"),
        "{late}"
    );
    seen.go_on(new.setup(toml));
    export(&new, "back");
    old.run(&["state", "import", &file(&new, "back")]).printed();
    export(&old, "last");
    let stale = old.run(&["state", "import", &file(&old, "first")]).refusal(1);
    assert!(stale.contains("were moved away from here"), "{stale}");
    new.run(&["state", "import", &file(&old, "last")]).printed();
    seen.go_on(new.setup(&both));
}

#[test]
fn a_counter_with_a_damaged_mark_is_set() {
    let (machine, mut seen) = (Machine::new(), Seen::default());
    let toml = "[[sources]]\nname = \"t\"\nkind = \"ticket\"";
    machine.setup(toml).end().assert_refusal(&["or 0 if none was"]);
    let set = |value: &str| machine.run(&["ticket", "set", "t", value]).code;
    assert_eq!(set("0"), Some(0));
    let copy = machine.back_up();
    seen.crash(&machine, toml);
    // The state is an older copy, and nothing shows it once the mark is gone.
    machine.restore(&copy);
    let mark =
        fs::read_dir(machine.path("locks")).expect("read").next().expect("a lock").expect("read").path();
    let text = fs::read_to_string(&mark).expect("text");
    fs::write(&mark, text.replace("granted", "gra??ed")).expect("written");
    machine.setup(toml).end().assert_refusal(&["snowbank ticket set` with the highest number"]);
    fs::remove_file(&mark).expect("removed");
    assert_eq!(set(&seen.0.iter().max().expect("numbers").to_string()), Some(0));
    seen.go_on(machine.setup(toml));
}

/// A backup is restored on new hardware. Its counter needs the table's highest number and nothing
/// else; the other records there are still another machine's.
#[test]
fn a_restored_counter_is_set_before_its_first_start() {
    if !crate::support::has_machine_id() {
        return;
    }
    let counter = "[[sources]]\nname = \"t\"\nkind = \"ticket\"\n";
    for other in ["", "[[sources]]\nname = \"a\"\nworker_ids = 5\n"] {
        let (machine, mut seen) = (Machine::new(), Seen::default());
        let toml = format!("{counter}{other}");
        let set = |value: u64| machine.run(&["ticket", "set", "t", &value.to_string()]).printed();
        set(0);
        seen.crash(&machine, &toml);
        let copy = machine.back_up();
        seen.crash(&machine, &toml);
        machine.restore(&copy);
        fs::remove_dir_all(machine.path("locks")).expect("removed");
        machine.edit(|record| record["machine"] = "another".into());
        let advice = format!("run `snowbank ticket set t VALUE --state-dir {} ", machine.state().display());
        machine.setup(&toml).end().assert_refusal(&[&advice, "start with --adopt-state"]);
        set(*seen.0.iter().max().expect("numbers"));
        let mut adopted = machine.setup(&toml);
        if !other.is_empty() {
            machine.setup(&toml).end().assert_refusal(&["\"a\"", "start with --adopt-state"]);
            adopted = adopted.args(["--adopt-state"]);
        }
        seen.go_on(adopted);
    }
}

/// The advice for a host name without an ordinal.
#[test]
fn a_number_in_the_environment_needs_the_origin_given() {
    let with = |origin: &str| {
        Setup::configured(&format!("worker_id_from = \"{origin}\"")).env("SNOWBANK_WORKER_IDS", "3")
    };
    with("hostname").end().assert_refusal(&["found worker IDs beside worker_id_from"]);
    Seen::default().go_on(with("given"));
}
