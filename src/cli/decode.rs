//! `snowbank decode`.

use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::json;

use super::alias_keys::KeyOptions;
use super::chosen::{ASSUMED_LAYOUT, Chosen, TICKET};
use super::next::{Access, converse, describe};
use super::write_json;
use super::{Failure, Outcome};
use crate::config::{self, Overrides};
use crate::os_clock;
use snowbank_client::Address;
use snowbank_id::format::{Context, Format};
use snowbank_id::layout::{Layout, Role, UnixMicros};

/// Options of `snowbank decode`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The IDs, in decimal or in the format of --from. Without any, or with -, they are read from
    /// standard input, as they are copied: blanks, commas, quotes and brackets may stand between them
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    /// The format of the IDs: decimal, or one that `snowbank next --format` writes
    #[arg(long, value_name = "NAME", default_value = "decimal")]
    from: Format,
    /// The source that made the IDs: a daemon may have several, and UUIDs hold a digest of the name
    /// [default: the first one of the daemon or the configuration, else "default"]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    keys: KeyOptions,
    /// The IDs' layout: a preset's name, or a layout in text form; see `snowbank layout`. "ticket"
    /// stands for the numbers of a ticket counter, which have no fields [default: twitter]
    #[arg(long, value_name = "NAME|SPEC")]
    layout: Option<String>,
    /// The configuration of the daemon that made the IDs: the layout is that of --source
    #[arg(long, value_name = "FILE", conflicts_with = "layout")]
    config: Option<PathBuf>,
    /// Ask this daemon for the layout of --source: host:port, [IPv6]:port, tls:host:port or unix:PATH
    #[arg(long, value_name = "ADDR", value_delimiter = ',', value_parser = Address::parse_remote, conflicts_with_all = ["layout", "config"])]
    address: Vec<Address>,
    #[command(flatten)]
    access: Access,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let now = os_clock::read().wall;
    let made = match (&arguments.layout, &arguments.config) {
        _ if !arguments.address.is_empty() => made_by_daemon(arguments)?,
        _ if arguments.access.is_given() => {
            return Err(Failure::usage("found a token file or a TLS option without --address"));
        }
        (_, Some(config)) => made_by_config(config, arguments.source.as_deref(), now)?,
        (name_or_spec, None) => Made {
            source: arguments.source.clone().unwrap_or_else(|| DEFAULT_SOURCE.to_owned()),
            chosen: match name_or_spec.as_deref().unwrap_or(ASSUMED_LAYOUT) {
                TICKET => None,
                name_or_spec => Some(Chosen::resolve(name_or_spec)?),
            },
            is_assumed: name_or_spec.is_none(),
        },
    };
    let layout = made.chosen.as_ref().map(|chosen| &chosen.layout);
    let codec = arguments.keys.codec(&arguments.from, Context::new(&made.source, layout))?;
    // Nothing is printed before all IDs are read, so that a mistake in the last ID does not leave
    // half of an answer.
    let mut lines = Vec::new();
    let texts = texts(arguments)?;
    for text in texts.iter().flat_map(|text| ids_in(text, &arguments.from)) {
        let id = match (&arguments.from, layout) {
            (Format::Decimal, Some(layout)) => layout.parse_id(text).map_err(Failure::usage)?,
            _ => codec.read(text).map_err(Failure::usage)?,
        };
        match &made.chosen {
            Some(chosen) => {
                let line = Line::of(chosen, id, made.is_assumed, now)?;
                if arguments.json { write_json(&line, &mut lines)? } else { line.write(&mut lines)? }
            }
            None if arguments.json => {
                write_json(&json!({ "id": id.to_string(), "layout": TICKET }), &mut lines)?;
            }
            None => writeln!(lines, "{id}")?,
        }
    }
    if lines.is_empty() {
        return Err(Failure::usage("found no ID; give IDs, or write them to standard input"));
    }
    Ok(out.write_all(&lines)?)
}

/// Returns the texts that have the IDs: the arguments, or standard input.
fn texts(arguments: &Arguments) -> Result<Vec<String>, Failure> {
    let mut texts = arguments.ids.clone();
    let of_input = texts.iter_mut().find(|text| *text == "-");
    if of_input.is_none() && !arguments.ids.is_empty() {
        return Ok(texts);
    }
    let mut bytes = Vec::new();
    // A terminal waits for a person, who may not expect it.
    if of_input.is_some() || !io::stdin().is_terminal() {
        let read = io::stdin().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| Failure::no(format_args!("cannot read standard input: {error}")))?;
    }
    if bytes.len() as u64 > INPUT_BYTES_MAX {
        let allowed = "allowed: at most 64 MiB of IDs; split it";
        return Err(Failure::usage(format_args!("found more on standard input, {allowed}")));
    }
    let input = String::from_utf8_lossy(&bytes).into_owned();
    match of_input {
        Some(text) => *text = input,
        None => texts.push(input),
    }
    Ok(texts)
}

/// The most bytes that are read: nothing is printed before all IDs are read.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Returns the IDs in a text. What lists and programs put around values is no part of them, unless a
/// dictionary has it as a digit.
fn ids_in<'t>(text: &'t str, format: &Format) -> impl Iterator<Item = &'t str> + use<'t> {
    // A dictionary's name has its digits.
    let format = format.to_string();
    let is_around =
        move |c: char| c.is_whitespace() || ",;'\"`()[]\u{feff}".contains(c) && !format.contains(c);
    text.split(is_around).filter(|id| !id.is_empty())
}

