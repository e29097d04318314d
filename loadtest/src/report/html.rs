//! One self-contained page for people, made only from the figures that `--json` writes.
//!
//! - [`run`]: the page of a run.
//! - [`chart`]: charts. `style.css`: light and dark colours.
//!
//! The page loads nothing and runs no script. It also has the figures that the terminal prints.

pub(crate) mod chart;
pub(crate) mod run;

use std::io;

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("html/style.css");

/// Forbids loading anything, even if a target's words look like HTML.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns a whole page: the result as the heading, what it means for the reader, the reasons, then
/// the content.
pub(crate) fn page(
    verdict: &str,
    summary: &str,
    meaning: &str,
    reasons: &[String],
    content: &Markup,
) -> String {
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
                        p { (meaning) }
                        @if !reasons.is_empty() { ul { @for reason in reasons { li { (reason) } } } }
                    }
                    (content)
                }
            }
        }
    }
    .into_string()
}

/// Returns the text that the terminal prints, as a part of a page.
pub(crate) fn printed(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Markup {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = write(&mut text);
    html! { pre tabindex="0" { (String::from_utf8_lossy(&text)) } }
}

#[cfg(test)]
mod tests;
