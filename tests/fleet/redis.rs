//! Redis only: failovers that lose writes, sentinels, and replicas that lag.

use super::*;
use crate::support::coordinators::{Proxy, Redis, Watched};

/// 16 IDs a second, so that daemons that hand out IDs of the same second must repeat some.
const LAYOUT: &str = "layout = \"time:33,worker:4,sequence:4;tick=1s;epoch=2025-01-01T00:00:00Z\"\n\
                      sequence_start = \"zero\"\nworker_ids = 5\nmax_ahead = \"4s\"\n";

fn redis_toml(endpoints: &[String]) -> String {
    format!("{LAYOUT}[fleet]\ncoordinator = \"redis\"\nendpoints = {endpoints:?}\nhorizon = \"16s\"\n")
}

/// Makes one Redis the replica of another, and waits until it has the data.
fn follow(replica: &Redis, master: &Redis) {
    replica.ask(&["REPLICAOF", "127.0.0.1", &master.address().port().to_string()]);
    // The master counts the replica after it has sent an acknowledgement.
    poll("the replica follows", || {
        master.ask(&["INFO", "replication"]).contains("state=online").then_some(())
    });
}

/// The master acknowledges a raise that no replica gets. The replica becomes master and another daemon takes the
/// number. The first daemon continues up to its ceiling.
#[test]
fn a_failover_that_loses_the_last_raise_repeats_nothing() {
    let (Some(first), Some(second)) = (Redis::start(), Redis::start()) else { return };
    follow(&second, &first);
    let proxy = Proxy::before(first.address(), "redis");
    let toml = redis_toml(&[proxy.url()]);
    init(&toml);
    let machine = Machine::new();
    let daemon = machine.start(&toml);
    let mut runs = daemon.connect().next(Ask::of(4).wait_ms(9_000)).runs();
    let value = first.get(KEY);
    let value = poll("a raise", || Some(first.get(KEY)).filter(|now| *now != value));
    poll("the replica has it", || (second.get(KEY) == value).then_some(()));
    second.ask(&["REPLICAOF", "NO", "ONE"]);
    poll("a raise that the replica lacks", || (first.get(KEY) != value).then_some(()));
    proxy.cut();
    let at_second = redis_toml(&[second.url()]);
    release_by_force(&at_second, "5");
    let other = Machine::new();
    let taker = other.start(&at_second);
    // All IDs of each second that either daemon may hand out.
    let mut wires = [daemon.connect(), taker.connect()];
    poll("the first daemon meets its ceiling, and the other one has IDs", || {
        let mut is_over = true;
        for (at, wire) in wires.iter_mut().enumerate() {
            match wire.next(Ask::of(4).wait_ms(0)) {
                Reply::Runs(_, more) => {
                    runs.extend(more);
                    is_over &= at == 1;
                }
                Reply::Error { code, .. } => is_over &= at == 0 && code == NO_CEILING,
                other => panic!("{other:?}"),
            }
        }
        is_over.then_some(())
    });
    assert_distinct(runs);
}

/// A holder that still runs may have been granted a horizon more than the key shows, if a failover lost its last raises.
#[test]
fn a_number_that_an_operator_releases_starts_a_horizon_later() {
    let Some(redis) = Redis::start() else { return };
    let toml = redis_toml(&[redis.url()]);
    init(&toml);
    let machine = Machine::new();
    machine.start(&toml).kill();
    let bound = || {
        let text = redis.get(KEY);
        let key = &text[text.find('{').expect("an object")..];
        let key: serde_json::Value = serde_json::from_str(key).expect("JSON");
        key["id_bound"].as_str().expect("text").parse::<u64>().expect("a number")
    };
    let before = bound();
    release_by_force(&toml, "5");
    // A tick has 8 bits below it.
    assert!(bound() >= before + (16 << 8), "{before} to {}", bound());
}

