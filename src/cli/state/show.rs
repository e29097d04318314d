//! `snowbank state show`: the stored record of each source, and the marks of its worker IDs on this
//! machine.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::super::layout::write_json;
use super::super::{Failure, Outcome};
use super::marks::{self, MarkShown};
use super::{Directory, LockDirectory, no_state};
use crate::ceiling::store::{self, Record};
use crate::ceiling::{HostIdentity, Owner, Seen, survey};
use crate::clock;
use crate::numbering::Numbering;
use snowbank_client::layout::UnixMicros;

pub(super) const HELP: &str = "\
Works while a daemon runs: it reads the state and the lock files, and never writes. A mark is in the lock file of a worker \
ID until the machine's next boot: the lowest ID that was never granted, and the state that granted the others.

Exit codes:
  0  shown; if a mark cannot be read, its line says so
  1  there is no state, or it cannot be read
  2  wrong use";

/// The most readings of the state. Each raise by a daemon while the marks are read causes another.
const ATTEMPTS: usize = 10;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    directory: Directory,
    #[command(flatten)]
    locks: LockDirectory,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let path = arguments.directory.path()?;
    let lock_dir = &arguments.locks.lock_dir;
    let Snapshot { holder, records, seen } = read(&path, lock_dir)?;
    let now = clock::os::read().wall;
    let here = HostIdentity::here();
    let mut sources = Vec::new();
    for (record, seen) in records.iter().zip(&seen) {
        sources.push(Shown::of(record, marks::of(record, seen, &records, now), now, &here));
    }
    let mut answer = Vec::new();
    if arguments.json {
        let state_dir = path.display().to_string();
        let lock_dir = lock_dir.display().to_string();
        write_json(&Shows { state_dir, in_use: holder.is_some(), lock_dir, sources }, &mut answer)?;
    } else {
        let is_in_use = holder.is_some();
        let use_of = holder.map_or_else(|| String::from("not in use"), |holder| format!("in use{holder}"));
        writeln!(answer, "state in {}, {use_of}", path.display())?;
        sources.iter().try_for_each(|source| source.write(is_in_use, lock_dir, &mut answer))?;
    }
    Ok(out.write_all(&answer)?)
}

/// A state at one moment.
struct Snapshot {
    /// The daemon that uses it, as [`store::holder`] names it.
    holder: Option<String>,
    records: Vec<Record>,
    /// By record, the marks of its worker IDs.
    seen: Vec<Vec<Seen>>,
}

/// Reads the records, their marks and the holder at one moment. A mark compared with a ceiling from
/// before its raise would seem to lie beyond it, and the ceiling of a daemon that has stopped
/// meanwhile would seem to be left by a crash.
fn read(path: &Path, lock_dir: &Path) -> Result<Snapshot, Failure> {
    let mut holder = store::holder(path);
    let mut records = store::read(path).map_err(Failure::no)?;
    for _ in 0..ATTEMPTS {
        if records.is_empty() {
            return Err(no_state(path));
        }
        let seen = records.iter().map(|record| survey(lock_dir, &record.numbering)).collect();
        let holder_after = store::holder(path);
        let records_after = store::read(path).map_err(Failure::no)?;
        if holder_after == holder && records_after == records {
            return Ok(Snapshot { holder, records, seen });
        }
        holder = holder_after;
        records = records_after;
    }
    Err(Failure::no(format_args!(
        "the state in {} changed at each of {ATTEMPTS} readings; try again",
        path.display()
    )))
}

/// The output of `show --json`.
#[derive(Serialize)]
struct Shows<'a> {
    state_dir: String,
    in_use: bool,
    lock_dir: String,
    sources: Vec<Shown<'a>>,
}

/// One source of the output. Positions and IDs are strings, because JavaScript's numbers end at
/// 2^53.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    #[serde(flatten)]
    made_of: MadeOf,
    ceiling_position: String,
    ceiling_id: String,
    owner: &'a Owner,
    boot: Option<&'a str>,
    this_boot: Option<bool>,
    machine: Option<&'a str>,
    this_machine: Option<bool>,
    wall_minus_boot_us: i64,
    clean: bool,
    untouched: bool,
    released: bool,
    restored: bool,
    /// True if a fleet assigned the worker IDs.
    assigned: bool,
    /// True if no source has them any more.
    retired: bool,
    /// The marks of its worker IDs. Equal ones are one entry.
    marks: Vec<MarkShown>,
}

/// The numbering of a source. Only a layout has a time.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum MadeOf {
    Snowflake {
        layout: String,
        worker_ids: String,
        ceiling_time: String,
        /// Negative: behind the wall clock.
        ahead_ms: i64,
    },
    Ticket {
        increment: String,
        offset: String,
    },
}

