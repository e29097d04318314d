//! Coordinators over TLS that require a certificate.

use std::time::Duration;

use super::*;
use crate::secure::{Authority, Pair};

/// A part of the log line if a handshake took too long, as on busy machines.
const TOO_LATE: &str = "not connected within";

/// Checks that a start waits, for another reason than a late handshake.
fn assert_waits_in_time(toml: &str, parts: &[&str]) {
    poll("a handshake in time", || {
        let machine = Machine::new();
        let mut daemon = machine.start(toml);
        daemon.assert_logs("waits for a worker ID");
        daemon.kill();
        println!("{}", daemon.log());
        let log = daemon.log();
        (!log.contains(TOO_LATE)).then(|| assert!(parts.iter().all(|part| log.contains(part)), "{parts:?}"))
    });
}

#[test]
fn coordinators_are_reached_over_tls() {
    each(|at| {
        let directory = crate::support::directory();
        let authority = Authority::new(directory.path(), "ca");
        let (server, client) = (authority.issue_local("server"), authority.issue_local("client"));
        at.kill();
        at.use_tls(&authority.file, (&server.certificate, &server.key));
        at.run();
        let bare = toml_at(at, &at.tls_url(), Some(5), LONG);
        let ca = format!("{bare}ca = {:?}\n", authority.file);
        let full = format!("{ca}certificate = {:?}\nkey = {:?}\n", client.certificate, client.key);
        poll("it serves", || {
            let (code, text) = fleet(&full, &["init", "--new"]);
            // This is shown if the test fails.
            println!("{text}");
            (code == Some(0)).then_some(())
        });
        let machine = Machine::new();
        assert_eq!(worker_of(&draw(&machine.start(&full).await_numbers())), 5);
        assert_waits_in_time(&bare, &["the coordinator does not answer", "certificate"]);
        let parts = ["the coordinator does not answer", "or the lack of one", "fleet.certificate"];
        assert_waits_in_time(&ca, &parts);
        let plain = full.replace(&at.tls_url(), &at.url());
        Machine::new().setup(&plain).assert_waits(&["the coordinator does not answer"]);
    });
}

