//! The marks of worker IDs: how `snowbank state show` prints them, and how a daemon continues if it
//! cannot write a mark.

use crate::support::failing_disk::{EIO, FailingDisk};
use crate::support::machine::Machine;
use crate::support::poll;
use serde_json::Value;

/// A low `max_ahead` makes the horizon short, so that the next raise comes soon.
const CONFIG: &str = "max_ahead = \"202ms\"\nworker_ids = \"1-3\"";

fn show_words(machine: &Machine) -> String {
    machine.run(&["state", "show"]).printed()
}

/// Returns the only source of `state show --json`.
fn show(machine: &Machine) -> Value {
    let [source] = &machine.shown_sources("state")[..] else { panic!("not one source") };
    source.clone()
}

/// Waits until all worker IDs have equal marks, and returns that mark. A daemon writes the marks
/// one after another.
fn read_mark(machine: &Machine) -> Value {
    poll("equal marks of all worker IDs", || match show(machine)["marks"].as_array().map(Vec::as_slice) {
        Some([mark]) => Some(mark.clone()),
        _ => None,
    })
}

fn id_of(value: &Value) -> u64 {
    value.as_str().and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("no ID: {value}"))
}

#[test]
fn a_mark_is_shown_with_its_effect_on_a_start() {
    let machine = Machine::new();
    let mut daemon = machine.setup(CONFIG).start();
    daemon.draw_one();
    let mark =
        poll("the first mark", || Some(read_mark(&machine)).filter(|mark| mark["status"] == "granted"));
    let shown = show(&machine);
    assert_eq!(mark["worker_ids"], "1-3");
    assert_eq!(mark["state"], shown["owner"]["state"]);
    assert_eq!((&mark["this_state"], &mark["next_start"]), (&Value::Bool(true), &Value::from("at_ceiling")));
    assert_eq!(mark["holder"], format!("process {}", daemon.id()));
    let copy = machine.back_up();
    machine.draw_past_a_raise(&daemon);
    daemon.kill();

    // First shows the newest state, and then an older copy of it.
    let mark = read_mark(&machine);
    let shown = show(&machine);
    assert_eq!(mark["next_start"], "at_ceiling");
    assert!(mark["holder"].is_null() && id_of(&mark["id"]) <= id_of(&shown["id_bound"]), "{shown}");
    machine.restore(&copy);
    let mark = read_mark(&machine);
    let shown = show(&machine);
    assert_eq!((&mark["status"], &mark["next_start"]), (&"granted".into(), &"refused_older_copy".into()));
    assert!(id_of(&mark["id"]) > id_of(&shown["id_bound"]), "{shown}");
    let words = show_words(&machine);
    let granted = format!("worker IDs 1-3: granted below ID {} (", id_of(&mark["id"]));
    let time = mark["time"].as_str().expect("a time");
    for part in
        [&granted, &format!("({time}) by this state\n"), "this state is an older copy", "--adopt-state"]
    {
        assert!(words.contains(part), "{part:?} is not in:\n{words}");
    }
    // A start does what `state show` has announced.
    machine.setup(CONFIG).end().assert_refusal(&["is older than the one that served", time]);
}

#[test]
fn marks_of_another_state_and_of_an_export_are_shown() {
    let machine = Machine::new();
    machine.setup(CONFIG).start().draw_and_stop();
    let daemon = machine.beside(CONFIG).start();
    daemon.draw_one();
    let mark = read_mark(&machine);
    assert_eq!((&mark["this_state"], &mark["next_start"]), (&Value::Bool(false), &Value::from("above_mark")));
    let holder = format!("process {}", daemon.id());
    assert_eq!(mark["holder"], holder);
    let words = show_words(&machine);
    let state = mark["state"].as_str().expect("a text");
    let whose = format!("by another state ({state}), locked by {holder}\n");
    assert!(words.contains(&whose) && words.contains("a start begins above this mark"), "{words}");
    daemon.stop();

    machine.setup(CONFIG).start().draw_and_stop();
    machine.run(&["state", "export"]).printed();
    let mark = read_mark(&machine);
    assert_eq!((&mark["status"], &mark["next_start"]), (&"released".into(), &"refused_released".into()));
    assert!(show_words(&machine).contains("moved away by `snowbank state export`"));
}

/// The disk of the locks fails, and the disk of the state works. One worker ID. Of several, some
/// would have the mark of an earlier raise, if the disk fails while the marks of one are written.
#[test]
fn a_failed_mark_is_logged_and_retried() {
    const CONFIG: &str = "max_ahead = \"202ms\"\nworker_ids = \"1\"";
    let machine = Machine::new();
    let disk = FailingDisk::new(&machine.path("locks"), machine.path("orders"));
    let fails = format!("write fail {EIO}");
    let mut daemon = disk.under(machine.setup(CONFIG)).start();
    let copy = machine.back_up();
    disk.order(&fails);
    let last = machine.draw_past_a_raise(&daemon);
    daemon.assert_logs("cannot mark in lock_dir");
    let mark = read_mark(&machine);
    let earlier = (&mark["status"], &mark["next_start"]);
    assert_eq!(earlier, (&"granted".into(), &"at_ceiling".into()), "the failed write changed the mark");
    let highest = machine.draw_past_a_raise(&daemon);
    assert!(highest > last, "the daemon stopped serving");

    // The marks rise without a request, because ceilings rise for a while after the last use, and
    // each raise writes the marks.
    disk.works();
    poll("a higher mark", || (id_of(&read_mark(&machine)["id"]) > highest).then_some(()));
    daemon.kill();
    let newest = machine.back_up();
    machine.restore(&copy);
    machine.setup(CONFIG).end().assert_refusal(&["is older than the one that served"]);
    machine.restore(&newest);

    // If the mark of a killed daemon is too low, the daemon's state does not count as an older
    // copy.
    let mut daemon = disk.under(machine.setup(CONFIG)).start();
    disk.order(&fails);
    let last = machine.draw_past_a_raise(&daemon);
    assert!(last > highest);
    daemon.kill();
    disk.works();
    let daemon = disk.under(machine.setup(CONFIG)).start();
    assert!(daemon.draw_one() > last);
    // A clean stop lowers the mark before the ceiling. If the stop cannot write the mark, it does
    // not lower the ceiling.
    disk.order(&fails);
    let ceiling = id_of(&show(&machine)["id_bound"]);
    daemon.stop();
    assert!(id_of(&show(&machine)["id_bound"]) >= ceiling, "the stop lowered the ceiling");
}

/// `state show` reads the state and its marks consistently, even while the daemon raises its
/// ceiling.
#[test]
fn a_running_daemons_state_is_never_shown_as_an_older_copy() {
    let machine = Machine::new();
    let daemon = machine.setup(CONFIG).start();
    for _ in 0..100 {
        daemon.draw_one();
        let shown = show(&machine);
        let marks = shown["marks"].as_array().expect("marks");
        assert!(marks.iter().all(|mark| mark["next_start"] == "at_ceiling"), "{shown}");
    }
    daemon.stop();
}
