//! Settings of sources: layouts, worker IDs, and what follows from them.

use super::*;
use std::time::Duration;

use snowbank_client::layout::Layout;

#[test]
fn each_source_starts_from_the_top_of_the_file() {
    let settings = settings(
        r#"
        layout = "clearing"
        max_ahead = "4s"

        [[sources]]
        name = "trades"
        worker_ids = 81

        [[sources]]
        name = "batches"
        layout = "clearing-batch"
        worker_ids = "81"
        max_ahead = "5s"
        "#,
    );
    let [trades, batches] = &settings.sources[..] else { panic!("{settings:?}") };
    assert_eq!((&*trades.name, &*batches.name), ("trades", "batches"));
    assert_eq!(trades.layout, Layout::resolve("clearing").unwrap());
    assert_eq!(batches.layout, Layout::resolve("clearing-batch").unwrap());
    assert_eq!((trades.max_ahead, batches.max_ahead), (Duration::from_secs(4), Duration::from_secs(5)));
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
}

#[test]
fn the_horizon_follows_the_tick_and_max_ahead() {
    let source = &settings("layout = \"time:30,worker:10,sequence:12;tick=60s\"").sources[0];
    assert_eq!(source.max_ahead, Duration::from_secs(240));
    assert_eq!(source.horizon(), Duration::from_secs(120));
    // And a low max_ahead lowers it.
    let source = &settings("max_ahead = \"5ms\"").sources[0];
    assert_eq!(source.horizon(), Duration::from_millis(3));
    assert_eq!(source.burst_window, Duration::from_millis(5));
    assert_eq!(settings("max_ahead = \"1h\"").sources[0].horizon(), Duration::from_secs(3));
}

#[test]
fn worker_ids_by_field_are_those_numbers() {
    let of = |text: &str| settings(text).sources[0].worker_ids.set.to_string();
    assert_eq!(of("worker_ids = \"datacenter=1,worker=0-3\""), "32-35");
    assert_eq!(of("worker_ids = [\"datacenter=1\", \"worker=0\", \"2\"]"), "32,34");
    // The layout may come after them, and a source of another layout may have a text of its own.
    assert_eq!(of("worker_ids = \"machine=81\"\nlayout = \"clearing\""), "81");
    let two = "worker_ids = \"datacenter=1,worker=1\"\n[[sources]]\nname = \"a\"\n[[sources]]\nname = \"b\"\n\
               layout = \"discord\"\nworker_ids = \"worker=1,process=2\"";
    let both = settings(two);
    assert_eq!(both.sources[0].worker_ids.set.to_string(), "33");
    assert_eq!(both.sources[1].worker_ids.set.to_string(), "34");
    // The same as by number, so that a reload sees no change.
    assert_eq!(
        settings("worker_ids = \"datacenter=1,worker=1\"").sources,
        settings("worker_ids = 33").sources
    );
}
