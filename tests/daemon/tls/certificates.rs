//! Certificates of clients and of the daemon: required, expired, of the wrong kind, and reloaded.

use super::*;

#[test]
fn client_certificates_are_required_and_checked() {
    let house = House::asking_for_certificates();
    let good = house.authority.issue("good", &["any.name"]);
    let output = house.ping(&["--client-cert", text(&good.certificate), "--client-key", text(&good.key)]);
    output.printed();
    let config = house.authority.client(Some(&good));
    secure_wire(house.daemon.tcp(), &config).next(Ask::of(5)).ids();

    assert_refused(
        &house.ping(&[]),
        "it asks for a client certificate: give one (--client-cert, --client-key)",
    );
    house.daemon.assert_logs("the peer sent no client certificate, and tls.client_ca asks for one");
    let expired = house.authority.issue_for_years("expired", 2000..2001);
    let unknown_authority = Authority::new("unknown");
    let foreign = unknown_authority.issue("foreign", &[]);
    let server = house.authority.issue_for_servers("server");
    for (pair, client_reads, daemon_says) in [
        (
            expired,
            "says that this client's certificate has expired",
            "the peer's client certificate has expired",
        ),
        (
            foreign,
            "does not know the authority of this client's",
            "is not signed by an authority in tls.client_ca",
        ),
        (server, "it does not accept this client's certificate", "was not made for this use"),
    ] {
        let certificate = text(&pair.certificate);
        let key = text(&pair.key);
        let output = house.ping(&["--client-cert", certificate, "--client-key", key]);
        assert_refused(&output, client_reads);
        house.daemon.assert_logs(daemon_says);
    }
}

#[test]
fn a_client_refuses_a_daemon_that_it_cannot_trust() {
    let house = House::with("");
    house.ping(&[]).printed();
    house.ping(&["--server-name", "localhost"]).printed();
    let wrong_name = house.ping(&["--server-name", "ids.example"]);
    assert_refused(&wrong_name, "its certificate is for another name");
    let address = format!("tls:{}", house.daemon.tcp());
    let unknown_authority = Authority::new("unknown");
    let unknown = snowbank(["ping", "--address", &address, "--ca", text(&unknown_authority.file)]);
    assert_refused(
        &unknown,
        "its certificate is not signed by an authority that this client trusts (--ca; without it, the system's)",
    );
    house.daemon.assert_logs("the peer does not know the authority of this daemon's certificate");
}

/// Client or daemon reports the kind of the certificate, and the kind that is allowed.
#[test]
fn certificates_of_the_wrong_kind_are_reported_with_a_fix() {
    let authority = Authority::new("authority");
    let shown = |pair: &Pair| {
        let daemon = tls_setup(pair, "").start();
        let address = format!("tls:{}", daemon.tcp());
        (daemon, snowbank(["ping", "--address", &address, "--ca", text(&authority.file)]))
    };
    let (daemon, refused) = shown(&authority.issue_authority("ca"));
    assert_refused(
        &refused,
        "its certificate is an authority's own (CA:TRUE), allowed: one that an authority signed",
    );
    for part in ["WARN the TLS certificate is an authority's own (CA:TRUE)", "its own message says which"] {
        daemon.assert_logs(part);
    }
    let (_daemon, refused) = shown(&authority.issue("nameless", &[]));
    assert_refused(&refused, "its certificate names no host: make one with a subjectAltName");

    let house = House::asking_for_certificates();
    let ca = house.authority.issue_authority("ca");
    let refused = house.ping(&["--client-cert", text(&ca.certificate), "--client-key", text(&ca.key)]);
    assert_refused(&refused, "it does not accept this client's certificate");
    house.daemon.assert_logs("the peer's client certificate is an authority's own (CA:TRUE), allowed:");
}

