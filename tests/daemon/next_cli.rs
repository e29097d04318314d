//! `snowbank next` against real daemons: formats, chosen fields, several addresses. `snowbank
//! decode` reads the formats back.

use crate::support::program::{Said, program, snowbank};
use crate::support::{Daemon, Setup};
use serde_json::Value;

/// Each format's name, and whether its texts sort like the IDs. The dictionary has characters that
/// JSON and shells treat specially.
const EACH: &[(&str, bool)] = &[
    ("decimal", false),
    ("hex", true),
    ("base62", true),
    ("base62-shuffled", false),
    ("base32-crockford", true),
    ("base32-crockford-check", true),
    ("objectid", true),
    ("uuidv7", true),
    ("uuidv8", true),
    ("alias", false),
    (r#"dictionary:\"'$`0123456789"#, false),
];

const SOURCES: &str = r#"
[[sources]]
name = "orders"
worker_ids = 33
[[sources]]
name = "trades"
layout = "clearing"
worker_ids = "machine=81"
[[sources]]
name = "trades-code"
layout = "clearing-code"
worker_ids = "machine=0-9"
[[sources]]
name = "batches"
layout = "clearing-batch"
worker_ids = "machine=81"
"#;

/// A file of alias keys in two versions.
const KEYS: &str = "\
1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
2 2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94
";

fn keys(daemon: &Daemon, text: &str) -> String {
    let path = daemon.path("alias-keys");
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("text").to_owned()
}

fn next(daemon: &Daemon, arguments: &[&str]) -> Said {
    let address = daemon.addresses[0].to_string();
    snowbank([&["next", "--address", &address], arguments].concat())
}

#[test]
fn each_format_is_written_and_read_back() {
    let daemon = Setup::configured(SOURCES).start();
    let keys = keys(&daemon, KEYS);
    for (source, layout) in [("orders", "twitter"), ("trades", "clearing")] {
        for &(format, sorts) in EACH {
            let formatted = ["--source", source, "--format", format, "--alias-keys", &keys];
            let lines = next(&daemon, &[&formatted[..], &["-n", "20", "--json"]].concat()).printed();
            let lines: Vec<Value> =
                lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().expect("a text")).collect();
            if format == "decimal" {
                let has_id_alone = |line: &Value| line.as_object().expect("an object").len() == 1;
                assert!(lines.iter().all(has_id_alone), "{lines:?}");
                continue;
            }
            let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().expect("a text")).collect();
            let from = ["decode", "--from", format, "--layout", layout, "--source", source];
            let decoded = snowbank([&from[..], &["--alias-keys", &keys, "--"], &texts].concat()).printed();
            assert_eq!(decoded.lines().count(), 20);
            for (line, id) in decoded.lines().zip(&ids) {
                assert!(line.starts_with(&format!("{id} 20")), "{format}: {line:?} is not of {id}");
            }
            assert!(!sorts || texts.is_sorted(), "{format}: {texts:?}");
        }
    }
}

#[test]
fn docs_formats_lists_each_format_and_says_whether_it_sorts() {
    let page = std::fs::read_to_string("docs/formats.md").expect("the page");
    for (name, sorts) in EACH.iter().filter(|(name, _)| !name.starts_with("dictionary:")) {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let cells: Vec<&str> = row.expect("a row of the table").split('|').map(str::trim).collect();
        assert_eq!(cells[3].starts_with("yes"), *sorts, "{name}");
    }
}

