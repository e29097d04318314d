//! What a reload may change, held against the tables: every row has its say.

use super::*;
use crate::config::daemon::DAEMON;
use crate::config::setting::{Change, Section};
use crate::config::source::SOURCE;

/// Another value than the default for each setting, by its key with its section.
const OTHERS: &[(&str, &str)] = &[
    ("listen", r#"["127.0.0.1:7661", "unix:/s"]"#),
    ("shards", "3"),
    ("order", r#""strict""#),
    ("state_dir", r#""/state""#),
    ("lock_dir", r#""/locks""#),
    ("unix_mode", r#""0600""#),
    ("limits.max_connections", "7"),
    ("limits.max_count", "7"),
    ("limits.default_wait", r#""70ms""#),
    ("limits.max_wait", r#""7s""#),
    ("limits.frame_timeout", r#""7s""#),
    ("limits.idle_timeout", r#""1h""#),
    ("limits.write_timeout", r#""7s""#),
    ("limits.max_reply_queue", r#""1MiB""#),
    ("limits.drain_timeout", r#""7s""#),
    ("clock.max_step", r#""7s""#),
    ("clock.step_hold", r#""7s""#),
    ("auth.token_file", r#""/tokens""#),
    ("admin.listen", "9660"),
    ("log.format", r#""json""#),
    ("log.level", r#""warn""#),
    ("tls.certificate", r#""/daemon.crt""#),
    ("tls.key", r#""credential:daemon.key""#),
    ("tls.client_ca", r#""/clients.crt""#),
    ("tls.min_version", r#""1.2""#),
    ("tls.handshake_timeout", r#""7s""#),
    ("name", r#""other""#),
    ("layout", r#""discord""#),
    ("worker_ids", r#""0,2-3""#),
    ("burst_window", r#""7ms""#),
    ("max_ahead", r#""70s""#),
    ("on_step_back", r#""wait""#),
    ("sequence_start", r#""zero""#),
    ("horizon", r#""7s""#),
    ("first_start_guard", r#""7ms""#),
];

fn other(section: Section, key: &str) -> &'static str {
    let key = format!("{}{key}", section.prefix());
    let row = OTHERS.iter().find(|(of, _)| *of == key);
    row.unwrap_or_else(|| panic!("{key} is new: say another value of it, and whether a reload takes it")).1
}

/// What a setting of that section does not go without: a certificate and its key.
fn beside(section: Section, key: &str) -> String {
    let pair = ["certificate", "key"].into_iter().filter(|other| section == Section::Tls && *other != key);
    pair.map(|other| format!("{other} = \"/old/{other}\"\n")).collect()
}

/// A file that sets one setting alone, but for what it does not go without, and the full key by which it is spoken of.
fn file_with(section: Section, key: &str, value: &str) -> (String, String) {
    let table = Section::TABLES.iter().find(|(_, of)| *of == section);
    match (table, section) {
        (Some((table, _)), _) => {
            let beside = if value == r#""""# { String::new() } else { beside(section, key) };
            (format!("[{table}]\n{key} = {value}\n{beside}"), format!("{table}.{key}"))
        }
        (None, Section::SourceAlone) => {
            (format!("[[sources]]\n{key} = {value}\n"), format!("sources[0].{key}"))
        }
        (None, Section::Source) => (format!("{key} = {value}\n"), format!("sources[0].{key}")),
        (None, _) => (format!("{key} = {value}\n"), key.to_owned()),
    }
}

/// Holds one row of a table against what `diff` does, both ways.
fn check_row(section: Section, key: &str, change: Change) {
    let running = match section {
        Section::Tls => settings(&format!("[tls]\n{}", beside(section, ""))),
        _ => settings(""),
    };
    let (file, full) = file_with(section, key, other(section, key));
    let wanted = settings(&file);
    match (change, diff(&running, &wanted)) {
        (Change::Reload, Ok(changed)) => {
            assert_eq!(changed.len(), 1, "{changed:?}");
            assert_eq!(changed[0].key, full);
            assert_ne!(changed[0].from, changed[0].to);
        }
        (Change::Restart(reason), Err(refused)) => {
            let refused: Vec<&Mistake> = refused.iter().collect();
            let [only] = refused[..] else { panic!("{refused:?}") };
            assert_eq!(only.key, full);
            assert!(matches!(only.origin, Origin::Line(..)), "{only}");
            assert!(only.text.contains(reason) && only.text.contains(", the daemon runs with "), "{only}");
        }
        (change, found) => panic!("{full} is {change:?}, and the answer is {found:?}"),
    }
    // Back to the default: no line says it any more.
    let back = diff(&wanted, &running);
    assert_eq!(back.is_ok(), change == Change::Reload, "{back:?}");
}

#[test]
fn each_setting_is_taken_at_a_reload_or_refused_with_its_reason() {
    for setting in DAEMON {
        check_row(setting.section, setting.key, setting.change);
    }
    for setting in SOURCE {
        check_row(setting.section, setting.key, setting.change);
    }
    assert_eq!(OTHERS.len(), DAEMON.len() + SOURCE.len());
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let check = |section, key, show: &dyn Fn(&Settings) -> String| {
        let settings_of = |value: &str| {
            let (file, _) = file_with(section, key, value);
            // A source in an entry has a name there.
            settings(&file)
        };
        for before in [settings(""), settings_of(other(section, key))] {
            let shown = show(&before);
            assert_eq!(show(&settings_of(&shown)), shown, "{key}");
        }
    };
    for setting in DAEMON {
        check(setting.section, setting.key, &|settings| (setting.show)(settings));
    }
    for setting in SOURCE {
        check(setting.section, setting.key, &|settings| (setting.show)(&settings.sources[0]));
    }
}

#[test]
fn every_refusal_is_told_and_sources_may_only_follow() {
    let source = |name: &str, worker: usize| format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n");
    let (a, b, c) = (source("a", 1), source("b", 2), source("c", 3));
    let running = settings(&format!("{a}{b}"));
    let refusals = |wanted: &str| match diff(&running, &settings(wanted)) {
        Ok(_) => Vec::new(),
        Err(refused) => refused.iter().map(|mistake| mistake.key.clone()).collect(),
    };
    assert_eq!(diff(&running, &settings(&format!("{a}{b}{c}"))), Ok(Vec::new()), "added ones are no change");
    assert_eq!(
        refusals(&format!("shards = 9\norder = \"strict\"\n{a}{c}{b}")),
        ["shards", "order", "sources[1].name"]
    );
    assert_eq!(refusals(&a), ["sources[1]"]);
    assert_eq!(refusals("shards = 9"), ["shards", "sources[0].name", "sources[1]"]);
    // Nothing that could change does beside one that cannot.
    assert_eq!(refusals(&format!("shards = 9\n{a}{b}[limits]\nmax_count = 1")), ["shards"]);
}

#[test]
fn the_same_in_other_words_is_no_change() {
    let running = settings("shards = \"auto\"\nworker_ids = \"\"\n[limits]\nmax_wait = \"10s\"");
    let same = "shards = 4\nlayout = \"twitter\"\nworker_ids = [0]\n[limits]\nmax_wait = \"10000ms\"\n";
    assert_eq!(diff(&running, &settings(same)), Ok(Vec::new()));
}
