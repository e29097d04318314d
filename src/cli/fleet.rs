//! `snowbank fleet`: prepares a fleet at its coordinator, shows who holds which worker number, and frees one.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use super::inputs::Inputs;
use super::layout::write_json;
use super::{Failure, Outcome};
use crate::ceiling::draw_identity;
use crate::clock;
use crate::config::{InheritedAddresses, Overrides, Settings, SourceSettings};
use crate::fleet::{self, Coordinator, CounterKey, Entry, Operator, OperatorError};
use crate::server::StartError;
use serde::Serialize;
use snowbank_client::layout::{Layout, UnixMicros};

const HELP: &str = "\
Reads the configuration that the daemons have: its [fleet] names the coordinator, and its sources the ID spaces.

Exit codes:
  0  done
  1  the answer is no
  2  wrong use, or a mistake in the configuration
  3  the coordinator does not answer";

/// Options of `snowbank fleet`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Prepare the coordinator for a new fleet: once, before its first daemon
    Init(InitArguments),
    /// List the worker numbers that were ever used: who holds which, until when
    List(ListArguments),
    /// Check that the coordinator answers, and that it has this configuration's ID spaces
    Check(Common),
    /// Free the number of a daemon that will not come back
    Release(ReleaseArguments),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The configuration, in TOML
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Box<Overrides>,
}

#[derive(Debug, clap::Args)]
struct InitArguments {
    #[command(flatten)]
    common: Common,
    /// Add this configuration's ID spaces to those that the fleet has
    #[arg(long)]
    add: bool,
}

#[derive(Debug, clap::Args)]
struct ListArguments {
    #[command(flatten)]
    common: Common,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ReleaseArguments {
    #[command(flatten)]
    common: Common,
    /// The worker number, as `snowbank fleet list` shows it
    #[arg(value_name = "NUMBER")]
    number: u64,
    /// The source whose layout the number is of, where the configuration has several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Also if its daemon may still run: it stops within seconds after it notices
    #[arg(long)]
    force: bool,
}

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::NoAnswer(ref answer) if !answer.is_lasting => {
                Failure::Start(StartError::CoordinatorSilent(error.to_string()))
            }
            OperatorError::NoAnswer(_) => Failure::usage(error),
            OperatorError::Refused(_) => Failure::no(error),
        }
    }
}

/// The fleet that a configuration names.
pub(super) struct Fleet {
    settings: Settings,
    coordinator: Box<dyn Coordinator>,
}

impl Common {
    fn open(&self, now: UnixMicros) -> Result<Fleet, Failure> {
        Fleet::open(self.config.clone(), (*self.overrides).clone(), now)
    }
}

impl Fleet {
    /// Reads a configuration, and makes a client of its coordinator.
    pub(super) fn open(
        config: Option<PathBuf>,
        overrides: Overrides,
        now: UnixMicros,
    ) -> Result<Fleet, Failure> {
        let inputs = Inputs {
            config,
            overrides,
            cores: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            inherited: InheritedAddresses::default(),
        };
        let (settings, secrets) = inputs.read(now).map_err(StartError::from)?;
        let access = secrets
            .fleet
            .ok_or_else(|| Failure::usage("the configuration names no coordinator; set fleet.coordinator"))?;
        let coordinator =
            fleet::open(access).map_err(|error| Failure::Start(StartError::no_thread(&error)))?;
        Ok(Fleet { settings, coordinator })
    }

    /// Returns an operator, and the sources of the configuration.
    pub(super) fn operator(&mut self) -> (Operator<'_>, &[SourceSettings]) {
        let Settings { fleet, sources, .. } = &self.settings;
        (
            Operator { coordinator: self.coordinator.as_mut(), name: &fleet.name, horizon: fleet.horizon },
            sources,
        )
    }
}