#[test]
fn aliases_of_old_keys_decode_with_a_key_file_or_credential() {
    let daemon = Setup::new().start();
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.env("CREDENTIALS_DIRECTORY", daemon.path(""));
        command.env("SNOWBANK_ADDRESS", daemon.addresses[0].to_string());
        Said::by(command.args(arguments))
    };
    let next = ["next", "--format", "alias"];
    let decode = ["decode", "--from", "alias"];
    let (old, _) = KEYS.split_once('\n').expect("two lines");
    let before = run(&[&next[..], &["--alias-keys", &keys(&daemon, old)]].concat()).printed();
    keys(&daemon, KEYS);
    let credential = ["--alias-keys", "credential:alias-keys"];
    let after = run(&[&next[..], &credential].concat()).printed();
    assert!(before.starts_with("1-") && after.starts_with("2-"), "{before} {after}");
    let read = run(&[&decode[..], &credential, &[before.trim(), after.trim()]].concat()).printed();
    assert_eq!(read.matches("datacenter=0 worker=0").count(), 2, "{read}");
    for (command, keys, part) in [
        (&decode[..], &["1-7n42DGM5Tfl"][..], "name their file with --alias-keys"),
        (&decode, &["1-7n42DGM5Tfl", "--alias-keys", "/no/keys"], "the alias keys /no/keys: No such file"),
        (&next, &[], "--alias-keys"),
        (&next, &["--alias-keys", "credential:other"], "other"),
    ] {
        let line = run(&[command, keys].concat()).refusal(2);
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn ticket_numbers_are_decoded_without_a_layout() {
    for (format, text) in [("decimal", "1000000007"), ("hex", "3b9aca07"), ("base62", "15ftgN")] {
        let decode = ["decode", "--layout", "ticket", "--from", format, text];
        assert_eq!(snowbank(decode).printed(), "1000000007\n");
        let json = snowbank([&decode[..], &["--json"]].concat()).printed();
        assert_eq!(json, "{\"id\":\"1000000007\",\"layout\":\"ticket\"}\n");
    }
    let decode = ["decode", "--layout", "ticket"];
    for (command, part) in [
        ([&decode[..], &["--source", "bills", "--from", "uuidv7", "5"]].concat(), "of \"bills\" have none"),
        ([&decode[..], &["9223372036854775808"]].concat(), "above the largest ID"),
        (vec!["layout", "ticket"], "a ticket counter has no layout"),
        (vec!["range", "--layout", "ticket", "--from", "0", "--to", "1"], "a ticket counter has no layout"),
    ] {
        let line = snowbank(&command).refusal(2);
        assert!(line.contains(part), "{command:?}: {line}");
    }
}

#[test]
fn a_caller_chooses_the_table_suffix() {
    let daemon = Setup::configured(SOURCES).start();
    let ids = |arguments: &[&str]| -> Vec<u64> {
        let printed = next(&daemon, arguments).printed();
        printed.lines().map(|line| line.parse().expect("an ID")).collect()
    };
    for source in ["trades", "trades-code"] {
        let chosen = ids(&["--source", source, "-n", "1000", "--set", "table=316"]);
        assert_eq!(chosen.len(), 1000);
        assert!(chosen.iter().all(|id| id % 1000 == 316), "{chosen:?}");
        assert!(chosen.is_sorted_by(|left, right| left < right), "{chosen:?}");
        // Without a choice the suffix is random.
        let random = ids(&["--source", source, "-n", "100"]);
        assert!(random.iter().any(|id| id % 1000 != random[0] % 1000), "{random:?}");
    }
    let hex = next(&daemon, &["--source", "trades", "--set", "table=0", "--format", "hex"]).printed();
    assert_eq!(u64::from_str_radix(hex.trim(), 16).expect("digits") % 1000, 0);
}

#[test]
fn an_invalid_set_option_is_refused() {
    let daemon = Setup::configured(SOURCES).start();
    for (source, choices, part) in [
        ("trades", &["--set", "machine=1"][..], "\"machine\" is not a random field of this layout"),
        ("trades", &["--set", "table"], "a number, as in table=316"),
        ("trades", &["--set", "table=1", "--set", "table=2"], "\"table\" is set twice"),
        ("batches", &["--set", "table=1"], "is not a random field of this layout; its random fields: none"),
    ] {
        let line = next(&daemon, &[&["--source", source], choices].concat()).refusal(2);
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn next_tries_the_next_address_if_one_fails() {
    let mut daemons = ["1", "2"].map(|worker| Setup::new().args(["--worker-id", worker]).start());
    let addresses = daemons.each_ref().map(|daemon| daemon.tcp().to_string()).join(",");
    let next = || {
        let mut next = program();
        Said::by(next.args(["next", "-n", "2"]).env("SNOWBANK_ADDRESS", &addresses))
    };
    let worker_id =
        |ids: &str| ids.lines().next().and_then(|id| id.parse::<u64>().ok()).map(|id| id >> 12 & 31);
    assert_eq!(worker_id(&next().out), Some(1), "the first address serves");
    daemons[0].kill();
    assert_eq!(worker_id(&next().out), Some(2), "the second address serves");
    daemons[1].kill();
    let Said { code, err, .. } = next();
    assert!(code != Some(0) && daemons.iter().all(|daemon| err.contains(&daemon.tcp().to_string())), "{err}");
}

#[test]
fn counts_that_no_option_has_are_refused_with_what_is_allowed() {
    for (options, allowed) in [
        (&["next", "-n", "-1"][..], "allowed: a whole number from 1 on"),
        (&["next", "--count=0"], "allowed: a whole number from 1 on"),
        (&["ping", "-c", "-1"], "allowed: a whole number from 1 on"),
        (&["status", "--watch=abc"], "allowed: a whole number from 1 to 3600"),
    ] {
        let line = snowbank(options).refusal(2);
        assert!(line.contains(allowed), "{line}");
    }
    let line = snowbank(["next", "--address", "no.such.host.invalid:1"]).refusal(1);
    assert!(line.contains("cannot connect") && !line.contains("is `snowbank serve` running"), "{line}");
}
