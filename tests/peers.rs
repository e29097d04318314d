//! Daemons that compare their worker IDs and clocks with each other, without a coordinator.

mod secure;
mod support;

use std::path::Path;

use secure::{Authority, tls_section, write_secret};
use support::coordinators::Proxy;
use support::daemon::Ended;
use support::http::{get, sample, scrape};
use support::machine::Machine;
use support::{Daemon, Setup, poll};

/// A configuration with this worker ID and these peers.
fn toml(worker: u64, peers: &[&str]) -> String {
    format!("worker_ids = {worker}\n[fleet]\npeers = {peers:?}\n")
}

/// Returns the level and the message of this check of the daemon's status, if it has one.
fn check(daemon: &Daemon, name: &str) -> Option<(String, String)> {
    let status = get(daemon, "/status").json();
    let check = status["checks"].as_array()?.iter().find(|check| check["name"] == name)?;
    let text = |key: &str| check[key].as_str().map(str::to_owned);
    Some((text("level")?, text("message")?))
}

/// Waits until a check has this level, and returns its message.
fn await_check(daemon: &Daemon, name: &str, level: &str) -> String {
    poll(&format!("{name} {level}"), || {
        let (found, message) = check(daemon, name)?;
        // Before the first look has ended, nothing is known of any peer.
        (found == level && !message.starts_with("0 ")).then_some(message)
    })
}

fn await_log(daemon: &Daemon, part: &str) {
    poll(part, || daemon.log().contains(part).then_some(()));
}

/// Checks that a start is refused for now. A daemon waits a second for its peers. If the answer is late, it starts,
/// and this tries again.
#[track_caller]
fn assert_refused(toml: &str, parts: &[&str]) {
    let daemon = poll("a refusal", || Machine::new().setup(toml).try_start().err());
    Ended::of(*daemon).assert_refusal_for_now(parts);
}

#[test]
fn a_daemon_does_not_start_with_the_worker_id_of_a_peer() {
    let first = Setup::configured(&toml(5, &[])).start();
    let address = first.tcp().to_string();
    let parts = [&format!("peer {address} ("), "has worker ID 5 of source \"default\" too", "worker_ids"];
    assert_refused(&toml(5, &[&address]), &parts);
    // The same number in another ID space makes other IDs.
    let other_space = format!("layout = \"sonyflake\"\n{}", toml(5, &[&address]));
    drop(Setup::configured(&other_space).start());
    let daemon = Setup::configured(&toml(6, &[&address])).admin().start();
    let message = await_check(&daemon, "peers", "ok");
    assert!(message.starts_with("1 other daemon answers"), "{message}");
    let samples = scrape(&daemon);
    assert_eq!(sample(&samples, &format!("snowbank_peer_up{{peer=\"{address}\"}}")), 1.0);
    assert_eq!(sample(&samples, &format!("snowbank_peer_same_worker_ids{{peer=\"{address}\"}}")), 0.0);
}

#[test]
fn a_daemon_may_be_its_own_peer_and_a_name_may_have_addresses_without_a_listener() {
    let other = Setup::configured(&toml(1, &[])).start();
    let named = format!("localhost:{}", other.tcp().port());
    let daemon = Setup::configured(&toml(2, &[])).admin().start();
    let own = daemon.tcp().to_string();
    std::fs::write(daemon.path("snowbank.toml"), toml(2, &[&own, &named])).expect("written");
    daemon.signal(rustix::process::Signal::HUP);
    let message = await_check(&daemon, "peers", "ok");
    assert!(message.starts_with("1 other daemon answers"), "{message}");
    assert_eq!(get(&daemon, "/status").json()["peers"]["peers"].as_array().map(Vec::len), Some(1));
}

#[test]
fn two_daemons_with_one_worker_id_are_reported_once_they_reach_each_other() {
    let other = Setup::configured(&toml(5, &[])).start();
    let network = Proxy::before(other.tcp(), "tcp");
    network.cut();
    let peer = network.url().replace("tcp://", "");
    let daemon = Setup::configured(&toml(5, &[&peer])).admin().start();
    let message = await_check(&daemon, "peers", "warn");
    assert!(message.starts_with("1 of 1 peers does not answer, so nothing is known"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    await_log(&daemon, "check peers warns: 1 of 1 peers does not answer");
    network.pass();
    let message = await_check(&daemon, "peers", "fail");
    assert!(message.contains(&peer) && message.contains("worker ID 5 of source \"default\""), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 503);
    await_log(&daemon, "check peers fails: ");
    let samples = scrape(&daemon);
    assert_eq!(sample(&samples, &format!("snowbank_peer_same_worker_ids{{peer=\"{peer}\"}}")), 1.0);
    drop(other);
    await_check(&daemon, "peers", "warn");
    assert_eq!(get(&daemon, "/readyz").code, 200);
}

#[test]
fn clocks_that_differ_are_a_warning() {
    let Some(machine) = Machine::with_clock() else { return };
    machine.clock().set(90_000);
    let away = machine.start(&toml(1, &[]));
    let peers = toml(2, &[&away.tcp().to_string()]);
    let daemon = Setup::configured(&peers).admin().start();
    let message = await_check(&daemon, "peer_clocks", "warn");
    assert!(message.contains("s ahead of this machine's"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    let tolerant = format!("{peers}clock_tolerance = \"3m\"\n");
    std::fs::write(daemon.path("snowbank.toml"), tolerant).expect("written");
    daemon.signal(rustix::process::Signal::HUP);
    await_check(&daemon, "peer_clocks", "ok");
}

#[test]
fn a_peer_is_asked_over_tls_and_with_a_token() {
    let directory = support::directory();
    let at = |name: &str| directory.path().join(name);
    let authority = Authority::new(directory.path(), "authority");
    let pair = authority.issue("server", &["localhost"]);
    write_secret(&at("tokens"), "of-the-fleet\n");
    let token_file = |path: &Path| format!("token_file = \"{}\"\n", path.display());
    let secured = format!("worker_ids = 5\n[auth]\n{}{}", token_file(&at("tokens")), tls_section(&pair, ""));
    let other = Setup::configured(&secured).args(["--listen", "tls:127.0.0.1:0"]).listeners(2).start();
    let peer = format!("tls:localhost:{}", other.addresses[1].tcp().port());
    let ca = format!("ca = \"{}\"\n", authority.file.display());
    let without = format!("{}{ca}", toml(5, &[&peer]));
    let daemon = Setup::configured(&without).admin().start();
    let message = await_check(&daemon, "peers", "warn");
    assert!(message.contains("asks for a token"), "{message}");
    let toml = format!("{without}peers_{}", token_file(&at("tokens")));
    assert_refused(&toml, &["has worker ID 5"]);
}
