use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::layout::{Layout, WorkerSet};

const FILE: &str = "/etc/snowbank.toml";
const CORES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);
/// 2027-01-15T08:00:00Z
const NOW: UnixMicros = UnixMicros::from_unix_ms(1_800_000_000_000);

fn load_text(text: &str, overrides: &Overrides) -> Result<Settings, Mistakes> {
    load(Some((Path::new(FILE), text)), overrides, CORES, NOW)
}

fn settings(text: &str) -> Settings {
    load_text(text, &Overrides::default()).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes}"))
}

/// The mistakes as they print, without the file's name.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = load_text(text, &Overrides::default()).expect_err(text);
    assert_eq!(mistakes.len(), mistakes.to_string().lines().count());
    mistakes.to_string().lines().map(|line| line.strip_prefix(FILE).expect(line)[1..].to_owned()).collect()
}

/// The only mistake of a text.
fn mistake(text: &str) -> String {
    let mut mistakes = mistakes(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    mistakes.remove(0)
}

fn given(text: &str, origin: &'static str) -> Option<Override> {
    Some(Override { texts: vec![text.to_owned()], origin })
}

fn without_origins(settings: Settings) -> Settings {
    Settings { origins: Origins::default(), ..settings }
}

/// The reference with its settings, which are commented out, made to count.
fn uncommented_reference() -> String {
    reference().lines().fold(String::new(), |mut out, line| {
        let _ = match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => writeln!(out, "{setting}"),
            _ => writeln!(out, "{line}"),
        };
        out
    })
}

#[test]
fn nothing_given_is_a_daemon_for_this_machine() {
    let seconds = Duration::from_secs;
    let settings = load(None, &Overrides::default(), CORES, NOW).unwrap();
    let expected = Settings {
        listen: vec!["127.0.0.1:7660".parse().unwrap()],
        shards: CORES,
        order: Order::Relaxed,
        limits: Limits {
            max_connections: 10_000,
            max_count: 1_000_000.try_into().unwrap(),
            default_wait: None,
            max_wait: seconds(10),
            frame_timeout: seconds(10),
            idle_timeout: None,
            write_timeout: seconds(10),
            max_reply_queue_bytes: 262_144,
            drain_timeout: seconds(5),
        },
        clock: ClockSettings { max_step: seconds(60), step_hold: seconds(60) },
        sources: vec![SourceSettings {
            name: "default".into(),
            layout: Layout::resolve("twitter").unwrap(),
            worker_ids: WorkerSet::single(0),
            worker_ids_given: false,
            burst_window: Duration::from_millis(10),
            max_ahead: seconds(10),
            on_step_back: OnStepBack::Ride,
            sequence_start: SequenceStart::Spread,
            horizon: seconds(3),
            first_start_guard: None,
        }],
        state_dir: None,
        lock_dir: "/run/lock/snowbank".into(),
        token_file: None,
        unix_mode: 0o660,
        origins: Origins::default(),
    };
    assert_eq!(settings, expected);
}

#[test]
fn docs_snowbank_toml_is_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/snowbank.toml");
    if std::env::var_os("SNOWBANK_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        reference(),
        "write it anew: SNOWBANK_WRITE_REFERENCE=1 cargo test docs_snowbank_toml"
    );
}

#[test]
fn the_reference_says_the_defaults_as_it_stands_and_uncommented() {
    let defaults = load(None, &Overrides::default(), CORES, NOW).unwrap();
    assert_eq!(settings(&reference()), defaults);
    let uncommented = uncommented_reference();
    let stated = settings(&uncommented);
    // Every setting of the tables is given there, and the loader knows of no other.
    let keys = daemon::DAEMON.iter().map(|setting| setting.full_key(None)).chain(source::SOURCE.iter().map(
        |setting| match setting.section {
            setting::Section::SourceAlone => setting.full_key(Some(0)),
            _ => setting.full_key(None),
        },
    ));
    for key in keys {
        assert!(stated.origins.of(&key).is_some(), "{key}");
    }
    assert_eq!(without_origins(stated), defaults);
}

#[test]
fn every_line_of_the_reference_fits_a_screen() {
    let too_wide: Vec<_> = reference().lines().filter(|line| line.len() > 100).map(str::to_owned).collect();
    assert!(too_wide.is_empty(), "{too_wide:?}");
}

