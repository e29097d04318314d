//! Numbers that change hands: idle daemons, copied states, and a service manager that starts a
//! daemon again.

use std::net::TcpListener;

use super::*;
use crate::support::copy;

#[test]
fn a_daemon_without_requests_keeps_its_number() {
    on_one(|at| {
        let toml = toml(at, Some(5), SHORT);
        init(&toml);
        let machine = Machine::new();
        let daemon = machine.start(&toml);
        for _ in 0..2 {
            let before = at.get(KEY);
            poll("a raise without a request", || (at.get(KEY) != before).then_some(()));
        }
        Machine::new().setup(&toml).assert_waits(&["holds worker ID 5"]);
        drop(daemon);
    });
}

/// The backup is of a running daemon, so its ceiling is above the last ID that the daemon handed
/// out.
#[test]
fn a_backup_from_before_a_clean_stop_asks_whose_the_number_is() {
    on_one(|at| {
        let toml = toml(at, Some(5), LONG);
        init(&toml);
        let machine = Machine::new();
        let other = Machine::new();
        let state = machine.path("state");
        let daemon = machine.start(&toml);
        let mut runs = draw(&daemon);
        copy(&state, &machine.path("backup"));
        daemon.stop();
        let taker = start_once_released(|| other.setup(&toml));
        runs.extend(draw(&taker));
        copy(&machine.path("backup/."), &state);
        machine.setup(&toml).assert_waits(&["holds worker ID 5", "free from"]);
        taker.stop();
        runs.extend(draw(&start_once_released(|| machine.setup(&toml))));
        assert_distinct(runs);
    });
}

/// A service manager keeps the socket, and starts the daemon again after its end.
#[test]
fn clients_at_a_kept_socket_notice_no_replaced_number() {
    on_one(|at| {
        let toml = toml(at, None, LONG);
        init(&toml);
        let machine = Machine::new();
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let start = || {
            let setup = Setup::bare()
                .config(&toml)
                .env("SNOWBANK_STATE_DIR", machine.path("state"))
                .env("SNOWBANK_LOCK_DIR", machine.path("locks"));
            setup.inheriting(socket.try_clone().expect("a copy"), "native").start()
        };
        let mut daemon = start();
        let mut runs = draw(&daemon);
        release_by_force(&toml, "0");
        assert_eq!(daemon.wait(), Some(3), "{}", daemon.log());
        let mut waits = Wire::connect(&daemon.addresses[0]);
        waits.send(&Ask::of(100).wait_ms(9_000).bytes());
        let daemon = start();
        let drawn = waits.reply().runs();
        assert_eq!(worker_of(&drawn), 1, "{}", daemon.log());
        runs.extend(drawn);
        assert_distinct(runs);
    });
}
