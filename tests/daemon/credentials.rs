//! Tokens, and secrets from files and from systemd's credentials. No log line contains a secret.

use std::path::Path;

use crate::secure::{Authority, write_secret};
use crate::support::program::{Said, program};
use crate::support::resp::{Client, array};
use crate::support::wire::{self, UNAUTHORIZED};
use crate::support::{Ask, Setup};

const TOKEN: &str = "correct-horse-battery-staple";

fn with_token_file(path: &Path) -> Setup {
    Setup::configured(&format!("auth.token_file = \"{}\"", path.display()))
}

/// Runs the program with these credentials. Returns the exit code and both outputs.
fn run(arguments: &[&str], credentials: Option<&Path>) -> (Option<i32>, String) {
    let mut command = program();
    command.args(arguments).envs(credentials.map(|directory| ("CREDENTIALS_DIRECTORY", directory)));
    let Said { code, out, err } = Said::by(&mut command);
    (code, out + &err)
}

#[test]
fn a_missing_or_wrong_token_closes_the_connection() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, "first-token\n\n  second-token  \n");
    let daemon = with_token_file(&path).start();
    let requests = [
        ("NEXT first", Ask::of(1).tag(7).bytes()),
        ("a wrong token", wire::hello(7, b"third-token")),
        ("two tokens", wire::hello(7, b"first-token\nsecond-token")),
    ];
    for (what, request) in requests {
        let mut wire = daemon.connect();
        wire.assert_open();
        // The daemon must not serve the requests that follow this request in the same write.
        let mut bytes = request;
        bytes.extend_from_slice(&wire::hello(8, b"first-token"));
        bytes.extend_from_slice(&Ask::of(1).tag(9).bytes());
        wire.send(&bytes);
        let message = wire.reply().assert_error(7, UNAUTHORIZED);
        assert!(!message.contains("first-token"), "{what}: {message}");
        wire.assert_closed();
    }
    assert!(!daemon.log().contains("first-token"), "the log shows a token");
    // A second HELLO with a wrong token closes an authorized connection.
    let mut wire = daemon.connect();
    wire.call(&wire::hello(1, b"second-token")).welcome();
    wire.call(&wire::hello(2, b"wrong")).assert_error(2, UNAUTHORIZED);
    wire.assert_closed();
}

#[test]
fn a_refused_unix_socket_peer_is_logged_with_its_process() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, TOKEN);
    let setup = Setup::bare().config(&format!("auth.token_file = \"{}\"", path.display()));
    let listener = format!("unix:{}", setup.path("socket").display());
    let daemon = setup.option("--listen", listener).start();
    daemon.connect().call(&wire::hello(1, b"wrong")).assert_error(1, UNAUTHORIZED);
    daemon.assert_logs(&format!("peer=process {} of user ", std::process::id()));
}

#[test]
fn systemd_credentials_replace_files() {
    let authority = Authority::new("authority");
    write_secret(&authority.path("token"), TOKEN);
    authority.issue_local("daemon");
    authority.issue("client", &[]);
    let config = "[auth]\ntoken_file = \"credential:token\"\n[tls]\ncertificate = \"credential:daemon.crt\"\n\
                  key = \"credential:daemon.key\"\nclient_ca = \"credential:authority.crt\"\n";
    let setup = Setup::bare().option("--listen", "tls:127.0.0.1:0").config(config);
    let daemon = setup.env("CREDENTIALS_DIRECTORY", authority.path("")).start();
    let address = format!("tls:{}", daemon.tcp());
    let options = [
        ["next", "--address", &address].as_slice(),
        &["--token-file", "credential:token", "--ca", "credential:authority.crt"],
        &["--client-cert", "credential:client.crt", "--client-key", "credential:client.key"],
    ]
    .concat();
    let (code, said) = run(&options, Some(&authority.path("")));
    assert!(code == Some(0) && said.trim().parse::<u64>().is_ok(), "{said}");
    assert!(run(&options, None).1.contains("no $CREDENTIALS_DIRECTORY"));
}

