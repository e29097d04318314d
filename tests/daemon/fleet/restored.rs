//! What happens when a coordinator is restored to an older state, and when a daemon starts in a
//! fleet whose coordinator does not know which IDs were handed out.

use super::*;

/// Waits until a daemon's clock has reached the fleet's floor, and returns the first IDs that the
/// daemon then hands out.
fn draw_above_the_floor(daemon: &Daemon) -> Vec<Run> {
    daemon.assert_has_numbers();
    let mut wire = daemon.connect();
    poll("IDs above the floor", || match wire.next(Ask::of(100).wait_ms(100)) {
        Reply::Runs(_, runs) => Some(runs),
        Reply::Error { code, .. } => {
            // On a busy machine the first ceiling may take longer than the wait.
            assert!([CLOCK_BEHIND, NO_CEILING].contains(&code), "the daemon refused with code {code}");
            None
        }
        other => panic!("{other:?}"),
    })
}

/// During the restore, one daemon is paused, one is restarted by its service manager, and one is
/// new.
#[test]
fn a_coordinator_restored_from_a_backup_repeats_no_id() {
    each(|at| {
        let toml = prepared(at, None, "16s");
        at.back_up();
        let [notices, paused] = [(); 2].map(|()| Machine::new());
        let mut first = notices.start(&toml);
        let mut second = paused.start(&toml);
        let mut runs = draw(&first);
        runs.extend(draw(&second));
        second.signal(Signal::STOP);
        at.restore();
        assert_eq!(first.wait(), Some(3), "{}", first.log());
        // At the coordinator both worker IDs look free, because they were taken after the backup.
        let again = notices.start(&toml);
        // If the restore took so long that the clock is near the bound of the daemon's worker ID,
        // the daemon starts above the floor. So the test waits for IDs above the floor.
        let more = draw_above_the_floor(&again);
        assert_eq!(worker_of(&more), worker_of(&runs), "the daemon gets its own worker ID again");
        runs.extend(more);
        let late = Machine::new();
        let third = late.start(&toml);
        let (_, listed) = fleet(&toml, &["list"]);
        assert_eq!(listed.lines().count(), 2, "{listed}");
        let mut wire = second.connect();
        wire.send(&Ask::of(100).wait_ms(0).bytes());
        second.signal(Signal::CONT);
        if let Ok(Some(Reply::Runs(_, more))) = wire.try_reply() {
            runs.extend(more);
        }
        assert_eq!(second.wait(), Some(3), "{}", second.log());
        runs.extend(draw_above_the_floor(&third));
        runs.extend(draw(&again));
        assert_distinct(runs);
    });
}

/// A daemon that has lost its worker ID ends before its disk has stored that. Its next start must ask.
#[test]
fn a_start_after_a_loss_asks_even_if_the_disk_was_slow() {
    each(|at| {
        let (proxy, toml) = prepared_behind_proxy(at, Some(5), "60s");
        at.back_up();
        let machine = Machine::new();
        let mut daemon = machine.start(&toml);
        let mut runs = draw(&daemon);
        let notes = std::fs::read(machine.path("state/fleet")).unwrap();
        at.restore();
        if at.name() == "etcd" {
            // The stop finds the loss, unless a poll was first.
            daemon.signal(Signal::TERM);
        }
        daemon.wait();
        std::fs::write(machine.path("state/fleet"), notes).unwrap();
        proxy.cut();
        let daemon = machine.start(&toml);
        daemon.assert_logs("waits, and hands out nothing");
        assert_eq!(daemon.connect().next(Ask::of(1).wait_ms(0)).error().0, NO_CEILING);
        proxy.pass();
        runs.extend(draw_above_the_floor(&daemon));
        daemon.stop();
        assert_distinct(runs);
    });
}

/// Follows the steps of docs/fleet.md for machines with worker IDs of their own.
#[test]
fn daemons_with_own_worker_ids_enter_a_fleet_one_by_one() {
    on_one(|at| {
        let machines = [Machine::new(), Machine::new()];
        let mut runs = Vec::new();
        let mut plain: Vec<Daemon> = Vec::new();
        for (machine, id) in machines.iter().zip([3, 5]) {
            plain.push(machine.start(&format!("max_ahead = \"400ms\"\nworker_ids = {id}\n")));
        }
        for daemon in &plain {
            runs.extend(draw(daemon));
        }
        fleet_says(&toml(at, Some(3), LONG), &["init", "--above", "now"], 0, &["starts above"]);
        // First the daemons enter with their own worker IDs, machine by machine.
        let mut daemons = Vec::new();
        for ((machine, id), daemon) in machines.iter().zip([3, 5]).zip(plain) {
            daemon.stop();
            let daemon = machine.start(&toml(at, Some(id), LONG));
            runs.extend(draw(&daemon));
            daemons.push(daemon);
        }
        // Then the fleet assigns each worker ID to the machine that had it.
        for ((machine, id), daemon) in machines.iter().zip([3, 5]).zip(daemons) {
            daemon.stop();
            let daemon = machine.start(&toml(at, None, LONG));
            let more = draw(&daemon);
            assert_eq!(worker_of(&more), id);
            runs.extend(more);
            let new_machine = Machine::new();
            let newcomer = new_machine.start(&toml(at, None, LONG));
            let more = draw(&newcomer);
            assert!(![3, 5].contains(&worker_of(&more)), "{id}");
            runs.extend(more);
            daemon.stop();
            newcomer.stop();
        }
        assert_distinct(runs);
    });
}
