//! `snowbank ticket set`: stores the highest number of a ticket source. The source continues above
//! that number.

use std::io::Write;
use std::path::{Path, PathBuf};

use snowbank_id::layout::{Position, UnixMicros};

use super::fleet::Fleet;
use super::inputs::{Inputs, STATE_DIRECTORY, environment_of_service};
use super::service_user::unit_of;
use super::state::Directories;
use super::{Failure, Outcome, cores, whole, wrong_use};
use crate::config::{Overrides, SOURCE_NAME, Settings, StateDirChoice, directory_options, is_source_name};
use crate::server::{KernelLog, StartError};
use snowbank_core::source::Kind;
use snowbank_id::numbering::{LAST_ID, Numbering, TicketCounter};
use snowbank_state::store::{self, Record, StateDir};
use snowbank_state::{Mark, Owner, StateError, lock_workers, new_identity};

const HELP: &str = "\
No clock protects a ticket source: while nothing is stored of its counter, `serve` refuses it. VALUE is the highest number \
that was ever handed out, by Snowbank or by what it takes over from, and 0 for a new table. The source goes on with the \
first number of its increment and offset above VALUE. Stop the daemon that uses the state directory first. If the counter \
is stored here already, it can only move up, unless --lower says that the stored number is wrong.

With --config, the source must have kind = \"fleet-ticket\". VALUE is then stored at the fleet's coordinator, for all \
daemons that share the counter. They may run, except with --lower: it makes a new counter, and those that run hand out \
numbers of the old one until they look.

