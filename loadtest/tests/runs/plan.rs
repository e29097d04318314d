//! Plans: their figures, their assumptions, and a daemon that carries the planned rate.

use crate::support::{Ran, assert_of_schema, command, figure, has_daemon, loadtest, until, until_in_time};
use serde_json::{Value, json};
use tempfile::TempDir;

fn figure_of(row: &str, name: &str, value: Value) -> Value {
    json!({"row": row, "name": name, "unit": "", "value": value})
}

/// Returns the file of a run with `batch` IDs per request and `us_per_request` of processor time
/// per request.
fn run(batch: u32, ids_per_s: f64, us_per_request: f64) -> Value {
    json!({
        "format": 3, "kind": "run", "verdict": "pass", "reasons": [], "summary": "", "curves": [], "seconds": [],
        "objectives": [
            {"quantile": "p99.9", "limit_us": 2000.0, "found_us": 500.0, "certain_us": 400.0, "met": true}
        ],
        "figures": [
            figure_of("IDs", "rate", ids_per_s.into()),
            figure_of("CPU, memory", "target's CPU per request", us_per_request.into()),
            figure_of("target", "protocol", "snowbank".into()),
            figure_of("target", "started for this run", "yes".into()),
            figure_of("target", "source", "default".into()),
            figure_of("target", "layout", "twitter".into()),
            figure_of("target", "worker IDs", 1.into()),
            figure_of("load", "offered", ids_per_s.into()),
            figure_of("load", "arrivals", "even".into()),
            figure_of("load", "IDs per request", batch.into()),
            figure_of("load", "connections", 8.into()),
            figure_of("load", "threads", 1.into()),
            figure_of("origin", "build", "release".into()),
            figure_of("origin", "cores", 2.into()),
        ],
    })
}

/// Returns a sweep's file as `sweep` writes it, for the tests to change. The saturation point is
/// 200,000 IDs/s, with one ID in each request.
fn sweep_file() -> Value {
    sweep_of(1, 200_000.0)
}

/// Returns the file of a sweep that has this saturation point, with `batch` IDs in each request.
fn sweep_of(batch: u32, saturation: f64) -> Value {
    let step = |ids_per_s: f64, us_per_request: f64| json!({"phase": "climb", "holds": true, "limit": null, "run": run(batch, ids_per_s, us_per_request)});
    json!({
        "format": 3, "kind": "sweep", "summary": "saturation point: 200000 IDs/s", "ended": "searched",
        "saturation": saturation, "confirmed": true, "at_least": false, "missed": 210_000.0, "limit": "latency",
        "search": {"start": 2000.0, "limit": 4_096_000.0, "resolution": 0.05},
        "steps": [step(saturation / 100.0, 20.0), step(saturation / 2.0, 5.0), step(saturation, 4.0)],
    })
}

/// Plans from a sweep's file. Returns the page, and the plan that --json wrote.
fn plan(sweep: &Value, options: &str) -> (Ran, Value) {
    let directory = TempDir::new().expect("a directory");
    let [from, to] = ["sweep", "plan"].map(|name| directory.path().join(name).display().to_string());
    std::fs::write(&from, sweep.to_string()).expect("a file");
    let ran = command(&format!("plan --from {from} --json {to} {options}"));
    let plan = std::fs::read_to_string(&to).ok().map(|text| {
        assert_of_schema(&text);
        serde_json::from_str(&text).expect("JSON")
    });
    (ran, plan.unwrap_or_default())
}

/// Plans from a sweep's file, and fails if the file cannot support a plan.
fn planned(sweep: &Value, options: &str) -> (String, Value) {
    let (ran, plan) = plan(sweep, options);
    assert_eq!(ran.code, 0, "{ran:?}");
    (ran.stdout, plan)
}

/// Returns the sweep's file with one key changed.
fn with(key: &str, value: Value) -> Value {
    let mut sweep = sweep_file();
    sweep[key] = value;
    sweep
}

/// Returns the sweep's file with one figure changed in each of its runs. If `value` is null, the
/// figure is removed.
fn with_figure(row: &str, name: &str, value: &Value) -> Value {
    let mut sweep = sweep_file();
    for step in sweep["steps"].as_array_mut().expect("steps") {
        let figures = step["run"]["figures"].as_array_mut().expect("figures");
        figures.retain(|figure| figure["row"] != row || figure["name"] != name);
        if !value.is_null() {
            figures.push(figure_of(row, name, value.clone()));
        }
    }
    sweep
}

