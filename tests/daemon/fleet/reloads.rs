//! Reloads that add and remove sources of a fleet, and reloads while a daemon waits for a worker ID.

use super::*;

/// Returns the configuration of a daemon with these sources. The fleet assigns their worker IDs, if
/// `None`, of all of the layout.
fn with(at: &dyn Coordinator, sources: &[(&str, Option<&str>)]) -> String {
    let mut toml = toml(at, None, LONG);
    for (name, worker_ids) in sources {
        toml.push_str(&format!("[[sources]]\nname = {name:?}\nworker_id_from = \"coordinator\"\n"));
        if let Some(worker_ids) = worker_ids {
            toml.push_str(&format!("worker_ids = {worker_ids:?}\n"));
        }
    }
    toml.replacen("worker_id_from = \"coordinator\"\n", "", 1)
}

fn reloaded(daemon: &Daemon, toml: &str) -> String {
    daemon.replace("snowbank.toml", toml);
    let said = daemon.reload();
    assert!(said.contains("reloaded: "), "{said}");
    said
}

fn drawn(daemon: &Daemon, source: &str) -> Vec<Run> {
    poll("IDs of a source", || {
        let reply = daemon.connect().next(Ask::of(100).source(source).wait_ms(9_000));
        reply.id_count().map(|_| reply.runs())
    })
}

#[test]
fn sources_of_a_fleet_come_and_go_by_a_reload() {
    on_one(|at| {
        let (five, six) = (Some("5"), Some("6"));
        let one = with(at, &[("a", five)]);
        init(&one);
        let machine = Machine::new();
        let daemon = machine.start(&one);
        let mut runs = drawn(&daemon, "a");
        for _ in 0..2 {
            reloaded(&daemon, &with(at, &[("a", five), ("b", six)]));
            let found = drawn(&daemon, "b");
            assert_eq!(worker_of(&found), 6);
            runs.extend(found);
            reloaded(&daemon, &with(at, &[("a", five), ("c", six)]));
            runs.extend(drawn(&daemon, "c"));
            let (_, text) = fleet(&one, &["list"]);
            assert!(text.contains("6: held by"), "{text}");
            reloaded(&daemon, &one);
            daemon.assert_logs("source \"c\" has ended");
            // The worker ID was released, so another daemon gets it at once.
            let other = Machine::new();
            let taker = other.start(&with(at, &[("x", six)]));
            let found = drawn(&taker, "x");
            assert_eq!(worker_of(&found), 6);
            runs.extend(found);
            taker.stop();
            runs.extend(drawn(&daemon, "a"));
        }
        daemon.stop();
        assert_distinct(runs);
    });
}

#[test]
fn a_reload_replaces_a_wait_for_a_worker_id() {
    on_one(|at| {
        let five = with(at, &[("a", Some("5"))]);
        init(&five);
        let (_holder, _daemon, mut runs) = {
            let machine = Machine::new();
            let daemon = machine.start(&five);
            let runs = drawn(&daemon, "a");
            (machine, daemon, runs)
        };
        let machine = Machine::new();
        let daemon = machine.setup(&five).admin().start();
        daemon.assert_logs("waits, and hands out nothing");
        assert_eq!(get(&daemon, "/readyz").code, 503);
        let (code, _, text) = daemon.connect().next(Ask::of(1).source("a").wait_ms(9_000)).error();
        assert_eq!(code, NO_CEILING);
        assert!(text.contains("waits: the fleet has no free worker ID for it"), "{text}");
        // The name stays, and so do the settings of the source.
        reloaded(&daemon, &with(at, &[("renamed", Some("5"))]));
        let (code, _, text) = daemon.connect().next(Ask::of(1).source("renamed").wait_ms(9_000)).error();
        assert!(code == NO_CEILING && text.contains("source renamed waits:"), "{text}");
        reloaded(&daemon, &with(at, &[("b", Some("6"))]));
        let found = drawn(&daemon, "b");
        assert_eq!(worker_of(&found), 6);
        runs.extend(found);
        poll("a ready daemon", || (get(&daemon, "/readyz").code == 200).then_some(()));
        // A source that waits does not disturb the other.
        reloaded(&daemon, &with(at, &[("b", Some("6")), ("c", Some("5"))]));
        daemon.assert_logs("a source waits, and hands out nothing");
        let (_, _, text) = daemon.connect().next(Ask::of(1).source("c").wait_ms(9_000)).error();
        assert!(text.contains("source c waits: the fleet has no free worker ID for it"), "{text}");
        runs.extend(drawn(&daemon, "b"));
        assert_eq!(get(&daemon, "/readyz").code, 200);
        reloaded(&daemon, &with(at, &[("b", Some("6"))]));
        daemon.stop();
        assert_distinct(runs);
    });
}

