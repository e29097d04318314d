//! `snowbank fleet`: prepares a fleet at its coordinator, shows who holds which worker ID, and
//! frees a worker ID.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::inputs::Inputs;
use super::write_json;
use super::{Failure, Outcome, cores};
use crate::config::{Overrides, Secrets, Settings, SourceSettings};
use crate::os_clock;
use crate::server::StartError;
use snowbank_fleet::{Begins, Coordinator, Entry, FleetError, Freeing, Operator, Prepared, Preparing};
use snowbank_id::layout::{Layout, UnixMicros};
use snowbank_state::new_identity;

pub(super) const HELP: &str = "\
Reads the configuration that the daemons have: its [fleet] names the coordinator, and its sources the ID spaces.

Exit codes:
  0  done
  1  the answer is no
  2  wrong use, or a mistake in the configuration
  3  the coordinator does not answer";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prepare the coordinator for a fleet, before its first daemon, or after the coordinator lost
    /// its data
    Init(InitArguments),
    /// List the worker IDs that were ever used: who holds which, until when
    List(Common),
    /// Check what a start checks before it takes a worker ID, and count the fleet's worker IDs
    Check(Common),
    /// Free the worker ID of a daemon that will not come back
    Release(ReleaseArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// The configuration, in TOML
    #[arg(long, env = "SNOWBANK_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Box<Overrides>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct InitArguments {
    #[command(flatten)]
    common: Common,
    /// The fleet is new: no daemon has made IDs of these layouts
    #[arg(long)]
    new: bool,
    /// The floor: a daemon starts above this instant if it takes a worker ID that it did not hold.
    /// `now`, an instant (RFC 3339) or an ID, at or above all IDs that were handed out
    #[arg(long, value_name = "INSTANT|ID", conflicts_with = "new")]
    above: Option<String>,
    /// Lower the fleet's floor to --above. Only if no daemon, not even one whose clock was ahead,
    /// handed out IDs above it
    #[arg(long, requires = "above")]
    lower: bool,
    /// Add this configuration's ID spaces, and replace those that can make the same IDs
    #[arg(long)]
    add: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReleaseArguments {
    #[command(flatten)]
    common: Common,
    /// The worker ID, as `snowbank fleet list` shows it
    #[arg(value_name = "NUMBER")]
    number: u64,
    /// The source that has the worker ID, where the configuration has several layouts
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Free the worker ID even if its daemon may still run: that daemon notices within seconds, and
    /// ends
    #[arg(long)]
    force: bool,
    /// Lower its ceiling to what right clocks explain, even if it is released already. Only if no
    /// daemon, not even one whose clock was ahead, handed out IDs up to it
    #[arg(long)]
    lower: bool,
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::NoAnswer(ref answer) if !answer.is_lasting => {
                Failure::Start(StartError::CoordinatorSilent(error.to_string()))
            }
            FleetError::NoAnswer(_) => Failure::usage(error),
            _ => Failure::no(error),
        }
    }
}

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
    /// Reads a configuration, and makes a client for its coordinator.
    fn open(config: Option<PathBuf>, overrides: Overrides, now: UnixMicros) -> Result<Fleet, Failure> {
        let inputs = Inputs { config, overrides, cores: cores() };
        let (settings, secrets) = inputs.read(now).map_err(StartError::from)?;
        Fleet::of(settings, secrets)
    }

    /// Makes a client for the coordinator of this configuration.
    pub(super) fn of(settings: Settings, secrets: Secrets) -> Result<Fleet, Failure> {
        let access = secrets
            .fleet
            .ok_or_else(|| Failure::usage("found no coordinator; name the daemons' configuration with --config, or set fleet.coordinator in it"))?;
        let coordinator =
            snowbank_fleet::open(access).map_err(|error| Failure::Start(StartError::no_thread(&error)))?;
        Ok(Fleet { settings, coordinator })
    }

    /// Returns an operator, and the sources of the configuration.
    pub(super) fn operator(&mut self) -> (Operator<'_>, &[SourceSettings]) {
        let Settings { fleet, sources, .. } = &self.settings;
        (Operator { coordinator: self.coordinator.as_mut(), name: &fleet.name }, sources)
    }
}

