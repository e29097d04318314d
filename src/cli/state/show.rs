//! `snowbank state show`: the stored record of each source, and the marks of its worker IDs on this
//! machine.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::super::write_json;
use super::super::{Failure, Outcome};
use super::shown_marks::{self, MarkShown};
use super::{Directories, no_state};
use crate::os_clock;
use snowbank_core::source::Kind;
use snowbank_id::layout::{Position, UnixMicros};
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Record};
use snowbank_state::{HostIdentity, Seen, survey};

pub(super) const HELP: &str = "\
Works while a daemon runs: it reads the state and the lock files, and never writes. The lock file of a worker ID has a \
mark until the machine's next boot: the lowest ID that was never granted, and the state that granted those below it.

Exit codes:
  0  shown, even if a mark cannot be read
  1  there is no state, or it cannot be read
  2  wrong use";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    directories: Directories,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let path = arguments.directories.state.path()?;
    let lock_dir = &arguments.directories.lock_dir;
    let Snapshot { holder, records, seen } = read(&path, lock_dir)?;
    let now = os_clock::read().wall;
    let here = HostIdentity::here();
    let mut sources = Vec::new();
    let mut forgotten = Vec::new();
    for (record, seen) in records.iter().zip(&seen) {
        if record.forgotten {
            forgotten.push(Forgotten::of(record));
            continue;
        }
        sources.push(Shown::of(record, shown_marks::of(record, seen, &records, now), now, &here));
    }
    let mut answer = Vec::new();
    if arguments.json {
        let state_dir = path.display().to_string();
        let lock_dir = lock_dir.display().to_string();
        let in_use = holder.is_some();
        write_json(&Output { state_dir, in_use, lock_dir, sources, forgotten }, &mut answer)?;
    } else {
        let is_in_use = holder.is_some();
        let usage = holder.map_or_else(|| String::from("not in use"), |holder| format!("in use{holder}"));
        writeln!(answer, "state in {}, {usage}", path.display())?;
        sources.iter().try_for_each(|source| source.write(is_in_use, lock_dir, &mut answer))?;
        for Forgotten { name, layout, id_bound, time } in &forgotten {
            writeln!(answer, "forgotten, last of source {name:?}")?;
            writeln!(answer, "  layout      {layout}")?;
            writeln!(answer, "  ceiling     {time}")?;
            writeln!(
                answer,
                "              no worker ID without a record of its own starts below {id_bound}"
            )?;
        }
    }
    Ok(out.write_all(&answer)?)
}

/// A state at one moment.
struct Snapshot {
    /// The daemon that uses the state, as [`store::holder`] names it.
    holder: Option<String>,
    records: Vec<Record>,
    /// For each record, the marks of its worker IDs.
    seen: Vec<Vec<Seen>>,
}

/// The most attempts to read the state. An attempt fails if a daemon raises a ceiling meanwhile. On
/// an overloaded machine, ten attempts in a row have failed.
const ATTEMPTS: usize = 100;

/// Reads the records, their marks and the holder as of one moment. Otherwise a mark that is newer
/// than its record would seem to be above the ceiling. And a daemon that stops meanwhile would seem
/// to have crashed.
fn read(path: &Path, lock_dir: &Path) -> Result<Snapshot, Failure> {
    for _ in 0..ATTEMPTS {
        let holder = store::holder(path);
        let records = store::read(path)?;
        if records.is_empty() {
            return Err(no_state(path));
        }
        let seen = records.iter().map(|record| survey(lock_dir, &record.numbering)).collect();
        if store::holder(path) == holder && store::read(path)? == records {
            return Ok(Snapshot { holder, records, seen });
        }
    }
    Err(Failure::no(format_args!(
        "the state in {} changed at each of {ATTEMPTS} readings; try again",
        path.display()
    )))
}

#[derive(Serialize)]
struct Output<'a> {
    state_dir: String,
    in_use: bool,
    lock_dir: String,
    sources: Vec<Shown<'a>>,
    forgotten: Vec<Forgotten<'a>>,
}

/// The bound that the forgotten worker IDs of an ID space left behind.
#[derive(Serialize)]
struct Forgotten<'a> {
    /// The name of the source whose record had the bound. `snowbank state lower` needs it.
    name: &'a str,
    layout: String,
    id_bound: String,
    time: String,
}

impl<'a> Forgotten<'a> {
    fn of(record: &'a Record) -> Self {
        let layout = record.numbering.snowflake().map(|(layout, _)| layout);
        let time = layout.zip(record.instant()).map(|(layout, instant)| layout.rfc3339(instant));
        Forgotten {
            name: &record.name,
            layout: layout.map(ToString::to_string).unwrap_or_default(),
            id_bound: record.id_bound.to_string(),
            time: time.unwrap_or_default(),
        }
    }
}

/// One source in the output: its record, as in the state file, and the facts that follow from the
/// record at this time.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    record: &'a Record,
    kind: &'static str,
    /// The last number of a ticket counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    /// False if `last` is only the highest number that can have been handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_is_exact: Option<bool>,
    /// The time of the ceiling. A ticket counter has no time.
    ceiling_time: Option<String>,
    /// How far the ceiling is ahead of the wall clock; negative if it is behind.
    ahead_ms: Option<i64>,
    /// For people only: a container that systemd boots has two boot IDs. `boot` is in the record.
    #[serde(skip)]
    this_boot: Option<bool>,
    this_machine: Option<bool>,
    /// The marks of the source's worker IDs. Neighbours with equal marks and holders are one entry.
    marks: Vec<MarkShown>,
}

