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
    let mut client = daemon.connect_as(BILLING);
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
