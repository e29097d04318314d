//! `snowbank state`: shows, exports, imports and corrects the state that a daemon keeps over
//! restarts.

mod forget;
mod lower;
mod show;
mod shown_marks;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::inputs::environment_of_operator;
use super::{Failure, Outcome};
use crate::config::{Settings, StateDirChoice, directory_options, open_file};
use crate::server::KernelLog;
use snowbank_id::numbering::Numbering;
use snowbank_state::store::{self, Record, StateDir};
use snowbank_state::{Fate, HostIdentity, Mark, Owner, WorkerLocks, lock_records, readable_marks};

/// The most bytes of an export that are read. The limit refuses a path that names a disk.
const EXPORT_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show each source's ceiling: every ID handed out is below it
    #[command(after_help = show::HELP)]
    Show(show::Arguments),
    /// Release all sources here, and write the file that another machine needs to continue with
    /// their worker IDs
    #[command(after_help = EXPORT_HELP)]
    Export {
        #[command(flatten)]
        directories: Directories,
        /// Write to this new file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Take over the sources of an export; never below IDs that this machine has granted
    #[command(after_help = IMPORT_HELP)]
    Import {
        #[command(flatten)]
        directories: Directories,
        /// The output of `snowbank state export`; `-` for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Drop worker IDs that no source has any more, once the clock is past all IDs granted to them
    #[command(after_help = forget::HELP)]
    Forget(Directory),
    /// Lower the ceilings of a source, because the stored ones are wrong and no ID above INSTANT
    /// was handed out
    #[command(after_help = lower::HELP)]
    Lower(lower::Arguments),
}

const EXPORT_HELP: &str = "\
Stop the daemon first. The sources are durably marked as released before the export is written. From then on a start with \
their worker IDs is refused here, until they are imported again. Exporting again writes the same. Import the file on one \
machine only: Snowbank cannot notice a second import, and both machines would hand out the same IDs.

Worker IDs and counters that the last daemon did not have any more leave only their bounds in the export: another daemon of \
this machine may have them, and continues. To move one of them, start a daemon here with it and a state directory of its own, \
and export that.

Worker IDs that a fleet assigned stay with the fleet, which may assign them to any daemon, also here. For these, the export only \
holds the ID above which their source continues.

Exit codes:
  0  exported
  1  no state, in use, an older copy, or a mark or the export cannot be written
  2  wrong use";

const IMPORT_HELP: &str = "\
Stop the daemon that uses the state directory first.

Exit codes:
  0  imported
  1  refused: in use, not an export, or lower than what was granted here
  2  wrong use";

#[derive(Debug, clap::Args)]
pub(super) struct Directory {
    /// The state directory [default: as `serve`: $STATE_DIRECTORY, else $XDG_STATE_HOME/snowbank,
    /// else ~/.local/state/snowbank]
    #[arg(long, env = "SNOWBANK_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Directories {
    #[command(flatten)]
    pub(super) state: Directory,
    /// The directory of the machine's worker-ID locks, with their marks
    #[arg(long, env = "SNOWBANK_LOCK_DIR", value_name = "DIR", default_value_os_t = Settings::default().lock_dir)]
    pub(super) lock_dir: PathBuf,
}

pub(super) fn run(command: &Command, out: &mut impl Write) -> Outcome {
    match command {
        Command::Show(arguments) => show::run(arguments, out),
        Command::Export { directories, output } => export(directories, output.as_deref(), out),
        Command::Import { directories, file } => import(directories, file, out),
        Command::Forget(directory) => forget::run(directory, out),
        Command::Lower(arguments) => lower::run(arguments, out),
    }
}

impl Directories {
    /// Returns the options by which another command finds these directories.
    pub(super) fn options(&self, state_dir: &Path) -> String {
        directory_options(Some(state_dir), &self.lock_dir)
    }
}

impl Directory {
    /// Returns true if the command line names the directory, and not the environment alone.
    pub(super) fn is_on_command_line(&self) -> bool {
        self.state_dir.is_some()
            && self.state_dir != std::env::var_os("SNOWBANK_STATE_DIR").map(PathBuf::from)
    }

    pub(super) fn path(&self) -> Result<PathBuf, Failure> {
        let choice = StateDirChoice::from(self.state_dir.clone());
        let place = choice.place(environment_of_operator).map_err(Failure::usage)?;
        place.directory.ok_or_else(|| Failure::usage("found --state-dir none, allowed: a directory"))
    }
}

fn no_state(path: &Path) -> Failure {
    Failure::no(format_args!("no state in {}: no daemon has kept any there", path.display()))
}

fn export(directories: &Directories, output: Option<&Path>, out: &mut impl Write) -> Outcome {
    let path = directories.state.path()?;
    let (directory, records) = open_own(&path)?;
    // The locks keep daemons of this machine from taking the worker IDs before the release is
    // durable.
    let (moved, bounds): (Vec<Record>, Vec<Record>) = records.iter().cloned().partition(Record::is_movable);
    let locks = lock_records(&directories.lock_dir, &moved)?;
    let what = format!("the state in {}", path.display());
    let options = directories.options(&path);
    refuse_lower(&moved, &locks, &what, &options)?;
    let owner = Owner::after(records.iter().map(|record| &record.owner));
    for record in bounds.iter().filter(|record| !record.assigned) {
        // What another state was granted since is no matter of this one.
        let mut marks = readable_marks(&directories.lock_dir, &record.numbering).unwrap_or_default();
        marks.retain(|mark| mark.state == owner.state);
        let bound = store::above_records(&records, &record.numbering);
        refuse_marks(&record.below(bound), &marks, &what, &options)?;
    }
    refuse_restored(&records, &what, &options)?;
    // The file is created before anything is released. So if the file's name is taken, nothing has
    // changed.
    let output = output.map(create).transpose()?;
    let text = store::export(&directory, records)?;
    // The state itself is released durably. The marks make a start refuse an older copy of the
    // state, too.
    mark(&moved, &owner.state, &locks, Fate::Released).map_err(|error| {
        Failure::no(format_args!("cannot mark the worker IDs' locks: {error}; export again"))
    })?;
    let written = match output {
        None => out.write_all(text.as_bytes()).and_then(|()| out.flush()),
        Some(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_all()),
    };
    // A closed pipe is a failure here, because nobody has the export then.
    written.map_err(|error| Failure::no(format_args!("cannot write the export: {error}; export again")))
}

/// Creates a new file that only its user can read: whoever has a copy of an export can use its
/// worker IDs.
fn create(path: &Path) -> Result<File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| {
        Failure::no(format_args!("cannot create {}: {error}; name a new file", path.display()))
    })
}

