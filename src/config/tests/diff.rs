//! The changes that a reload may make, for every row of the tables.

use toml::de::DeValue;

use super::*;
use crate::config::daemon::rows;
use crate::config::setting::{Change, Row};
use crate::config::value::Value;
use snowbank_id::layout::WorkerSet;

/// The key of each setting, with its section, and a value other than the default.
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
    ("reserve", "7"),
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

/// Returns these settings, with one of them changed to this value.
fn changed(settings: &Settings, row: &Row, text: &str) -> Settings {
    let mut settings = settings.clone();
    let value = DeValue::parse(text).unwrap();
    (row.read)(&mut settings, 0, Value::without_directory(&value)).unwrap();
    settings
}

#[test]
fn each_setting_is_taken_at_a_reload_or_refused_with_its_reason() {
    let running = settings("");
    for row in rows() {
        let key = row.full_key(None);
        let other = OTHERS.iter().find(|(of, _)| *of == key);
        let (_, other) = other.unwrap_or_else(|| panic!("{key} is new: add a value of it to OTHERS"));
        // A value that is shown reads back as the same value.
        let default = (row.show)(&running, 0);
        assert_eq!((row.show)(&changed(&running, row, &default), 0), default, "{key}");
        let wanted = changed(&running, row, other);
        assert_eq!((row.show)(&wanted, 0), *other, "{key}");
        let full = row.full_key(row.is_of_source().then_some(0));
        match (row.change, diff(&running, &mut wanted.clone())) {
            (Change::Reload, Ok(difference)) => {
                assert_eq!(
                    difference.changed,
                    [Changed::Setting { key: full, from: default, to: (*other).to_owned() }]
                );
            }
            (Change::Restart(reason), Err(refused)) => {
                let [only] = &refused.0[..] else { panic!("{refused:?}") };
                assert_eq!(only.key, full);
                assert!(only.text.contains(reason), "{only}");
            }
            (change, found) => panic!("{full} is {change:?}, and the answer is {found:?}"),
        }
    }
    assert_eq!(OTHERS.len(), rows().count(), "OTHERS has a value of a setting that is gone");
}

fn source(name: &str, worker: usize) -> String {
    format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n")
}

#[test]
fn a_reload_names_every_refusal() {
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, worker)| source(name, worker));
    let running = settings(&format!("{a}{b}"));
    let refusals = |wanted: &str| match diff(&running, &mut settings(wanted)) {
        Ok(_) => Vec::new(),
        Err(refused) => refused.0.iter().map(|mistake| mistake.key.clone()).collect(),
    };
    assert_eq!(refusals(&format!("shards = 9\norder = \"strict\"\n{a}{c}{b}")), ["shards", "order"]);
    let refused = diff(&running, &mut settings(&format!("# one\nshards = 9\n{a}{b}"))).unwrap_err();
    let line = "/etc/snowbank.toml:2: shards: found 9, the daemon runs with 4: ";
    assert!(refused.to_string().starts_with(line), "{refused}");
    // If one setting cannot change, no setting changes.
    assert_eq!(refusals(&format!("shards = 9\n{a}{b}[limits]\nmax_count = 1")), ["shards"]);
    // Two sources that swap their names swap their worker IDs.
    let swapped = format!("{}{}", source("b", 1), source("a", 2));
    assert_eq!(refusals(&swapped), ["sources[0].worker_ids", "sources[1].worker_ids"]);
}

