//! State files that are damaged or from another machine, exports, and clean stops.

use super::*;

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
        let ended = machine.setup("").end();
        ended.assert_refusal(&[machine.file().to_str().unwrap(), "corrupt"]);
        assert_eq!(fs::read(machine.file()).expect("read"), bytes, "the start changed a file {what}");
        assert_eq!(machine.run(&["state", "show"]).code, Some(1), "{what}");
    }
    fs::write(machine.file(), &whole).expect("written");
    machine.start("").stop();
}

/// Both copies are whole, so this is no damage.
#[test]
fn a_record_of_another_program_is_not_called_corrupt() {
    let (machine, _) = used();
    machine.edit(|record| record["worker_ids"] = "some".into());
    let file = machine.file();
    let ended = machine.setup("").end();
    ended.assert_refusal(&[file.to_str().unwrap(), "is whole", "run the program that wrote it"]);
    assert!(!ended.stderr.contains("corrupt"), "{}", ended.stderr);
    assert_eq!(machine.run(&["state", "show"]).code, Some(1));
}

#[test]
fn another_machines_state_needs_adopt_state() {
    if !crate::support::has_machine_id() {
        return;
    }
    let (machine, last) = used();
    machine.edit(|record| record["machine"] = "0123456789abcdef0123456789abcdef".into());
    let state = machine.state();
    machine.setup("").end().assert_refusal(&["another machine's", "--adopt-state", state.to_str().unwrap()]);
    assert_eq!(machine.run(&["state", "export"]).code, Some(1));
    let daemon = machine.setup("").args(["--adopt-state"]).start();
    assert!(daemon.draw_one() > last);
    daemon.assert_logs("adopted the state of another machine");
    daemon.stop();
    machine.start("").stop();
}

#[test]
fn export_and_import_move_a_worker() {
    let (old, last) = used();
    let copy = old.back_up();
    let export = old.path("export.json");
    let file = export.to_str().unwrap();
    let done = old.run(&["state", "export", "--output", file]);
    assert!(done.code == Some(0), "{done:?}");
    assert!(old.shown().released);
    assert_eq!(mode(&export), 0o600);
    old.setup("").end().assert_refusal(&["state export` moved worker ID", "snowbank state import"]);
    let taken = old.run(&["state", "export", "--output", file]);
    assert_eq!(taken.code, Some(1), "the export overwrote a file");
    let again = old.run(&["state", "export"]);
    assert_eq!(again.out, fs::read_to_string(&export).expect("read"), "a repeated export has the same text");
    // Neither an older copy nor a lost state undoes the export.
    let refusal = ["state export` moved worker ID"];
    old.restore(&copy);
    old.setup("").end().assert_refusal(&refusal);
    old.setup("").args(["--adopt-state"]).end().assert_refusal(&refusal);
    fs::remove_dir_all(old.state()).expect("removed");
    old.setup("").end().assert_refusal(&refusal);

    let new = Machine::new();
    let done = new.run(&["state", "import", file]);
    assert!(done.code == Some(0), "{done:?}");
    assert!(done.out.contains("worker ID 0: goes on from ID "), "{done:?}");
    let daemon = new.start("");
    let id = daemon.draw_one();
    assert!(id > last);
    let refused = new.run(&["state", "import", file]);
    assert!(refused.err.contains("is in use"), "{refused:?}");
    daemon.stop();
    let refused = new.run(&["state", "import", file]);
    assert_eq!(refused.code, Some(1));
    let said = refused.err;
    assert!(said.contains("has since granted worker IDs") && said.lines().count() == 1, "{said}");
    // The second import is refused even if the state is lost, because the worker ID was used on
    // this machine.
    fs::remove_dir_all(new.state()).expect("removed");
    assert_eq!(new.run(&["state", "import", file]).code, Some(1));
}

/// Worker ID 2 is another daemon's by now. Its bound arrives where the state goes.
#[test]
fn an_export_takes_no_worker_id_from_another_daemon() {
    let Some(new) = Machine::with_clock() else { return };
    let old = Machine::new();
    for worker in [2, 1] {
        old.start(&format!("worker_ids = {worker}")).draw_and_stop();
    }
    let of_another = || old.beside("worker_ids = 2").start();
    let another = of_another();
    another.draw_one();
    let export = old.path("export.json");
    let file = export.to_str().unwrap();
    old.run(&["state", "export", "--output", file]).printed();
    another.draw_and_stop();
    of_another().draw_and_stop();
    for worker in [1, 2] {
        old.setup(&format!("worker_ids = {worker}")).end().assert_refusal(&["moved worker ID"]);
    }

    let here_too = new.beside("worker_ids = 2").start();
    new.run(&["state", "import", file]).printed();
    here_too.draw_and_stop();
    fs::remove_dir_all(new.path("locks")).expect("the marks are gone");
    new.clock().set(-20_000);
    let daemon = new.start("worker_ids = 2");
    assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND);
}