/// Locks and reads this machine's state in a directory.
fn open_own(path: &Path) -> Result<(StateDir, Vec<Record>), Failure> {
    // A missing directory is an error, and is not created.
    if !path.is_dir() {
        return Err(no_state(path));
    }
    let directory = StateDir::lock(path)?;
    let records = directory.read()?;
    if records.is_empty() {
        return Err(no_state(path));
    }
    refuse_foreign(&records, path)?;
    Ok((directory, records))
}

pub(super) fn refuse_foreign(records: &[Record], path: &Path) -> Outcome {
    match store::foreign(records, &HostIdentity::here()).next() {
        None => Ok(()),
        Some(_) => Err(Failure::no(format_args!(
            "the state in {} is another machine's; run this command there, or, if that machine is gone, start a daemon with \
             this state: its refusal says what to do first",
            path.display()
        ))),
    }
}

/// Refuses records whose ceilings are below the marks of this machine: such records are an older
/// copy.
fn refuse_lower(records: &[Record], locks: &[WorkerLocks], what: &str, options: &str) -> Outcome {
    for (record, locks) in records.iter().zip(locks) {
        // Marks of other layouts do not count, because every start is above them.
        refuse_marks(record, &locks.marks_of_source()?, what, options)?;
    }
    Ok(())
}

fn refuse_marks(record: &Record, marks: &[Mark], what: &str, options: &str) -> Outcome {
    if marks.iter().any(|mark| mark.fate == Fate::Unknown) {
        return Err(unknown_counter(record, what, options));
    }
    let Some(ahead) = marks.iter().find(|mark| mark.id_bound > record.id_bound) else { return Ok(()) };
    Err(Failure::no(format_args!(
        "{what} is older than the state that served on this machine: for source {:?} it ends at ID {}, and its worker IDs \
         were granted up to ID {} since; use the newest copy",
        record.name, record.id_bound, ahead.id_bound,
    )))
}

