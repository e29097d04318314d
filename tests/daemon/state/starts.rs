//! Starts: ceilings ahead of the clock, changed worker IDs, names and layouts.

use super::*;

/// Changes the state as if the daemon had been killed while this far ahead of the clock.
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
fn a_far_ceiling_is_lowered_on_purpose_with_its_mark() {
    let (machine, last) = used();
    let daemon = machine.start("");
    let busy = machine.run(&["state", "lower", "default", "2099-01-01T00:00:00Z"]);
    assert!(busy.code != Some(0), "a daemon uses the state: {busy:?}");
    daemon.stop();
    ahead(&machine, 365 * 86_400_000);
    let bound = machine.shown().bound;
    let daemon = machine.start("");
    assert_eq!(daemon.connect().next(Ask::of(1)).error().0, CLOCK_BEHIND);
    daemon.assert_logs("snowbank state lower");
    // Its mark is as far ahead as its ceiling.
    daemon.stop();
    assert!(machine.shown().bound >= bound, "nothing was handed out, and nothing was forgotten");
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
    let id = machine.start("").draw_one();
    assert!(id > last && twitter_unix_ms(id) <= unix_ms() + 1_000, "{id}");
}

#[test]
fn a_start_below_a_near_ceiling_catches_up() {
    let (machine, _) = used();
    ahead(&machine, 5_000);
    let bound = machine.shown().bound;
    let daemon = machine.start("");
    assert!(daemon.draw_one() >= bound);
}

#[test]
fn changed_worker_ids_names_and_field_names_start_above() {
    let (machine, mut last) = used();
    let mut restart = |machine: &Machine, arguments: &[&str], toml: &str, what: &str| {
        ahead(machine, 2_000);
        let bound = machine.shown().bound;
        let daemon = machine.setup(toml).args(arguments).start();
        let id = daemon.draw_one();
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
    machine.setup(other).start().stop();
    let output = machine.run(&["state", "show"]);
    let text = output.out;
    assert_eq!(text.matches("source \"orders\"").count(), 2, "{text}");
}

#[test]
fn a_layout_whose_ids_lie_below_is_refused_naming_both() {
    let (machine, last) = used();
    // A later epoch: today's IDs are far below those of the old layout.
    let later = "time:41,datacenter:5,worker:5,sequence:12;epoch=2020-01-01";
    for toml in ["", "[[sources]]\nname = \"renamed\"\nworker_ids = 3"] {
        let ended = machine.setup(toml).args(["--layout", later]).end();
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
        .setup("")
        .args(["--layout", short])
        .end()
        .assert_refusal(&["all its IDs lie below that; keep layout twitter"]);
    // An earlier epoch: its IDs of today are larger.
    let earlier = "time:41,datacenter:5,worker:5,sequence:12;epoch=2005-01-01";
    let daemon = machine.setup("").args(["--layout", earlier]).start();
    assert!(daemon.draw_one() > last);
    daemon.stop();
    machine.setup("").end().assert_refusal(&["source \"default\"", "epoch=1104537600000"]);
    // With another name and an unused worker ID: this may be the old source, renamed and changed.
    let other = "[[sources]]\nname = \"other\"\nworker_ids = 8";
    machine.setup(other).end().assert_refusal(&["source \"other\"", "--state-dir"]);
    // Beside the old source it can only be another one.
    let both = format!("[[sources]]\nname = \"default\"\nlayout = \"{earlier}\"\n{other}");
    machine.setup(&both).start().stop();
}

#[test]
fn the_default_directory_comes_from_the_environment() {
    let machine = Machine::new();
    let at = |home: &Path| {
        let setup = machine.setup("").env("SNOWBANK_STATE_DIR", "").env("STATE_DIRECTORY", "");
        setup.env("XDG_STATE_HOME", "").env("HOME", home)
    };
    at(&machine.path("home")).start().stop();
    assert!(machine.path("home/.local/state/snowbank/ceilings").exists());
    at(Path::new("")).end().assert_refusal(&["--state-dir none", "$XDG_STATE_HOME"]);
}

#[test]
fn a_start_that_fails_later_gives_back_its_grant() {
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
fn records_of_unused_worker_ids_are_dropped_once_they_are_past() {
    let machine = Machine::new();
    let shown = || -> Vec<serde_json::Value> {
        machine.shown_sources("state").iter().map(|source| source["worker_ids"].clone()).collect()
    };
    let refused = || machine.run(&["state", "forget"]);
    assert_eq!(refused().code, Some(1), "no state");
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
            // The tick of the year 2045.
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
