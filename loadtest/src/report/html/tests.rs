//! Pages of invented runs load nothing, whatever their figures and words.

use proptest::prelude::*;

use super::run::render;
use crate::figure::Unit;
use crate::report::json::Run;
use crate::report::{ECHO, IDS, LATENCIES, LOAD, ORIGIN, TARGET, tests as invented};

/// Returns a run's page. Fails if the page could load something or run a script.
fn page(run: &Run) -> String {
    let page = render(run);
    let elsewhere = page.replace(r#"xmlns="http://www.w3.org/2000/svg""#, "");
    for loads in ["<script", "<link", "<img", "<iframe", "<a ", "<object", "url(", "@import", "://"] {
        assert!(!elsewhere.contains(loads), "{loads} in {page}");
    }
    page
}

fn with_everything() -> Run {
    let mut run = invented::run(&[60.0, 61.0, 0.0, 64.0, 59.0]);
    run.figures.add(IDS, "exhausted", Unit::None, 7.0);
    run.figures.add("outage", "cause", Unit::None, "kill");
    run.figures.add(ECHO, "p50", Unit::Us, 20.0);
    run.seconds[3].refused = 7;
    run
}

#[test]
fn a_page_has_the_verdict_the_figures_and_six_charts() {
    let page = page(&with_everything());
    let figures = ["10,000 IDs/s", "480 µs (limit 2 ms)", "exhausted 7", "cause kill", ECHO, LATENCIES[1]];
    for expected in figures.into_iter().chain(["✓</span> pass", "objective: p99.9 at most 2 ms"]) {
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    assert!(page.contains(&format!("content=\"{}\"", super::POLICY)));
    // The charts show percentiles, rate, response time, refusals, processor time and memory.
    let charts = page.matches(r#"role="img""#).count();
    assert_eq!(charts, 6);
    assert_eq!(page.matches("aria-label=\"").count(), charts);
}

#[test]
fn every_colour_of_a_chart_is_in_the_style_sheet() {
    let page = render(&with_everything());
    let style = include_str!("style.css");
    for attribute in ["fill", "stroke"] {
        for (at, _) in page.match_indices(&format!(" {attribute}=\"#")) {
            let colour: String = page[at + 1..].chars().take(attribute.len() + 10).collect();
            assert!(style.contains(&format!("[{colour}]")), "{colour}");
        }
    }
}

#[test]
fn html_in_a_targets_words_is_escaped() {
    let mut run = invented::run(&[60.0; 3]);
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    run.verdict = "fail".to_owned();
    run.reasons = vec![hostile.to_owned()];
    for (row, name) in [(TARGET, "version"), (TARGET, "layout"), (ORIGIN, "command"), (IDS, hostile)] {
        run.figures.add(row, name, Unit::None, hostile);
    }
    // Long rows wrap, so the two halves of the hostile text may be on different lines.
    let page = page(&run);
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;&lt;img").count() >= 5, "{page}");
    assert!(page.matches("onerror=alert(1)&gt;&quot;'&amp;").count() >= 5, "{page}");
}

#[test]
fn a_day_long_and_an_empty_run_have_a_page() {
    let long = page(&invented::run(&vec![60.0; 86_400]));
    assert!(long.contains("Each point is the worst of several seconds"));
    assert!(long.len() < 500_000, "{}", long.len());
    assert!(page(&invented::run(&[])).contains("ended before its first second did"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_figures_have_a_page(
        seconds in proptest::collection::vec(prop_oneof![0.0..1e9_f64, Just(0.0), Just(1e300)], 0..40),
        rate in prop_oneof![0.0..1e12_f64, Just(0.0), Just(1e300)],
    ) {
        let mut run = invented::run(&seconds);
        run.figures.add(LOAD, "rate", Unit::IdsPerS, rate);
        page(&run);
    }
}
