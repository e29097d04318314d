//! Identities by the names of client certificates.

use super::*;

/// Returns a daemon that requires client certificates, its configuration without the identities,
/// and the authority.
fn with_certificates(auth: &str, identities: &str) -> (Daemon, String, Authority) {
    let authority = Authority::new("authority");
    let tls = tls_section(&authority.issue_local("daemon"), &authority.client_ca());
    let config = format!("{auth}{TWO_SOURCES}{tls}");
    let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0");
    write_secret(&setup.path("tokens"), &tokens());
    (setup.config(&format!("{config}{identities}")).start(), config, authority)
}

#[test]
fn a_certificates_name_is_an_identity_until_a_reload() {
    // A URI, an email address and an IP address.
    const NAMES: [&str; 3] = ["spiffe://prod/orders", "ops@prod.internal", "10.1.2.3"];
    let billing = identity("billing", "certificate_names = [\"Billing.internal\"]\nsources = [\"fast\"]");
    let orders = identity("orders", &format!("certificate_names = {NAMES:?}\nsources = [\"slow\"]"));
    let (daemon, config, authority) = with_certificates("", &format!("{billing}{orders}"));
    let connect = |name: &str, hosts: &[&str]| {
        let pair = authority.issue(name, hosts);
        secure_wire(daemon.tcp(), &authority.client(Some(&pair)))
    };
    let mut billing_wire = connect("billing", &["other.internal", "billing.internal"]);
    let mut orders_wires = NAMES.map(|name| connect("orders", &[name]));
    // The common name does not count. Nor does a name that only ends with the name of the identity.
    let mut others = [connect("billing.internal", &["x.internal"]), connect("x", &["sub.billing.internal"])];
    billing_wire.call(&Ask::of(1).tag(1).source(SLOW).bytes()).assert_error(1, UNKNOWN_SOURCE);
    assert_eq!(billing_wire.next(Ask::of(1).source(FAST)).ids().len(), 1);
    for wire in &mut orders_wires {
        wire.call(&Ask::of(1).tag(1).source(FAST).bytes()).assert_error(1, UNKNOWN_SOURCE);
        assert_eq!(wire.next(Ask::of(1).source(SLOW)).ids().len(), 1);
    }
    for other in &mut others {
        assert_eq!(other.next(Ask::of(1).source(FAST)).ids().len(), 1);
    }
    // A reload gives both identities all sources, and closes no connection.
    let all = billing.replace("sources", "#") + &orders.replace("sources", "#");
    daemon.replace("snowbank.toml", &format!("{config}{all}"));
    let said = daemon.reload();
    assert!(said.contains("identity \"billing\": sources: [\"fast\"] -> \"all\""), "{said}");
    assert_eq!(billing_wire.next(Ask::of(1).source(SLOW)).ids().len(), 1);
    daemon.replace("snowbank.toml", &format!("{config}{orders}"));
    assert!(daemon.reload().contains("identity \"billing\": removed"));
    assert_revoked(&mut billing_wire);
    orders_wires.iter_mut().for_each(Wire::assert_open);
    others.iter_mut().for_each(Wire::assert_open);
}

#[test]
fn a_token_and_a_certificate_must_not_name_two_identities() {
    let identities =
        identity("billing", "certificate_names = [\"billing.internal\"]") + &identity("orders", "");
    let (daemon, _, authority) = with_certificates("auth.token_file = \"tokens\"\n", &identities);
    let own = authority.client(Some(&authority.issue("billing", &["billing.internal"])));
    let connect = |client: &Arc<_>| secure_wire(daemon.tcp(), client);
    // A certificate alone is not enough where a token is required.
    connect(&own).call(&Ask::of(1).tag(1).bytes()).assert_error(1, UNAUTHORIZED);
    for (token, reply) in [(BILLING, None), (PLAIN, None), (ORDERS, Some(UNAUTHORIZED))] {
        let mut wire = connect(&own);
        let answer = wire.call(&wire::hello(1, token.as_bytes()));
        match reply {
            None => {
                answer.welcome();
                assert_eq!(wire.info()["identity"], "billing", "{token}");
            }
            Some(code) => drop(answer.assert_error(1, code)),
        }
    }
    daemon.assert_logs("another identity than the certificate");
}
