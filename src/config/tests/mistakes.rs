//! Mistakes: their places and their texts.

use proptest::prelude::*;

use super::*;
use snowbank_client::layout::Layout;

#[test]
fn a_mistake_says_what_was_found_and_what_is_allowed() {
    for (text, expected) in [
        (
            "listen = []",
            "1: listen: found an array, allowed: at least one address, as in [\"127.0.0.1:7660\"]",
        ),
        ("listen = [7660]", "1: listen: found 7660, allowed: an address, as in \"127.0.0.1:7660\""),
        (
            "listen = \"7660\"",
            "1: listen: \"7660\" is not an address: the host is missing; write 127.0.0.1:7660",
        ),
        (
            "listen = [\"[::1]:1\",\n\"[::1]:1\"]",
            "2: listen: found [::1]:1 twice, allowed: each address once",
        ),
        ("\nshards = 257", "2: shards: found 257, allowed: a number from 1 to 256, or \"auto\""),
        ("shards = 1.5", "1: shards: found 1.5, allowed: a number from 1 to 256, or \"auto\""),
        ("order = \"loose\"", "1: order: found \"loose\", allowed: \"relaxed\" or \"strict\""),
        (
            "state_dir = true",
            "1: state_dir: found true, allowed: a path in quotes, without control characters",
        ),
        ("lock_dir = \"\"", "1: lock_dir: found \"\", allowed: a directory, because locks are never skipped"),
        (
            "[admin]\nlisten = 96600",
            "2: admin.listen: found 96600, allowed: a port from 0 to 65535, or an address, as in \"127.0.0.1:9660\"",
        ),
        (
            "[admin]\nlisten = \":9660\"",
            "2: admin.listen: \":9660\" is not an address: the host is missing; 127.0.0.1:9660 is this machine alone, \
             [::]:9660 every interface",
        ),
        (
            "[admin]\nlisten = 7660",
            "2: admin.listen: found 127.0.0.1:7660, an address of listen, allowed: one of its own",
        ),
        (
            "[resp]\nany_key = \"orders\"",
            "2: resp.any_key: not known here; it belongs at the top of the file, above the first [section]",
        ),
        (
            "[[identities]]\nname = \"anonymous\"\nsource = \"default\"",
            "3: identities[0].source: not known; did you mean `sources`?",
        ),
        (
            "[limits]\nmax_wait = \"2h\"",
            "2: limits.max_wait: found \"2h\", allowed: a duration from \"0\" to \"1h\", with its unit (ms, s, m or \
             h) and in quotes",
        ),
        (
            "[limits]\nidle_timeout = 5",
            "2: limits.idle_timeout: found 5, allowed: a duration from \"1s\" to \"720h\", with its unit (ms, s, m \
             or h) and in quotes, or \"off\"",
        ),
        (
            "[limits]\nmax_count = 0",
            "2: limits.max_count: found 0, allowed: a number from 1 to 4,294,967,295",
        ),
        (
            "[limits]\nmax_count = 4294967296",
            "2: limits.max_count: found 4294967296, allowed: a number from 1 to 4,294,967,295",
        ),
        (
            "worker_ids = 1024",
            "1: worker_ids: worker ID 1024 does not fit the layout: it has worker IDs 0 to 1023",
        ),
        (
            "worker_ids = {}",
            "1: worker_ids: found a table, allowed: a worker ID, a range or a list, as in 3, \"0-3\", \"0-3,8\" or \
             [0, 8], or fields, as in \"datacenter=1,worker=0-3\"",
        ),
        (
            "worker_ids = \"machine=1\"",
            "1: worker_ids: the layout has no node field \"machine\"; its node fields are datacenter (0 to 31) and \
             worker (0 to 31)",
        ),
        ("burst_window = \"11s\"", "1: burst_window: found \"11s\", allowed: at most max_ahead, \"10s\""),
        (
            "max_ahead = \"3ms\"",
            "1: max_ahead: found \"3ms\", allowed: at least four ticks of the layout, \"4ms\"",
        ),
        (
            "layout = \"time:41,sequence:12;epoch=2028-01-01\"",
            "1: layout: found an epoch of 2028-01-01T00:00:00.000Z, allowed: not after now, \
             2027-01-15T08:00:00.000Z (or the clock is wrong)",
        ),
        (
            "layout = \"time:20,sequence:12;tick=1s;epoch=2020-01-01\"",
            "1: layout: found a layout that ended 2020-01-13T03:16:16Z, allowed: one that has IDs left at \
             2027-01-15T08:00:00Z: a later epoch, or more time",
        ),
        ("sources = []", "1: sources: found 0 sources, allowed: 1 to 64"),
        (
            "[sources]\nname = \"a\"",
            "1: sources: found no list of sources, allowed: [[sources]], in two brackets, above each one's settings",
        ),
        (
            "[[sources]]\nname = \"A\"",
            "2: sources[0].name: found \"A\", allowed: 1 to 64 of the characters a-z 0-9 . _ -, not all digits",
        ),
        (
            "\n[[sources]]\nmax_ahead = \"2s\"",
            "2: sources[0].name: missing; each of [[sources]] has a name of its own, as in name = \"orders\"",
        ),
        ("limits = 3", "1: limits: found a value, allowed: a section, [limits] on a line of its own"),
    ] {
        assert_eq!(mistake(text), expected);
    }
}