#[test]
fn the_lowest_limit_decides() {
    let single = sweep_file();
    let batches = sweep_of(100, 20e6);
    let rounded = sweep_of(1, 173_000.0);
    for (sweep, options, binding, daemons) in [
        (&single, "--rate 1M", "CPU", 10),
        (&batches, "--rate 10M", "layout", 5),
        (&batches, "--rate 10M --worker-ids 8", "CPU", 1),
        // A rounding error adds no daemon.
        (&rounded, "--rate 34600/s --headroom 80%", "CPU", 1),
        (&rounded, "--rate 34600/s --headroom 80% --spare 0", "CPU", 1),
    ] {
        let (page, plan) = planned(sweep, options);
        let of = |name: &str| figure(&plan, "fleet", name);
        assert_eq!((plan["binding"].as_str(), of("daemons")), (Some(binding), daemons.into()));
        let spare = if options.contains("--spare") { 0 } else { 1 };
        assert_eq!(of("spare"), spare);
        assert!(page.contains(&format!("# Snowbank: {} daemon", daemons + spare)), "{page}");
        let limit = page.lines().find(|line| line.contains(&format!("| limit of one daemon | {binding} |")));
        assert!(limit.is_some_and(|line| line.ends_with(": binds |")), "{page}");
    }
}

#[test]
fn a_requests_cost_is_taken_from_the_step_at_its_rate() {
    let (page, plan) = planned(&sweep_file(), "--rate 1M");
    // Each daemon gets 100,000 requests/s, which took half a core in the sweep's step at that rate.
    // The step at the saturation point, where a request cost less, does not count.
    let found = ["CPU per request", "cores busy", "cores"].map(|name| figure(&plan, "each daemon", name));
    assert_eq!(found.map(|value| value.as_f64()), [5.0, 0.5, 1.0].map(Some));
    assert!(
        page.contains("| each daemon | cores busy | 0.5 | requests per second × CPU per request |"),
        "{page}"
    );
}

#[test]
fn a_plan_names_what_the_sweep_does_not_show() {
    let remote = with_figure("target", "started for this run", &Value::Null);
    for (sweep, rate, reason) in [
        (&sweep_file(), "1M", "spread evenly over the daemons"),
        (&sweep_of(100, 20e6), "20M", "ID clock catches up"),
        (&remote, "1M", "a machine like that of the sweep's daemon"),
        (&with("at_least", json!(true)), "1M", "at least: the saturation point"),
        (&with_figure("origin", "build", &json!("debug")), "1M", "debug build"),
    ] {
        let (page, _) = planned(sweep, &format!("--headroom 10% --rate {rate}"));
        assert!(page.contains(reason), "{reason}: {page}");
    }
    let counter = with_figure("target", "layout", &json!("tickets, increment 1"));
    let (page, _) = planned(&counter, "--rate 1M");
    assert!(!page.contains("worker ID"), "a counter has no worker IDs: {page}");
}

#[test]
fn a_plan_that_the_sweep_cannot_support_is_refused() {
    for (sweep, options, code, reason) in [
        (with("confirmed", json!(false)), "--rate 1M", 2, "not confirmed by a second run"),
        (with("saturation", json!(null)), "--rate 1M", 2, "it found no saturation point"),
        (with_figure("target", "protocol", &json!("http")), "--rate 1M", 2, "the sweep used another"),
        (sweep_file(), "--rate 1M --worker-ids 2000", 2, "1023"),
        (sweep_file(), "--rate 1000M", 1, "the layout has 1024"),
    ] {
        plan(&sweep, options).0.assert_refused(code, reason);
    }
}

/// Sweeps a real daemon, and loads a real daemon at the planned rate with the command that the plan
/// prints.
#[test]
fn a_daemon_at_the_planned_rate_passes() {
    if !has_daemon() {
        return;
    }
    let options = "--for 500ms --warm-up 200ms --batch 10 --start 2000 --limit 8000 --p99.9 5s";
    let swept = until(|| loadtest(&format!("sweep {options}")), |swept| swept.code == 0);
    assert_eq!(swept.code, 0, "{swept:?}");
    let (page, plan) = planned(&swept.json(), "--rate 10k/s");
    let saturation = swept.json()["saturation"].as_f64().expect("a saturation point");
    let daemons = figure(&plan, "fleet", "daemons").as_f64();
    assert_eq!(daemons, Some((10_000.0 / (saturation / 2.0)).ceil()), "{page}");
    assert!(figure(&plan, "each daemon", "cores busy").as_f64() > Some(0.0), "{page}");
    assert!(figure(&plan, "limit of one daemon", "layout") == 4_096_000.0, "{page}");
    assert!(page.contains("There it shared "), "{page}");

    let check = page.lines().find_map(|line| line.strip_prefix("snowbank-loadtest --address HOST:PORT "));
    let options = check.expect("a command to check").replace("--for 60s", "--for 1s");
    let ran = until_in_time(|| loadtest(&options));
    assert_eq!(ran.code, 0, "{options}: {ran:?}");
    let each = figure(&plan, "each daemon", "rate").as_f64().expect("a rate");
    assert_eq!(ran.figure("load", "offered").as_f64(), Some(each.ceil()), "{options}");
}
