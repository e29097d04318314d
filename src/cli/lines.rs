//! The lines of `snowbank next`: each ID in the format that was asked for, with the fields that the
//! caller chose.

use std::io::Write;

use serde::Serialize;

use super::alias_keys::KeyOptions;
use super::write_json;
use super::{Failure, Outcome};
use snowbank_id::format::{Codec, Context, Format};
use snowbank_id::layout::{ChosenField, Layout};
use snowbank_wire::info::{Info, Source};

/// The options of the lines.
#[derive(Debug, clap::Args)]
pub(super) struct LineOptions {
    /// The form of the IDs: decimal, hex, base62, base62-shuffled, base32-crockford,
    /// base32-crockford-check, objectid, uuidv7, uuidv8, alias, or dictionary:CHARACTERS with 2 to
    /// 94 characters as digits.
    #[arg(long, value_name = "NAME", default_value = "decimal")]
    format: Format,

    #[command(flatten)]
    keys: KeyOptions,

    /// Choose the value of a random field, as in table=316; repeat it for others.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = parse_field)]
    set: Vec<(String, u64)>,

    /// Write one JSON object per line: {"id":"…"}, and with --format also "text". The ID is a
    /// string, because many readers keep only 53 bits of a number.
    #[arg(long)]
    json: bool,
}

impl LineOptions {
    /// Returns true if the lines need the source's name or layout, which INFO returns.
    pub(super) fn need_info(&self) -> bool {
        self.format.needs_layout() || self.format.needs_source() || !self.set.is_empty()
    }

    /// Chooses the values of random fields of the source's layout.
    fn choose(&self, source: &str, layout: Option<&Layout>) -> Result<Vec<ChosenField>, Failure> {
        let mut chosen = Vec::new();
        for (index, (field, value)) in self.set.iter().enumerate() {
            if self.set[..index].iter().any(|(earlier, _)| earlier == field) {
                return Err(Failure::usage(format_args!("--set: {field:?} is set twice; set it once")));
            }
            let layout = layout.ok_or_else(|| {
                Failure::usage(format_args!(
                    "--set: the numbers of {source:?} have no fields; leave --set out"
                ))
            })?;
            let field = layout.choose(field, *value);
            chosen.push(field.map_err(|error| Failure::usage(format_args!("--set: {error}")))?);
        }
        Ok(chosen)
    }
}

fn parse_field(text: &str) -> Result<(String, u64), String> {
    let parts = text.split_once('=').and_then(|(field, value)| Some((field.to_owned(), value.parse().ok()?)));
    parts.ok_or_else(|| "allowed: the name of a field and a number, as in table=316".to_owned())
}

/// The output: one line for each ID.
pub(super) struct Lines<'a, W> {
    codec: Codec,
    chosen: Vec<ChosenField>,
    is_decimal: bool,
    json: bool,
    out: &'a mut W,
}

impl<'a, W: Write> Lines<'a, W> {
    /// Checks the options against the source. `info` is needed if
    /// [`need_info`](LineOptions::need_info) returns true.
    pub(super) fn new(
        options: &LineOptions,
        source: Option<&str>,
        info: Option<&Info>,
        out: &'a mut W,
    ) -> Result<Self, Failure> {
        let found = info.map(|info| find(info, source)).transpose()?;
        let name = found.map_or("", |source| source.name.as_str());
        let layout = found.and_then(|source| source.layout.as_deref());
        let layout = layout.map(Layout::resolve).transpose().map_err(Failure::no)?;
        let codec = options.keys.codec(&options.format, Context::new(name, layout.as_ref()))?;
        let chosen = options.choose(name, layout.as_ref())?;
        let is_decimal = options.format == Format::Decimal;
        Ok(Lines { codec, chosen, is_decimal, json: options.json, out })
    }

    pub(super) fn write(&mut self, batch: &[u64]) -> Outcome {
        let mut text = String::new();
        for id in batch {
            let id = self.chosen.iter().try_fold(*id, |id, field| field.set(id)).map_err(Failure::no)?;
            text.clear();
            self.codec.write(id, &mut text).map_err(Failure::no)?;
            if self.json {
                let text = (!self.is_decimal).then_some(&*text);
                write_json(&Line { id: id.to_string(), text }, self.out)?;
            } else {
                writeln!(self.out, "{text}")?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }
}

#[derive(Serialize)]
struct Line<'a> {
    /// A string, because JavaScript's numbers are exact only up to 2^53.
    id: String,
    /// The ID in the format of `--format`; `None` if that is decimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Returns the source of that name; without a name, the first.
fn find<'a>(info: &'a Info, source: Option<&str>) -> Result<&'a Source, Failure> {
    let found = match source {
        Some(name) => info.source(name),
        None => info.sources.first(),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = info.sources.iter().map(|source| source.name.as_str()).collect();
        let wanted = source.unwrap_or_default();
        Failure::no(format_args!("the daemon has no source named {wanted:?}; it has {}", known.join(", ")))
    })
}