#[test]
fn every_setting_reaches_its_field() {
    let settings = settings(
        r#"
        listen = ["127.0.0.1:1", "unix:run/snowbank.sock", "[::1]:0", "[::1]:0"]
        shards = 7
        order = "strict"
        state_dir = "state"
        lock_dir = "/locks"
        unix_mode = 0o600
        layout = "clearing"
        worker_ids = [0, "7-8"]
        burst_window = "20ms"
        max_ahead = "1m"
        on_step_back = "wait"
        sequence_start = "zero"
        horizon = "30s"
        first_start_guard = "1s"
        limits.max_connections = 20
        limits.max_count = 0xffff_ffff
        limits.default_wait = "1s"
        limits.max_wait = "2s"
        limits.frame_timeout = "3s"
        limits.idle_timeout = "4s"
        limits.write_timeout = "5s"
        limits.max_reply_queue = 200000
        limits.drain_timeout = 0
        clock.max_step = "6s"
        clock.step_hold = "7s"
        auth.token_file = "/run/tokens"
        "#,
    );
    let seconds = Duration::from_secs;
    let expected = Settings {
        listen: ["127.0.0.1:1", "unix:/etc/run/snowbank.sock", "[::1]:0", "[::1]:0"]
            .map(|text| text.parse().unwrap())
            .into(),
        shards: 7.try_into().unwrap(),
        order: Order::Strict,
        limits: Limits {
            max_connections: 20,
            max_count: u32::MAX.try_into().unwrap(),
            default_wait: Some(seconds(1)),
            max_wait: seconds(2),
            frame_timeout: seconds(3),
            idle_timeout: Some(seconds(4)),
            write_timeout: seconds(5),
            max_reply_queue_bytes: 200_000,
            drain_timeout: Duration::ZERO,
        },
        clock: ClockSettings { max_step: seconds(6), step_hold: seconds(7) },
        sources: vec![SourceSettings {
            name: "default".into(),
            layout: Layout::resolve("clearing").unwrap(),
            worker_ids: "0,7-8".parse().unwrap(),
            worker_ids_given: true,
            burst_window: Duration::from_millis(20),
            max_ahead: seconds(60),
            on_step_back: OnStepBack::Wait,
            sequence_start: SequenceStart::Zero,
            horizon: seconds(30),
            first_start_guard: Some(seconds(1)),
        }],
        state_dir: Some("/etc/state".into()),
        lock_dir: "/locks".into(),
        token_file: Some("/run/tokens".into()),
        unix_mode: 0o600,
        origins: Origins::default(),
    };
    assert_eq!(settings.origins.of("limits.max_wait").unwrap().to_string(), "/etc/snowbank.toml:19");
    assert_eq!(without_origins(settings), expected);
}

#[test]
fn each_source_starts_from_the_top_of_the_file() {
    let settings = settings(
        r#"
        layout = "clearing"
        horizon = "4s"

        [[sources]]
        name = "trades"
        worker_ids = 81

        [[sources]]
        name = "batches"
        layout = "clearing-batch"
        worker_ids = "81"
        horizon = "5s"
        "#,
    );
    let [trades, batches] = &settings.sources[..] else { panic!("{settings:?}") };
    assert_eq!((&*trades.name, &*batches.name), ("trades", "batches"));
    assert_eq!(trades.layout, Layout::resolve("clearing").unwrap());
    assert_eq!(batches.layout, Layout::resolve("clearing-batch").unwrap());
    assert_eq!((trades.horizon, batches.horizon), (Duration::from_secs(4), Duration::from_secs(5)));
}

#[test]
fn a_layout_may_be_a_table() {
    let text = r#"
        [layout]
        tick = "10ms"
        epoch = "2026-01-01"
        fields = [
            { name = "time", bits = 41 },
            { name = "sequence", digits = 3 },
        ]
        "#;
    let layout = Layout::resolve("time:41,sequence:3d;tick=10ms;epoch=2026-01-01").unwrap();
    assert_eq!(settings(text).sources[0].layout, layout);
    let wrong = text.replace("digits = 3", "digits = 3, bitz = 1");
    assert!(mistake(&wrong).starts_with("7: layout: unknown field `bitz`"));
    let wrong = text.replace("bits = 41", "bits = 61");
    assert!(mistake(&wrong).starts_with("2: layout: "), "{}", mistake(&wrong));
}