#[test]
fn an_unknown_key_is_told_what_was_probably_meant() {
    for (text, expected) in [
        ("ordr = 1", "1: ordr: not known; did you mean `order`?"),
        ("worker_id = 1", "1: worker_id: not known; did you mean `worker_ids`?"),
        (
            "[limits]\nmax_conections = 1",
            "2: limits.max_conections: not known; did you mean `max_connections`?",
        ),
        ("[limit]\nmax_wait = 1", "1: limit: not known; did you mean [limits]?"),
        ("[[source]]\nname = 1", "1: source: not known; did you mean [[sources]]?"),
        ("max_wait = \"1s\"", "1: max_wait: not known here; it belongs in [limits]"),
        ("token_fil = \"1s\"", "1: token_fil: not known; did you mean `token_file`, in [auth]?"),
        (
            "name = \"a\"",
            "1: name: not known here; it belongs in [[sources]] or in [fleet] or in [[identities]]",
        ),
        (
            "[[sources]]\nname = \"a\"\norder = \"strict\"",
            "3: sources[0].order: not known here; it belongs at the top of the file, above the first [section]",
        ),
        (
            "[clock]\nmax_ahead = \"2s\"",
            "2: clock.max_ahead: not known here; it belongs at the top of the file, above the first [section], or in \
             [[sources]]",
        ),
        ("[auth]\n\"a\\nb\" = 1", "2: auth.\"a\\nb\": not known, allowed here: token_file"),
    ] {
        assert_eq!(mistake(text), expected);
    }
}

#[test]
fn a_line_that_is_not_toml_is_repeated_with_the_reason() {
    let found = mistakes("order = strict\n[limits]\nmax_wait = 10s\nmax_count = 0\nshards\n[[x").join("\n");
    let advice = "; write KEY = VALUE, and texts in quotes";
    assert_eq!(found.matches(advice).count(), 4);
    assert_eq!(
        found.replace(advice, "").lines().collect::<Vec<_>>(),
        [
            "1: found `order = strict`, which is not TOML: string values must be quoted, expected literal string",
            "3: found `max_wait = 10s`, which is not TOML: string values must be quoted, expected literal string",
            "4: limits.max_count: found 0, allowed: a number from 1 to 4,294,967,295",
            "5: found `shards`, which is not TOML: key with no value, expected `=`",
            "6: found `[[x`, which is not TOML: unclosed array table, expected `]]`",
        ]
    );
    let found = mistake("listen = 0.0.0.0:7660\n");
    assert!(found.starts_with("1: found `listen = 0.0.0.0:7660`, which is not TOML: "), "{found}");
    let found = mistake("shards = 1\nshards = 2");
    assert!(found.starts_with("2: found `shards = 2`, which is not TOML: duplicate key; "), "{found}");
}

#[test]
fn every_mistake_is_found_at_once_in_the_order_of_the_file() {
    let lines = mistakes(
        r#"listen = ["0.0.0.0:7660", "nowhere", "elsewhere"]
        shards = "many"
        burst_window = "11s"
        [limits]
        max_count = 0
        max_wait = "3s"
        [[sources]]
        name = "orders"
        worker_ids = "0-3"
        [[sources]]
        name = "orders"
        worker_ids = "3-5"
        [[sources]]
        name = "trades"
        layout = "twiter"
        [[sources]]
        name = "batches"
        layout = "clearing-batch"
        "#,
    );
    let places: Vec<String> =
        lines.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        places,
        [
            "1 listen",
            "1 listen",
            "1 listen",
            "2 shards",
            "3 burst_window",
            "5 limits.max_count",
            "11 sources[1].name",
            "12 sources[1].worker_ids",
            "15 sources[2].layout"
        ]
    );
}

