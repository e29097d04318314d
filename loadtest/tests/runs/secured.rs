//! Targets that use TLS and require certificates and tokens.

use crate::support::{CLOSED, Daemon, Ran, Setup, has_daemon, loadtest};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Starts a daemon whose listeners require a client certificate and a token.
fn secured() -> Daemon {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("sound");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).expect("signed").pem();
    let issuer = Issuer::new(authority, authority_key);
    let setup = Setup::bare().listeners(3);
    let write = |name: &str, text: &str| std::fs::write(setup.path(name), text).expect("written");
    for (side, name) in [("server", "127.0.0.1"), ("client", "client.example")] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        write(&format!("{side}.pem"), &params.signed_by(&key, &issuer).expect("signed").pem());
        write(&format!("{side}.key"), &key.serialize_pem());
    }
    write("ca.pem", &certificate);
    write("token", "s3cret-s3cret-s3cret-s3cret-s3cret\n");
    let at = setup.path("").display().to_string();
    let tls = "listen = [\"tls:127.0.0.1:0\"]";
    let toml = format!(
        "{tls}\n[http]\n{tls}\n[resp]\n{tls}\n[auth]\ntoken_file = \"{at}token\"\n[tls]\ncertificate = \"{at}server.pem\"\n\
         key = \"{at}server.key\"\nclient_ca = \"{at}ca.pem\"\n"
    );
    setup.config(&toml).start()
}

fn load(more: &[String]) -> Ran {
    loadtest(&format!("{CLOSED} {}", more.join(" ")))
}

fn credentials(daemon: &Daemon) -> Vec<String> {
    [("ca", "ca.pem"), ("client-cert", "client.pem"), ("client-key", "client.key"), ("token-file", "token")]
        .map(|(option, file)| format!("--{option}={}", daemon.path(file).display()))
        .into()
}

#[test]
fn targets_are_loaded_over_tls_with_certificates_and_tokens() {
    if !has_daemon() {
        return;
    }
    let daemon = secured();
    for (front_end, listener) in [(None, 0), (Some("--resp"), 1), (Some("--http"), 2)] {
        let mut options = credentials(&daemon);
        options.push(format!("--address={}", daemon.addresses[listener]));
        options.extend(front_end.map(str::to_owned));
        if front_end == Some("--resp") {
            options.push(format!("--info={}", daemon.addresses[0]));
        }
        let ran = load(&options);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.figure("target", "address"), daemon.addresses[listener].to_string(), "{ran:?}");
        assert!(ran.figure("target", "layout").as_str().is_some_and(|layout| layout != "–"), "{ran:?}");
        assert!(!ran.stdout.contains("s3cret") && !ran.json_text().contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn options_that_do_not_fit_the_target_are_refused_in_one_line() {
    if !has_daemon() {
        return;
    }
    let daemon = secured();
    let address = format!("--address={}", daemon.addresses[0]);
    let all = credentials(&daemon);
    let without = |option: &str| {
        let kept = all.iter().filter(|given| !given.starts_with(option)).cloned();
        kept.chain([address.clone()]).collect::<Vec<_>>()
    };
    std::fs::write(daemon.path("other"), "another-another-another-another").expect("written");
    let with_token = |file: &str| {
        let token = format!("--token-file={}", daemon.path(file).display());
        [without("--token"), vec![token]].concat()
    };
    for (options, reason) in [
        (without("--ca"), "is not signed by an authority"),
        (without("--client"), "certificate"),
        (without("--token"), "give its token with --token-file"),
        (with_token("other"), "check the token in the file of --token-file"),
        (with_token("nothing"), "cannot read the token file"),
        (
            all[..1].iter().cloned().chain(["--address=127.0.0.1:1".to_owned()]).collect(),
            "without a TLS address",
        ),
    ] {
        load(&options).assert_refused(2, reason);
    }
}
