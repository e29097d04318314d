//! The scrape, the table of metrics in docs/monitoring.md, the alerts and the dashboard agree, and
//! the official tools can read them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::secure::{Authority, tls_section};
use crate::support::http::{ask, get};
use crate::support::{Ask, Daemon, Setup, TWO_SOURCES};
use serde_json::{Value, json};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/");

fn doc(name: &str) -> String {
    std::fs::read_to_string(Path::new(DOCS).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Starts a daemon, and draws a few IDs.
fn daemon() -> Daemon {
    let authority = Authority::new("authority");
    let identity = "[[identities]]\nname = \"anonymous\"\n";
    let tickets = "[[sources]]\nname = \"tickets\"\nkind = \"ticket\"\n";
    let config =
        format!("{}\n{TWO_SOURCES}{tickets}{identity}", tls_section(&authority.issue_local("daemon"), ""));
    let setup = Setup::configured(&config).admin();
    setup.run(&["ticket", "set", "tickets", "0"]).printed();
    let daemon = setup.start();
    let mut wire = daemon.connect();
    wire.next(Ask::of(7));
    wire.next(Ask::of(1).source("slow"));
    daemon
}

/// Runs a tool of another package with this input. Returns `None` and skips the test if the tool is
/// not installed.
fn tool(package: &str, command: &mut Command, input: &str) -> Option<String> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        crate::support::skip(&format!("{command:?} is missing; tests/run installs {package}"));
        return None;
    };
    // A tool that fails early may leave a part of its input unread, so an error here is ignored.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the process ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if complained.contains("No module named") {
        crate::support::skip(&format!("{complained}; tests/run installs {package}"));
        return None;
    }
    assert!(output.status.success(), "{command:?}: {said}{complained}");
    Some(said.into_owned())
}

/// Returns Debian's Python if there is one, because tests/run installs the library for it.
fn python() -> Command {
    let system = Path::new("/usr/bin/python3");
    Command::new(if system.exists() { system } else { Path::new("python3") })
}

/// Returns the families of a scrape as the official parser reads them.
fn parsed(text: &str) -> Option<BTreeMap<String, Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/monitoring/openmetrics.py");
    let json = tool("python3-prometheus-client", python().arg(script), text)?;
    Some(serde_json::from_str(&json).expect("JSON"))
}

/// Returns the metrics in the table of docs/monitoring.md, each with its type and its labels.
fn documented() -> BTreeMap<String, String> {
    let page = doc("monitoring.md").replace('`', "");
    let rows = page.lines().skip_while(|line| !line.starts_with("| metric |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|row| {
        let [_, name, kind, labels, ..] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let mut labels: Vec<&str> = labels.split(", ").filter(|label| !label.is_empty()).collect();
        labels.sort_unstable();
        (name.to_owned(), format!("{kind} {}", json!(labels)))
    });
    rows.collect()
}

#[test]
fn the_scrape_is_openmetrics_and_the_docs_list_every_metric() {
    let daemon = daemon();
    let admin = daemon.addresses.last().expect("an admin listener");
    let text = ask(admin, "GET", "/metrics", "Accept: application/openmetrics-text\r\n").body;
    assert!(text.ends_with("# EOF\n"), "{text}");
    let Some(families) = parsed(&text) else { return };
    let mut scraped = BTreeMap::new();
    for (family, about) in &families {
        assert!(!about["help"].as_str().expect("help").is_empty(), "{family}");
        let kind = about["type"].as_str().expect("a type");
        let mut labels = about["samples"][0][1].as_array().expect("a sample").clone();
        // The bounds of a histogram.
        labels.retain(|label| label != "le");
        let suffix = if kind == "counter" { "_total" } else { "" };
        scraped.insert(format!("{family}{suffix}"), format!("{kind} {}", json!(labels)));
    }
    // Only a daemon in a fleet has the metrics that are left out here. `fleet::shown` tests them.
    let mut documented = documented();
    documented.retain(|metric, _| !metric.starts_with("snowbank_fleet_"));
    assert_eq!(documented, scraped, "left: docs/monitoring.md; right: the scrape");
    let ids = &families["snowbank_ids_issued"]["samples"];
    assert_eq!(ids[0], json!(["snowbank_ids_issued_total", ["source"], 7]));
    assert_eq!(families["snowbank_request_duration_seconds"]["unit"], "seconds");
}

