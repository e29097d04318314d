//! Reading settings, their defaults, and the reference that lists them.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::*;
use crate::fleet::CoordinatorKind;
use crate::frontends::{FrontEndSettings, HttpSettings, MemcachedSettings, NoeqdSettings, RespSettings};
use crate::numbering::LAST_ID;
use crate::shard::Order;
use crate::source::{OnStepBack, SequenceStart};
use snowbank_client::layout::{Layout, WorkerSet};

#[test]
fn nothing_given_is_a_daemon_for_this_machine() {
    let seconds = Duration::from_secs;
    let settings = load(None, &Overrides::default(), CORES, NOW).unwrap();
    let expected = Settings {
        listen: vec!["127.0.0.1:7660".parse().unwrap()],
        shards: Shards::of(Some(CORES)),
        order: Order::Relaxed,
        limits: Limits {
            max_connections: 10_000,
            max_queued_bytes: 134_217_728,
            max_count: 1_000_000.try_into().unwrap(),
            max_wait: seconds(10),
            idle_timeout: None,
            stall_timeout: seconds(10),
            drain_delay: seconds(3),
            drain_timeout: seconds(5),
        },
        clock: ClockSettings { step_hold: seconds(60) },
        sources: vec![SourceSettings {
            kind: SourceKind::Snowflake,
            increment: 1,
            offset: 1,
            maximum: LAST_ID,
            name: "default".into(),
            layout: Layout::resolve("twitter").unwrap(),
            worker_ids: WorkerIds {
                set: WorkerSet::single(0),
                are_given: false,
                by_field: None,
                are_picked: false,
                are_awaited: false,
            },
            worker_id_from: WorkerIdFrom::Given,
            burst_window: Duration::from_millis(10),
            max_ahead: seconds(10),
            on_step_back: OnStepBack::Ride,
            sequence_start: SequenceStart::Spread,
        }],
        state_dir: StateDirChoice::Default,
        lock_dir: "/run/lock/snowbank".into(),
        auth: AuthSettings { token_file: None },
        tls: TlsSettings::default(),
        any_key: None,
        front_ends: FrontEndSettings {
            resp: RespSettings { listen: Vec::new(), replies: Replies::Auto },
            memcached: MemcachedSettings { listen: Vec::new(), tokens: true },
            noeqd: NoeqdSettings { listen: Vec::new() },
            http: HttpSettings { listen: Vec::new() },
        },
        admin: AdminSettings { listen: Vec::new() },
        fleet: FleetSettings {
            coordinator: None,
            endpoints: vec![],
            name: "default".into(),
            horizon: seconds(300),
            user: String::new(),
            password_file: None,
            ca: None,
            certificate: None,
            key: None,
            peers: Vec::new(),
        },
        log: LogSettings { format: LogFormat::Auto, level: LevelFilter::INFO },
        identities: Vec::new(),
        origins: Origins::default(),
    };
    assert_eq!(settings, expected);
}

#[test]
fn every_setting_has_a_variable_and_every_option_a_setting() {
    let variables: Vec<_> = daemon::rows().map(|row| row.variable()).collect();
    for expected in
        ["SNOWBANK_LISTEN", "SNOWBANK_WORKER_IDS", "SNOWBANK_LIMITS_MAX_CONNECTIONS", "SNOWBANK_ADMIN_LISTEN"]
    {
        assert!(variables.iter().any(|variable| variable == expected), "{expected}: {variables:?}");
    }
    let distinct: std::collections::BTreeSet<_> = variables.iter().collect();
    assert_eq!(distinct.len(), variables.len());
    assert_eq!(unknown_variables(variables), [] as [&str; 0]);
}

