//! `snowbank decode`.

use std::io::Write;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::chosen::{Chosen, TICKET};
use super::keys::KeyOptions;
use super::layout::write_json;
use super::{Failure, Outcome};
use snowbank_id::format::{Context, Format};
use snowbank_id::layout::Role;

/// Options of `snowbank decode`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The IDs, in decimal or in the format of --from
    #[arg(value_name = "ID", required = true, allow_negative_numbers = true)]
    ids: Vec<String>,
    /// The format of the IDs: decimal, or one that `snowbank next --format` writes
    #[arg(long, value_name = "NAME", default_value = "decimal")]
    from: Format,
    /// The source that made the IDs: UUIDs hold a digest of its name
    #[arg(long, value_name = "NAME", default_value = "default")]
    source: String,
    #[command(flatten)]
    keys: KeyOptions,
    /// The IDs' layout: a preset's name, or a layout in text form; see `snowbank layout`. "ticket"
    /// stands for the numbers of a ticket counter, which have no fields
    #[arg(long, value_name = "NAME|SPEC", default_value = "twitter")]
    layout: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let chosen = match arguments.layout.as_str() {
        TICKET => None,
        name_or_spec => Some(Chosen::resolve(name_or_spec)?),
    };
    let layout = chosen.as_ref().map(|chosen| &chosen.layout);
    let codec = arguments.keys.codec(&arguments.from, Context::new(&arguments.source, layout))?;
    // Nothing is printed before all IDs are read, so that a mistake in the last ID does not leave
    // half of an answer.
    let mut lines = Vec::new();
    for text in &arguments.ids {
        let id = match (&arguments.from, layout) {
            (Format::Decimal, Some(layout)) => layout.parse_id(text).map_err(Failure::usage)?,
            _ => codec.read(text).map_err(Failure::usage)?,
        };
        match &chosen {
            Some(chosen) => write_decoded(chosen, id, arguments.json, &mut lines)?,
            None if arguments.json => {
                write_json(&json!({ "id": id.to_string(), "layout": TICKET }), &mut lines)?;
            }
            None => writeln!(lines, "{id}")?,
        }
    }
    Ok(out.write_all(&lines)?)
}

fn write_decoded(chosen: &Chosen, id: u64, json: bool, lines: &mut Vec<u8>) -> Outcome {
    let decoded = chosen.layout.decode(id).map_err(Failure::usage)?;
    let time = chosen.layout.rfc3339(decoded.instant);
    // If the layout has only one node field, that field already shows the worker ID.
    let has_several = chosen.layout.fields().iter().filter(|field| field.role() == Role::Node).count() > 1;
    let worker_id = has_several.then_some(decoded.worker);
    if json {
        let id = id.to_string();
        let layout = &*chosen.label();
        let unix_ms = decoded.instant.unix_ms();
        write_json(&Line { id, layout, time, unix_ms, worker_id, fields: decoded.fields }, lines)?;
        return Ok(());
    }
    write!(lines, "{id} {time}")?;
    // The first field is the time, which the line has already.
    for (name, value) in &decoded.fields[1..] {
        write!(lines, " {name}={value}")?;
    }
    match worker_id {
        Some(id) => writeln!(lines, " (worker ID {id})")?,
        None => writeln!(lines)?,
    }
    Ok(())
}

#[derive(Serialize)]
struct Line<'a> {
    /// A string, because JavaScript's numbers are exact only up to 2^53.
    id: String,
    layout: &'a str,
    time: String,
    unix_ms: i64,
    /// The worker ID, if it consists of several node fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<u64>,
    /// In the layout's order.
    #[serde(serialize_with = "as_object")]
    fields: Vec<(&'a str, u64)>,
}

fn as_object<S: Serializer>(fields: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().copied())
}
