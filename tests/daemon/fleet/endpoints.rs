//! Several endpoints, of which one hangs, is away, or belongs to another cluster.

use super::bad_input::another;
use super::*;

/// The number of times that a test starts a daemon until all working endpoints answer before their
/// comparison ends. On a busy machine, some may answer too late.
pub(super) const TRIES: usize = 5;

/// Starts a daemon with an endpoint that hangs after this many answers, and two that work. Returns
/// the number of connections to the one that hangs.
fn start_beside_one_that_hangs(at: &dyn Coordinator, answers: u64) -> u64 {
    let proxy = at.proxy();
    proxy.hang_after(answers);
    let named = at.url().replace("127.0.0.1", "localhost");
    let toml = toml_at(at, &[&proxy.url(), &at.url(), &named], Some(5), LONG);
    let machine = Machine::new();
    let daemon = machine.start(&toml);
    assert_eq!(worker_of(&draw(&daemon)), 5);
    let connections = proxy.connections();
    daemon.stop();
    connections
}

/// The endpoint accepts the connection and sends no answer; or, except at etcd, one answer and no
/// more.
#[test]
fn a_start_beside_a_hanging_endpoint_asks_that_once() {
    each(|at| {
        init(&toml(at, Some(5), LONG));
        for answers in [0, u64::from(at.name() != "etcd")] {
            let is_asked_once = (0..TRIES).any(|_| start_beside_one_that_hangs(at, answers) == 1);
            assert!(is_asked_once, "after {answers} answers");
        }
    });
}

/// Takes the daemon's cluster away for longer than its ceiling. Checks that it writes nothing at
/// the other one and serves again afterwards. Returns what it drew.
fn stays_at(at: &mut dyn Coordinator, other: &dyn Coordinator, daemon: &Daemon) -> Vec<Run> {
    let before = other.get(KEY);
    at.kill();
    let mut runs = daemon.draw_until(Ask::of(10), NO_CEILING);
    assert_eq!(other.get(KEY), before);
    at.run();
    runs.extend(draw(daemon));
    runs
}

/// The other cluster was away at the start, so it was not compared. At ZooKeeper it even has the
/// daemon's key, as if it had begun as a copy of the daemon's own cluster.
#[test]
fn a_daemon_stays_in_its_cluster_when_that_goes_away() {
    each(|at| {
        let mut other = another(at);
        init(&toml(at, Some(5), LONG));
        let toml_of_other = toml(other.as_ref(), Some(5), LONG);
        init(&toml_of_other);
        other.kill();
        let machine = Machine::new();
        let daemon = machine.start(&toml_at(at, &[&at.url(), &other.url()], Some(5), SHORT));
        let mut runs = draw(&daemon);
        other.run();
        if at.name() != "etcd" {
            let key = at.get(KEY);
            let is_end = |c| c == '}';
            let text = key.find('{').zip(key.find(is_end)).map(|(from, to)| &key[from..=to]);
            other.put(KEY, text.expect("JSON"));
        }
        runs.extend(stays_at(at, other.as_ref(), &daemon));
        assert_distinct(runs);
    });
}
