//! Connections to the coordinator that hang or are reopened, and daemons that wait for a worker ID.

use super::*;
use crate::support::failing_disk::FailingDisk;

/// The daemon's connection stays open but carries nothing, as after a failover of the network.
#[test]
fn a_hanging_connection_hides_no_loss_and_delays_no_raise() {
    each(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), SHORT);
        let (_machine, mut daemon, mut runs) = serving(&toml);
        proxy.hang();
        let before = at.get(KEY);
        poll("a raise on another connection", || (at.get(KEY) != before).then_some(()));
        runs.extend(draw(&daemon));
        proxy.hang();
        at.delete(KEY);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        daemon.assert_logs("gone from the coordinator");
        assert_distinct(runs);
    });
}

/// The lock directory hangs, and with it the thread that marks how far IDs are granted.
#[test]
fn a_loss_is_noticed_although_the_lock_directory_hangs() {
    on_one(|at| {
        let toml = toml(at, Some(5), LONG);
        init(&toml);
        let machine = Machine::new();
        let disk = FailingDisk::new(&machine.path("locks"), machine.path("orders"));
        let mut daemon = disk.under(machine.setup(&toml)).start();
        let mut runs = draw(&daemon);
        disk.order("write stall 600000");
        poll("a mark that hangs", || {
            if let Reply::Runs(_, more) = daemon.connect().next(Ask::of(1).wait_ms(0)) {
                runs.extend(more);
            }
            disk.calls().iter().any(|call| call.starts_with("stall ")).then_some(())
        });
        at.delete(KEY);
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        assert_distinct(runs);
    });
}

/// A new connection may mean that the machine was copied. So a daemon writes its key at once on a
/// new connection, although no raise is due for minutes. The write would end another copy of the
/// daemon.
#[test]
fn a_reconnected_daemon_writes_its_key_and_keeps_its_ceiling() {
    each(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), LONG);
        let machine = Machine::new();
        let daemon = machine.setup(&toml).start();
        let mut runs = draw(&daemon);
        let list = || fleet(&toml, &["list"]).1;
        let before = at.get(KEY);
        let listed = list();
        proxy.cut();
        proxy.pass();
        poll("a write on a new connection", || (at.get(KEY) != before).then_some(()));
        assert_eq!(list(), listed, "the ceiling is the same");
        runs.extend(draw(&daemon));
        daemon.stop();
        assert_distinct(runs);
    });
}

/// The machine may have been copied, so the daemon hands out nothing before it has written its key.
/// The clock is behind by less than max_ahead.
#[test]
fn a_clock_that_is_set_back_in_an_outage_stops_the_ids_until_it_ends() {
    on_one(|at| {
        let Some(machine) = Machine::with_clock() else { return };
        let proxy = at.proxy();
        let toml = toml_at(at, &[&proxy.url()], Some(5), LONG).replace("400ms", "10s");
        init(&toml);
        let daemon = machine.start(&toml);
        let mut runs = draw(&daemon);
        proxy.cut();
        machine.clock().step(-3_000);
        runs.extend(daemon.draw_until(Ask::of(10), NO_CEILING));
        daemon.connect().next(Ask::of(1).wait_ms(500)).assert_error(0, NO_CEILING);
        proxy.pass();
        runs.extend(draw(&daemon));
        assert_distinct(runs);
    });
}

/// The daemon still hands out IDs below its ceiling. It shows no claim, because another daemon may
/// have its worker ID by now, and a client that finds one claim twice ends its calls.
#[test]
fn no_claim_is_shown_while_the_coordinator_is_silent() {
    each(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), LONG);
        let (_machine, daemon, mut runs) = serving(&toml);
        let claims = || daemon.connect().call(&wire::hello(1, b"")).welcome().claims;
        let shown = claims();
        assert_eq!(shown.len(), 1);
        proxy.cut();
        poll("a WELCOME without claims", || claims().is_empty().then_some(()));
        runs.extend(draw(&daemon));
        proxy.pass();
        poll("the claim again", || (claims() == shown).then_some(()));
        assert_distinct(runs);
    });
}

/// A further daemon is stopped while it waits for a worker ID.
#[test]
fn a_daemon_without_a_worker_id_waits_until_one_is_free() {
    on_one(|at| {
        let toml = format!("worker_ids = \"0-1\"\n{}", toml(at, None, LONG));
        init(&toml);
        let machines = [Machine::new(), Machine::new()];
        let [first, second] = machines.each_ref().map(|machine| machine.start(&toml));
        let mut runs = draw(&first);
        runs.extend(draw(&second));
        let machine = Machine::new();
        let waiting = machine.setup(&toml).admin().start();
        waiting.assert_logs("waits, and hands out nothing");
        waiting.assert_logs(&format!("fleet \"default\" at {}, horizon 600s", at.url()));
        assert!(!waiting.log().contains("locks of worker IDs are in"), "{}", waiting.log());
        let ready = get(&waiting, "/readyz");
        assert_eq!(ready.code, 503, "{}", ready.body);
        for part in [
            "no free worker ID; held: ",
            "0 by ",
            "1 by ",
            "is free from",
            "; start fewer daemons, or allow more worker_ids",
        ] {
            assert!(ready.body.contains(part), "{part:?}: {}", ready.body);
        }
        assert_eq!(get(&waiting, "/healthz").code, 200);
        assert!(!get(&waiting, "/metrics").body.contains("snowbank_worker_id{"));
        assert!(waiting.draw_until(Ask::of(10), NO_CEILING).is_empty());
        let other = Machine::new();
        let stops = other.start(&toml);
        stops.assert_logs("waits, and hands out nothing");
        stops.stop();
        let freed = twitter_worker(runs[0].first);
        first.stop();
        let after = draw(&waiting);
        assert_eq!(worker_of(&after), freed);
        runs.extend(after);
        poll("a ready daemon", || (get(&waiting, "/readyz").code == 200).then_some(()));
        waiting.stop();
        assert_distinct(runs);
    });
}

#[test]
fn a_waiting_daemon_ends_if_waiting_cannot_help() {
    on_one(|at| {
        let proxy = at.proxy();
        proxy.cut();
        let toml = format!("{}name = \"unprepared\"\n", toml_at(at, &[&proxy.url()], Some(5), LONG));
        let machine = Machine::new();
        let mut waiting = machine.start(&toml);
        waiting.assert_logs("the coordinator does not answer");
        // A daemon keeps its state's lock while it waits.
        machine.setup("worker_ids = 6\n").end().assert_refusal_for_now(&["in use"]);
        proxy.pass();
        assert_eq!(waiting.wait(), Some(2), "{}", waiting.log());
        waiting.assert_logs("no fleet of this name");
    });
}
