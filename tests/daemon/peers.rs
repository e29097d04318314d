//! At a start, daemons without a coordinator compare their worker IDs with those of their peers.

use crate::secure::{Authority, tls_section, write_secret};
use crate::support::daemon::Ended;
use crate::support::machine::Machine;
use crate::support::{Port, Setup, poll};

fn toml(worker: u64, peers: &[&str]) -> String {
    format!("worker_ids = {worker}\n[fleet]\npeers = {peers:?}\n")
}

/// Checks that a start is refused with exit code 3. A daemon waits two seconds for its peers. If a
/// peer answers later, the daemon starts, and this function tries again.
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
    // The same worker ID in another ID space makes other IDs.
    let other_space = format!("layout = \"sonyflake\"\n{}", toml(5, &[&address]));
    drop(Setup::configured(&other_space).start());
    drop(Setup::configured(&toml(6, &[&address])).start());
}

/// If the peer answers after more than two seconds, the reload is taken, and this test tries again.
#[test]
fn a_reload_takes_no_worker_id_of_a_peer() {
    let first = Setup::configured(&toml(5, &[])).start();
    let peer = first.tcp().to_string();
    let with = |workers: &[u64]| {
        let source = |worker: &u64| format!("[[sources]]\nname = \"s{worker}\"\nworker_ids = {worker}\n");
        format!("fleet.peers = [{peer:?}]\n{}", workers.iter().map(source).collect::<String>())
    };
    let daemon = Setup::configured(&with(&[6])).start();
    poll("a refused reload", || {
        daemon.replace("snowbank.toml", &with(&[6, 5]));
        let said = daemon.reload();
        if said.contains("has worker ID 5 of source \"s5\" too") {
            assert!(said.contains("nothing was reloaded"), "{said}");
            return Some(());
        }
        daemon.replace("snowbank.toml", &with(&[6]));
        daemon.reload();
        None
    });
    assert_eq!(daemon.connect().info()["sources"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_peers_name_may_have_addresses_without_a_listener() {
    let other = Setup::configured(&toml(1, &[])).start();
    let named = format!("localhost:{}", other.tcp().port());
    assert_refused(&toml(1, &[&named]), &["has worker ID 1"]);
    drop(Setup::configured(&toml(2, &[&named])).start());
}

#[test]
fn a_peer_that_does_not_answer_is_logged() {
    let nobody = Port::take().address().to_string();
    let daemon = Setup::configured(&toml(5, &[&nobody])).start();
    let part = format!("1 of 1 peers gave no answer, so nothing is known of their worker IDs: {nobody}, ");
    daemon.assert_logs(&part);
}

/// All daemons may have the same list of peers, so each daemon finds itself in the list.
#[test]
fn a_daemon_does_not_ask_itself() {
    let own = Port::take().address().to_string();
    let daemon = Setup::configured(&toml(5, &[&own])).option("--listen", &own).listeners(2).start();
    daemon.assert_has_numbers();
    assert!(!daemon.log().contains("gave no answer"), "{}", daemon.log());
}

#[test]
fn a_token_goes_to_peers_over_tls_or_loopback_only() {
    let authority = Authority::new("authority");
    let pair = authority.issue("server", &["localhost"]);
    let tokens = authority.path("tokens");
    write_secret(&tokens, "of-the-fleet-and-long-enough\n");
    let auth = format!("[auth]\ntoken_file = \"{}\"\n", tokens.display());
    let secured = format!("worker_ids = 5\n{auth}{}", tls_section(&pair, ""));
    let other = Setup::configured(&secured).args(["--listen", "tls:127.0.0.1:0"]).listeners(2).start();
    let loopback = toml(5, &[&other.tcp().to_string()]);
    let over_tls = toml(5, &[&format!("tls:localhost:{}", other.addresses[1].tcp().port())]);
    let over_tls = format!("{over_tls}ca = \"{}\"\n", authority.file.display());
    for peer in [loopback, over_tls] {
        Setup::configured(&peer).start().assert_logs("asks for a token");
        assert_refused(&(peer + &auth), &["has worker ID 5"]);
    }
    // This peer is on the same machine, but its address is not loopback.
    let open = format!("0.0.0.0:{}", other.tcp().port());
    let daemon = Setup::configured(&(toml(5, &[&open]) + &auth)).start();
    daemon.assert_logs("asks for a token");
    daemon.assert_logs(&format!("fleet.peers: found {open} without tls:, so the daemon sends no token"));
}
