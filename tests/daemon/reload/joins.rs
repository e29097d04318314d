//! Sources that join at a reload, and their first ceilings.

use super::*;

#[test]
fn an_added_source_serves_at_once_and_goes_on_after_a_crash() {
    let setup = Setup::configured(&format!("shards = 2\n{}", source("old", 1)));
    let (state, locks) = (setup.path("state"), setup.path("locks"));
    let mut daemon = setup.start();
    let mut open = connections(&daemon);
    for wire in &mut open {
        wire.next(Ask::of(1).source(1)).assert_error(0, UNKNOWN_SOURCE);
    }
    let both = format!("shards = 2\n{}{}", source("old", 1), source("new", 2));
    assert_reloaded(&daemon, &both, &["reloaded: source \"new\" added"]);
    daemon.assert_logs("source \"new\" starts for the first time");
    assert_eq!(sources_of(&daemon), ["old", "new"]);
    let mut highest = 0;
    for wire in open.iter_mut().chain(&mut connections(&daemon)) {
        for (index, worker) in [(0, 1), (1, 2)] {
            let runs = wire.next(Ask::of(100).source(index)).runs();
            assert_eq!(twitter_worker(runs[0].first), worker);
            highest = highest.max(runs[runs.len() - 1].last());
        }
    }
    // Its worker ID is locked, and its ceiling stored.
    let other = Setup::configured(&source("other", 2)).env("SNOWBANK_LOCK_DIR", &locks);
    other.end().assert_refusal_for_now(&["worker ID 2 of layout", "held by another daemon"]);
    daemon.kill();
    let again = Setup::configured(&both).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state);
    let again = again.start();
    let first = again.connect().next(Ask::of(1).source(1)).ids()[0];
    assert!(first > highest, "{first} after {highest}");
    assert!(!again.log().contains("starts for the first time"), "{}", again.log());
    again.stop();
}

#[test]
fn a_source_that_cannot_join_is_refused_and_gives_back_what_it_took() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let locks = setup.path("locks");
    let daemon = setup.start();
    let neighbour = Setup::configured(&source("x", 5)).env("SNOWBANK_LOCK_DIR", &locks).start();
    let both = format!("{old}{}{}", source("free", 4), source("taken", 5));
    assert_refused(&daemon, &both, &[&["worker ID 5 of layout", "is held by another daemon"]]);
    assert_eq!(sources_of(&daemon), ["old"]);
    neighbour.stop();
    // The other source's worker ID was released.
    let neighbour = Setup::configured(&source("x", 4)).env("SNOWBANK_LOCK_DIR", &locks).start();
    assert_refused(&daemon, &both, &[&["worker ID 4 of layout", "is held by another daemon"]]);
    neighbour.stop();
    assert_reloaded(&daemon, &both, &["source \"free\" added, source \"taken\" added"]);
    let mut wire = daemon.connect();
    for index in 0..3 {
        wire.next(Ask::of(1).source(index)).ids();
    }
}

#[test]
fn a_joining_source_obeys_the_stored_ceiling() {
    let old = source("old", 1);
    let two = format!("{old}{}", source("back", 2));
    let setup = Setup::configured(&two);
    let (state, locks) = (setup.path("state"), setup.path("locks"));
    let mut daemon = setup.start();
    let before = daemon.connect().next(Ask::of(1).source(1)).ids()[0];
    daemon.kill();
    let again = Setup::configured(&old).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state);
    let mut daemon = again.start();
    // A source of the same name, with a layout whose IDs of today are lower.
    let lower =
        "name = \"back\"\nlayout = \"time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=2025-01-01\"";
    let lower = format!("{old}[[sources]]\n{lower}\nworker_ids = 2\n");
    assert_refused(&daemon, &lower, &[&["source \"back\": its IDs must go on above those of layout"]]);
    assert_reloaded(&daemon, &two, &["source \"back\" added"]);
    assert!(!daemon.log().contains("source \"back\": no ceiling"), "{}", daemon.log());
    let after = daemon.connect().next(Ask::of(1).source(1)).ids()[0];
    assert!(after > before, "{after} after {before}");
    daemon.kill();
    let last =
        Setup::configured(&two).env("SNOWBANK_LOCK_DIR", &locks).env("SNOWBANK_STATE_DIR", &state).start();
    assert!(last.connect().next(Ask::of(1).source(1)).ids()[0] > after);
    last.stop();
}