/// On the machine that had it last, another daemon may have it.
#[test]
fn a_worker_id_that_was_moved_away_does_not_come_back_as_a_bound() {
    let [old, new] = [Machine::new(), Machine::new()];
    let both = "[[sources]]\nname = \"a\"\nworker_ids = 1\n[[sources]]\nname = \"b\"\nworker_ids = 2\n";
    let one = "[[sources]]\nname = \"a\"\nworker_ids = 1\n";
    let of_b = Ask::of(1).source("b");
    let daemon = old.start(both);
    daemon.connect().next_once_granted(of_b);
    daemon.stop();
    let [there, back, last] = ["there", "back", "last"].map(|name| old.path(name).display().to_string());
    old.run(&["state", "export", "--output", &there]).printed();
    new.run(&["state", "import", &there]).printed();
    new.start(one).draw_and_stop();
    let another = new.beside("[[sources]]\nname = \"b\"\nworker_ids = 2\n").start();
    another.draw_one();
    new.run(&["state", "export", "--output", &back]).printed();
    let said = old.run(&["state", "import", &back]).printed();
    assert!(said.contains("imported the bound of source \"b\", worker ID 2"), "{said}");
    assert!(said.contains("it stays refused here until a daemon there has it"), "{said}");
    old.setup(both).end().assert_refusal(&["moved worker ID 2"]);
    old.start(one).draw_and_stop();
    // What helps is a daemon there that has it, and another export.
    let highest = another.draw_one();
    another.stop();
    let state = new.path("other").display().to_string();
    new.run(&["state", "export", "--state-dir", &state, "--output", &last]).printed();
    old.run(&["state", "import", &last]).printed();
    let daemon = old.start(both);
    assert!(daemon.connect().next_once_granted(of_b).runs()[0].first > highest);
}

#[test]
fn files_that_are_no_exports_are_refused() {
    let machine = Machine::new();
    for (text, reason) in [
        ("", "not an export"),
        ("{}", "not an export"),
        ("\"hunter2\"", "not an export"),
        ("{\"snowbank_state_format\":\"hunter2\"}", "not an export"),
        ("{\"snowbank_state_format\":1,\"records\":[]}", "no source"),
        ("{\"snowbank_state_format\":9,\"records\":[{}]}", "format 9"),
    ] {
        fs::write(machine.path("export"), text).expect("written");
        let refused = machine.run(&["state", "import", machine.path("export").to_str().unwrap()]);
        assert_eq!(refused.code, Some(1));
        let said = refused.err;
        assert!(said.contains(reason) && said.lines().count() == 1, "{text:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert_eq!(machine.run(&["state", "show"]).code, Some(1), "a refused import made a state");
}

/// A clean stop counts as clean even if the daemon handed out nothing. This holds after a first
/// start and after a crash.
#[test]
fn a_stop_without_an_id_counts_as_clean() {
    let machine = Machine::new();
    let end = || {
        let text = machine.run(&["state", "show"]).out;
        let end = text.lines().find(|line| line.trim_start().starts_with("end "));
        end.unwrap_or_else(|| panic!("no end in:\n{text}")).to_owned()
    };
    for life in ["a first start", "a crash"] {
        machine.setup("").start().stop();
        assert!(machine.shown().clean && end().contains("clean: it handed out nothing"), "{life}: {}", end());
        machine.setup("").start().kill();
        assert!(!machine.shown().clean && end().contains("not clean, as after a crash"), "{life}: {}", end());
    }
    let running = machine.setup("").start();
    assert!(end().contains("running, or it crashed"), "{}", end());
    running.stop();
    let text = used().0.run(&["state", "show"]).out;
    for part in ["not in use", "source \"default\"", "behind now", "this boot", "clean", "worker IDs  0"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// The reader has closed the pipe, so the export is lost. The operator must be able to repeat it.
#[test]
fn an_export_into_a_closed_pipe_fails() {
    let machine = Machine::new();
    machine.start("").stop();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank"));
    command.args(["state", "export"]).stdout(writer);
    command.env("SNOWBANK_STATE_DIR", machine.path("state")).env("SNOWBANK_LOCK_DIR", machine.path("locks"));
    let output = command.output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the export"), "{output:?}");
    assert!(machine.shown().released, "the export was written before the release");
    assert_eq!(machine.run(&["state", "export"]).code, Some(0));
}
