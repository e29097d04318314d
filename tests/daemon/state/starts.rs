//! Starts with a ceiling ahead of the clock, with other worker IDs, and with another layout.

use super::*;

/// Changes the state as if the daemon had been killed while its ceiling was this far ahead of the
/// clock.
fn ahead(machine: &Machine, ahead_ms: u64) {
    let tick = unix_ms() + ahead_ms - 1_288_834_974_657;
    machine.edit(|record| {
        record["ceiling"] = (tick * 4_096).to_string().into();
        record["id_bound"] = (tick << 22).to_string().into();
        record["clean"] = false.into();
    });
}

#[test]
fn state_lower_lowers_a_far_ceiling_and_its_mark() {
    let (machine, last) = used();
    let daemon = machine.start("");
    let busy = machine.run(&["state", "lower", "default", "2099-01-01T00:00:00Z"]);
    assert!(busy.code != Some(0), "state lower changed the state of a running daemon: {busy:?}");
    daemon.stop();
    ahead(&machine, 365 * 86_400_000);
    let bound = machine.shown().bound;
    let daemon = machine.start("");
    assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND);
    let [state, locks] = [machine.state(), machine.path("locks")].map(|path| path.display().to_string());
    let options = format!(" --state-dir {state} --lock-dir {locks}");
    daemon.assert_logs(&format!("`snowbank state lower default INSTANT --worker-id 0{options}`"));
    // The daemon has written a mark that is as far ahead as its ceiling.
    daemon.stop();
    assert!(machine.shown().bound >= bound, "the stop lowered a ceiling that was not used");
    let now = "2026-01-01T00:00:00Z";
    for (name, instant) in [("orders", now), ("default", "2199-01-01T00:00:00Z")] {
        let refused = machine.run(&["state", "lower", name, instant]);
        let text = refused.err;
        assert!(refused.code == Some(1) && text.contains("found no ceiling above"), "{text}");
    }
    let wrong = machine.run(&["state", "lower", "default", "today"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    let lowered = machine.run(&["state", "lower", "default", now]);
    assert!(lowered.code == Some(0), "{lowered:?}");
    let said = lowered.out;
    assert!(
        said.contains("worker ID 0: IDs were granted until 20") && said.contains("from 2026-01-01"),
        "{said}"
    );
    let id = machine.start("").draw_one();
    assert!(id > last && twitter_unix_ms(id) <= unix_ms() + 1_000, "{id}");
}

/// The bound that `state forget` keeps is far ahead, as after a clock that was. A worker ID that was
/// never used has started above it, and has it as its own ceiling. The IDs of worker ID 2 were handed
/// out.
#[test]
fn state_lower_lowers_only_the_worker_id_that_is_named() {
    let machine = Machine::new();
    for worker in [1, 2] {
        let daemon = machine.start(&format!("worker_ids = {worker}"));
        daemon.draw_one();
        daemon.stop();
    }
    machine.run(&["state", "forget"]).printed();
    ahead(&machine, 7_200_000);
    let is_behind = |worker: u32| {
        let daemon = machine.start(&format!("worker_ids = {worker}"));
        assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND, "worker ID {worker}");
        daemon.assert_logs(&format!("`snowbank state lower default INSTANT --worker-id {worker} "));
        // Its own ceiling is above the forgotten bound by now, which therefore stays.
        assert!(!daemon.log().contains("--forgotten"), "{}", daemon.log());
        daemon.stop();
    };
    is_behind(3);
    let lower = ["state", "lower", "default", "2026-01-01T00:00:00Z"];
    let refused = machine.run(&lower).refusal(1);
    assert!(
        refused.contains("of worker ID 2 and of worker ID 3") && refused.contains("--worker-id"),
        "{refused}"
    );
    machine.run(&[&lower[..], &["--worker-id", "3"]].concat()).printed();
    let daemon = machine.start("worker_ids = 3");
    assert!(twitter_unix_ms(daemon.draw_one()) <= unix_ms() + 1_000);
    daemon.stop();
    is_behind(2);
}

