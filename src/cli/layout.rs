//! `snowbank layout`.

use std::io::{self, Write};

use serde::Serialize;

use super::chosen::Chosen;
use super::sql::{self, Dialect};
use super::{Outcome, write_json};
use crate::config::Grouped;
use crate::os_clock;
use snowbank_id::layout::{FieldForm, FieldSize, Layout, LayoutTable, Life, PRESETS, Role};

/// Options of `snowbank layout`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A preset's name, or a layout such as time:41,worker:10,sequence:12;tick=1ms;epoch=2026-01-01
    #[arg(value_name = "NAME|SPEC")]
    layout: Option<String>,
    /// Print JSON: one object, or for the table an array of them
    #[arg(long)]
    json: bool,
    /// Print SQL for a database: from an ID to its time, and from a time to its first ID
    #[arg(long, value_name = "DATABASE", requires = "layout", conflicts_with = "json")]
    sql: Option<Dialect>,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let mut page = Vec::new();
    match &arguments.layout {
        Some(name_or_spec) => {
            let chosen = Chosen::resolve(name_or_spec)?;
            match arguments.sql {
                Some(dialect) => page.write_all(sql::functions(&chosen, dialect).as_bytes())?,
                None if arguments.json => write_json(&Facts::of(&chosen), &mut page)?,
                None => write_page(&chosen, &mut page)?,
            }
        }
        None => {
            let presets: Vec<Chosen> =
                PRESETS.iter().map(|preset| Chosen::resolve(preset.name)).collect::<Result<_, _>>()?;
            if arguments.json {
                write_json(&presets.iter().map(Facts::of).collect::<Vec<_>>(), &mut page)?;
            } else {
                write_table(&presets, &mut page)?;
            }
        }
    }
    Ok(out.write_all(&page)?)
}

/// The output of `--json` for a layout. `fields` has the form of a layout table in a configuration.
#[derive(Serialize)]
struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    spec: String,
    tick_ms: u64,
    epoch_unix_ms: i64,
    ids_per_tick: u64,
    ids_per_second: u64,
    workers: u64,
    first: String,
    last: String,
    max_digits: u32,
    fields: Vec<FieldForm>,
    /// What is probably wrong with the layout, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Facts {
    fn of(chosen: &Chosen) -> Self {
        let layout = &chosen.layout;
        Facts {
            name: chosen.preset.map(|preset| preset.name),
            spec: layout.to_string(),
            tick_ms: layout.tick_ms(),
            epoch_unix_ms: layout.epoch_unix_ms(),
            ids_per_tick: layout.ids_per_tick(),
            ids_per_second: layout.ids_per_second(),
            workers: layout.workers(),
            first: layout.rfc3339(layout.first()),
            last: layout.rfc3339(layout.last()),
            max_digits: layout.max_digits(),
            fields: LayoutTable::from(layout).fields,
            warnings: layout.doubts(os_clock::read().wall).iter().map(ToString::to_string).collect(),
        }
    }
}

fn write_table(presets: &[Chosen], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<15} {:>5} {:>12} {:>12}  {:<10}  {:<10} {:>6}",
        "PRESET", "TICK", "IDS/S/WORKER", "WORKERS", "FIRST", "LAST", "DIGITS"
    )?;
    for chosen in presets {
        let Chosen { preset: Some(preset), layout } = chosen else { continue };
        writeln!(
            out,
            "{:<15} {:>5} {:>12} {:>12}  {}  {} {:>6}",
            preset.name,
            tick(layout),
            Grouped(layout.ids_per_second()).to_string(),
            Grouped(layout.workers()).to_string(),
            layout.first().date(),
            layout.last().date(),
            layout.max_digits()
        )?;
        writeln!(out, "  {}", preset.about)?;
    }
    writeln!(out, "\n`snowbank layout NAME` shows one.")
}

fn write_page(chosen: &Chosen, out: &mut impl Write) -> io::Result<()> {
    let layout = &chosen.layout;
    if let Some(preset) = chosen.preset {
        writeln!(out, "{}\n{}\n", preset.name, preset.about)?;
    }
    writeln!(out, "{layout}\n")?;
    write_fields(layout, out)?;
    writeln!(out, "(x: what one step of the field adds to an ID)\n")?;
    let first = layout.rfc3339(layout.first());
    let last = layout.rfc3339(layout.last());
    writeln!(out, "tick            {}", tick(layout))?;
    writeln!(out, "IDs per tick    {} of each worker", Grouped(layout.ids_per_tick()))?;
    writeln!(out, "IDs per second  {} of each worker", Grouped(layout.ids_per_second()))?;
    writeln!(out, "workers         {} (0 to {})", Grouped(layout.workers()), layout.workers() - 1)?;
    writeln!(out, "first           {first} (the epoch, Unix ms {})", layout.epoch_unix_ms())?;
    writeln!(out, "last            {last}{}", left(layout))?;
    writeln!(out, "last ID         {} ({} digits)", layout.last_id(), layout.max_digits())?;
    layout.doubts(os_clock::read().wall).iter().try_for_each(|doubt| writeln!(out, "warning: {doubt}"))
}

fn left(layout: &Layout) -> String {
    match layout.life(os_clock::read().wall) {
        Life::Running { left } => format!(" ({:.1} years left)", left.as_secs_f64() / (365.25 * 86_400.0)),
        Life::LastYear { left } => format!(" ({} days left)", left.as_secs() / 86_400),
        Life::NotBegun => " (not begun)".to_owned(),
        Life::Ended { .. } => " (ended)".to_owned(),
    }
}

/// Returns a text such as `10 ms` or `1 s`.
fn tick(layout: &Layout) -> String {
    match layout.tick_ms() {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// Writes a line for each field: its name, size, role, and the amount that one step of it adds to
/// an ID.
fn write_fields(layout: &Layout, out: &mut impl Write) -> io::Result<()> {
    let name_width = layout.fields().iter().map(|field| field.name().len()).max().unwrap_or(0);
    for field in layout.fields() {
        let size = match field.size() {
            FieldSize::Bits(1) => "1 bit".to_owned(),
            FieldSize::Bits(bits) => format!("{bits} bits"),
            FieldSize::Digits(1) => "1 digit".to_owned(),
            FieldSize::Digits(digits) => format!("{digits} digits"),
            FieldSize::Count(count) => format!("{count} values"),
        };
        let role = match field.role() {
            Role::Time => format!("of {}", tick(layout)),
            Role::Sequence => "per tick".to_owned(),
            Role::Node => "node".to_owned(),
            Role::Constant(value) => format!("always {value}"),
            Role::Random => "random".to_owned(),
        };
        writeln!(out, "{:<name_width$}  {size:<11}  {role:<10}  x {}", field.name(), field.weight())?;
    }
    Ok(())
}