/// Returns a configuration with these values in `[fleet]`.
fn with(bare: &str, settings: &[(&str, &std::path::Path)]) -> String {
    let lines = settings.iter().map(|(name, path)| format!("{name} = {path:?}\n"));
    [bare.to_owned()].into_iter().chain(lines).collect()
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_with_one_line() {
    on_one(|at| {
        let directory = crate::support::directory();
        let authority = Authority::new(directory.path(), "ca");
        let stranger = Authority::new(directory.path(), "stranger");
        // The coordinator's certificate is for another host.
        let server = authority.issue("server", &["elsewhere.example"]);
        let (client, other) = (authority.issue_local("client"), stranger.issue_local("other"));
        at.kill();
        at.use_tls(&authority.file, (&server.certificate, &server.key));
        at.run();
        let bare = toml_at(at, &at.tls_url(), Some(5), LONG);
        let refused = |settings: &[(&str, &std::path::Path)], parts: &[&str]| {
            assert_waits_in_time(
                &with(&bare, settings),
                &[&["the coordinator does not answer"], parts].concat(),
            );
        };
        let own: [(&str, &std::path::Path); 2] = [("certificate", &client.certificate), ("key", &client.key)];
        refused(&[&[("ca", &*authority.file)], &own[..]].concat(), &["elsewhere.example", "fleet.endpoints"]);
        refused(&[&[("ca", &*stranger.file)], &own[..]].concat(), &["its certificate", "fleet.ca"]);
        let mistaken = |settings: &[(&str, &std::path::Path)], parts: &[&str]| {
            Machine::new().setup(&with(&bare, settings)).end().assert_refusal(parts);
        };
        let absent = directory.path().join("absent");
        mistaken(&[("ca", &absent)], &["fleet.ca", "absent"]);
        mistaken(&[("ca", &client.key)], &["fleet.ca"]);
        let mixed: [(&str, &std::path::Path); 2] =
            [("certificate", &client.certificate), ("key", &other.key)];
        mistaken(&mixed, &["fleet.key"]);
    });
}

/// The coordinator trusts another authority than the one of the daemon's certificate.
#[test]
fn a_client_certificate_of_another_authority_is_refused() {
    on_one(|at| {
        let directory = crate::support::directory();
        let authority = Authority::new(directory.path(), "ca");
        let stranger = Authority::new(directory.path(), "stranger");
        let (server, other) = (authority.issue_local("server"), stranger.issue_local("other"));
        at.kill();
        at.use_tls(&authority.file, (&server.certificate, &server.key));
        at.run();
        let bare = toml_at(at, &at.tls_url(), Some(5), LONG);
        let settings: [(&str, &std::path::Path); 3] =
            [("ca", &authority.file), ("certificate", &other.certificate), ("key", &other.key)];
        let parts = ["it refuses this side's certificate", "fleet.certificate"];
        assert_waits_in_time(&with(&bare, &settings), &parts);
    });
}

/// etcd's gateway takes no user from a certificate, and it refuses those that seem to name one.
#[test]
fn etcds_refusal_of_a_common_name_names_the_cure() {
    let Some(mut etcd) = Etcd::start() else { return };
    let directory = crate::support::directory();
    let authority = Authority::new(directory.path(), "ca");
    let (server, named) = (authority.issue_local("server"), authority.issue_local("named"));
    let nameless = authority.issue_without_name("nameless");
    let password = directory.path().join("password");
    std::fs::write(&password, "secret\n").expect("written");
    let user = etcd.require_password("secret");
    etcd.kill();
    etcd.use_tls(&authority.file, (&server.certificate, &server.key));
    etcd.run();
    let bare = format!("{}user = \"{user}\"\n", toml_at(&etcd, &etcd.tls_url(), Some(5), LONG));
    let with = |own: &Pair| {
        let files: [(&str, &std::path::Path); 4] = [
            ("ca", &authority.file),
            ("certificate", &own.certificate),
            ("key", &own.key),
            ("password_file", &password),
        ];
        with(&bare, &files)
    };
    init(&with(&nameless));
    assert_eq!(worker_of(&draw(&Machine::new().start(&with(&nameless)).await_numbers())), 5);
    let parts = ["HTTP 40", "CommonName", "without", "fleet.certificate", "fleet.user"];
    Machine::new().setup(&with(&named)).end().assert_refusal(&parts);
}

#[test]
fn an_etcd_with_a_servers_certificate_is_named_with_the_cure() {
    let Some(mut etcd) = Etcd::start() else { return };
    let directory = crate::support::directory();
    let authority = Authority::new(directory.path(), "ca");
    let (server, own) = (authority.issue_for_servers("server"), authority.issue_local("own"));
    etcd.kill();
    etcd.use_tls(&authority.file, (&server.certificate, &server.key));
    etcd.run();
    let bare = toml_at(&etcd, &etcd.tls_url(), Some(5), LONG);
    let files: [(&str, &std::path::Path); 3] =
        [("ca", &authority.file), ("certificate", &own.certificate), ("key", &own.key)];
    let parts = ["HTTP 503", ": connection ", "extendedKeyUsage", "--cert-file"];
    assert_waits_in_time(&with(&bare, &files), &parts);
}

/// Each answer of the network takes longer than the time that an endpoint has while others are left.
#[test]
fn a_coordinator_that_is_far_away_is_reached_over_tls() {
    on_one(|at| {
        let directory = crate::support::directory();
        let authority = Authority::new(directory.path(), "ca");
        let (server, own) = (authority.issue_local("server"), authority.issue_local("own"));
        at.kill();
        at.use_tls(&authority.file, (&server.certificate, &server.key));
        at.run();
        let files: [(&str, &std::path::Path); 3] =
            [("ca", &authority.file), ("certificate", &own.certificate), ("key", &own.key)];
        let proxy = at.proxy();
        let url = proxy.url().replace("://", "s://");
        let toml = with(&toml_at(at, &url, Some(5), LONG), &files);
        poll("a marker", || (fleet(&toml, &["init", "--new"]).0 == Some(0)).then_some(()));
        let machine = Machine::new();
        // A number that it did not hold would need a pause of several answers.
        machine.start(&toml).stop();
        proxy.delay(Duration::from_millis(1_200));
        let mut daemon = machine.start(&toml);
        assert!(!daemon.log().contains("without its coordinator"), "{}", daemon.log());
        assert_eq!(worker_of(&draw(&daemon)), 5);
        daemon.kill();
    });
}