impl MadeOf {
    fn of(record: &Record, now: UnixMicros) -> Self {
        match &record.numbering {
            Numbering::Snowflake(numbering) => {
                let layout = numbering.layout();
                let instant = numbering.start_of(numbering.tick_of(record.ceiling));
                MadeOf::Snowflake {
                    layout: layout.to_string(),
                    worker_ids: numbering.workers().to_string(),
                    ceiling_time: layout.rfc3339(instant),
                    ahead_ms: instant.0.saturating_sub(now.0) / 1_000,
                }
            }
            Numbering::Ticket(counter) => MadeOf::Ticket {
                increment: counter.increment().to_string(),
                offset: counter.offset().to_string(),
            },
        }
    }

    fn write(&self, ceiling: &str, id_bound: &str, out: &mut impl Write) -> io::Result<()> {
        match self {
            MadeOf::Snowflake { layout, worker_ids, ceiling_time, ahead_ms } => {
                let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
                let side = if *ahead_ms < 0 { "behind" } else { "ahead of" };
                writeln!(out, "  layout      {layout}")?;
                writeln!(out, "  worker IDs  {worker_ids}")?;
                writeln!(out, "  ceiling     {ceiling_time}, {ahead:?} {side} now")?;
                writeln!(out, "              position {ceiling}; every ID handed out is below {id_bound}")
            }
            MadeOf::Ticket { increment, offset } => {
                writeln!(out, "  counter     increment {increment}, offset {offset}")?;
                writeln!(out, "  ceiling     position {ceiling}; every number handed out is below {id_bound}")
            }
        }
    }
}

/// Returns whether two identities are the same; `None` if one of them is not known.
fn are_same(there: Option<&str>, here: Option<&str>) -> Option<bool> {
    Some(there? == here?)
}

/// Returns the words for a boot or a machine that is this one, another, or not known.
fn whose(is_this: Option<bool>, what: &str) -> String {
    match is_this {
        Some(true) => format!("this {what}"),
        Some(false) => format!("another {what}"),
        None => String::from("not known"),
    }
}

impl<'a> Shown<'a> {
    fn of(record: &'a Record, marks: Vec<MarkShown>, now: UnixMicros, here: &HostIdentity) -> Self {
        Shown {
            name: &record.name,
            made_of: MadeOf::of(record, now),
            ceiling_position: record.ceiling.0.to_string(),
            ceiling_id: record.id_bound.to_string(),
            owner: &record.owner,
            boot: record.boot.as_deref(),
            this_boot: are_same(record.boot.as_deref(), here.boot.as_deref()),
            machine: record.machine.as_deref(),
            this_machine: are_same(record.machine.as_deref(), here.machine.as_deref()),
            wall_minus_boot_us: record.wall_minus_boot_us,
            clean: record.clean,
            untouched: record.untouched,
            released: record.released,
            restored: record.restored,
            assigned: record.assigned,
            retired: record.retired,
            marks,
        }
    }

    /// Returns true for a ticket counter that no daemon has used since it was stored.
    fn is_set(&self) -> bool {
        matches!(self.made_of, MadeOf::Ticket { .. }) && self.boot.is_none() && self.clean && !self.released
    }

    fn write(&self, is_in_use: bool, lock_dir: &Path, out: &mut impl Write) -> io::Result<()> {
        let end = match (self.released, self.clean) {
            _ if self.restored => {
                "restored from a snapshot, or shared in a fleet: a source that counts alone is refused until `snowbank ticket set`"
            }
            _ if self.is_set() => "set by `snowbank ticket set`, or imported: no daemon has counted since",
            (true, _) if self.assigned => "exported: the fleet assigns its worker IDs, here too",
            (true, _) => "released: its worker IDs were moved away, and are not used here",
            _ if self.retired && self.assigned => {
                "retired: it is dropped once the fleet's coordinator holds its ceiling"
            }
            _ if self.retired => {
                "retired: `snowbank state forget` drops it once the clock is past its ceiling"
            }
            (false, true) if self.untouched => {
                "clean: it handed out nothing, and the next start goes on where it began"
            }
            (false, true) => "clean: the next start goes on where it ended",
            (false, false) if is_in_use => "running, or it crashed: the next start goes on at the ceiling",
            (false, false) => "not clean, as after a crash: the next start goes on at the ceiling",
        };
        writeln!(out, "source {:?}", self.name)?;
        self.made_of.write(&self.ceiling_position, &self.ceiling_id, out)?;
        if self.assigned {
            writeln!(out, "  assigned        by a fleet's coordinator")?;
        }
        let state = if self.owner.state.is_empty() { "not known" } else { &self.owner.state };
        writeln!(out, "  state       {state}")?;
        if !self.is_set() {
            writeln!(out, "  owner       {}", self.owner)?;
            writeln!(out, "  boot        {}", whose(self.this_boot, "boot"))?;
        }
        writeln!(out, "  machine     {}", whose(self.this_machine, "machine"))?;
        writeln!(out, "  end         {end}")?;
        writeln!(out, "  marks       of this boot, in {}", lock_dir.display())?;
        self.marks.iter().try_for_each(|mark| mark.write(out))
    }
}
