//! Clients that are slowed or refused by their limits: the operator's view.

use super::*;
use crate::support::http::finding;

#[test]
fn clients_that_are_slowed_are_found_until_they_leave() {
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
    poll("it ends", || finding(&daemon, "client_limits").is_none().then_some(()));
    daemon.assert_logs("finding client_limits has ended");
    assert_eq!(daemon.log().matches("finding client_limits: ").count(), 1);
}