#[test]
fn coarse_ticks_raise_the_defaults() {
    let source = &settings("layout = \"time:30,worker:10,sequence:12;tick=60s\"").sources[0];
    assert_eq!(source.max_ahead, Duration::from_secs(120));
    assert_eq!(source.horizon, Duration::from_secs(120));
    // And a low max_ahead lowers them.
    let source = &settings("max_ahead = \"5ms\"").sources[0];
    assert_eq!(source.horizon, Duration::from_millis(5));
    assert_eq!(source.burst_window, Duration::from_millis(5));
}

#[test]
fn default_wait_follows_the_tick() {
    let mut limits = Limits::default();
    let wait = |limits: &Limits, tick_ms| limits.default_wait_for(Duration::from_millis(tick_ms)).as_millis();
    assert_eq!([1, 500, 501, 60_000].map(|tick_ms| wait(&limits, tick_ms)), [1_000, 1_000, 1_002, 10_000]);
    limits.default_wait = Some(Duration::from_millis(7));
    assert_eq!(wait(&limits, 60_000), 7);
    limits.max_wait = Duration::ZERO;
    assert_eq!(wait(&limits, 1), 0);
}

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
        ("state_dir = true", "1: state_dir: found true, allowed: a path in quotes"),
        ("lock_dir = \"\"", "1: lock_dir: found \"\", allowed: a directory, for locks are never skipped"),
        (
            "unix_mode = 660",
            "1: unix_mode: found 660, allowed: octal permission bits in quotes, from \"0000\" to \"0777\"",
        ),
        (
            "unix_mode = \"1777\"",
            "1: unix_mode: found \"1777\", allowed: octal permission bits in quotes, from \"0000\" to \"0777\"",
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
            "[limits]\nmax_reply_queue = \"64KiB\"",
            "2: limits.max_reply_queue: found \"64KiB\", allowed: a size from \"128KiB\" to \"1GiB\" (B, KiB, MiB, \
             GiB), or bytes",
        ),
        (
            "[limits]\ndefault_wait = \"11s\"",
            "2: limits.default_wait: found \"11s\", allowed: at most max_wait, \"10s\"",
        ),
        (
            "worker_ids = 1024",
            "1: worker_ids: worker ID 1024 does not fit the layout: it has worker IDs 0 to 1023",
        ),
        (
            "worker_ids = {}",
            "1: worker_ids: found a table, allowed: a worker ID, a range or a list, as in 3, \"0-3\", \"0-3,8\" or \
             [0, 8]",
        ),
        (
            "horizon = \"1ms\"",
            "1: horizon: found \"1ms\", allowed: at least two ticks of the layout, \"2ms\"",
        ),
        ("horizon = \"11s\"", "1: horizon: found \"11s\", allowed: at most max_ahead, \"10s\""),
        ("burst_window = \"11s\"", "1: burst_window: found \"11s\", allowed: at most max_ahead, \"10s\""),
        (
            "first_start_guard = \"11s\"",
            "1: first_start_guard: found \"11s\", allowed: at most max_ahead, \"10s\"",
        ),
        (
            "max_ahead = \"1ms\"",
            "1: max_ahead: found \"1ms\", allowed: at least two ticks of the layout, \"2ms\"",
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
            "2: sources[0].name: found \"A\", allowed: 1 to 64 of the characters a-z 0-9 . _ -",
        ),
        (
            "\n[[sources]]\nhorizon = \"2s\"",
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
        ("name = \"a\"", "1: name: not known here; it belongs in [[sources]]"),
        (
            "[[sources]]\nname = \"a\"\norder = \"strict\"",
            "3: sources[0].order: not known here; it belongs at the top of the file, above the first [section]",
        ),
        (
            "[clock]\nhorizon = \"2s\"",
            "2: clock.horizon: not known here; it belongs at the top of the file, above the first [section], or in \
             [[sources]]",
        ),
        ("[auth]\n\"a\\nb\" = 1", "2: auth.\"a\\nb\": not known, allowed here: token_file"),
    ] {
        assert_eq!(mistake(text), expected);
    }
}

