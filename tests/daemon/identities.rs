//! Identities of clients by token or certificate, and how a reload changes them.
//!
//! [`certificates`]: names in certificates. [`frontends`]: identities in other protocols.
//! [`secure_frontends`]: identities in each protocol over TLS.

mod certificates;
mod frontends;
mod secure_frontends;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::secure::{Authority, secure_wire, tls_section, write_secret};
use crate::support::http::{finding, get, sample, scrape};
use crate::support::wire::{self, EXHAUSTED, UNAUTHORIZED, UNKNOWN_SOURCE};
use crate::support::{Ask, Daemon, Reply, Setup, TWO_SOURCES, Wire, poll};
use rustix::process::Signal;

const BILLING: &str = "billing-token-0123456789";
const ORDERS: &str = "orders-token-0123456789";
const PLAIN: &str = "plain-token-0123456789";

/// The hash of [`ORDERS`], as `printf TOKEN | sha256sum` prints it.
const ORDERS_SHA256: &str = "123c584f4a81f33410bea3456f4f11f97bc7dc33517462ae3b1aec444fd508f0";

const FAST: &str = "fast";
const SLOW: &str = "slow";

fn identity(name: &str, settings: &str) -> String {
    format!("[[identities]]\nname = \"{name}\"\n{settings}\n")
}

fn tokens() -> String {
    format!("billing: {BILLING}\norders: sha256:{ORDERS_SHA256}\n# every other client\n{PLAIN}\n")
}

/// Starts a daemon with two sources, the three tokens and these further settings.
fn with_tokens(settings: &str) -> Daemon {
    let setup = Setup::new();
    write_secret(&setup.path("tokens"), &tokens());
    setup.config(&format!("auth.token_file = \"tokens\"\n{settings}{TWO_SOURCES}")).admin().start()
}

/// Checks that a reload closed the connection with an error.
#[track_caller]
fn assert_revoked(wire: &mut Wire) {
    wire.reply().assert_error(0, UNAUTHORIZED);
    wire.assert_closed();
}