/// Returns the layouts of sources whose ID spaces differ.
fn layouts(sources: &[SourceSettings]) -> Vec<&Layout> {
    let mut layouts: Vec<&Layout> = Vec::new();
    for source in sources.iter().filter(|source| !source.is_ticket()) {
        if !layouts.iter().any(|layout| layout.space() == source.layout.space()) {
            layouts.push(&source.layout);
        }
    }
    layouts
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Outcome {
    let now = clock::os::read().wall;
    match &arguments.command {
        Command::Init(arguments) => init(arguments, now, out),
        Command::List(arguments) => list(arguments, now, out),
        Command::Check(common) => check(common, now, out),
        Command::Release(arguments) => release(arguments, now, out),
    }
}

fn init(arguments: &InitArguments, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = arguments.common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    if layouts(sources).is_empty() {
        return Err(Failure::usage(
            "no source has worker numbers; `snowbank ticket set NAME VALUE --config FILE` prepares the counter of a ticket \
             source",
        ));
    }
    let spaces: Vec<String> = layouts(sources).iter().map(|layout| layout.space().to_string()).collect();
    let done = if operator.init(&spaces, arguments.add)? { "prepared" } else { "was prepared before" };
    writeln!(out, "fleet {:?} {done}: {}", operator.name, spaces.join(", "))?;
    Ok(())
}

fn list(arguments: &ListArguments, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = arguments.common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    let mut entries = Vec::new();
    for layout in layouts(sources) {
        entries.extend(operator.list(layout, now)?);
    }
    let mut counters = Vec::new();
    for source in sources.iter().filter(|source| source.is_shared_counter()) {
        counters.push(CounterEntry::of(&source.name, operator.counter(&source.name)?));
    }
    if arguments.json {
        let entries = entries.into_iter().map(Listed::Number);
        let all: Vec<Listed> = entries.chain(counters.into_iter().map(Listed::Counter)).collect();
        return write_json(&all, out).map_err(Failure::from);
    }
    if entries.is_empty() && counters.is_empty() {
        writeln!(out, "no worker number was ever used")?;
    }
    for entry in &entries {
        writeln!(out, "{}", line(entry))?;
    }
    for CounterEntry { counter, next, writer } in &counters {
        writeln!(out, "counter {counter:?}: the next free number is {next}, last written by {writer}")?;
    }
    Ok(())
}

/// A line of the list.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Number(Entry),
    Counter(CounterEntry),
}

/// A shared counter at the coordinator.
#[derive(Serialize)]
struct CounterEntry {
    /// The source's name.
    counter: String,
    /// The next free number.
    next: String,
    /// The daemon or the command that wrote it last.
    writer: String,
}

impl CounterEntry {
    fn of(source: &str, key: CounterKey) -> Self {
        CounterEntry { counter: source.to_owned(), next: key.next.to_string(), writer: key.writer }
    }
}

fn line(entry: &Entry) -> String {
    let Entry { number, state, holder, source, until, .. } = entry;
    match *state {
        "held" => {
            format!("{number}: held by {holder} for source {source:?}, until {until} unless it raises that")
        }
        "released" => format!("{number}: free, released by {holder}"),
        "free" => format!("{number}: free since {until}, last held by {holder} for source {source:?}"),
        _ => format!("{number}: {holder}"),
    }
}

fn check(common: &Common, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    for layout in layouts(sources) {
        let entries = operator.list(layout, now)?;
        let count = |state| entries.iter().filter(|entry| entry.state == state).count();
        let (held, unreadable) = (count("held"), count("unreadable"));
        let workers = layout.workers();
        writeln!(out, "{}: {held} of {workers} worker numbers held", layout.space())?;
        if unreadable > 0 {
            return Err(Failure::no(format_args!(
                "{unreadable} keys cannot be read: see snowbank fleet list"
            )));
        }
    }
    for source in sources.iter().filter(|source| source.is_shared_counter()) {
        let next = operator.counter(&source.name)?.next;
        writeln!(out, "counter {:?}: the next free number is {next}", source.name)?;
    }
    Ok(())
}

fn release(arguments: &ReleaseArguments, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = arguments.common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    let named = |source: &&SourceSettings| arguments.source.as_ref().is_none_or(|name| *name == source.name);
    let named: Vec<SourceSettings> = sources.iter().filter(named).cloned().collect();
    let layouts = layouts(&named);
    let [layout] = layouts[..] else {
        return Err(Failure::usage(format_args!(
            "found {} ID spaces, allowed: one; name a source with --source",
            layouts.len()
        )));
    };
    let write = draw_identity();
    let held = operator.release(layout, arguments.number, (&write, now), arguments.force)?;
    writeln!(out, "worker number {} is free; it was held by {}", arguments.number, held.holder)?;
    Ok(())
}
