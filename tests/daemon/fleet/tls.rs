//! Coordinators over TLS that require a client certificate.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::secure::{Authority, Pair};
use crate::support::coordinators::Tls;

/// A part of the log line about a handshake that took too long. This happens on busy machines.
const TOO_LATE: &str = "not connected within";

/// Checks that a start waits and logs these parts. Starts again if the handshake took too long.
fn assert_waits_in_time(toml: &str, parts: &[&str]) {
    poll("a handshake in time", || {
        let machine = Machine::new();
        let mut daemon = machine.start(toml);
        daemon.assert_logs("waits, and hands out nothing");
        daemon.kill();
        println!("{}", daemon.log());
        let log = daemon.log();
        (!log.contains(TOO_LATE)).then(|| assert!(parts.iter().all(|part| log.contains(part)), "{parts:?}"))
    });
}

/// The certificate authorities of a coordinator and its daemons.
struct Files {
    authority: Authority,
    /// An authority that the coordinator does not trust.
    other: Authority,
}

impl Files {
    fn new() -> Files {
        Files { authority: Authority::new("ca"), other: Authority::new("other") }
    }

    /// Restarts the coordinator with TLS and this certificate. The coordinator then requires client
    /// certificates of the authority.
    fn secure(&self, at: &mut dyn Coordinator, server: &Pair) {
        at.kill();
        at.use_tls(Tls {
            ca: self.authority.file.clone(),
            certificate: server.certificate.clone(),
            key: server.key.clone(),
        });
        at.run();
    }

    fn secure_local(&self, at: &mut dyn Coordinator) {
        self.secure(at, &self.authority.issue_local("server"));
    }

    /// Returns the configuration of a daemon that trusts the authority and presents this
    /// certificate.
    fn trusting(&self, bare: &str, own: &Pair) -> String {
        with(bare, &[("ca", &self.authority.file), ("certificate", &own.certificate), ("key", &own.key)])
    }
}

/// Prepares a fleet. Tries again until the coordinator serves.
fn init_once_it_serves(toml: &str) {
    poll("a prepared fleet", || {
        let (code, text) = fleet(toml, &["init", "--new"]);
        println!("{text}");
        (code == Some(0)).then_some(())
    });
}

/// Returns a configuration with these values in `[fleet]`.
fn with(bare: &str, settings: &[(&str, &Path)]) -> String {
    let lines = settings.iter().map(|(name, path)| format!("{name} = {path:?}\n"));
    [bare.to_owned()].into_iter().chain(lines).collect()
}

fn secured_toml(at: &dyn Coordinator) -> String {
    toml_at(at, &[&at.tls_url()], Some(5), LONG)
}

#[test]
fn coordinators_are_reached_over_tls() {
    each(|at| {
        let files = Files::new();
        files.secure_local(at);
        let bare = secured_toml(at);
        let ca = with(&bare, &[("ca", &files.authority.file)]);
        let full = files.trusting(&bare, &files.authority.issue_local("client"));
        init_once_it_serves(&full);
        let machine = Machine::new();
        assert_eq!(worker_of(&draw(&machine.start(&full))), 5);
        assert_waits_in_time(&bare, &["the coordinator does not answer", "certificate"]);
        let parts = ["the coordinator does not answer", "or requires one", "fleet.certificate"];
        assert_waits_in_time(&ca, &parts);
        let foreign = files.trusting(&bare, &files.other.issue_local("foreign"));
        assert_waits_in_time(&foreign, &["it refuses the daemon's certificate", "fleet.certificate"]);
        let plain = full.replace(&at.tls_url(), &at.url());
        Machine::new().setup(&plain).assert_waits(&["the coordinator does not answer"]);
    });
}

#[test]
fn a_wrong_certificate_is_refused_with_one_line() {
    on_one(|at| {
        let files = Files::new();
        // The coordinator's certificate names another host.
        files.secure(at, &files.authority.issue("server", &["elsewhere.example"]));
        let bare = secured_toml(at);
        let own = files.authority.issue_local("client");
        let foreign = files.other.issue_local("foreign");
        let client: [(&str, &Path); 2] = [("certificate", &own.certificate), ("key", &own.key)];
        let no_answer = "the coordinator does not answer";
        let named = [no_answer, "elsewhere.example", "fleet.endpoints"];
        assert_waits_in_time(&files.trusting(&bare, &own), &named);
        let unknown = with(&bare, &[&[("ca", &*files.other.file)], &client[..]].concat());
        assert_waits_in_time(&unknown, &[no_answer, "its certificate", "fleet.ca"]);
        let absent = files.authority.path("absent");
        for (settings, parts) in [
            (&[("ca", &*absent)][..], &["fleet.ca", "absent"][..]),
            (&[("ca", &own.key)], &["fleet.ca"]),
            (&[("certificate", &own.certificate), ("key", &foreign.key)], &["fleet.key"]),
        ] {
            Machine::new().setup(&with(&bare, settings)).end().assert_refusal(parts);
        }
    });
}

