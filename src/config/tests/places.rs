//! Mistakes between settings: they have the place of a setting that was given, and advice that can
//! be followed.

use super::*;

#[test]
fn a_mistake_between_two_settings_has_the_place_of_one_that_was_given() {
    for (text, expected) in [
        (
            "worker_id_from = \"coordinator\"",
            "1: worker_id_from: found \"coordinator\" and none in [fleet]; set fleet.coordinator",
        ),
        (
            "worker_id_from = \"coordinator\"\n[[sources]]\nname = \"a\"",
            "1: worker_id_from: found \"coordinator\" and none in [fleet]; set fleet.coordinator",
        ),
        (
            "[fleet]\ncoordinator = \"etcd\"\npassword_file = \"pw\"",
            "3: fleet.password_file: fleet.user and fleet.password_file belong together; set both or none",
        ),
        (
            "[fleet]\ncoordinator = \"etcd\"\nuser = \"a\"",
            "3: fleet.user: fleet.user and fleet.password_file belong together; set both or none",
        ),
        (
            "max_ahead = \"2m\"\n[fleet]\ncoordinator = \"etcd\"",
            "1: max_ahead: found a max_ahead of \"2m\", allowed with a fleet.horizon of \"5m\": at most 1/6 of it, \
             \"50s\"; or set fleet.horizon to at least \"12m\"",
        ),
        (
            "[fleet]\ncoordinator = \"etcd\"\n[[sources]]\nname = \"a\"\nlayout = \"time:20,worker:4,sequence:8;tick=60s;epoch=2026-06-01\"",
            "5: sources[0].layout: found a max_ahead of \"4m\", allowed with a fleet.horizon of \"5m\": at most \
             1/6 of it, \"50s\"; or set fleet.horizon to at least \"24m\"",
        ),
    ] {
        assert_eq!(mistake(text), expected);
    }
}

#[test]
fn a_max_ahead_that_no_horizon_outlasts_is_what_is_refused() {
    let fleet = "[fleet]\ncoordinator = \"etcd\"\nhorizon = \"24h\"";
    assert_eq!(
        mistake(&format!("max_ahead = \"96h\"\n{fleet}")),
        "1: max_ahead: found a max_ahead of \"96h\", allowed with a fleet.horizon of \"24h\": at most 1/6 of it, \
         \"4h\""
    );
    settings(&format!("max_ahead = \"4h\"\n{fleet}"));
    assert!(
        mistake(&format!("max_ahead = \"5m\"\n{}", fleet.replace("24h", "30h"))).contains("found \"30h\"")
    );
}

/// Another machine may get any of the worker IDs.
#[test]
fn two_spaces_that_run_beside_each_other_in_a_fleet_are_refused() {
    let two = |worker_ids: [&str; 2], layout: &str| {
        let [one, other] = worker_ids;
        format!(
            "[fleet]\ncoordinator = \"etcd\"\n[[sources]]\nname = \"a\"\nlayout = \"twitter\"\n{one}\n\
             [[sources]]\nname = \"b\"\nlayout = \"{layout}\"\n{other}"
        )
    };
    let epoch = "tick=1ms;epoch=1288834974657";
    let wide = format!("time:41,worker:9,sequence:13;{epoch}");
    let constant = format!("time:41,half:1:constant(1),worker:8,sequence:13;{epoch}");
    let picked = "worker_id_from = \"coordinator\"";
    // Other daemons may have any other worker IDs.
    let given = ["worker_ids = 3", "worker_ids = 200"];
    let restricted = ["0-255", "200-255"].map(|ids| format!("{picked}\nworker_ids = \"{ids}\""));
    for worker_ids in [[picked; 2], given, restricted.each_ref().map(String::as_str)] {
        for colliding in [&wide, &constant] {
            let text = mistake(&two(worker_ids, colliding));
            assert!(
                text.contains("layout: sources[0] (\"a\") and sources[1] (\"b\") can make the same IDs"),
                "{text}"
            );
        }
    }
    // No number of one makes an ID of the other, but the first one's space is that of a layout
    // without the constant.
    let halves = [
        "time:41,half:1:constant(0),worker:9,sequence:12",
        "time:41,half:1:constant(1),worker:8,sequence:13",
    ];
    let [low, high] = halves.map(|layout| format!("{layout};{epoch}"));
    let text = mistake(&two([picked; 2], &high).replace("\"twitter\"", &format!("{low:?}")));
    assert!(text.contains("can make the same IDs"), "{text}");
    // More worker IDs than any comparison of single ones would look at.
    let seconds =
        ["time:32,worker:18,sequence:13;tick=1s", "time:32,kind:2:constant(3),worker:15,sequence:14;tick=1s"];
    let origins = ["worker_id_from = \"ipv4\"", picked];
    let text = mistake(&two(origins, seconds[1]).replace("\"twitter\"", &format!("{:?}", seconds[0])));
    assert!(text.contains("can make the same IDs"), "{text}");
    settings(&two([picked; 2], "twitter"));
    settings(&two([picked; 2], "sonyflake"));
    settings(&two(given, "sonyflake"));
    // Without a coordinator the worker IDs are known.
    settings(&two(given, &wide).replace("etcd", "none"));
}