#[test]
fn a_daemon_follows_its_sentinel_to_the_next_master() {
    let Some(mut watched) = Watched::start(2) else { return };
    let toml = redis_toml(&[watched.url()]);
    init(&toml);
    let machine = Machine::new();
    let daemon = machine.setup(&toml).admin().start();
    let mut runs = daemon.connect().next(Ask::of(4).wait_ms(9_000)).runs();
    // A write waits for one replica only. The other may be promoted, and a daemon whose key is missing there ends.
    poll("each replica has the key", || {
        let value = watched.master.get(KEY);
        watched.replicas.iter().all(|replica| replica.get(KEY) == value).then_some(())
    });
    watched.master.kill();
    let promoted = watched.promoted();
    let value = promoted.get(KEY);
    poll("a raise at the new master", || (promoted.get(KEY) != value).then_some(()));
    runs.extend(daemon.connect().next(Ask::of(4).wait_ms(9_000)).runs());
    poll("ready", || (get(&daemon, "/readyz").code == 200).then_some(()));
    assert_distinct(runs);
}

#[test]
fn a_write_that_no_replica_takes_over_does_not_count() {
    let (Some(master), Some(replica)) = (Redis::start(), Redis::start()) else { return };
    follow(&replica, &master);
    let short = |toml: String| {
        toml.replace("tick=1s", "tick=100ms").replace("\"4s\"", "\"1s\"").replace("\"16s\"", "\"5s\"")
    };
    let toml = short(redis_toml(&[master.url()]));
    init(&toml);
    replica.signal(Signal::STOP);
    let machine = Machine::new();
    let daemon = machine.start(&toml);
    daemon.assert_logs("no replica of Redis has the write yet");
    assert!(draw_until(&daemon, NO_CEILING).is_empty());
    replica.signal(Signal::CONT);
    // It finds its own write, and writes again.
    poll("an ID", || matches!(daemon.connect().next(Ask::of(1)), Reply::Runs(..)).then_some(()));
    let replicas = redis_toml(&[replica.url()]);
    Machine::new()
        .setup(&replicas)
        .end()
        .assert_refusal_for_now(&["found a replica, allowed: a master or a sentinel"]);
}

/// The line of a write that no replica has yet.
const NO_REPLICA: &str = "no replica of Redis has the write yet";

/// A replica is connected, and lags: as one that has just connected, or whose machine stands.
#[test]
fn a_first_start_beside_a_replica_that_lags_waits_for_it_with_one_number() {
    let (Some(master), Some(replica)) = (Redis::start(), Redis::start()) else { return };
    follow(&replica, &master);
    let given = redis_toml(&[master.url()]).replace("\"16s\"", "\"10m\"");
    let lent = given.replace("worker_ids = 5", "worker_id_from = \"coordinator\"");
    replica.signal(Signal::STOP);
    for _ in 0..2 {
        let (code, text) = fleet(&given, &["init"]);
        assert!(code == Some(3) && text.contains(NO_REPLICA), "{text}");
    }
    let machines = [Machine::new(), Machine::new()];
    let daemons: Vec<Daemon> = (machines.iter().zip([&given, &lent]))
        .map(|(machine, toml)| {
            // It may be killed while it waits.
            let mut daemon = machine.start(toml);
            daemon.assert_logs(NO_REPLICA);
            assert!(draw_until(&daemon, NO_CEILING).is_empty());
            daemon.kill();
            machine.start(toml)
        })
        .collect();
    let (_, text) = fleet(&given, &["list"]);
    assert_eq!(text.lines().count(), 2, "a number each: {text}");
    replica.signal(Signal::CONT);
    let mut runs = Vec::new();
    for daemon in &daemons {
        let mut wire = daemon.connect();
        runs.extend(poll("an ID", || match wire.next(Ask::of(1).wait_ms(100)) {
            Reply::Runs(_, runs) => Some(runs),
            _ => None,
        }));
    }
    let (_, text) = fleet(&given, &["list"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    let (code, text) = fleet(&given, &["init"]);
    assert!(code == Some(0) && text.contains("was prepared before"), "{text}");
    assert_distinct(runs);
}