#[test]
fn promtool_finds_no_fault_in_the_classic_text() {
    let daemon = daemon();
    let text = get(&daemon, "/metrics").body;
    tool("prometheus", Command::new("promtool").args(["check", "metrics"]), &text);
}

/// The intervals between scrapes with which alerts and dashboard must work, in seconds. The longest
/// is more than a minute, so that no range of an expression works only because two samples lie
/// exactly at its ends.
const SCRAPE_INTERVALS: [u32; 2] = [15, 61];

/// The number of the scrape at which the worker ID changes.
const WORKER_ID_CHANGED: u32 = 32;

/// Metrics of the dashboard that the daemon of these tests lacks, because it is in no fleet.
const FLEET: [&str; 1] = ["snowbank_fleet_headroom_seconds{source=\"fast\"}"];

/// Returns the start times of a daemon that crashes every 12.5 s for ten minutes, as scrapes show
/// them. After each crash the daemon is down for three seconds, so a scrape in this time shows
/// nothing.
fn crash_loop(interval_s: u32) -> String {
    let kills_s: Vec<f64> = (0..48).map(|kill| 302.0 + 12.5 * f64::from(kill)).collect();
    let seen = |scrape: u32| {
        let at_s = f64::from(scrape * interval_s);
        match kills_s.iter().rfind(|kill_s| **kill_s <= at_s) {
            None => String::from("1000"),
            Some(kill_s) if at_s < kill_s + 3.0 => String::from("_"),
            Some(kill_s) => format!("{}", kill_s + 3.0),
        }
    };
    (0..60).map(seen).collect::<Vec<_>>().join(" ")
}

/// Returns the tests of the alerts for this scrape interval.
fn rule_tests(interval_s: u32) -> String {
    let tests = include_str!("monitoring/rules_test.yml");
    let mut parts = tests.split("RATE(");
    let mut filled = parts.next().expect("a first part").to_owned();
    for part in parts {
        let (per_second, rest) = part.split_once(')').expect("a closing bracket");
        let per_second: u64 = per_second.parse().expect("a number");
        filled += &format!("{}{rest}", per_second * u64::from(interval_s));
    }
    let filled = filled.replace("CRASH_LOOP", &crash_loop(interval_s));
    let filled = filled.replace("WORKER_ID_CHANGED", &format!("{}s", WORKER_ID_CHANGED * interval_s));
    let filled = filled.replace("SEEN", &format!("{}s", 30 * interval_s));
    let filled = filled.replace("RULES", &format!("{DOCS}monitoring/snowbank.rules.yml"));
    filled.replace("INTERVAL", &format!("{interval_s}s"))
}

fn promtool(arguments: [&str; 2], text: &str) {
    let file = tempfile::NamedTempFile::with_suffix(".yml").expect("a temporary file");
    std::fs::write(file.path(), text).expect("written");
    tool("prometheus", Command::new("promtool").args(arguments).arg(file.path()), "");
}

#[test]
fn the_alerts_are_valid_rules_and_fire_when_they_should() {
    promtool(["check", "rules"], &doc("monitoring/snowbank.rules.yml"));
    SCRAPE_INTERVALS.map(rule_tests).iter().for_each(|tests| promtool(["test", "rules"], tests));
}

/// Returns the words of a text that look like names of the daemon's metrics.
fn metrics_named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| {
        word.starts_with("snowbank_") || (word.starts_with("process_") && word.len() > "process_".len())
    });
    let whole = |word: &str| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix));
        histogram.unwrap_or(word).to_owned()
    };
    words.map(whole).collect()
}

