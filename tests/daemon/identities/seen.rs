//! Clients that are slowed or refused by their limits: the operator's view.

use super::*;

/// Returns the message of the finding about clients' limits.
fn found(daemon: &Daemon) -> Option<String> {
    let status = get(daemon, "/status").json();
    let findings = status["findings"].as_array().expect("findings");
    let finding = findings.iter().find(|finding| finding["name"] == "client_limits")?;
    finding["message"].as_str().map(str::to_owned)
}

#[test]
fn clients_that_are_slowed_are_found_until_they_leave() {
    let daemon = with_tokens(&(identity("billing", "rate = 10") + &identity("orders", "")));
    let mut client = shown(&daemon, BILLING);
    assert_eq!(found(&daemon), None);
    let message = poll("a finding", || {
        for _ in 0..20 {
            client.call(&Ask::of(10).wait_ms(0).bytes());
        }
        found(&daemon)
    });
    assert!(message.contains("% of the requests of identity billing were slowed or denied"), "{message}");
    assert_eq!(get(&daemon, "/readyz").code, 200);
    let orders = get(&daemon, "/status").json()["identities"][1].clone();
    assert_eq!((&orders["name"], &orders["last_minute"]["limited"]), (&"orders".into(), &0.into()));
    drop(client);
    poll("it ends", || found(&daemon).is_none().then_some(()));
    daemon.assert_logs("finding client_limits has ended");
    assert_eq!(daemon.log().matches("finding client_limits: ").count(), 1);
}

#[test]
fn the_status_text_names_only_limits_that_were_reached() {
    let daemon =
        with_tokens(&(identity("billing", "sources = [\"fast\"]") + &identity("orders", "rate = 10")));
    let mut billing = shown(&daemon, BILLING);
    let mut orders = shown(&daemon, ORDERS);
    assert_eq!(billing.next(Ask::of(2).source(SLOW)).error().0, UNKNOWN_SOURCE);
    orders.next(Ask::of(5));
    let address = daemon.addresses.last().expect("an admin listener").to_string();
    let printed = crate::support::program::snowbank(["status", "--admin", &address]).printed();
    assert!(printed.contains("identity billing: 0 IDs on 1 connection; denied once\n"), "{printed}");
    assert!(printed.contains("identity orders: 5 IDs on 1 connection; at most 10/s\n"), "{printed}");
    assert!(!printed.contains("0 times"), "{printed}");
}
