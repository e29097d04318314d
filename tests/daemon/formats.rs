//! Formats for users: `snowbank next --format` against a real daemon, and `decode --from`.

use crate::support::program::{Said, program, snowbank};
use crate::support::{Daemon, Setup};
use serde_json::Value;

/// Each format's name, and whether its texts sort. The dictionary has characters that JSON and
/// shells treat specially.
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
worker_ids = 81
"#;

/// Two keys, one line for each version.
const KEYS: &str = "\
1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
2 2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94
";

fn keys(daemon: &Daemon, text: &str) -> String {
    let path = daemon.path("alias-keys");
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("text").to_owned()
}

#[track_caller]
fn prints(arguments: &[&str]) -> Vec<String> {
    snowbank(arguments).printed().lines().map(str::to_owned).collect()
}

/// Returns the single line of a command with wrong arguments.
#[track_caller]
fn refuses(arguments: &[&str]) -> String {
    snowbank(arguments).refusal(2)
}

#[track_caller]
fn next(daemon: &Daemon, source: &str, format: &str, further: &[&str]) -> Vec<String> {
    let address = daemon.addresses[0].to_string();
    let keys = keys(daemon, KEYS);
    let arguments =
        ["next", "--address", &address, "--source", source, "--format", format, "--alias-keys", &keys];
    prints(&[&arguments[..], further].concat())
}

#[test]
fn each_format_is_written_and_read_back() {
    let daemon = Setup::configured(SOURCES).start();
    let keys = keys(&daemon, KEYS);
    for (source, name, layout) in
        [("orders", "orders", "twitter"), ("trades", "trades", "clearing"), ("0", "orders", "twitter")]
    {
        for &(format, sorts) in EACH {
            let lines = next(&daemon, source, format, &["-n", "20", "--json"]);
            let lines: Vec<Value> =
                lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().expect("a text")).collect();
            if format == "decimal" {
                let has_id_alone = |line: &Value| line.as_object().expect("an object").len() == 1;
                assert!(lines.iter().all(has_id_alone), "{lines:?}");
                continue;
            }
            let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().expect("a text")).collect();
            let from = ["decode", "--from", format, "--layout", layout, "--source", name];
            let read = prints(&[&from[..], &["--alias-keys", &keys, "--"], &texts].concat());
            assert_eq!(read.len(), 20);
            for (line, id) in read.iter().zip(&ids) {
                assert!(line.starts_with(&format!("{id} 20")), "{format}: {line:?} is not of {id}");
            }
            assert!(!sorts || texts.is_sorted(), "{format}: {texts:?}");
        }
    }
}

#[test]
fn the_page_about_formats_lists_each_and_says_which_sort() {
    let page = std::fs::read_to_string("docs/formats.md").expect("the page");
    for (name, sorts) in EACH.iter().filter(|(name, _)| !name.starts_with("dictionary:")) {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let cells: Vec<&str> = row.expect("a row of the table").split('|').map(str::trim).collect();
        assert_eq!(cells[3].starts_with("yes"), *sorts, "{name}");
    }
}

#[test]
fn alias_keys_are_a_file_or_a_credential_and_old_ones_still_read() {
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
        assert_eq!(prints(&decode), ["1000000007"]);
        let json = prints(&[&decode[..], &["--json"]].concat());
        assert_eq!(json, [r#"{"id":"1000000007","layout":"ticket"}"#]);
    }
    let decode = ["decode", "--layout", "ticket"];
    for (command, part) in [
        ([&decode[..], &["--source", "bills", "--from", "uuidv7", "5"]].concat(), "of \"bills\" have none"),
        ([&decode[..], &["9223372036854775808"]].concat(), "above the largest ID"),
        (vec!["layout", "ticket"], "a ticket counter has no layout"),
        (vec!["range", "--layout", "ticket", "--from", "0", "--to", "1"], "a ticket counter has no layout"),
    ] {
        let line = refuses(&command);
        assert!(line.contains(part), "{command:?}: {line}");
    }
}
