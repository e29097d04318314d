//! The admin listener over TLS: certificates that only cause a warning, and client certificates.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::*;
use crate::support::http::{Answer, get, parse, sample, scrape};
use crate::support::program::program;
use rustls::ClientConfig;

fn get_over(admin: &Address, path: &str, client: &Arc<ClientConfig>) -> Answer {
    let mut stream = try_secure(admin.tcp(), client).expect("TLS");
    // Over TLS any host name is allowed, because the handshake has checked the certificate.
    let request = format!("GET {path} HTTP/1.1\r\nHost: ids.example.com\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("a response and a clean close");
    parse(&answer)
}

#[test]
fn a_world_readable_key_and_a_future_certificate_only_warn() {
    let authority = Authority::new("authority");
    let later = authority.issue_for_years("daemon", 2990..3000);
    std::fs::set_permissions(&later.key, Permissions::from_mode(0o644)).expect("chmod");
    let daemon = Setup::configured(&tls_section(&later, "")).admin().start();
    daemon.assert_logs("valid from 2990-01-01T00:00:00Z on, and clients refuse it until then");
    daemon.assert_logs("can be read by every user of this machine (mode 0644): chmod o-rwx");
    let ready = get(&daemon, "/readyz");
    assert_eq!(ready.code, 200);
    let findings = ready.json()["findings"].clone();
    assert_eq!(findings[0]["name"], "certificate", "{findings}");
    // A reload reads the renewed certificate.
    authority.issue_local("daemon");
    daemon.reload();
    let no_findings = serde_json::json!([]);
    poll("the end of the finding", || {
        (get(&daemon, "/readyz").json()["findings"] == no_findings).then_some(())
    });
    assert!(sample(&scrape(&daemon), "snowbank_certificate_expiry_timestamp_seconds") > 1e9);
}

#[test]
fn a_client_certificate_is_required_if_clients_need_one() {
    let authority = Authority::new("authority");
    let config = tls_section(&authority.issue_local("daemon"), &authority.client_ca());
    let daemon = Setup::new().option("--admin", "tls:127.0.0.1:0").listeners(2).config(&config).start();
    let admin = &daemon.addresses[1];
    let status = |own: Option<&Pair>| {
        let mut command = program();
        command.args(["status", "--admin", &admin.to_string(), "--ca"]).arg(&authority.file);
        if let Some(Pair { certificate, key }) = own {
            command.arg("--client-cert").arg(certificate).arg("--client-key").arg(key);
        }
        Said::by(&mut command)
    };

    let refused = status(None).refusal(2);
    assert!(
        refused.contains("asks for a client certificate: give one (--client-cert, --client-key)"),
        "{refused}"
    );
    daemon.assert_logs("the peer sent no client certificate");
    let unknown = Authority::new("unknown");
    let refused = status(Some(&unknown.issue("unknown-client", &[]))).refusal(2);
    assert!(refused.contains("authority"), "{refused}");

    let own = authority.issue("operator", &[]);
    let said = status(Some(&own));
    assert!(said.code == Some(0) && said.out.starts_with("Serving"), "{said:?}");
    let client = authority.client(Some(&own));
    let status = get_over(admin, "/status", &client).json();
    let facts = status["facts"].to_string();
    assert!(facts.contains("\"certificate\""), "{facts}");
    assert!(status["closed"]["unauthorized"].as_u64() >= Some(2), "{}", status["closed"]);
}
