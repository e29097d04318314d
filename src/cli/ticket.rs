//! `snowbank ticket set`: stores the highest number of a ticket source, above which it continues.

use std::io::Write;

use snowbank_client::layout::Position;

use super::state::{Directory, LockDirectory, refuse_foreign};
use super::{Failure, Outcome};
use crate::ceiling::store::{self, Record, StateDir};
use crate::ceiling::{HostIdentity, Mark, Owner, lock_workers};
use crate::config::{SOURCE_NAME, is_source_name};
use crate::numbering::{LAST_ID, Numbering, TicketCounter};

const HELP: &str = "\
No clock protects a ticket source: while nothing is stored of its counter, `serve` refuses it. VALUE is the highest number \
that was ever handed out, by Snowbank or by what it takes over from, and 0 for a new table. The source goes on with the \
first number of its increment and offset above VALUE. Stop the daemon that uses the state directory first. A counter that \
is stored here already only moves up.

Exit codes:
  0  stored
  1  refused: in use, or numbers above VALUE may have been handed out
  2  wrong use";

/// Options of `snowbank ticket`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Store the highest number that was handed out: the source continues above it
    #[command(after_help = HELP)]
    Set(SetArguments),
}

#[derive(Debug, clap::Args)]
struct SetArguments {
    /// The source's name
    #[arg(value_parser = parse_name)]
    name: String,
    /// The highest number that was ever handed out; 0 if none was
    #[arg(value_parser = parse_value, allow_hyphen_values = true)]
    value: u64,
    /// The source's increment. Needed if a daemon on this machine counts the same name with another offset
    #[arg(long, value_name = "N", default_value_t = 1)]
    increment: u64,
    /// The source's offset
    #[arg(long, value_name = "N", default_value_t = 1)]
    offset: u64,
    #[command(flatten)]
    directory: Directory,
    #[command(flatten)]
    locks: LockDirectory,
}

fn parse_name(name: &str) -> Result<String, String> {
    is_source_name(name).then(|| name.to_owned()).ok_or_else(|| format!("allowed: {SOURCE_NAME}"))
}

fn parse_value(text: &str) -> Result<u64, String> {
    let value = text.parse().ok().filter(|&value| value <= LAST_ID);
    value.ok_or_else(|| format!("allowed: a whole number from 0 to {LAST_ID}"))
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    match &arguments.command {
        Command::Set(arguments) => set(arguments, out),
    }
}

fn set(arguments: &SetArguments, out: &mut impl Write) -> Outcome {
    let SetArguments { name, value, increment, offset, directory, locks: LockDirectory { lock_dir } } =
        arguments;
    let path = directory.path()?;
    let directory = StateDir::lock(&path).map_err(Failure::no)?;
    let mut records = directory.read().map_err(Failure::no)?;
    refuse_foreign(&records, &path)?;
    // The configuration may have another increment and offset: the source then starts above the value as well. Counted by
    // ones, any value has a position.
    let counter = TicketCounter::new(name, *increment, *offset).map_err(Failure::usage)?;
    let numbering = Numbering::Ticket(counter);
    // Held until it is durable: no daemon of this machine has the counter meanwhile.
    let locks = lock_workers(lock_dir, &numbering).map_err(Failure::no)?;
    let owner = Owner::after(records.iter().map(|record| &record.owner));
    let ceiling = numbering.position_from(value + 1);
    if ceiling == numbering.end() {
        let allowed = numbering.id_at(Position(ceiling.0 - 1)) - 1;
        return Err(Failure::usage(format_args!(
            "source {name:?}: found {value}, allowed: up to {allowed}, because the source has no number above {value}"
        )));
    }
    let wanted = Record::new(name, &numbering, ceiling, &owner, &HostIdentity::here());
    // It records no time, because a record of this boot would be taken for a daemon's belief of the clock.
    let wanted = Record { clean: true, boot: None, ..wanted };
    let stored = records.iter().find(|record| record.key() == wanted.key());
    let marks = locks.marks().map_err(Failure::no)?;
    if stored.is_some_and(|stored| stored.released) || marks.iter().any(|mark| mark.is_released) {
        return Err(Failure::no(format_args!(
            "source {name:?}: `snowbank state export` moved its counter away; bring it back with `snowbank state import`"
        )));
    }
    let by_state = stored.map(|stored| (stored.id_bound, format!("the state in {}", path.display())));
    let by_mark =
        marks.iter().map(|mark| (mark.id_bound, format!("the counter's lock in {}", lock_dir.display())));
    let highest = by_state.into_iter().chain(by_mark).max();
    if let Some((bound, place)) = highest.filter(|&(bound, _)| bound > wanted.id_bound) {
        let highest = bound - 1;
        return Err(Failure::no(format_args!(
            "source {name:?}: found {value}, allowed: from {highest} on, because numbers up to {highest} may have been handed \
             out, by {place}"
        )));
    }
    let mark = Mark { id_bound: wanted.id_bound, state: owner.state.clone(), is_released: false };
    records.retain(|record| record.key() != wanted.key());
    records.push(wanted);
    store::write(&directory, &records).map_err(Failure::no)?;
    locks.mark(&mark).map_err(|error| {
        Failure::no(format_args!("cannot mark the counter's lock: {error}; run the command again"))
    })?;
    Ok(writeln!(out, "source {name:?} goes on above {value}")?)
}