/// The power fails after the mark, and before the state is written.
#[test]
fn an_interrupted_state_lower_can_be_run_again_later() {
    let (machine, _) = used();
    ahead(&machine, 7_200_000);
    machine.start("").stop();
    let (marked, unwritten) = (machine.marked(), machine.back_up());
    let disk = machine.disk();
    disk.order(&format!("sync fail {EIO}"));
    let failed = disk.run(&machine.path(""), &["state", "lower", "default", "2026-01-01T00:00:00Z"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(machine.marked() < marked);
    machine.restore(&unwritten);
    machine.run(&["state", "lower", "default", "2026-01-02T00:00:00Z"]).printed();
    machine.start("").draw_and_stop();
}

/// Worker ID 2 is another daemon's by now, so its IDs are no matter of this state.
#[test]
fn state_lower_leaves_out_what_another_state_was_granted() {
    let machine = Machine::new();
    for worker in [2, 1] {
        machine.start(&format!("worker_ids = {worker}")).draw_and_stop();
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    let now = snowbank_id::layout::UnixMicros(unix_ms().cast_signed() * 1_000).rfc3339(3);
    machine.beside("worker_ids = 2").start().draw_and_stop();
    machine.edit(|record| {
        if record["worker_ids"] == "1" {
            record["id_bound"] = (1_u64 << 62).to_string().into();
        }
    });
    let lowered = machine.run(&["state", "lower", "default", &now]).printed();
    assert!(lowered.contains("worker ID 1: ") && lowered.lines().count() == 1, "{lowered}");
}

/// A mark may say more than this state knows: that another state granted IDs, or that another
/// machine has the worker ID.
#[test]
fn state_lower_leaves_marks_that_its_state_did_not_grant() {
    let (machine, _) = used();
    let backup = machine.path("backup");
    copy(&machine.state(), &backup);
    let mut daemon = machine.setup("").option("--state-dir", machine.path("another")).start();
    daemon.draw_one();
    daemon.kill();
    let lower = |reason: &str| {
        let marked = machine.marked();
        let refused = machine.run(&["state", "lower", "default", "2026-01-01T00:00:00Z"]);
        assert!(refused.code == Some(1) && refused.err.contains(reason), "{refused:?}");
        assert_eq!(machine.marked(), marked);
    };
    lower("another state");
    // A start with this state takes the mark over. The backup is then an older copy of it.
    machine.start("").stop();
    let newest = machine.path("newest");
    copy(&machine.state(), &newest);
    copy(&backup.join("."), &machine.state());
    lower("older than the state that served");
    copy(&newest.join("."), &machine.state());
    // An export moves the worker ID away.
    machine.run(&["state", "export"]).printed();
    copy(&backup.join("."), &machine.state());
    lower("moved");
    machine.setup("").end().assert_refusal(&["moved", "state import"]);
}

#[test]
fn a_start_below_a_near_ceiling_catches_up() {
    let (machine, _) = used();
    ahead(&machine, 5_000);
    let bound = machine.shown().bound;
    let daemon = machine.start("");
    assert!(daemon.draw_one() >= bound);
}

/// The far ceiling applies only to the worker ID that was used.
#[test]
fn an_unused_worker_id_starts_at_the_clock_below_a_far_ceiling() {
    let (machine, _) = used();
    ahead(&machine, 7_200_000);
    // Removes the ID clock from the record, because the ID clock is not as far ahead as the new
    // ceiling.
    machine.edit(|record| record["id_minus_boot_us"] = serde_json::Value::Null);
    let daemon = machine.start("worker_ids = 3");
    assert!(twitter_unix_ms(daemon.draw_one()) <= unix_ms() + 1_000);
    daemon.assert_logs("new IDs sort below those");
    daemon.stop();
    let daemon = machine.start("");
    let message = daemon.connect().next(Ask::of(1)).assert_error(0, CLOCK_BEHIND);
    assert!(message.ends_with("a worker ID that was never used"), "{message}");
    daemon.assert_logs("give the source a worker ID that was never used");
}

#[test]
fn a_layout_with_lower_ids_is_refused_with_both_named() {
    let (machine, last) = used();
    // With a later epoch, today's IDs are far below the IDs of the old layout.
    let later = "time:41,datacenter:5,worker:5,sequence:12;epoch=2020-01-01";
    machine.setup("").args(["--layout", later]).end().assert_refusal(&[
        "because layout twitter may have handed out IDs up to there",
        "epoch=1577836800000, whose IDs are at ",
        "it gets there at 20",
        "Keep layout twitter, or choose one whose IDs lie higher. ",
        "With a daemon and a --state-dir of its own it may hand out IDs that are recorded here a second time",
    ]);
    // The same worker ID in other bits makes other IDs at other times, too, so nothing tells them
    // apart.
    let other_bits = "time:43,worker:8,sequence:12;epoch=2020-01-01";
    machine.setup("").args(["--layout", other_bits]).end().assert_refusal(&["a second time"]);
    // Worker ID 3 never made an ID of worker ID 0.
    machine.setup("worker_ids = 3").args(["--layout", later]).end().assert_refusal(&[
        "Or give it to a daemon of its own, with a --state-dir of its own: its worker IDs make none of",
    ]);
    // Whoever does so all the same is warned.
    for (layout, directory) in [(later, "later"), (other_bits, "other_bits")] {
        let setup = machine.setup("").env("SNOWBANK_STATE_DIR", machine.path(directory));
        let daemon = setup.args(["--layout", layout]).start();
        daemon.assert_logs("may make some of them a second time");
        daemon.stop();
    }
    // With an earlier epoch, today's IDs are above the IDs of the old layout.
    let earlier = "time:41,datacenter:5,worker:5,sequence:12;epoch=2005-01-01";
    let daemon = machine.setup("").args(["--layout", earlier]).start();
    assert!(daemon.draw_one() > last);
}

/// The shorter layout has the same ID space, so its record would take the old record's place with a
/// lower bound. A daemon with another state would lower the mark alike.
#[test]
fn a_shorter_time_field_lowers_no_bound() {
    let (machine, _) = used();
    ahead(&machine, 86_400_000);
    machine.start("").stop();
    let until = unix_ms() + 60_000 - 1_288_834_974_657;
    let shorter = format!("layout = \"time:={until},node:10,sequence:12;epoch=1288834974657\"");
    let before = (machine.shown().bound, machine.marked());
    for setup in
        [machine.setup(&shorter), machine.setup(&shorter).option("--state-dir", machine.path("other"))]
    {
        setup.end().assert_refusal(&["found layout", "whose IDs end at", "as many values as before"]);
    }
    assert_eq!((machine.shown().bound, machine.marked()), before);
}

#[test]
fn a_failed_start_gives_back_its_grant() {
    let (machine, _) = used();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    for _ in 0..3 {
        machine
            .setup("")
            .env("SNOWBANK_LISTEN", &address)
            .args(["--listen", &address])
            .end()
            .assert_refusal_for_now(&[&address]);
    }
    let shown = machine.shown();
    assert!(shown.clean && twitter_unix_ms(shown.bound) <= unix_ms() + 2, "{shown:?}");
}

#[test]
fn state_forget_drops_old_records_of_unused_worker_ids() {
    let machine = Machine::new();
    let shown = || -> Vec<serde_json::Value> {
        machine.shown_sources("state").iter().map(|source| source["worker_ids"].clone()).collect()
    };
    let refused = || machine.run(&["state", "forget"]);
    assert_eq!(refused().code, Some(1), "there is no state");
    let mut last = 0;
    for worker in [1, 2, 3] {
        let daemon = machine.start(&format!("worker_ids = {worker}"));
        last = daemon.draw_one();
        assert!(refused().err.contains("in use"));
        daemon.stop();
    }
    assert_eq!(shown(), ["1", "2", "3"]);
    machine.edit(|record| {
        if record["worker_ids"] == "2" {
            // The ceiling is in the year 2045.
            record["ceiling"] = (1_u64 << 52).to_string().into();
            record["id_bound"] = (1_u64 << 62).to_string().into();
        }
    });
    let Said { code, out, err } = refused();
    assert!(code == Some(1) && err.contains("worker ID 2") && err.contains("run this again"), "{err}");
    assert!(out.contains("forgot source \"default\", worker ID 1"), "{out}");
    assert_eq!(shown(), ["2", "3"]);
    assert!(machine.start("worker_ids = 3").draw_one() > last);
}

/// After a boot the clock is 20 s slow. The bound of what was forgotten is exported, too.
#[test]
fn forgotten_worker_ids_repeat_no_id_under_a_slow_clock() {
    let Some(machine) = Machine::with_clock() else { return };
    let daemon = machine.start("worker_ids = 1");
    let ids = daemon.connect().next(Ask::of(3)).ids();
    daemon.stop();
    machine.start("worker_ids = 2").stop();
    machine.run(&["state", "forget"]).printed();
    assert!(machine.run(&["state", "show"]).out.contains("no worker ID without a record"));
    let boot_slow = |machine: &Machine| {
        fs::remove_dir_all(machine.path("locks")).expect("the marks are gone");
        machine.edit(|record| record["boot"] = "an earlier boot".into());
        machine.clock().set(-20_000);
    };
    boot_slow(&machine);
    for worker in [1, 7] {
        let daemon = machine.start(&format!("worker_ids = {worker}"));
        assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND, "worker ID {worker}");
        daemon.stop();
    }
    machine.clock().set(0);
    let again = machine.start("worker_ids = 1").draw_one();
    assert!(again > ids[2], "{again}");

    let file = machine.path("export").display().to_string();
    machine.run(&["state", "export", "--output", &file]).printed();
    let Some(other) = Machine::with_clock() else { return };
    other.run(&["state", "import", &file]).printed();
    other.clock().set(-20_000);
    let daemon = other.start("worker_ids = 9");
    assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND);
    daemon.stop();
    // The bound stands for more worker IDs than those of the source with its name.
    let lower = ["state", "lower", "default", "2026-01-01T00:00:00Z"];
    let lower_own = [lower.as_slice(), &["--worker-id", "9"]].concat();
    let forgotten = |machine: &Machine| {
        let shown = machine.run(&["state", "show"]).out;
        let bound = shown.lines().find(|line| line.contains("no worker ID without a record"));
        bound.expect("a forgotten bound").to_owned()
    };
    let before = forgotten(&other);
    other.run(&lower_own).printed();
    assert_eq!(forgotten(&other), before, "the source's name lowered what stands for other sources");
    let again = other.run(&lower_own);
    assert!(again.code == Some(1) && again.err.contains("only with --forgotten"), "{again:?}");
    other.run(&[lower.as_slice(), &["--forgotten"]].concat()).printed();
    fs::remove_dir_all(other.path("locks")).expect("the marks are gone");
    other.start("worker_ids = 8").draw_one();
}
