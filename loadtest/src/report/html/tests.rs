//! Pages of runs made up: sound HTML that loads nothing, whatever the figures and words are.

use html5gum::{Token, Tokenizer};
use proptest::prelude::*;

use super::run::render;
use crate::report::figure::Unit;
use crate::report::json::Run;
use crate::report::{ECHO, IDS, LATENCIES, LOAD, ORIGIN, TARGET, testing};

/// Elements that have no end tag.
const VOID: [&str; 2] = ["meta", "br"];

/// Attributes that could load something.
const LOADING: [&str; 8] = ["src", "srcset", "href", "xlink:href", "action", "data", "background", "poster"];

/// The page's text outside the style sheet. Fails unless every element ends where it should and
/// nothing is loaded.
pub(crate) fn sound(page: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut open = Vec::new();
    let mut words = String::new();
    for token in Tokenizer::new(page) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => {
                let name = text(&tag.name);
                for (attribute, value) in &tag.attributes {
                    let attribute = text(attribute);
                    let value = text(value);
                    assert!(!LOADING.contains(&attribute.as_str()), "{name} {attribute}={value}");
                    assert!(!attribute.starts_with("on"), "{name} {attribute}={value}");
                    assert!(attribute == "xmlns" || !value.contains("://"), "{name} {attribute}={value}");
                }
                assert!(
                    !["script", "link", "img", "iframe", "a", "object"].contains(&name.as_str()),
                    "{name}"
                );
                if !tag.self_closing && !VOID.contains(&name.as_str()) {
                    open.push(name);
                }
            }
            Token::EndTag(tag) => assert_eq!(open.pop(), Some(text(&tag.name)), "ends in the wrong place"),
            Token::String(string) if open.last().is_some_and(|name| name == "style") => {
                let style = text(&string);
                assert!(!["url(", "@import", "://"].iter().any(|load| style.contains(load)));
            }
            Token::String(string) => words.push_str(&text(&string)),
            Token::Error(error) => panic!("{error:?}"),
            Token::Doctype(_) | Token::Comment(_) => {}
        }
    }
    assert_eq!(open, Vec::<String>::new(), "not ended");
    words
}

fn with_everything() -> Run {
    let mut run = testing::run(&[60.0, 61.0, 0.0, 64.0, 59.0]);
    run.figures.add(IDS, "exhausted", Unit::None, 7.0);
    run.figures.add("outage", "cause", Unit::None, "kill");
    run.figures.add(ECHO, "p50", Unit::Us, 20.0);
    run.seconds[3].refused = 7;
    run
}

#[test]
fn a_page_is_sound_and_says_what_a_person_asks() {
    let words = sound(&render(&with_everything()));
    for expected in [
        "✓ pass",
        "10,000 IDs/s",
        "0.48 ms (limit 2 ms)",
        "objective: p99.9 at most 2 ms",
        "exhausted 7",
        "cause kill",
        ECHO,
        LATENCIES[1],
    ] {
        assert!(words.contains(expected), "{expected} is not in {words}");
    }
}

#[test]
fn every_chart_is_said_in_words() {
    let page = render(&with_everything());
    assert!(page.contains(&format!("content=\"{}\"", super::POLICY)));
    // Percentiles, rate, response time, refusals, processor time and memory.
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
fn a_targets_words_stay_words() {
    let mut run = testing::run(&[60.0; 3]);
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    run.verdict = "fail".to_owned();
    run.reasons = vec![hostile.to_owned()];
    for (row, name) in [(TARGET, "version"), (TARGET, "layout"), (ORIGIN, "command"), (IDS, hostile)] {
        run.figures.add(row, name, Unit::None, hostile);
    }
    // Long rows go on below.
    let words = sound(&render(&run));
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.matches(hostile).count() >= 5, "{words}");
}

#[test]
fn a_long_run_is_put_together() {
    let page = render(&testing::run(&vec![60.0; 86_400]));
    assert!(sound(&page).contains("Each point is the worst of several seconds"));
    assert!(page.len() < 500_000, "{}", page.len());
}

#[test]
fn a_run_without_a_second_has_a_page() {
    assert!(sound(&render(&testing::run(&[]))).contains("ended before its first second did"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_figures_have_a_page(
        seconds in proptest::collection::vec(prop_oneof![0.0..1e9_f64, Just(0.0), Just(1e300)], 0..40),
        rate in prop_oneof![0.0..1e12_f64, Just(0.0), Just(1e300)],
    ) {
        let mut run = testing::run(&seconds);
        run.figures.add(LOAD, "rate", Unit::IdsPerS, rate);
        sound(&render(&run));
    }
}
