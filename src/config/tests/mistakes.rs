//! Mistakes: their places and their texts.

use proptest::prelude::*;

use super::*;

#[test]
fn each_document_has_its_mistakes_and_no_others() {
    for (text, expected) in cases(include_str!("mistakes.txt")) {
        let is_right = load_text(&text, &Overrides::default()).is_ok();
        let found = if is_right { Vec::new() } else { mistakes(&text) };
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn there_are_at_most_256_identities() {
    let many = "[[identities]]\nname = \"anonymous\"\n".repeat(IDENTITIES_MAX + 1);
    assert!(mistakes(&many)[0].contains("identities: found 257 identities, allowed: 0 to 256"));
}

#[test]
fn there_are_at_most_1024_sources() {
    let text = |count| {
        (0..count).fold(String::new(), |text, n| {
            text + &format!("[[sources]]\nname = \"s{n}\"\nkind = \"ticket\"\n")
        })
    };
    assert_eq!(settings(&text(1_024)).sources.len(), 1_024);
    assert_eq!(mistake(&text(1_025)), "1: sources: found 1025 sources, allowed: 1 to 1024");
    let fleet = "fleet.coordinator = \"etcd\"\n".to_owned();
    let shared = |count| fleet.clone() + &text(count).replace("ticket", "fleet-ticket");
    assert_eq!(settings(&shared(100)).sources.len(), 100);
    assert!(
        mistake(&shared(101)).contains("found 101 sources of kind \"fleet-ticket\", allowed: at most 100")
    );
}

#[test]
fn the_limit_of_a_socket_path_includes_the_files_directory() {
    let text = format!("listen = \"unix:{}\"", "s".repeat(UNIX_PATH_BYTES_MAX));
    assert!(mistake(&text).ends_with("is a path of 112 bytes, allowed: at most 107"), "{}", mistake(&text));
}

/// Another daemon of the fleet may get any worker ID of either layout.
#[test]
fn id_spaces_that_can_collide_in_a_fleet_are_refused() {
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
    // Other daemons of the fleet may have any other worker IDs.
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
    // These two layouts make no common ID, because their constants differ. But the first layout has
    // the same ID space as a layout without the constant.
    let halves = [
        "time:41,half:1:constant(0),worker:9,sequence:12",
        "time:41,half:1:constant(1),worker:8,sequence:13",
    ];
    let [low, high] = halves.map(|layout| format!("{layout};{epoch}"));
    let text = mistake(&two([picked; 2], &high).replace("\"twitter\"", &format!("{low:?}")));
    assert!(text.contains("can make the same IDs"), "{text}");
    // These layouts have more worker IDs than a check could compare one by one.
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

/// Puts pieces of configurations together in any order.
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
    fn any_document_gives_settings_or_one_line_for_each_mistake(text in any_document()) {
        fuzzing::config(text.as_bytes());
    }
}
