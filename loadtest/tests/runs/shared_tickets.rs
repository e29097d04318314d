//! Two daemons that share a ticket counter at a real etcd. Time is not checked.

use crate::support::coordinators::{Coordinator, Etcd};
use crate::support::{CLOSED, Daemon, Ran, Setup, has_daemon, loadtest};

/// Returns a daemon in the fleet of this name.
fn daemon_in(fleet: &str, etcd: &Etcd) -> Setup {
    Setup::configured(&format!(
        "[fleet]\nname = \"{fleet}\"\ncoordinator = \"etcd\"\nendpoints = [\"{}\"]\n\
         [[sources]]\nname = \"orders\"\nkind = \"fleet-ticket\"\n",
        etcd.url()
    ))
}

fn make_counter(setup: &Setup) {
    let path = setup.path("snowbank.toml");
    let set = setup.run(&["ticket", "set", "orders", "0", "--config", path.to_str().expect("UTF-8")]);
    assert_eq!(set.code, Some(0), "{set:?}");
}

fn load(one: &Daemon, other: &Daemon) -> Ran {
    let addresses = [one, other].map(|daemon| format!("--address={}", daemon.addresses[0]));
    loadtest(&[&CLOSED[..], &["--batch=20"], &addresses.each_ref().map(String::as_str)].concat())
}

#[test]
fn daemons_that_share_a_counter_are_loaded_together_and_those_of_two_fleets_are_refused() {
    let Some(etcd) = Etcd::start().filter(|_| has_daemon()) else { return };
    make_counter(&daemon_in("one", &etcd));
    let ran = load(&daemon_in("one", &etcd).start(), &daemon_in("one", &etcd).start());
    // All requests were answered, and no number came twice.
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.figure("target", "layout") == "tickets, increment 1", "{ran:?}");
    assert_eq!(ran.figure("IDs", "answered"), ran.figure("IDs", "requests"), "{ran:?}");
    make_counter(&daemon_in("two", &etcd));
    let ran = load(&daemon_in("one", &etcd).start(), &daemon_in("two", &etcd).start());
    ran.assert_refused(1, "count the same tickets");
}