/// Stops and kills daemons at any moment of a reload.
#[test]
fn a_reload_in_a_fleet_may_be_interrupted_at_any_moment() {
    on_one(|at| {
        let sets = [with(at, &[("a", None), ("b", None)]), with(at, &[("b", None), ("c", Some("7-9"))])];
        init(&sets[0]);
        let machine = Machine::new();
        let mut runs = Vec::new();
        for life in 0..6_u64 {
            let mut daemon = machine.start(&sets[life as usize % 2]);
            runs.extend(drawn(&daemon, "b"));
            let mut wire = daemon.connect();
            daemon.replace("snowbank.toml", &sets[(life as usize + 1) % 2]);
            daemon.signal(Signal::HUP);
            std::thread::sleep(std::time::Duration::from_millis(life * life * 60));
            for name in ["a", "b", "c"] {
                let reply = wire.next(Ask::of(50).source(name).wait_ms(0));
                if reply.id_count().is_some() {
                    runs.extend(reply.runs());
                }
            }
            if life % 2 == 0 {
                daemon.stop();
            } else {
                daemon.kill();
            }
        }
        assert_distinct(runs);
    });
}

/// Returns the configuration of a daemon whose sources have worker IDs of their own.
fn with_own(at: &dyn Coordinator, sources: &[(&str, &str)]) -> String {
    let mut toml = with(at, &[]);
    for (name, worker_ids) in sources {
        toml.push_str(&format!("[[sources]]\nname = {name:?}\nworker_ids = {worker_ids:?}\n"));
    }
    toml
}

/// A new source must pause before its worker ID. The pause lasts, because the coordinator is away.
#[test]
fn no_source_waits_for_the_pause_of_another() {
    on_one(|at| {
        let proxy = at.proxy();
        let of = |sources: &[_]| with_own(at, sources).replace(&at.url(), &proxy.url());
        init(&of(&[("a", "5")]));
        let machine = Machine::new();
        let mut daemon = machine.start(&of(&[("a", "5")]));
        let mut runs = drawn(&daemon, "a");
        daemon.kill();
        let daemon = machine.start(&of(&[("a", "5"), ("c", "6")]));
        daemon.assert_logs("source \"c\" has worker ID 6 now, and pauses");
        proxy.cut();
        runs.extend(drawn(&daemon, "a"));
        assert_eq!(daemon.connect().next(Ask::of(1).source("c").wait_ms(0)).error().0, NO_CEILING);
        // Nor does a reload.
        reloaded(&daemon, &of(&[("a", "5"), ("c", "6"), ("d", "7")]));
        runs.extend(drawn(&daemon, "a"));
        proxy.pass();
        runs.extend(drawn(&daemon, "c"));
        runs.extend(drawn(&daemon, "d"));
        daemon.stop();
        assert_distinct(runs);
    });
}