#[test]
fn settings_of_a_coordinator_need_one() {
    let expected = |key| {
        format!(
            "2: {key}: found {key} without fleet.coordinator, so that none keeps the worker IDs of machines apart; name \
             one (\"etcd\" or \"zookeeper\"), or remove {key}"
        )
    };
    for (key, value) in [
        ("endpoints", "\"http://a:1\""),
        ("name", "\"payments\""),
        ("horizon", "\"1h\""),
        ("user", "\"a\""),
        ("password_file", "\"a\""),
    ] {
        let text = format!("[fleet]\n{key} = {value}");
        assert_eq!(mistake(&text), expected(format!("fleet.{key}")));
        assert!(mistakes(&format!("{text}\npeers = \"a:1\"")).contains(&expected(format!("fleet.{key}"))));
        settings(&format!("{text}\ncoordinator = \"none\""));
    }
    // Peers use these too.
    for key in ["ca", "certificate", "key"] {
        let text = format!("[fleet]\n{key} = \"a\"");
        assert_eq!(mistake(&text), expected(format!("fleet.{key}")));
    }
    settings("[fleet]\nca = \"a\"\ncertificate = \"a\"\nkey = \"a\"\npeers = \"tls:a:1\"");
    // A default says nothing.
    settings("[fleet]\nname = \"default\"\nhorizon = \"5m\"");
}

#[test]
fn a_table_that_is_not_known_is_told_the_sections() {
    let sections = "not known, allowed here: [limits], [clock], [auth], [tls], [resp], [memcached], [noeqd], [http], \
                    [admin], [fleet], [log], [[sources]], [[identities]]";
    assert_eq!(mistake("[authentication]\na = 1"), format!("1: authentication: {sections}"));
    assert_eq!(mistake("[[authentication]]\na = 1"), format!("1: authentication: {sections}"));
    // In a section there are only settings.
    assert_eq!(mistake("[auth.zzz]\na = 1"), "1: auth.zzz: not known, allowed here: token_file");
}

#[test]
fn names_of_sources_that_were_refused_are_not_offered() {
    let sources = "any_key = \"nosuch\"\n[[sources]]\nname = \"Orders\"\n[[sources]]\nworker_ids = 1\n";
    let users = "[[identities]]\nname = \"a\"\nsources = [\"nosuch\"]\n";
    let last = "[[sources]]\nname = \"t\"\nworker_ids = 2\n";
    let found = mistakes(&format!("{sources}{last}{users}"));
    assert_eq!(
        [&found[0], &found[3]],
        [
            "1: any_key: found \"nosuch\", allowed: the name of a source: t",
            "11: identities[0].sources: found \"nosuch\", which is no source, allowed: \"t\""
        ]
    );
    // Without any name there is nothing to compare with.
    assert_eq!(mistakes(&format!("{sources}{users}")).len(), 2);
}

#[test]
fn addresses_of_the_admin_listener_are_shown_its_port() {
    for (text, expected) in [
        (
            "[9669, \"localhost:1\"]",
            "2: admin.listen: found 9669, allowed: an address, as in \"127.0.0.1:9660\"",
        ),
        ("[]", "2: admin.listen: found an array, allowed: at least one address, as in [\"127.0.0.1:9660\"]"),
    ] {
        assert_eq!(mistake(&format!("[admin]\nlisten = {text}")), expected);
    }
}

#[test]
fn options_and_variables_are_not_told_to_use_quotes() {
    for (key, text, allowed) in [
        ("limits.max_wait", "5", "a duration from \"0\" to \"1h\", with its unit (ms, s, m or h)"),
        ("state_dir", "\t", "a path, without control characters"),
    ] {
        let given = Override { key: key.into(), texts: vec![text.into()], origin: "SNOWBANK_X".into() };
        let mistakes = load_text("", &Overrides(vec![given])).expect_err(key);
        assert_eq!(mistakes.to_string(), format!("SNOWBANK_X: found {text:?}, allowed: {allowed}"));
    }
}

#[test]
fn redis_as_coordinator_is_refused_with_what_to_use_instead() {
    assert_eq!(
        mistake("[fleet]\ncoordinator = \"redis\""),
        "2: fleet.coordinator: found \"redis\", allowed: \"none\" or \"etcd\" or \"zookeeper\"; a Redis can lose what it \
         has acknowledged, and two daemons then have one worker ID; docs/coming-from.md (katsubushi) says what to use instead"
    );
}