Exit codes:
  0  stored
  1  refused: in use, or numbers above VALUE may have been handed out
  2  wrong use
  3  the coordinator does not answer";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Store the highest number that was handed out: the source continues above it
    #[command(after_help = HELP)]
    Set(SetArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct SetArguments {
    /// The source's name
    #[arg(value_parser = parse_name)]
    name: String,
    /// The highest number that was ever handed out; 0 if none was
    #[arg(value_parser = |text: &str| whole(text, 0..=LAST_ID), allow_hyphen_values = true)]
    value: u64,
    /// The source's increment. Needed if a daemon on this machine counts the same name with another
    /// offset
    #[arg(long, value_name = "N", default_value_t = 1)]
    increment: u64,
    /// The source's offset
    #[arg(long, value_name = "N", default_value_t = 1)]
    offset: u64,
    /// Store VALUE even if a higher number is stored. Only if that number is wrong: no number above
    /// VALUE was handed out
    #[arg(long)]
    lower: bool,
    /// Store VALUE at the coordinator that this configuration names
    #[arg(long, value_name = "FILE", conflicts_with_all = ["increment", "offset"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    directories: Directories,
}

fn parse_name(name: &str) -> Result<String, String> {
    is_source_name(name).then(|| name.to_owned()).ok_or_else(|| format!("allowed: {SOURCE_NAME}"))
}

pub(super) fn run(command: &Command, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let Command::Set(arguments) = command;
    match &arguments.config {
        Some(config) => set_in_fleet(arguments, config, now, out),
        None => set(arguments, out),
    }
}

fn set_in_fleet(arguments: &SetArguments, config: &Path, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let SetArguments { name, value, lower, directories, .. } = arguments;
    if directories.state.is_on_command_line() {
        return Err(Failure::usage(
            "found --config and --state-dir, allowed: one of them; --config stores the value at the coordinator, \
             --state-dir in that directory",
        ));
    }
    let overrides = Overrides::from_variables().map_err(wrong_use)?;
    let inputs = Inputs { config: Some(config.to_owned()), overrides, cores: cores() };
    let (settings, secrets) = inputs.read(now).map_err(StartError::from)?;
    refuse_other_kinds(name, *value, &settings, config)?;
    let mut fleet = Fleet::of(settings, secrets)?;
    let (mut operator, sources) = fleet.operator();
    let source = sources.iter().find(|source| source.name == *name).expect("its kind was checked");
    let numbering = source.numbering().map_err(Failure::usage)?;
    refuse_last(name, *value, &numbering)?;
    operator.set_counter(name, *value, &new_identity(), *lower)?;
    Ok(writeln!(out, "source {name:?} goes on above {value}")?)
}

/// Refuses a source whose counter is not at the coordinator.
fn refuse_other_kinds(name: &str, value: u64, settings: &Settings, config: &Path) -> Result<(), Failure> {
    let shown = config.display();
    let named = settings.sources.iter().find(|source| source.name == name);
    match named.map(|source| source.kind) {
        Some(Kind::SharedTicket) => Ok(()),
        Some(Kind::Ticket) => {
            let counter = named.and_then(|source| source.numbering().ok()?.ticket().cloned());
            let steps = counter.filter(|counter| counter.increment() != 1 || counter.offset() != 1);
            let steps = steps.map_or_else(String::new, |counter| {
                format!(" --increment {} --offset {}", counter.increment(), counter.offset())
            });
            let directory = match &settings.state_dir {
                StateDirChoice::At(path) => Some(path.clone()),
                _ => environment_of_service(unit_of(config).as_deref(), STATE_DIRECTORY).map(PathBuf::from),
            };
            let place = directory_options(directory.as_deref(), &settings.lock_dir);
            let or_own =
                if directory.is_none() { ", with the --state-dir of its daemon if it has one" } else { "" };
            Err(Failure::usage(format_args!(
                "source {name:?} of {shown} has kind = \"ticket\", so its counter is in its daemon's state directory and \
                 not at a coordinator; stop the daemon, and run `snowbank ticket set {name} {value}{steps}{place}` as the \
                 daemon's user{or_own}"
            )))
        }
        Some(Kind::Snowflake) => Err(Failure::usage(format_args!(
            "source {name:?} of {shown} has no counter: its IDs have the time; name a source with kind = \"fleet-ticket\""
        ))),
        None => Err(Failure::usage(format_args!(
            "{shown} has no source {name:?}; name one with kind = \"fleet-ticket\", or do without --config to store the \
             value in a state directory"
        ))),
    }
}

/// Refuses a value above which the source has no number.
fn refuse_last(name: &str, value: u64, numbering: &Numbering) -> Result<(), Failure> {
    let end = numbering.end();
    if numbering.position_from(value + 1) < end {
        return Ok(());
    }
    let allowed = numbering.id_at(Position(end.0 - 1)) - 1;
    Err(Failure::usage(format_args!(
        "source {name:?}: found {value}, allowed: up to {allowed}, because the source has no number above {value}"
    )))
}

/// The cure if the lock's mark is another state's, whose daemon may count another table.
const OTHER_TABLE: &str =
    "; if the daemon of another state directory numbers another table, give this source another name";

fn set(arguments: &SetArguments, out: &mut impl Write) -> Outcome {
    let SetArguments { name, value, increment, offset, lower, directories, .. } = arguments;
    let Directories { state, lock_dir } = directories;
    let path = state.path()?;
    let directory = StateDir::lock(&path)?;
    // The value replaces the counter's record, so it does not matter whose machine wrote that.
    let mut records = directory.read()?;
    let counter = TicketCounter::new(name, *increment, *offset).map_err(Failure::usage)?;
    let numbering = Numbering::from(counter);
    // The lock keeps daemons of this machine from taking the counter before the value is durable.
    let locks = lock_workers(lock_dir, &numbering)?;
    let owner = Owner::after(records.iter().map(|record| &record.owner));
    let ceiling = numbering.position_from(value + 1);
    refuse_last(name, *value, &numbering)?;
    let wanted = Record::new(name, &numbering, ceiling, &owner, &KernelLog::open().host());
    // The bound is not rounded up to a number of this increment and offset, because the
    // configuration may have a different increment and offset. The record names no boot. Otherwise
    // a start in this boot would use the record's clock offsets as if a daemon had stored them.
    let wanted = Record { clean: true, boot: None, ..wanted.below(value + 1) };
    let stored = records.iter().find(|record| record.key() == wanted.key());
    let marks = locks.marks()?;
    if stored.is_some_and(|stored| stored.released) || marks.iter().any(Mark::is_released) {
        return Err(Failure::no(StateError::released(name, &numbering, &directories.options(&path))));
    }
    let by_state = stored.map(|stored| (stored.id_bound, format!("the state in {}", path.display()), ""));
    let by_mark = marks.iter().map(|mark| {
        let or = if mark.state == owner.state { "" } else { OTHER_TABLE };
        (mark.id_bound, format!("the counter's lock in {}", lock_dir.display()), or)
    });
    let highest = by_state.into_iter().chain(by_mark).max();
    if let Some((bound, place, or)) = highest.filter(|(bound, ..)| *bound > wanted.id_bound && !lower) {
        let highest = bound - 1;
        return Err(Failure::no(format_args!(
            "source {name:?}: found {value}, allowed: from {highest} on, because {place} shows that numbers up to {highest} may \
             have been handed out{or}; if that is wrong, and no number above {value} was handed out, add --lower"
        )));
    }
    let mark = Mark::granted(wanted.id_bound, &owner.state);
    let is_lowered = stored.is_some_and(|stored| stored.id_bound > wanted.id_bound);
    let mark_lock = || {
        locks.mark_anew(&mark).map_err(|error| {
            Failure::no(format_args!("cannot mark the counter's lock: {error}; run the command again"))
        })
    };
    // As at a clean stop: if this is interrupted, no mark is above the state.
    if is_lowered {
        mark_lock()?;
    }
    records.retain(|record| record.key() != wanted.key());
    let has_others = records.iter().any(|record| record.numbering.ticket().is_some());
    records.push(wanted);
    store::write(&directory, &records)?;
    mark_lock()?;
    writeln!(out, "source {name:?} goes on above {value}, in the state directory {}", path.display())?;
    if has_others {
        writeln!(
            out,
            "the state's other counters stay where they are (`snowbank state show`): a source that gets an earlier name \
             back goes on there"
        )?;
    }
    Ok(())
}