/// A configuration manager may reload more often than a pause is long.
#[test]
fn reloads_that_change_nothing_cut_no_pause_short() {
    on_one(|at| {
        let of = with_own(at, &[("a", "5"), ("c", "6")]);
        init(&of);
        let machine = Machine::new();
        let daemon = machine.start(&with_own(at, &[("a", "5")]));
        let mut runs = drawn(&daemon, "a");
        reloaded(&daemon, &of);
        daemon.assert_logs("source \"c\" has worker ID 6 now, and pauses");
        let began = std::time::Instant::now();
        poll("IDs of the source that pauses", || {
            assert!(reloaded(&daemon, &of).contains("nothing changed"));
            let reply = daemon.connect().next(Ask::of(100).source("c").wait_ms(100));
            reply.id_count().map(|_| runs.extend(reply.runs()))
        });
        assert!(
            began.elapsed() > snowbank_fleet::POLL_PERIOD,
            "a holder may not have polled yet: {:?}",
            began.elapsed()
        );
        let log = daemon.log();
        daemon.stop();
        assert_eq!(log.matches("source \"c\" has worker ID 6 now, and pauses").count(), 1, "{log}");
        assert_distinct(runs);
    });
}

/// What it took goes back, so a later source need not wait for a horizon.
#[test]
fn a_source_that_is_removed_in_its_pause_gives_its_worker_id_back() {
    on_one(|at| {
        let (one, two) = (with_own(at, &[("a", "5")]), with_own(at, &[("a", "5"), ("c", "6")]));
        init(&one);
        let machine = Machine::new();
        let daemon = machine.start(&one);
        let mut runs = drawn(&daemon, "a");
        reloaded(&daemon, &two);
        daemon.assert_logs("source \"c\" has worker ID 6 now, and pauses");
        reloaded(&daemon, &one);
        poll("a worker ID that is free", || {
            let (_, text) = fleet(&one, &["list"]);
            (!text.contains("6: held by")).then_some(())
        });
        reloaded(&daemon, &two);
        runs.extend(drawn(&daemon, "c"));
        daemon.stop();
        assert_distinct(runs);
    });
}

/// A worker ID was moved to another machine, so its source waits until somebody brings it back.
#[test]
fn a_source_that_cannot_start_keeps_no_other_from_starting() {
    on_one(|at| {
        let a = ("a", "5");
        init(&with_own(at, &[a]));
        let machine = Machine::new();
        machine.start("worker_ids = 7\nmax_ahead = \"400ms\"\n").stop();
        assert_eq!(machine.run(&["state", "export"]).code, Some(0));
        let daemon = machine.start(&with_own(at, &[a]));
        let mut runs = drawn(&daemon, "a");
        reloaded(&daemon, &with_own(at, &[a, ("moved", "7"), ("d", "6")]));
        runs.extend(drawn(&daemon, "d"));
        let (_, _, text) = daemon.connect().next(Ask::of(1).source("moved").wait_ms(9_000)).error();
        assert!(text.contains("source moved waits: its start was refused"), "{text}");
        daemon.assert_logs("moved worker ID 7");
        daemon.stop();
        assert_distinct(runs);
    });
}

/// The source that names the worker ID waits for another one, which a daemon holds.
#[test]
fn no_source_picks_what_another_source_names() {
    on_one(|at| {
        let nine = with_own(at, &[("nine", "9")]);
        init(&nine);
        let other = Machine::new();
        let holder = other.start(&nine);
        let mut runs = drawn(&holder, "nine");
        let machine = Machine::new();
        let picks = "[[sources]]\nname = \"c\"\nworker_ids = \"5-8\"\nworker_id_from = \"coordinator\"\n";
        let daemon = machine.start(&(with_own(at, &[("a", "5,9")]) + picks));
        runs.extend(drawn(&daemon, "c"));
        holder.stop();
        runs.extend(drawn(&daemon, "a"));
        daemon.stop();
        assert_distinct(runs);
    });
}

#[test]
fn a_source_that_was_renamed_after_a_kill_goes_on_without_asking() {
    on_one(|at| {
        let proxy = at.proxy();
        let of = |name| with_own(at, &[(name, "5")]).replace(&at.url(), &proxy.url());
        init(&of("a"));
        let machine = Machine::new();
        let mut daemon = machine.start(&of("a"));
        let mut runs = drawn(&daemon, "a");
        daemon.kill();
        proxy.cut();
        let daemon = machine.start(&of("b"));
        runs.extend(drawn(&daemon, "b"));
        proxy.pass();
        daemon.stop();
        assert_distinct(runs);
    });
}
