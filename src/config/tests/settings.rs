//! Reading settings, their defaults, and the reference that lists them.

use std::time::Duration;

use super::*;

#[test]
fn relative_paths_start_at_the_directory_of_the_file() {
    let text = settings(
        r#"
        listen = ["unix:run/snowbank.sock", "[::1]:0", "[::1]:0"]
        state_dir = "state"
        lock_dir = "/locks"
        worker_id_from = "file:number"
        auth.token_file = "tokens"
        tls.certificate = "tls/daemon.crt"
        tls.key = "credential:daemon.key"
        tls.client_ca = "/run/clients.crt"
        resp.listen = ["127.0.0.1:6379", "unix:resp.sock"]
        admin.listen = "unix:admin.sock"
        fleet.peers = ["a:7660", "unix:other.sock"]
        fleet.ca = "fleet/ca.crt"
        "#,
    )
    .to_text();
    for line in [
        r#"listen = ["unix:/etc/run/snowbank.sock", "[::1]:0", "[::1]:0"]"#,
        r#"state_dir = "/etc/state""#,
        r#"lock_dir = "/locks""#,
        r#"sources[0].worker_id_from = "file:/etc/number""#,
        r#"auth.token_file = "/etc/tokens""#,
        r#"tls.certificate = "/etc/tls/daemon.crt""#,
        r#"tls.key = "credential:daemon.key""#,
        r#"tls.client_ca = "/run/clients.crt""#,
        r#"resp.listen = ["127.0.0.1:6379", "unix:/etc/resp.sock"]"#,
        r#"admin.listen = ["unix:/etc/admin.sock"]"#,
        r#"fleet.peers = ["a:7660", "unix:/etc/other.sock"]"#,
        r#"fleet.ca = "/etc/fleet/ca.crt""#,
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
    for (word, choice) in [("none", StateDirChoice::None), ("", StateDirChoice::Default)] {
        assert_eq!(settings(&format!("state_dir = {word:?}")).state_dir, choice);
    }
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
        "#,
    );
    let text = settings.to_text();
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("identities")).collect();
    assert_eq!(
        shown[1..6],
        [
            r#"identities[0].certificate_names = ["billing.internal", "spiffe://prod/billing"]"#,
            r#"identities[0].sources = ["orders"]"#,
            r#"identities[0].rate = 50000"#,
            r#"identities[1].name = "anonymous""#,
            r#"identities[1].certificate_names = []"#,
        ]
    );
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