#[test]
fn a_setting_that_was_refused_is_not_compared_with_others() {
    assert_eq!(mistakes("burst_window = \"20s\"\nmax_ahead = \"much\"").len(), 1);
    assert_eq!(mistakes("worker_ids = 2000\nlayout = \"nothing\"").len(), 1);
    assert_eq!(mistakes("listen = \"0.0.0.0:1\"\nworker_ids = \"one\"").len(), 1);
    assert_eq!(mistakes("burst_window = \"20s\"\nmax_ahead = 30s").len(), 1);
}

#[test]
fn two_sources_with_one_layout_share_no_worker_id() {
    let text = |second: &str| {
        format!(
            "layout = \"clearing\"\n[[sources]]\nname = \"a\"\nworker_ids = \"0-3\"\n[[sources]]\nname = \"b\"\n{second}"
        )
    };
    assert_eq!(
        mistake(&text("worker_ids = \"3-5\"")),
        "7: sources[1].worker_ids: sources[0] (\"a\") and sources[1] (\"b\") have the same layout and both use worker 3; \
         give each worker IDs of its own"
    );
    // Worker 0 by default, and the same layout under other names.
    assert!(mistake(&text("")).starts_with("5: sources[1].worker_ids: "));
    let renamed = Layout::resolve("clearing").unwrap().to_string().replace("machine", "node");
    assert!(mistake(&text(&format!("layout = \"{renamed}\""))).contains("both use worker 0"));
    settings(&text("worker_ids = \"4-5\""));
    settings(&text("layout = \"twitter\""));
}

#[test]
fn sources_without_a_right_name_are_not_called_alike() {
    let lines = mistakes("[[sources]]\n[[sources]]\n[[sources]]\nname = \"A B\"\nworker_ids = 1\n");
    let places: Vec<_> =
        lines.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        places,
        ["1 sources[0].name", "2 sources[1].name", "2 sources[1].worker_ids", "4 sources[2].name"]
    );
    assert!(lines[2].contains(": sources[0] and sources[1] have the same layout"), "{}", lines[2]);
    // "default" is a name like any other, not that of a source whose name was refused.
    assert!(
        mistake("[[sources]]\nname = 1\n[[sources]]\nname = \"default\"\nworker_ids = 1").starts_with("2: ")
    );
}

#[test]
fn worker_0_by_default_stays_on_this_machine() {
    for address in ["0.0.0.0:7660", "[::]:7660", "db.example.com:7660"] {
        let text = format!("listen = [\"127.0.0.1:1\", \"{address}\"]");
        assert_eq!(
            mistake(&text),
            format!(
                "1: listen: {address} can be reached from other machines, and sources[0] (\"default\") has no worker_ids; \
                 give it worker_ids (--worker-id) that no other machine uses, or listen only on loopback addresses \
                 and Unix sockets"
            )
        );
        settings(&format!("{text}\nworker_ids = 0"));
        // One source that has none is enough.
        let sources = "[[sources]]\nname = \"a\"\nworker_ids = 1\n[[sources]]\nname = \"b\"";
        assert!(mistake(&format!("{text}\n{sources}")).contains("sources[1] (\"b\") has no worker_ids"));
    }
    settings("listen = [\"localhost:1\", \"[::1]:1\", \"unix:/run/s.sock\"]");
}

#[test]
fn there_are_at_most_64_sources() {
    let text = |count| {
        (0..count).fold(String::new(), |text, n| {
            text + &format!("[[sources]]\nname = \"s{n}\"\nworker_ids = {n}\n")
        })
    };
    assert_eq!(settings(&text(64)).sources.len(), 64);
    assert_eq!(mistake(&text(65)), "1: sources: found 65 sources, allowed: 1 to 64");
}

#[test]
fn relative_sockets_count_with_the_directory_of_the_file() {
    let text = format!("listen = \"unix:{}\"", "s".repeat(UNIX_PATH_BYTES_MAX));
    assert!(mistake(&text).ends_with("is a path of 112 bytes, allowed: at most 107"), "{}", mistake(&text));
}