/// Returns one layout for each ID space of the sources.
fn layouts(sources: &[SourceSettings]) -> Vec<&Layout> {
    let mut layouts: Vec<&Layout> = Vec::new();
    for layout in sources.iter().filter_map(SourceSettings::own_layout) {
        if !layouts.iter().any(|other| other.space() == layout.space()) {
            layouts.push(layout);
        }
    }
    layouts
}

pub(super) fn run(command: &Command, out: &mut impl Write) -> Outcome {
    let now = os_clock::read().wall;
    match command {
        Command::Init(arguments) => init(arguments, now, out),
        Command::List(arguments) => list(arguments, now, out),
        Command::Check(common) => check(common, now, out),
        Command::Release(arguments) => release(arguments, now, out),
    }
}

fn init(arguments: &InitArguments, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = arguments.common.open(now)?;
    let limits = fleet.settings.fleet_limits();
    let (mut operator, sources) = fleet.operator();
    let layouts = layouts(sources);
    if layouts.is_empty() {
        return Err(Failure::usage(
            "no source has worker IDs; `snowbank ticket set NAME VALUE --config FILE` prepares the counter of a ticket \
             source",
        ));
    }
    let begins = match &arguments.above {
        Some(text) => {
            let floor = above(text, sources, &layouts, now)?;
            Some(if arguments.lower { Begins::Lowered(floor) } else { Begins::Above(floor) })
        }
        None => arguments.new.then_some(Begins::New),
    };
    let preparing = Preparing { begins, is_growing: arguments.add, limits, now };
    let prepared = operator.init(&layouts, preparing, new_identity)?;
    let spaces: Vec<String> = layouts.iter().map(|layout| layout.space().to_string()).collect();
    if arguments.common.json {
        let mut shown = json!(prepared);
        shown["fleet"] = json!(operator.name);
        shown["spaces"] = json!(spaces);
        if let Some(floor) = prepared.floor {
            shown["above"] = json!(floor.rfc3339(3));
        }
        return Ok(write_json(&shown, out)?);
    }
    write_prepared(operator.name, &spaces.join(", "), &prepared, out)
}

fn write_prepared(name: &str, spaces: &str, prepared: &Prepared, out: &mut impl Write) -> Outcome {
    let Prepared { is_new, added, replaced, lies_below, floor, is_floor_changed, limits } = prepared;
    if *is_new {
        writeln!(out, "fleet {name:?} prepared: {spaces}")?;
    } else if !added.is_empty() || !replaced.is_empty() || limits.is_some() || *is_floor_changed {
        writeln!(out, "fleet {name:?} changed")?;
    } else {
        writeln!(out, "fleet {name:?} is prepared already: {spaces}; nothing changed")?;
    }
    for space in added {
        writeln!(out, "added {space}")?;
    }
    for space in replaced {
        writeln!(
            out,
            "replaced {space}, which could make the same IDs; daemons with that layout are now refused"
        )?;
    }
    for space in lies_below {
        writeln!(
            out,
            "warning: daemons with {space} may have handed out IDs that the added layout makes from now on: use it only for a \
             table that has none of them, or add one whose IDs lie higher"
        )?;
    }
    if let Some(limits) = limits {
        writeln!(out, "the fleet has {limits} now; daemons that are configured otherwise are refused")?;
    }
    if let Some(floor) = floor {
        let floor = floor.rfc3339(3);
        writeln!(out, "a daemon that takes a worker ID which it did not hold starts above {floor}")?;
        if *is_new {
            writeln!(
                out,
                "a daemon of an earlier fleet must ask the coordinator: before it starts, remove the file \"fleet\" from its \
                 state directory"
            )?;
        }
    }
    Ok(())
}