/// Refuses counters that a start would refuse, because the machine was restored from a snapshot since
/// they were last started or set. The importing machine could not notice that.
fn refuse_restored(records: &[Record], what: &str, options: &str) -> Outcome {
    let counters: Vec<&Record> = records.iter().filter(|it| it.numbering.ticket().is_some()).collect();
    let log = KernelLog::open();
    let Some(boot) = HostIdentity::here().boot else { return Ok(()) };
    let restored = counters.iter().find(|record| log.has_restore_since(record.life.as_deref(), &boot));
    restored.map_or(Ok(()), |record| Err(unknown_counter(record, what, options)))
}

fn unknown_counter(record: &Record, what: &str, options: &str) -> Failure {
    let Record { name, numbering, .. } = record;
    let command = store::set_command(name, numbering, options);
    Failure::no(format_args!(
        "source {name:?}: numbers beyond {what} may have been handed out, by another copy of this machine or in a fleet; run \
         {command} with the highest number first"
    ))
}

/// Marks the locks of these records' worker IDs as released up to the records' ceilings, or as
/// returned. Only a daemon that was granted IDs proves that it holds a number of a fleet. No fleet
/// knows a counter that has a mark.
fn mark(records: &[Record], state: &str, locks: &[WorkerLocks], fate: Fate) -> io::Result<()> {
    let marked = records.iter().zip(locks).map(|(record, locks)| {
        let is_counter = record.numbering.ticket().is_some();
        let fate = if fate == Fate::Returned && is_counter { Fate::Granted } else { fate };
        let mark = Mark { id_bound: record.id_bound, state: state.to_owned(), fate };
        if fate == Fate::Released { locks.mark(&mark) } else { locks.mark_anew(&mark) }
    });
    // If one mark fails, the others are still made.
    marked.fold(Ok(()), Result::and)
}

fn import(directories: &Directories, file: &Path, out: &mut impl Write) -> Outcome {
    let path = directories.state.path()?;
    let text = read_export(file)?;
    let export = store::parse_export(&text)?;
    let directory = StateDir::lock(&path)?;
    let stored = directory.read()?;
    refuse_foreign(&stored, &path)?;
    // The locks keep daemons of this machine from taking the worker IDs before the import is
    // durable.
    let arriving: Vec<Record> = export.iter().filter(|record| record.is_movable()).cloned().collect();
    let locks = lock_records(&directories.lock_dir, &arriving)?;
    let owner = Owner::after(stored.iter().map(|record| &record.owner));
    let merged = store::merge(stored, export.clone(), &owner, &KernelLog::open().host())?;
    refuse_lower(&arriving, &locks, "the export", &directories.options(&path))?;
    store::write(&directory, &merged)?;
    mark(&arriving, &owner.state, &locks, Fate::Returned).map_err(|error| {
        Failure::no(format_args!("cannot mark the worker IDs' locks: {error}; import again"))
    })?;
    for record in &export {
        let name = &record.name;
        let of = in_words(record);
        let bound = store::above_records(&merged, &record.numbering);
        let says = if record.is_movable() {
            format!("imported source {name:?}, {of}: goes on from ID {bound}")
        } else {
            let is_away = |stored: &Record| stored.released && record.numbering.is_part_of(&stored.numbering);
            let still = if merged.iter().any(is_away) {
                "; but it stays refused here until a daemon there has it, with a state directory of its own, and you import \
                 that export"
            } else {
                ""
            };
            format!("imported the bound of source {name:?}, {of}: a start would go on from ID {bound}{still}")
        };
        writeln!(out, "{says}")?;
    }
    Ok(())
}

/// Returns the words for a record's worker IDs or counter.
fn in_words(record: &Record) -> String {
    match &record.numbering {
        Numbering::Snowflake(numbering) => numbering.workers().in_words(),
        Numbering::Ticket(_) => String::from("ticket counter"),
    }
}

fn read_export(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().lock().take(EXPORT_BYTES_MAX).read_to_string(&mut text),
        _ => open_file(path).and_then(|file| file.take(EXPORT_BYTES_MAX).read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::no(format_args!("cannot read {}: {error}", path.display())))?;
    Ok(text)
}
