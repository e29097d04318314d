//! Tokens, and secrets from files and from systemd's credentials. No log line contains a secret.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::secure::{Authority, write_secret};
use crate::support::wire::{self, UNAUTHORIZED};
use crate::support::{Ask, Daemon, Reply, Setup, poll};

const TOKEN: &str = "correct-horse-battery-staple";

fn with_token_file(path: &Path) -> Setup {
    Setup::configured(&format!("auth.token_file = \"{}\"", path.display()))
}

#[track_caller]
fn assert_says(daemon: &Daemon, part: &str) {
    poll(part, || daemon.log().contains(part).then_some(()));
}

fn snowbank(arguments: &[&str], credentials: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowbank"));
    command.args(arguments).env_remove("CREDENTIALS_DIRECTORY");
    if let Some(directory) = credentials {
        command.env("CREDENTIALS_DIRECTORY", directory);
    }
    command.output().expect("the program runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_wrong_token_and_a_missing_one_are_one_clear_line_each() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, &format!("# orders\n{TOKEN}\nanother\n"));
    let daemon = with_token_file(&path).start();
    let mut wire = daemon.connect();
    assert_eq!(wire.call(&wire::auth(1, TOKEN.as_bytes())), Reply::Ok(1));
    wire.next(Ask::of(3)).ids();
    for _ in 0..3 {
        let mut wire = daemon.connect();
        wire.call(&wire::auth(1, b"correct-horse-battery-stapl")).assert_error(1, UNAUTHORIZED);
        wire.assert_closed();
    }
    let mut wire = daemon.connect();
    wire.call(&Ask::of(1).bytes()).assert_error(0, UNAUTHORIZED);
    let wrong = "a token that is not one of auth.token_file; give the client one of its lines";
    assert_says(&daemon, wrong);
    assert_says(&daemon, "no token, and auth.token_file asks for one");
    let log = daemon.log();
    assert_eq!(log.matches(wrong).count(), 1, "{log}");
    assert!(log.contains("peer=127.0.0.1:") && !log.contains("horse"), "{log}");
}

#[test]
fn unix_socket_peers_are_named_too() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, TOKEN);
    let setup = Setup::bare().config(&format!("auth.token_file = \"{}\"", path.display()));
    let listener = format!("unix:{}", setup.path("socket").display());
    let daemon = setup.option("--listen", listener).start();
    daemon.connect().call(&wire::auth(1, b"wrong")).assert_error(1, UNAUTHORIZED);
    assert_says(&daemon, &format!("peer=process {} of user ", std::process::id()));
}

#[test]
fn impossible_token_files_are_refused() {
    let files = crate::support::directory();
    let at = |name: &str| files.path().join(name);
    write_secret(&at("empty"), "");
    write_secret(&at("comments"), "# nothing here\n\n");
    write_secret(&at("long"), &format!("ok\n{}\n", TOKEN.repeat(19)));
    for (name, part) in [
        ("missing", "missing: No such file or directory"),
        ("empty", "holds no token, so no client could ever ask for IDs"),
        ("comments", "holds no token, so no client could ever ask for IDs"),
        ("long", "long:2: found a token of 532 bytes, allowed: 1 to 512"),
    ] {
        let ended = with_token_file(&at(name)).end();
        ended.assert_refusal(&["auth.token_file", part]);
        assert!(!ended.stderr.contains("horse"), "{}", ended.stderr);
    }
}

#[test]
fn a_world_readable_token_file_is_warned_of() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, TOKEN);
    for (mode, warned) in [(0o640, false), (0o604, true)] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("one's own file");
        let daemon = with_token_file(&path).start();
        let line = format!("the token file {} can be read by every user", path.display());
        assert_says(&daemon, "serves with");
        if warned {
            assert_says(&daemon, &line);
        }
        let log = daemon.log();
        daemon.stop();
        assert_eq!(log.contains(&line), warned, "{log}");
    }
}

#[test]
fn systemd_credentials_replace_files() {
    let directory = crate::support::directory();
    write_secret(&directory.path().join("token"), TOKEN);
    let authority = Authority::new(directory.path(), "authority");
    authority.issue_local("daemon");
    let config = "[auth]\ntoken_file = \"credential:token\"\n[tls]\ncertificate = \"credential:daemon.crt\"\n\
                  key = \"credential:daemon.key\"\nclient_ca = \"credential:authority.crt\"\n";
    let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(config);
    let daemon = setup.env("CREDENTIALS_DIRECTORY", directory.path()).start();
    authority.issue("client", &[]);
    let address = format!("tls:{}", daemon.tcp());
    let options = [
        ["next", "--address", &address].as_slice(),
        &["--token-file", "credential:token", "--ca", "credential:authority.crt"],
        &["--client-cert", "credential:client.crt", "--client-key", "credential:client.key"],
    ]
    .concat();
    let output = snowbank(&options, Some(directory.path()));
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().is_ok());
    assert!(said(&snowbank(&options, None)).contains("no $CREDENTIALS_DIRECTORY"));
}

#[test]
fn missing_credentials_refuse_a_start_and_are_skipped_by_check() {
    let config = "auth.token_file = \"credential:token\"";
    let ended = Setup::configured(config).env("CREDENTIALS_DIRECTORY", "").end();
    ended.assert_refusal(&[
        "\"credential:token\" and no $CREDENTIALS_DIRECTORY",
        "LoadCredential=token:/path",
    ]);
    let directory = crate::support::directory();
    let ended = Setup::configured(config).env("CREDENTIALS_DIRECTORY", directory.path()).end();
    ended.assert_refusal(&["auth.token_file", "/token: No such file"]);
    for wrong in ["credential:", "credential:..", "credential:../etc/shadow", "credential:/etc/shadow"] {
        let ended = Setup::configured(&format!("auth.token_file = \"{wrong}\"")).end();
        ended.assert_refusal(&["allowed: \"credential:\" and the name of a systemd credential"]);
    }

    let path = directory.path().join("snowbank.toml");
    std::fs::write(&path, config).expect("written");
    let config = path.to_str().expect("UTF-8");
    let output = snowbank(&["check", "--config", config], None);
    assert!(output.status.success() && said(&output).contains("not checked here"), "{}", said(&output));
    let output = snowbank(&["check", "--config", config], Some(directory.path()));
    assert!(!output.status.success() && said(&output).contains("/token: No such file"), "{}", said(&output));
}

#[test]
fn a_client_refuses_several_or_oversized_tokens() {
    let daemon = Setup::new().start();
    let address = daemon.tcp().to_string();
    let files = crate::support::directory();
    let path = files.path().join("token");
    for (text, part) in [
        ("", "the token has 0 bytes; 1 to 512 are allowed"),
        ("one\ntwo\n", "found several lines in the token file"),
        (&"t".repeat(513), "the token has 513 bytes"),
    ] {
        write_secret(&path, text);
        let output = snowbank(&["ping", "--address", &address, "--token-file", path.to_str().unwrap()], None);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    let endless = snowbank(&["ping", "--address", &address, "--token-file", "/dev/zero"], None);
    assert_eq!(endless.status.code(), Some(2), "{}", said(&endless));
}