/// The start and `check` report each mistake in one line that names the file.
#[test]
fn unusable_certificates_are_refused_with_what_to_do() {
    let authority = Authority::new("authority");
    let at = |name: &str| authority.path(name);
    let good = authority.issue_local("good");
    let expired = authority.issue_for_years("expired", 2000..2001);
    let pem = std::fs::read_to_string(&good.key).expect("readable");
    write_secret(&at("empty"), "");
    write_secret(&at("prose"), "not a certificate\n");
    write_secret(&at("cut"), &pem[..pem.len() / 2]);
    write_secret(&at("encrypted"), &pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    write_secret(&at("hollow"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    std::fs::write(at("der"), good.chain()[0].as_ref()).expect("written");
    let other = authority.issue_local("other");
    let with = |certificate: &Path, key: &Path| Pair { certificate: certificate.into(), key: key.into() };
    let missing = at("missing");
    for (pair, client_ca, parts) in [
        (with(&missing, &good.key), None, ["tls.certificate", "missing: cannot be read"]),
        (with(&good.certificate, &missing), None, ["tls.key", "missing: cannot be read"]),
        (with(&at("empty"), &good.key), None, ["tls.certificate", "found an empty file"]),
        (with(&at("prose"), &good.key), None, ["tls.certificate", "found no certificate, allowed: PEM"]),
        (with(&at("der"), &good.key), None, ["tls.certificate", "found DER, allowed: PEM"]),
        (with(&at("hollow"), &good.key), None, ["tls.certificate", "it is no X.509 certificate"]),
        (with(&good.key, &good.key), None, ["tls.certificate", "are the two files swapped?"]),
        (with(&good.certificate, &good.certificate), None, ["tls.key", "are the two files swapped?"]),
        (with(&good.certificate, &at("cut")), None, ["tls.key", "was the file copied whole?"]),
        (with(&good.certificate, &at("encrypted")), None, ["tls.key", "found an encrypted key"]),
        (with(&good.certificate, &other.key), None, ["tls.key", "is not that of the certificate"]),
        (expired, None, ["tls.certificate", "found one that expired 2001-01-01T00:00:00Z"]),
        (good.clone(), Some("empty"), ["tls.client_ca", "found an empty file"]),
        (good.clone(), Some("good.key"), ["tls.client_ca", "found a private key and no certificate"]),
        (good.clone(), Some("good.crt"), ["tls.client_ca", "found the certificate of a client or a server"]),
        (good.clone(), Some("hollow"), ["tls.client_ca", "its certificate 1 cannot be an authority's"]),
    ] {
        let more = client_ca.map_or(String::new(), |name| format!("client_ca = \"{}\"", at(name).display()));
        let setup = tls_setup(&pair, &more);
        let config = setup.path("snowbank.toml");
        let check = snowbank(["check", "--config", text(&config), "--listen", "tls:127.0.0.1:0"]);
        let found = check.out;
        let ended = setup.end();
        ended.assert_refusal(&parts);
        assert!(!ended.stderr.contains(&pem[60..80]), "the key is shown: {}", ended.stderr);
        assert!(check.code != Some(0) && parts.iter().all(|part| found.contains(part)), "{found}");
    }
    let no_certificate = Setup::bare().option("--listen", "tls:127.0.0.1:0");
    no_certificate.end().assert_refusal(&["tls:127.0.0.1:0 without a certificate", "[tls]"]);
    let alone = format!("[tls]\ncertificate = \"{}\"", good.certificate.display());
    Setup::configured(&alone).end().assert_refusal(&["tls.certificate and tls.key belong together"]);
}

/// Handshakes do not look at an authority's end, so a person must.
#[test]
fn an_expired_authority_of_clients_is_reported() {
    let (authority, old) = (Authority::new("authority"), Authority::for_years("old", 2000..2001));
    let daemon = tls_setup(&authority.issue_local("daemon"), &old.client_ca()).start();
    daemon.assert_logs("WARN a CA certificate in tls.client_ca expired 2001-01-01T00:00:00Z");
}

/// A reload accepts a renewed certificate and other authorities, and refuses a mistake. The reload
/// closes connections whose authority was removed.
#[test]
fn a_reload_reads_the_certificate_again() {
    let [old, new] = ["old", "new"].map(Authority::new);
    let pair = old.issue_local("daemon");
    let client_ca = old.path("clients.crt");
    std::fs::copy(&old.file, &client_ca).expect("copied");
    let daemon = tls_setup(&pair, &format!("client_ca = {client_ca:?}")).start();
    let reload = |part: &str| {
        let before = daemon.log().matches(part).count();
        daemon.signal(Signal::HUP);
        poll(part, || (daemon.log().matches(part).count() > before).then_some(()));
    };
    let old_client = old.issue("client", &[]);
    let new_client = new.issue("other-client", &[]);
    let mut open = secure_wire(daemon.tcp(), &old.client(Some(&old_client)));
    reload("reloaded: nothing changed");
    pair.replace_by(&old.issue_for_years("expired", 2000..2001));
    reload("found one that expired 2001-01-01T00:00:00Z");
    // A pipe that nobody writes neither hangs this reload nor those that follow.
    std::fs::remove_file(&pair.certificate).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&pair.certificate).status().unwrap().success());
    reload("it is a pipe, allowed: a regular file");
    std::fs::remove_file(&pair.certificate).expect("removed");
    secure_wire(daemon.tcp(), &old.client(Some(&old_client))).assert_open();

    pair.replace_by(&new.issue_local("daemon"));
    std::fs::copy(&new.file, &client_ca).expect("copied");
    reload("reloaded: other certificates");
    open.reply().assert_error(0, UNAUTHORIZED);
    open.assert_closed();
    secure_wire(daemon.tcp(), &new.client(Some(&new_client))).next(Ask::of(10)).ids();
    let mut refused = try_secure(daemon.tcp(), &new.client(Some(&old_client))).expect("1.3");
    assert!(refused.read(&mut [0]).expect_err("refused").to_string().contains("UnknownCA"));
}