#[test]
fn a_line_that_is_not_toml_is_repeated_with_the_reason() {
    assert_eq!(
        mistakes("order = strict\n[limits]\nmax_wait = 10s\nmax_count = 0\nshards\n[[x"),
        [
            "1: found `order = strict`, which is not TOML: string values must be quoted, expected literal string",
            "3: found `max_wait = 10s`, which is not TOML: string values must be quoted, expected literal string",
            "4: limits.max_count: found 0, allowed: a number from 1 to 4,294,967,295",
            "5: found `shards`, which is not TOML: key with no value, expected `=`",
            "6: found `[[x`, which is not TOML: unclosed array table, expected `]]`",
        ]
    );
    assert_eq!(mistake("shards = 1\nshards = 2"), "2: found `shards = 2`, which is not TOML: duplicate key");
}

#[test]
fn every_mistake_is_found_at_once_in_the_order_of_the_file() {
    let lines = mistakes(
        r#"listen = ["0.0.0.0:7660", "nowhere", "elsewhere"]
        shards = "many"
        horizon = "11s"
        [limits]
        default_wait = "9s"
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
            "3 horizon",
            "5 limits.default_wait",
            "11 sources[1].name",
            "12 sources[1].worker_ids",
            "15 sources[2].layout"
        ]
    );
}

