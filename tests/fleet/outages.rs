//! Connections that hang, slow coordinators, and clocks that differ.

use std::time::Duration;

use super::*;

/// As after a failover of the network: the daemon's connection is open, and nothing passes on it.
#[test]
fn a_connection_that_hangs_hides_no_loss_and_delays_no_raise() {
    each(|at| {
        let proxy = at.proxy();
        let toml = toml_at(at, &proxy.url(), Some(5), SHORT);
        init(&toml);
        let machine = Machine::new();
        let mut daemon = machine.start(&toml);
        let mut runs = draw(&daemon);
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

/// Requests that may not wait get their IDs through several raises of the ceiling.
#[test]
fn a_coordinator_that_takes_two_seconds_for_each_answer_delays_no_request() {
    /// Half of it is longer than two answers one after the other.
    const HORIZON: &str = "20s";
    each(|at| {
        let proxy = at.proxy();
        let toml = toml_at(at, &proxy.url(), Some(5), HORIZON);
        init(&toml);
        let machine = Machine::new();
        let daemon = machine.setup(&toml).start();
        let mut runs = draw(&daemon);
        proxy.delay(Duration::from_secs(2));
        let mut wire = daemon.connect();
        for raise in 0..2 {
            let before = at.get(KEY);
            poll("a raise", || {
                for _ in 0..50 {
                    match wire.next(Ask::of(1).wait_ms(0)) {
                        Reply::Runs(_, more) => runs.extend(more),
                        other => panic!("{other:?} before raise {raise}"),
                    }
                }
                (at.get(KEY) != before).then_some(())
            });
        }
        assert_distinct(runs);
    });
}