/// Reads `--above`: an instant at or above all IDs handed out.
fn above(
    text: &str,
    sources: &[SourceSettings],
    layouts: &[&Layout],
    now: UnixMicros,
) -> Result<UnixMicros, Failure> {
    if text == "now" {
        // A daemon whose clock is right makes no IDs that are further ahead than `max_ahead`.
        let max_ahead = sources.iter().map(|source| source.max_ahead).max().unwrap_or_default();
        return Ok(UnixMicros(now.0.saturating_add(snowbank_core::clock::micros(max_ahead))));
    }
    let instant = text.parse::<UnixMicros>();
    let Ok(id) = text.parse::<u64>() else {
        return instant.map_err(|_| {
            Failure::usage(format_args!(
                "--above: found {text:?}, allowed: an instant in RFC 3339 (2026-01-31T12:00:00Z), a date, \"now\", or an ID"
            ))
        });
    };
    match layouts {
        [layout] => {
            let floor = snowbank_fleet::above(layout, id);
            let from_now = |instant: UnixMicros| instant.0.abs_diff(now.0);
            match instant {
                // A floor of years ago would not keep IDs apart.
                Ok(instant) if from_now(instant) < from_now(floor) => Err(Failure::usage(format_args!(
                    "--above: found {id}, which as an ID was made {}; for the instant {} write it in RFC 3339",
                    floor.rfc3339(3),
                    instant.rfc3339(3)
                ))),
                _ => Ok(floor),
            }
        }
        _ => Err(Failure::usage(format_args!(
            "--above: found the ID {id}, and the configuration has {} layouts, allowed: an instant above the IDs of all of them",
            layouts.len()
        ))),
    }
}

fn list(common: &Common, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    let layouts = layouts(sources);
    let lists = layouts.iter().map(|layout| operator.list(layout, now));
    let lists: Vec<Vec<Entry>> = lists.collect::<Result<_, _>>()?;
    let counters = read_counters(&mut operator, sources)?;
    if common.json {
        return Ok(write_listed(&lists.concat(), &counters, out)?);
    }
    if lists.iter().all(Vec::is_empty) && counters.is_empty() {
        writeln!(out, "no worker ID was ever used")?;
    }
    for (layout, entries) in layouts.iter().zip(&lists) {
        if lists.len() > 1 && !entries.is_empty() {
            writeln!(out, "{}", layout.space())?;
        }
        entries.iter().try_for_each(|entry| writeln!(out, "{}", line(entry)))?;
    }
    counters.iter().try_for_each(|counter| counter.write(out))?;
    Ok(())
}

fn line(entry: &Entry) -> String {
    let Entry { number, state, holder, source, until, is_free, .. } = entry;
    match *state {
        "held" => {
            format!("{number}: held by {holder} for source {source:?}, until {until} unless it raises that")
        }
        "released" if *is_free => format!("{number}: free, released by {holder}"),
        "released" => format!("{number}: released by {holder}; can be taken once a clock is near {until}"),
        "free" => format!("{number}: free since {until}, last held by {holder} for source {source:?}"),
        _ => format!("{number}: {holder}"),
    }
}

/// A counter of the fleet.
#[derive(Serialize)]
struct CounterEntry {
    counter: String,
    next: String,
    /// The daemon or the command that wrote the counter last.
    writer: String,
}

impl CounterEntry {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let CounterEntry { counter, next, writer } = self;
        writeln!(out, "counter {counter:?}: the next free number is {next}, last written by {writer}")
    }
}

/// Writes a JSON list of entries, and then of counters.
fn write_listed(
    entries: &[impl Serialize],
    counters: &[CounterEntry],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut json = serde_json::Serializer::new(&mut *out);
    let mut list = json.serialize_seq(None)?;
    entries.iter().try_for_each(|entry| list.serialize_element(entry))?;
    counters.iter().try_for_each(|counter| list.serialize_element(counter))?;
    list.end()?;
    writeln!(out)
}

/// Reads the counters of these sources.
///
/// # Errors
/// A counter is not prepared, or the coordinator did not answer.
fn read_counters(
    operator: &mut Operator<'_>,
    sources: &[SourceSettings],
) -> Result<Vec<CounterEntry>, FleetError> {
    let shared = sources.iter().filter(|source| source.kind.takes_ranges());
    let read = shared.map(|source| {
        let key = operator.counter(&source.name)?;
        Ok(CounterEntry { counter: source.name.clone(), next: key.next.to_string(), writer: key.writer })
    });
    read.collect()
}

/// For one ID space, the number of worker IDs in each state. Counts those that the coordinator may
/// assign to this configuration's sources, or all.
#[derive(Serialize)]
struct Counts {
    space: String,
    workers: u64,
    held: u64,
    /// The worker IDs that can be taken: those that were never used, and those whose bound the
    /// clock has passed or nearly reached.
    free: u64,
    unreadable: u64,
}

