//! Ticket counters: their order, their uniqueness and the numbers left out. Ticket numbers contain
//! no time, so no time is checked.

use crate::support::coordinators::{Coordinator, Etcd};
use crate::support::{CLOSED, Daemon, Ran, Setup, has_daemon, loadtest};

/// Starts a daemon whose counter hands out every second number.
fn counter() -> Daemon {
    let config = "listen = [\"127.0.0.1:0\"]\n[resp]\nlisten = [\"127.0.0.1:0\"]\n[[sources]]\nname = \"orders\"\n\
                  kind = \"ticket\"\nincrement = 2\noffset = 1\n";
    let setup = Setup::bare().config(config).listeners(2);
    set(&setup, &["--increment", "2", "--offset", "1"]);
    setup.start()
}

/// Returns the setup of a daemon in the named fleet. The daemons of a fleet share a counter.
fn daemon_in(fleet: &str, etcd: &Etcd) -> Setup {
    Setup::configured(&format!(
        "[fleet]\nname = \"{fleet}\"\ncoordinator = \"etcd\"\nendpoints = [\"{}\"]\n\
         [[sources]]\nname = \"orders\"\nkind = \"fleet-ticket\"\n",
        etcd.url()
    ))
}

fn set(setup: &Setup, options: &[&str]) {
    let set = setup.run(&[&["ticket", "set", "orders", "0"], options].concat());
    assert_eq!(set.code, Some(0), "{set:?}");
}

fn load(daemons: [&Daemon; 2]) -> Ran {
    let [one, other] = daemons.map(|daemon| &daemon.addresses[0]);
    loadtest(&format!("{CLOSED} --batch 20 --address={one} --address={other}"))
}

#[test]
fn a_ticket_run_reports_its_increment_and_left_out_numbers() {
    if !has_daemon() {
        return;
    }
    for target in ["--address NATIVE", "--resp --address RESP --info NATIVE"] {
        let daemon = counter();
        let [native, resp] = [0, 1].map(|at| daemon.addresses[at].to_string());
        let target = target.replace("NATIVE", &native).replace("RESP", &resp);
        let ran = loadtest(&format!("{CLOSED} --batch 20 {target}"));
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.figure("target", "layout"), "tickets, increment 2", "{ran:?}");
        assert!(ran.words().contains("numbers left out 0"), "{ran:?}");
    }
}

#[test]
fn daemons_that_share_a_counter_are_loaded_together() {
    let Some(etcd) = Etcd::start().filter(|_| has_daemon()) else { return };
    for fleet in ["one", "two"] {
        let setup = daemon_in(fleet, &etcd);
        set(&setup, &["--config", setup.path("snowbank.toml").to_str().expect("UTF-8")]);
    }
    let one = daemon_in("one", &etcd).start();
    // Exit code 0 means that no number came twice.
    let ran = load([&one, &daemon_in("one", &etcd).start()]);
    assert!(ran.code == 0 && ran.figure("target", "layout") == "tickets, increment 1", "{ran:?}");
    assert_eq!(ran.figure("IDs", "answered"), ran.figure("IDs", "requests"), "{ran:?}");
    load([&one, &daemon_in("two", &etcd).start()]).assert_refused(1, "hand out the same IDs");
}