#[test]
fn a_setting_that_was_refused_is_not_compared_with_others() {
    assert_eq!(mistakes("[limits]\ndefault_wait = \"20s\"\nmax_wait = \"much\"").len(), 1);
    assert_eq!(mistakes("horizon = \"20s\"\nmax_ahead = \"much\"").len(), 1);
    assert_eq!(mistakes("worker_ids = 2000\nlayout = \"nothing\"").len(), 1);
    assert_eq!(mistakes("listen = \"0.0.0.0:1\"\nworker_ids = \"one\"").len(), 1);
    assert_eq!(mistakes("horizon = \"20s\"\nmax_ahead = 30s").len(), 1);
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
                 give it worker_ids (--worker-id) that no other machine uses, or listen on loopback addresses and \
                 Unix sockets alone"
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
fn overrides_take_the_place_of_the_file() {
    let text = "listen = [\"0.0.0.0:1\", \"0.0.0.0:2\"]\nlayout = \"js53\"\nworker_ids = 3\nshards = 2\n\
                order = \"strict\"\nstate_dir = \"a\"\nlock_dir = \"b\"\n";
    let overrides = Overrides {
        listen: Some(Override { texts: vec!["[::1]:9".into(), "unix:x".into()], origin: "--listen" }),
        layout: given("discord", "--layout"),
        worker_ids: given("1-2", "--worker-id"),
        shards: given("9", "SNOWBANK_SHARDS"),
        order: given("relaxed", "--order"),
        state_dir: given("c", "--state-dir"),
        lock_dir: given("d", "--lock-dir"),
    };
    let one_source = format!("{text}[[sources]]\nname = \"default\"\nlayout = \"game\"");
    for text in [text, &one_source] {
        let settings = load_text(text, &overrides).unwrap();
        // Relative paths of options are taken from the working directory.
        assert_eq!(settings.listen, ["[::1]:9", "unix:x"].map(|text| text.parse::<Address>().unwrap()));
        assert_eq!(settings.sources[0].layout, Layout::resolve("discord").unwrap());
        assert_eq!(settings.sources[0].worker_ids.to_string(), "1-2");
        assert_eq!((settings.shards.get(), settings.order), (9, Order::Relaxed));
        assert_eq!((settings.state_dir.unwrap(), settings.lock_dir), ("c".into(), "d".into()));
        assert_eq!(settings.origins.of("shards"), Some(&Origin::Override("SNOWBANK_SHARDS")));
    }
    assert!(load(None, &overrides, CORES, NOW).is_ok());
}

#[test]
fn mistakes_of_overrides_go_by_their_names_after_the_file() {
    let overrides = Overrides {
        worker_ids: given("1024", "--worker-id"),
        shards: given("0", "SNOWBANK_SHARDS"),
        listen: given("10.0.0.1", "--listen"),
        ..Overrides::default()
    };
    let mistakes = load_text("order = 1", &overrides).unwrap_err();
    assert_eq!(
        mistakes.to_string().lines().collect::<Vec<_>>(),
        [
            "/etc/snowbank.toml:1: order: found 1, allowed: \"relaxed\" or \"strict\"",
            "--listen: \"10.0.0.1\" is not an address: the port is missing; write 10.0.0.1:7660",
            "--worker-id: worker ID 1024 does not fit the layout: it has worker IDs 0 to 1023",
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
fn an_option_for_one_source_is_refused_where_there_are_several() {
    let overrides = Overrides { layout: given("twitter", "--layout"), ..Overrides::default() };
    let mistakes =
        load_text("[[sources]]\nname = \"a\"\n[[sources]]\nname = \"b\"\nworker_ids = 1", &overrides)
            .unwrap_err();
    assert_eq!(
        mistakes.to_string(),
        "--layout: found 2 [[sources]] in the file, allowed: one, for it would not be clear which is meant; set \
         layout in each of them instead"
    );
}

#[test]
fn relative_sockets_count_with_the_directory_of_the_file() {
    let text = format!("listen = \"unix:{}\"", "s".repeat(UNIX_PATH_BYTES_MAX));
    assert!(mistake(&text).ends_with("is a path of 112 bytes, allowed: at most 107"), "{}", mistake(&text));
}

#[test]
fn the_token_file_is_part_of_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("snowbank.toml");
    let load = |text: &str| load_with_tokens(Some((&file, text)), &Overrides::default(), CORES, NOW);
    let text = "[auth]\ntoken_file = \"tokens\"\n";
    let mistakes = load(&format!("{text}[limits]\nmax_wait = 1")).unwrap_err();
    assert_eq!(mistakes.len(), 2);
    let line = mistakes.first_line();
    assert!(line.starts_with(&format!("{}:2: auth.token_file: cannot read", file.display())), "{line}");
    std::fs::write(directory.path().join("tokens"), "let me in\n").unwrap();
    assert!(load(text).unwrap().1.unwrap().accepts(b"let me in"));
    assert!(load("").unwrap().1.is_none());
}

#[test]
fn the_summary_says_what_is_served_and_the_warnings_what_to_look_at() {
    let text =
        "listen = \"10.0.0.1:7660\"\nlayout = \"time:41,sequence:3d;epoch=1958-01-01\"\nworker_ids = 0";
    let settings = settings(text);
    assert_eq!(
        settings.summary(),
        [
            "listens on 10.0.0.1:7660; 4 shards, order relaxed, no token asked for",
            "source 0 \"default\": time:41,sequence:3d;tick=1ms;epoch=-378691200000; worker 0, 1,000,000 IDs/s until \
             2027-09-07",
            "no state_dir: nothing is kept over a restart",
        ]
    );
    assert_eq!(
        settings.warnings(NOW),
        [
            "the layout of source \"default\" ends 2027-09-07, in 235 days: plan for another (a later epoch, or more \
             time)",
            "10.0.0.1:7660 can be reached from other machines and asks for no token (auth.token_file): whoever \
             reaches it can draw IDs",
        ]
    );
}

#[test]
fn files_that_are_no_text_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snowbank.toml");
    assert!(matches!(read_file(&path), Err(FileError::Unreadable { .. })));
    assert!(matches!(read_file(directory.path()), Err(FileError::Unreadable { .. })));
    std::fs::write(&path, b"a\nb\n\xff").unwrap();
    assert!(matches!(read_file(&path), Err(FileError::NotText { line: 3, .. })));
    std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(matches!(read_file(&path), Err(FileError::TooLarge(_))));
    std::fs::write(&path, "shards = 1").unwrap();
    assert_eq!(read_file(&path).unwrap(), "shards = 1");
}

/// Pieces of configurations, put together in any order.
fn any_document() -> impl Strategy<Value = String> {
    let keys = daemon::DAEMON
        .iter()
        .map(|setting| setting.key)
        .chain(source::SOURCE.iter().map(|setting| setting.key));
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
        match load_text(&text, &Overrides::default()) {
            Ok(settings) => {
                prop_assert!(!settings.listen.is_empty() && !settings.sources.is_empty());
                prop_assert!(settings.sources.iter().all(|source| source.horizon <= source.max_ahead));
            }
            Err(mistakes) => {
                prop_assert!(mistakes.len() > 0);
                let lines = text.lines().count().max(1);
                for mistake in mistakes.iter() {
                    prop_assert!(!mistake.to_string().contains(char::is_control), "{mistake:?}");
                    let Origin::Line(_, line) = mistake.origin else { panic!("{mistake:?}") };
                    prop_assert!((1..=lines + 1).contains(&line), "{mistake:?}");
                }
            }
        }
    }
}