/// The name of the source of a daemon without a configuration.
const DEFAULT_SOURCE: &str = "default";

/// What made the IDs.
struct Made {
    source: String,
    /// The layout; `None` for a ticket counter.
    chosen: Option<Chosen>,
    /// True if nobody named the layout.
    is_assumed: bool,
}

/// Returns the source of this name in a configuration, or its first one.
fn made_by_config(path: &Path, name: Option<&str>, now: UnixMicros) -> Result<Made, Failure> {
    let text = config::read_file(path).map_err(Failure::usage)?;
    let loaded = config::load(Some((path, &text)), &Overrides::default(), NonZeroUsize::MIN, now);
    let settings = loaded.map_err(|mistakes| Failure::usage(mistakes.first_line()))?;
    let names = settings.sources.iter().map(|source| source.name.as_str());
    let source = &settings.sources[index_of(name, names, &path.display().to_string())?];
    let chosen = source.own_layout().map(Chosen::of_layout);
    Ok(Made { source: source.name.clone(), chosen, is_assumed: false })
}

/// Asks a daemon for its source of this name, or its first one.
fn made_by_daemon(arguments: &Arguments) -> Result<Made, Failure> {
    let mut answer = None;
    converse(async {
        let client = arguments.access.client(&arguments.address)?;
        answer = Some(describe(&client).await?);
        Ok(())
    })?;
    let sources = answer.map(|info| info.sources).unwrap_or_default();
    let names = sources.iter().map(|source| source.name.as_str());
    let source = &sources[index_of(arguments.source.as_deref(), names, "the daemon")?];
    let layout = source.layout.as_deref().map(str::parse::<Layout>).transpose();
    let layout = layout.map_err(|error| {
        Failure::no(format_args!("the daemon's layout of source {:?} cannot be read: {error}", source.name))
    })?;
    let chosen = layout.as_ref().map(Chosen::of_layout);
    Ok(Made { source: source.name.clone(), chosen, is_assumed: false })
}

/// Returns the index of the source of this name, or of the first one. `place` has the sources.
fn index_of<'a>(
    name: Option<&str>,
    mut names: impl Iterator<Item = &'a str> + Clone,
    place: &str,
) -> Result<usize, Failure> {
    let all = names.clone();
    names.position(|it| name.is_none_or(|name| it == name)).ok_or_else(|| {
        let found = name.unwrap_or_default();
        let all: Vec<_> = all.collect();
        Failure::usage(format_args!("--source: found {found:?}, allowed: {}, as in {place}", all.join(", ")))
    })
}

/// More than the IDs of a daemon are ahead of this machine's clock, unless its `max_ahead` is set to
/// more: by `max_ahead`, by a tick, and by what two clocks differ.
const FUTURE_FROM_US: i64 = 60_000_000;

#[derive(Serialize)]
struct Line<'a> {
    /// A string, because JavaScript's numbers are exact only up to 2^53.
    id: String,
    layout: String,
    /// True if nobody named the layout, which may be the wrong one.
    #[serde(skip_serializing_if = "is_false")]
    layout_assumed: bool,
    time: String,
    unix_ms: i64,
    /// True if the ID is further ahead than a daemon's usually are: the layout may be the wrong one.
    #[serde(skip_serializing_if = "is_false")]
    in_future: bool,
    /// The worker ID, if it consists of several node fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<u64>,
    /// In the layout's order.
    #[serde(serialize_with = "as_object")]
    fields: Vec<(&'a str, u64)>,
}

impl<'a> Line<'a> {
    fn of(chosen: &'a Chosen, id: u64, is_assumed: bool, now: UnixMicros) -> Result<Self, Failure> {
        let decoded = chosen.layout.decode(id).map_err(Failure::usage)?;
        // If the layout has only one node field, that field already shows the worker ID.
        let node_fields = chosen.layout.fields().iter().filter(|field| field.role() == Role::Node);
        Ok(Line {
            id: id.to_string(),
            layout: chosen.label(),
            layout_assumed: is_assumed,
            time: chosen.layout.rfc3339(decoded.instant),
            unix_ms: decoded.instant.unix_ms(),
            in_future: decoded.instant.0.saturating_sub(now.0) > FUTURE_FROM_US,
            worker_id: (node_fields.count() > 1).then_some(decoded.worker),
            fields: decoded.fields,
        })
    }

    fn write(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        write!(lines, "{} {}", self.id, self.time)?;
        // The first field is the time, which the line has already.
        for (name, value) in &self.fields[1..] {
            write!(lines, " {name}={value}")?;
        }
        let mut remarks = Vec::new();
        remarks.extend(self.worker_id.map(|id| format!("worker ID {id}")));
        remarks.extend(self.in_future.then(|| String::from("in the future: is it another layout's?")));
        remarks.extend(self.layout_assumed.then(|| format!("layout {}, assumed", self.layout)));
        if remarks.is_empty() {
            return writeln!(lines);
        }
        writeln!(lines, " ({})", remarks.join("; "))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn as_object<S: Serializer>(fields: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().copied())
}