#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    let documented = documented();
    assert!(documented.len() > 20, "{documented:?}");
    for file in ["monitoring/snowbank.rules.yml", "monitoring/snowbank-dashboard.json"] {
        let named = metrics_named(&doc(file));
        assert!(named.len() > 8, "{named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !documented.contains_key(*name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn each_alert_and_finding_has_a_row_in_operations_md() {
    let rules = doc("monitoring/snowbank.rules.yml");
    let page = doc("operations.md");
    let rows = page.split_once("## Three in the morning").expect("the section").1;
    let rows = rows.split_once("\n## ").expect("a next section").0;
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let own = alerts.filter(|alert| !["SnowbankFails", "SnowbankWarns"].contains(alert));
    let scrape = get(&daemon(), "/metrics").body;
    let findings = scrape.lines().filter_map(|line| line.strip_prefix("snowbank_finding{finding=\""));
    let findings = findings.map(|line| line.split_once('"').expect("a closing quote").0);
    let wanted: BTreeSet<String> =
        own.map(str::to_owned).chain(findings.map(|name| format!("finding `{name}`"))).collect();
    let found: BTreeSet<String> = rows
        .lines()
        .filter(|line| line.starts_with("| finding") || line.starts_with("| Snowbank"))
        .map(|line| line.split('|').nth(1).expect("a first cell").trim().to_owned())
        .collect();
    assert_eq!(found, wanted, "left: the rows of docs/operations.md; right: alerts and findings");
    let links = rules.matches("operations.md#three-in-the-morning").count();
    assert_eq!(links, rules.matches("- alert: ").count(), "some alerts have no runbook_url");
}

#[test]
fn grafana_can_import_the_dashboard() {
    let dashboard: Value =
        serde_json::from_str(&doc("monitoring/snowbank-dashboard.json")).expect("the dashboard is JSON");
    assert_eq!((&dashboard["title"], &dashboard["uid"]), (&"Snowbank".into(), &"snowbank".into()));
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "two panels have the same ID: {panel}");
        assert!(panel["gridPos"]["w"].as_u64().is_some_and(|width| width <= 24), "{panel}");
    }
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let expressions: Vec<String> = expressions.map(filled).collect();
    let daemon = daemon();
    let scrape = get(&daemon, "/metrics").body;
    for interval_s in SCRAPE_INTERVALS {
        promtool(["test", "rules"], &tests_that_something_is_shown(&scrape, &expressions, interval_s));
    }
}

/// Returns the expression of a panel after Grafana has replaced the variables.
fn filled(target: &Value) -> String {
    let expression = target["expr"].as_str().expect("an expression");
    // Grafana replaces `$__rate_interval` by four times the panel's `interval`.
    if expression.contains("$__rate_interval") {
        assert_eq!(target["interval"], "1m", "{expression}");
    }
    let filled = expression.replace("$__rate_interval", "4m").replace("$instance", ".*");
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// Returns tests which check that each expression has a value while all samples grow.
fn tests_that_something_is_shown(scrape: &str, expressions: &[String], interval_s: u32) -> String {
    let samples = scrape.lines().filter(|line| !line.starts_with('#'));
    let names = samples.map(|line| line.rsplit_once(' ').expect("a value").0);
    let names = names.chain(["up"]).chain(FLEET);
    let series = names.map(|name| {
        let labels = "job=\"snowbank\",instance=\"a\"";
        let series = match name.split_once('{') {
            Some((name, others)) => format!("{name}{{{labels},{others}"),
            None => format!("{name}{{{labels}}}"),
        };
        json!({ "series": series, "values": "1+1x60" })
    });
    let expected = json!([{ "labels": "{}", "value": 1 }]);
    let tests = expressions.iter().map(|expression| {
        let expression = format!("(count({expression}) > bool 0) or vector(0)");
        json!({ "expr": expression, "eval_time": "14m", "exp_samples": expected })
    });
    let interval = format!("{interval_s}s");
    let tests = json!({
        "interval": interval,
        "input_series": series.collect::<Vec<_>>(),
        "promql_expr_test": tests.collect::<Vec<_>>(),
    });
    // JSON is YAML.
    json!({ "evaluation_interval": interval, "tests": [tests] }).to_string()
}

#[test]
fn the_status_page_renders_in_a_browser() {
    let daemon = daemon();
    let page = format!("http://{}/", daemon.addresses.last().expect("an admin listener"));
    let profile = tempfile::tempdir().expect("a temporary directory");
    let mut chromium = Command::new("timeout");
    // The browser gets some seconds of virtual time, which passes as fast as responses arrive.
    chromium.args([
        "60",
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]);
    chromium.args(["--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", profile.path().display())).arg(&page);
    if !crate::support::has_program("chromium", "chromium") {
        return;
    }
    let output = chromium.stdin(Stdio::null()).output().expect("the program runs");
    let page = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    for part in [
        "Serving, all is as it should be",
        "<h4>fast</h4>",
        "<h4>slow</h4>",
        "clock: follows the wall clock",
        "ceiling: durable for",
        "<polyline",
        concat!("version ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(page.contains(part), "{part:?} is not in\n{page}\n{log}");
    }
    // The browser logs violations of the page's policy and errors of its script in these lines.
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