/// Pieces of configurations, put together in any order.
fn any_document() -> impl Strategy<Value = String> {
    let keys = daemon::rows().map(|row| row.key);
    let keys: Vec<&str> = keys.chain(["nmae", "\"\\n\"", "limits.max_wait", "sources", "limits"]).collect();
    let value = prop_oneof![
        Just("\"1s\"".to_owned()),
        Just("[1, \"0-3\"]".to_owned()),
        Just("{ fields = [] }".to_owned()),
        Just("\"\"".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| format!("\"{number}h\"")),
        "[\"a-z0-9:.,;=\\[\\]{}-]{0,20}",
        "\"(time|worker|sequence|:|=|,|;|[0-9]{1,3}){0,9}\"",
    ];
    let line = prop_oneof![
        6 => (prop::sample::select(keys), value).prop_map(|(key, value)| format!("{key} = {value}\n")),
        1 => prop::sample::select(vec!["[limits]\n", "[clock]\n", "[[sources]]\n", "[auth\n", "[layout]\n", "\n", "\"\"\"\n"])
            .prop_map(str::to_owned),
        1 => "(?s:.{0,20})\n",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn any_document_is_settings_or_mistakes_of_a_line_each(text in any_document()) {
        fuzzing::config(text.as_bytes());
    }
}

#[test]
fn every_mistake_of_identities_is_found_at_once() {
    let found = mistakes(
        "[[identities]]\nname = \"billing\"\nsources = [\"default\", \"orderz\"]\nrate = 0\n\
         [[identities]]\nname = \"billing\"\ncertificate_names = [\"*.internal\", \"a\", \"A\"]\n\
         [[identities]]\nsourcez = []\n",
    );
    let expected = [
        "3: identities[0].sources: found \"orderz\", which is no source, allowed: \"default\"",
        "4: identities[0].rate: found 0, allowed: a number from 1 to 4,294,967,295, or \"off\"",
        "6: identities[1].name: found \"billing\", the name of identities[0], allowed: a name of its own",
        "7: identities[1].certificate_names: found \"*.internal\", allowed: a DNS name without wildcards, a URI, an email address or an IP address",
        "7: identities[1].certificate_names: found \"a\", which identities[1] has, allowed: each name once",
        "7: identities[1].certificate_names: no client shows a certificate; name the authority of their certificates in tls.client_ca",
        "8: identities[2].name: missing; each of [[identities]] has a name of its own, as in name = \"orders\"",
        "9: identities[2].sourcez: not known; did you mean `sources`?",
    ];
    assert_eq!(found, expected);
    assert_eq!(
        mistake("identities = 3"),
        "1: identities: found no list of identities, allowed: [[identities]], in two brackets, above each one's settings"
    );
    let many = "[[identities]]\nname = \"anonymous\"\n".repeat(IDENTITIES_MAX + 1);
    assert!(mistakes(&many)[0].contains("identities: found 257 identities, allowed: 0 to 256"));
}

#[test]
fn all_mistakes_of_a_front_end_are_found_at_once() {
    let text =
        "any_key = \"Orders\"\n[resp]\nlisten = \"tls:127.0.0.1:7660\"\nsource = \"orders\"\nreplies = 1";
    assert_eq!(
        mistakes(text),
        [
            "1: any_key: found \"Orders\", allowed: 1 to 64 of the characters a-z 0-9 . _ -, not all digits",
            "3: resp.listen: found tls:127.0.0.1:7660, an address of listen, allowed: one of its own",
            "3: resp.listen: tls:127.0.0.1:7660 has no certificate to show; name one and its key in [tls] (certificate, \
             key), or leave out tls:",
            "4: resp.source: not known; did you mean `sources`, in [[identities]]?",
            "5: resp.replies: found 1, allowed: \"auto\" or \"integer\" or \"string\"",
        ]
    );
    assert_eq!(
        mistake("[resp]\nlisten = \"0.0.0.0:6379\""),
        "2: resp.listen: 0.0.0.0:6379 can be reached from other machines, and sources[0] (\"default\") has no worker_ids; \
         give it worker_ids (--worker-id) that no other machine uses, or listen only on loopback addresses and Unix sockets"
    );
}

#[test]
fn a_coordinators_endpoints_have_its_scheme() {
    let zookeeper = "[fleet]\ncoordinator = \"zookeeper\"\n";
    assert_eq!(
        mistake(&format!("{zookeeper}endpoints = [\"zookeepers://a\", \"http://b:1\"]")),
        "3: fleet.endpoints: found \"http://b:1\", allowed with this fleet.coordinator: \"zookeeper://HOST:PORT\" or \
         \"zookeepers://HOST:PORT\""
    );
    let path = mistake(&format!("{zookeeper}endpoints = \"zookeeper://a/0\""));
    assert!(path.contains("found \"zookeeper://a/0\", allowed: "));
    assert!(mistake("[fleet]\ncoordinator = \"consul\"").contains("\"etcd\""));
}
