//! Coordinators over TLS that require a certificate.

use super::*;
use crate::secure::Authority;

#[test]
fn coordinators_are_reached_over_tls() {
    each(|at| {
        let directory = support::directory();
        let authority = Authority::new(directory.path(), "ca");
        let (server, client) = (authority.issue_local("server"), authority.issue_local("client"));
        at.kill();
        at.use_tls(&authority.file, (&server.certificate, &server.key));
        at.run();
        let bare = toml_at(at, &at.tls_url(), Some(5), LONG);
        let ca = format!("{bare}ca = {:?}\n", authority.file);
        let full = format!("{ca}certificate = {:?}\nkey = {:?}\n", client.certificate, client.key);
        poll("it serves", || {
            let (code, text) = fleet(&full, &["init"]);
            // This is shown if the test fails.
            println!("{text}");
            (code == Some(0)).then_some(())
        });
        assert_eq!(worker_of(&draw(&Machine::new().start(&full))), 5);
        Machine::new()
            .setup(&bare)
            .end()
            .assert_refusal_for_now(&["the coordinator does not answer", "certificate"]);
        Machine::new().setup(&ca).end().assert_refusal_for_now(&["the coordinator does not answer"]);
        let plain = full.replace(&at.tls_url(), &at.url());
        Machine::new().setup(&plain).end().assert_refusal_for_now(&["the coordinator does not answer"]);
    });
}