#[test]
fn sources_are_compared_by_name_and_not_by_place() {
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, worker)| source(name, worker));
    let ticket = |name: &str| format!("[[sources]]\nname = {name:?}\nkind = \"ticket\"\n");
    let found = |from: &str, to: &str| {
        let Difference { changed, continues } = diff(&settings(from), &mut settings(to)).unwrap();
        (changed.iter().map(Changed::to_string).collect::<Vec<_>>(), continues)
    };
    assert_eq!(
        found(&format!("{a}{b}"), &format!("{b}{a}")),
        (vec![String::from("the first source: a -> b")], vec![Some(1), Some(0)])
    );
    assert_eq!(
        found(&format!("{a}{b}"), &format!("{c}{b}")),
        (
            ["the first source: a -> c", "source \"a\": removed", "source \"c\": added"]
                .map(String::from)
                .to_vec(),
            vec![None, Some(1)]
        )
    );
    let renamed = source("other", 1);
    assert_eq!(
        found(&format!("{a}{b}"), &format!("{b}{renamed}")),
        (
            vec![
                String::from("sources[1].name: \"a\" -> \"other\""),
                String::from("the first source: a -> b"),
            ],
            vec![Some(1), Some(0)]
        )
    );
    // The name of a ticket source is its counter's.
    let (from, to) = (format!("{a}{}", ticket("t")), format!("{a}{}", ticket("u")));
    assert_eq!(found(&from, &to).1, [Some(0), None]);
    // A machine's worker IDs stay those of the start.
    let named = |name: &str| {
        format!("[[sources]]\nname = {name:?}\nlayout = \"twitter\"\nworker_id_from = \"hostname\"\n")
    };
    let mut running = settings(&named("a"));
    running.sources[0].worker_ids.set = WorkerSet::single(5);
    running.sources[0].worker_ids.are_picked = true;
    let mut wanted = settings(&named("b"));
    assert_eq!(diff(&running, &mut wanted).unwrap().continues, [Some(0)]);
    assert_eq!(wanted.sources[0].worker_ids, running.sources[0].worker_ids);
}

#[test]
fn a_daemon_keeps_the_max_ahead_of_its_fleet() {
    let fleet = "fleet.coordinator = \"etcd\"\nfleet.endpoints = \"http://127.0.0.1:2379\"\n";
    let diff_of = |before: &str, after: &str| {
        let refused = diff(&settings(&format!("{fleet}{before}")), &mut settings(&format!("{fleet}{after}")));
        refused.map(drop).map_err(|mistakes| mistakes.to_string())
    };
    let short = source("short", 1);
    let ticket = "[[sources]]\nname = \"t\"\nkind = \"fleet-ticket\"\n";
    let long = format!("{}max_ahead = \"50s\"\n", source("long", 2));
    let both = format!("{short}{long}");
    assert_eq!(diff_of(&short, &format!("{short}{}", source("more", 3))), Ok(()));
    assert_eq!(diff_of(&format!("{ticket}{short}"), ticket), Ok(()), "shared counters have no max_ahead");
    let refused = diff_of(&short, &both).unwrap_err();
    assert!(
        refused.contains("sources[1].max_ahead: found \"50s\", the daemon runs with \"10s\""),
        "{refused}"
    );
    assert!(diff_of(&both, &short).is_err());
    let refused = diff_of(ticket, &format!("{ticket}{short}")).unwrap_err();
    assert!(refused.contains("the daemon runs with none"), "{refused}");
}

#[test]
fn identities_are_compared_by_name_and_not_by_place() {
    let billing = "[[identities]]\nname = \"billing\"\n";
    let orders = "[[identities]]\nname = \"orders\"\n";
    let changes = |from: &str, to: &str| -> Vec<String> {
        let changed = diff(&settings(from), &mut settings(to)).unwrap().changed;
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
    assert_eq!(changes("", orders), ["identity \"orders\": added"]);
    assert_eq!(changes(orders, ""), ["identity \"orders\": removed"]);
}

#[test]
fn a_value_written_differently_is_no_change() {
    let running = settings(
        "shards = \"auto\"\nworker_ids = \"\"\n[limits]\nmax_wait = \"10s\"\nmax_count = 0xffff_ffff\ndrain_timeout = 0",
    );
    let same = "shards = 4\nlayout = \"twitter\"\nworker_ids = [0]\n[limits]\nmax_wait = \"10000ms\"\n\
                max_count = 4294967295\ndrain_timeout = \"0s\"";
    assert_eq!(diff(&running, &mut settings(same)).unwrap().changed, []);
}
