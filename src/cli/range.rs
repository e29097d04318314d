//! `snowbank range`.

use std::io::{self, Write};

use serde_json::json;

use super::chosen::{ASSUMED_LAYOUT, Chosen};
use super::write_json;
use super::{Failure, Outcome};
use snowbank_id::layout::UnixMicros;

/// Options of `snowbank range`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The first instant: RFC 3339, a date (its first instant in UTC), or Unix milliseconds
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    from: String,
    /// The last instant, included with its whole tick; a date means its first instant, not its last
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    to: String,
    /// The IDs' layout: a preset's name, or a layout in text form; see `snowbank layout` [default:
    /// twitter]
    #[arg(long, value_name = "NAME|SPEC")]
    layout: Option<String>,
    /// Print one JSON object instead of two lines
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let chosen = Chosen::resolve(arguments.layout.as_deref().unwrap_or(ASSUMED_LAYOUT))?;
    let from = instant("--from", &arguments.from)?;
    let to = instant("--to", &arguments.to)?;
    let (first, last) = chosen.layout.range(from, to).map_err(Failure::usage)?;
    let mut answer = Vec::new();
    if arguments.json {
        // IDs are strings, because JavaScript's numbers are exact only up to 2^53.
        let mut bounds = json!({
            "layout": chosen.label(),
            "from": from.to_string(),
            "to": to.to_string(),
            "first": first.to_string(),
            "last": last.to_string(),
        });
        if arguments.layout.is_none() {
            bounds["layout_assumed"] = true.into();
        }
        write_json(&bounds, &mut answer)?;
    } else {
        if arguments.layout.is_none() {
            // Programs read the two lines of standard output.
            let _ = writeln!(io::stderr(), "of layout {ASSUMED_LAYOUT}, assumed (--layout)");
        }
        writeln!(answer, "{first}\n{last}")?;
    }
    Ok(out.write_all(&answer)?)
}

/// Reads an instant. `option` names its place in messages.
pub(super) fn instant(option: &str, text: &str) -> Result<UnixMicros, Failure> {
    UnixMicros::read(text).map_err(|error| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let hint = match text.len() {
            16 if is_number => "; of microseconds, leave off the last three digits",
            19 if is_number => "; of nanoseconds, leave off the last six digits",
            _ if text.contains(['.', 'e', 'E']) && text.parse::<f64>().is_ok() => {
                "; of seconds with a fraction, write whole milliseconds"
            }
            _ => "",
        };
        Failure::usage(format_args!("{option}: {error}{hint}"))
    })
}