#[test]
fn a_named_token_draws_from_its_own_sources_only() {
    let identities = identity("billing", "sources = [\"fast\"]") + &identity("orders", "");
    let daemon = with_tokens(&identities);
    let mut billing = daemon.connect_as(BILLING);
    let mut orders = daemon.connect_as(ORDERS);
    let mut plain = daemon.connect_as(PLAIN);
    // A denied request does not close the connection, and the daemon answers the other requests.
    let pipelined: Vec<u8> = [(1, FAST), (2, SLOW), (3, FAST)]
        .into_iter()
        .flat_map(|(tag, source)| Ask::of(5).tag(tag).source(source).bytes())
        .collect();
    billing.send(&pipelined);
    assert_eq!(billing.reply().ids().len(), 5);
    billing.reply().assert_error(2, UNKNOWN_SOURCE);
    assert_eq!(billing.reply().ids().len(), 5);
    for wire in [&mut orders, &mut plain] {
        assert_eq!(wire.next(Ask::of(1).source(SLOW)).ids().len(), 1);
        assert_eq!(wire.next(Ask::of(3).source(FAST)).ids().len(), 3);
    }
    let info = billing.info();
    assert_eq!(info["identity"], "billing");
    let allowed: Vec<bool> = info["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .filter_map(|one| one["allowed"].as_bool())
        .collect();
    assert_eq!(allowed, [true, false]);
    assert_eq!(plain.info().get("identity"), None);

    let samples = scrape(&daemon);
    for (name, value) in [
        ("snowbank_identity_ids_total{identity=\"billing\",source=\"fast\"}", 10.0),
        ("snowbank_identity_ids_total{identity=\"orders\",source=\"slow\"}", 1.0),
        ("snowbank_identity_ids_total{identity=\"orders\",source=\"fast\"}", 3.0),
        ("snowbank_identity_connections{identity=\"billing\"}", 1.0),
        ("snowbank_identity_connected_total{identity=\"billing\"}", 1.0),
        ("snowbank_identity_denied_total{identity=\"billing\"}", 1.0),
        ("snowbank_identity_denied_total{identity=\"orders\"}", 0.0),
        ("snowbank_ids_issued_total{source=\"fast\"}", 16.0),
    ] {
        assert_eq!(sample(&samples, name), value, "{name}");
    }
    drop(billing);
    poll("the identity's last connection is gone", || {
        (sample(&scrape(&daemon), "snowbank_identity_connections{identity=\"billing\"}") == 0.0).then_some(())
    });
    assert_eq!(get(&daemon, "/status").json()["identities"][0]["denied"], 1);
}

#[test]
fn a_token_that_a_reload_takes_away_closes_its_connections() {
    let daemon = with_tokens(&(identity("billing", "") + &identity("orders", "")));
    let mut billing = daemon.connect_as(BILLING);
    let mut orders = daemon.connect_as(ORDERS);
    let mut plain = daemon.connect_as(PLAIN);
    assert_eq!(billing.next(Ask::of(1)).ids().len(), 1);
    // A reload that moves tokens to other lines and adds a token closes no connection.
    daemon.replace("tokens", &format!("{PLAIN}\norders: {ORDERS}\nbilling: {BILLING}\nnew: {PLAIN}x\n"));
    let refused = daemon.reload();
    assert!(refused.contains("found a name before the token that no [[identities]] has"), "{refused}");
    daemon.replace("tokens", &format!("{PLAIN}\norders: {ORDERS}\nbilling: {BILLING}\n{PLAIN}x\n"));
    assert!(daemon.reload().contains("other tokens"));
    for wire in [&mut billing, &mut orders, &mut plain] {
        assert_eq!(wire.next(Ask::of(1)).ids().len(), 1);
    }
    let before = daemon.log().matches("closed a connection").count();
    assert_eq!(before, 0);
    // This reload removes billing's token, takes the name of another away, and keeps the plain one.
    daemon.replace("tokens", &format!("{PLAIN}\n{ORDERS}\n"));
    assert!(daemon.reload().contains("other tokens"));
    assert_revoked(&mut billing);
    assert_revoked(&mut orders);
    assert_eq!(plain.next(Ask::of(1)).ids().len(), 1);
    daemon.connect().call(&wire::hello(1, BILLING.as_bytes())).assert_error(1, UNAUTHORIZED);
    assert_eq!(daemon.connect_as(ORDERS).next(Ask::of(1)).ids().len(), 1);
    daemon.assert_logs("after a reload: the daemon no longer accepts this token");
}

#[test]
fn a_reload_that_requires_tokens_applies_to_open_connections() {
    let setup = Setup::configured(TWO_SOURCES);
    write_secret(&setup.path("tokens"), &format!("{PLAIN}\n"));
    let daemon = setup.start();
    // While no token is required, the daemon accepts any token. After the reload it checks the
    // tokens that it accepted.
    let mut right = daemon.connect_as(PLAIN);
    let mut wrong = daemon.connect_as(ORDERS);
    let mut none = daemon.connect();
    for wire in [&mut right, &mut wrong, &mut none] {
        assert_eq!(wire.next(Ask::of(1)).ids().len(), 1);
    }
    daemon.replace("snowbank.toml", &format!("auth.token_file = \"tokens\"\n{TWO_SOURCES}"));
    assert!(daemon.reload().contains("other tokens"));
    assert_eq!(right.next(Ask::of(1)).ids().len(), 1);
    assert_revoked(&mut wrong);
    none.call(&Ask::of(1).tag(7).bytes()).assert_error(7, UNAUTHORIZED);
    none.assert_closed();
}

#[test]
fn connections_of_an_identity_share_its_rate() {
    let identities = identity("billing", "rate = 1000") + &identity("orders", "rate = 1000");
    let daemon = with_tokens(&identities);
    // If the daemon has several shards, these connections are on several of them.
    let mut wires: Vec<Wire> = (0..4).map(|_| daemon.connect_as(BILLING)).collect();
    for wire in &mut wires {
        assert_eq!(wire.next(Ask::of(250)).ids().len(), 250);
    }
    // The burst is used up. But a pause of the machine adds IDs, so the test tries several times.
    // Each try has a new connection, and a new connection brings no rate of its own.
    let drawn = (0..100)
        .take_while(|_| !is_exhausted(&mut daemon.connect_as(BILLING), Ask::of(1_000).wait_ms(0)))
        .count();
    assert!(drawn < 100, "the identity got 1,000 IDs at once again and again");
    // Other identities have their own rates.
    assert_eq!(daemon.connect_as(ORDERS).next(Ask::of(1_000)).ids().len(), 1_000);
    assert_eq!(daemon.connect_as(PLAIN).next(Ask::of(100_000).wait_ms(10_000)).ids().len(), 100_000);
    // A request may wait until its client's rate allows the request. The requests behind it wait as
    // well.
    let (waiting, behind) = wires.split_at_mut(1);
    waiting[0].send(&Ask::of(2_000).wait_ms(10_000).tag(1).bytes());
    waiting[0].send(&Ask::of(1).wait_ms(10_000).tag(2).bytes());
    let first = waiting[0].reply();
    let second = waiting[0].reply();
    assert_eq!((first.tag(), first.ids().len()), (1, 2_000));
    assert_eq!((second.tag(), second.ids().len()), (2, 1));
    let refused = behind[0].call(&Ask::of(20_000).wait_ms(1_000).tag(3).bytes());
    let message = refused.assert_error(3, EXHAUSTED);
    assert!(
        message
            .contains("identity billing never yield that many within that wait; wait longer (up to 10s) or"),
        "{message}"
    );
    let asked = Instant::now();
    let partial = behind[0].next(Ask::of(20_000).wait_ms(1_000).flags(wire::PARTIAL)).ids().len();
    // The reply may have as many IDs as the rate allows for the time that has passed, and for a
    // burst of one second.
    assert!((1..=1_000 * (asked.elapsed().as_secs() as usize + 2)).contains(&partial), "{partial}");
    let slowed = sample(&scrape(&daemon), "snowbank_identity_slowed_total{identity=\"billing\"}");
    assert!(slowed >= 3.0, "{slowed}");
    // A refusal because of a client's rate does not count as a refusal of the source.
    assert_eq!(sample(&scrape(&daemon), "snowbank_refusals_total{source=\"fast\"}"), 0.0);
}

/// Returns whether the daemon refuses a request because of its client's rate. The refusal must say
/// when to retry.
fn is_exhausted(wire: &mut Wire, ask: Ask) -> bool {
    match wire.call(&ask.tag(9).bytes()) {
        Reply::Error { code: EXHAUSTED, retry_after_ms, .. } => {
            assert!((1..=1_000).contains(&retry_after_ms), "{retry_after_ms}");
            true
        }
        _ => false,
    }
}

/// A client that resets its connection before each reply must not use up a source in spite of its
/// rate.
#[test]
fn ids_for_a_reset_connection_count_towards_its_clients_rate() {
    let four_a_second = "[[sources]]\nname = \"scarce\"\nworker_ids = 1\n\
                         layout = \"time:31,worker:10,sequence:2;tick=1s;epoch=2025-01-01T00:00:00Z\"\n";
    let identities = identity("anonymous", "rate = 10");
    let daemon = Setup::configured(&format!("{identities}{four_a_second}")).admin().start();
    let figure =
        |name| sample(&scrape(&daemon), &format!("snowbank_identity_{name}{{identity=\"anonymous\"}}"));
    poll("a request that the rate delays", || {
        let mut gone = daemon.connect();
        gone.send(&[wire::ping(1, b""), Ask::of(10).wait_ms(10_000).bytes()].concat());
        assert_eq!(gone.reply(), Reply::Pong(1, vec![]));
        socket2::SockRef::from(gone.tcp()).set_linger(Some(Duration::ZERO)).expect("a socket");
        drop(gone);
        poll("the end of its connection", || (figure("connections") == 0.0).then_some(()));
        (figure("slowed_total") > 0.0).then_some(())
    });
}

#[test]
fn a_reloaded_rate_applies_to_open_connections() {
    let daemon = with_tokens(&(identity("billing", "") + &identity("orders", "")));
    let mut wire = daemon.connect_as(BILLING);
    assert_eq!(wire.next(Ask::of(100_000).wait_ms(10_000)).ids().len(), 100_000);
    let config = |rate: &str| {
        let identities = identity("billing", rate) + &identity("orders", "");
        format!("auth.token_file = \"tokens\"\n{identities}{TWO_SOURCES}")
    };
    daemon.replace("snowbank.toml", &config("rate = 10"));
    assert!(daemon.reload().contains("identity \"billing\": rate: \"off\" -> 10"));
    let message = wire.call(&Ask::of(100).default_wait().tag(1).bytes()).assert_error(1, EXHAUSTED);
    assert!(message.contains("the 10 IDs per second of identity billing"), "{message}");
    daemon.replace("snowbank.toml", &config(""));
    assert!(daemon.reload().contains("identity \"billing\": rate: 10 -> \"off\""));
    assert_eq!(wire.next(Ask::of(100_000).wait_ms(10_000)).ids().len(), 100_000);
}

#[test]
fn a_stop_refuses_requests_that_wait_for_a_rate() {
    let setup = Setup::configured(&format!(
        "limits.drain_timeout = \"1s\"\n{}{TWO_SOURCES}",
        identity("anonymous", "rate = 10")
    ));
    let daemon = setup.admin().start();
    let mut wire = daemon.connect();
    wire.send(&Ask::of(100).wait_ms(10_000).tag(4).bytes());
    let slowed = "snowbank_identity_slowed_total{identity=\"anonymous\"}";
    poll("a request that waits for its rate", || (sample(&scrape(&daemon), slowed) > 0.0).then_some(()));
    daemon.signal(Signal::TERM);
    wire.reply().assert_error(4, wire::SHUTTING_DOWN);
}

#[test]
fn slowed_clients_are_a_finding_until_they_leave() {
    let daemon = with_tokens(&(identity("billing", "rate = 10") + &identity("orders", "")));
    let mut client = daemon.connect_as(BILLING);
    assert_eq!(finding(&daemon, "client_limits"), None);
    let slowed = poll("a finding", || {
        for _ in 0..20 {
            client.call(&Ask::of(10).wait_ms(0).bytes());
        }
        finding(&daemon, "client_limits")
    });
    let message = slowed["message"].as_str().expect("a text");
    assert!(message.contains("% of the requests of identity billing were slowed or denied"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    let orders = get(&daemon, "/status").json()["identities"][1].clone();
    assert_eq!((&orders["name"], &orders["last_minute"]["limited"]), (&"orders".into(), &0.into()));
    drop(client);
    poll("the end of the finding", || finding(&daemon, "client_limits").is_none().then_some(()));
    daemon.assert_logs("finding client_limits has ended");
    assert_eq!(daemon.log().matches("finding client_limits: ").count(), 1);
}