#[test]
fn every_setting_reaches_its_field() {
    let settings = settings(
        r#"
        listen = ["127.0.0.1:1", "tls:[::1]:2", "unix:run/snowbank.sock", "[::1]:0", "[::1]:0"]
        shards = 7
        order = "strict"
        state_dir = "state"
        lock_dir = "/locks"
        any_key = "default"
        layout = "clearing"
        worker_ids = [0, "7-8"]
        burst_window = "20ms"
        max_ahead = "1m"
        on_step_back = "wait"
        sequence_start = "zero"
        limits.max_connections = 20
        limits.max_count = 0xffff_ffff
        limits.max_wait = "2s"
        limits.idle_timeout = "4s"
        limits.stall_timeout = "5s"
        limits.drain_delay = "6s"
        limits.drain_timeout = 0
        clock.step_hold = "7s"
        auth.token_file = "/run/tokens"
        tls.certificate = "tls/daemon.crt"
        tls.key = "credential:daemon.key"
        tls.client_ca = "/run/clients.crt"
        resp.listen = ["127.0.0.1:6379", "unix:resp.sock"]
        resp.replies = "string"
        memcached.listen = "127.0.0.1:11212"
        memcached.tokens = false
        noeqd.listen = "127.0.0.1:4444"
        http.listen = "127.0.0.1:8080"
        admin.listen = ["[::1]:9660", "unix:admin.sock"]
        log.format = "json"
        log.level = "debug"
        worker_id_from = "coordinator:2"
        [fleet]
        coordinator = "etcd"
        endpoints = ["https://a:1", "http://[::1]:2"]
        name = "payments"
        horizon = "1h"
        user = "snowbank"
        password_file = "/run/password"
        ca = "fleet/ca.crt"
        certificate = "fleet/daemon.crt"
        key = "credential:fleet.key"
        peers = ["a:7660", "tls:[::1]:7661", "unix:other.sock"]
        "#,
    );
    let seconds = Duration::from_secs;
    let path = |text: &str| FileRef::Path(text.into());
    let expected = Settings {
        listen: ["127.0.0.1:1", "tls:[::1]:2", "unix:/etc/run/snowbank.sock", "[::1]:0", "[::1]:0"]
            .map(|text| text.parse().unwrap())
            .into(),
        shards: Shards::of(7.try_into().ok()),
        order: Order::Strict,
        limits: Limits {
            max_connections: 20,
            max_queued_bytes: 134_217_728,
            max_count: u32::MAX.try_into().unwrap(),
            max_wait: seconds(2),
            idle_timeout: Some(seconds(4)),
            stall_timeout: seconds(5),
            drain_delay: seconds(6),
            drain_timeout: Duration::ZERO,
        },
        clock: ClockSettings { step_hold: seconds(7) },
        sources: vec![SourceSettings {
            kind: SourceKind::Snowflake,
            increment: 1,
            offset: 1,
            maximum: LAST_ID,
            name: "default".into(),
            layout: Layout::resolve("clearing").unwrap(),
            worker_ids: WorkerIds {
                set: "0,7-8".parse().unwrap(),
                are_given: true,
                by_field: None,
                are_picked: false,
                are_awaited: false,
            },
            worker_id_from: WorkerIdFrom::Coordinator(2),
            burst_window: Duration::from_millis(20),
            max_ahead: seconds(60),
            on_step_back: OnStepBack::Wait,
            sequence_start: SequenceStart::Zero,
        }],
        state_dir: StateDirChoice::At("/etc/state".into()),
        lock_dir: "/locks".into(),
        auth: AuthSettings { token_file: Some(path("/run/tokens")) },
        tls: TlsSettings {
            certificate: Some(path("/etc/tls/daemon.crt")),
            key: Some(FileRef::Credential("daemon.key".into())),
            client_ca: Some(path("/run/clients.crt")),
        },
        any_key: Some("default".into()),
        front_ends: FrontEndSettings {
            resp: RespSettings {
                listen: ["127.0.0.1:6379", "unix:/etc/resp.sock"].map(|text| text.parse().unwrap()).into(),
                replies: Replies::String,
            },
            memcached: MemcachedSettings { listen: vec!["127.0.0.1:11212".parse().unwrap()], tokens: false },
            noeqd: NoeqdSettings { listen: vec!["127.0.0.1:4444".parse().unwrap()] },
            http: HttpSettings { listen: vec!["127.0.0.1:8080".parse().unwrap()] },
        },
        admin: AdminSettings {
            listen: ["[::1]:9660", "unix:/etc/admin.sock"].map(|text| text.parse().unwrap()).into(),
        },
        fleet: FleetSettings {
            coordinator: CoordinatorKind::all().find(|kind| kind.name == "etcd"),
            endpoints: vec!["https://a:1".parse().unwrap(), "http://[::1]:2".parse().unwrap()],
            name: "payments".into(),
            horizon: seconds(3_600),
            user: "snowbank".into(),
            password_file: Some(path("/run/password")),
            ca: Some(path("/etc/fleet/ca.crt")),
            certificate: Some(path("/etc/fleet/daemon.crt")),
            key: Some(FileRef::Credential("fleet.key".into())),
            peers: ["a:7660", "tls:[::1]:7661", "unix:/etc/other.sock"]
                .map(|text| text.parse().unwrap())
                .into(),
        },
        log: LogSettings { format: LogFormat::Json, level: LevelFilter::DEBUG },
        identities: Vec::new(),
        origins: Origins::default(),
    };
    assert_eq!(settings.origins.of("limits.max_wait").unwrap().to_string(), "/etc/snowbank.toml:16");
    assert_eq!(without_origins(settings), expected);
}