#[test]
fn while_the_disk_fails_no_source_joins_and_the_others_serve_on() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let locks = setup.path("locks");
    let daemon = disk.under(setup).start();
    let witness = Witness::of(&daemon, &[SPARSE, SPARSE]);
    let both = format!("{old}{}[limits]\nmax_count = 600\n", source("new", 2));
    let limits = format!("{old}[limits]\nmax_count = 500\n");
    disk.order(&format!("write fail {ENOSPC}"));
    assert_refused(
        &daemon,
        &both,
        &[&["cannot make the first ceilings of the new sources durable", "No space"]],
    );
    // There is still no space for another file, so the existing one is written.
    disk.order(&format!("open fail {ENOSPC}"));
    assert_reloaded(&daemon, &limits, &["limits.max_count: 1000000 -> 500"]);
    let before = daemon.log().len();
    witness.await_time(Duration::from_secs(4));
    witness.await_ids();
    // The refused reload's write may have been the last when the checks ran. The check must turn ok again, because
    // later raises succeeded.
    poll("no finding of the ceiling", || {
        let said = daemon.log();
        let last = said[before..].rfind("check ceiling of old").map(|at| &said[before + at..]);
        last.is_none_or(|line| line.starts_with("check ceiling of old is ok again")).then_some(())
    });
    for order in ["sync", "write"] {
        disk.order(&format!("{order} fail {ENOSPC}"));
        assert_refused(&daemon, &both, &[&["durable", "No space"]]);
        disk.works();
        witness.await_ids();
    }
    disk.order(&format!("sync lie {ENOSPC}"));
    assert_refused(&daemon, &both, &[&["durable", "No space"]]);
    // The present ceilings last for a few seconds, which a start and a stop may take.
    disk.works();
    // The refused reload has released the worker ID: another daemon may have it.
    Setup::configured(&source("x", 2)).env("SNOWBANK_LOCK_DIR", &locks).start().stop();
    assert_eq!(sources_of(&daemon), ["old"]);
    assert_reloaded(&daemon, &both, &["limits.max_count: 500 -> 600", "source \"new\" added"]);
    daemon.connect().next(Ask::of(600).source(1)).ids();
    // A slow disk delays only the reload.
    disk.order("sync stall 400");
    let third = format!("{both}{}", source("third", 3));
    assert_reloaded(&daemon, &third, &["source \"third\" added"]);
    let testimony = witness.stop();
    testimony.assert_no_refusal();
    testimony.assert_unique_and_ordered();
    // The daemon stops while a reload waits for the disk.
    configure(&daemon, &format!("{third}{}", source("fourth", 4)));
    daemon.signal(Signal::HUP);
    daemon.stop();
}

#[test]
fn requests_wait_for_an_added_source_as_for_any_other() {
    let slow =
        "[[sources]]\nname = \"slow\"\nlayout = \"time:31,worker:10,sequence:4;tick=1s;epoch=2025-01-01\"\n";
    let toml = format!("shards = 2\n{}", source("old", 1));
    let daemon = Setup::configured(&toml).start();
    let mut open = connections(&daemon);
    assert_reloaded(&daemon, &format!("{toml}{slow}"), &["source \"slow\" added"]);
    // More IDs than two ticks have, and for the last request more than it can get in time.
    for wire in &mut open[..4] {
        wire.send(&Ask::of(12).source(1).wait_ms(10_000).bytes());
    }
    let mut ids: Vec<u64> = open[..4].iter_mut().flat_map(|wire| wire.reply().ids()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 48);
    open[5].next(Ask::of(1_000).source(1).wait_ms(1_000)).assert_error(0, EXHAUSTED);
}

/// Returns how far the first source's ceiling is ahead of now, in ms, and its ID.
fn stored_ceiling(daemon: &Daemon) -> (i64, u64) {
    let mut show = std::process::Command::new(env!("CARGO_BIN_EXE_snowbank"));
    let shown = show.args(["state", "show", "--json", "--state-dir"]).arg(daemon.path("state")).output();
    let shown: serde_json::Value = serde_json::from_slice(&shown.expect("it runs").stdout).expect("JSON");
    let source = &shown["sources"][0];
    let id = source["ceiling_id"].as_str().and_then(|id| id.parse().ok()).expect("an ID");
    (source["ahead_ms"].as_i64().expect("a number"), id)
}

#[test]
fn after_a_joining_sources_write_failed_a_new_file_is_raised() {
    let old = source("old", 1);
    let setup = Setup::configured(&old);
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let daemon = disk.under(setup).start();
    let mut wire = daemon.connect();
    wire.next(Ask::of(1)).ids();
    disk.order(&format!("sync lie {ENOSPC}"));
    assert_refused(&daemon, &format!("{old}{}", source("new", 2)), &[&["durable", "No space"]]);
    disk.works();
    // For longer than the ceilings of that moment last. So the new file, which now has the name `ceilings`, must
    // have been raised.
    let until = Instant::now() + Duration::from_secs(5);
    let mut last = 0;
    while Instant::now() < until {
        last = wire.next(Ask::of(1)).ids()[0];
        std::thread::sleep(Duration::from_millis(20));
    }
    let ceiling = stored_ceiling(&daemon).1;
    assert!(last < ceiling, "{last} was handed out, and the file under the name ends at {ceiling}");
    daemon.stop();
}
