//! Options, variables, and the files that a configuration names.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::*;
use snowbank_id::layout::Layout;

/// Returns overrides with these keys, texts and origins.
fn given(rows: &[(&str, &[&str], &str)]) -> Overrides {
    let of = |&(key, texts, origin): &(&str, &[&str], &str)| Override {
        key: key.to_owned(),
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        origin: origin.to_owned(),
    };
    Overrides(rows.iter().map(of).collect())
}

#[test]
fn overrides_take_the_place_of_the_file() {
    let text = "listen = [\"0.0.0.0:1\", \"0.0.0.0:2\"]\nlayout = \"js53\"\nworker_ids = 3\nshards = 2\n\
                state_dir = \"a\"\nlog.format = \"json\"\nlog.level = \"debug\"\n";
    let overrides = given(&[
        ("listen", &["[::1]:9", "unix:x"], "--listen"),
        ("layout", &["discord"], "--layout"),
        ("worker_ids", &["1-2"], "--worker-id"),
        ("shards", &["9"], "SNOWBANK_SHARDS"),
        ("state_dir", &["c"], "--state-dir"),
        ("limits.idle_timeout", &["1m"], "SNOWBANK_LIMITS_IDLE_TIMEOUT"),
        ("log.format", &["text"], "--log-format"),
        ("log.level", &["warn"], "SNOWBANK_LOG_LEVEL"),
    ]);
    let one_source = format!("{text}[[sources]]\nname = \"default\"\nlayout = \"game\"");
    for text in [text, &one_source] {
        let settings = load_text(text, &overrides).unwrap();
        // Relative paths of options start at the working directory.
        assert_eq!(settings.listen, ["[::1]:9", "unix:x"].map(|text| text.parse::<Address>().unwrap()));
        assert_eq!(settings.sources[0].layout, Layout::resolve("discord").unwrap());
        assert_eq!(settings.sources[0].worker_ids.set.to_string(), "1-2");
        assert_eq!(settings.shards.get(), 9);
        assert_eq!(settings.state_dir, StateDirChoice::At("c".into()));
        assert_eq!(settings.limits.idle_timeout, Some(Duration::from_secs(60)));
        assert_eq!(settings.log, LogSettings { format: LogFormat::Text, level: LevelFilter::WARN });
        assert_eq!(settings.log, overrides.log());
        assert_eq!(settings.origins.of("shards"), Origin::Override("SNOWBANK_SHARDS".into()));
    }
    assert!(load(None, &overrides, CORES, NOW).is_ok());
}

#[test]
fn an_override_that_hides_a_value_of_the_file_is_reported() {
    let overrides = given(&[("log.level", &["warn"], "SNOWBANK_LOG_LEVEL"), ("shards", &["2"], "--shards")]);
    let settings = load_text("shards = 2\nlog.level = \"debug\"\n", &overrides).unwrap();
    let hidden = &settings.origins.overridden;
    assert!(hidden.len() == 1, "{hidden:?}");
    let line = ":2: log.level = \"debug\" is not in force: SNOWBANK_LOG_LEVEL sets it to \"warn\"";
    assert!(hidden[0].ends_with(line), "{hidden:?}");
    assert_eq!(load_text("shards = 2\n", &overrides).unwrap().origins.overridden, [""; 0]);
}

#[test]
fn an_inherited_socket_that_hides_an_option_is_reported() {
    let mut overrides = given(&[("listen", &["127.0.0.1:7661"], "--listen")]);
    overrides.listen_at(&[(Purpose::Clients(Protocol::Native), "127.0.0.1:7660".parse().unwrap())]);
    let settings = load(None, &overrides, CORES, NOW).unwrap();
    let hidden = &settings.origins.overridden;
    assert!(hidden.len() == 1 && hidden[0].starts_with("--listen: listen = "), "{hidden:?}");
}

#[test]
fn mistakes_of_overrides_come_after_those_of_the_file() {
    let overrides = given(&[
        ("worker_ids", &["some"], "--worker-id"),
        ("shards", &["0"], "SNOWBANK_SHARDS"),
        ("listen", &["10.0.0.1"], "--listen"),
    ]);
    let mistakes = load_text("order = 1", &overrides).unwrap_err();
    assert_eq!(
        mistakes.to_string().lines().collect::<Vec<_>>(),
        [
            "/etc/snowbank.toml:1: order: found 1, allowed: \"relaxed\" or \"strict\"",
            "--listen: \"10.0.0.1\" is not an address: the port is missing; write 10.0.0.1:PORT",
            "--worker-id: \"some\" is not a set of worker IDs: write a number, ranges, or both, such as 5, 0-3 or 0-3,8, \
             or each node field with its numbers, such as datacenter=1,worker=0-3",
            "SNOWBANK_SHARDS: found \"0\", allowed: a number from 1 to 256, or \"auto\"",
        ]
    );
    assert_eq!(
        mistakes.first_line(),
        "/etc/snowbank.toml:1: order: found 1, allowed: \"relaxed\" or \"strict\" (and 3 more mistakes; `snowbank \
         check` names them all)"
    );
}

#[test]
fn token_files_open_to_all_or_useless_to_peers_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("snowbank.toml");
    let warnings_with = |mode: u32, peers: &[&str], tokens: &str| {
        let path = directory.path().join("tokens");
        std::fs::write(&path, format!("{tokens}\n")).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let text = format!("auth.token_file = \"tokens\"\nfleet.peers = {peers:?}\n");
        let file = Some((&*file, &*text));
        let credentials = Credentials::default();
        load_with_secrets(file, &Overrides::default(), CORES, NOW, &credentials).unwrap().1.warnings
    };
    let warnings = |peers: &[&str], tokens: &str| warnings_with(0o640, peers, tokens);
    let private = ["127.0.0.1:1", "unix:other.sock"];
    let token = "a token of 32 bytes for the fleet";
    assert_eq!(warnings(&private, token), []);
    let open =
        Warning::OpenFile { what: "the token file", path: directory.path().join("tokens"), mode: 0o604 };
    assert_eq!(warnings_with(0o604, &private, token), [open]);
    let found = warnings(&["ids-1:7660", "localhost:1", "10.0.0.1:7660"], token);
    let plain = ["ids-1:7660", "10.0.0.1:7660"].map(|peer| peer.parse().unwrap());
    assert_eq!(found, [Warning::PlainPeers(plain.into())]);
    assert_eq!(warnings(&private, &hashed_line(None, token.as_bytes())), [Warning::NoTokenForPeers]);
}
