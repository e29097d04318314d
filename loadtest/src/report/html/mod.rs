//! One self-contained page for people, made from the same figures that `--json` writes and from nothing else.
//!
//! - [`run`]: the page of a run, and in `seconds` its course. [`sweep`]: that of a sweep.
//! - [`chart`]: drawings. `style.css`: light and dark, wide and narrow.
//!
//! The page loads nothing and runs no script. Words or a table repeat everything that a chart shows.

pub(crate) mod chart;
pub(crate) mod run;
mod seconds;
pub(crate) mod sweep;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::origin::{Machine, Origin};

const STYLE: &str = include_str!("style.css");

/// Forbids loading anything, even if a target's words look like HTML.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns a whole page.
fn page(title: &str, kind: &str, content: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    p class="tool" { "snowbank-loadtest · " (kind) }
                    (content)
                }
            }
        }
    }
    .into_string()
}

/// Returns a verdict's sign, for readers who do not see its colour, and its class in the style sheet.
fn sign_and_class(verdict: &str) -> (&'static str, &'static str) {
    match verdict {
        "pass" => ("✓", "pass"),
        "fail" => ("✗", "fail"),
        _ => ("?", "unknown"),
    }
}

/// Names and values, one pair to a line.
fn facts(rows: &[(&str, Option<String>)]) -> Markup {
    html! {
        dl class="facts" {
            @for (name, text) in rows {
                @if let Some(text) = text {
                    div { dt { (name) } dd { (text) } }
                }
            }
        }
    }
}

/// Returns the command line, the machine, the versions and the time.
fn origin_facts(origin: &Origin) -> Markup {
    let Machine { host, cpu, cores, memory_bytes, kernel, load_average } = &origin.machine;
    let memory = memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)));
    html! {
        pre tabindex="0" { (origin.command_line) }
        (facts(&[
            ("Started", Some(origin.started_at.replace('T', " ").replace('Z', " UTC"))),
            ("Load test", Some(format!("snowbank-loadtest {}", origin.generator_version))),
            ("Machine", Some(host.clone())),
            ("Processor", cpu.clone()),
            ("Cores", Some(cores.to_string())),
            ("Memory", memory),
            ("System", Some(kernel.clone())),
            ("Load average before", load_average.map(|load| format!("{load:.2}"))),
        ]))
    }
}

#[cfg(test)]
mod tests;
