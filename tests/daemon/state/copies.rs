//! Older copies of a state, which the marks of the machine reveal.

use super::*;

#[test]
fn a_backup_is_refused_after_later_ids_were_handed_out() {
    let machine = Machine::new();
    let daemon = machine.setup("max_ahead = \"202ms\"").start();
    let running = machine.back_up();
    machine.draw_past_a_raise(&daemon);
    daemon.stop();
    let clean = machine.back_up();
    machine.restore(&running);
    machine.assert_older_is_refused();
    assert_eq!(machine.back_up(), running, "the refused start changed the state");
    let export = machine.run(&["state", "export"]);
    assert_eq!(export.code, Some(1), "{export:?}");
    assert!(export.err.contains("is older than the state that served"), "{export:?}");
    assert_eq!(export.out, "");

    // The newest copy is accepted. After a further run of the daemon, the same copy is an older
    // copy.
    machine.restore(&clean);
    let mut daemon = machine.start("");
    let last = machine.draw_past_a_raise(&daemon);
    daemon.kill();
    let killed = machine.back_up();
    machine.restore(&clean);
    machine.assert_older_is_refused();
    machine.restore(&killed);
    assert!(machine.start("").draw_one() > last);
}

/// The last daemon of the copy did not have worker ID 2.
#[test]
fn an_export_of_a_copy_lacks_no_later_ids() {
    let machine = Machine::new();
    for worker in [2, 1] {
        machine.start(&format!("worker_ids = {worker}")).draw_and_stop();
    }
    let copy = machine.back_up();
    machine.start("worker_ids = 2").draw_and_stop();
    machine.restore(&copy);
    let export = machine.run(&["state", "export"]);
    assert!(
        export.code == Some(1) && export.err.contains("is older than the state that served"),
        "{export:?}"
    );
}

#[test]
fn an_older_copy_is_adopted_once_the_clock_is_past_the_grants() {
    let adopted = |machine: &Machine| machine.setup("").args(["--adopt-state"]);
    // On a busy machine the clock may pass the grants before the start. Then the test tries again.
    let (machine, copy, last, bound) = poll("a start before the clock is past the grants", || {
        let machine = Machine::new();
        let mut daemon = machine.start("");
        let copy = machine.back_up();
        let last = machine.draw_past_a_raise(&daemon);
        daemon.kill();
        let bound = machine.marked();
        machine.restore(&copy);
        let refused = adopted(&machine).try_start().err()?;
        Ended::of(*refused).assert_refusal_for_now(&["the clock gets there in ", "--adopt-state then"]);
        Some((machine, copy, last, bound))
    });
    machine.assert_older_is_refused();
    poll("a clock that is past the grants", || (unix_ms() > twitter_unix_ms(bound)).then_some(()));
    let daemon = adopted(&machine).start();
    let id = daemon.draw_one();
    assert!(id >= bound && bound > last, "{id} is not above {bound} and {last}");
    daemon.assert_logs("adopted an older copy of the state");
    daemon.stop();
    machine.start("").stop();
    machine.restore(&copy);
    machine.assert_older_is_refused();
}

#[test]
fn ids_start_above_all_grants_if_the_state_was_lost() {
    for is_kept in [true, false] {
        let machine = Machine::new();
        let mut daemon = machine.start("max_ahead = \"402ms\"");
        let last = daemon.draw_one();
        daemon.kill();
        let bound = machine.marked();
        fs::remove_dir_all(machine.state()).expect("removed");
        let state = if is_kept { machine.state() } else { "none".into() };
        let mut daemon = machine.setup("max_ahead = \"402ms\"").option("--state-dir", state).start();
        let id = daemon.draw_one();
        assert!(id >= bound && bound > last, "{id} is not above {bound} and {last}");
        if !is_kept {
            daemon.assert_logs("IDs may repeat");
            assert!(!machine.state().exists());
        }
        daemon.kill();
        machine.start("").stop();
    }
}

#[test]
fn a_malformed_mark_is_refused_and_a_missing_one_is_not() {
    let (machine, last) = used();
    let lock = lock_files(&machine.path("locks")).remove(0);
    let whole = fs::read(&lock).expect("read");
    let holder_bytes = whole.iter().position(|&byte| byte == b'\n').expect("a holder's line") + 1;
    let (said, marked) = whole.split_at(holder_bytes);
    assert!(
        marked.starts_with(b"format 1, least reader 1: granted  below ID "),
        "{}",
        String::from_utf8_lossy(marked)
    );
    let noises = [&b"granted"[..], &[0; 64], &[b'9'; 4_096]].map(|noise| [said, noise].concat());
    // The last one has lost its mark with the end of its first line.
    for damaged in noises.into_iter().chain([b"hello\n".to_vec()]) {
        fs::write(&lock, damaged).expect("written");
        machine.setup("").end().assert_refusal(&[lock.to_str().unwrap(), "remove it"]);
    }
    fs::write(&lock, said).expect("written");
    let daemon = machine.start("");
    assert!(daemon.draw_one() > last);
}

#[test]
fn each_source_is_marked() {
    let source = |name: &str, worker: u32| format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n");
    let sources = [source("first", 1), source("second", 2)];
    let machine = Machine::new();
    let mut daemon = machine.start(&sources.concat());
    let copy = machine.back_up();
    for (name, shown) in ["first", "second"].iter().zip(machine.shown_sources("state")) {
        let bound: u64 = shown["id_bound"].as_str().expect("an ID").parse().expect("a number");
        let ask = Ask::of(1).wait_ms(9_000).source(name);
        poll("an ID above its bound", || (daemon.connect().next(ask).ids()[0] > bound).then_some(()));
    }
    daemon.kill();
    machine.restore(&copy);
    for (source, name) in sources.iter().zip(["\"first\"", "\"second\""]) {
        machine.setup(source).end().assert_refusal(&["is older than the one", name]);
    }
}

/// Worker 1 of `twitter` and worker 0 of a layout with a wider sequence can make the same IDs.
#[test]
fn marks_of_a_colliding_layout_bind_a_start_but_no_export() {
    let machine = Machine::new();
    let twitter = "worker_ids = 1\n";
    let wide = "layout = \"time:41,worker:9,sequence:13;tick=1ms;epoch=1288834974657\"\nworker_ids = 0\n";
    let wide = || machine.setup(wide).env("SNOWBANK_STATE_DIR", machine.path("other"));
    let mut last = 0;
    for setup in [machine.setup(twitter), wide()] {
        let daemon = setup.start();
        let id = daemon.draw_one();
        assert!(id > last, "{id} is not above {last}");
        last = id;
        daemon.stop();
    }
    let export = machine.path("export").display().to_string();
    machine.run(&["state", "export", "--output", &export]).printed();
    wide().end().assert_refusal(&["a worker ID of another layout", "was moved away", "state import"]);
    machine.run(&["state", "import", &export]).printed();
}
