//! One self-contained page for people, made from the same figures that `--json` writes and from
//! nothing else.
//!
//! - [`run`]: the page of a run. [`sweep`]: that of a sweep.
//! - [`chart`]: drawings. `style.css`: light and dark.
//!
//! The page loads nothing and runs no script. Words or a table repeat everything that a chart
//! shows.

pub(crate) mod chart;
pub(crate) mod run;
pub(crate) mod sweep;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::json::Run;
use super::{LOAD, MACHINE, ORIGIN, QUANTILES, ROWS, TARGET, table};
use crate::judge::quantile_name;

const STYLE: &str = include_str!("style.css");

/// Forbids loading anything, even if a target's words look like HTML.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns a whole page: the result in the head, then the content.
fn page(verdict: &str, summary: &str, reasons: &[String], content: &Markup) -> String {
    // The sign is for readers who do not see the colour.
    let (sign, class) = match verdict {
        "pass" => ("✓", "pass"),
        "fail" => ("✗", "fail"),
        _ => ("?", "unknown"),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (summary) ", snowbank-loadtest" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header class=(class) {
                        h1 { span class="verdict" { span aria-hidden="true" { (sign) } " " (verdict) } " " (summary) }
                        ul { @for reason in reasons { li { (reason) } } }
                    }
                    (content)
                }
            }
        }
    }
    .into_string()
}

/// Returns a table: the words of its head, and its rows, each with its name first.
fn table(head: &[&str], rows: impl Iterator<Item = (String, Vec<String>)>) -> Markup {
    html! {
        div class="scroll" tabindex="0" {
            table {
                thead { tr { @for word in head { th scope="col" { (word) } } } }
                tbody {
                    @for (name, row) in rows {
                        tr { th scope="row" { (name) } @for text in row { td { (text) } } }
                    }
                }
            }
        }
    }
}

/// Returns the quantiles of a run.
fn quantiles(run: &Run) -> Markup {
    let names = QUANTILES.map(quantile_name);
    let head: Vec<&str> = std::iter::once("ms").chain(names.iter().map(String::as_str)).collect();
    table(&head, table::quantiles(run).into_iter().map(|(name, row)| (name.to_owned(), row.to_vec())))
}

/// Returns all other figures of a run, row by row.
fn figures(run: &Run) -> Markup {
    html! {
        section {
            h2 { "Figures" }
            dl class="facts" {
                @for row in ROWS.into_iter().chain([MACHINE, TARGET, LOAD, ORIGIN]) {
                    @if let Some(text) = run.figures.row_text(row) {
                        div { dt { (row) } dd { (text) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
