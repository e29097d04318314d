//! Endpoints that belong to several clusters, or that do not answer.

use super::*;
use crate::support::Port;
use crate::support::coordinators::ZooKeeper;

/// Starts another coordinator of the same kind.
pub(super) fn another(at: &dyn Coordinator) -> Box<dyn Coordinator> {
    match at.name() {
        "etcd" => Box::new(Etcd::start().expect("installed")),
        _ => Box::new(ZooKeeper::start().expect("installed")),
    }
}

#[test]
fn endpoints_of_two_clusters_are_refused_with_both_named() {
    each(|at| {
        let other = another(at);
        init(&toml(at, Some(5), LONG));
        let both = |first: &str, second: &str| toml_at(at, &[first, second], Some(5), LONG);
        let parts = [at.url(), other.url(), String::from("allowed: members of one cluster")];
        let refused = || {
            for toml in [both(&at.url(), &other.url()), both(&other.url(), &at.url())] {
                refused_for_two_clusters(&toml).assert_refusal(&parts.each_ref().map(String::as_str));
            }
        };
        refused();
        init(&toml(other.as_ref(), Some(5), LONG));
        refused();
        // One cluster under two names is allowed, and so is an endpoint that does not answer.
        let away = Port::take().address().to_string();
        let [named, away] =
            [at.url().replace("127.0.0.1", "localhost"), at.url().replace(&at.address().to_string(), &away)];
        for second in [named, away] {
            let machine = Machine::new();
            let daemon = machine.start(&both(&at.url(), &second));
            assert_eq!(worker_of(&draw(&daemon)), 5);
            daemon.stop();
        }
    });
}

/// The other cluster does not answer at the start, so the daemon cannot compare the clusters. At
/// ZooKeeper the other cluster even has the daemon's key, like a copy of the daemon's own cluster.
#[test]
fn a_daemon_ignores_another_cluster_if_its_own_goes_away() {
    each(|at| {
        let mut other = another(at);
        init(&toml(at, Some(5), SHORT));
        let toml_of_other = toml(other.as_ref(), Some(5), SHORT);
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
        // The daemon serves up to its ceiling, and writes nothing to the other cluster.
        let before = other.get(KEY);
        at.kill();
        runs.extend(daemon.draw_until(Ask::of(10), NO_CEILING));
        assert_eq!(other.get(KEY), before);
        at.run();
        runs.extend(draw(&daemon));
        assert_distinct(runs);
    });
}