/// Returns the last number of a ticket counter, as text. After a clean stop, it is the last that was
/// handed out; otherwise the last that may have been. 0 before the first. `None` if the record does
/// not know it.
fn last_number(record: &Record) -> Option<String> {
    let Record { numbering, restored, id_bound, .. } = record;
    numbering.ticket().filter(|_| !restored)?;
    let Position(next) = numbering.position_from(*id_bound);
    let last = next.checked_sub(1).map_or(0, |last| numbering.id_at(Position(last)));
    Some(last.to_string())
}

/// Returns true if two identities are equal; `None` if one of them is not known.
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
        let layout = record.numbering.snowflake().map(|(layout, _)| layout);
        let instant = record.instant();
        let last = last_number(record);
        let last_is_exact = last.as_deref().map(|last| record.ends_at_a_claim() || last == "0");
        Shown {
            record,
            kind: Kind::of(&record.numbering, false).name(),
            last,
            last_is_exact,
            ceiling_time: layout.zip(instant).map(|(layout, instant)| layout.rfc3339(instant)),
            ahead_ms: instant.map(|instant| instant.0.saturating_sub(now.0) / 1_000),
            this_boot: are_same(record.boot.as_deref(), here.boot.as_deref()),
            this_machine: are_same(record.machine.as_deref(), here.machine.as_deref()),
            marks,
        }
    }

    /// Returns true for a ticket counter that a command stored, and that no daemon has used since.
    fn is_set(&self) -> bool {
        let Record { numbering, boot, clean, released, .. } = self.record;
        numbering.ticket().is_some() && boot.is_none() && *clean && !released
    }

    fn write_ceiling(&self, out: &mut impl Write) -> io::Result<()> {
        let Record { numbering, id_bound, .. } = self.record;
        let Position(ceiling) = self.record.ceiling();
        match numbering {
            Numbering::Snowflake(numbering) => {
                let ahead_ms = self.ahead_ms.unwrap_or(0);
                let ahead = Duration::from_millis(ahead_ms.unsigned_abs());
                let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
                let time = self.ceiling_time.as_deref().unwrap_or_default();
                writeln!(out, "  layout      {}", numbering.layout())?;
                writeln!(out, "  worker IDs  {}", numbering.workers())?;
                writeln!(out, "  ceiling     {time}, {ahead:?} {side} now")?;
                writeln!(out, "              position {ceiling}; every ID handed out is below {id_bound}")
            }
            Numbering::Ticket(counter) => {
                let increment = counter.increment();
                let offset = counter.offset();
                writeln!(out, "  counter     increment {increment}, offset {offset}")?;
                if let Some(last) = &self.last {
                    let at_most = if self.last_is_exact == Some(true) { "" } else { "at most " };
                    writeln!(out, "  last        {at_most}{last}")?;
                }
                writeln!(out, "  ceiling     position {ceiling}; every number handed out is below {id_bound}")
            }
        }
    }

    /// Returns how the source's last run ended, in words.
    fn end(&self, is_in_use: bool) -> &'static str {
        let record = self.record;
        if record.restored {
            return "restored from a snapshot, or shared in a fleet: without the fleet it is refused until `snowbank ticket set`";
        }
        if self.is_set() {
            return "set by `snowbank ticket set`, or imported: no daemon has counted since";
        }
        if record.released && record.assigned {
            return "exported: the fleet assigns its worker IDs, here too";
        }
        if record.released {
            return "released: its worker IDs were moved away, and are not used here";
        }
        if record.retired && record.assigned {
            return "retired: it is dropped once the fleet's coordinator holds its ceiling";
        }
        if record.retired {
            return "retired: `snowbank state forget` drops it once the clock is past its ceiling";
        }
        if record.clean && record.untouched {
            return "clean: it handed out nothing, and the next start goes on where it began";
        }
        if record.clean {
            return "clean: the next start goes on where it ended";
        }
        if is_in_use {
            return "running, or it crashed: the next start goes on at the ceiling";
        }
        "not clean, as after a crash: the next start goes on at the ceiling"
    }

    fn write(&self, is_in_use: bool, lock_dir: &Path, out: &mut impl Write) -> io::Result<()> {
        let record = self.record;
        writeln!(out, "source {:?}", record.name)?;
        self.write_ceiling(out)?;
        if record.assigned {
            writeln!(out, "  assigned    by a fleet's coordinator")?;
        }
        writeln!(out, "  state       {}", record.owner.state)?;
        if !self.is_set() {
            writeln!(out, "  owner       {}", record.owner)?;
            // In a container that systemd boots, a unit with a /proc of its own sees the host's ID.
            let boot = match self.this_boot {
                Some(false) => String::from("another boot ID: the machine booted, or a container has two"),
                same => whose(same, "boot"),
            };
            writeln!(out, "  boot        {boot}")?;
        }
        writeln!(out, "  machine     {}", whose(self.this_machine, "machine"))?;
        writeln!(out, "  end         {}", self.end(is_in_use))?;
        writeln!(out, "  marks       of this boot, in {}", lock_dir.display())?;
        self.marks.iter().try_for_each(|mark| mark.write(out))
    }
}