/// A daemon takes the token of a client by the line that `snowbank token` prints for it.
#[test]
fn a_made_token_is_known_by_its_line() {
    let files = crate::support::directory();
    let chosen = files.path().join("chosen");
    write_secret(&chosen, TOKEN);
    let print = |arguments: &[&str]| Said::by(program().args(arguments)).printed();
    let made = print(&["token", "billing"]);
    let (token, line) = made.trim_end().split_once('\n').expect("two lines");
    assert!(token.len() == 64 && line.starts_with("billing: sha256:") && !line.contains(token), "{made}");
    assert_ne!(print(&["token", "billing"]), made);
    let plain = print(&["token", "--token-file", chosen.to_str().expect("UTF-8")]);
    let path = files.path().join("tokens");
    write_secret(&path, &format!("{line}\n{plain}"));
    let toml = format!("auth.token_file = {path:?}\n[[identities]]\nname = \"billing\"\n");
    let daemon = Setup::configured(&toml).start();
    for (token, identity) in [(token, Some("billing")), (TOKEN, None)] {
        let mut wire = daemon.connect();
        wire.call(&wire::hello(1, token.as_bytes())).welcome();
        assert_eq!(wire.info()["identity"].as_str(), identity);
    }
    let hash = line.strip_prefix("billing: ").expect("a name");
    daemon.connect().call(&wire::hello(1, hash.as_bytes())).assert_error(1, UNAUTHORIZED);
}

#[test]
fn serve_refuses_missing_credentials_and_check_skips_them() {
    let config = "auth.token_file = \"credential:token\"";
    let ended = Setup::configured(config).env("CREDENTIALS_DIRECTORY", "").end();
    ended.assert_refusal(&[
        "\"credential:token\" and no $CREDENTIALS_DIRECTORY",
        "LoadCredential=token:/path",
    ]);
    let directory = crate::support::directory();
    let ended = Setup::configured(config).env("CREDENTIALS_DIRECTORY", directory.path()).end();
    ended.assert_refusal(&["auth.token_file", "/token: No such file"]);
    let path = directory.path().join("snowbank.toml");
    // The user who runs this may have a state.
    std::fs::write(&path, format!("state_dir = \"none\"\n{config}")).expect("written");
    let config = path.to_str().expect("UTF-8");
    let (code, said) = run(&["check", "--config", config], None);
    assert!(code == Some(0) && said.contains("not checked here"), "{said}");
    let (code, said) = run(&["check", "--config", config], Some(directory.path()));
    assert!(code != Some(0) && said.contains("/token: No such file"), "{said}");
}

#[test]
fn a_client_refuses_several_or_oversized_tokens() {
    let files = crate::support::directory();
    let path = files.path().join("token");
    for (text, part) in [
        ("", "the token has 0 bytes; 1 to 512 are allowed"),
        ("one\ntwo\n", "found several lines in the token file"),
        (&"t".repeat(513), "the token has 513 bytes"),
    ] {
        write_secret(&path, text);
        let (code, said) = run(&["ping", "--token-file", path.to_str().unwrap()], None);
        assert!(code == Some(2) && said.contains(part), "{code:?}, {said}");
    }
}

/// Returns how often the daemon's own memory has these bytes.
fn copies_in_memory(pid: u32, secret: &[u8]) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the daemon runs");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("a parent may read it");
    let mut copies = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').expect("a range");
        let (from, to) = range.split_once('-').expect("two ends");
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).expect("hexadecimal"));
        let mut bytes = vec![0; usize::try_from(to - from).expect("it fits")];
        // Some mappings cannot be read.
        if std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, from).is_ok() {
            copies += bytes.windows(secret.len()).filter(|window| *window == secret).count();
        }
    }
    copies
}

#[test]
fn a_daemons_memory_keeps_no_token() {
    let files = crate::support::directory();
    let path = files.path().join("tokens");
    write_secret(&path, TOKEN);
    let text =
        format!("shards = 1\nauth.token_file = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"", path.display());
    let daemon = Setup::configured(&text).resp().start();
    let mut client = Client::of(&daemon);
    client.asks(&format!("AUTH \"{TOKEN}\"\r\nPING\r\n"), "+OK\r\n+PONG\r\n");
    client.asks(&array(&["AUTH", TOKEN]), "+OK\r\n");
    let mut wires = Vec::new();
    for index in 0..5_u16 {
        let mut wire = daemon.connect();
        let hello = wire::hello(1, TOKEN.as_bytes());
        // The token arrives in two parts, so the connection keeps the first.
        wire.send(&hello[..20 + usize::from(index)]);
        std::thread::sleep(std::time::Duration::from_millis(50));
        wire.send(&hello[20 + usize::from(index)..]);
        wire.reply().welcome();
        wire.next(Ask::of(1)).ids();
        wires.push(wire);
    }
    // The tail of the token alone shows a copy of a part, too.
    assert_eq!(copies_in_memory(daemon.id(), TOKEN.as_bytes()), 0);
    assert_eq!(copies_in_memory(daemon.id(), &TOKEN.as_bytes()[10..]), 0);
}
