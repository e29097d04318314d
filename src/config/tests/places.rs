//! Mistakes between settings: they have the place of a setting that was given, and advice that can
//! be followed.

use super::*;

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
    // No worker ID of one layout makes an ID of the other, but the first layout has the ID space of
    // a layout without the constant.
    let halves = [
        "time:41,half:1:constant(0),worker:9,sequence:12",
        "time:41,half:1:constant(1),worker:8,sequence:13",
    ];
    let [low, high] = halves.map(|layout| format!("{layout};{epoch}"));
    let text = mistake(&two([picked; 2], &high).replace("\"twitter\"", &format!("{low:?}")));
    assert!(text.contains("can make the same IDs"), "{text}");
    // More worker IDs than a check could compare one by one.
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
