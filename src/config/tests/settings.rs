//! Settings, the defaults that depend on other settings, and warnings.

use std::time::Duration;

use snowbank_fleet::FleetLimits;

use super::*;

#[test]
fn each_document_has_these_settings_and_warnings() {
    for (text, expected) in cases(include_str!("settings.txt")) {
        assert!(!expected.is_empty(), "{text}");
        let settings = settings(&text);
        let mut shown: Vec<String> = settings.to_text().lines().map(str::to_owned).collect();
        shown.extend(settings.summary());
        match settings.warnings(NOW) {
            none if none.is_empty() => shown.push(String::from("no warnings")),
            warnings => shown.extend(warnings.iter().map(|warning| format!("warning: {warning}"))),
        }
        for line in expected {
            assert!(shown.iter().any(|shown| shown == line), "{line}\n{shown:#?}");
        }
    }
}

#[test]
fn the_default_wait_grows_with_the_tick() {
    let mut limits = Limits::default();
    let wait = |limits: &Limits, tick_ms| limits.default_wait_for(Duration::from_millis(tick_ms)).as_millis();
    assert_eq!([1, 500, 501, 60_000].map(|tick_ms| wait(&limits, tick_ms)), [1_000, 1_000, 1_002, 10_000]);
    limits.max_wait = Duration::ZERO;
    assert_eq!(wait(&limits, 1), 0);
}

#[test]
fn misspelt_variables_are_noticed() {
    let names = ["SNOWBANK_LISTEN", "SNOWBANK_LISTN", "SNOWBANK_CONFIG", "PATH"].map(String::from);
    assert_eq!(
        unknown_variables(names),
        ["the environment variable SNOWBANK_LISTN is unknown; did you mean SNOWBANK_LISTEN?"]
    );
    for name in ["SNOWBANK_FROBNICATE_EVERY_MINUTE", "SNOWBANK_FOO", "SNOWBANK_IDENTITIES_NAME"] {
        let write = "write SNOWBANK_, the setting's section and its key, in capitals";
        let warning = format!("the environment variable {name} is unknown; {write}");
        assert_eq!(unknown_variables([name.into()]), [warning]);
    }
}

#[test]
fn a_fleet_has_the_longest_max_ahead_of_the_sources() {
    let source = |worker: u64, max_ahead: &str| {
        format!("[[sources]]\nname = \"s{worker}\"\nworker_ids = {worker}\nmax_ahead = {max_ahead:?}\n")
    };
    // A counter has no max_ahead: its default neither counts nor refuses the horizon.
    let counter = "[[sources]]\nname = \"counter\"\nkind = \"ticket\"\n";
    let sources = source(1, "4s") + &source(2, "7s") + &source(3, "5s") + counter;
    let fleet = "[fleet]\ncoordinator = \"etcd\"\nhorizon = \"42s\"\n";
    let found = settings(&format!("{fleet}{sources}")).fleet_limits();
    assert_eq!(found, FleetLimits::new(Duration::from_secs(42), Duration::from_secs(7)));
}

#[test]
fn the_horizon_follows_the_tick_and_max_ahead() {
    let source = &settings("layout = \"time:30,worker:10,sequence:12;tick=60s\"").sources[0];
    assert_eq!(source.max_ahead, Duration::from_secs(240));
    assert_eq!(source.horizon(), Duration::from_secs(120));
    // A low `max_ahead` lowers the horizon.
    let source = &settings("max_ahead = \"5ms\"").sources[0];
    assert_eq!(source.horizon(), Duration::from_millis(3));
    assert_eq!(source.burst_window, Duration::from_millis(5));
    assert_eq!(settings("max_ahead = \"1h\"").sources[0].horizon(), Duration::from_secs(3));
}