impl Counts {
    fn new(layout: &Layout, pool: Option<&BTreeSet<u64>>, entries: &[Entry]) -> Counts {
        let space = layout.space();
        let workers = pool.map_or(space.numbers(), |pool| pool.len() as u64);
        let counted = entries.iter().filter(|entry| pool.is_none_or(|pool| pool.contains(&entry.number)));
        let (mut held, mut unreadable) = (0, 0);
        for entry in counted {
            match entry.state {
                "unreadable" => unreadable += 1,
                "held" | "released" if !entry.is_free => held += 1,
                _ => {}
            }
        }
        let free = workers.saturating_sub(held + unreadable);
        Counts { space: space.to_string(), workers, held, free, unreadable }
    }
}

/// Returns the numbers that the coordinator may assign to the sources of this ID space. `None`: a
/// source has worker IDs of its own, or the pool is too large to count.
fn pool(sources: &[SourceSettings], layout: &Layout) -> Option<BTreeSet<u64>> {
    let of_space =
        |source: &&SourceSettings| source.own_layout().is_some_and(|other| other.space() == layout.space());
    let pools = sources.iter().filter(of_space).map(SourceSettings::pool);
    Some(pools.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

fn check(common: &Common, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let mut fleet = common.open(now)?;
    let limits = fleet.settings.fleet_limits();
    let (mut operator, sources) = fleet.operator();
    let layouts = layouts(sources);
    if !layouts.is_empty() {
        operator.check(limits, now)?;
    } else if let Some(source) = sources.iter().find(|source| source.kind.takes_ranges()) {
        operator.check_counter(&source.name)?;
    }
    let mut all = Vec::new();
    for layout in layouts {
        let entries = operator.list(layout, now)?;
        all.push(Counts::new(layout, pool(sources, layout).as_ref(), &entries));
    }
    let counters = read_counters(&mut operator, sources)?;
    let unreadable = all.iter().map(|counts| counts.unreadable).sum();
    if common.json {
        write_listed(&all, &counters, out)?;
    } else {
        for Counts { space, workers, held, free, .. } in &all {
            writeln!(out, "{space}: {held} of {workers} worker IDs held, {free} free")?;
        }
        counters.iter().try_for_each(|counter| counter.write(out))?;
    }
    match unreadable {
        0 => Ok(()),
        1 => Err(Failure::no("1 key cannot be read: see snowbank fleet list")),
        keys => Err(Failure::no(format_args!("{keys} keys cannot be read: see snowbank fleet list"))),
    }
}

fn release(arguments: &ReleaseArguments, now: UnixMicros, out: &mut impl Write) -> Outcome {
    let ReleaseArguments { common, number, source, force, lower } = arguments;
    let mut fleet = common.open(now)?;
    let (mut operator, sources) = fleet.operator();
    let layout = layout_of(sources, source.as_deref())?;
    let space = layout.space().to_string();
    let numbers = layout.space().numbers();
    if *number >= numbers {
        return Err(Failure::usage(format_args!(
            "found worker ID {number}, allowed: 0 to {} in ID space {space}",
            numbers - 1
        )));
    }
    let write = new_identity();
    let freeing = Freeing { write: &write, now, is_forced: *force, is_lowering: *lower };
    let (holder, free_at) = operator.release(layout, *number, freeing)?;
    if common.json {
        let freed = json!({ "space": space, "number": number, "holder": holder });
        return Ok(write_json(&freed, out)?);
    }
    let whose = holder.as_ref().map_or_else(
        || String::from("its key could not be read, so nothing shows which daemon had it"),
        |holder| format!("{holder} had it"),
    );
    let when = free_at.rfc3339(0);
    Ok(writeln!(out, "worker ID {number} is released; {whose}; another daemon can take it from {when} on")?)
}

/// Returns the layout of the named source. Without a name, all sources must have one ID space.
fn layout_of<'a>(sources: &'a [SourceSettings], named: Option<&str>) -> Result<&'a Layout, Failure> {
    let mut names = Vec::new();
    for source in sources {
        // A ticket source has no layout.
        let Some(layout) = source.own_layout() else { continue };
        if named == Some(&*source.name) {
            return Ok(layout);
        }
        names.push(format!("{:?}", source.name));
    }
    let names = names.join(", ");
    match (named, &layouts(sources)[..]) {
        (None, &[layout]) => Ok(layout),
        (Some(name), _) => Err(Failure::usage(format_args!("--source: found {name:?}, allowed: {names}"))),
        (None, several) => Err(Failure::usage(format_args!(
            "the configuration has {} ID spaces: name a source with --source, allowed: {names}",
            several.len()
        ))),
    }
}
