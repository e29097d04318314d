//! Worker IDs that come from an origin alone, or from an origin and `worker_ids` together.

use super::*;

fn pick(text: &str, host_name: &str) -> Result<Settings, Unpicked> {
    let machine = Machine { host_name: host_name.into(), given_ipv4: None, interfaces: Ok(Vec::new()) };
    let mut settings = settings(text);
    settings.pick_worker_ids(&machine).map(|_| settings)
}

#[test]
fn the_origin_fills_the_fields_left_open_by_worker_ids() {
    let of = |text: &str, name: &str| {
        let text = format!("worker_id_from = \"hostname\"\n{text}");
        pick(&text, name).expect(&text).sources[0].worker_ids.set.to_string()
    };
    assert_eq!(of("", "web-33"), "33");
    assert_eq!(of("worker_ids = \"datacenter=1\"", "web-5"), "37");
    assert_eq!(of("worker_ids = \"worker=1\"", "web-5"), "161");
    assert_eq!(of("worker_ids = \"datacenter=0-1\"", "web-5"), "5,37");
    // Two fields are left open: together they hold one number.
    let layout = "layout = \"time:41,region:2,datacenter:4,worker:4,sequence:10\"\nworker_ids = \"region=1\"";
    assert_eq!(of(layout, "web-18"), "274");
}

#[test]
fn a_reload_keeps_the_number_until_the_origin_changes() {
    let running = pick("worker_id_from = \"hostname\"", "web-7").unwrap();
    let mut wanted = settings("worker_id_from = \"hostname\"\n[limits]\nmax_count = 9");
    wanted.sources[0].keep_picked(&running.sources[0]);
    assert_eq!(wanted.sources[0], running.sources[0]);
    for text in [
        "worker_id_from = \"ipv4\"",
        "worker_id_from = \"hostname\"\nworker_ids = \"datacenter=1\"",
        "worker_ids = 8",
    ] {
        let mut wanted = settings(text);
        wanted.sources[0].keep_picked(&running.sources[0]);
        assert_ne!(wanted.sources[0].worker_ids, running.sources[0].worker_ids, "{text}");
    }
}

/// Without its configuration's field, the wanted source would have the running source's number.
#[test]
fn a_reload_sees_that_a_configured_field_has_changed() {
    let of = |datacenter| format!("worker_id_from = \"hostname\"\nworker_ids = \"datacenter={datacenter}\"");
    let running = pick(&of(0), "web-0").unwrap();
    let mut wanted = settings(&of(1));
    wanted.sources[0].keep_picked(&running.sources[0]);
    let mistakes = diff(&running, &mut wanted.clone()).expect_err("only a restart changes worker IDs");
    assert!(mistakes.first_line().contains("worker_ids"), "{mistakes}");
}

#[test]
fn the_changed_pool_of_an_assigned_worker_id_is_seen_at_reload() {
    let fleet = "[fleet]\ncoordinator = \"etcd\"\nendpoints = \"http://127.0.0.1:2379\"";
    let of = |pool| settings(&format!("worker_id_from = \"coordinator\"\nworker_ids = \"{pool}\"\n{fleet}"));
    let running = of("0-9");
    for (pool, is_changed) in [("0-9", false), ("100-109", true)] {
        let mut wanted = of(pool);
        wanted.sources[0].keep_picked(&running.sources[0]);
        let refused = diff(&running, &mut wanted.clone()).err().map(|mistakes| mistakes.first_line());
        assert_eq!(refused.is_some(), is_changed, "{refused:?}");
    }
}