#[test]
fn a_renewed_certificate_is_used_and_its_expiry_shown() {
    on_one(|at| {
        let files = Files::new();
        files.secure_local(at);
        let own = files.authority.issue_for_years("own", 2000..2040);
        let proxy = at.proxy();
        let url = proxy.url().replace("://", "s://");
        let toml = files.trusting(&toml_at(at, &[&url], Some(5), LONG), &own);
        init_once_it_serves(&toml);
        let machine = Machine::new();
        let daemon = machine.setup(&toml).admin().start();
        let await_end = |unix_s: &str| {
            let sample = format!("snowbank_fleet_certificate_expiry_timestamp_seconds {unix_s}");
            poll(&sample, || get(&daemon, "/metrics").body.contains(&sample).then_some(()));
        };
        await_end("2208988800");
        // The daemon reads the files again for its next connection.
        own.replace_by(&files.other.issue_local("foreign"));
        proxy.cut();
        proxy.pass();
        poll("a refusal", || get(&daemon, "/status").body.contains("fleet.certificate").then_some(()));
        own.replace_by(&files.authority.issue_for_years("renewed", 2000..2050));
        await_end("2524608000");
        assert_eq!(worker_of(&draw(&daemon)), 5);
    });
}

/// etcd's gateway refuses a client certificate with a common name, because it cannot take a user
/// from a certificate.
#[test]
fn a_common_name_that_etcd_refuses_is_reported_with_the_fix() {
    let Some(mut etcd) = Etcd::start() else { return };
    let files = Files::new();
    let named = files.authority.issue_local("named");
    let nameless = files.authority.issue_without_name("nameless");
    let password = files.authority.path("password");
    std::fs::write(&password, "secret\n").expect("written");
    let user = etcd.require_password("secret");
    files.secure_local(&mut etcd);
    let bare = format!("{}user = \"{user}\"\npassword_file = {password:?}\n", secured_toml(&etcd));
    let toml = files.trusting(&bare, &nameless);
    init(&toml);
    assert_eq!(worker_of(&draw(&Machine::new().start(&toml))), 5);
    let parts = ["HTTP 40", "CommonName", "without", "fleet.certificate", "fleet.user"];
    Machine::new().setup(&files.trusting(&bare, &named)).end().assert_refusal(&parts);
}

#[test]
fn an_etcd_with_a_server_certificate_is_reported_with_the_fix() {
    let Some(mut etcd) = Etcd::start() else { return };
    let files = Files::new();
    files.secure(&mut etcd, &files.authority.issue_for_servers("server"));
    let toml = files.trusting(&secured_toml(&etcd), &files.authority.issue_local("own"));
    assert_waits_in_time(&toml, &["HTTP 503", "gateway connects", "extendedKeyUsage", "--cert-file"]);
}

/// Each answer takes longer than the daemon would wait if it had other endpoints to try.
#[test]
fn a_slow_coordinator_is_reached_over_tls() {
    on_one(|at| {
        let files = Files::new();
        files.secure_local(at);
        let proxy = at.proxy();
        let url = proxy.url().replace("://", "s://");
        let toml = files.trusting(&toml_at(at, &[&url], Some(5), LONG), &files.authority.issue_local("own"));
        init_once_it_serves(&toml);
        let machine = Machine::new();
        // This daemon takes the worker ID before the answers become slow, so that the next start
        // needs no pause.
        machine.start(&toml).stop();
        proxy.delay(Duration::from_millis(1_200));
        let mut daemon = machine.start(&toml);
        assert!(!daemon.log().contains("without its coordinator"), "{}", daemon.log());
        assert_eq!(worker_of(&draw(&daemon)), 5);
        daemon.kill();
    });
}
