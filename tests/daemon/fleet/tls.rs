//! Coordinators over TLS that require a certificate.

use super::*;
use crate::secure::Authority;
use crate::support::daemon::Ended;

/// A part of the log line if a handshake took too long, as on busy machines.
const TOO_LATE: &str = "not connected within";

/// Starts a daemon, again after a late handshake.
fn start_in_time(machine: &Machine, toml: &str) -> Daemon {
    poll("a handshake in time", || match machine.setup(toml).try_start() {
        Ok(daemon) => Some(daemon),
        Err(mut ended) => {
            ended.wait();
            assert!(ended.log().contains(TOO_LATE), "{}", ended.log());
            None
        }
    })
}

/// Returns the end of a start that fails for another reason than a late handshake.
fn end_in_time(toml: &str) -> Ended {
    poll("a handshake in time", || {
        let ended = Machine::new().setup(toml).end();
        println!("{}", ended.stderr);
        (!ended.stderr.contains(TOO_LATE)).then_some(ended)
    })
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
        assert_eq!(worker_of(&draw(&start_in_time(&machine, &full))), 5);
        end_in_time(&bare).assert_refusal_for_now(&["the coordinator does not answer", "certificate"]);
        let parts = ["the coordinator does not answer", "or the lack of one", "fleet.certificate"];
        end_in_time(&ca).assert_refusal_for_now(&parts);
        let plain = full.replace(&at.tls_url(), &at.url());
        Machine::new().setup(&plain).end().assert_refusal_for_now(&["the coordinator does not answer"]);
    });
}

/// Returns a configuration with these values in `[fleet]`.
fn with(bare: &str, settings: &[(&str, &std::path::Path)]) -> String {
    let lines = settings.iter().map(|(name, path)| format!("{name} = {path:?}\n"));
    [bare.to_owned()].into_iter().chain(lines).collect()
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_with_one_line() {
    each(|at| {
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
            let ended = end_in_time(&with(&bare, settings));
            ended.assert_refusal_for_now(&[&["the coordinator does not answer"], parts].concat());
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
fn a_client_certificate_of_another_authority_is_refused_with_one_line() {
    each(|at| {
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
        let ended = end_in_time(&with(&bare, &settings));
        ended.assert_refusal_for_now(&["it refuses this side's certificate", "fleet.certificate"]);
    });
}
