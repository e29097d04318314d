//! The changes that a reload may make, for every row of the tables.

use super::*;
use crate::config::daemon::rows;
use crate::config::setting::{Change, Row, Section};

/// Another value than the default for each setting, by its key with its section, as it is shown.
const OTHERS: &[(&str, &str)] = &[
    ("listen", r#"["127.0.0.1:7661", "unix:/s"]"#),
    ("shards", "3"),
    ("order", r#""strict""#),
    ("state_dir", r#""/state""#),
    ("lock_dir", r#""/locks""#),
    ("any_key", r#""default""#),
    ("limits.max_connections", "7"),
    ("limits.max_count", "7"),
    ("limits.max_queued_bytes", "2000000"),
    ("limits.max_wait", r#""7s""#),
    ("limits.stall_timeout", r#""7s""#),
    ("limits.idle_timeout", r#""1h""#),
    ("limits.drain_delay", r#""7s""#),
    ("limits.drain_timeout", r#""7s""#),
    ("clock.step_hold", r#""7s""#),
    ("auth.token_file", r#""/tokens""#),
    ("resp.listen", r#"["[::1]:6379"]"#),
    ("resp.replies", r#""string""#),
    ("memcached.listen", r#"["[::1]:11212"]"#),
    ("memcached.tokens", "false"),
    ("noeqd.listen", r#"["[::1]:4444"]"#),
    ("http.listen", r#"["[::1]:8080"]"#),
    ("admin.listen", r#"["127.0.0.1:9660"]"#),
    ("log.format", r#""json""#),
    ("log.level", r#""warn""#),
    ("tls.certificate", r#""/daemon.crt""#),
    ("tls.key", r#""credential:daemon.key""#),
    ("tls.client_ca", r#""/clients.crt""#),
    ("name", r#""other""#),
    ("kind", r#""ticket""#),
    ("increment", "7"),
    ("offset", "7"),
    ("maximum", "700"),
    ("layout", r#""time:41,node:10,sequence:12;tick=1ms;epoch=1420070400000""#),
    ("worker_ids", r#""0,2-3""#),
    ("burst_window", r#""7ms""#),
    ("max_ahead", r#""1m 10s""#),
    ("on_step_back", r#""wait""#),
    ("sequence_start", r#""zero""#),
    ("worker_id_from", r#""coordinator""#),
    ("fleet.coordinator", r#""etcd""#),
    ("fleet.endpoints", r#"["http://a:1", "https://b:2"]"#),
    ("fleet.name", r#""other""#),
    ("fleet.horizon", r#""7m""#),
    ("fleet.user", r#""other""#),
    ("fleet.password_file", r#""/password""#),
    ("fleet.ca", r#""/ca.crt""#),
    ("fleet.certificate", r#""/daemon.crt""#),
    ("fleet.key", r#""credential:daemon.key""#),
    ("fleet.peers", r#"["a:1", "tls:b:2"]"#),
];

fn other(row: &Row) -> &'static str {
    let key = row.full_key(None);
    let other = OTHERS.iter().find(|(of, _)| *of == key);
    other.unwrap_or_else(|| panic!("{key} is new: add another value of it")).1
}

/// Further settings that one of this section needs: a certificate and its key, the kind of a ticket
/// source, a coordinator, or the choice of none.
fn beside(section: Section, key: &str) -> String {
    match (section, key) {
        (Section::SourceAlone, "kind") => return String::from("name = \"default\"\n"),
        (Section::SourceAlone, "increment" | "maximum") => {
            return String::from("name = \"default\"\nkind = \"ticket\"\n");
        }
        (Section::SourceAlone, "offset") => {
            return String::from("name = \"default\"\nkind = \"ticket\"\nincrement = 9\n");
        }
        (Section::Source, "worker_id_from") => return String::from("[fleet]\ncoordinator = \"etcd\"\n"),
        (Section::Table("fleet"), _) if key != "coordinator" => {
            return String::from("coordinator = \"none\"\n");
        }
        _ => {}
    }
    let pair = ["certificate", "key"].into_iter();
    let pair = pair.filter(|other| section == Section::Table("tls") && *other != key);
    pair.map(|other| format!("{other} = \"/old/{other}\"\n")).collect()
}

/// A file that sets one setting and those that it needs, and its full key in messages.
fn file_with(row: &Row, value: &str) -> (String, String) {
    let key = row.key;
    match row.section {
        Section::Table(table) => {
            let beside = if value == r#""""# { String::new() } else { beside(row.section, key) };
            (format!("[{table}]\n{key} = {value}\n{beside}"), format!("{table}.{key}"))
        }
        Section::SourceAlone => {
            let beside = beside(row.section, key);
            (format!("[[sources]]\n{key} = {value}\n{beside}"), format!("sources[0].{key}"))
        }
        Section::Identity => (format!("[[identities]]\n{key} = {value}\n"), format!("identities[0].{key}")),
        Section::Source => {
            (format!("{key} = {value}\n{}", beside(row.section, key)), format!("sources[0].{key}"))
        }
        Section::Top => (format!("{key} = {value}\n"), key.to_owned()),
    }
}

/// Compares one row with the result of `diff`, both ways.
fn check_row(row: &Row) {
    let running = match row.section {
        Section::Table("tls") => settings(&format!("[tls]\n{}", beside(row.section, ""))),
        Section::SourceAlone if row.key != "name" => {
            settings(&format!("[[sources]]\n{}", beside(row.section, row.key)))
        }
        Section::Source => settings(&beside(row.section, row.key)),
        _ => settings(""),
    };
    let (file, full) = file_with(row, other(row));
    let wanted = settings(&file);
    match (row.change, diff(&running, &wanted)) {
        (Change::Reload, Ok(changed)) => {
            assert_eq!(changed.len(), 1, "{changed:?}");
            assert_eq!(changed[0].key, full);
            assert_ne!(changed[0].from, changed[0].to);
        }
        (Change::Restart(reason), Err(refused)) => {
            let refused: Vec<&Mistake> = refused.0.iter().collect();
            let [only] = refused[..] else { panic!("{refused:?}") };
            assert_eq!(only.key, full);
            assert!(matches!(only.origin, Origin::Line(..)), "{only}");
            assert!(only.text.contains(reason) && only.text.contains(", the daemon runs with "), "{only}");
        }
        (change, found) => panic!("{full} is {change:?}, and the answer is {found:?}"),
    }
    // Back to the default: no line gives it any more.
    let back = diff(&wanted, &running);
    assert_eq!(back.is_ok(), row.change == Change::Reload, "{back:?}");
}

#[test]
fn each_setting_is_taken_at_a_reload_or_refused_with_its_reason() {
    rows().for_each(check_row);
    assert_eq!(OTHERS.len(), rows().count());
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    for row in rows() {
        let default = (row.show)(&settings(""), 0);
        for shown in [&*default, other(row)] {
            let again = settings(&file_with(row, shown).0);
            assert_eq!((row.show)(&again, 0), shown, "{}", row.key);
        }
    }
}

#[test]
fn every_refusal_is_told_and_sources_stay_the_same() {
    let source = |name: &str, worker: usize| format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n");
    let a = source("a", 1);
    let b = source("b", 2);
    let c = source("c", 3);
    let running = settings(&format!("{a}{b}"));
    let refusals = |wanted: &str| match diff(&running, &settings(wanted)) {
        Ok(_) => Vec::new(),
        Err(refused) => refused.0.iter().map(|mistake| mistake.key.clone()).collect(),
    };
    assert_eq!(refusals(&format!("{a}{b}{c}")), ["sources[2]"]);
    assert_eq!(
        refusals(&format!("shards = 9\norder = \"strict\"\n{a}{c}{b}")),
        ["shards", "order", "sources[1].name", "sources[2]"]
    );
    assert_eq!(refusals(&a), ["sources[1]"]);
    assert_eq!(refusals("shards = 9"), ["shards", "sources[0].name", "sources[1]"]);
    // If one setting cannot change, none does.
    assert_eq!(refusals(&format!("shards = 9\n{a}{b}[limits]\nmax_count = 1")), ["shards"]);
}

#[test]
fn identities_change_by_their_names_wherever_they_stand() {
    let billing = "[[identities]]\nname = \"billing\"\n";
    let orders = "[[identities]]\nname = \"orders\"\n";
    let changes = |from: &str, to: &str| -> Vec<String> {
        let changed = diff(&settings(from), &settings(to)).unwrap();
        changed.iter().map(Changed::to_string).collect()
    };
    assert_eq!(
        changes(&format!("{billing}rate = 5\n{orders}"), &format!("{orders}{billing}rate = 5")),
        [""; 0]
    );
    assert_eq!(
        changes(&format!("{billing}rate = 5\n{orders}"), &format!("{orders}{billing}sources = []")),
        ["identity \"billing\": sources: \"all\" -> []", "identity \"billing\": rate: 5 -> \"off\""]
    );
    assert_eq!(changes("", orders).first().unwrap(), "identity \"orders\": name: none -> \"orders\"");
    assert_eq!(changes(orders, "").first().unwrap(), "identity \"orders\": name: \"orders\" -> none");
}

#[test]
fn the_same_in_other_words_is_no_change() {
    let running = settings(
        "shards = \"auto\"\nworker_ids = \"\"\n[limits]\nmax_wait = \"10s\"\nmax_count = 0xffff_ffff\ndrain_timeout = 0",
    );
    let same = "shards = 4\nlayout = \"twitter\"\nworker_ids = [0]\n[limits]\nmax_wait = \"10000ms\"\n\
                max_count = 4294967295\ndrain_timeout = \"0s\"";
    assert_eq!(diff(&running, &settings(same)), Ok(Vec::new()));
}