#[test]
fn a_port_alone_is_an_admin_listener_for_this_machine() {
    let here: Address = "127.0.0.1:9660".parse().unwrap();
    for text in ["9660", "\"9660\"", "\"127.0.0.1:9660\"", "[\"127.0.0.1:9660\"]"] {
        assert_eq!(
            settings(&format!("[admin]\nlisten = {text}")).admin.listen,
            std::slice::from_ref(&here),
            "{text}"
        );
    }
    assert_eq!(settings("[admin]\nlisten = \"\"").admin.listen, []);
}

#[test]
fn identities_have_names_sources_and_a_rate() {
    let settings = settings(
        r#"
        tls.certificate = "daemon.crt"
        tls.key = "daemon.key"
        tls.client_ca = "clients.crt"

        [[sources]]
        name = "orders"

        [[identities]]
        name = "billing"
        certificate_names = ["Billing.internal", "spiffe://prod/billing"]
        sources = ["orders"]
        rate = 50_000

        [[identities]]
        name = "anonymous"
        sources = []
        "#,
    );
    let expected = [
        IdentitySettings {
            name: "billing".into(),
            certificate_names: ["billing.internal", "spiffe://prod/billing"]
                .map(|name| name.parse().unwrap())
                .into(),
            sources: Some(vec!["orders".into()]),
            rate: Some(50_000),
        },
        IdentitySettings {
            name: "anonymous".into(),
            certificate_names: Vec::new(),
            sources: Some(Vec::new()),
            rate: None,
        },
    ];
    assert_eq!(settings.identities, expected);
    let lines = settings.to_text();
    assert!(
        lines.contains(
            "identities[0].certificate_names = [\"billing.internal\", \"spiffe://prod/billing\"]\n"
        )
    );
    assert!(lines.contains("identities[1].rate = \"off\"\n"), "{lines}");
}

#[test]
fn the_default_wait_follows_the_tick() {
    let mut limits = Limits::default();
    let wait = |limits: &Limits, tick_ms| limits.default_wait_for(Duration::from_millis(tick_ms)).as_millis();
    assert_eq!([1, 500, 501, 60_000].map(|tick_ms| wait(&limits, tick_ms)), [1_000, 1_000, 1_002, 10_000]);
    limits.max_wait = Duration::ZERO;
    assert_eq!(wait(&limits, 1), 0);
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
        ]
    );
    assert_eq!(
        settings.warnings(NOW),
        [
            "the layout of source \"default\" ends 2027-09-07, in 235 days: plan for another (a later epoch, or more \
             time)",
            "10.0.0.1:7660 can be reached from other machines and asks for no token (auth.token_file): everyone \
             who reaches it can draw IDs",
        ]
    );
}

#[test]
fn misspelt_variables_are_noticed() {
    let names = ["SNOWBANK_LISTEN", "SNOWBANK_LISTN", "SNOWBANK_CONFIG", "PATH"].map(String::from);
    assert_eq!(
        unknown_variables(names),
        ["the environment variable SNOWBANK_LISTN is unknown; did you mean SNOWBANK_LISTEN?"]
    );
    assert_eq!(
        unknown_variables(["SNOWBANK_FROBNICATE_EVERY_MINUTE".into()]),
        [
            "the environment variable SNOWBANK_FROBNICATE_EVERY_MINUTE is unknown; a setting has SNOWBANK_, its section \
          and its key, in capitals"
        ]
    );
}
